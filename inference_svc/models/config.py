"""What a decoder looks like: sizes and switches, independent of the file format."""

from __future__ import annotations

from dataclasses import dataclass

from inference_svc.models.errors import ModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Model families with attention only, which a page table can isolate."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Stretching of the rotary frequencies.

    Attributes:
        kind: ``linear`` (all frequencies divided by ``factor``) or ``llama3``
            (low frequencies divided, high ones kept, a ramp between).
        factor: How many times longer the context became.
        low_freq_factor: ``llama3``: wavelengths above ``original_positions / this`` are divided.
        high_freq_factor: ``llama3``: wavelengths below ``original_positions / this`` are kept.
        original_positions: ``llama3``: context length before stretching.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches of one decoder.

    Attributes:
        family: One of ``FAMILIES``.
        layers: Number of decoder blocks.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; divides ``heads``.
        head_dim: Width of one head; even.
        intermediate: Width of the gated MLP.
        vocab: Rows of the embedding, length of a logit row.
        rope_theta: Base of the rotary frequencies.
        norm_eps: Epsilon of every RMSNorm.
        tied: The head is the embedding.
        qkv_bias: Q, K and V have a bias (Qwen2).
        qk_norm: Q and K are normalised per head before rotation (Qwen3).
        max_positions: Longest context that the checkpoint was made for.
        window: Sliding window in positions, None without one. Up to the
            window a sliding model is an ordinary one, so the window bounds
            ``max_context``.
        rope_scaling: Stretching of the rotary frequencies, if any.
        bos_id: Token that starts a text, if the checkpoint names one.
        eos_ids: Tokens that end an answer.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float
    norm_eps: float
    tied: bool
    qkv_bias: bool
    qk_norm: bool
    max_positions: int
    window: int | None = None
    rope_scaling: RopeScaling | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ModelError(f"model family {self.family!r} is not supported; allowed: {', '.join(FAMILIES)}")
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "max_positions")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ModelError(f"model config: {name} must be at least 1, got {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"model config: {self.heads} heads cannot share {self.kv_heads} key and value heads evenly"
            )
        if self.head_dim % 2:
            raise ModelError(f"model config: head_dim must be even for rotary positions, got {self.head_dim}")

    @property
    def max_context(self) -> int:
        """Most positions one channel can hold."""
        return self.max_positions if self.window is None else min(self.max_positions, self.window)

    def check_context(self, wanted: int) -> None:
        """Refuses a ``core.max_context`` that no channel could hold: a router that counts with it would find no worker.

        Raises:
            ModelError: names the setting and what this model allows.
        """
        if wanted > self.max_context:
            raise ModelError(f"core.max_context: must be at most {self.max_context} for this model, got {wanted}")

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together; the same for the values."""
        return self.kv_heads * self.head_dim
