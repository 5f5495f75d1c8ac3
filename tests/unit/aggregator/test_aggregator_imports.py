"""The aggregator's process needs no model: no torch, no tokenizer, no other service."""

from __future__ import annotations

import subprocess
import sys


def test_a_fresh_interpreter_loads_only_what_the_aggregator_needs() -> None:
    code = "import sys, aggregator_svc.__main__, kev.client; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    unwanted = {"torch", "transformers", "tokenizers", "gguf", "router_svc", "inference_svc", "kev.app", "kev.tokens"}
    assert unwanted.isdisjoint(loaded)
