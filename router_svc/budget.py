"""How many tokens a question may use: decided before it costs a place in a queue."""

from enum import StrEnum

from msgspec import Struct


class Refused(StrEnum):
    """Why a question gets no place."""

    EMPTY = "empty"
    TOO_LONG = "too_long"


class Budget(Struct, frozen=True):
    """A question that fits.

    Attributes:
        prompt_tokens: Tokens of the prompt as it will run (at most, when the question is cut).
        max_tokens: Tokens the answer may have, at least 1.
        keep_question: How many tokens of the question to keep; None: all of it.
        warnings: What the client is to be told, with the counts; empty when all is as asked for.
    """

    prompt_tokens: int
    max_tokens: int
    keep_question: int | None = None
    warnings: tuple[str, ...] = ()


class Refusal(Struct, frozen=True):
    """A question that does not fit, with the counts.

    Attributes:
        reason: Which rule.
        prompt_tokens: Tokens of the prompt.
        max_tokens: Tokens wanted for the answer.
        allowed: The most tokens a prompt may have.
        text: The same for people.
    """

    reason: Refused
    prompt_tokens: int
    max_tokens: int
    allowed: int
    text: str


def plan(
    *,
    prompt_tokens: int,
    question_tokens: int,
    has_content: bool = True,
    requested: int | None,
    default_max_tokens: int,
    max_context: int,
    truncate: bool = False,
) -> Budget | Refusal:
    """Decide whether a prompt fits, and how long its answer may be.

    A prompt must leave room for one token of answer. One that does not is refused, never silently shortened; only
    with `truncate` is the question cut, at its end, and the client told. `max_tokens` is an upper limit: where the
    room behind the prompt is smaller it is lowered to that room, and the client is told if it had asked for more.

    Args:
        prompt_tokens: Tokens of the whole prompt.
        question_tokens: Those of them that stand for the question alone (`Prompt.question`).
        has_content: Whether the question has anything to read in it.
        requested: The client's `max_tokens`; None: `default_max_tokens`.
        default_max_tokens: The deployment's.
        max_context: Tokens of prompt and answer together that a channel can hold.
        truncate: Whether the client asked for cutting.

    Raises:
        ValueError: a limit is out of range; the text names the field and what is allowed.
    """
    wanted = default_max_tokens if requested is None else requested
    if wanted < 1:
        raise ValueError(f"max_tokens: {wanted} is out of range; allowed: 1 or more")
    if max_context < 2:
        raise ValueError(f"max_context: {max_context} is out of range; allowed: 2 or more")
    allowed = max_context - 1
    if not has_content:
        return Refusal(Refused.EMPTY, prompt_tokens, wanted, allowed, "the question is empty")
    if prompt_tokens <= allowed:
        return _fitting(prompt_tokens, wanted, max_context - prompt_tokens, requested is not None)
    if truncate:
        cut = _truncated(prompt_tokens, question_tokens, wanted, max_context)
        if cut is not None:
            return cut
    text = (
        f"the prompt has {prompt_tokens} tokens; allowed: {allowed}, "
        f"as max_context is {max_context} and the answer needs at least 1 (max_tokens: {wanted})"
    )
    return Refusal(Refused.TOO_LONG, prompt_tokens, wanted, allowed, text)


def _fitting(prompt_tokens: int, wanted: int, room: int, asked: bool) -> Budget:
    if wanted <= room or not asked:
        return Budget(prompt_tokens, min(wanted, room))
    warning = f"max_tokens_lowered: {wanted} wanted, room for {room} behind {prompt_tokens} prompt tokens"
    return Budget(prompt_tokens, room, None, (warning,))


def _truncated(prompt_tokens: int, question_tokens: int, wanted: int, max_context: int) -> Budget | None:
    """Cut the question so that the answer gets what it wants, but at most half of the room they share."""
    shared = max_context - (prompt_tokens - question_tokens)
    if shared < 2:
        return None  # what is not the question fills the context alone
    answer = min(wanted, max(1, shared // 2))
    keep = min(question_tokens, shared - answer)
    used = prompt_tokens - question_tokens + keep
    # "At most": the cut is made between characters, which may take up to three tokens more.
    warning = (
        f"length_warning: the question was cut from {question_tokens} to at most {keep} tokens, "
        f"the prompt from {prompt_tokens} to at most {used} of {max_context}"
    )
    return Budget(used, answer, keep, (warning,))
