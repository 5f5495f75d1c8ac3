"""A worker's memory, item by item, and how many channels a machine carries."""

from __future__ import annotations

from dataclasses import dataclass

from inference_svc.assembly import LEAST_PAGES, SPLIT_SHARE
from inference_svc.backends.native.packing import check_shape
from inference_svc.backends.native.variants import Variant
from inference_svc.models import ModelConfig
from inference_svc.planning import sizes
from inference_svc.rows import PAGE_SIZE, pages_for

PROGRAM = 110 << 20
"""A worker without a model: interpreter, libraries, tokenizer, broker's connection. Measured."""
TORCH = 260 << 20
"""What torch adds to that. Measured."""
SPARE = 0.1
"""Of the machine's memory, for everybody else."""
MOST_CHANNELS = 1024
CPU_CHANNELS, GPU_CHANNELS = 32, 256
"""Channels in a forward beyond which it is the arithmetic that takes the time, and more bring little."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is planned for.

    Attributes:
        channels: Channels of the worker.
        context: Positions of a channel at its fullest.
        prefix: Leading positions that all channels share.
        precision: ``fp32``, ``bf16`` or ``int8``.
        rows: Row budget of a forward.
        parallel: Most channels in one forward.
        threads: Of the native backend.
        unified: Every channel reserves its whole context.
        pages: Pages of the KV store, 0 to size it as the worker does.
        device: ``cpu`` or ``cuda``.
        copies: Each channel gets a copy of the prefix, as ``split`` and ``unified`` do.
        coded: The model's file has codes for this precision (``models.has_codes``), which are kept.
    """

    channels: int
    context: int
    prefix: int
    precision: str
    rows: int
    parallel: int
    threads: int
    unified: bool
    pages: int = 0
    device: str = "cpu"
    copies: bool = False
    coded: bool = False

    @property
    def shared_pages(self) -> int:
        """Full pages of the prefix that all channels read in place."""
        return 0 if self.copies else self.prefix // PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes, unless it says otherwise.

    Attributes:
        backend: ``native`` or ``reference``.
        parameters: Numbers in the checkpoint.
        weights: As the backend holds them.
        kv_position: One position.
        kv_channel: One channel at its fullest, shared prefix included.
        kv_channel_without_grouping: The same by 2 x layers x hidden x context x bytes, which counts a key and value
            head for every query head.
        kv_all_full: All channels at their fullest, and the shared prefix.
        kv_pages: Pages of the store that a worker makes for this.
        kv_store: Its size.
        activations: Buffers of the largest forward, and its logits.
        peak: Weights, store and activations: what a worker takes above its program.
        loading_peak: The same while it is loaded; with the native backend at the first start only, when weights are
            packed.
        program: The process without a model.
        memory: What this machine or container allows.
        fits: Whether program and peak are within it, some memory being spared.
        most_channels: Channels at their fullest that it carries.
        max_parallel_queries, channel_pool_size: Recommended.
    """

    backend: str
    parameters: int
    weights: int
    kv_position: int
    kv_channel: int
    kv_channel_without_grouping: int
    kv_all_full: int
    kv_pages: int
    kv_store: int
    activations: int
    peak: int
    loading_peak: int
    program: int
    memory: int
    fits: bool
    most_channels: int
    max_parallel_queries: int
    channel_pool_size: int


def plan(config: ModelConfig, wish: Wish, variant: Variant | None, memory: int, checkpoint: int = 0) -> Plan:
    """Works it out.

    Args:
        checkpoint: Bytes of the model's files: they are mapped while they are read.
        variant: The kernels that run here; None plans for the reference backend.
        memory: Bytes that may be used.

    Raises:
        NativeUnavailable: the kernels do not have the model's shape.
    """
    if variant is not None:
        check_shape(config, wish.precision)
    weights = _weights(config, wish, variant)
    activations = _activations(config, wish, variant)
    page = sizes.kv_page(config, wish.precision)
    pages = wish.pages or store_pages(wish)
    peak = weights + pages * page + activations
    loading = max(peak, checkpoint + _loading(config, wish, variant, weights) + (0 if variant else pages * page))
    program = PROGRAM + (0 if variant else TORCH)
    most = _most_channels(wish, int(memory * (1 - SPARE)) - program - weights - activations, page)
    best = CPU_CHANNELS if wish.device == "cpu" else GPU_CHANNELS
    pool = min(most if wish.unified else most * SPLIT_SHARE, MOST_CHANNELS, max(wish.channels, 2 * best))
    return Plan(
        backend="native" if variant else "reference",
        parameters=sizes.parameters(config),
        weights=weights,
        kv_position=page // PAGE_SIZE,
        kv_channel=pages_for(wish.context) * page,
        kv_channel_without_grouping=sizes.kv_without_grouping(config, wish.context, wish.precision),
        kv_all_full=_full_pages(wish, wish.channels) * page,
        kv_pages=pages,
        kv_store=pages * page,
        activations=activations,
        peak=peak,
        loading_peak=loading,
        program=program,
        memory=memory,
        fits=program + peak <= memory * (1 - SPARE),
        most_channels=most,
        max_parallel_queries=min(pool, best),
        channel_pool_size=pool,
    )


def store_pages(wish: Wish) -> int:
    """Pages of the store as a worker sizes it: see ``inference_svc.assembly.kv_pages``."""
    one = pages_for(wish.context)
    if wish.unified:
        return max((wish.channels + 1) * one, LEAST_PAGES)
    return max(2 * one, wish.channels * one // SPLIT_SHARE, LEAST_PAGES)


def _full_pages(wish: Wish, channels: int) -> int:
    """Pages of so many channels at their fullest, and of the prefix. Its full pages are shared, its tail is copied."""
    return (pages_for(wish.prefix) if wish.prefix else 0) + channels * (pages_for(wish.context) - wish.shared_pages)


def _most_channels(wish: Wish, left: int, page: int) -> int:
    pages = left // page - (pages_for(wish.prefix) if wish.prefix else 0)
    return max(0, pages // (pages_for(wish.context) - wish.shared_pages))


def _weights(config: ModelConfig, wish: Wish, variant: Variant | None) -> int:
    if variant is not None:
        return sizes.native_weights(config, wish.precision, variant, wish.coded)
    return sizes.reference_weights(config, 4 if wish.device == "cpu" or wish.precision == "fp32" else 2)


def _activations(config: ModelConfig, wish: Wish, variant: Variant | None) -> int:
    rows = max(wish.rows, min(wish.parallel, wish.channels))
    logits = sizes.logits(config, min(wish.parallel, wish.channels))
    if variant is not None:
        return logits + sizes.native_work(config, wish.precision, rows, wish.threads)
    return logits + sizes.reference_work(config, rows)


def _loading(config: ModelConfig, wish: Wish, variant: Variant | None, weights: int) -> int:
    """The backend's own form is made beside what is read."""
    if variant is None:
        return sizes.unpacked_bytes(config) + sizes.reference_copies(config, wish.precision)
    return weights + sizes.packing_work(config, wish.precision, wish.coded)
