"""What all sections build on: the strict base class, and kinds of values."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, Literal, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Milliseconds = Annotated[int, Field(ge=1, le=2**31 - 1)]


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535 or any(sign.isspace() for sign in text):
        raise ValueError("must be HOST:PORT with a port of 0 to 65535")
    return text


def _target(text: str) -> str:
    _address(text.removeprefix("tls://"))
    return text


Address = Annotated[str, AfterValidator(_address)]
Target = Annotated[str, AfterValidator(_target)]
"""Where a call goes: encrypted with ``tls://`` before it."""


def formed(pattern: str, allowed: str) -> AfterValidator:
    """For text of a form: what has another one is refused with ``allowed``, which people can read."""
    whole = re.compile(pattern)

    def checked(text: str) -> str:
        if whole.fullmatch(text) is None:
            raise ValueError(allowed)
        return text

    return AfterValidator(checked)


class Section(BaseModel):
    """Base of all sections: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, given: Any, info: ValidationInfo) -> Any:
        """``true`` is a 1 to Python, but hardly ever to who wrote it."""
        kind = cls.model_fields[info.field_name or ""].annotation
        named = get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum))
        if isinstance(given, bool) and kind is not bool and not named:  # that error would name what is allowed
            raise ValueError("must not be true or false")
        return given
