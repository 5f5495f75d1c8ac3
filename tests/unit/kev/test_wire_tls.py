"""Encrypted doors: who reads along reads nothing, and who is not whom the certificate says is not called."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kev.app.health import is_serving
from kev.client import AsyncClient
from kev.config.load import ConfigError, load_settings
from kev.config.settings import TlsSettings
from kev.domain.errors import InvalidArgument, KevError
from kev.wire.serving import GrpcHost, StartError, open_channel
from kev.wire.tls import target_of

NAME = "kev.v1.RouterService"


class Files:
    """A certificate of an authority of its own, for this machine's name and address."""

    def __init__(self, folder: Path, name: str = "a") -> None:
        self.cert, self.key, self.ca = (str(folder / f"{name}-{part}.pem") for part in ("cert", "key", "ca"))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        issued = authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_pem.write_to_path(self.key)
        Path(self.cert).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    @property
    def tls(self) -> TlsSettings:
        return TlsSettings(cert=self.cert, key=self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
async def address(files: Files) -> AsyncIterator[str]:
    host = GrpcHost("127.0.0.1:0", [NAME], files.tls)
    started = await host.start()
    await host.set_serving(True)
    yield started
    await host.stop(0)


async def serves(address: str, ca: str = "") -> bool:
    async with open_channel(address, ca) as channel:
        return await is_serving(channel)


async def test_who_trusts_the_authority_is_answered(address: str, files: Files) -> None:
    assert address.startswith("tls://127.0.0.1:")
    assert await serves(address, files.ca)
    assert await serves(address.replace("127.0.0.1", "localhost"), files.ca)


async def test_whom_nobody_vouches_for_is_not_called(address: str, files: Files, tmp_path: Path) -> None:
    assert not await serves(address)
    assert not await serves(address, Files(tmp_path, "other").ca)


async def test_who_does_not_encrypt_is_not_answered(address: str) -> None:
    assert not await serves(target_of(address)[0])


async def test_who_encrypts_calls_nobody_who_does_not(files: Files) -> None:
    host = GrpcHost("127.0.0.1:0", [NAME])
    address = await host.start()
    await host.set_serving(True)
    assert not address.startswith("tls:")
    assert await serves(address)
    assert not await serves(f"tls://{address}", files.ca)
    await host.stop(0)


async def test_a_renewed_certificate_is_shown_without_a_restart(address: str, files: Files, tmp_path: Path) -> None:
    assert await serves(address, files.ca)
    new = Files(tmp_path, "new")
    os.replace(new.cert, files.cert)
    assert await serves(address, files.ca), "half of the new pair is there: the old one goes on"
    os.replace(new.key, files.key)
    assert await serves(address, new.ca)
    assert not await serves(address, files.ca)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda files: {"cert": "/nowhere.pem"}, r"/nowhere\.pem: cannot be read"),
        (lambda files: {"key": files.ca}, "not a PEM certificate and its key"),
        (lambda files: {"cert": __file__}, "not a PEM certificate and its key"),
    ],
)
async def test_files_that_cannot_be_used_are_told_before_anybody_calls(files: Files, change: Any, told: str) -> None:
    host = GrpcHost("127.0.0.1:0", [NAME], files.tls.model_copy(update=change(files)))
    with pytest.raises(StartError, match=rf"tls\.cert, tls\.key: .*{told}"):
        await host.start()


@pytest.mark.parametrize(("given", "told"), [("/nowhere.pem", "cannot be read"), (__file__, "no PEM"), (5, "path")])
async def test_a_client_names_authorities_that_cannot_be(given: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^ca: .*{told}"):
        AsyncClient("tls://127.0.0.1:1", ca=given)


async def test_authorities_do_not_make_a_plain_call_an_encrypted_one(files: Files) -> None:
    with pytest.raises(
        InvalidArgument, match=r"^ca: is for tls://HOST:PORT; calls to 127\.0\.0\.1:1 are not encrypted"
    ):
        AsyncClient("127.0.0.1:1", ca=files.ca)
    AsyncClient("127.0.0.1:1", aggregator="tls://127.0.0.1:2", ca=files.ca)


async def test_the_environment_names_a_clients_authorities(
    address: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door has nothing behind it, and says so."""
    monkeypatch.setenv("KEV_TLS_CA", files.ca)
    async with AsyncClient(address) as client:
        with pytest.raises(KevError, match="UNIMPLEMENTED"):
            await client.contexts()


def test_a_certificate_needs_its_key() -> None:
    for flag in ("tls.cert", "tls.key"):
        with pytest.raises(ConfigError, match="tls: cert and key must be given together"):
            load_settings(flags={flag: "a.pem"}, environment={})


@pytest.mark.parametrize("target", ["127.0.0.1:1", "tls://aggregator:50052"])
def test_the_routers_aggregator_may_encrypt(target: str) -> None:
    assert load_settings(flags={"router.aggregator": target}, environment={}).router.aggregator == target


@pytest.mark.parametrize("target", ["tls://aggregator", "http://a:1", "tls://http://a:1"])
def test_an_aggregator_that_cannot_be(target: str) -> None:
    with pytest.raises(ConfigError, match=r"router\.aggregator"):
        load_settings(flags={"router.aggregator": target}, environment={})
