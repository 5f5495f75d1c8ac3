"""Why there is no native backend here."""

from __future__ import annotations


class NativeUnavailable(RuntimeError):
    """This machine or this model cannot use the native backend; ``reference`` can take its place.

    The message says what is missing and what would help.
    """
