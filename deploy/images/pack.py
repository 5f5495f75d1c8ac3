"""Packs the default model for given precisions and instruction sets, into ``KEV_CACHE_DIR``."""

from __future__ import annotations

import argparse
import sys

from inference_svc.backends.native.packed import open_packed
from inference_svc.backends.native.variants import by_name
from kev.tokens.model_files import resolve_model


def main() -> None:
    """Packs each pair once; the packing machine need not have the instruction set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--precisions", required=True, help="with spaces between")
    parser.add_argument("--variants", required=True, help="with spaces between")
    given = parser.parse_args()
    model = resolve_model(given.model)
    for precision in given.precisions.split():
        for variant in given.variants.split():
            packed = open_packed(model, precision, by_name(variant))
            sys.stdout.write(f"{precision} {variant}: {packed.memory.nbytes / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
