"""What a template writes around a lone question, worked out once: the fast way to a prompt.

Most prompts are one user message behind the deployment's system prompt. If the template only writes (or trims) that
message, all it writes around it is the same each time; then the prompt is known tokens, the question between them as
ordinary text, known tokens. The template is first run on a text that cannot be read (`kev.tokens.opaque`): that
shows what it does to any text. Then the short way is compared with the long one on texts that a template might treat
in a special way, those that it names itself among them. Where either fails, there is no short way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kev.tokens.marks import MarkPair, Marks
from kev.tokens.opaque import LookedInside, Unread
from kev.tokens.segments import Encoded, Segments, question_tokens
from kev.tokens.templates import ChatTemplateError
from kev.tokens.tokenizer import Tokenizer

Render = Callable[[str, MarkPair], str]
"""The template's text behind the system part, for a lone user message with this content, and marks for the rest."""
Slowly = Callable[[str], list[int]]
"""All tokens behind the system part, the long way."""

_TRIED = (
    "x",
    " x ",
    "\n\tx\r\n",
    "\u3000x\u00a0",
    "x\n\ny: z",
    "0",
    "-1",
    "true",
    "none",
    "[]",
    "{}",
    "say \"x\" and 'y' \\ {{ z }} {% if %} {# # #}",
    "<tag> & &amp;",
    "</think>",
    "<think>x</think>y",
    "[INST] x [/INST]",
    "/no_think",
    "https://example.com/?a=b",
    "你好，世界 👨\u200d👩\u200d👧 é e\u0301",
    "\ue000\ue001\ue002\ue003\ue004",
    "X" * 500,
)
_MOST_NAMED = 200
"""A template with more texts of its own than so many is always run."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A prompt but for its question.

    Attributes:
        head: Ids before the text that holds the question.
        before, after: What stands in that text around the question.
        tail: Ids behind it.
        at_start: Whether that text begins the prompt.
        left, right: Whether the template trims the question there.
    """

    head: tuple[int, ...]
    before: str
    after: str
    tail: tuple[int, ...]
    at_start: bool
    left: bool
    right: bool

    def encode(self, tokenizer: Tokenizer, content: str, place: bool = True) -> Encoded | None:
        """Ids behind the system part; None for a content that the long way must take: one of white space only, or
        without any token.

        Args:
            place: Whether to look for the question's place.

        Raises:
            ValueError: the content holds a lone surrogate.
        """
        inner = content.strip()
        if not inner:
            return None
        body = content.lstrip() if self.left else content
        body = body.rstrip() if self.right else body
        text = self.before + body + self.after
        first = last = 0
        if place:
            tokens, spans = tokenizer.encode_spans(text, self.at_start)
            start = len(self.before) + body.index(inner[0])
            first, last = question_tokens(text, spans, start, start + len(inner))
        else:
            tokens = tokenizer.encode_text(text, self.at_start)
        if not tokens:
            return None
        return Encoded([*self.head, *tokens, *self.tail], (len(self.head) + first, len(self.head) + last))


def find_frame(
    render: Render,
    slowly: Slowly,
    marks: Marks,
    segments: Segments,
    tokenizer: Tokenizer,
    *,
    system_prompt: str,
    at_start: bool,
    named: frozenset[str],
) -> Frame | None:
    """The frame of a template, or None if it must be run for every question.

    Args:
        system_prompt: The deployment's own; it may stand in the rendered text.
        at_start: Whether the rendered text begins the prompt.
        named: Texts that stand in the template's source.
    """
    if marks.spaced or len(named) > _MOST_NAMED:
        return None
    try:
        frame = _drawn(render, marks, segments, system_prompt, at_start)
        if frame is None or not all(_agrees(frame, tokenizer, slowly, text) for text in _tried(tokenizer, named)):
            return None
    except (LookedInside, ChatTemplateError):
        return None
    return frame


def _drawn(render: Render, marks: Marks, segments: Segments, system_prompt: str, at_start: bool) -> Frame | None:
    """From what the template writes around a text that cannot be read."""
    free = marks.free(6, [system_prompt])
    if len(free) < 6:
        return None
    pair, letters = MarkPair(*free[:2]), free[2:]
    text = render(Unread(letters), pair)
    found = [(kind, letter) for kind, letter in enumerate(letters) if letter in text]
    if len(found) != 1 or text.count(found[0][1]) != 1:
        return None
    ((kind, letter),) = found
    around = segments.around(text, letter, pair, at_start)
    return Frame(*around, left=kind in (1, 3), right=kind in (2, 3))


def _tried(tokenizer: Tokenizer, named: frozenset[str]) -> Iterator[str]:
    yield from _TRIED
    for text in sorted(named):
        yield text
        yield f"x{text}y"
        yield from (word for word in text.split() if word != text)
    yield from (f"x{text}" for text in sorted(tokenizer.special)[:8])


def _agrees(frame: Frame, tokenizer: Tokenizer, slowly: Slowly, text: str) -> bool:
    found = frame.encode(tokenizer, text)
    return found is None or found.tokens == slowly(text)
