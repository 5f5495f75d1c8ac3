"""How fast a job could be at best: every forward reads all weights once and does all multiplications.

Weights count as they are stored. Where the codes of a quantised file are kept they
are fewer bytes than the precision's own numbers: ``wide`` counts those, float32 as
written out and int8 in groups of its own, which is what the precision needs in
general, and no floor for such a file.
"""

from __future__ import annotations

from collections.abc import Iterable

from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.layout import GROUP_BYTES
from inference_svc.backends.native.packing import GROUP
from inference_svc.backends.native.roofs import Roofs
from inference_svc.models import ModelConfig


def body_weights(config: ModelConfig) -> int:
    """Weights of all blocks, without embedding and head."""
    attention = config.hidden * (2 * config.q_width + 2 * config.kv_width)
    return config.layers * (attention + 3 * config.hidden * config.intermediate)


def weight_bytes(backend: NativeBackend, wide: bool = False) -> float:
    """Bytes of all weights that a forward multiplies with."""
    config = backend.packed.config
    each = {"codes": 4.0, "nibbles": GROUP_BYTES["int8"] / GROUP}.get(backend.packed.form)
    if wide and each:
        return each * (body_weights(config) + config.hidden * config.vocab)
    return float(backend.packed.weight_bytes)


def job_floor(backend: NativeBackend, roofs: Roofs, packs: Iterable[tuple[int, int]], wide: bool = False) -> float:
    """Seconds: the sum over forwards of max(bytes / bandwidth, operations / peak). Attention comes for free.

    Args:
        backend: Tells the weights' bytes.
        roofs: Measured in the same run.
        packs: Rows and wanted rows of each forward.
        wide: Codes count as the precision's own numbers.
    """
    config = backend.packed.config
    body, head = body_weights(config), config.hidden * config.vocab
    per_weight = weight_bytes(backend, wide) / (body + head)
    seconds = 0.0
    for rows, wanted in packs:
        used = (body + (head if wanted else 0)) * per_weight
        seconds += forward_floor(backend, roofs, used, 2.0 * rows * body, 2.0 * wanted * head, wide)
    return seconds


def forward_floor(
    backend: NativeBackend, roofs: Roofs, used: float, blocks: float, rest: float, wide: bool = False
) -> float:
    """Seconds of one forward.

    Args:
        backend, roofs, wide: As for ``job_floor``.
        used: Bytes that it reads.
        blocks: Operations with the weights of the blocks.
        rest: All others.
    """
    if backend.packed.form == "nibbles" and not wide:
        return roofs.floor(used, rest, blocks)
    return roofs.floor(used, blocks + rest)
