"""``kev version``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import typer


def kev_version() -> str:
    """The installed version; ``0`` in a bare checkout."""
    try:
        return installed("kev-serving")
    except PackageNotFoundError:
        return "0"


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def version() -> None:
        """Prints the version."""
        typer.echo(f"kev {kev_version()}")
