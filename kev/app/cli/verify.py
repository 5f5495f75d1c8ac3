"""``kev verify``: isolation, tried on the model as it is configured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kev.app.batchfile.read import read_questions
from kev.app.cli import options
from kev.app.cli.running import FAILED, run_check
from kev.config.settings import Settings
from kev.domain.question import Question

if TYPE_CHECKING:
    from inference_svc.verify.proof import Finding, Proof

Say = Callable[[str], None]


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def verify(
        file: Annotated[
            str,
            typer.Argument(
                help="Questions to try it with: JSON list, JSON lines or text lines; - is stdin. "
                "The first 8 are taken, with --long the first 64."
            ),
        ] = "",
        precision: Annotated[str | None, typer.Option("--precision", help="fp32, bf16 or int8.")] = None,
        backend: Annotated[str | None, typer.Option("--backend", help="auto, reference or native.")] = None,
        long: Annotated[bool, typer.Option("--long", help="64 questions with 64 tokens each; minutes.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Tries on the loaded model that packed equals alone, bit for bit, and that planted faults are seen.

        Exit code 1 if a claim fails, 2 if there is nothing to verify: a bad
        option, file or model.
        """
        given = {"core.precision": precision, "core.backend": backend}

        def work() -> int:
            return _verify(options.settings_of(config, sets, given), file, long, as_json)

        run_check(work, _cannot)


def _cannot() -> tuple[type[Exception], ...]:
    from inference_svc.verify.setup import CannotVerify

    return (CannotVerify,)


def _verify(settings: Settings, file: str, long: bool, as_json: bool) -> int:
    from inference_svc.verify.proof import LONG, SHORT
    from inference_svc.verify.setup import prepared

    questions = read_questions(file) if file else []
    began = time.monotonic()
    with _progress() as say, prepared(settings, _conversations(questions), LONG if long else SHORT, say) as proof:
        findings = list(proof.findings())
        facts = _facts(settings, proof, time.monotonic() - began)
    if as_json:
        sys.stdout.write(json.dumps(_report(facts, findings), indent=1) + "\n")
    else:
        _print(facts, findings)
    return 0 if all(finding.check.passed for finding in findings) else FAILED


def _conversations(questions: Sequence[Question]) -> list[list[dict[str, str]]]:
    return [
        [{"role": turn.role, "content": turn.content} for turn in question.messages]
        or [{"role": "user", "content": question.text}]
        for question in questions
    ]


@contextmanager
def _progress() -> Iterator[Say]:
    """Says on a terminal what is being tried."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(f"{text} …")


def _facts(settings: Settings, proof: Proof, seconds: float) -> dict[str, Any]:
    return {
        "model": Path(settings.core.model_path).name,
        "backend": proof.backend.name,
        "variant": proof.backend.variant,
        "precision": settings.core.precision.value,
        "questions": len(proof.prompts),
        "steps": proof.size.steps,
        "seconds": round(seconds, 1),
    }


def _report(facts: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        **facts,
        "passed": all(finding.check.passed for finding in findings),
        "findings": [
            {
                "kind": finding.kind,
                "claim": finding.check.claim,
                "passed": finding.check.passed,
                "detail": finding.check.detail,
                "seconds": round(finding.seconds, 2),
            }
            for finding in findings
        ],
    }


def _print(facts: Mapping[str, Any], findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(
        title=f"{facts['model']} on {facts['variant']}: {facts['questions']} questions, {facts['steps']} tokens"
    )
    for title in ("", "claim", "found", "s"):
        table.add_column(title, justify="right" if title == "s" else "left")
    for finding in findings:
        check = finding.check
        verdict = "[green]holds[/green]" if check.passed else "[bold red]FAILS[/bold red]"
        table.add_row(verdict, escape(check.claim), escape(check.detail), f"{finding.seconds:.1f}")
    console.print(table)
    failed = sum(not finding.check.passed for finding in findings)
    word = f"{failed} of {len(findings)} FAIL" if failed else f"all {len(findings)} hold"
    console.print(f"{facts['backend']} backend, {facts['precision']}: {word}, {facts['seconds']} s.", highlight=False)
