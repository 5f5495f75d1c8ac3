"""``core``: the model and the forward."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from kev.config.sections.base import Section, formed


class Precision(StrEnum):
    """Number format of the weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


LEAST_KV_PAGES = 16
"""The self-test needs some."""


class CoreSettings(Section):
    """``core``: the model and the forward."""

    model_path: str = "default"
    """A ``.gguf`` file, a Hugging Face directory, or ``default`` (SmolLM2-135M-Instruct)."""
    precision: Precision = Precision.FP32
    """Number format of the weights."""
    max_context: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """Most positions of one channel, prompt and answer together."""
    backend: Literal["auto", "reference", "native"] = "auto"
    """``native`` where it can be built (CPU), else ``reference``."""
    device: Annotated[str, formed(r"cpu|cuda(:\d+)?", "must be cpu, cuda or cuda:N")] = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share one worker's model, heads divided among them; 1 keeps it whole."""
    threads: Annotated[int, Field(ge=0, le=512)] = 0
    """Threads of a forward; 0 takes the machine's cores."""
    system_prompt: str = ""
    """The deployment's own; a chat template's built-in one does not slip in beside it."""
    kv_pages: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Pages of 16 positions in the KV store, at least 16 and enough for one channel; 0 sizes it from channels and
    ``max_context``."""
    row_budget: Annotated[int, Field(ge=1, le=65536)] = 256
    """Most rows in one forward; long prompts go in by chunks."""
    long_row_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Most rows that prompts of the long lane add to a forward, as a share of the other questions' rows in it."""
    window_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """How long the first forward after idleness waits for more questions; 0 packs what is there, and waits only for
    questions that the worker is taking at that moment, 30 ms at most."""
    grammar_ms: Annotated[int, Field(ge=50, le=60_000)] = 2_000
    """Processor time that compiling one JSON schema or regular expression may take, milliseconds."""

    @field_validator("kv_pages")
    @classmethod
    def _room(cls, pages: int, info: ValidationInfo) -> int:
        context = info.data.get("max_context")
        least = max(LEAST_KV_PAGES, -(-context // 16)) if context else LEAST_KV_PAGES
        if pages and pages < least:
            raise ValueError(f"must be 0, or at least {least} for a max_context of {context}")
        return pages
