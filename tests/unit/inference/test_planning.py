"""The planner's bytes are those of the code: packed sections, KV pages, the worker's own store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inference_models import SIZES
from typer.testing import CliRunner

from inference_svc.assembly import kv_pages
from inference_svc.backends.native.packing import sections
from inference_svc.backends.native.variants import VARIANTS, by_name
from inference_svc.models import ModelConfig, inspect, load_weights
from inference_svc.planning import sizes
from inference_svc.planning.machine import memory_limit
from inference_svc.planning.plan import Wish, plan, store_pages
from kev.app.cli.main import app
from kev.config.settings import Settings

GIB = 1 << 30
CONFIG = ModelConfig(
    family="llama",
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate=1536,
    vocab=49152,
    rope_theta=1e5,
    norm_eps=1e-5,
    tied=True,
    qkv_bias=False,
    qk_norm=False,
    max_positions=8192,
)
"""An example; the expected bytes below follow from its numbers."""
WISH = Wish(
    channels=16, context=2048, prefix=0, precision="fp32", rows=256, parallel=16, threads=2, unified=False
)  # fmt: skip
AVX2 = by_name("avx2")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("family", SIZES)
def test_packed_weights_are_counted_to_the_byte(
    tiny_dirs: dict[str, Path], family: str, precision: str, variant: Any
) -> None:
    config, weights = load_weights(tiny_dirs[family])
    if precision == "int8" and (config.hidden % 32 or config.intermediate % 32):
        pytest.skip("the kernels do not have this shape")
    packed = sum(array.nbytes for name, array in sections(config, weights, precision, variant) if name != "inv_freq")
    assert sizes.native_weights(config, precision, variant) == packed
    assert sizes.parameters(config) * 4 == sizes.unpacked_bytes(config)


def test_grouped_heads_are_counted_and_the_other_formula_stands_beside_it() -> None:
    found = plan(CONFIG, WISH, AVX2, GIB)
    assert found.kv_position == 2 * 30 * 3 * 64 * 4 == 46080
    assert found.kv_channel == 2048 * 46080
    assert found.kv_channel_without_grouping == 3 * found.kv_channel
    assert plan(CONFIG, replace(WISH, precision="int8"), AVX2, GIB).kv_position == 46080 / 2


def test_a_shared_prefix_is_counted_once() -> None:
    alone = plan(CONFIG, WISH, AVX2, GIB)
    shared = plan(CONFIG, replace(WISH, prefix=1000), AVX2, GIB)
    page = 16 * 46080
    assert alone.kv_all_full == 16 * 128 * page
    assert shared.kv_all_full == (63 + 16 * (128 - 62)) * page  # the prefix ends inside its last page: a copy each
    copied = plan(CONFIG, replace(WISH, prefix=1000, copies=True), AVX2, GIB)
    assert copied.kv_all_full == (63 + 16 * 128) * page
    assert shared.most_channels >= alone.most_channels


@pytest.mark.parametrize("layout", ["split", "unified"])
@pytest.mark.parametrize(("channels", "context"), [(1, 16), (4, 100), (32, 2048), (1024, 4096)])
def test_the_store_is_the_workers_own(layout: str, channels: int, context: int) -> None:
    settings = Settings.model_validate(
        {
            "isolation": {"kv_cache": layout},
            "router": {"channel_pool_size": channels},
            "core": {"max_context": context},
        }
    )
    wish = replace(WISH, channels=channels, context=context, unified=layout == "unified")
    assert store_pages(wish) == kv_pages(settings)


def test_what_does_not_fit_is_said_and_what_is_recommended_fits() -> None:
    wish = replace(WISH, unified=True)
    small = plan(CONFIG, wish, AVX2, 2 * GIB)
    assert not small.fits
    assert 0 < small.most_channels < 16
    channels = small.channel_pool_size
    assert plan(CONFIG, replace(wish, channels=channels - 1, parallel=channels - 1), AVX2, 2 * GIB).fits
    none = plan(CONFIG, wish, AVX2, GIB // 4)
    assert (none.fits, none.most_channels, none.channel_pool_size) == (False, 0, 0)


def test_torch_takes_more_and_holds_float32_on_a_cpu() -> None:
    native, torch = (plan(CONFIG, replace(WISH, precision="bf16"), variant, GIB) for variant in (AVX2, None))
    assert torch.program > native.program
    assert torch.weights > native.weights
    assert plan(CONFIG, replace(WISH, precision="bf16", device="cuda"), None, GIB).weights < torch.weights


def _write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    root = _write(tmp_path, proc__meminfo="MemTotal: 2048 kB\n")
    assert memory_limit(root) == 2048 * 1024
    _write(root, proc__self__cgroup="0::/a/b\n")
    (root / "sys/fs/cgroup/a/b").mkdir(parents=True)
    (root / "sys/fs/cgroup/a/b/memory.max").write_text("max\n")
    assert memory_limit(root) == 2048 * 1024
    (root / "sys/fs/cgroup/a/memory.max").write_text("4096\n")
    assert memory_limit(root) == 4096


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    root = _write(tmp_path, proc__meminfo="MemTotal: 2048 kB\n", proc__self__cgroup="5:cpu:/x\n4:memory:/x\n")
    (root / "sys/fs/cgroup/memory/x").mkdir(parents=True)
    (root / "sys/fs/cgroup/memory/x/memory.limit_in_bytes").write_text("8192\n")
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit(root) == 8192


def test_the_command(tiny_dirs: dict[str, Path]) -> None:
    folder = tiny_dirs["llama"]
    (folder / "tokenizer.json").touch()
    try:
        done = CliRunner().invoke(app, ["plan", "--model", str(folder), "--channels", "3", "--context", "64", "--json"])
        assert done.exit_code == 0, done.output
        report = json.loads(done.output)
        assert (report["channels"], report["context"], report["fits"]) == (3, 64, True)
        assert report["parameters"] == sizes.parameters(inspect(folder)[0])
        sets = ["--set", "router.channel_pool_size=5", "--set", "core.max_context=96", "--json"]
        done = CliRunner().invoke(app, ["plan", "--model", str(folder), "--channels", "4", *sets])
        report = json.loads(done.output)
        assert (report["channels"], report["context"]) == (4, 96), "an option stands above --set, if it is given"
        parts = [*sets, "--set", "core.tensor_parallel=2", "--json"]  # only the reference backend can share a model
        shared = CliRunner().invoke(app, ["plan", "--model", str(folder), "--channels", "4", *parts])
        assert json.loads(shared.stdout)["backend"] == "reference"
        small = ["plan", "--model", str(folder), "--context", "512"]
        assert "without grouped heads" in CliRunner().invoke(app, [*small, "--prefix", "20"]).output
        for layout in ("shared_readonly", "split", "unified"):
            told = CliRunner().invoke(app, [*small, "--set", f"isolation.kv_cache={layout}"], env={"COLUMNS": "200"})
            assert f"{layout}: " in told.output
        for bad in (["--prefix", "512"], ["--precision", "fp16"], ["--precision", "fp8"], ["--model", "/none.gguf"]):
            assert CliRunner().invoke(app, [*small, *bad]).exit_code == 2, bad
        more = CliRunner().invoke(app, [*small[:-1], "513"])  # what no worker would serve is not planned for less
        assert (more.exit_code, "core.max_context: must be at most 512" in more.output) == (2, True)
    finally:
        (folder / "tokenizer.json").unlink()
