"""Why a model is not served."""

from __future__ import annotations


class ModelError(ValueError):
    """A model cannot be served. The message is one line: what was found, and what is allowed."""
