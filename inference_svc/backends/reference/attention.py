"""Attention of rows over their own tables.

Every row is its own product of fixed shape: ``[group, head_dim] x [head_dim,
positions]`` per key head, with ``positions`` a function of the row's position.
Rows stand side by side in a batch, never inside one product, so a row's sums
do not depend on its neighbours.
"""

from __future__ import annotations

import torch

_CHUNK = 1 << 20
"""Key elements gathered at a time: more falls out of the cache and is slower."""


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor, scale: float
) -> torch.Tensor:
    """One group's attention.

    Args:
        queries: ``[rows, kv_heads, group, head_dim]``, float32.
        keys: ``[kv_heads, tables, positions, head_dim]``, float32; ``tables`` is ``rows`` or 1.
        values: The same shape.
        hidden: True where a row must not look, ``[rows, 1, 1, positions]``.
        scale: Factor on the scores.

    Returns:
        ``[rows, kv_heads, group, head_dim]``. A NaN in a key that a row sees
        makes the row's scores NaN: mask and softmax pass it on.
    """
    one_table = keys.shape[1] == 1 and queries.shape[0] > 1
    product = _shared_table if one_table else _own_tables
    scores = product(queries, keys.transpose(2, 3)).mul_(scale).masked_fill_(hidden, float("-inf"))
    return product(torch.softmax(scores, dim=-1), values)


def rows_at_a_time(positions: int, kv_width: int) -> int:
    """How many rows with their own tables are gathered together."""
    return max(1, _CHUNK // (positions * kv_width))


def _own_tables(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left [rows, kv, group, a] x right [kv, rows, a, b]``: one batch of all heads and rows."""
    rows, heads, group, inner = left.shape
    flat = left.transpose(0, 1).reshape(heads * rows, group, inner)
    result = torch.bmm(flat, right.reshape(heads * rows, *right.shape[2:]))
    return result.view(heads, rows, group, -1).transpose(0, 1)


def _shared_table(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left [rows, kv, group, a] x right [kv, 1, a, b]``: the right side is repeated without a copy."""
    rows, heads, group, _ = left.shape
    result = left.new_empty(heads, rows, group, right.shape[3])
    for head in range(heads):
        torch.bmm(left[:, head], right[head].expand(rows, -1, -1), out=result[head])
    return result.transpose(0, 1)
