# ruff: noqa: T201 - a script speaks on the terminal
"""Builds the native kernels for this machine, once. Without a compiler the reference backend serves."""

from __future__ import annotations

import logging

from inference_svc.backends.native.build import library
from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.variants import choose


def main() -> None:
    """Builds what is missing."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        library(choose())
    except NativeUnavailable as error:
        print(f"{error}; the reference backend serves instead.")


if __name__ == "__main__":
    main()
