"""The same work at every height: bare core, desk, Engine, three tiers over NATS, HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from bench.common import ROOT, Run, Work, measured
from bench.core.job import Job, JobResult
from bench.core.workload import Workload
from inference_svc.assembly import core_of
from inference_svc.channels import Job as Seat
from inference_svc.clock import Clock
from inference_svc.loading import LoadedModel, load_model
from inference_svc.report import Order, Report
from inference_svc.rows import Span
from kev.app.cluster.child import Spec
from kev.app.cluster.cluster import Cluster
from kev.app.engine import Engine
from kev.bus.nats.exec_bound import bound_command
from kev.client import AsyncClient
from kev.config.load import load_settings
from kev.config.settings import Settings
from kev.domain.question import Question, Sampling
from kev.tokens.chat import ChatFormat
from kev.wire.process import read_ready

TIMEOUT_MS = 600_000


def settings_for(work: Work, flags: Mapping[str, str]) -> Settings:
    """Settings of the work's system prompt; ``flags`` go on top."""
    return load_settings(None, flags=flags_for(work, flags), environment={})


def flags_for(work: Work, flags: Mapping[str, str]) -> dict[str, str]:
    """The same as flags of a command line."""
    return {
        "core.system_prompt": work.system,
        "router.normalize": "off",
        "router.channel_pool_size": str(max(32, len(work.questions))),
        "router.max_parallel_queries": str(max(32, len(work.questions))),
        **flags,
    }


class ServingJob(Job):
    """A job in the packs of a serving core that has all questions from the start.

    The prefix is in the store already, but for the first time. A forward takes a token for each question that has
    begun, and fills the row budget with prompts, chunk by chunk. So what a layer costs is not mixed with what other
    packs would.
    """

    cold = True

    def run(self) -> JobResult:
        """Runs the job, greedy; end-of-sequence is a token like any other."""
        begin = time.perf_counter()
        if self._shared and self.cold:
            self._forward([Span(-1, self._work.prefix[: self._shared], 0, self._tables[0], wanted=0)])
        read = [self._shared] * len(self._tables)
        written = [0] * len(self._tables)
        while spans := self._next(read, written):
            ended = [span.channel for span in spans if span.wanted]
            for number, token in zip(ended, self._forward(spans), strict=True):
                self._result.answers[number, written[number]] = token
                written[number] += 1
                if written[number] == 1:
                    self._result.first_tokens.append(time.perf_counter() - begin)
            for span in spans:
                read[span.channel] = span.end
        self._result.total = time.perf_counter() - begin
        return self._result

    def _next(self, read: list[int], written: list[int]) -> list[Span]:
        running = [n for n, count in enumerate(written) if 0 < count < self._work.steps]
        spans = [self._token(n, written[n]) for n in running]
        left = self._budget - len(spans)
        for number, prompt in enumerate(self._work.prompts):
            count = min(left, len(prompt) - read[number]) if not written[number] else 0
            if count > 0:
                start, left = read[number], left - count
                chunk = prompt[start : start + count]
                spans.append(Span(number, chunk, start, self._tables[number], int(start + count == len(prompt))))
        return spans


@dataclass(slots=True)
class BareCore:
    """Forwards and argmax, nothing else."""

    model: LoadedModel
    work: Work
    rows: int = 256
    warmed: bool = False

    async def __call__(self) -> Run:
        """One job, on a thread of its own."""
        return await asyncio.to_thread(self._run)

    def _run(self) -> Run:
        job = ServingJob(self.model.backend, tokens_of(self.model, self.work), self.rows)
        job.cold, self.warmed = not self.warmed, True
        result = job.run()
        texts = [self.model.tokenizer.decode(answer.tolist()) for answer in result.answers]
        return Run(result.total, 0.0, result.answers.size, result.first_tokens, texts)


class WorkerCore:
    """The worker's core thread with its scheduler, memory, sampler and detokeniser; no bus around it."""

    def __init__(self, settings: Settings, model: LoadedModel, work: Work) -> None:
        self._work = work
        self._prompts = tokens_of(model, work)
        self._loop = asyncio.get_running_loop()
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._core = core_of(settings, model.backend, model.tokenizer, Clock(), self._receive)
        self._tickets = 0
        self._core.start()

    def _receive(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self._reports.put_nowait, report)

    async def __call__(self) -> Run:
        """One job."""
        run, first, ends = Run(), {}, {}
        base = self._tickets
        began = time.perf_counter()
        for number, prompt in enumerate(self._prompts.prompts):
            self._tickets += 1
            seat = Seat(number, "bench", prompt, self._work.tokens, prefix=len(self._prompts.prefix))
            self._core.join(Order(base + number, seat, Sampling(), 0, float("inf")))
        while len(ends) < len(self._prompts.prompts):
            report = await self._reports.get()
            now = time.perf_counter() - began
            for text in report.texts:
                first.setdefault(text.ticket, now)
            ends.update({end.ticket: end for end in report.ends})
        run.seconds = time.perf_counter() - began
        run.first = list(first.values())
        run.texts = [ends[base + number].text for number in range(len(ends))]
        run.tokens = sum(end.tokens for end in ends.values())
        return run

    def close(self) -> None:
        """Ends its thread."""
        self._core.stop()


