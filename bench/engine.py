"""The bare core on workload W: tokens per second, and how near that is to what the machine could do.

    python -m bench.engine --precision int8 --questions 1,8,32 --rounds 3

Each precision runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.core.floor import job_floor
from bench.core.job import Job, JobResult
from bench.core.machine import describe, memory_mib, reset_peak
from bench.core.quiet import Quiet
from bench.core.workload import DEFAULT_WORKLOAD, Workload, load_workload
from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.roofs import Roofs, measure_roofs
from kev.tokens.model_files import default_model_path

PRECISIONS = ("fp32", "bf16", "int8")


def main() -> None:
    """Reads the command line, measures, prints JSON and writes it if asked to."""
    args = _arguments()
    if args.child:
        print(json.dumps(_measure(args, args.precision)))
        return
    precisions = PRECISIONS if args.precision == "all" else tuple(args.precision.split(","))
    found = {"machine": describe(), "results": [row for name in precisions for row in _in_own_process(name)]}
    text = json.dumps(found, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="all", help="fp32, bf16, int8, several with commas, or all")
    parser.add_argument("--questions", default="1,4,8,16,32,64", help="batch sizes")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each size, in alternation; medians are shown")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rows", type=int, default=256, help="row budget of a forward with prompts")
    parser.add_argument("--model", type=Path, default=None, help="default: SmolLM2-135M-Instruct")
    parser.add_argument("--workload", type=Path, default=None, help="default: workload_w.json")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for idle neighbours, before a job")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON here as well")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_own_process(precision: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "bench.engine", *sys.argv[1:], "--precision", precision, "--child"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


@dataclass(slots=True)
class _Turn:
    """One run of a job, and the machine beside it."""

    run: JobResult
    roofs: Roofs
    peak_mib: float
    rate: float  # of instructions: see bench.core.quiet
    floor: float
    wide: float

    @property
    def ratio(self) -> float:
        return self.run.total / self.floor


def _measure(args: argparse.Namespace, precision: str) -> list[dict[str, object]]:
    model = args.model or default_model_path()
    work = load_workload(model, args.workload or DEFAULT_WORKLOAD)
    sizes = [int(size) for size in args.questions.split(",")]
    pages = Job.pages(work.first(max(sizes)))
    settings = {"precision": precision, "threads": args.threads}
    # Once for the cache: packing needs more memory than serving does.
    NativeBackend.load(model, pages=1, **settings).close()
    reset_peak()
    baseline = memory_mib("VmRSS")
    backend = NativeBackend.load(model, pages=pages, **settings)
    Job(backend, work.first(1), args.rows).run()
    quiet = Quiet(backend.threads, args.patience)
    turns: dict[int, list[_Turn]] = {size: [] for size in sizes}
    for _ in range(args.rounds):
        for size in sizes:
            turns[size].append(_turn(backend, work.first(size), args.rows, quiet))
    roofs = [turn.roofs for some in turns.values() for turn in some]
    rows = []
    for size in sizes:
        kv_mib = Job.pages(work.first(size)) * backend.kv_bytes_per_page / 2**20
        calm = [turn.ratio for turn in turns[size] if quiet.held(turn.rate)]
        row = _row(backend, work.first(size), turns[size], calm, roofs)
        row["peak_memory_mib"] = round(turns[size][-1].peak_mib - baseline - kv_mib, 1)
        same = _equal_alone(backend, work.first(size), turns[size][0].run, args.rows) if size > 1 else size
        rows.append({"precision": precision, **row, "equal_alone": same})
    return rows


def _turn(backend: NativeBackend, work: Workload, rows: int, quiet: Quiet) -> _Turn:
    rate = quiet.wait()
    # Beside each job: a machine that is shared is not equally fast all the time.
    roofs = measure_roofs(backend.precision, backend.threads)
    reset_peak()
    run = Job(backend, work, rows).run()
    peak = memory_mib("VmHWM")
    floor, wide = (job_floor(backend, roofs, run.packs, wide) for wide in (False, True))
    return _Turn(run, roofs, peak, min(rate, quiet.rate()), floor, wide)


def _row(
    backend: NativeBackend, work: Workload, turns: list[_Turn], calm: list[float], roofs: list[Roofs]
) -> dict[str, object]:
    total = median(turn.run.total for turn in turns)
    return {
        "variant": backend.variant,
        "threads": backend.threads,
        "questions": len(work.prompts),
        "tokens_per_second": round(len(work.prompts) * work.steps / total, 1),
        "job_s": round(total, 3),
        "job_s_best": round(min(turn.run.total for turn in turns), 3),
        "prefill_s": round(median(turn.run.prefill for turn in turns), 3),
        "step_ms": round(1e3 * median(step for turn in turns for step in turn.run.steps), 2),
        "first_token_ms": round(1e3 * median(t for turn in turns for t in turn.run.first_tokens), 1),
        "floor_s": round(median(turn.floor for turn in turns), 3),
        "ratio_to_floor": round(median(turn.ratio for turn in turns), 2),
        "ratio_to_floor_best": round(min(turn.ratio for turn in turns), 2),
        "ratio_to_floor_quiet": round(median(calm), 2) if calm else None,
        "quiet_turns": len(calm),
        "ratio_to_wide_floor": round(median(turn.run.total / turn.wide for turn in turns), 2),
        "bandwidth_gb_s": round(max(roof.bandwidth for roof in roofs) / 1e9, 1),
        "peak_gop_s": round(max(roof.operations for roof in roofs) / 1e9),
        "weights_mib": round(backend.packed.weight_bytes / 2**20, 1),
    }


def _equal_alone(backend: NativeBackend, work: Workload, packed: JobResult, rows: int) -> int:
    """How many answers are the same when the question is asked alone (the first four are tried)."""
    same = 0
    for number, prompt in enumerate(work.prompts[:4]):
        alone = Job(backend, Workload(work.prefix, (prompt,), work.steps), rows).run()
        same += bool((alone.answers[0] == packed.answers[number]).all())
    return same


if __name__ == "__main__":
    main()
