"""``auth.keys``: where the tenants' API keys are written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from kev.config.sections.doors import AuthSettings, listed_keys
from kev.config.source import ConfigError
from kev.domain.tenants import Keyring


def keyring_of(auth: AuthSettings) -> Keyring:
    """The keyring of the settings, with its file read.

    Raises:
        ConfigError: the file cannot be read, or a key or a tenant's name cannot be; no key is shown.
    """
    keys = _from_file(Path(auth.keys)) if isinstance(auth.keys, str) and auth.keys else auth.keys
    assert not isinstance(keys, str) or not keys
    try:
        return Keyring({tenant: [key.get_secret_value() for key in its] for tenant, its in dict(keys or {}).items()})
    except ValueError as error:
        raise ConfigError(f"auth.keys: {error}") from None


def _from_file(path: Path) -> dict[str, tuple[SecretStr, ...]]:
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"auth.keys: {path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError):  # its text could hold a key
        raise ConfigError(f"auth.keys: {path} is not valid YAML") from None
    try:
        keys = listed_keys({} if found is None else found)
    except ValueError as error:
        raise ConfigError(f"auth.keys: {path} {error}") from None
    if isinstance(keys, str):
        raise ConfigError(f"auth.keys: {path} must hold lines of the form tenant: key")
    return keys
