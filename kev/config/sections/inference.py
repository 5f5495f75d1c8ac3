"""``inference``: one worker."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from kev.config.sections.base import Address, Section
from kev.domain.ids import is_worker_id


class InferenceSettings(Section):
    """``inference``: one worker."""

    worker_id: str = ""
    """Stable over restarts; empty takes the host's name."""
    listen: Address = "127.0.0.1:50061"
    """Where the worker serves gRPC for operators."""
    audit_log: str = ""
    """Folder of the audit log of forwards, a file per worker; empty logs none."""
    audit_log_rate: Annotated[float, Field(ge=0.0001, le=1.0)] = 1.0
    """Share of the forwards that are logged: 1 is all."""
    audit_log_tokens: bool = False
    """Whether token ids are logged, which texts can be read from; with them logits can be checked again."""
    audit_log_logits: bool = False
    """Whether a digest of every logit row is logged."""
    audit_log_mb: Annotated[int, Field(ge=1, le=65536)] = 64
    """Size at which a file is turned over, MiB."""
    audit_log_files: Annotated[int, Field(ge=0, le=1000)] = 8
    """Old files that are kept."""

    @model_validator(mode="after")
    def _name(self) -> InferenceSettings:
        if self.worker_id and not is_worker_id(self.worker_id):
            raise ValueError("worker_id must be lower case letters, digits and dashes, and no shared lane's name")
        return self
