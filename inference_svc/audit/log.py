"""The audit log of one worker: opened from the settings, put around its backend, closed with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from inference_svc.audit.files import RotatingFile
from inference_svc.audit.record import Source
from inference_svc.audit.trail import AuditedBackend, Books, TrailOptions
from inference_svc.audit.writer import Count, Writer
from inference_svc.backends.port import Backend
from inference_svc.outcomes import Identity
from kev.config.settings import InferenceSettings
from kev.wire.process import StartError

Audited: TypeAlias = Callable[[Backend, Books], Backend]
"""Puts an audit log around a backend."""

MIB = 1 << 20


def unaudited(backend: Backend, books: Books) -> Backend:
    """No audit log."""
    return backend


class AuditLog:
    """Does nothing where ``inference.audit_log`` is empty.

    Raises:
        StartError: its folder cannot be written.
    """

    def __init__(
        self, settings: InferenceSettings, identity: Identity, count: Count, wall_ms: Callable[[], int]
    ) -> None:
        self._options = TrailOptions(settings.audit_log_rate, settings.audit_log_tokens, settings.audit_log_logits)
        self._source = Source(identity.worker_id, identity.model_digest, identity.backend, identity.variant, wall_ms())
        self._wall_ms = wall_ms
        self._writer: Writer | None = None
        if settings.audit_log:
            path = Path(settings.audit_log).expanduser() / f"{identity.worker_id}.jsonl"
            self._writer = Writer(_opened(path, settings), count)

    def around(self, backend: Backend, books: Books) -> Backend:
        """The backend, logged."""
        if self._writer is None:
            return backend
        return AuditedBackend(backend, self._writer, self._source, books, self._options, self._wall_ms)

    def end(self) -> None:
        """Lets the writer write what waits, and then end; does not wait for that."""
        if self._writer is not None:
            self._writer.end()

    @property
    def alive(self) -> bool:
        """Whether something is still being written."""
        return self._writer is not None and self._writer.alive


def _opened(path: Path, settings: InferenceSettings) -> RotatingFile:
    try:
        return RotatingFile(path, settings.audit_log_mb * MIB, settings.audit_log_files)
    except OSError as error:
        raise StartError(f"inference.audit_log: {str(path)!r} cannot be written ({error.strerror})") from None
