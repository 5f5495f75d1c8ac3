"""Bytes of a model's parts, from its config alone. Each backend stores weights in a form of its own."""

from __future__ import annotations

from inference_svc.backends.native.layout import GROUP_BYTES, section_bytes
from inference_svc.backends.native.packing import GROUP, form_of
from inference_svc.backends.native.variants import Variant
from inference_svc.models import ModelConfig
from inference_svc.models.weights import MATRICES, layer_shapes, top_shapes
from inference_svc.rows import PAGE_SIZE

VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
_KV_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 2}


def parameters(config: ModelConfig) -> int:
    """Numbers in the checkpoint."""
    return _count(top_shapes(config)) + config.layers * _count(layer_shapes(config))


def unpacked_bytes(config: ModelConfig) -> int:
    """The checkpoint as float32, which is how it is read."""
    return 4 * parameters(config)


def native_weights(config: ModelConfig, precision: str, variant: Variant, coded: bool = False) -> int:
    """Packed for the kernels: columns in whole blocks; embedding and head apart even where tied, except for codes.

    Args:
        coded: The file has codes for this precision, which are kept.
    """
    sections = section_bytes(config, form_of(precision, coded), variant)
    return sum(size for name, size in sections if name != "inv_freq")


def packing_work(config: ModelConfig, precision: str, coded: bool = False) -> int:
    """What native loading holds beside the packed weights, when they are packed for the first time.

    The checkpoint as float32, and what is in between while the largest matrix is packed; the embedding of fp32 is
    used as it was read. Codes are read a block at a time: the head's stay to the end, and what is packed lies there
    three times, as it is read, joined or padded, and in the order of blocks. Beside nibbles lie embedding and head
    as float32.
    """
    hidden = config.hidden
    if form_of(precision, coded) == "nibbles":
        return 4 * hidden * config.vocab * (2 if config.tied else 3)
    if form_of(precision, coded) == "codes":
        head, joined = hidden * config.vocab, 2 * hidden * config.intermediate
        block = _count({name: shape for name, shape in layer_shapes(config).items() if name in MATRICES})
        return max(3 * head, head + block + 2 * joined) // GROUP * GROUP_BYTES["codes"]
    if precision == "fp32":
        return unpacked_bytes(config) - 4 * hidden * config.vocab
    largest = 4 * hidden * max(config.vocab, 2 * config.intermediate)
    return unpacked_bytes(config) + (2 * largest if precision == "bf16" else largest)


def reference_weights(config: ModelConfig, arithmetic_bytes: int) -> int:
    """As torch holds them: in the type in which products run, which on a CPU is always float32."""
    vectors = config.hidden * (2 * config.layers + 1)
    return arithmetic_bytes * (parameters(config) - vectors) + 4 * vectors


def reference_copies(config: ModelConfig, precision: str) -> int:
    """What torch holds beside the checkpoint once it is loaded: all of it in bf16, in fp32 only what was joined."""
    if precision != "fp32":
        return reference_weights(config, 4)
    joined = (config.q_width + 2 * config.kv_width + 2 * config.intermediate) * config.hidden
    return 4 * config.layers * joined


def kv_page(config: ModelConfig, precision: str) -> int:
    """One page over all layers: K and V of 16 positions, of the key and value heads only."""
    return 2 * PAGE_SIZE * config.layers * config.kv_width * _KV_BYTES[precision]


def kv_without_grouping(config: ModelConfig, context: int, precision: str) -> int:
    """The formula that takes the hidden width for the width of K and V: 2 x layers x hidden x context x bytes."""
    return 2 * config.layers * config.hidden * context * _KV_BYTES[precision]


def native_work(config: ModelConfig, precision: str, rows: int, threads: int) -> int:
    """Buffers of a forward: the hidden state, Q K V, attention, MLP, the left side of a product, scores, angles."""
    widths = (config.hidden, config.q_width + 2 * config.kv_width, config.q_width, config.intermediate)
    left = max(config.hidden, config.intermediate, config.q_width)
    row = 4 * sum(width + 32 for width in widths) + (left + 16) * VALUE_BYTES["fp32" if precision == "fp32" else "bf16"]
    scores = 4 * threads * 16 * (config.heads // config.kv_heads) * config.max_context
    return rows * row + scores + 4 * config.max_context * config.head_dim


def reference_work(config: ModelConfig, rows: int) -> int:
    """Torch's intermediate tensors of the widest step, and the tables of angles."""
    widest = max(2 * config.intermediate, config.q_width + 2 * config.kv_width, config.hidden)
    return 4 * rows * (3 * widest + 2 * config.hidden) + 8 * config.max_context * config.head_dim


def logits(config: ModelConfig, rows: int) -> int:
    """Two arrays: one is computed while the tokens of the other are chosen."""
    return 2 * 4 * rows * config.vocab


def _count(shapes: dict[str, tuple[int, ...]]) -> int:
    total = 0
    for shape in shapes.values():
        numbers = 1
        for size in shape:
            numbers *= size
        total += numbers
    return total
