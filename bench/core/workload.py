"""Workload W: one system prompt and 64 questions, greedy, 64 new tokens each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_svc.rows import Int32Array
from kev.tokens.chat import ChatFormat
from kev.tokens.tokenizer import Tokenizer

DEFAULT_WORKLOAD = Path(__file__).resolve().parents[3] / "shared" / "data" / "workload_w.json"


@dataclass(frozen=True, slots=True)
class Workload:
    """Token ids of a job.

    Attributes:
        prefix: What every prompt begins with.
        prompts: Whole prompts, prefix included.
        steps: New tokens per question.
    """

    prefix: Int32Array
    prompts: tuple[Int32Array, ...]
    steps: int

    def first(self, count: int) -> Workload:
        """The same job with its first ``count`` questions."""
        return Workload(self.prefix, self.prompts[:count], self.steps)


def load_workload(model: Path, file: Path = DEFAULT_WORKLOAD) -> Workload:
    """Reads the questions and renders them with the model's own chat template."""
    data = json.loads(file.read_text())
    chat = ChatFormat(Tokenizer.load(model), data["system"])
    prompts = [chat.render([{"role": "user", "content": text}]).tokens for text in data["questions"]]
    arrays = tuple(np.asarray(prompt, np.int32) for prompt in prompts)
    return Workload(np.asarray(chat.prefix, np.int32), arrays, int(data["max_tokens"]))
