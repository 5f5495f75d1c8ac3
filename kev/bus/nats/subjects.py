"""Names on the broker: subjects, streams, durables. ``<ns>`` is ``kev`` unless the settings say otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from kev.bus.messages import Lane
from kev.domain.ids import SHARED_LANES, is_queue, short_queue


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one deployment.

    ``rid`` is a hash and a worker id is checked before it gets here, so that
    no name can hold a dot or a wildcard.
    """

    ns: str

    # -- streams -------------------------------------------------------------------
    @property
    def queue_stream(self) -> str:
        """Lanes: a work queue."""
        return f"{self.ns.upper()}_Q"

    @property
    def result_stream(self) -> str:
        """Manifests and outcomes."""
        return f"{self.ns.upper()}_RESULT"

    @property
    def strike_stream(self) -> str:
        """A counter per question that was taken again."""
        return f"{self.ns.upper()}_STRIKE"

    @property
    def dead_stream(self) -> str:
        """Dead letters."""
        return f"{self.ns.upper()}_DLQ"

    @property
    def fleet_bucket(self) -> str:
        """The KV bucket of the workers' beats."""
        return f"{self.ns}_fleet"

    @property
    def fleet_stream(self) -> str:
        """The stream under that bucket."""
        return f"KV_{self.fleet_bucket}"

    @property
    def pool_bucket(self) -> str:
        """The KV bucket of the context pools."""
        return f"{self.ns}_context"

    @property
    def pool_stream(self) -> str:
        """The stream under that bucket."""
        return f"KV_{self.pool_bucket}"

    # -- subjects ------------------------------------------------------------------
    @property
    def queues(self) -> str:
        """All lanes."""
        return f"{self.ns}.q.>"

    def lane(self, lane: Lane, number: int = 0) -> str:
        """A channel's subject, or one of the subjects of a shared lane."""
        return f"{self.ns}.q.{lane.queue}.{number if lane.shared else lane.channel}"

    def lane_of(self, subject: str) -> tuple[Lane, int] | None:
        """The reverse of ``lane``; None for a subject that is none."""
        queue, _, last = subject.removeprefix(f"{self.ns}.q.").rpartition(".")
        if not is_queue(queue) or not last.isdecimal():
            return None
        source, number, long = short_queue(queue), int(last), queue != short_queue(queue)
        return (Lane(source, -1, long), number) if source in SHARED_LANES else (Lane(source, number, long), 0)

    def source(self, source: str) -> str:
        """What a source's durable filters."""
        return f"{self.ns}.q.{source}.*"

    def durable(self, source: str) -> str:
        """A source's durable consumer."""
        name = short_queue(source)
        kind = "lane" if name in SHARED_LANES else "worker"
        return f"{kind}-{name}" if name == source else f"long-{kind}-{name}"

    def manifest(self, rid: str) -> str:
        """A request's manifest."""
        return f"{self.ns}.result.{rid}.manifest"

    def outcome(self, rid: str, slot: int) -> str:
        """A slot's outcome."""
        return f"{self.ns}.result.{rid}.{slot}"

    def results(self, rid: str) -> str:
        """Manifest and outcomes of a request."""
        return f"{self.ns}.result.{rid}.*"

    def delta(self, rid: str) -> str:
        """Deltas of a request."""
        return f"{self.ns}.delta.{rid}"

    def sync(self, rid: str) -> str:
        """Catch-up requests for a request; ``*`` for all."""
        return f"{self.ns}.sync.{rid}"

    def cancel(self, rid: str) -> str:
        """Cancel hints for a request; ``*`` for all."""
        return f"{self.ns}.cancel.{rid}"

    def bell(self, worker: str) -> str:
        """The bell of a worker, or of ``any``."""
        return f"{self.ns}.bell.{worker}"

    def strike(self, rid: str, slot: int) -> str:
        """A question's strikes."""
        return f"{self.ns}.strike.{rid}.{slot}"

    @property
    def dead(self) -> str:
        """Dead letters."""
        return f"{self.ns}.dlq"

    def beat(self, worker_id: str) -> str:
        """A worker's entry in the fleet bucket; ``*`` for all."""
        return f"$KV.{self.fleet_bucket}.{worker_id}"

    @property
    def pool_entries(self) -> str:
        """All entries of the bucket of context pools."""
        return f"$KV.{self.pool_bucket}.>"

    def pool_record(self, tenant: str, key: str) -> str:
        """A pool's record; ``tenant`` is a hash, ``*`` stands for any of either."""
        return f"$KV.{self.pool_bucket}.info.{tenant}.{key}"

    def pool_part(self, key: str, upload: str, number: int | str) -> str:
        """A part of a pool's tokens; ``*`` for all."""
        return f"$KV.{self.pool_bucket}.tokens.{key}.{upload}.{number}"
