"""A backend whose model is spread over several processes of this machine: tensor parallel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from inference_svc.backends.reference.backend import ReferenceBackend, check_precision
from inference_svc.backends.reference.rank import RankSpec, loaded
from inference_svc.backends.reference.ranks import Group, RankLost, check_divisible, pack_order
from inference_svc.models import inspect
from inference_svc.rows import Float32Array, Pack

END_S = 10.0


class ParallelBackend:
    """Rank 0, which is this process, and the others, which are its children and die with it. See ``Backend``."""

    name = "reference"

    def __init__(
        self, inner: ReferenceBackend, group: Group, children: Sequence[subprocess.Popen[bytes]], folder: object
    ) -> None:
        """Use ``load``."""
        self._inner = inner
        self._group: Group | None = group
        self._children = children
        self._folder = folder
        self.variant = f"{inner.variant}-tp{group.ranks}"
        self.vocab_size, self.max_context, self.pages = inner.vocab_size, inner.max_context, inner.pages

    @classmethod
    def load(
        cls,
        path: str | Path,
        ranks: int,
        *,
        precision: str = "fp32",
        device: str = "cpu",
        pages: int = 1024,
        threads: int | None = None,
    ) -> ParallelBackend:
        """Starts the other ranks and loads this one's part.

        Args:
            ranks: Processes; query heads, key and value heads and MLP columns must divide by it.
            device: ``cpu`` for all, or the first of as many ``cuda`` devices in a row.
            threads: Of each rank.

        Raises:
            ModelError: the model is refused, or its parts do not divide.
            ValueError: the precision is not possible.
        """
        check_precision(precision)
        check_divisible(inspect(path)[0], ranks)
        if device == "cpu":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        folder = TemporaryDirectory(prefix="kev-ranks-")
        store = str(Path(folder.name) / "meeting")
        mine = RankSpec(str(path), precision, pages, _device(device, 0), threads or 0, 0, ranks, store)
        others = [replace(mine, rank=rank, device=_device(device, rank)) for rank in range(1, ranks)]
        children = [_started(spec) for spec in others]
        try:
            return cls(*loaded(mine), children, folder)
        except BaseException:
            for child in children:
                _ended(child)
            raise

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``.

        Raises:
            RankLost: a rank is gone.
        """
        self._inner.check(pack)
        try:
            self._open().say(pack_order(pack))
            return self._inner.forward(pack)
        except Exception as error:
            raise RankLost(f"tensor parallel: a rank is lost ({error})") from error

    def scrub(self, pages: Sequence[int]) -> None:
        """See ``Backend.scrub``."""
        self.fill(pages, 0.0)

    def fill(self, pages: Sequence[int], value: float) -> None:
        """Sets K and V of pages in every layer; NaN plants damage for a test."""
        self._open().say({"do": "fill", "pages": [int(page) for page in pages], "value": value})
        self._inner.fill(pages, value)

    def copy_page(self, source: int, target: int) -> None:
        """See ``Backend.copy_page``."""
        self._open().say({"do": "copy", "source": source, "target": target})
        self._inner.copy_page(source, target)

    def close(self) -> None:
        """Ends all ranks."""
        if self._group is None:
            return
        group, self._group = self._group, None
        try:
            group.say({"do": "end"})
            group.close()
        except RuntimeError:
            pass  # a rank is gone already
        for child in self._children:
            _ended(child)
        self._inner.close()

    def _open(self) -> Group:
        if self._group is None:
            raise RankLost("tensor parallel: the backend is closed")
        return self._group


def _device(first: str, rank: int) -> str:
    """``cpu`` for all; ``cuda`` and ``cuda:N`` count on from the first."""
    kind, _, number = first.partition(":")
    return f"{kind}:{int(number or 0) + rank}" if kind == "cuda" else first


def _ended(child: subprocess.Popen[bytes]) -> None:
    """Ends a rank: by the end of its input, else by force."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _started(spec: RankSpec) -> subprocess.Popen[bytes]:
    """A rank's process. It ends when its standard input does: however this process dies, the pipe closes."""
    command = [sys.executable, "-m", "inference_svc.backends.reference.rank", spec.text()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
