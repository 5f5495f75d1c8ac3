"""Two processes with half the heads each: the same answers as one, and packed still equals alone, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from inference_models import scoring_pack, tokens_of
from native_support import greedy

from inference_svc.backends.load import load_backend
from inference_svc.backends.reference import ReferenceBackend
from inference_svc.backends.reference.parallel import ParallelBackend
from inference_svc.backends.reference.ranks import RankLost, shard
from inference_svc.models import ModelError, load_weights
from inference_svc.rows import Pack, Span

PROMPTS = tuple(np.array(tokens_of(seed, count), np.int32) for seed, count in ((1, 40), (2, 7), (3, 65)))


@pytest.fixture(scope="module")
def halves(tiny_dirs: dict[str, Path]) -> Iterator[ParallelBackend]:
    backend = load_backend(tiny_dirs["llama"], precision="fp32", pages=64, threads=1, ranks=2)
    assert isinstance(backend, ParallelBackend)
    yield backend
    backend.close()


def test_two_halves_answer_as_the_whole(tiny_dirs: dict[str, Path], halves: ParallelBackend) -> None:
    whole = ReferenceBackend.load(tiny_dirs["llama"], pages=64)
    for prompt in PROMPTS:
        pack = scoring_pack(prompt)
        assert np.abs(halves.forward(pack) - whole.forward(pack)).max() < 1e-3
    answers = zip(greedy(halves, PROMPTS, 32), greedy(whole, PROMPTS, 32), strict=True)  # type: ignore[arg-type]
    for ours, theirs in answers:
        assert ours.tolist() == theirs.tolist()
    assert halves.variant == "torch-cpu-fp32-tp2"


def test_packed_equals_alone_and_twice_is_the_same(halves: ParallelBackend) -> None:
    alone = [halves.forward(scoring_pack(prompt)) for prompt in PROMPTS]
    spans = [
        Span(at, prompt, 0, np.arange(at * 8, at * 8 + 8, dtype=np.int32), len(prompt))
        for at, prompt in enumerate(PROMPTS)
    ]
    for _ in range(2):
        assert np.array_equal(halves.forward(Pack.of(spans)), np.concatenate(alone))


def test_pages_are_scrubbed_and_copied_on_all_ranks(halves: ParallelBackend) -> None:
    first = PROMPTS[0][:16]
    expected = halves.forward(scoring_pack(PROMPTS[0][:20]))[16:]
    halves.fill(range(64), float("nan"))
    halves.forward(Pack.of([Span(0, first, 0, np.array([9], np.int32), 0)]))
    halves.copy_page(9, 3)
    halves.scrub([9])
    found = halves.forward(Pack.of([Span(0, PROMPTS[0][16:20], 16, np.array([3, 4], np.int32), 4)]))
    assert np.array_equal(found, expected)
    halves.fill(range(64), 0.0)


def test_a_bad_pack_is_refused_and_the_next_one_runs(halves: ParallelBackend) -> None:
    with pytest.raises(ValueError, match="token ids"):
        halves.forward(scoring_pack(np.array([100_000], np.int32)))
    assert len(halves.forward(scoring_pack(PROMPTS[1]))) == len(PROMPTS[1])


@pytest.mark.parametrize(("family", "reason"), [("qwen2", "7 heads"), ("mistral", "1 key and value heads")])
def test_what_does_not_divide_is_refused_by_name(tiny_dirs: dict[str, Path], family: str, reason: str) -> None:
    with pytest.raises(ModelError, match=rf"core\.tensor_parallel: {reason} cannot be divided by 2"):
        load_backend(tiny_dirs[family], ranks=2)


def test_the_native_backend_has_none(tiny_dirs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"core\.backend with core\.tensor_parallel"):
        load_backend(tiny_dirs["llama"], backend="native", ranks=2)


def test_parts_are_whole_heads(tiny_dirs: dict[str, Path]) -> None:
    config, weights = load_weights(tiny_dirs["llama"])
    parts = [shard(config, weights, rank, 2) for rank in range(2)]
    assert [(part.heads, part.kv_heads, part.hidden) for part, _ in parts] == [(3, 1, config.hidden)] * 2
    for name, axis in (("q", 0), ("v", 0), ("up", 0), ("o", 1), ("down", 1)):
        joined = np.concatenate([getattr(part.layers[1], name) for _, part in parts], axis)
        assert np.array_equal(joined, getattr(weights.layers[1], name))


@pytest.mark.timeout(60)
def test_a_lost_rank_ends_it_and_is_no_questions_fault(tiny_dirs: dict[str, Path], halves: ParallelBackend) -> None:
    """The last test of this file: the group does not survive it."""
    halves._children[0].kill()
    halves._children[0].wait()
    with pytest.raises(RankLost):
        halves.forward(scoring_pack(PROMPTS[1]))
    assert not isinstance(RankLost(), Exception)
