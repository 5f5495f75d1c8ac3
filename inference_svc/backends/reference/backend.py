"""The reference backend: the port's function in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from inference_svc.backends.reference.attention import attend, rows_at_a_time
from inference_svc.backends.reference.layers import Block, Precision, gated, heads_of, rms_norm, rotary_tables, rotate
from inference_svc.backends.reference.plan import Group, Plan, plan
from inference_svc.backends.reference.store import KvStore
from inference_svc.backends.reference.tiles import cover, equal_sizes
from inference_svc.models import ModelConfig, Weights, load_weights
from inference_svc.rows import PAGE_SIZE, Float32Array, Pack, Span

PRECISIONS = ("fp32", "bf16")
_LARGEST_TILE = 128
_HEAD_TILE = 32

Total: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Makes a whole sum of a partial one, ``[rows, hidden]`` in and out."""


def _whole(part: torch.Tensor) -> torch.Tensor:
    """Here all heads and columns are in one place: the part is the whole."""
    return part


class ReferenceBackend:
    """Torch on any device. Implements ``inference_svc.backends.port.Backend``.

    Bit-equality rests on three things: matrix products in tiles of fixed
    shape, attention whose shapes depend on absolute position only, and
    elementwise functions that round alike wherever a row stands.
    """

    name = "reference"

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        precision: Precision,
        pages: int,
        device: torch.device,
        total: Total = _whole,
    ) -> None:
        self._device = device
        self._precision = precision
        self._total = total
        self.config = config
        self._embed = precision.matrix(weights.embed, self._device)
        self._head = self._embed if weights.head is None else precision.matrix(weights.head, self._device)
        self._final_norm = torch.from_numpy(weights.final_norm).to(self._device)
        self._blocks = [Block.of(layer, precision, self._device) for layer in weights.layers]
        self._rotary = rotary_tables(weights.inv_freq, config.max_context, self._device)
        self._store = KvStore(config, pages, precision.storage, self._device)
        self._tiles = equal_sizes((matrix for block in self._blocks for matrix in block.matrices), _LARGEST_TILE)
        self._head_tiles = equal_sizes([self._head], _HEAD_TILE)
        self._plant: tuple[int, int, int, float] | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        precision: str = "fp32",
        device: str = "cpu",
        pages: int = 1024,
        threads: int | None = None,
    ) -> ReferenceBackend:
        """Reads a model and prepares it.

        Args:
            path: A GGUF file or a Hugging Face directory.
            precision: ``fp32`` or ``bf16``.
            device: A torch device.
            pages: Pages of the KV store, 16 positions each.
            threads: Threads of torch, which are the whole process's; None leaves them.

        Raises:
            ModelError: the model is refused.
            ValueError: the precision, the device or the number of pages is not possible.
        """
        check_precision(precision)
        config, weights = load_weights(path)
        return cls.from_weights(config, weights, precision=precision, device=device, pages=pages, threads=threads)

    @classmethod
    def from_weights(
        cls,
        config: ModelConfig,
        weights: Weights,
        *,
        precision: str = "fp32",
        device: str = "cpu",
        pages: int = 1024,
        threads: int | None = None,
        total: Total = _whole,
    ) -> ReferenceBackend:
        """Prepares a model that has been read; arguments as for ``load``.

        Args:
            total: Makes whole sums of this part's, where the model is spread over several processes.
        """
        check_precision(precision)
        if pages < 1:
            raise ValueError(f"pages: must be at least 1, got {pages}")
        if threads is not None:
            torch.set_num_threads(threads)
        place = _device(device)
        storage = torch.float32 if precision == "fp32" else torch.bfloat16
        arithmetic = torch.float32 if place.type == "cpu" else storage
        return cls(config, weights, Precision(precision, storage, arithmetic), pages, place, total)

    @property
    def variant(self) -> str:
        """``torch-<device>-<precision>``."""
        return f"torch-{self._device.type}-{self._precision.name}"

    @property
    def vocab_size(self) -> int:
        """Length of a logit row."""
        return self.config.vocab

    @property
    def max_context(self) -> int:
        """Most positions one channel can hold."""
        return self.config.max_context

    @property
    def pages(self) -> int:
        """Pages in the KV store."""
        return self._store.pages

    @torch.inference_mode()
    def forward(self, pack: Pack) -> Float32Array:
        """Runs the pack; see the port."""
        self.check(pack)
        work = plan(pack, self._store.zero_page, self._device)
        tiles = cover(pack.rows, self._tiles)
        rows = self._embedded(work.tokens, sum(tiles))
        rotary = self._rotary_of(work.positions, sum(tiles))
        for number, block in enumerate(self._blocks):
            self._damage(number, rows)
            rows = self._attention(number, block, rows, rotary, work, tiles)
            rows = self._mlp(block, rows, tiles)
        return self._logits(rows, work.wanted)

    def check(self, pack: Pack) -> None:
        """Raises ValueError where ``forward`` would refuse the pack."""
        for span in pack.spans:
            self._check(span)

    def agree_on_tiles(self, common: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Keeps those tile sizes that ``common`` leaves: processes that compute together must cut rows alike."""
        self._tiles, self._head_tiles = common(self._tiles), common(self._head_tiles)

    def scrub(self, pages: Sequence[int]) -> None:
        """Zeroes pages; see the port."""
        self.fill(pages, 0.0)

    @torch.inference_mode()
    def fill(self, pages: Sequence[int], value: float) -> None:
        """Sets K and V of pages in every layer to one value; NaN plants damage for a test."""
        self._check_pages(np.asarray(pages, dtype=np.int64))
        self._store.fill(pages, value)

    @torch.inference_mode()
    def plant_kv(self, side: str, *, layer: int, page: int, head: int, slot: int, element: int, value: float) -> None:
        """For fault tests: writes one element of K or V (``side``) of a page's position ``slot``."""
        self._store.plant(side, layer, page, head, slot, element, value)

    def plant_row(self, *, layer: int, row: int, element: int, value: float) -> None:
        """For fault tests: the next forward adds ``value`` to one element of a row's hidden state before ``layer``."""
        self._plant = (layer, row, element, value)

    @torch.inference_mode()
    def copy_page(self, source: int, target: int) -> None:
        """Copies a page; see the port."""
        self._check_pages(np.asarray([source, target]))
        self._store.copy(source, target)

    def close(self) -> None:
        """Lets go of weights and KV."""
        self._blocks = []
        self._store = KvStore(self.config, 0, self._precision.storage, self._device)
        self._embed = self._head = torch.empty(0)

    def _damage(self, layer: int, rows: torch.Tensor) -> None:
        """Adds what ``plant_row`` has left for this layer."""
        if self._plant is not None and self._plant[0] == layer:
            _, row, element, value = self._plant
            rows[row, element] += value
            self._plant = None

    def _check(self, span: Span) -> None:
        if span.tokens.min() < 0 or span.tokens.max() >= self.vocab_size:
            raise ValueError(f"channel {span.channel}: token ids must be 0..{self.vocab_size - 1}")
        if span.end > self.max_context:
            raise ValueError(f"channel {span.channel}: {span.end} positions, at most {self.max_context} are possible")
        self._check_pages(span.table[: -(-span.end // PAGE_SIZE)])

    def _check_pages(self, pages: npt.NDArray[np.integer]) -> None:
        if len(pages) and (pages.min() < 0 or pages.max() >= self.pages):
            raise ValueError(f"page ids must be 0..{self.pages - 1}")

    def _embedded(self, tokens: torch.Tensor, padded: int) -> torch.Tensor:
        rows = torch.zeros(padded, self.config.hidden, device=self._device)
        rows[: len(tokens)] = self._embed[tokens].to(torch.float32)
        return rows

    def _rotary_of(self, positions: torch.Tensor, padded: int) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.nn.functional.pad(positions, (0, padded - len(positions)))
        return self._rotary[0][places], self._rotary[1][places]

    def _attention(
        self,
        number: int,
        block: Block,
        rows: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        work: Plan,
        tiles: tuple[int, ...],
    ) -> torch.Tensor:
        config, real = self.config, len(work.tokens)
        qkv = self._precision.product(rms_norm(rows, block.attn_norm, config.norm_eps), block.qkv, tiles)
        if block.qkv_bias is not None:
            qkv += block.qkv_bias
        queries, keys, values = heads_of(qkv, config)
        if block.q_norm is not None and block.k_norm is not None:
            queries = rms_norm(queries, block.q_norm, config.norm_eps)
            keys = rms_norm(keys, block.k_norm, config.norm_eps)
        queries, keys = rotate(queries, *rotary), rotate(keys, *rotary)
        self._store.write(number, work.write_pages, work.write_places, keys[:real], values[:real])
        mixed = torch.zeros_like(queries)
        for group in work.groups:
            mixed[group.rows] = self._attend(number, queries[group.rows], group)
        return rows + self._total(self._precision.product(mixed.view(len(rows), -1), block.o, tiles))

    def _attend(self, number: int, queries: torch.Tensor, group: Group) -> torch.Tensor:
        """Attention of one group: ``[rows, heads, head_dim]`` in and out."""
        config = self.config
        heads = (
            queries.to(self._precision.storage)
            .to(torch.float32)
            .view(len(queries), config.kv_heads, -1, config.head_dim)
        )
        count = len(group.tables)
        step = rows_at_a_time(group.positions, config.kv_width) if count > 1 else 1
        parts = []
        for start in range(0, count, step):
            mine = slice(start, start + step) if count > 1 else slice(None)
            tables = slice(start, start + step)
            keys, values = self._store.gather(number, group.tables[tables], group.unwritten[tables])
            parts.append(attend(heads[mine], keys, values, group.hidden[mine], config.head_dim**-0.5))
        return torch.cat(parts).reshape(queries.shape)

    def _mlp(self, block: Block, rows: torch.Tensor, tiles: tuple[int, ...]) -> torch.Tensor:
        gate_up = self._precision.product(rms_norm(rows, block.mlp_norm, self.config.norm_eps), block.gate_up, tiles)
        return rows + self._total(self._precision.product(gated(gate_up), block.down, tiles))

    def _logits(self, rows: torch.Tensor, wanted: torch.Tensor) -> Float32Array:
        if not len(wanted):
            return np.zeros((0, self.vocab_size), dtype=np.float32)
        tiles = cover(len(wanted), self._head_tiles)
        chosen = torch.zeros(sum(tiles), self.config.hidden, device=self._device)
        chosen[: len(wanted)] = rows[wanted]
        logits = self._precision.product(rms_norm(chosen, self._final_norm, self.config.norm_eps), self._head, tiles)
        result: Float32Array = logits[: len(wanted)].cpu().numpy()
        return result


def check_precision(precision: str) -> None:
    """Refuses by name what this backend does not compute."""
    if precision not in PRECISIONS:
        raise ValueError(f"core.precision: {precision!r} is not built for the reference backend; allowed: fp32, bf16")


def _device(name: str) -> torch.device:
    """The torch device of that name, tried out."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"core.device: {name!r} cannot be used here ({reason}); cpu always can") from error
    return device
