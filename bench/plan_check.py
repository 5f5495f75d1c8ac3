"""What ``kev plan`` says against what a worker's model really takes: peak memory above that of the bare imports.

    python -m bench.plan_check --precision fp32,bf16,int8 --model default,small,large

Each case runs in a process of its own, with packed weights in the cache: the
model is loaded, every KV page is written, and forwards are as large as the
settings allow. ``small`` and ``large`` are random models that are made for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.core.machine import describe, memory_mib, reset_peak

MIB = 1 << 20
SIZES: dict[str, dict[str, int]] = {
    "small": {"hidden": 512, "layers": 12, "heads": 8, "kv_heads": 8, "inter": 1408, "vocab": 32000},
    "large": {"hidden": 960, "layers": 32, "heads": 15, "kv_heads": 5, "inter": 2560, "vocab": 49152},
}
"""45 million numbers with a head of K and V for each query head; 362 million, grouped by three."""


def main() -> None:
    """Measures all cases; exit code 1 if one is off by more than ``--within``."""
    args = _arguments()
    if args.child:
        print(json.dumps(_measure(json.loads(args.child))))
        return
    with TemporaryDirectory(prefix="kev-plan-") as folder:
        cases = [
            {"model": name, "path": _path(name, Path(folder)), "precision": precision, "backend": args.backend,
             "channels": args.channels, "context": args.context, "rows": args.rows}
            for name, precision in product(args.model.split(","), args.precision.split(","))
        ]  # fmt: skip
        found = [_in_own_process(case) for case in cases]
    text = json.dumps({"machine": describe(), "results": found}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    sys.exit(any(abs(case["off_percent"]) > args.within for case in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default,small,large", help="several with commas; also paths")
    parser.add_argument("--precision", default="fp32,bf16,int8")
    parser.add_argument("--backend", default="native", choices=("native", "reference"))
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=256, help="row budget of a forward")
    parser.add_argument("--within", type=float, default=10.0, help="percent")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON here as well")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _path(name: str, folder: Path) -> str:
    if name == "default":
        from kev.tokens.model_files import default_model_path

        return str(default_model_path())
    return str(_random_model(folder / name, **SIZES[name])) if name in SIZES else name


def _random_model(folder: Path, *, hidden: int, layers: int, heads: int, kv_heads: int, inter: int, vocab: int) -> Path:
    """A Hugging Face directory with random weights of these sizes, as float16."""
    import numpy as np
    from safetensors.numpy import save_file

    if folder.exists():
        return folder
    dim, random = hidden // heads, np.random.default_rng(0)
    shapes = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv_heads * dim, hidden),
        "self_attn.v_proj": (kv_heads * dim, hidden), "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inter, hidden), "mlp.up_proj": (inter, hidden), "mlp.down_proj": (hidden, inter),
    }  # fmt: skip

    def matrix(*shape: int) -> Any:
        return (random.standard_normal(shape, dtype=np.float32) * hidden**-0.5).astype(np.float16)

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden), "model.norm.weight": np.ones(hidden, np.float16)}
    for layer in range(layers):
        base = f"model.layers.{layer}"
        tensors |= {f"{base}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{base}.{norm}.weight"] = np.ones(hidden, np.float16)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "vocab_size": vocab,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "intermediate_size": inter, "max_position_embeddings": 4096, "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5, "eos_token_id": 2, "bos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _in_own_process(case: dict[str, Any]) -> dict[str, Any]:
    """The first start packs the weights into the cache; it is measured, too."""
    first, then = (_child(case) for _ in range(2))
    planned, measured = then["planned_mib"], then["measured_mib"]
    row = {key: value for key, value in case.items() if key != "path"}
    row |= {"planned_mib": round(planned, 1), "measured_mib": round(measured, 1)}
    row["off_percent"] = round(100 * (planned / measured - 1), 1)
    row |= {"loading_planned_mib": round(then["loading_mib"], 1), "first_start_mib": round(first["measured_mib"], 1)}
    print(json.dumps(row), file=sys.stderr)
    return row


def _child(case: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.plan_check", "--child", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(case: dict[str, Any]) -> dict[str, float]:
    import inference_svc.worker  # what a worker imports is its baseline
    from inference_svc.backends.load import load_backend
    from inference_svc.backends.native.variants import choose
    from inference_svc.models import has_codes, inspect
    from inference_svc.planning.plan import Wish, plan

    if case["backend"] == "reference":
        import inference_svc.backends.reference  # noqa: F401
    variant = choose() if case["backend"] == "native" else None
    wish = Wish(
        channels=case["channels"], context=case["context"], prefix=0, precision=case["precision"], rows=case["rows"],
        parallel=case["channels"], threads=2, unified=True, coded=has_codes(case["path"], case["precision"]),
    )  # fmt: skip
    planned = plan(inspect(case["path"])[0], wish, variant, 1 << 40, _size(case["path"]))
    reset_peak()
    before = memory_mib("VmRSS")
    backend = load_backend(
        case["path"], backend=case["backend"], precision=case["precision"], pages=planned.kv_pages, threads=2
    )
    _fill(backend, wish)
    measured = memory_mib("VmHWM") - before
    backend.close()
    return {"planned_mib": _peak(planned) / MIB, "measured_mib": measured, "loading_mib": planned.loading_peak / MIB}


def _size(path: str) -> int:
    place = Path(path)
    return sum(file.stat().st_size for file in (place.glob("*.safetensors") if place.is_dir() else [place]))


def _peak(planned: Any) -> int:
    """With the native backend the weights are packed already; the reference loads them each time."""
    return int(planned.peak if planned.backend == "native" else planned.loading_peak)


def _fill(backend: Any, wish: Any) -> None:
    """Writes every page: all channels but a row at their fullest, in forwards of the largest size, then all at once."""
    import numpy as np

    from inference_svc.rows import Pack, Span, pages_for

    random, size = np.random.default_rng(0), pages_for(wish.context)
    backend.scrub(range(backend.pages))
    tables = [np.arange(n * size, (n + 1) * size, dtype=np.int32) for n in range(wish.channels)]
    chunk = min(wish.rows, wish.context - 1)
    for channel, table in enumerate(tables):  # the first rows and the last: what lies between is filled, not computed
        for position in (0, wish.context - 1 - chunk):
            tokens = random.integers(0, backend.vocab_size, chunk, dtype=np.int32)
            backend.forward(Pack.of([Span(channel, tokens, position, table, 0)]))
    kept = None
    for _ in range(2):
        token = random.integers(0, backend.vocab_size, (wish.channels, 1), dtype=np.int32)
        kept = backend.forward(
            Pack.of([Span(n, token[n], wish.context - 1, table, 1) for n, table in enumerate(tables)])
        )
    del kept


if __name__ == "__main__":
    main()
