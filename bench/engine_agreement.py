"""How often a lower precision would choose the same next token as float32.

    python -m bench.engine_agreement --questions 32

Teacher-forced: every precision reads the float32 answers to workload W and is
asked for its first choice at each of their tokens.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from bench.core.job import Job
from bench.core.machine import describe
from bench.core.workload import DEFAULT_WORKLOAD, Workload, load_workload
from inference_svc.backends.native import NativeBackend
from inference_svc.rows import Int32Array, Pack, Span, pages_for
from kev.tokens.model_files import default_model_path


def main() -> None:
    """Reads the command line, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--precision", default="bf16,int8")
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--workload", type=Path, default=DEFAULT_WORKLOAD)
    args = parser.parse_args()
    model = args.model or default_model_path()
    work = load_workload(model, args.workload).first(args.questions)
    full = NativeBackend.load(model, precision="fp32", pages=Job.pages(work))
    answers = Job(full, work).run().answers
    full.close()
    found: dict[str, object] = {"machine": describe(), "choices": int(answers.size)}
    for precision in args.precision.split(","):
        backend = NativeBackend.load(model, precision=precision, pages=64)
        found[backend.variant] = agreement(backend, work, answers)
        backend.close()
    print(json.dumps(found, indent=1))


def agreement(backend: NativeBackend, work: Workload, answers: Int32Array) -> float:
    """Share of the answers' tokens that are this backend's first choice as well."""
    same = [
        _choices(backend, np.concatenate([prompt, answer[:-1]]), len(answer)) == answer
        for prompt, answer in zip(work.prompts, answers, strict=True)
    ]
    return float(np.concatenate(same).mean())


def _choices(backend: NativeBackend, tokens: Int32Array, wanted: int) -> Int32Array:
    table = np.arange(pages_for(len(tokens)), dtype=np.int32)
    chosen: Int32Array = backend.forward(Pack.of([Span(0, tokens, 0, table, wanted)])).argmax(axis=1).astype(np.int32)
    return chosen


if __name__ == "__main__":
    main()
