"""What a deployment may choose about the bus. Both adapters read the same settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kev.domain.errors import InvalidArgument

_NAMESPACE = re.compile(r"[a-z][a-z0-9]{0,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Settings of the bus; times in seconds, sizes in questions.

    Attributes:
        urls: NATS servers, ``nats://host:port`` or ``tls://host:port``.
        name: This process's name in the broker's lists of connections.
        user, password, token: Credentials; or ``credentials``, the path of a
            NATS credentials file. None of them is ever printed, nor ``urls``,
            which may hold some. Replies come to ``_INBOX_<user>.>``.
        tls_ca, tls_cert, tls_key: Paths of PEM files.
        namespace: First word of every subject and stream name; deployments
            that share a broker must differ in it.
        replicas: Copies of every stream: 1, 3 or 5.
        queue_bound: Most questions in one channel's queue, waiting and taken.
        shared_lane_bound: The same for a shared lane; see ``shared_bound``.
        ack_wait_s: A question whose holder shows no progress for so long goes
            to somebody else.
        lease_s: A worker that has not beaten for so long is taken for dead.
        result_ttl_s: How long manifests and outcomes are kept.
        question_grace_s: How long after its deadline a queued question is kept.
        dedupe_window_s: How long the bus remembers that a question was put in.
        dead_letter_ttl_s: How long dead letters are kept.
        connect_timeout_s: Longest wait for the broker at the start.
        request_timeout_s: Longest wait for one reply of the broker.
        reconnect_wait_s: Pause between two attempts to reconnect.
        catch_up_s: Longest wait for the workers' texts in ``catch_up``.
        follow_buffer: Most messages kept for a reader that does not read.
    """

    urls: tuple[str, ...] = field(default=("nats://127.0.0.1:4222",), repr=False)
    name: str = "kev"
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    namespace: str = "kev"
    replicas: int = 1
    queue_bound: int = 64
    shared_lane_bound: int = 1024
    ack_wait_s: float = 10.0
    lease_s: float = 5.0
    result_ttl_s: float = 3600.0
    question_grace_s: float = 2.0
    dedupe_window_s: float = 600.0
    dead_letter_ttl_s: float = 7 * 24 * 3600.0
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0
    reconnect_wait_s: float = 0.25
    catch_up_s: float = 0.25
    follow_buffer: int = 1024

    def __post_init__(self) -> None:
        if not self.urls:
            raise InvalidArgument("urls", "at least one NATS address")
        if _NAMESPACE.fullmatch(self.namespace) is None:
            raise InvalidArgument("namespace", "1 to 16 lower case letters and digits, a letter first")
        if self.replicas not in (1, 3, 5):
            raise InvalidArgument("replicas", f"1, 3 or 5, not {self.replicas}")
        for name in ("queue_bound", "shared_lane_bound", "follow_buffer"):
            if getattr(self, name) < 1:
                raise InvalidArgument(name, "at least 1")
        for name in self.__slots__:
            if name.endswith("_s") and getattr(self, name) <= 0:
                raise InvalidArgument(name, "more than 0 seconds")

    @property
    def shared_lane_subjects(self) -> int:
        """How many subjects of ``queue_bound`` make up a shared lane."""
        return -(-self.shared_lane_bound // self.queue_bound)

    @property
    def shared_bound(self) -> int:
        """Most questions in a shared lane: ``shared_lane_bound``, rounded up to a multiple of ``queue_bound``."""
        return self.shared_lane_subjects * self.queue_bound

    def check_timeout(self, longest_s: float) -> None:
        """Proves that a record outlives every question.

        Raises:
            InvalidArgument: unless result TTL > 2 x (longest timeout + ack wait).
        """
        least = 2 * (longest_s + self.ack_wait_s)
        if self.result_ttl_s <= least:
            raise InvalidArgument("result_ttl_s", f"more than 2 x (longest timeout + ack wait) = {least:g} seconds")
