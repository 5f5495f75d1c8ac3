"""What pydantic complains about, for people: config files and HTTP bodies speak the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel


def complaint(kind: str, text: str, location: Sequence[int | str], form: type[BaseModel] | None) -> str:
    """One error's text.

    Args:
        kind, text, location: ``type``, ``msg`` and ``loc`` of the error.
        form: What was read; None if it is no object, so that it has no keys.
    """
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        allowed = f"; allowed: {', '.join(_form_at(form, location[:-1]).model_fields)}" if form else ""
        return f"unknown key{allowed}"
    return text.removeprefix("Value error, ")


def _form_at(form: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel]:
    """What kind of object stands at a place."""
    for name in (str(part) for part in location if not isinstance(part, int)):
        form = next(_forms_in(form.model_fields[name].annotation))
    return form


def _forms_in(kind: Any) -> Iterator[type[BaseModel]]:
    """The objects in a field's type: in a list of them, or where there may be none."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _forms_in(part)
