"""``kev run``: a file of questions in, a file of results out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kev.app.batchfile.read import BadFile, read_questions
from kev.app.batchfile.run import RunMode, run_questions
from kev.app.batchfile.write import Lines, audit_line, result_line
from kev.app.cli import options
from kev.app.cli.asking import AskOptions
from kev.app.cli.groups import spread
from kev.app.cli.running import FAILED, run_command
from kev.app.cli.sampling import SamplingOptions
from kev.app.compose import opened_backend
from kev.client.queries import batch_of
from kev.config.settings import Settings
from kev.domain.question import Batch, Question

Out = Annotated[Path | None, typer.Option("--out", help="The result file, JSON lines; else standard output.")]
Audit = Annotated[Path | None, typer.Option("--audit", help="Everything about every slot, JSON lines.")]


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    @spread
    def run(
        *,
        file: Annotated[str, typer.Argument(help="JSON list, JSON lines or text lines; - is standard input.")],
        mode: Annotated[
            RunMode, typer.Option("--mode", help="single asks one by one, one question a forward.")
        ] = RunMode.BATCHED,
        router: options.Router = "",
        out: Out = None,
        audit: Audit = None,
        asked: AskOptions,
        max_parallel: Annotated[
            int | None, typer.Option("--max-parallel", min=1, help="Most of the questions in one forward.")
        ] = None,
        sampling: SamplingOptions,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Asks the questions of a file. Exit code 1 if one was not answered.

        The result file holds one line a question, in the order of the file,
        and only what does not vary from run to run.
        """

        async def work() -> int:
            settings = options.settings_of(config, sets)
            _check_places(file, out, audit)
            limits = {**asked.limits(), **sampling.limits()}
            limits.setdefault("timeout_ms", settings.router.max_timeout_ms)
            whole = batch_of("?", max_parallel=max_parallel, **asked.whole())
            plan = Plan(read_questions(file, **limits), mode, whole)
            return await _run(settings, router, plan, out, audit)

        run_command(work)


def _check_places(file: str, out: Path | None, audit: Path | None) -> None:
    """Nothing is written over the questions, nor one result over the other."""
    taken = {} if file == "-" else {Path(file).resolve(): "the file of questions"}
    for option, path in (("--out", out), ("--audit", audit)):
        if path is None:
            continue
        if (other := taken.get(path.resolve())) is not None:
            raise BadFile(f"{option} {path}: must be another file than {other}")
        taken[path.resolve()] = option


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask, and how: ``whole`` is a batch whose options hold for all of them."""

    questions: Sequence[Question]
    mode: RunMode
    whole: Batch


async def _run(settings: Settings, router: str, plan: Plan, out: Path | None, audit: Path | None) -> int:
    from kev.app.batchfile.progress import RunProgress

    with ExitStack() as stack:
        results = stack.enter_context(Lines("--out", out))
        audits = stack.enter_context(Lines("--audit", audit)) if audit else None
        async with opened_backend(settings, router) as backend:
            with RunProgress(len(plan.questions)) as progress:
                running = run_questions(
                    backend, plan.questions, plan.mode, progress.ended, plan.whole, progress.refused
                )
                async with aclosing(running):
                    async for result in running:
                        results.write(result_line(result))
                        if audits is not None:
                            audits.write(audit_line(result))
            sys.stderr.write(progress.summary() + "\n")
    return 0 if progress.all_answered else FAILED
