"""``auth``, ``tls`` and ``http``: who may call, what nobody else can read, and the door for plain HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from kev.config.sections.base import Milliseconds, Port, Section


def listed_keys(given: Any) -> dict[str, tuple[SecretStr, ...]] | str:
    """Tenant -> its keys, from a mapping of one key or a list of them; a string stays, as a file's path.

    Raises:
        ValueError: says what is allowed; no key is shown.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise ValueError("must map tenants to their keys, or name a file that does")
    keys = {}
    for tenant, its in given.items():
        listed = [one.get_secret_value() if isinstance(one, SecretStr) else one for one in _as_list(its)]
        if not isinstance(tenant, str) or not all(isinstance(key, str) for key in listed):
            raise ValueError("must map tenants to a key, or to a list of keys, each a text")
        keys[tenant] = tuple(SecretStr(key) for key in listed)
    return keys


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


class AuthSettings(Section):
    """``auth``: who may call."""

    keys: Annotated[dict[str, tuple[SecretStr, ...]] | str, BeforeValidator(listed_keys)] = Field(default={})
    """Tenant -> API key or list of keys (or ``sha256:`` and its hash), or a YAML file of that; empty asks nobody."""


class TlsSettings(Section):
    """``tls``: encryption."""

    cert: str = ""
    """PEM file of the certificate that this process's gRPC door shows, its chain included; empty: not encrypted."""
    key: str = ""
    """PEM file of the certificate's key."""
    ca: str = ""
    """PEM file of the authorities that calls to `tls://HOST:PORT` trust, the broker's too; empty takes public ones."""

    @model_validator(mode="after")
    def _both(self) -> TlsSettings:
        if bool(self.cert) != bool(self.key):
            raise ValueError("cert and key must be given together, or neither")
        return self


class HttpSettings(Section):
    """``http``: the door for plain HTTP."""

    host: str = "127.0.0.1"
    """Where ``kev serve`` listens."""
    port: Port = 8765
    """Its port; 0 takes a free one."""
    body_timeout_ms: Milliseconds = 60_000
    """How long a request's body may take to arrive."""
