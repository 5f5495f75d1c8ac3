"""What a prompt begins with, before any message of a client.

A template may insert a default system prompt when the first message is not a system message. No general switch turns
that off, but a system message in front always does. So one is always put there: the deployment's own, or else a
stand-in. A lone system message, rendered, shows what the template writes for it; when a longer conversation begins
with just that, it can be encoded once (the deployment's own) or cut off (the stand-in).
"""

from dataclasses import dataclass

from kev.tokens.marks import Marks
from kev.tokens.segments import Segments
from kev.tokens.templates import ChatTemplate, ChatTemplateError

_STAND_IN = "stand-in"
_PROBE = {"role": "user", "content": "probe"}


@dataclass(frozen=True, slots=True)
class SystemPart:
    """How every prompt begins.

    Attributes:
        messages: The system message to render in front of the client's messages, or none.
        cut: What the rendered text begins with, to be replaced by `tokens`.
        tokens: Ids that come first in every prompt: the deployment's system part, or a begin-of-text token.
    """

    messages: tuple[dict[str, str], ...] = ()
    cut: str = ""
    tokens: tuple[int, ...] = ()


def find_system_part(
    template: ChatTemplate, marks: Marks, segments: Segments, system_prompt: str, bos: str, fallback: bool
) -> SystemPart:
    """Work out the system part of a template for a deployment's system prompt ("" for none).

    Args:
        template: The model's chat template.
        marks: Guards the system prompt too: it is text, not markup.
        segments: Encodes the part.
        system_prompt: The deployment's own.
        bos: Text of the begin-of-text token, or "".
        fallback: The template is Kev's own, so its blocks may be encoded one by one.

    Raises:
        ChatTemplateError: the template has no place for the system prompt.
    """
    pair = marks.pick([system_prompt])
    content = marks.guard(system_prompt or _STAND_IN, pair)
    message = {"role": "system", "content": content}
    head = _separate_head(template, message)
    if head is None:
        return _folded(template, message) if system_prompt else SystemPart()
    rest = template.render([message, _PROBE], True)[len(head) :]
    if not system_prompt:
        # Some vocabularies begin every message, not only the text, with their begin-of-text token.
        kept = bos if bos and head.startswith(bos) and not rest.startswith(bos) else ""
        return SystemPart((message,), head, tuple(segments.encode(kept, pair).tokens))
    if not (fallback or segments.ends_special(head) or segments.starts_special(rest)):
        # Tokens could reach over the boundary, so the part has no ids of its own to share.
        return SystemPart((message,))
    return SystemPart((message,), head, tuple(segments.encode(head, pair).tokens))


def _separate_head(template: ChatTemplate, message: dict[str, str]) -> str | None:
    """What the template writes for the system message alone; None when it has no block of its own."""
    try:
        head = template.render([message], False)
        whole = template.render([message, _PROBE], True)
    except ChatTemplateError:
        return None
    return head if message["content"] in head and whole.startswith(head) else None


def _folded(template: ChatTemplate, message: dict[str, str]) -> SystemPart:
    """The template writes the system prompt into the first user message: nothing to share."""
    try:
        text = template.render([message, _PROBE], True)
    except ChatTemplateError as error:
        raise ChatTemplateError(f"core.system_prompt: the model's chat template refuses one: {error}") from error
    if message["content"] not in text:
        raise ChatTemplateError("core.system_prompt: the model's chat template has no place for one")
    return SystemPart((message,))
