"""How fast a job could be at best: every forward reads all weights once and does all multiplications.

Weights count as wide as their precision is; float32 whose file is quantised is
stored in fewer bytes (``stored``), which makes a lower floor for memory.
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


WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 34 / 32}
"""Of one weight, scales included."""


def weight_bytes(backend: NativeBackend, stored: bool = False) -> float:
    """Bytes of all weights that a forward multiplies with."""
    if stored:
        return float(backend.packed.weight_bytes)
    config = backend.packed.config
    return (body_weights(config) + config.hidden * config.vocab) * WEIGHT_BYTES[backend.precision]


def job_floor(backend: NativeBackend, roofs: Roofs, packs: Iterable[tuple[int, int]], stored: bool = False) -> float:
    """Seconds: the sum over forwards of max(bytes / bandwidth, operations / peak). Attention comes for free.

    Args:
        backend: Tells the weights' bytes.
        roofs: Measured in the same run.
        packs: Rows and wanted rows of each forward.
        stored: Weights count as they are stored, not as wide as their precision is.
    """
    config = backend.packed.config
    body, head = body_weights(config), config.hidden * config.vocab
    per_weight = weight_bytes(backend, stored) / (body + head)
    seconds = 0.0
    for rows, wanted in packs:
        used = (body + (head if wanted else 0)) * per_weight
        seconds += roofs.floor(used, 2.0 * (rows * body + wanted * head))
    return seconds
