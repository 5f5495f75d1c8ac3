"""The core: one thread that owns model, pages and runs, and executes forwards.

The event loop puts orders into an inbox and gets a report per forward. The
inbox is read between any two forwards: what came during one forward is in the
pack of the next, what was cancelled during one is out of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from inference_svc.clock import Clock
from inference_svc.desk import Desk
from inference_svc.report import Order, Report
from kev.domain.outcome import FinishReason

log = logging.getLogger(__name__)
T = TypeVar("T")
Call: TypeAlias = Callable[[], None]
IDLE_STEP_S = 0.05
COMPANY_S = 0.03
"""So long at most an idle core lets its first question wait for those that are on their way already."""


class Core:
    """Runs forwards on its own thread. All methods may be called from any thread.

    Attributes:
        busy_since: When the running forward began, monotonic seconds; None between forwards.
        forwards, rows: Counts since the start.
        broken: What ended the thread, None while it lives.

    Args:
        desk: The runs; used from the core's thread only.
        on_report: Called on the core's thread after each turn; must not block.
        window_s: How long the first forward after idleness waits for company.
        company_s: How long at most it waits for company that is on its way (``expect``).
    """

    def __init__(
        self,
        desk: Desk,
        on_report: Callable[[Report], None],
        clock: Clock,
        window_s: float = 0.0,
        company_s: float = COMPANY_S,
    ) -> None:
        self._desk = desk
        self._on_report = on_report
        self._clock = clock
        self._window_s = window_s
        self._company_s = company_s
        self._expected = False
        self._gathering = False
        self._inbox: SimpleQueue[Call] = SimpleQueue()
        self._stopping = False
        self._stuck = False
        self._thread = threading.Thread(target=self._main, name="kev-core", daemon=True)
        self.busy_since: float | None = None
        self.forwards = 0
        self.rows = 0
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self, order: Order) -> None:
        """Seats a run. It takes part in the next forward; a bad order ends at once with a report."""
        self._inbox.put(lambda: self._desk.join(order))

    def expect(self, more: bool) -> None:
        """Says whether more runs are about to join. Only a forward that would end an idle time waits for them."""
        self._expected = more
        if not more and self._gathering:
            self._inbox.put(lambda: None)  # wakes it

    def leave(self, ticket: int, finish: FinishReason = FinishReason.CANCELLED) -> None:
        """Ends a run before the next forward; does nothing if it has ended."""
        known = self.forwards
        self._inbox.put(lambda: self._desk.end(ticket, finish, self.forwards - known))

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Runs something on the core's thread between two forwards (the self-test needs the backend)."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                return
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._inbox.put(run)
        return future

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Ends the thread after the running forward; does not wait for that."""

        def stop() -> None:
            self._stopping = True

        self._inbox.put(stop)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """``end``, and waits; False if it did not end in time."""
        if self.alive:
            self.end()
            self._thread.join(timeout_s)
        return not self.alive

    def _main(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:  # the worker sees it, and its questions go to others
            log.exception("the model thread ends")
            self.broken = error
            self._on_report(Report((), ()))

    def _turn(self) -> None:
        """Inbox, deadlines, one forward, one report."""
        self._read_inbox()
        self._desk.expire()
        plan = self._desk.plan()
        started = self._clock.monotonic()
        if plan is not None:
            self.busy_since = started
            self._desk.run(plan)
            self.busy_since = None
        self._stuck = plan is None
        report = self._desk.report(plan, self._clock.monotonic() - started)
        if report.forward:
            self.forwards += 1
            self.rows += report.rows
        if report.forward or report.ends:
            self._on_report(report)

    def _read_inbox(self) -> None:
        """Does what waits; when there is nothing to run, waits for something."""
        was_idle = self._desk.idle
        if was_idle:
            self._desk.check()
            self._inbox.get()()
        elif self._stuck:
            self._wait(IDLE_STEP_S)
        while not self._stopping and self._wait(0.0):
            pass
        if was_idle:
            self._gather()

    def _gather(self) -> None:
        """Waits for company: for the whole window, and for those that are on their way."""
        now = self._clock.monotonic()
        # Set before `expect`'s word is read: whoever takes that back from here on puts something into the inbox.
        self._gathering = True
        while (
            self._desk.live and not self._stopping and self._wait(max(0.0, self._until(now) - self._clock.monotonic()))
        ):
            pass
        self._gathering = False

    def _until(self, since: float) -> float:
        return since + max(self._window_s, self._company_s if self._expected else 0.0)

    def _wait(self, seconds: float) -> bool:
        """Takes one thing out of the inbox and does it; False if none came in time."""
        try:
            work = self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
        except Empty:
            return False
        work()
        return True
