"""The memory that a KV layout really takes: the same runs as ``bench.layouts`` counts, computed by the real model.

``bench.layouts --resident`` starts this, a process for each layout. The long
question is in the middle. The KV store is mapped memory: the system gives a
page of it when something is written there for the first time, and never takes
it back. So what is resident in the end is its peak.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import inference_svc.worker  # noqa: F401 - what a worker imports is its baseline
from bench.core.machine import memory_mib, reset_peak
from bench.layouts import Found, questions, run, with_long
from inference_svc.backends.load import load_backend
from inference_svc.backends.port import Backend
from inference_svc.memory import Memory
from inference_svc.models import inspect
from inference_svc.planning.sizes import kv_page
from inference_svc.rows import PAGE_SIZE, Pack, Span, pages_for
from inference_svc.schedule import Plan
from kev.tokens.model_files import resolve_model

MIB = 1 << 20


class Computed:
    """The model, doing to the store what the tables call for, as a worker does.

    Attributes:
        written: Pages that something was ever written to.
        tokens: Digest of all tokens, forward by forward.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.written: set[int] = set()
        self.tokens = hashlib.sha256()

    def __call__(self, memory: Memory, plan: Plan) -> Sequence[int]:
        """Greedy tokens. The end of an answer is its number of tokens, whatever the model would say."""
        if memory.scrubs:
            self._backend.scrub(memory.scrubs)
        for source, target in memory.copies:
            self._backend.copy_page(source, target)
        self.written.update(memory.scrubs, (target for _, target in memory.copies))
        memory.scrubs.clear()
        memory.copies.clear()
        for step in plan.steps:
            self.written.update(step.run.table[: pages_for(step.run.done + step.count)].tolist())
        found = self._backend.forward(plan.pack()).argmax(axis=1)
        self.tokens.update(found.astype(np.int32).tobytes())
        return [int(token) for token in found]


def resident(args: argparse.Namespace, layout: str) -> dict[str, Any]:
    """One layout in a process of its own."""
    values = {name: value for name, value in vars(args).items() if name not in ("out", "data")}
    values |= {"data": [str(path) for path in args.data or ()]}
    command = [sys.executable, "-m", "bench.layouts_resident", layout, json.dumps(values)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure(layout: str, args: argparse.Namespace) -> dict[str, Any]:
    asks, long = questions(args)
    asks = with_long(asks[:: args.resident], long)
    counted = run(asks, args, layout)
    path = resolve_model(args.model)
    page = kv_page(inspect(path)[0], args.precision) / MIB
    reset_peak()
    before = memory_mib("VmRSS")
    backend = load_backend(path, backend="native", precision=args.precision, pages=counted.peak_pages)
    _warm(backend, args)
    begun, private, computed = time.monotonic(), memory_mib("RssAnon"), Computed(backend)
    found = run(asks, args, layout, computed, counted.peak_pages)
    kv = memory_mib("RssAnon") - private + page
    return {
        "questions": len(asks),
        **_same(counted, found),
        "counted_mib": round(counted.peak_pages * page, 1),
        "written_pages": len(computed.written),
        "written_mib": round(len(computed.written) * page, 1),
        "resident_kv_mib": round(kv, 1),
        "resident_peak_mib": round(memory_mib("VmHWM") - before, 1),
        "seconds": round(time.monotonic() - begun),
        "tokens": computed.tokens.hexdigest()[:16],
    }


def _same(counted: Found, found: Found) -> dict[str, int]:
    """The model changes nothing in what is counted."""
    if (counted.pages_of, counted.rows_of) != (found.pages_of, found.rows_of):
        raise RuntimeError("with the model, other pages or rows were counted than without it")
    return {"counted_pages": found.peak_pages, "forwards": found.forwards}


def _warm(backend: Backend, args: argparse.Namespace) -> None:
    """Two forwards of the largest size: what is not KV is there afterwards. All write to page 0, for nobody."""
    tokens, table = np.zeros(max(1, min(PAGE_SIZE, args.rows // args.channels)), np.int32), np.zeros(1, np.int32)
    for _ in range(2):
        backend.forward(Pack.of([Span(channel, tokens, 0, table) for channel in range(args.channels)]))


def main() -> None:
    """One layout: its name and the arguments of ``bench.layouts`` as JSON."""
    layout, values = sys.argv[1:]
    print(json.dumps(_measure(layout, argparse.Namespace(**json.loads(values)))))


if __name__ == "__main__":
    main()
