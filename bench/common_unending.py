"""Answers that ignore the end-of-sequence token, so that every system does the same work.

    python -m bench.common_unending inference_svc --set core.precision=bf16

runs a module of Kev like that in a process of its own.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from inference_svc.answer import Answer


def ignore_end_of_sequence() -> None:
    """From now on, answers of this process end by their length only."""
    original = Answer.__init__

    def started(self: Answer, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._eos = frozenset()

    Answer.__init__ = started  # type: ignore[method-assign]


if __name__ == "__main__":
    ignore_end_of_sequence()
    module, sys.argv = sys.argv[1], sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
