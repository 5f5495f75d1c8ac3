"""Log probabilities as JSON."""

from __future__ import annotations

from typing import Any

from kev.domain.outcome import ChosenToken, TokenLogprob
from kev.domain.result import SlotResult


def logprob_records(result: SlotResult) -> list[dict[str, Any]]:
    """One record per token of the answer; empty where none were asked for.

    A token's ``text`` may end inside a character, which then shows as U+FFFD; its ``bytes`` are exact.
    """
    return [{**_record(one.chosen), "top": [_record(other) for other in one.top]} for one in result.logprobs]


def logprob_lines(logprobs: tuple[ChosenToken, ...]) -> list[str]:
    """For people: one line per token, with the likeliest ones behind it."""
    return [
        f"{_shown(one.chosen)}   {'  '.join(_shown(other).strip() for other in one.top)}".rstrip() for one in logprobs
    ]


def _record(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.token, "text": _text(one), "bytes": list(one.text), "logprob": one.logprob}


def _text(one: TokenLogprob) -> str:
    return one.text.decode("utf-8", "replace")


def _shown(one: TokenLogprob) -> str:
    return f"{one.logprob:9.4f} {_text(one)!r}"
