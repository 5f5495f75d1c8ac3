"""The reference backend: torch, any device, the oracle for all others."""

from inference_svc.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
