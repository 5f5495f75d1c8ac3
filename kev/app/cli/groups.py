"""Options that commands have in common, as dataclasses: declared once, taken by a command as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: a dataclass of options among its parameters gives way to its fields.

    Its parameters are keywords, and so are those of ``command``.
    """
    kinds = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in kinds.items() if _is_group(kind)}

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    parameters = list(_parameters(command, kinds))
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _parameters(command: Callable[..., None], kinds: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(command).parameters.items():
        kind = kinds[name]
        if _is_group(kind):
            inner = get_type_hints(kind, include_extras=True)
            yield from (_keyword(field.name, field.default, inner[field.name]) for field in fields(kind))
        else:
            yield _keyword(name, parameter.default, kind)


def _keyword(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
