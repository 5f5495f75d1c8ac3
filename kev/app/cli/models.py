"""``kev models``: which are here, whether one can be served, and getting one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kev.app.cli.running import BAD_USE, FAILED


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(name="models", help="Lists, checks and downloads models.", no_args_is_help=True)

    @group.command("list")
    def list_models(
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Lists the default model and those that were downloaded."""
        from kev.app.models import found_models

        models = [describe(path) for path in found_models()]
        if as_json:
            sys.stdout.write(json.dumps(models, indent=1) + "\n")
        for facts in () if as_json else models:
            sys.stdout.write(_line(facts) + "\n")

    @group.command()
    def check(
        path: Annotated[str, typer.Argument(help="A .gguf file, a Hugging Face directory, or default.")],
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Says whether a model can be served, and if not, why. Its weights are not read. Exit code 1 if it cannot."""
        facts = describe(path)
        if as_json:
            sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        else:
            sys.stdout.writelines(f"{name:<12} {_text(value)}\n" for name, value in facts.items())
        raise typer.Exit(0 if facts["served"] else FAILED)

    @group.command()
    def download(
        name: Annotated[str, typer.Argument(metavar="OWNER/NAME[:FILE.gguf]", help="A repository of the hub.")],
        revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")] = None,
    ) -> None:
        """Downloads a model's weights, config and tokenizer, never pickled files, and checks it."""
        from kev.app.models import CannotDownload, fetched

        try:
            path = fetched(name, revision)
        except CannotDownload as error:
            sys.stderr.write(f"error: {error}\n")
            raise typer.Exit(BAD_USE if error.bad_use else FAILED) from None
        facts = describe(path)
        sys.stdout.write(_line(facts) + "\n")
        raise typer.Exit(0 if facts["served"] else FAILED)

    app.add_typer(group)


def describe(path: str | Path) -> dict[str, Any]:
    """What a model is, and whether it can be served: ``served`` and, if not, ``reason``."""
    from inference_svc.models.describe import describe_model

    return describe_model(str(path))


def _line(facts: dict[str, Any]) -> str:
    if not facts["served"]:
        return f"{facts['path']}: cannot be served: {facts['reason']}"
    return f"{facts['path']}: {facts['family']}, {facts['parameters'] / 1e6:.0f} M, {_text(facts['types'])}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} x {name}" for name, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
