"""The bare core on workload W: tokens per second, and how near that is to what the machine could do.

    python -m bench.engine --precision int8 --questions 1,8,32 --rounds 3

Each precision runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.core.machine import describe, memory_mib, reset_peak

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
    parser.add_argument("--out", type=Path, default=None, help="write the JSON here as well")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_own_process(precision: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "bench.engine", *sys.argv[1:], "--precision", precision, "--child"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def _measure(args: argparse.Namespace, precision: str) -> list[dict[str, object]]:
    from bench.core.floor import job_floor
    from bench.core.job import Job, JobResult
    from bench.core.workload import DEFAULT_WORKLOAD, load_workload
    from inference_svc.backends.native import NativeBackend
    from inference_svc.backends.native.roofs import Roofs, measure_roofs
    from kev.tokens.model_files import default_model_path

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
    runs: dict[int, list[JobResult]] = {size: [] for size in sizes}
    peaks: dict[int, float] = {}
    roofs: list[Roofs] = []
    floors: dict[int, list[float]] = {size: [] for size in sizes}
    wide_floors: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(args.rounds):
        for size in sizes:
            # Beside each job: a machine that is shared is not equally fast all the time.
            roofs.append(measure_roofs(precision, backend.threads))
            reset_peak()
            runs[size].append(Job(backend, work.first(size), args.rows).run())
            peaks[size] = memory_mib("VmHWM")
            floors[size].append(job_floor(backend, roofs[-1], runs[size][-1].packs))
            wide_floors[size].append(job_floor(backend, roofs[-1], runs[size][-1].packs, wide=True))
    best = Roofs(*(max(getattr(roof, field) for roof in roofs) for field in Roofs.__slots__))
    kv_mib = {size: Job.pages(work.first(size)) * backend.kv_bytes_per_page / 2**20 for size in sizes}
    rows: list[dict[str, object]] = []
    for size in sizes:
        total = median(run.total for run in runs[size])
        floor = median(floors[size])
        ratios = [run.total / low for run, low in zip(runs[size], floors[size], strict=True)]
        wide = [run.total / low for run, low in zip(runs[size], wide_floors[size], strict=True)]
        rows.append(
            {
                "variant": backend.variant,
                "threads": backend.threads,
                "questions": size,
                "tokens_per_second": round(size * work.steps / total, 1),
                "job_s": round(total, 3),
                "job_s_best": round(min(run.total for run in runs[size]), 3),
                "prefill_s": round(median(run.prefill for run in runs[size]), 3),
                "step_ms": round(1e3 * median(step for run in runs[size] for step in run.steps), 2),
                "first_token_ms": round(1e3 * median(t for run in runs[size] for t in run.first_tokens), 1),
                "floor_s": round(floor, 3),
                "ratio_to_floor": round(median(ratios), 2),
                "ratio_to_floor_best": round(min(ratios), 2),
                "ratio_to_wide_floor": round(median(wide), 2),
                "bandwidth_gb_s": round(best.bandwidth / 1e9, 1),
                "peak_gop_s": round(best.operations / 1e9),
                "weights_mib": round(backend.packed.weight_bytes / 2**20, 1),
                "peak_memory_mib": round(peaks[size] - baseline - kv_mib[size], 1),
                "equal_alone": _equal_alone(backend, work.first(size), runs[size][0], args.rows) if size > 1 else size,
            }
        )
    return rows


def _equal_alone(backend, work, packed, rows: int) -> int:  # type: ignore[no-untyped-def]
    """How many answers are the same when the question is asked alone (the first four are tried)."""
    from bench.core.job import Job
    from bench.core.workload import Workload

    same = 0
    for number, prompt in enumerate(work.prompts[:4]):
        alone = Job(backend, Workload(work.prefix, (prompt,), work.steps), rows).run()
        same += bool((alone.answers[0] == packed.answers[number]).all())
    return same


if __name__ == "__main__":
    main()
