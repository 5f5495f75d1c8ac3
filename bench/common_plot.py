"""Plots: a picture where matplotlib is installed, else one made of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT = 64, 16
Points = Sequence[tuple[float, float]]


def plot(title: str, x: str, y: str, lines: Mapping[str, Points], file: Path | None) -> str:
    """Draws lines.

    Args:
        lines: Name -> points.
        file: Where a picture goes; None, or no matplotlib, draws characters.

    Returns:
        The picture's name, or the drawing.
    """
    if file is not None:
        try:
            return _picture(title, x, y, lines, file)
        except ImportError:
            pass
    return drawn(title, x, y, lines)


def drawn(title: str, x: str, y: str, lines: Mapping[str, Points]) -> str:
    """The lines as characters: each by the first letter that no other one has."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return title
    right = max(at for at, _ in points) or 1.0
    top = max(high for _, high in points) or 1.0
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    marks = _marks(lines)
    for name, line in lines.items():
        for at, high in line:
            column, row = round(at / right * (WIDTH - 1)), round(high / top * (HEIGHT - 1))
            grid[HEIGHT - 1 - row][column] = marks[name]
    body = [f"{top * (HEIGHT - 1 - n) / (HEIGHT - 1):10.4g} |{''.join(row)}" for n, row in enumerate(grid)]
    legend = ", ".join(f"{mark} = {name}" for name, mark in marks.items())
    return "\n".join([f"{title}: {y}", *body, " " * 11 + "+" + "-" * WIDTH, f"{'':12}0 .. {right:g} {x}; {legend}"])


def _marks(lines: Mapping[str, Points]) -> dict[str, str]:
    marks: dict[str, str] = {}
    for name in lines:
        free = [letter for letter in name + "*+xo#" if letter.isprintable() and letter not in (" ", *marks.values())]
        marks[name] = free[0]
    return marks


def _picture(title: str, x: str, y: str, lines: Mapping[str, Points], file: Path) -> str:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, line in lines.items():
        axes.plot([at for at, _ in line], [high for _, high in line], marker="o", label=name)
    axes.set(title=title, xlabel=x, ylabel=y, ylim=(0, None), xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    return str(file)
