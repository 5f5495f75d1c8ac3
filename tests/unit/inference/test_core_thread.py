"""The model thread: it runs beside everything else, and one slot's fault is one slot's fault."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, Queue

import numpy as np
import pytest
from inference_fakes import FakeBackend, letters, make_core, naive_tokens

from inference_svc.channels import Job
from inference_svc.core import Core
from inference_svc.report import End, Order, Report
from kev.domain.outcome import FinishReason
from kev.domain.question import Sampling


class Host:
    """Starts a core and collects its reports."""

    def __init__(self, backend: FakeBackend, window_s: float = 0.0, company_s: float = 0.03) -> None:
        self.reports: Queue[Report] = Queue()
        self.core: Core = make_core(backend, self.reports.put, window_s, company_s)
        self.core.start()

    def order(self, ticket: int, prompt: list[int], tokens: int = 4, sampling: Sampling | None = None) -> None:
        job = Job(ticket % 8, ticket, np.array(prompt, np.int32), tokens)
        self.core.join(Order(ticket, job, sampling or Sampling(), ticket, float("inf")))

    def ends(self, count: int) -> dict[int, End]:
        found: dict[int, End] = {}
        while len(found) < count:
            found |= {end.ticket: end for end in self.reports.get(timeout=30).ends}
        return found


@pytest.fixture
def host() -> object:
    made: list[Host] = []

    def start(backend: FakeBackend) -> Host:
        made.append(Host(backend))
        return made[-1]

    yield start
    for one in made:
        assert one.core.stop()


Start = Callable[[FakeBackend], Host]


def test_all_forwards_run_on_one_thread_of_their_own(host: Start) -> None:
    backend = FakeBackend()
    running = host(backend)
    for ticket in range(4):
        running.order(ticket, [ticket, 9])
    ends = running.ends(4)
    assert backend.threads.isdisjoint({threading.get_ident()})
    assert len(backend.threads) == 1
    for ticket, end in ends.items():
        assert end.text == letters(naive_tokens([ticket, 9], 4, Sampling(), ticket, 128))
    assert running.core.forwards == len(backend.packs)


def test_what_is_cancelled_during_a_forward_is_not_in_the_next(host: Start) -> None:
    inside, go = threading.Event(), threading.Event()

    def hold(pack: object) -> None:
        inside.set()
        assert go.wait(30)

    backend = FakeBackend(before=hold)
    running = host(backend)
    running.order(1, [8], tokens=50)
    running.order(2, [9], tokens=50)
    assert inside.wait(30)
    running.core.leave(1)
    running.order(3, [10], tokens=1)
    go.set()
    end = running.ends(1)[1]
    assert end.finish is FinishReason.CANCELLED
    first, second = backend.packs[:2]
    assert 1 in {span.channel for span in first.spans} or len(first.spans) == 1
    assert 1 not in {span.channel for span in second.spans}
    assert 3 in {span.channel for span in second.spans}


def test_a_bad_stop_string_fails_its_own_slot(host: Start) -> None:
    running = host(FakeBackend())
    running.order(1, [8], sampling=Sampling(stop=("",)))
    running.order(2, [8])
    ends = running.ends(2)
    assert (ends[1].finish, ends[1].reason) == (FinishReason.ERROR, "internal")
    assert ends[2].finish in (FinishReason.LENGTH, FinishReason.STOP)


def test_a_stop_string_ends_the_text_before_itself(host: Start) -> None:
    whole = letters(naive_tokens([8], 12, Sampling(), 1, 128))
    running = host(FakeBackend())
    running.order(1, [8], tokens=12, sampling=Sampling(stop=(whole[3:5],)))
    end = running.ends(1)[1]
    assert end.text == whole[:3]
    assert (end.finish, end.tokens) == (FinishReason.STOP, 5)


def test_work_can_be_run_between_forwards(host: Start) -> None:
    running = host(FakeBackend())
    assert running.core.call(threading.get_ident).result(30) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        running.core.call(lambda: 1 // 0).result(30)


def test_whoever_gives_up_waiting_for_such_work_does_not_end_the_thread(host: Start) -> None:
    running = host(FakeBackend())
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go_on.wait(30)

    at_work, waiting = running.core.call(slow), running.core.call(lambda: pytest.fail("nobody waits for it"))
    assert began.wait(30)
    assert waiting.cancel()
    assert not at_work.cancel()  # it has begun: its result has somewhere to go
    go_on.set()
    at_work.result(30)
    assert running.core.call(lambda: 5).result(30) == 5
    assert running.core.broken is None


def test_the_first_forward_waits_for_company_if_told_to() -> None:
    backend = FakeBackend()
    running = Host(backend, window_s=0.5)
    for ticket in range(3):
        running.order(ticket, [9], tokens=1)
    running.ends(3)
    assert len(backend.packs[0].spans) == 3
    assert running.core.stop()


def test_an_idle_core_waits_for_those_that_are_on_their_way() -> None:
    backend = FakeBackend()
    running = Host(backend, company_s=60.0)
    running.core.expect(True)
    for ticket in range(3):
        running.order(ticket, [9], tokens=1)
    with pytest.raises(Empty):  # nothing has run: the third may not be the last
        running.reports.get_nowait()
    running.core.expect(False)
    running.ends(3)
    assert len(backend.packs[0].spans) == 3
    assert running.core.stop()


def test_it_does_not_wait_for_long() -> None:
    running = Host(FakeBackend(), company_s=0.01)
    running.core.expect(True)
    running.order(1, [9], tokens=1)
    running.ends(1)
    assert running.core.stop()


def test_a_core_at_work_waits_for_nobody() -> None:
    """The second run joins the first one's forwards, though a third is expected for ever."""
    gate, begun = threading.Event(), threading.Event()

    def before(pack: object) -> None:
        begun.set()
        assert gate.wait(30)

    running = Host(FakeBackend(before=before), company_s=60.0)
    running.order(1, [9], tokens=3)
    assert begun.wait(30)
    running.core.expect(True)
    running.order(2, [9], tokens=3)
    gate.set()
    running.ends(2)
    assert running.core.stop()


def test_what_ends_at_once_waits_for_nobody() -> None:
    running = Host(FakeBackend(), company_s=60.0)
    running.core.expect(True)
    running.order(1, [9] * 1000, tokens=1)
    assert running.ends(1)[1].finish is FinishReason.REFUSED
    assert running.core.stop()


def test_a_core_that_is_stopped_does_not_wait() -> None:
    running = Host(FakeBackend(), company_s=60.0)
    running.core.expect(True)
    running.order(1, [9], tokens=1)
    assert running.core.stop()


def test_a_broken_store_ends_the_thread_and_says_so() -> None:
    backend = FakeBackend()

    def broken(pages: object) -> None:
        raise MemoryError("the store is gone")

    backend.scrub = broken  # type: ignore[method-assign]
    running = Host(backend)
    running.order(1, [8], tokens=1)
    while running.core.broken is None:
        running.reports.get(timeout=30)
    assert isinstance(running.core.broken, MemoryError)
    assert running.core.stop()
