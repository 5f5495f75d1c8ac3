"""Options that say how tokens are chosen and what an answer may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kev.domain.constraint import MAX_SCHEMA_CHARS
from kev.domain.errors import InvalidArgument, KevError
from kev.domain.question import Constraint

TopK = Annotated[int | None, typer.Option("--top-k", min=0, help="Keep the k likeliest tokens; 0 keeps all.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Keep the fewest tokens with this much probability.")]
MinP = Annotated[
    float | None, typer.Option("--min-p", help="Drop tokens below this share of the likeliest one's probability.")
]
Repetition = Annotated[
    float | None, typer.Option("--repetition-penalty", help="For tokens in prompt or answer; 1 is none, at most 2.")
]
Presence = Annotated[
    float | None, typer.Option("--presence-penalty", help="For tokens that the answer holds; -2 to 2.")
]
Frequency = Annotated[
    float | None, typer.Option("--frequency-penalty", help="For each time that it holds them; -2 to 2.")
]
Logprobs = Annotated[
    int | None, typer.Option("--logprobs", metavar="N", help="Log probabilities, also of the N likeliest tokens.")
]
Choices = Annotated[
    list[str] | None, typer.Option("--choice", metavar="TEXT", help="The answer is one of these; repeatable.")
]
SchemaFile = Annotated[
    Path | None, typer.Option("--json-schema", metavar="FILE", help="The answer is JSON of this schema.")
]
Regex = Annotated[str | None, typer.Option("--regex", metavar="R", help="The whole answer matches this expression.")]


def constraint_of(choices: Sequence[str] | None, schema: Path | None, regex: str | None) -> Constraint | None:
    """The constraint that the options name, at most one.

    Raises:
        InvalidArgument: they name more than one.
        KevError: the schema's file cannot be read.
    """
    if sum(given is not None for given in (choices or None, schema, regex)) > 1:
        raise InvalidArgument("--choice, --json-schema, --regex", "give one of the three")
    if choices:
        return Constraint(choices=tuple(choices))
    if schema is not None:
        return Constraint(json_schema=_read(schema))
    return None if regex is None else Constraint(regex=regex)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_SCHEMA_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise KevError(f"--json-schema {path}: cannot be read ({why})") from None
