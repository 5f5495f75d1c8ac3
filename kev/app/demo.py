"""``make demo``: a whole cluster of processes answers the example questions.

Starts a broker, a router, two workers and an aggregator on free ports, submits
the questions over gRPC, streams the answers, prints the audit table, and stops
everything. Exit code 0 if every slot has its outcome, the texts agree, and all
were answered.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from kev.app.audit_table import audit_table
from kev.app.batchfile.read import read_questions
from kev.app.cli.answers import Answers, ending
from kev.app.cli.options import flags_of
from kev.app.cli.plain import plain
from kev.app.cli.running import known_errors
from kev.app.cluster.cluster import Cluster
from kev.client import AsyncClient
from kev.config.load import load_settings
from kev.config.settings import LogSettings
from kev.domain.errors import KevError
from kev.domain.outcome import text_digest
from kev.domain.question import Question
from kev.domain.result import Frame, SlotResult
from kev.telemetry.logs import set_up_log
from kev.wire.process import run_service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "questions.jsonl"
WIDTH = 140


class DemoFailed(KevError):
    """The demonstration did not show what it should."""


async def demo(file: str, workers: int, sets: list[str], console: Console) -> None:
    """Runs the demonstration.

    Raises:
        DemoFailed: a slot has no outcome, or its streamed text differs from it, or it was not answered.
    """
    flags = flags_of(sets)
    settings = load_settings(flags=flags)
    set_up_log(LogSettings(level="warning"))
    questions = read_questions(file, timeout_ms=settings.router.max_timeout_ms)
    began = time.monotonic()
    console.print(f"Starting a broker, a router, {workers} workers and an aggregator …")
    async with Cluster(settings, workers=workers, flags=flags, free_ports=True) as at:
        console.print(f"Ready after {time.monotonic() - began:.1f} s: router {at.router}, broker {at.nats}.")
        began = time.monotonic()
        async with AsyncClient(at.router) as client, aclosing(client.ask(questions)) as frames:
            answers = await _follow(questions, frames, console)
            request_id, seconds = answers.request_id, time.monotonic() - began
            results = await client.wait(request_id, timeout=0)
        _report(results, seconds, console)
        _check(results, answers)
        console.print("Stopping everything …")
    console.print("Stopped.")


async def _follow(questions: Sequence[Question], frames: AsyncGenerator[Frame, None], console: Console) -> Answers:
    """Shows each answer when it is whole, and meanwhile how many pieces have come."""
    answers, pieces = Answers(), 0
    with console.status("waiting for the first piece") as status:
        async for frame in frames:
            answers.take(frame)
            pieces += bool(frame.text)
            status.update(f"{pieces} pieces of {len(answers.slots)} answers so far")
            if frame.result is not None:
                _show(questions[frame.slot], frame.result, console)
    return answers


def _show(question: Question, result: SlotResult, console: Console) -> None:
    asked = question.text or question.messages[-1].content
    asked = " ".join(plain(asked).split())
    console.print(f"[bold]{escape(asked if len(asked) <= 100 else asked[:99] + '…')}[/bold]")
    console.print(f"  {escape(plain(result.text).strip()) or '-'}", highlight=False)
    if note := ending(result):
        console.print(f"  ({escape(note)})", highlight=False)


def _report(results: Sequence[SlotResult], seconds: float, console: Console) -> None:
    console.print(audit_table(results))
    tokens = sum(result.tokens for result in results)
    workers = {result.audit.worker_id for result in results if result.audit.worker_id}
    console.print(
        f"{len(results)} questions, {sum(result.ok for result in results)} answered by {len(workers)} workers "
        f"in {seconds:.1f} s: {tokens} tokens, {tokens / seconds:.0f} a second."
    )


def _check(results: Sequence[SlotResult], answers: Answers) -> None:
    """What the user relies on: one outcome a slot, and the stream agrees with it."""
    for result in results:
        if not result.ok:
            raise DemoFailed(f"slot {result.slot} was not answered: {ending(result)}")
        if text_digest(answers.streamed(result.slot)) != result.text_sha256:
            raise DemoFailed(f"slot {result.slot}: the streamed text differs from the outcome's")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m kev.app.demo", description=__doc__)
    parser.add_argument("file", nargs="?", default=str(EXAMPLES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)

    async def run() -> None:
        await demo(given.file, given.workers, given.set, console)

    return run_service(run, known=known_errors())


if __name__ == "__main__":
    sys.exit(main())
