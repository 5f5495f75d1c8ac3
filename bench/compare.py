"""The same work to any OpenAI-compatible server and to Kev, in turns: the ratio, and whose answers depend on company.

    python -m bench.compare --url http://127.0.0.1:8000 [--questions 1,8,32] [--rounds 3] [--precision bf16]

Start the other server first, with a model of the same weights, its prefix
cache on and enough parallel seats. Kev is started here (``kev serve``) and
asked over HTTP as well; while one works the other idles. Both are warmed up
with the whole work. Every question is one request of its own to the other
server, all at once; Kev takes them as one batch, which is how it is used.
Answers have ``max_tokens`` tokens: the other server is sent ``ignore_eos``
(vLLM and llama.cpp know it); for one that does not, ``--to-the-end`` lets both
stop where the model ends. The last part asks each of the questions alone, too:
about 3 minutes in all on two cores; ``--no-alone`` leaves it out.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.common import Run, Work, alternated, load_work, reported, summary
from bench.common_layers import http_door, posted

OURS, THEIRS = "kev", "other"
Job = Callable[[Work], Awaitable[Run]]


def main() -> None:
    """Reads the command line, measures, prints JSON and a line per batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of the other server, without /v1")
    parser.add_argument("--model", default="", help="its name there; the first that it lists by default")
    parser.add_argument("--key", default="", help="API key of the other server")
    parser.add_argument("--questions", default="1,8,32", help="batch sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", type=Path, default=None)
    parser.add_argument("--to-the-end", action="store_true", help="let answers end where the model ends them")
    parser.add_argument("--no-alone", action="store_true", help="do not compare answers alone and packed")
    parser.add_argument("--precision", default="", help="of Kev; the deployment's default if it is not given")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", type=Path, default=None)
    asyncio.run(_main(parser.parse_args()))


async def _main(args: argparse.Namespace) -> None:
    sizes = [int(size) for size in args.questions.split(",")]
    work = load_work(args.workload).first(max(sizes))
    flags = dict(text.split("=", 1) for text in args.set)
    if args.precision:
        flags["core.precision"] = args.precision
    headers = {"Authorization": f"Bearer {args.key}"} if args.key else {}
    async with (
        http_door(work, flags, unending=not args.to_the_end) as url,
        httpx.AsyncClient(timeout=None) as mine,
        httpx.AsyncClient(timeout=None, headers=headers, limits=httpx.Limits(max_connections=None)) as client,
    ):
        model = args.model or await _first_model(client, args.url)
        other = Other(client, args.url, model, ignore_eos=not args.to_the_end)
        jobs: dict[str, Job] = {THEIRS: other.ask, OURS: lambda some: posted(mine, url, some)}
        for job in jobs.values():
            await job(work)
        rows = [await _at_size(jobs, work.first(size), args.rounds) for size in sizes]
        equal = {} if args.no_alone else {name: await _equal(job, work) for name, job in jobs.items()}
    reported({"url": args.url, "model": model, "tokens": work.tokens, "sizes": rows, "equal_alone": equal}, args.out)
    for row in rows:
        print(f"N = {row['questions']}: kev {row['ratio']} x the other server")
    for name, count in equal.items():
        print(f"{name}: {count} of {len(work.questions)} answers are the same alone and packed")


@dataclass(frozen=True, slots=True)
class Other:
    """An OpenAI-compatible server."""

    client: httpx.AsyncClient
    url: str
    model: str
    ignore_eos: bool

    async def ask(self, work: Work) -> Run:
        """All questions at once, one request each."""
        began = time.perf_counter()
        replies = await asyncio.gather(*(self._one(work, text) for text in work.questions))
        run = Run(time.perf_counter() - began)
        run.texts = [reply["choices"][0]["message"]["content"] or "" for reply in replies]
        run.tokens = sum(int(reply["usage"]["completion_tokens"]) for reply in replies)
        return run

    async def _one(self, work: Work, text: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": work.system}, {"role": "user", "content": text}]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": work.tokens,
            "temperature": 0,
            **({"ignore_eos": True} if self.ignore_eos else {}),
        }
        response = await self.client.post(f"{self.url.rstrip('/')}/v1/chat/completions", json=body)
        if response.status_code != 200:
            raise SystemExit(f"{self.url} answered {response.status_code}: {response.text[:300]}")
        found: dict[str, Any] = response.json()
        return found


async def _first_model(client: httpx.AsyncClient, url: str) -> str:
    response = await client.get(f"{url.rstrip('/')}/v1/models")
    response.raise_for_status()
    return str(response.json()["data"][0]["id"])


async def _at_size(jobs: dict[str, Job], work: Work, rounds: int) -> dict[str, Any]:
    """Both in turns; medians, and the ratio of their throughputs within each turn."""
    found = await alternated({name: lambda job=job: job(work) for name, job in jobs.items()}, rounds)
    ratios = [ours.rate / theirs.rate for ours, theirs in zip(found[OURS], found[THEIRS], strict=True)]
    figures = {name: _without_cpu(summary(runs)) for name, runs in found.items()}
    return {"questions": len(work.questions), "ratio": round(median(ratios), 2), **figures}


def _without_cpu(figures: dict[str, float]) -> dict[str, float]:
    """The other server's processor time is not seen from here."""
    return {name: value for name, value in figures.items() if name != "cpu_ms_per_token"}


async def _equal(job: Job, work: Work) -> int:
    """How many answers are the same text alone and with all others."""
    packed = (await job(work)).texts
    alone = [(await job(Work(work.system, (text,), work.tokens))).texts[0] for text in work.questions]
    return sum(one == other for one, other in zip(packed, alone, strict=True))


if __name__ == "__main__":
    main()
