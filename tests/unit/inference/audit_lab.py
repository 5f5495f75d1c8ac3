"""A desk whose forwards are logged to a file, and questions for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from inference_fakes import FakeBackend, HandClock, make_desk

from inference_svc.audit.files import RotatingFile
from inference_svc.audit.record import Record, Source, record_of
from inference_svc.audit.trail import AuditedBackend, TrailOptions
from inference_svc.audit.writer import Writer
from inference_svc.channels import Job
from inference_svc.desk import Desk
from inference_svc.memory import Memory
from inference_svc.report import End, Order
from kev.domain.question import Sampling

SOURCE = Source("w1", "model-digest", "fake", "fake-1", 5)
PREFIX = list(range(8, 28))
EVERYTHING = TrailOptions(tokens=True, logits=True)


class Lab:
    """Runs questions on the fake model with an audit log around it."""

    def __init__(self, path: Path, options: TrailOptions = EVERYTHING, most_bytes: int = 1 << 30) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.backend = FakeBackend()
        self.writer = Writer(RotatingFile(path, most_bytes, 3), lambda what, count: self.counts.update({what: count}))
        self.memory: Memory
        self.view: Callable[[int], tuple[frozenset[int], frozenset[int]]] = lambda channel: self.memory._allocator.view(
            channel
        )
        audited = AuditedBackend(
            self.backend, self.writer, SOURCE, lambda channel: self.view(channel), options, HandClock().wall_ms
        )
        self.desk: Desk
        self.desk, self.memory = make_desk(audited)  # type: ignore[arg-type]

    def ask(self, ticket: int, prompt: list[int], tokens: int = 4, **job: Any) -> None:
        """Seats a question."""
        made = Job(ticket % 8, ticket, np.array(prompt, np.int32), tokens, **job)
        self.desk.join(Order(ticket, made, Sampling(), ticket, float("inf")))

    def run(self) -> dict[int, End]:
        """Answers all that are seated, and writes the file to its end."""
        ends: dict[int, End] = {}
        while not self.desk.idle:
            plan = self.desk.plan()
            assert plan is not None
            self.desk.run(plan)
            ends |= {end.ticket: end for end in self.desk.report(plan, 0.0).ends}
        return ends

    def close(self) -> list[Record]:
        """Ends the log; the records of the current file."""
        self.writer.close()
        return [record_of(line) for line in self.path.read_text().splitlines()]


def asked(path: Path, **options: Any) -> Lab:
    """Four questions, three of which share a prefix that ends inside a page; their log is written."""
    lab = Lab(path, **options)
    for ticket in (1, 2, 3):
        lab.ask(ticket, [*PREFIX, ticket, 9], prefix=20)
    lab.ask(4, [30, 31, 32])
    lab.run()
    return lab
