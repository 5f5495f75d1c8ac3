"""Certificates of gRPC: what a door shows to its callers, and whom a call trusts."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import grpc

from kev.config.settings import TlsSettings

log = logging.getLogger(__name__)
TLS = "tls://"
"""Stands before the ``HOST:PORT`` of a service that encrypts."""


def target_of(address: str) -> tuple[str, bool]:
    """``HOST:PORT`` of an address, and whether calls to it are encrypted."""
    target = address.removeprefix(TLS)
    return target, target != address


def address_of(target: str, tls: TlsSettings) -> str:
    """The address of a service of these settings that listens at ``HOST:PORT``."""
    return f"{TLS}{target}" if tls.cert else target


def authorities(path: str) -> bytes | None:
    """The certificates in a PEM file; None for no path: gRPC then trusts its own list of public authorities.

    Raises:
        ValueError: says what is wrong with the file.
    """
    if not path:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {_why(error, 'holds no PEM certificates')}") from None


def server_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """For a door that shows the settings' certificate, read again when its files change.

    Raises:
        ValueError: says what is wrong with the files.
    """
    files = _Files(tls.cert, tls.key)
    fetch: Any = files.renewed  # the stubs forget that None means: as before
    return grpc.dynamic_ssl_server_credentials(files.read(), fetch)


class _Files:
    """A certificate and its key. Whoever renews them need not restart the service."""

    def __init__(self, cert: str, key: str) -> None:
        self._paths = (cert, key)
        self._seen: object = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """The pair as it is now; raises ``ValueError``."""
        cert, key = self._paths
        try:
            self._seen = self._state()
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
            return grpc.ssl_server_certificate_configuration([(Path(key).read_bytes(), Path(cert).read_bytes())])
        except OSError as error:
            where = error.filename or f"{cert}, {key}"
            raise ValueError(f"{where}: {_why(error, 'not a PEM certificate and its key')}") from None

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """For each handshake: the pair, if it is another one than before."""
        try:
            return self.read() if self._state() != self._seen else None
        except (OSError, ValueError) as error:  # half of it is written: the next caller finds the other half, too
            log.warning("the certificate was not renewed: %s", error)
            return None

    def _state(self) -> object:
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in map(Path.stat, map(Path, self._paths))]


def _why(error: OSError, bad: str) -> str:
    return bad if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
