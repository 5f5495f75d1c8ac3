# ruff: noqa: T201 - a script speaks on the terminal
"""Writes the tables of docs/configuration.md from kev/config/sections; ``--check`` only checks."""

from __future__ import annotations

import ast
import inspect
import sys
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from kev.config.load import SECTIONS
from kev.config.sections.base import Section

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def described(section: type[Section]) -> dict[str, str]:
    """Field name -> the docstring below the field."""
    (node,) = ast.parse(inspect.getsource(section)).body
    return dict(_docs(node)) if isinstance(node, ast.ClassDef) else {}


def _docs(node: ast.ClassDef) -> list[tuple[str, str]]:
    pairs = zip(node.body, node.body[1:], strict=False)
    found = []
    for field, after in pairs:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            text = after.value.value if isinstance(after.value, ast.Constant) else ""
            found.append((field.target.id, " ".join(str(text).replace("``", "`").split())))
    return found


def allowed(field: FieldInfo) -> str:
    """What a value may be."""
    kind: Any = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{member.value}`" for member in kind)
    if get_origin(kind) is tuple:
        return "a list, in the file"
    if kind is bool:
        return "`true`, `false`"
    low = next((limit.ge for limit in field.metadata if isinstance(limit, Ge)), None)
    high = next((limit.le for limit in field.metadata if isinstance(limit, Le)), None)
    above = next((limit.gt for limit in field.metadata if isinstance(limit, Gt)), None)
    if above is not None:
        return f"above {above:g}, at most {high:g}"
    if get_origin(kind) is UnionType:
        return "a mapping, or text"
    if low is None:
        return "text"
    return f"{low} or more" if high is None or high >= 2**31 - 1 else f"{low} to {high}"


def default(field: FieldInfo) -> str:
    """The default as it would stand in the file."""
    value = field.default
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value}`" if str(value) and value != () else "empty"


def tables() -> str:
    """All sections."""
    blocks = []
    for name, section in SECTIONS.items():
        texts = described(section)
        rows = ["| key | default | allowed | what |", "| --- | --- | --- | --- |"]
        for key, field in section.model_fields.items():
            what = texts.get(key, "")
            rows.append(f"| `{key}` | {default(field)} | {allowed(field)} | {what} |")
        title = (section.__doc__ or "").partition(": ")[2].rstrip(".")
        blocks.append(f"## `{name}`: {title}\n\n" + "\n".join(rows))
    return "\n\n".join(blocks)


def page() -> str:
    """The page with fresh tables."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Writes, or checks."""
    fresh = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != PAGE.read_text(encoding="utf-8"):
        sys.exit("docs/configuration.md is not fresh. Run: make docs")
    else:
        print("docs/configuration.md is fresh")


if __name__ == "__main__":
    main()
