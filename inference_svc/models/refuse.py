"""Which architectures are refused by name, and why."""

from __future__ import annotations

from collections.abc import Iterable

from inference_svc.models.config import FAMILIES
from inference_svc.models.errors import ModelError

_RECURRENT = "it has recurrent layers, and a mask cannot isolate one question's recurrence from another's"
_ENCODER = "it is an encoder or has one; only decoders answer token by token"
_VISION = "it reads images or sound; only text decoders are supported"
_MOE = "it is a mixture of experts, which is not supported yet"
_OTHER = "its attention or block layout differs from the supported families"

# The first word found in the architecture's name decides, so the order matters:
# the specific reasons come before the general ones.
_REASONS: tuple[tuple[str, str], ...] = (
    *((word, _RECURRENT) for word in ("mamba", "rwkv", "qwen3next", "qwen35", "deltanet", "jamba", "zamba")),
    *(
        (word, _RECURRENT)
        for word in ("recurrent", "griffin", "falconh1", "lfm2", "plamo2", "xlstm", "retnet", "bamba")
    ),
    *((word, _RECURRENT) for word in ("granitehybrid", "granitemoehybrid", "nemotronh", "kimilinear", "arwkv", "hgrn")),
    *((word, _VISION) for word in ("vl", "vision", "llava", "clip", "omni", "audio", "whisper", "mllama", "idefics")),
    *((word, _VISION) for word in ("pixtral", "paligemma", "smolvlm", "mistral3", "llama4", "siglip")),
    *((word, _MOE) for word in ("moe", "mixtral", "deepseek", "dbrx", "grok", "arctic", "gptoss", "minimax")),
    *((word, _ENCODER) for word in ("bert", "t5", "bart", "encoder", "marian", "pegasus", "electra", "mpnet")),
    *((word, _OTHER) for word in ("gemma", "phi", "gpt", "falcon", "mpt", "bloom", "stablelm", "olmo", "cohere")),
)

_TENSOR_REASONS: tuple[tuple[str, str], ...] = (
    *((part, _RECURRENT) for part in ("ssm_", "linear_attn", "mamba", "time_mix", "A_log")),
    *((part, _MOE) for part in ("_exps", "experts", "ffn_gate_inp")),
    *((part, _VISION) for part in ("vision_", "visual.", "v.blk", "mm.")),
)


def refuse_architecture(name: str) -> ModelError:
    """The refusal of an architecture that is not one of the supported families."""
    flat = name.lower().replace("_", "").replace("-", "").replace(".", "")
    reason = next((why for word, why in _REASONS if word in flat), None)
    allowed = f"supported: {', '.join(FAMILIES)}"
    return ModelError(f"model {name!r} is refused: {reason}; {allowed}" if reason else f"model {name!r}: {allowed}")


def refuse_left_over(names: Iterable[str]) -> None:
    """Refuses a checkpoint with tensors that no supported family has.

    To leave them out would give a model that runs and answers wrongly.
    """
    left = sorted(names)
    if not left:
        return
    for part, why in _TENSOR_REASONS:
        hit = next((name for name in left if part in name), None)
        if hit is not None:
            raise ModelError(f"model is refused: {why} (tensor {hit})")
    raise ModelError(f"model has {len(left)} tensors that its family does not use, for example {left[0]}")
