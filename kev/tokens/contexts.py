"""Contexts that many questions read: where a template puts them, and their ids.

A context is a system message of its own behind the deployment's. It is
encoded once, alone, so that its ids are the same whatever follows. That needs
a template which writes a block for it, apart from what stands before and
behind. A template that has none is refused; nothing is squeezed in elsewhere.

A question is rendered behind stand-ins, because the router that renders it
need not hold the context's text.
"""

from collections.abc import Sequence

from msgspec import Struct

from kev.tokens.marks import Marks
from kev.tokens.segments import Segments
from kev.tokens.templates import ChatTemplate, ChatTemplateError

_STAND_IN = {"role": "system", "content": "stand-in"}
_PROBE = {"role": "user", "content": "probe"}
NO_PLACE = "the model's chat template has no place for a context of its own behind the system prompt"


class Lead(Struct, frozen=True):
    """What stands between the system prompt and a conversation.

    Attributes:
        pool: Whether a context pool does. Its tokens are kept elsewhere: they are in no prompt.
        prefix: Ids of the batch's prefix, which stands behind the pool; empty for none.
    """

    pool: bool = False
    prefix: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        """How many contexts these are."""
        return int(self.pool) + bool(self.prefix)


class Contexts:
    """The contexts of one template. Use one object from one thread.

    Args:
        template, marks, segments: The chat format's own.
        fallback: The template is Kev's own, so its blocks may be encoded one by one.
    """

    def __init__(self, template: ChatTemplate, marks: Marks, segments: Segments, fallback: bool) -> None:
        self._template = template
        self._marks = marks
        self._segments = segments
        self._fallback = fallback
        self._heads: dict[tuple[tuple[str, ...], int], str] = {}

    def encode(self, system: Sequence[dict[str, str]], text: str, behind: int) -> tuple[int, ...]:
        """Ids of a context.

        Args:
            system: The deployment's system message, or none.
            text: Of the context; none of it becomes a special token.
            behind: Contexts between the system message and this one.

        Raises:
            ChatTemplateError: the template has no place for it.
            ValueError: the text cannot be encoded.
        """
        pair = self._marks.pick([text])
        message = {"role": "system", "content": self._marks.guard(text, pair)}
        lead = [*system, *[_STAND_IN] * behind]
        try:
            before = self._template.render(lead, False) if lead else ""
            head = self._template.render([*lead, message], False)
            whole = self._template.render([*lead, message, _PROBE], True)
            # What follows must not depend on the text: questions are rendered behind a stand-in.
            usual = self.rest(system, behind + 1, [_PROBE], True)
        except ChatTemplateError:
            raise ChatTemplateError(NO_PLACE) from None
        part, rest = head[len(before) :], whole[len(head) :]
        apart = head.startswith(before) and whole.startswith(head) and message["content"].strip() in part
        if not (apart and rest == usual and self._cuts(before, part) and self._cuts(part, rest)):
            raise ChatTemplateError(NO_PLACE)
        return tuple(self._segments.encode(part, pair, at_start=not before).tokens)

    def rest(
        self,
        system: Sequence[dict[str, str]],
        blocks: int,
        messages: Sequence[dict[str, str]],
        add_generation_prompt: bool,
    ) -> str:
        """The rendered text of a conversation behind system message and contexts.

        Raises:
            ChatTemplateError: the template has no place for contexts, or refuses the messages.
        """
        lead = [*system, *[_STAND_IN] * blocks]
        key = (tuple(message["content"] for message in system), blocks)
        for _ in range(2):
            text = self._template.render([*lead, *messages], add_generation_prompt)
            head = self._heads.get(key)
            if head is None:
                head = self._heads[key] = self._template.render(lead, False)
            if text.startswith(head):
                return text[len(head) :]
            del self._heads[key]  # the template writes a date, and it has changed
        raise ChatTemplateError(NO_PLACE)

    def _cuts(self, before: str, behind: str) -> bool:
        """Whether no token can reach over the boundary of two parts."""
        return (
            self._fallback or not before or self._segments.ends_special(before) or self._segments.starts_special(behind)
        )
