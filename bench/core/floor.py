"""How fast a job could be at best: every forward reads all weights once and does all multiplications.

Weights count as they are stored. float32 whose file is quantised is stored in
fewer bytes than its numbers have: ``wide`` counts it as written out, which is
what float32 needs in general, and no floor for such a file.
"""

from __future__ import annotations

from collections.abc import Iterable

from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.roofs import Roofs
from inference_svc.models import ModelConfig


def body_weights(config: ModelConfig) -> int:
    """Weights of all blocks, without embedding and head."""
    attention = config.hidden * (2 * config.q_width + 2 * config.kv_width)
    return config.layers * (attention + 3 * config.hidden * config.intermediate)


def weight_bytes(backend: NativeBackend, wide: bool = False) -> float:
    """Bytes of all weights that a forward multiplies with."""
    config = backend.packed.config
    if wide and backend.precision == "fp32":
        return 4.0 * (body_weights(config) + config.hidden * config.vocab)
    return float(backend.packed.weight_bytes)


def job_floor(backend: NativeBackend, roofs: Roofs, packs: Iterable[tuple[int, int]], wide: bool = False) -> float:
    """Seconds: the sum over forwards of max(bytes / bandwidth, operations / peak). Attention comes for free.

    Args:
        backend: Tells the weights' bytes.
        roofs: Measured in the same run.
        packs: Rows and wanted rows of each forward.
        wide: float32 counts as written out.
    """
    config = backend.packed.config
    body, head = body_weights(config), config.hidden * config.vocab
    per_weight = weight_bytes(backend, wide) / (body + head)
    seconds = 0.0
    for rows, wanted in packs:
        used = (body + (head if wanted else 0)) * per_weight
        seconds += roofs.floor(used, 2.0 * (rows * body + wanted * head))
    return seconds
