"""One model over several processes: each holds some heads and some columns of the MLP.

Only two sums cross the processes in a layer, after attention's and the MLP's
last product. Every rank gathers all partial sums and adds them in the order of
the ranks, so all hold the same bits, and a row's bits do not depend on the pack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from inference_svc.backends.reference.backend import ReferenceBackend
from inference_svc.models import LayerWeights, ModelConfig, ModelError, Weights
from inference_svc.rows import Pack, Span

MEET = timedelta(minutes=10)
"""Ranks wait so long for one another: to load the model, or in a forward."""

IDLE = timedelta(days=365)
"""A rank waits for the next forward; that no question comes is no fault."""


class RankLost(BaseException):
    """A rank is gone or out of step: nothing can be computed any more, and the worker must end.

    Not an ``Exception``, so that it is not taken for the fault of a question.
    """


def check_divisible(config: ModelConfig, ranks: int) -> None:
    """Refuses a model whose parts do not divide: ModelError."""
    parts = {"heads": config.heads, "key and value heads": config.kv_heads, "MLP columns": config.intermediate}
    for name, count in parts.items():
        if count % ranks:
            raise ModelError(f"core.tensor_parallel: {count} {name} cannot be divided by {ranks}")


def shard(config: ModelConfig, weights: Weights, rank: int, ranks: int) -> tuple[ModelConfig, Weights]:
    """One rank's part of a model: whole heads of Q, K and V, and the MLP columns that belong together."""
    check_divisible(config, ranks)
    mine = replace(
        config,
        heads=config.heads // ranks,
        kv_heads=config.kv_heads // ranks,
        intermediate=config.intermediate // ranks,
    )
    layers = tuple(_layer(layer, rank, ranks) for layer in weights.layers)
    return mine, replace(weights, layers=layers)


def _layer(layer: LayerWeights, rank: int, ranks: int) -> LayerWeights:
    def part(values: Any, axis: int = 0) -> Any:
        return None if values is None else np.ascontiguousarray(np.split(values, ranks, axis)[rank])

    rows = {name: part(getattr(layer, name)) for name in ("q", "k", "v", "gate", "up", "q_bias", "k_bias", "v_bias")}
    columns = {name: part(getattr(layer, name), 1) for name in ("o", "down")}
    return replace(layer, **rows, **columns)


class Group:
    """The processes that compute together. ``rank`` 0 says what is done.

    Args:
        store: A file that all can reach, for the meeting.
        device: Where this rank computes.
    """

    def __init__(self, rank: int, ranks: int, store: str, device: str) -> None:
        self.rank = rank
        self.ranks = ranks
        kind = "nccl" if device.startswith("cuda") else "gloo"
        dist.init_process_group(kind, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=MEET)
        # Orders are few bytes from the CPU, whatever the sums are computed on.
        self._orders = dist.new_group(backend="gloo", timeout=IDLE)

    def total(self, part: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' partial sums, added in the order of the ranks."""
        parts = [torch.empty_like(part) for _ in range(self.ranks)]
        dist.all_gather(parts, part.contiguous())
        whole = parts[0]
        for other in parts[1:]:
            whole = whole + other
        return whole

    def common(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Those sizes that every rank has: all must cut rows alike."""
        most = 1 + max(sizes)
        mine = torch.zeros(1024, dtype=torch.int64)
        mine[list(sizes)] = 1
        all_of = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(all_of, mine, group=self._orders)
        return tuple(size for size in range(most) if all(one[size] for one in all_of))

    def say(self, order: dict[str, Any]) -> None:
        """Rank 0: sends an order to all others."""
        text = torch.frombuffer(bytearray(json.dumps(order).encode()), dtype=torch.uint8)
        dist.broadcast(torch.tensor([len(text)]), 0, group=self._orders)
        dist.broadcast(text, 0, group=self._orders)

    def hear(self) -> dict[str, Any]:
        """The others: waits for the next order."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, 0, group=self._orders)
        text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0, group=self._orders)
        order: dict[str, Any] = json.loads(bytes(text.numpy()))
        return order

    def close(self) -> None:
        """Leaves."""
        dist.destroy_process_group()


def pack_order(pack: Pack) -> dict[str, Any]:
    """A forward, as an order."""
    spans = [
        [span.channel, span.tokens.tolist(), span.position, span.table.tolist(), span.wanted] for span in pack.spans
    ]
    return {"do": "forward", "spans": spans}


def follow(backend: ReferenceBackend, group: Group) -> None:
    """The life of a rank other than 0: does as it is told until it is told to end."""
    while (order := group.hear())["do"] != "end":
        if order["do"] == "forward":
            backend.forward(Pack.of([_span(*values) for values in order["spans"]]))
        elif order["do"] == "fill":
            backend.fill(order["pages"], order["value"])
        else:
            backend.copy_page(order["source"], order["target"])
    group.close()


def _span(channel: int, tokens: Sequence[int], position: int, table: Sequence[int], wanted: int) -> Span:
    return Span(channel, np.array(tokens, np.int32), position, np.array(table, np.int32), wanted)
