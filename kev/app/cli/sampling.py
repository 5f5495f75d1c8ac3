"""Options that say how tokens are chosen and what an answer may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kev.app.cli.asking import given
from kev.domain.constraint import MAX_SCHEMA_CHARS
from kev.domain.errors import InvalidArgument, KevError
from kev.domain.question import Constraint


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is drawn, and what the whole answer may be."""

    temperature: Annotated[float | None, typer.Option("--temperature", help="0 is greedy; at most 2.")] = None
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=0, help="Keep the k likeliest tokens; 0 keeps all."),
    ] = None
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Keep the fewest tokens with this much probability.")
    ] = None
    min_p: Annotated[
        float | None, typer.Option("--min-p", help="Drop tokens below this share of the likeliest one's probability.")
    ] = None
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", help="For tokens in prompt or answer; 1 is none, at most 2.")
    ] = None
    presence_penalty: Annotated[
        float | None, typer.Option("--presence-penalty", help="For tokens that the answer holds; -2 to 2.")
    ] = None
    frequency_penalty: Annotated[
        float | None, typer.Option("--frequency-penalty", help="For each time that it holds them; -2 to 2.")
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", help="Fixes the random stream of sampled answers.")] = None
    logprobs: Annotated[
        int | None, typer.Option("--logprobs", metavar="N", help="Log probabilities, also of the N likeliest tokens.")
    ] = None
    choices: Annotated[
        list[str] | None, typer.Option("--choice", metavar="TEXT", help="The answer is one of these; repeatable.")
    ] = None
    json_schema: Annotated[
        Path | None, typer.Option("--json-schema", metavar="FILE", help="The answer is JSON of this schema.")
    ] = None
    regex: Annotated[
        str | None, typer.Option("--regex", metavar="R", help="The whole answer matches this expression.")
    ] = None

    def limits(self) -> dict[str, Any]:
        """Limits of a question that were given.

        Raises:
            InvalidArgument: two constraints.
            KevError: the schema's file cannot be read.
        """
        return given(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
            logprobs=self.logprobs,
            constraint=self._constraint(),
        )

    def _constraint(self) -> Constraint | None:
        if sum(one is not None for one in (self.choices or None, self.json_schema, self.regex)) > 1:
            raise InvalidArgument("--choice, --json-schema, --regex", "give one of the three")
        if self.choices:
            return Constraint(choices=tuple(self.choices))
        if self.json_schema is not None:
            return Constraint(json_schema=_read(self.json_schema))
        return None if self.regex is None else Constraint(regex=self.regex)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_SCHEMA_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise KevError(f"--json-schema {path}: cannot be read ({why})") from None