def tokens_of(model: LoadedModel, work: Work) -> Workload:
    """The work's token ids."""
    chat = ChatFormat(model.tokenizer, work.system)
    prompts = [chat.render([{"role": "user", "content": text}]).tokens for text in work.questions]
    arrays = tuple(np.asarray(prompt, np.int32) for prompt in prompts)
    return Workload(np.asarray(chat.prefix, np.int32), arrays, work.tokens)


def questions_of(work: Work) -> list[Question]:
    """The work's questions for a client."""
    return [Question(text=text, max_tokens=work.tokens, timeout_ms=TIMEOUT_MS) for text in work.questions]


@contextlib.asynccontextmanager
async def engine(settings: Settings, work: Work) -> AsyncIterator[Any]:
    """A call that asks the Engine in this process."""
    made = await asyncio.to_thread(Engine, settings)
    try:

        async def run() -> Run:
            return await measured(made.aio.ask(questions_of(work)))

        yield run
    finally:
        await asyncio.to_thread(made.close)


class UnendingCluster(Cluster):
    """A cluster whose worker ignores end-of-sequence."""

    def _spec(self, name: str, module: str, flags: Mapping[str, str], drain_s: float = 10.0) -> Spec:
        spec = super()._spec(name, module, flags, drain_s)
        return (
            UnendingSpec(**{slot: getattr(spec, slot) for slot in Spec.__slots__})
            if module == "inference_svc"
            else spec
        )


class UnendingSpec(Spec):
    """Runs its module through ``bench.common_unending``."""

    def command(self) -> list[str]:
        """The command line."""
        words = super().command()
        place = words.index(self.module)
        return [*words[:place], "bench.common_unending", *words[place:]]


@contextlib.asynccontextmanager
async def three_tiers(settings: Settings, work: Work, flags: Mapping[str, str]) -> AsyncIterator[Any]:
    """A call that asks a cluster of processes over gRPC; one worker."""
    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = UnendingCluster(settings, flags=flags_for(work, flags), free_ports=True, say=lambda name, line: None)
    async with cluster as at, AsyncClient(at.router) as client:

        async def run() -> Run:
            return await measured(client.ask(questions_of(work)))

        yield run


@contextlib.asynccontextmanager
async def http_door(work: Work, flags: Mapping[str, str], unending: bool = True) -> AsyncIterator[str]:
    """``kev serve`` over an Engine in a process of its own; its URL. ``unending``: without end-of-sequence."""
    sets = [word for key, value in flags_for(work, flags).items() for word in ("--set", f"{key}={value}")]
    through = ["bench.common_unending"] if unending else []
    command = [sys.executable, "-m", *through, "kev.app.cli.main", "serve", "--port", "0", *sets]
    process = await asyncio.create_subprocess_exec(
        *bound_command(*command), cwd=ROOT, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert process.stdout is not None
        facts = read_ready((await process.stdout.readline()).decode())
        if facts is None:
            raise RuntimeError("kev serve did not start")
        yield f"http://{facts['address']}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def asked_over_http(client: httpx.AsyncClient, url: str, work: Work) -> Run:
    """Asks the work as one streamed request."""
    run, seen, ends, name = Run(), set(), {}, ""
    began = time.perf_counter()
    async with client.stream("POST", f"{url}/v1/query", json={**_body(work), "stream": True}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            kind, _, text = line.partition(": ")
            if kind == "event":
                name = text
            elif kind == "data" and name in ("delta", "result"):
                frame = json.loads(text)
                if frame["text"] and frame["slot"] not in seen:
                    seen.add(frame["slot"])
                    run.first.append(time.perf_counter() - began)
                if name == "result":
                    ends[frame["slot"]] = frame["result"]
    run.seconds = time.perf_counter() - began
    return _with_ends(run, [ends[slot] for slot in sorted(ends)])


async def posted(client: httpx.AsyncClient, url: str, work: Work) -> Run:
    """Asks the work as one request with one reply."""
    began = time.perf_counter()
    response = await client.post(f"{url}/v1/query", json=_body(work))
    response.raise_for_status()
    run = Run(time.perf_counter() - began)
    return _with_ends(run, response.json()["results"])


def _body(work: Work) -> dict[str, Any]:
    queries = [{"text": text, "max_tokens": work.tokens, "timeout_ms": TIMEOUT_MS} for text in work.questions]
    return {"queries": queries}


def _with_ends(run: Run, ends: Sequence[Mapping[str, Any]]) -> Run:
    run.texts = [end["text"] for end in ends]
    run.tokens = sum(end["audit"]["completion_tokens"] for end in ends)
    if bad := [end for end in ends if end["status"] != "answered"]:
        raise RuntimeError(f"{len(bad)} answers failed: {bad[0]['status']} {bad[0]['reason']}")
    return run


def loaded(settings: Settings) -> LoadedModel:
    """The model of the settings."""
    return load_model(settings)
