"""Options that commands share are declared once and work as if each command had them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from kev.app.cli.groups import spread


@dataclass(frozen=True, slots=True)
class Taste:
    sweet: Annotated[int, typer.Option("--sweet", min=0, max=9, help="How sweet.")] = 3
    spices: Annotated[list[str] | None, typer.Option("--spice", help="Which ones.")] = None


app = typer.Typer(rich_markup_mode=None)


@app.command()
@spread
def cook(
    *,
    dish: Annotated[str, typer.Argument()],
    quick: Annotated[bool, typer.Option("--quick")] = False,
    taste: Taste,
    guests: Annotated[int, typer.Option("--guests")] = 1,
) -> None:
    """Cooks a dish."""
    print(dish, quick, taste, guests)


def test_a_group_arrives_as_one_value_with_its_defaults() -> None:
    given = CliRunner().invoke(app, ["soup", "--spice", "salt", "--spice", "cumin", "--guests", "4"])
    assert given.stdout.split("\n")[0] == f"soup False {Taste(3, ['salt', 'cumin'])} 4"
    assert CliRunner().invoke(app, ["soup", "--quick"]).stdout.startswith(f"soup True {Taste()} 1")


def test_bounds_and_help_are_those_of_the_declaration() -> None:
    assert CliRunner().invoke(app, ["soup", "--sweet", "10"]).exit_code == 2
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert "Cooks a dish." in text
    places = [text.index(option) for option in ("--quick", "--sweet", "--spice", "--guests")]
    assert places == sorted(places), "a group's options stand where the group stands"
