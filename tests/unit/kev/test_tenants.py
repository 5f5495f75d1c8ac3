"""API keys become tenants; no key is ever shown."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kev.config.keys import keyring_of
from kev.config.load import ConfigError, load_settings, shown
from kev.domain.errors import InvalidArgument, Unauthenticated
from kev.domain.tenants import Keyring, checked_key, header_of, key_in

ACME, GLOBEX, OLD = "acme-0123456789abcdef", "globex-0123456789abcd", "acme-older-key-0000"


def test_without_keys_everybody_is_one_tenant() -> None:
    assert [Keyring().tenant(told) for told in ("", "Bearer x", "nonsense")] == ["", "", ""]


def test_a_key_finds_its_tenant() -> None:
    hashed = "sha256:" + hashlib.sha256(GLOBEX.encode()).hexdigest()
    keyring = Keyring({"acme": [ACME, OLD], "globex": [hashed]})
    assert [keyring.tenant(header_of(key)) for key in (ACME, OLD, GLOBEX)] == ["acme", "acme", "globex"]
    assert keyring.tenant(f"bearer   {ACME} ") == "acme"


@pytest.mark.parametrize(
    "told", ["", "Bearer", "Bearer ", ACME, f"Basic {ACME}", f"Bearer {ACME}x", "Bearer sha256:ab"]
)
def test_what_is_no_known_key_is_refused_and_not_repeated(told: str) -> None:
    with pytest.raises(Unauthenticated, match="API key") as caught:
        Keyring({"acme": [ACME]}).tenant(told)
    assert ACME not in str(caught.value)


def test_a_hash_is_no_key() -> None:
    hashed = "sha256:" + hashlib.sha256(ACME.encode()).hexdigest()
    with pytest.raises(Unauthenticated):
        Keyring({"acme": [hashed]}).tenant(f"Bearer {hashed}")


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"acme": ["short"]}, "tenant acme must be 16 to 256"),
        ({"acme": ["has a blank in it !!"]}, "16 to 256"),
        ({"acme": ["sha256:abcdef0123456789"]}, "sha256"),
        ({"": [ACME]}, "tenant's name"),
        ({"a b": [ACME]}, "tenant's name"),
        ({"acme": [ACME], "globex": [ACME]}, "acme and globex have the same key"),
    ],
)
def test_keys_that_cannot_be_stop_the_start(keys: dict[str, list[str]], word: str) -> None:
    with pytest.raises(ValueError, match=word) as caught:
        Keyring(keys)
    assert not any(key in str(caught.value) for its in keys.values() for key in its)


def load(keys: Any, tmp_path: Path) -> Any:
    import yaml

    (tmp_path / "kev.yaml").write_text(yaml.safe_dump({"auth": {"keys": keys}}))
    return load_settings(tmp_path / "kev.yaml", environment={})


def test_keys_come_from_the_settings_or_a_file_and_are_hidden(tmp_path: Path) -> None:
    settings = load({"acme": ACME, "globex": [GLOBEX, OLD]}, tmp_path)
    assert keyring_of(settings.auth).tenant(f"Bearer {OLD}") == "globex"
    for text in (shown(settings), repr(settings), str(settings.model_dump())):
        assert not any(key in text for key in (ACME, GLOBEX, OLD))
    (tmp_path / "keys.yaml").write_text(f"acme: {ACME}\nglobex: [{GLOBEX}]\n")
    settings = load_settings(environment={"KEV_AUTH_KEYS": str(tmp_path / "keys.yaml")})
    assert keyring_of(settings.auth).tenant(f"Bearer {GLOBEX}") == "globex"


@pytest.mark.parametrize("keys", [[ACME], {"acme": {"key": ACME}}, {"acme": [1]}, {ACME: None}, 7])
def test_keys_of_another_form_are_refused_and_not_shown(keys: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"auth\.keys: must map tenants") as caught:
        load(keys, tmp_path)
    assert ACME not in str(caught.value)


@pytest.mark.parametrize("text", [None, f"acme {ACME}", f"- {ACME}", f"acme: [{ACME}", "acme: {a: 1}"])
def test_a_file_of_keys_that_cannot_be_read_says_so(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"auth\.keys: .*keys\.yaml") as caught:
        keyring_of(load(str(tmp_path / "keys.yaml"), tmp_path).auth)
    assert ACME not in str(caught.value)


def test_a_clients_key_must_fit_a_header() -> None:
    assert (checked_key(""), checked_key(ACME), key_in(header_of(ACME)), header_of("")) == ("", ACME, ACME, "")
    with pytest.raises(InvalidArgument, match="api_key") as caught:
        checked_key(ACME + "\n")
    assert ACME not in str(caught.value)
