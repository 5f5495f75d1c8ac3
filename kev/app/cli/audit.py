"""``kev audit``: a log of forwards, checked again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kev.app.cli import options
from kev.app.cli.running import FAILED, run_check
from kev.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inference_svc.audit.check import Verdict
    from inference_svc.audit.record import Record
    from inference_svc.audit.replay import Replay

REPLAY_PAGES = 4


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def audit(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="An audit log: JSON lines.")],
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        layouts: Annotated[bool, typer.Option("--layouts", help="Do not load the model: check no logits.")] = False,
        draw: Annotated[
            tuple[int, Path] | None,
            typer.Option("--draw", metavar="N OUT.PNG", help="Draw the mask of the file's N-th forward, and end."),
        ] = None,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Checks an audit log again: who saw what, and, where tokens were logged, the logits bit for bit.

        Exit code 1 if something is wrong, 2 if it cannot be checked: a bad
        file, or a model other than the logged one.
        """

        def work() -> int:
            settings = options.settings_of(config, sets)
            return _draw(file, *draw) if draw else _audit(settings, file, as_json, layouts)

        run_check(work, _cannot)


def _cannot() -> tuple[type[Exception], ...]:
    from inference_svc.audit.check import CannotCheck
    from inference_svc.audit.draw import CannotDraw

    return CannotCheck, CannotDraw


def _draw(file: Path, number: int, target: Path) -> int:
    from inference_svc.audit.check import CannotCheck, records
    from inference_svc.audit.draw import draw
    from inference_svc.audit.record import Record

    found = (record for _, record in records(file) if isinstance(record, Record))
    for at, record in enumerate(found, 1):
        if at == number:
            draw(record, target)
            return 0
    raise CannotCheck(f"{file}: has no {number}. forward")


def _audit(settings: Settings, file: Path, as_json: bool, layouts: bool) -> int:
    from inference_svc.audit.check import CannotCheck, check_file, records
    from inference_svc.audit.record import Record
    from inference_svc.audit.replay import OtherModel

    known = (record for _, record in records(file) if isinstance(record, Record))
    computed = not layouts and any(_has_logits(record) for record in known)
    opened: AbstractContextManager[Replay | None] = _replay(settings) if computed else nullcontext()
    try:
        with opened as replay:
            verdict = check_file(file, replay)
    except OtherModel as error:
        raise CannotCheck(f"{error}; --layouts checks without a model") from None
    if as_json:
        sys.stdout.write(json.dumps({"passed": verdict.passed, **asdict(verdict)}, indent=1) + "\n")
    else:
        _print(verdict, computed)
    return 0 if verdict.passed else FAILED


def _has_logits(record: Record) -> bool:
    return any(texts.tokens is not None and texts.logits for texts in record.texts)


@contextmanager
def _replay(settings: Settings) -> Iterator[Replay]:
    """The model of the settings, with room for a few whole contexts."""
    from inference_svc.audit.replay import Replay
    from inference_svc.loading import load_model
    from inference_svc.rows import pages_for

    pages = max(settings.core.kv_pages, REPLAY_PAGES * pages_for(settings.core.max_context))
    core = settings.core.model_copy(update={"kv_pages": pages})
    model = load_model(settings.model_copy(update={"core": core}))
    try:
        yield Replay(model.backend, model.digest)
    finally:
        model.backend.close()


def _print(verdict: Verdict, computed: bool) -> None:
    say: Callable[[str], Any] = sys.stdout.write
    say(f"{verdict.forwards} forwards, {verdict.rows} rows\n")
    say(f"cells: {verdict.own} own, {verdict.granted} granted, {verdict.cross} of other channels\n")
    if computed:
        say(
            f"logit rows: {verdict.logits_equal} equal bit for bit, {verdict.logits_different} different, "
            f"{verdict.logits_skipped} without their context in this file\n"
        )
    else:
        say("logit rows: not checked\n")
    for fault in verdict.faults:
        say(f"WRONG {fault}\n")
    if verdict.faulty > len(verdict.faults):
        say(f"WRONG and {verdict.faulty - len(verdict.faults)} more\n")
    say("all as it should be\n" if verdict.passed else f"{verdict.faulty} FAULTS\n")
