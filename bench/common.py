"""What the measurements share: the work, one run's figures, runs in alternation, processor time."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.core.machine import describe
from bench.core.quiet import Quiet
from kev.domain.result import Frame

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
EXAMPLES = ROOT / "examples" / "questions.jsonl"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SYSTEM = "You are Kev. Answer only the question that you are given, in plain English and short sentences."


@dataclass(frozen=True, slots=True)
class Work:
    """Questions that are asked at once.

    Attributes:
        system: System prompt.
        questions: Their texts.
        tokens: New tokens of every answer.
    """

    system: str
    questions: tuple[str, ...]
    tokens: int

    def first(self, count: int) -> Work:
        """The same with its first questions; they are repeated if there are too few."""
        times = -(-count // len(self.questions))
        return Work(self.system, (self.questions * times)[:count], self.tokens)


def load_work(path: Path | None = None) -> Work:
    """Workload W, or the questions of any JSON-lines file with ``text``; without a path whichever is there."""
    file = path or next(one for one in (DATA / "workload_w.json", EXAMPLES) if one.exists())
    if file.suffix == ".json":
        data = json.loads(file.read_text())
        return Work(data["system"], tuple(data["questions"]), int(data["max_tokens"]))
    return Work(SYSTEM, tuple(texts_of(file)), 64)


def texts_of(*files: Path) -> list[str]:
    """The ``text`` of every line of JSON-lines files."""
    return [json.loads(line)["text"] for file in files for line in file.read_text().splitlines() if line.strip()]


@dataclass(slots=True)
class Run:
    """One run of a job, in seconds from its start.

    Attributes:
        seconds: Until the last answer ended.
        cpu: Processor time of this process and of all below it.
        tokens: New tokens of all answers.
        first: When each answer had its first token.
        texts: The answers.
        rate_beside: Of instructions, before and after (``bench.core.quiet``); 0 where nobody looked.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    tokens: int = 0
    first: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    rate_beside: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


async def measured(frames: AsyncIterator[Frame]) -> Run:
    """Reads a batch's stream to its end. ``cpu`` is the caller's to fill in."""
    run, seen, ends = Run(), set(), {}
    began = time.perf_counter()
    async for frame in frames:
        if frame.text and frame.slot not in seen:
            seen.add(frame.slot)
            run.first.append(time.perf_counter() - began)
        if frame.result is not None:
            ends[frame.slot] = frame.result
    run.seconds = time.perf_counter() - began
    run.texts = [ends[slot].text for slot in sorted(ends)]
    run.tokens = sum(end.tokens for end in ends.values())
    if bad := [end for end in ends.values() if not end.ok]:
        raise RuntimeError(f"{len(bad)} answers failed: {bad[0].status} {bad[0].reason} {bad[0].detail}")
    return run


def cpu_seconds() -> float:
    """Processor time so far of this process and all below it."""
    return time.process_time() + sum(_cpu_of(pid) for pid in _below(os.getpid()))


async def alternated(
    layers: Mapping[str, Callable[[], Awaitable[Run]]], rounds: int, quiet: Quiet | None = None
) -> dict[str, list[Run]]:
    """Runs all layers one after the other, again and again, so that slow drift of the machine hits all alike.

    With ``quiet``, each run waits for a quiet moment first.
    """
    found: dict[str, list[Run]] = {name: [] for name in layers}
    for _ in range(rounds):
        for name, layer in layers.items():
            rate = await asyncio.to_thread(quiet.wait) if quiet else 0.0
            before = cpu_seconds()
            run = await layer()
            run.cpu = cpu_seconds() - before
            run.rate_beside = min(rate, quiet.rate()) if quiet else 0.0
            found[name].append(run)
    return found


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Medians over runs. Processor time is that of this process and those below it alone."""
    found = {
        "tokens_per_second": round(median(run.rate for run in runs), 1),
        "job_s": round(median(run.seconds for run in runs), 3),
        "cpu_ms_per_token": round(1e3 * median(run.cpu / run.tokens for run in runs), 3),
    }
    if all(run.first for run in runs):
        found["first_token_ms"] = round(1e3 * median(median(run.first) for run in runs), 1)
    return found


def reported(found: Mapping[str, object], out: Path | None) -> None:
    """Prints a result with the machine it was measured on, and writes it if asked to."""
    text = json.dumps({"machine": describe(), **found}, indent=1, ensure_ascii=False)
    print(text)
    if out:
        out.write_text(text + "\n")


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which ``part`` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _cpu_of(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) * TICK_S


def _below(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(words[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found
