"""How fast a forward could be at best: it reads its weights and every page that it sees once, and multiplies.

Weights count as they are stored. Where the codes of a quantised file are kept they
are fewer bytes than the precision's own numbers: ``wide`` counts those, float32 as
written out and int8 in groups of its own, which is what the precision needs in
general, and no floor for such a file.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.layout import GROUP_BYTES
from inference_svc.backends.native.packing import GROUP
from inference_svc.backends.native.roofs import Roofs
from inference_svc.models import ModelConfig
from inference_svc.rows import Pack, pages_for


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


def job_floor(backend: NativeBackend, roofs: Roofs, packs: Iterable[Pack], wide: bool = False) -> float:
    """Seconds: the sum of the floors of a job's forwards; see ``forward_floor``."""
    return sum(forward_floor(backend, roofs, pack, wide) for pack in packs)


def forward_floor(backend: NativeBackend, roofs: Roofs, pack: Pack, wide: bool = False) -> float:
    """Seconds: max(bytes / bandwidth, operations / peak).

    Args:
        backend: Tells the bytes of weights and pages.
        roofs: Measured in the same run.
        pack: What is computed.
        wide: Codes count as the precision's own numbers.
    """
    config = backend.packed.config
    body, head = body_weights(config), config.hidden * config.vocab
    wanted = sum(span.wanted for span in pack.spans)
    used = weight_bytes(backend, wide) * (1.0 if wanted else body / (body + head))
    used += _pages(pack) * backend.kv_bytes_per_page
    blocks, last = 2.0 * pack.rows * body, 2.0 * wanted * head
    attention = 4.0 * _cells(pack) * config.layers * config.q_width
    if backend.packed.form == "nibbles" and not wide:
        return roofs.floor(used, last, attention, blocks)
    return roofs.floor(used, blocks + last, attention)


def _pages(pack: Pack) -> int:
    """Pages of keys and values that are read: one that many rows see is read once."""
    return len(np.unique(np.concatenate([span.table[: pages_for(span.end)] for span in pack.spans])))


def _cells(pack: Pack) -> int:
    """Pairs of a row and a position that it sees."""
    return sum(span.count * span.position + span.count * (span.count + 1) // 2 for span in pack.spans)
