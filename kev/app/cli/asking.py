"""Options of the commands that ask: what a batch and its questions are told, apart from sampling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kev.app.batchfile.read import text_of
from kev.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Bounds of the questions, and what they share."""

    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Most new tokens of an answer.")] = None
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=1, help="A question's time, milliseconds."),
    ] = None
    isolation: Annotated[str | None, typer.Option("--isolation", help="strict, shared or loose.")] = None
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="A context that the questions read; makes the batch loose."),
    ] = None
    prefix: Annotated[str | None, typer.Option("--prefix", help="Text that stands before every question.")] = None
    prefix_file: Annotated[Path | None, typer.Option("--prefix-file", help="The same from a file, UTF-8.")] = None
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="round_robin, consistent_hash, semantic_hash or length_aware."),
    ] = None

    def limits(self) -> dict[str, Any]:
        """Limits of a question that were given."""
        return given(max_tokens=self.max_tokens, timeout_ms=self.timeout_ms, context_pool=self.context)

    def whole(self) -> dict[str, Any]:
        """Options of the whole batch that were given. A context makes it loose, if nothing else is said.

        Raises:
            InvalidArgument: two prefixes.
            BadFile: the prefix's file cannot be read.
        """
        if self.prefix is not None and self.prefix_file is not None:
            raise InvalidArgument("--prefix, --prefix-file", "give one of them")
        prefix = text_of(str(self.prefix_file)) if self.prefix_file is not None else self.prefix
        level = "loose" if self.context and self.isolation is None else self.isolation
        return given(isolation=level, prefix=prefix, strategy=self.strategy)


def given(**options: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in options.items() if value is not None}
