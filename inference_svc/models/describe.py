"""What a model is, and whether it can be served, without reading its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inference_svc.models.config import ModelConfig
from inference_svc.models.load import inspect
from kev.tokens.chat import ChatFormat
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer


def describe_model(path: str) -> dict[str, Any]:
    """Facts for people and programs.

    Args:
        path: As ``core.model_path``.

    Returns:
        ``path``, ``served``, and ``reason`` where it is refused; else also the
        sizes, the types of its tensors, its tokenizer and its chat template.
    """
    try:
        found = resolve_model(path)
        config, types = inspect(found)
        return {
            "path": str(found),
            "served": True,
            **_sizes(config),
            "types": dict(types.most_common()),
            **_text(found),
        }
    except (OSError, ValueError) as error:
        return {"path": path, "served": False, "reason": " ".join(str(error).split())}


def _sizes(config: ModelConfig) -> dict[str, Any]:
    from inference_svc.planning.sizes import parameters

    return {
        "family": config.family,
        "parameters": parameters(config),
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab": config.vocab,
        "max_context": config.max_context,
    }


def _text(found: Path) -> dict[str, Any]:
    """The tokenizer and the template, both tried out."""
    tokenizer = Tokenizer.load(found)
    rendered = ChatFormat(tokenizer, "").render([{"role": "user", "content": "Hello"}])
    return {
        "tokenizer": f"{tokenizer.vocab_size:,} tokens, {len(tokenizer.special)} of them special",
        "template": "its own" if tokenizer.chat_template else "none: questions and answers as plain lines",
        "prompt": f"{len(rendered.tokens)} tokens for 'Hello'",
    }
