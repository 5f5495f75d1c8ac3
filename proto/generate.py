"""Generates kev/v1 from proto/; ``--check`` only says whether it is fresh."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTO = Path(__file__).parent
TARGET = PROTO.parent / "kev" / "v1"


def generate(out: Path) -> None:
    """Writes the stubs below ``out``."""
    includes = Path(grpc_tools.__file__).parent / "_proto"
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("kev/v1/*.proto"))
    flags = [f"-I{PROTO}", f"-I{includes}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
    if protoc.main(["protoc", *flags, *files]):
        sys.exit("protoc failed")


def stale(fresh: Path) -> list[str]:
    """Names of generated files that differ from the checked-in ones."""
    names = sorted(path.name for path in fresh.iterdir())
    return [n for n in names if not (TARGET / n).exists() or not filecmp.cmp(fresh / n, TARGET / n, shallow=False)]


def main() -> None:
    """Generates, or checks."""
    if "--check" not in sys.argv[1:]:
        generate(PROTO.parent)
        return
    with tempfile.TemporaryDirectory() as out:
        generate(Path(out))
        if names := stale(Path(out) / "kev" / "v1"):
            sys.exit(f"kev/v1 is not fresh: {', '.join(names)}. Run: python proto/generate.py")


if __name__ == "__main__":
    main()
