"""``kev ask``: answers on the terminal, side by side, while they grow."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import typer

from kev.app.cli import options
from kev.app.cli.answers import Answer, Answers, ending
from kev.app.cli.asking import AskOptions
from kev.app.cli.groups import spread
from kev.app.cli.plain import plain
from kev.app.cli.running import FAILED, run_command
from kev.app.cli.sampling import SamplingOptions
from kev.app.compose import opened_backend
from kev.app.logprobs import logprob_lines
from kev.client.queries import batch_of
from kev.config.settings import Settings
from kev.domain.question import Batch
from kev.domain.result import Frame


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    @spread
    def ask(
        *,
        questions: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="One or more questions.")],
        router: options.Router = "",
        asked: AskOptions,
        sampling: SamplingOptions,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Asks questions and streams the answers side by side. Exit code 1 if one was not answered."""

        async def work() -> int:
            settings = options.settings_of(config, sets)
            limits = {**asked.limits(), **sampling.limits()}
            batch = batch_of(questions, **asked.whole(), **limits)
            return await _ask(settings, router, batch)

        run_command(work)


async def _ask(settings: Settings, router: str, batch: Batch) -> int:
    titles = [question.text for question in batch.questions]
    async with opened_backend(settings, router) as backend, aclosing(backend.ask(batch)) as frames:
        show = show_live if sys.stdout.isatty() else show_plain
        answers = await show(titles, frames)
    if show is show_live:
        for slot in sorted(answers.slots):
            _print_logprobs(answers.slots[slot])
    return 0 if answers.complete else FAILED


async def show_plain(titles: Sequence[str], frames: AsyncGenerator[Frame, None]) -> Answers:
    """Whole answers in the order of the questions, as soon as they and all before them are there."""
    answers, printed = Answers(), 0
    async for frame in frames:
        answers.take(frame)
        while printed in answers.slots and answers.slots[printed].result is not None:
            _print(titles, printed, answers.slots[printed])
            printed += 1
    return answers


def _print(titles: Sequence[str], slot: int, answer: Answer) -> None:
    assert answer.result is not None
    if len(titles) > 1:
        sys.stdout.write(f"[{slot + 1}] {plain(titles[slot])}\n")
    sys.stdout.write(plain(answer.result.text) + "\n")
    _print_logprobs(answer)
    sys.stdout.write("\n" if len(titles) > 1 else "")
    sys.stdout.flush()
    if note := ending(answer.result):
        sys.stderr.write(f"question {slot + 1}: {note}\n")


def _print_logprobs(answer: Answer) -> None:
    if answer.result is not None and answer.result.logprobs:
        sys.stdout.write("\n".join(logprob_lines(answer.result.logprobs)) + "\n")


async def show_live(titles: Sequence[str], frames: AsyncGenerator[Frame, None]) -> Answers:
    """Panels side by side that grow with the answers."""
    from rich.live import Live

    answers = Answers()
    with Live(_panels(titles, answers), auto_refresh=False, vertical_overflow="visible") as live:
        shown = 0.0
        async for frame in frames:
            answers.take(frame)
            now = asyncio.get_running_loop().time()
            if now - shown >= 0.05 or frame.result is not None:
                live.update(_panels(titles, answers), refresh=True)
                shown = now
    return answers


def _panels(titles: Sequence[str], answers: Answers) -> Any:
    from rich.columns import Columns
    from rich.panel import Panel
    from rich.text import Text

    panels = []
    for slot, title in enumerate(titles):
        answer = answers.slots.get(slot, Answer())
        note = ending(answer.result) if answer.result else "…"
        style = "dim" if answer.result is None else "green" if answer.result.ok else "red"
        head = Text(plain(title).replace("\n", " "), overflow="ellipsis", no_wrap=True)
        panels.append(Panel(Text(plain(answer.text)), title=head, subtitle=Text(note) or None, border_style=style))
    return Columns(panels, equal=True, expand=True) if len(panels) > 1 else panels[0]
