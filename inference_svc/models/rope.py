"""Rotary frequencies, with the two kinds of stretching that are supported."""

from __future__ import annotations

import math

import numpy as np

from inference_svc.models.config import ModelConfig, RopeScaling
from inference_svc.models.errors import ModelError
from inference_svc.rows import Float32Array


def inverse_frequencies(config: ModelConfig) -> Float32Array:
    """Angle per position of each rotated pair: float32 ``[head_dim / 2]``, radians.

    Pair ``i`` of a head is the elements ``i`` and ``i + head_dim / 2``
    (rotate-half order). Computed in float32, as the checkpoints' own training
    code does.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    plain: Float32Array = np.float32(1.0) / np.float32(config.rope_theta) ** exponents
    scaled = plain if config.rope_scaling is None else _scale(plain, config.rope_scaling)
    return scaled.astype(np.float32)


def _scale(plain: Float32Array, scaling: RopeScaling) -> Float32Array:
    if scaling.kind == "linear":
        return plain / np.float32(scaling.factor)
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    raise ModelError(f"rope scaling {scaling.kind!r} is not supported; allowed: default, linear, llama3")


def _llama3(plain: Float32Array, scaling: RopeScaling) -> Float32Array:
    turns = scaling.original_positions * plain / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / span, 0.0, 1.0)
    mixed: Float32Array = (1 - keep) * plain / scaling.factor + keep * plain
    return mixed
