"""The KV store: K and V of every position, in pages of 16."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inference_svc.models.config import ModelConfig
from inference_svc.rows import PAGE_SIZE


class KvStore:
    """K and V of all layers.

    Per layer and kind one tensor ``[kv_heads, pages + 1, 16, head_dim]``: with
    the head outermost a gathered context is ready for a batched product. The
    page after the last is all zeros, pads tables and is never written.
    """

    def __init__(self, config: ModelConfig, pages: int, dtype: torch.dtype, device: torch.device) -> None:
        self.pages = pages
        self._shape = (config.kv_heads, pages + 1, PAGE_SIZE, config.head_dim)
        layers = range(config.layers)
        self._keys = [torch.zeros(self._shape, dtype=dtype, device=device) for _ in layers]
        self._values = [torch.zeros(self._shape, dtype=dtype, device=device) for _ in layers]

    @property
    def zero_page(self) -> int:
        """The page of zeros."""
        return self.pages

    def write(
        self, layer: int, pages: torch.Tensor, places: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Stores rows.

        Args:
            layer: Which layer.
            pages: Page of each row, int64 ``[rows]``.
            places: Place in the page, int64 ``[rows]``.
            keys: ``[rows, kv_heads, head_dim]``.
            values: The same shape.
        """
        self._keys[layer][:, pages, places] = keys.transpose(0, 1).to(self._keys[layer].dtype)
        self._values[layer][:, pages, places] = values.transpose(0, 1).to(self._values[layer].dtype)

    def gather(self, layer: int, tables: torch.Tensor, unwritten: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V along tables, float32, each ``[kv_heads, tables, positions, head_dim]``.

        Values at ``unwritten`` places come back as zero: what an earlier owner
        left there must not count, and a probability of zero does not silence
        a NaN. (K needs no such care: its scores are replaced by the mask.)
        """
        flat = tables.reshape(-1)
        shape = (self._shape[0], tables.shape[0], -1, self._shape[3])
        keys = self._keys[layer].index_select(1, flat).to(torch.float32).view(shape)
        values = self._values[layer].index_select(1, flat).to(torch.float32).view(shape)
        return keys, values.masked_fill_(unwritten[None, :, :, None], 0.0)

    def fill(self, pages: Sequence[int], value: float) -> None:
        """Sets K and V of pages in every layer."""
        chosen = list(pages)
        for tensor in (*self._keys, *self._values):
            tensor[:, chosen] = value

    def plant(self, side: str, layer: int, page: int, head: int, slot: int, element: int, value: float) -> None:
        """Sets one element of K (``k``) or V (``v``)."""
        (self._values if side == "v" else self._keys)[layer][head, page, slot, element] = value

    def copy(self, source: int, target: int) -> None:
        """Copies K and V of one page in every layer."""
        for tensor in (*self._keys, *self._values):
            tensor[:, target] = tensor[:, source]
