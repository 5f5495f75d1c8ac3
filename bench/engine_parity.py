"""Whether float32 answers are those of transformers, token by token, to the end of sequence.

    python -m bench.engine_parity --questions 32 [--most 512]

Every question of workload W is answered by the packed core (all at once) and
by transformers (one by one), greedy, from the same GGUF file. Where two
answers part, the two best logits there are printed: a near tie explains it.
transformers is slow: about five minutes on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import reported
from bench.core.workload import DEFAULT_WORKLOAD, Workload, load_workload
from inference_svc.backends.native import NativeBackend
from inference_svc.models import inspect
from inference_svc.rows import Pack, Span, pages_for
from kev.tokens.model_files import default_model_path
from kev.tokens.tokenizer import Tokenizer


def main() -> None:
    """Reads the command line, compares, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--most", type=int, default=512, help="most new tokens of an answer that does not end")
    parser.add_argument("--workload", type=Path, default=DEFAULT_WORKLOAD)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    model = default_model_path()
    work = load_workload(model, args.workload).first(args.questions)
    ends = frozenset(Tokenizer.load(model).eos_ids)
    ours = packed(model, work, ends, args.most)
    theirs = Transformers(model)
    rows = [theirs.compared(prompt, answer, ends, args.most) for prompt, answer in zip(work.prompts, ours, strict=True)]
    parted = [{"question": number, **row} for number, row in enumerate(rows) if "parts_at" in row]
    tokens = sum(row["tokens"] for row in rows)
    ended = sum(answer[-1] in ends for answer in ours)
    summary = {"questions": len(rows), "equal": len(rows) - len(parted), "ended": ended, "tokens": tokens}
    reported({**summary, "parted": parted}, args.out)


def packed(model: Path, work: Workload, ends: frozenset[int], most: int) -> list[list[int]]:
    """All answers of the packed core, end of sequence included."""
    each = max(pages_for(len(prompt) + most) for prompt in work.prompts)
    backend = NativeBackend.load(model, precision="fp32", pages=each * len(work.prompts))
    tables = [np.arange(n * each, (n + 1) * each, dtype=np.int32) for n in range(len(work.prompts))]
    texts = [list(map(int, prompt)) for prompt in work.prompts]
    done = [0] * len(texts)
    live = list(range(len(texts)))
    while live:
        spans = [Span(n, np.array(texts[n][done[n] :], np.int32), done[n], tables[n]) for n in live]
        chosen = backend.forward(Pack.of(spans)).argmax(axis=1)
        for n, token in zip(live, chosen, strict=True):
            done[n] = len(texts[n])
            texts[n].append(int(token))
        live = [n for n in live if texts[n][-1] not in ends and len(texts[n]) < len(work.prompts[n]) + most]
    backend.close()
    return [text[len(prompt) :] for text, prompt in zip(texts, work.prompts, strict=True)]


class Transformers:
    """The same file through transformers' own reader, float32, with the sizes that the file names."""

    def __init__(self, model: Path) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

        self._torch = torch
        ours, _ = inspect(model)
        config = LlamaConfig(
            vocab_size=ours.vocab,
            hidden_size=ours.hidden,
            intermediate_size=ours.intermediate,
            num_hidden_layers=ours.layers,
            num_attention_heads=ours.heads,
            num_key_value_heads=ours.kv_heads,
            max_position_embeddings=ours.max_positions,
            rms_norm_eps=ours.norm_eps,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": ours.rope_theta},
        )
        self._model = LlamaForCausalLM(config).eval()
        tensors = load_gguf_checkpoint(str(model), return_tensors=True, model_to_load=self._model)["tensors"]
        self._model.load_state_dict(tensors, strict=False)
        self._model.tie_weights()

    def compared(self, prompt: Any, answer: list[int], ends: frozenset[int], most: int) -> dict[str, Any]:
        """How many tokens are equal, and if not all: where they part, and by how much the best logit leads there."""
        cache, given = None, [int(token) for token in prompt]
        with self._torch.no_grad():
            for place in range(most):
                seen = self._model(self._torch.tensor([given]), past_key_values=cache, use_cache=True)
                cache, logits = seen.past_key_values, seen.logits[0, -1]
                token = int(logits.argmax())
                if place >= len(answer) or token != answer[place]:
                    best = self._torch.topk(logits, 2)
                    return {"tokens": place, "parts_at": place, "lead": float(best.values[0] - best.values[1])}
                if token in ends:
                    break
                given = [token]
        return {"tokens": len(answer)}


if __name__ == "__main__":
    main()
