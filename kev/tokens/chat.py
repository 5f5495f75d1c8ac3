"""From chat messages to the tokens of a prompt.

Two promises are kept here:

* **What a user writes never becomes a special token.** Each content is marked with private characters that the
  messages do not hold: one inside every special token's text, and one at each end, so that no special token can be
  spelled by the content alone or together with the template around it. The rendered text is split on the special
  tokens that are left (the template's own), then the marks are taken out.
* **The system prompt is the deployment's own.** Many templates insert a default one when the first message is not
  a system message. So the template is given a system message first; when none is wanted, it is a stand-in whose
  block is cut off again (see `kev.tokens.system_part`).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from kev.tokens.contexts import NO_PLACE, Contexts, Lead
from kev.tokens.frame import Frame, find_frame
from kev.tokens.marks import MarkPair, Marks
from kev.tokens.segments import Encoded, Segments
from kev.tokens.system_part import SystemPart, find_system_part
from kev.tokens.templates import FALLBACK_TEMPLATE, ChatTemplate, ChatTemplateError
from kev.tokens.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")

__all__ = ["ROLES", "ChatFormat", "ChatTemplateError", "Lead", "Prompt"]


class Prompt(Struct, frozen=True):
    """A question, ready for a model.

    Attributes:
        tokens: Token ids of the whole prompt.
        prefix_tokens: How many of the first tokens are the deployment's system part. They are the same ids for
            every question, so that their KV can be shared; 0 when there is no system prompt.
        question: `[start, end)` in `tokens` of those that stand for nothing but the last user message's content
            (white space at its ends aside); empty when it has none, or nobody asked for it.
        context_tokens: How many tokens behind the first `prefix_tokens` are the batch's prefix.
    """

    tokens: list[int]
    prefix_tokens: int
    question: tuple[int, int] = (0, 0)
    context_tokens: int = 0


class ChatFormat:
    """A model's chat format with a deployment's system prompt. Use one object from one thread.

    Args:
        tokenizer: The model's tokenizer, with its chat template. Without one, `FALLBACK_TEMPLATE` is used.
        system_prompt: The deployment's own system prompt; "" for none, and then no default of the template either.
        clock: For templates that write today's date.

    Raises:
        ChatTemplateError: the template cannot be used, or has no place for a system prompt.
    """

    def __init__(
        self, tokenizer: Tokenizer, system_prompt: str = "", clock: Callable[[], datetime] = datetime.now
    ) -> None:
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        names = {token: text for text, token in tokenizer.special.items()}
        self._bos = names.get(tokenizer.bos_id, "") if tokenizer.bos_id is not None else ""
        eos = next((names[token] for token in sorted(tokenizer.eos_ids) if token in names), "")
        self._fallback = tokenizer.chat_template is None
        source = tokenizer.chat_template or FALLBACK_TEMPLATE
        if self._fallback and tokenizer.adds_bos:
            source = "{{ bos_token }}" + source
        self._template = ChatTemplate(source, self._bos, eos, clock)
        self._marks = Marks(tokenizer.special, avoid=source)
        self._segments = Segments(tokenizer)
        self._system = self._find_system()
        self._contexts = Contexts(self._template, self._marks, self._segments, self._fallback)
        self._frame = self._find_frame()

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids that every prompt begins with: the deployment's system part; empty without a system prompt."""
        return tuple(self._system.tokens) if self._system_prompt else ()

    def render(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True, *, place: bool = True
    ) -> Prompt:
        """The tokens of a conversation whose last user message is the question.

        A system message of the client comes after the deployment's own, as a message of its own.

        Args:
            messages: Each with `role` (system, user or assistant) and `content`, at least one.
            add_generation_prompt: Whether to end with the head of the answer.
            place: Whether the question's place in the prompt is of interest, as it is to `cut`. It costs time.

        Raises:
            ValueError: a message is not of that form; the text names the field and what is allowed.
            ChatTemplateError: the template refuses these messages (a ValueError too).
        """
        if not messages:
            raise ValueError("messages: empty; allowed: at least one message")
        if add_generation_prompt and len(messages) == 1:
            prompt = self._framed(messages[0], place)
            if prompt is not None:
                return prompt
        return self._rendered(messages, add_generation_prompt)

    def _rendered(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> Prompt:
        """The prompt by running the template."""
        checked = [_checked(index, message) for index, message in enumerate(messages)]
        marks = self._marks.pick([self._system_prompt, *(message["content"] for message in checked)])
        guarded = self._guarded(checked, marks)
        if not self._system_prompt and checked[0]["role"] == "system":
            # The client brings a system message, so the template has no default to insert.
            found = self._segments.encode(self._template.render(guarded, add_generation_prompt), marks)
            return Prompt(found.tokens, 0, found.question)
        text = self._after_system(guarded, add_generation_prompt, marks)
        return self._behind_system(self._segments.encode(text, marks, at_start=not self._system.tokens))

    def _framed(self, message: Mapping[str, str], place: bool) -> Prompt | None:
        """The prompt of a lone user message without running the template; None where that cannot be done."""
        content = message.get("content")
        if self._frame is None or message.get("role") != "user" or not isinstance(content, str):
            return None
        if not self._template.same_date():
            self._system, self._frame = self._find_system(), self._find_frame()
            return None
        found = self._frame.encode(self._tokenizer, content, place)
        return None if found is None else self._behind_system(found)

    def _behind_system(self, found: Encoded) -> Prompt:
        head = self._system.tokens
        question = (found.question[0] + len(head), found.question[1] + len(head))
        return Prompt([*head, *found.tokens], len(head) if self._system_prompt else 0, question)

    def context(self, text: str, behind_pool: bool = False) -> tuple[int, ...]:
        """Ids of a text that many questions read: a system message of its own behind the deployment's.

        Args:
            behind_pool: Whether a context pool stands before it.

        Raises:
            ChatTemplateError: the template has no place for it.
            ValueError: the text cannot be encoded.
        """
        return self._contexts.encode(self._context_system(), text, int(behind_pool))

    def render_behind(
        self,
        messages: Sequence[Mapping[str, str]],
        lead: Lead,
        add_generation_prompt: bool = True,
        *,
        place: bool = True,
    ) -> Prompt:
        """Like `render`, for a conversation behind contexts. A context pool's tokens are not part of the prompt:
        they stand behind its first `prefix_tokens`."""
        if not lead.blocks:
            return self.render(messages, add_generation_prompt, place=place)
        if not messages:
            raise ValueError("messages: empty; allowed: at least one message")
        checked = [_checked(index, message) for index, message in enumerate(messages)]
        marks = self._marks.pick([message["content"] for message in checked])
        guarded, system = self._guarded(checked, marks), self._context_system()
        text = self._contexts.rest(system, lead.blocks, guarded, add_generation_prompt)
        found = self._segments.encode(text, marks, at_start=False)
        head = [*self.prefix, *lead.prefix]
        question = (found.question[0] + len(head), found.question[1] + len(head))
        return Prompt([*head, *found.tokens], len(self.prefix), question, len(lead.prefix))

    def cut(self, prompt: Prompt, keep: int) -> Prompt:
        """The prompt with at most the first `keep` tokens of its question, cut between characters.

        The system part, the conversation before and the template's tail stay whole.

        Raises:
            ValueError: `keep` is negative or more than the question has.
        """
        start, end = prompt.question
        if not 0 <= keep <= end - start:
            raise ValueError(f"keep: {keep} is out of range; allowed: 0 to {end - start}")
        while keep < end - start and self._splits_character(prompt.tokens[start : start + keep]):
            keep -= 1
        tokens = prompt.tokens[: start + keep] + prompt.tokens[end:]
        return Prompt(tokens, prompt.prefix_tokens, (start, start + keep), prompt.context_tokens)

    def _splits_character(self, tokens: list[int]) -> bool:
        tail = b"".join(self._tokenizer.token_bytes(token) for token in tokens[-8:])[-4:]
        for back in range(1, len(tail) + 1):
            byte = tail[-back]
            if byte & 0xC0 != 0x80:  # the character's first byte
                return byte >= 0xC0 and back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
        return False

    def _guarded(self, messages: list[dict[str, str]], marks: MarkPair) -> list[dict[str, str]]:
        last = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
        return [
            {"role": message["role"], "content": self._marks.guard(message["content"], marks, index == last)}
            for index, message in enumerate(messages)
        ]

    def _after_system(self, messages: list[dict[str, str]], add_generation_prompt: bool, marks: MarkPair) -> str:
        """The rendered text behind the system part, whose tokens are known."""
        for _ in range(2):
            first = self._system.messages
            if first and not self._system.cut:  # it stays in the text, so its marks must be those of the messages
                first = ({"role": "system", "content": self._marks.guard(self._system_prompt, marks)},)
            text = self._template.render([*first, *messages], add_generation_prompt)
            if text.startswith(self._system.cut):
                return text[len(self._system.cut) :]
            self._system = self._find_system()  # the template writes a date, and it has changed
        raise ChatTemplateError("messages: the model's chat template does not begin with its system part")

    def _context_system(self) -> tuple[dict[str, str], ...]:
        """The deployment's system message, where contexts can stand behind it."""
        if not self._system_prompt:
            return ()
        if not self._system.cut:
            raise ChatTemplateError(NO_PLACE)
        return self._system.messages

    def _find_system(self) -> SystemPart:
        return find_system_part(
            self._template, self._marks, self._segments, self._system_prompt, self._bos, self._fallback
        )

    def _find_frame(self) -> Frame | None:
        skipped = len(self._system.tokens)
        return find_frame(
            lambda content, marks: self._after_system([{"role": "user", "content": content}], True, marks),
            lambda content: self._rendered([{"role": "user", "content": content}], True).tokens[skipped:],
            self._marks,
            self._segments,
            self._tokenizer,
            system_prompt=self._system_prompt,
            at_start=not skipped,
            named=self._template.named,
        )


def _checked(index: int, message: Mapping[str, str]) -> dict[str, str]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ValueError(f"messages[{index}].role: {role!r} is not known; allowed: {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise ValueError(f"messages[{index}].content: {type(content).__name__}; allowed: text")
    return {"role": role, "content": content}
