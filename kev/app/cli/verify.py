"""``kev verify``: the isolation claims, tried on this machine."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kev.app.batchfile.read import BadFile, read_questions
from kev.app.cli import options
from kev.app.cli.running import FAILED, run_command
from kev.config.settings import Settings
from kev.domain.question import Question

if TYPE_CHECKING:
    from inference_svc.verify import Check

OWN_QUESTIONS = (
    "What is the capital of France?",
    "请问怎么申请退款？",
    "My new card was posted ten days ago and still has not arrived. What should I do?",
    "Explain in two sentences how plants turn sunlight into sugar.",
    "用一句话解释为什么月亮会有圆缺。",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Is the number 97 a prime number? Answer yes or no.",
    "Translate into French: Good morning, I would like a coffee, please.",
)
LONGEST = 400
"""Tokens of a question that are used."""


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def verify(
        file: Annotated[str, typer.Argument(help="Questions to try it with; without it a few of Kev's own.")] = "",
        precision: Annotated[str | None, typer.Option("--precision", help="fp32, bf16, fp16 or int8.")] = None,
        long: Annotated[
            bool, typer.Option("--long", help="More questions, steps and prefixes; takes minutes.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object a claim.")] = False,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Tries on this machine that no question can see another. Exit code 1 if a claim fails."""

        async def work() -> int:
            settings = options.settings_of(config, sets, {"core.precision": precision})
            questions = read_questions(file) if file else [Question(text=text) for text in OWN_QUESTIONS]
            if len(questions) < 3:
                raise BadFile(f"{file}: must hold at least 3 questions")
            return await asyncio.to_thread(_verify, settings, questions, long, as_json)

        run_command(work)


def _verify(settings: Settings, questions: Sequence[Question], long: bool, as_json: bool) -> int:
    from inference_svc.loading import load_model
    from kev.app.proof import LONG, SHORT, proof

    model = load_model(settings)
    try:
        began = time.monotonic()
        tokens = [model.tokenizer.encode_text(_text(question))[:LONGEST] for question in questions]
        found = []
        for check in proof(model.backend, [one for one in tokens if one], LONG if long else SHORT):
            found.append(check)
            _say(check, as_json)
        failed = sum(not check.passed for check in found)
        sys.stderr.write(
            f"{Path(model.path).name}, {model.backend.variant}: {len(found) - failed} of {len(found)} claims hold "
            f"({time.monotonic() - began:.1f} s)\n"
        )
        return FAILED if failed else 0
    finally:
        model.backend.close()


def _text(question: Question) -> str:
    return question.text or "\n".join(message.content for message in question.messages)


def _say(check: Check, as_json: bool) -> None:
    if as_json:
        line = json.dumps({"claim": check.claim, "passed": check.passed, "detail": check.detail}, ensure_ascii=False)
    else:
        line = f"{'ok    ' if check.passed else 'FAILED'} {check.claim} ({check.detail})"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
