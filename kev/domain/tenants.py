"""Who calls: API keys to tenants. Pure; it holds hashes of the keys, never the keys."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from kev.domain.errors import InvalidArgument, Unauthenticated
from kev.domain.ids import is_request_id

ONE_TENANT = ""
"""The tenant of everybody, where there are no keys."""
KEY_ALLOWED = "16 to 256 letters, digits and signs without blanks, or sha256: and the 64 hex digits of its hash"
TENANT_ALLOWED = "1 to 128 letters, digits and . _ : -"
UNKNOWN = "the API key is not known"
_KEY = re.compile(r"[!-~]{16,256}")
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")
_NEEDED = "an API key is needed: the header 'authorization: Bearer KEY', or api_key of kev.Client, or KEV_API_KEY"


class Keyring:
    """Finds the tenant of a key. Without any key there is one tenant, and nobody is asked.

    Args:
        keys: Tenant -> its keys, or their hashes as ``sha256:HEX``.

    Raises:
        ValueError: says what is allowed, and of which tenant; never shows a key.
    """

    def __init__(self, keys: Mapping[str, Iterable[str]] | None = None) -> None:
        self._tenants: dict[bytes, str] = {}
        for tenant, its in (keys or {}).items():
            if not is_request_id(tenant):
                raise ValueError(f"a tenant's name must be {TENANT_ALLOWED}, got {tenant[:40]!r}")
            for key in its:
                digest = _digest(tenant, key)
                if self._tenants.setdefault(digest, tenant) != tenant:
                    raise ValueError(f"the tenants {self._tenants[digest]} and {tenant} have the same key")

    def tenant(self, authorization: str) -> str:
        """The tenant of a call.

        Args:
            authorization: The call's header of that name; empty for none.

        Raises:
            Unauthenticated: no key, or one that is not known.
        """
        if not self._tenants:
            return ONE_TENANT
        key = key_in(authorization)
        if not key:
            raise Unauthenticated(_NEEDED)
        digest, found = hashlib.sha256(key.encode()).digest(), None
        for known, tenant in self._tenants.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = tenant
        if found is None:
            raise Unauthenticated(UNKNOWN)
        return found


def key_in(authorization: str) -> str:
    """The key in an authorization header; empty if there is none."""
    scheme, _, key = authorization.strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def header_of(key: str) -> str:
    """The authorization header of a key; empty for none."""
    return f"Bearer {key}" if key else ""


def checked_key(key: str) -> str:
    """A key that a header can carry, or none.

    Raises:
        InvalidArgument: it cannot be one; it is not shown.
    """
    if key and not _KEY.fullmatch(key):
        raise InvalidArgument("api_key", "must be 16 to 256 letters, digits and signs without blanks")
    return key


def _digest(tenant: str, key: str) -> bytes:
    hashed = _HASHED.fullmatch(key)
    if hashed:
        return bytes.fromhex(hashed.group(1))
    if not _KEY.fullmatch(key) or key.startswith("sha256:"):
        raise ValueError(f"a key of tenant {tenant} must be {KEY_ALLOWED}")
    return hashlib.sha256(key.encode()).digest()
