"""One rank as a process: ``python -m inference_svc.backends.reference.rank '{"rank": 1, …}'``. A worker starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass

from inference_svc.backends.reference.backend import ReferenceBackend
from inference_svc.backends.reference.ranks import Group, follow, shard
from inference_svc.models import load_weights


@dataclass(frozen=True, slots=True)
class RankSpec:
    """What a rank must know.

    Attributes:
        device: ``cpu``, or the torch device of this rank.
        threads: Of torch; 0 leaves them.
    """

    model: str
    precision: str
    pages: int
    device: str
    threads: int
    rank: int
    ranks: int
    store: str

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def loaded(spec: RankSpec) -> tuple[ReferenceBackend, Group]:
    """Reads this rank's part of the model and meets the others.

    Raises:
        ModelError: the model is refused, or its parts do not divide.
    """
    config, weights = shard(*load_weights(spec.model), spec.rank, spec.ranks)
    group = Group(spec.rank, spec.ranks, spec.store, spec.device)
    backend = ReferenceBackend.from_weights(
        config,
        weights,
        precision=spec.precision,
        device=spec.device,
        pages=spec.pages,
        threads=spec.threads or None,
        total=group.total,
    )
    backend.agree_on_tiles(group.common)
    return backend, group


def _end_with_the_input() -> None:
    """Nothing ever comes: the pipe's end is rank 0's end."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def main() -> None:
    """Follows rank 0 to the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: rank 0 decides
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    follow(*loaded(RankSpec(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
