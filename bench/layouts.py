"""KV memory of the three layouts on real questions, and what one very long question costs the others.

    python -m bench.layouts [--channels 32] [--tokens 128] [--long 2000] [--data FILE ...] [--out layouts.json]
    python -m bench.layouts --resident 4     # and with the model, on every fourth question: some minutes a layout

The worker's own scheduler and memory run every question to its end; only the
model is left out, because pages do not depend on what it says. Every answer
takes its ``--tokens``. A few seconds; what it prints does not depend on the
machine. One row of a forward is one token, so ``padded_rows`` must be 0.
With ``--resident`` the same runs are computed, each layout in a process of
its own: see ``bench.layouts_resident``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from bench.common import DATA, EXAMPLES, SYSTEM, reported, texts_of
from inference_svc.channels import Job
from inference_svc.memory import Memory, MemoryLimits
from inference_svc.models import inspect
from inference_svc.pages import PageAllocator
from inference_svc.planning.sizes import kv_page
from inference_svc.rows import Int32Array, pages_for
from inference_svc.schedule import ForwardLimits, Plan, Scheduler
from kev.tokens.chat import ChatFormat
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer

LAYOUTS = {
    "split": {"copies": True},
    "unified": {"copies": True, "unified": True},
    "shared_readonly": {"copies": False},
}
PLENTY = 1 << 20
LONG = -1
"""Number of the long question."""
Compute = Callable[[Memory, Plan], Sequence[int]]
"""Computes a forward: one token for each step that wants one."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: its prompt and how many leading tokens are the system prompt."""

    number: int
    prompt: Int32Array
    prefix: int


@dataclass(slots=True)
class Found:
    """What a run came to. ``pages_of`` and ``rows_of`` are by question."""

    peak_pages: int
    forwards: int
    prefix_pages: int
    pages_of: dict[int, int]
    rows_of: dict[int, int]


def run(
    asks: Sequence[Ask], args: argparse.Namespace, layout: str, compute: Compute | None = None, pages: int = PLENTY
) -> Found:
    """All questions through the scheduler, a channel taken again as soon as it is free. Answers are nothing but
    zeros where nobody computes them."""
    limits = MemoryLimits(args.context, links=64, **LAYOUTS[layout])
    memory = Memory(PageAllocator(pages), pages, limits)
    scheduler = Scheduler(ForwardLimits(args.channels, args.rows), memory)
    found = Found(0, 0, 0, {}, {})
    waiting, seats, asked = list(reversed(asks)), list(range(args.channels)), {}
    while waiting or len(scheduler):
        while waiting and seats:
            ask, channel = waiting.pop(), seats.pop()
            asked[channel] = ask.number
            scheduler.join(Job(channel, ask.number, ask.prompt, args.tokens, ask.prefix))
        plan = scheduler.plan()
        if plan is None:
            raise RuntimeError("questions wait for pages that nobody holds")
        found.peak_pages = max(found.peak_pages, pages - memory.available)
        found.forwards += 1
        chosen = iter(compute(memory, plan)) if compute else repeat(0)
        scheduler.advance(plan)
        for step in plan.steps:
            channel = step.run.job.channel
            if channel < 0:
                continue
            number = asked[channel]
            found.rows_of[number] = found.rows_of.get(number, 0) + step.count
            found.pages_of[number] = len(step.run.table) - step.run.job.prefix // 16 * (layout == "shared_readonly")
            if step.wanted:
                step.run.append(next(chosen))
            if step.run.full:
                scheduler.leave(step.run)
                seats.append(channel)
    found.prefix_pages = memory.prefix_pages
    return found


def with_long(asks: Sequence[Ask], long: Ask) -> list[Ask]:
    """The long question in the middle of the others."""
    middle = len(asks) // 2
    return [*asks[:middle], long, *asks[middle:]]


def compared(asks: Sequence[Ask], long: Ask, args: argparse.Namespace, layout: str, page: int) -> dict[str, object]:
    """One layout with and without the long question in the middle."""
    without, beside = run(asks, args, layout), run(with_long(asks, long), args, layout)
    pages, rows = beside.pages_of.pop(LONG), beside.rows_of.pop(LONG)
    return {
        "peak_pages": without.peak_pages,
        "peak_mib": round(without.peak_pages * page / 2**20, 1),
        "pages_of_stored_context": without.prefix_pages,
        "padded_rows": sum(without.rows_of.values()) - sum(_rows(ask, args) for ask in asks),
        "with_long": {
            "peak_pages": beside.peak_pages,
            "peak_mib": round(beside.peak_pages * page / 2**20, 1),
            "pages_of_the_long_one": pages,
            "rows_of_the_long_one": rows,
            "padded_rows_of_the_long_one": rows - _rows(long, args),
            "more_pages_for_the_others": sum(beside.pages_of.values()) - sum(without.pages_of.values()),
            "more_rows_for_the_others": sum(beside.rows_of.values()) - sum(without.rows_of.values()),
        },
    }


def _rows(ask: Ask, args: argparse.Namespace) -> int:
    """Rows that a question needs: what is its own of the prompt, and all tokens of the answer but the last."""
    return len(ask.prompt) - ask.prefix + int(args.tokens) - 1


def questions(args: argparse.Namespace) -> tuple[list[Ask], Ask]:
    """The questions of the data, and the long one."""
    files = args.data or sorted(DATA.glob("*.jsonl")) or [EXAMPLES]
    chat = ChatFormat(Tokenizer.load(resolve_model(args.model)), SYSTEM)
    asks = [_ask(chat, number, text) for number, text in enumerate(texts_of(*map(Path, files)))]
    return asks, Ask(LONG, np.resize(asks[0].prompt, args.long), asks[0].prefix)


def main() -> None:
    """Reads the command line, prints JSON and writes it if asked to."""
    args = _arguments()
    asks, long = questions(args)
    page = kv_page(inspect(resolve_model(args.model))[0], args.precision)
    lengths = sorted(len(ask.prompt) for ask in asks)
    facts: dict[str, object] = {
        "questions": len(asks),
        "prompt_tokens": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
        "system_tokens": asks[0].prefix,
        "answer_tokens": args.tokens,
        "channels": args.channels,
        "max_context": args.context,
        "pages_of_a_full_channel": pages_for(args.context),
        "page_bytes": page,
    }
    facts |= {layout: compared(asks, long, args, layout, page) for layout in LAYOUTS}
    if args.resident:
        from bench.layouts_resident import resident

        facts["resident"] = {layout: resident(args, layout) for layout in LAYOUTS}
    reported(facts, args.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--context", type=int, default=4096, help="core.max_context")
    parser.add_argument("--rows", type=int, default=256, help="core.row_budget")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of every answer")
    parser.add_argument("--long", type=int, default=2000, help="prompt tokens of the long question")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, nargs="*", default=None, help="JSON lines with text")
    parser.add_argument(
        "--resident", type=int, default=0, metavar="N", help="compute every N-th question, and measure; 0 is off"
    )
    parser.add_argument("--out", type=Path, default=None, help="write the JSON here as well")
    return parser.parse_args()


def _ask(chat: ChatFormat, number: int, text: str) -> Ask:
    prompt = chat.render([{"role": "user", "content": text}])
    return Ask(number, np.array(prompt.tokens, np.int32), prompt.prefix_tokens)


if __name__ == "__main__":
    main()
