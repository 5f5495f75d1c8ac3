"""What all sections build on: the strict base class, and kinds of values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Milliseconds = Annotated[int, Field(ge=1, le=2**31 - 1)]


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535 or any(sign.isspace() for sign in text):
        raise ValueError("must be HOST:PORT with a port of 0 to 65535")
    return text


Address = Annotated[str, AfterValidator(_address)]


class Section(BaseModel):
    """Base of all sections: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, given: Any, info: ValidationInfo) -> Any:
        """``true`` is a 1 to Python, but hardly ever to who wrote it."""
        if isinstance(given, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("must not be true or false")
        return given
