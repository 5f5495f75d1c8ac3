"""``kev route``, ``kev explain`` and ``kev buckets``: what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kev.app import remote
from kev.app.cli.main import app
from kev.app.routing.buckets import max_over_mean, rows
from kev.app.routing.explain import sentences
from kev.app.top import scrape
from kev.app.top.figures import Figures, Reading
from kev.domain.errors import NotFound
from kev.domain.outcome import Audit
from kev.domain.result import SlotResult

METRICS = """
kev_router_questions_total{{bucket="7",branch="home"}} {hot}
kev_router_questions_total{{bucket="7",branch="spill_ring"}} {hot}
kev_router_questions_total{{bucket="1",branch="home"}} {cold}
kev_router_breaker_state{{bucket="7"}} 2
kev_router_bucket_home{{bucket="7",channel="w1/0"}} 1
kev_router_bucket_home{{bucket="1",channel="w2/1"}} 1
kev_router_bucket_home{{bucket="3",channel="w2/1"}} 1
kev_router_queue_questions{{channel="w1/0"}} 5
kev_router_queue_questions{{channel="w2/1"}} 1
kev_router_queue_questions{{channel="express"}} 0
"""
PLACED = Audit(
    channel="w2/1",
    worker_id="w2",
    channel_id=1,
    bucket=12,
    branch="spill_ring",
    queued_ms=230,
    elapsed_ms=1500,
    prompt_tokens=20,
    completion_tokens=8,
    attempts=2,
    forwards=9,
    strategy="semantic_hash",
    home="w1/3",
    placement="breaker of bucket 12 open; w2/1 held 0, 1 further on the ring",
    shared_tokens=4,
)
ANSWERED = SlotResult("r", 0, "mine", "answered", "stop", "secret text", audit=PLACED)


def kev(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def metrics(hot: float, cold: float) -> dict[str, str | None]:
    text = METRICS.format(hot=hot, cold=cold)
    return {"a": text, "b": text}


@pytest.fixture
def figures() -> Figures:
    return Figures(Reading.of(1.0, metrics(0, 0)), Reading.of(2.0, metrics(30, 20)))


@pytest.fixture
def scraped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics of two routers that see the same; the second reading is later."""
    texts = iter([(1.0, metrics(0, 0)), (2.0, metrics(30, 20)), (3.0, metrics(30, 20))])

    async def read(addresses: Any) -> Reading:
        return Reading.of(*next(texts))

    monkeypatch.setattr(scrape, "read", read)


def test_a_slot_is_explained_in_order() -> None:
    told = list(sentences(ANSWERED))
    assert told[0] == "semantic_hash gave it bucket 12, whose home was w1/3; spilt along the ring"
    assert told[1] == "because: breaker of bucket 12 open; w2/1 held 0, 1 further on the ring"
    assert told[2] == "waited 230 ms, then ran on w2/1 of worker w2, taken 2 times"
    assert told[3] == "1.50 s in 9 forwards: 20 tokens of prompt, 4 of them shared, 8 of answer"
    assert told[4] == "ended answered (stop)"


def test_what_never_ran_says_so() -> None:
    refused = SlotResult("r", 1, status="refused", finish_reason="refused", reason="empty", detail="it is empty")
    assert list(sentences(refused)) == ["no channel ran it", "ended refused (refused): empty: it is empty"]
    assert "no outcome yet" in next(sentences(SlotResult("r", 1)))
    turns = msgspec.structs.replace(ANSWERED, audit=Audit(branch="home", placement="no bucket: channels in turn"))
    assert next(sentences(turns)) == "the strategy gave it no bucket; went home"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cluster that knows one request; the addresses that were asked."""
    addresses: list[str] = []

    class Cluster:
        def __init__(self, address: str, ca: str) -> None:
            addresses.append(address)

        async def wait(self, request_id: str, wait_s: float | None) -> list[SlotResult]:
            assert wait_s == 0
            if request_id != "r":
                raise NotFound(f"request {request_id}: there is none, or it has expired")
            return [SlotResult("r", 1), ANSWERED]

        async def close(self) -> None:
            addresses.append("closed")

    monkeypatch.setattr(remote, "Remote", Cluster)
    return addresses


def test_explain_prints_every_slot_and_no_answer(asked: list[str]) -> None:
    done = kev("explain", "r", "--router", "host:1")
    assert done.exit_code == 0
    assert done.stdout.startswith("slot 0 (mine)\n  semantic_hash gave it bucket 12")
    assert "slot 1\n" in done.stdout
    assert "secret text" not in done.stdout
    assert asked == ["host:1", "closed"]


def test_explain_in_json_holds_the_audit(asked: list[str]) -> None:
    done = kev("explain", "r", "--json", "--slot", "0")
    (told,) = (json.loads(line) for line in done.stdout.splitlines())
    assert (told["home"], told["placement"], told["strategy"]) == (PLACED.home, PLACED.placement, PLACED.strategy)
    assert told["why"] == list(sentences(ANSWERED))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["other"], "request other: there is none"),
        (["r", "--slot", "7"], "--slot: must be 0 to 1, got 7"),
        (["a b"], "REQUEST_ID: must be 1 to 128 letters"),
    ],
)
def test_explain_names_what_is_wrong(asked: list[str], arguments: list[str], says: str) -> None:
    done = kev("explain", *arguments)
    assert done.exit_code == 1
    assert says in done.stderr


def test_the_busiest_bucket_comes_first_with_its_home_and_breaker(figures: Figures) -> None:
    found = rows(figures)
    assert [row.bucket for row in found] == ["7", "1"]
    assert (found[0].home, found[0].depth, found[0].breaker, found[0].at_home) == ("w1/0", 5, "open", 0.5)
    assert found[0].share == 0.75
    assert [row.bucket for row in rows(figures, idle=True)] == ["7", "1", "3"]
    assert max_over_mean(figures) == pytest.approx(0.75 * 3)


@pytest.mark.usefixtures("scraped")
def test_buckets_prints_one_interval() -> None:
    done = kev("buckets", "--metrics", "a:1", "--once", "--every", "0.2")
    assert done.exit_code == 0
    assert "w1/0" in done.stdout
    assert "open" in done.stdout


@pytest.mark.usefixtures("scraped")
def test_buckets_in_json() -> None:
    done = kev("buckets", "--metrics", "a:1", "--json", "--every", "0.2")
    assert [json.loads(line)["bucket"] for line in done.stdout.splitlines()] == ["7", "1"]


@pytest.mark.parametrize("arguments", [["buckets"], ["buckets", "--metrics", "nonsense"]])
def test_buckets_needs_an_address(arguments: list[str]) -> None:
    done = kev(*arguments)
    assert done.exit_code == 1
    assert "HOST:PORT" in done.stderr


@pytest.mark.model
def test_route_tells_what_the_router_would_do() -> None:
    done = kev("route", "  Why is the sky blue???  ", "--json")
    (told,) = (json.loads(line) for line in done.stdout.splitlines())
    assert (told["prompt_text"], told["strategy"], told["saved"]) == ("Why is the sky blue?", "consistent_hash", 6)
    assert told["home"].startswith("w1/")
    assert "Why is the sky blue?" in kev("route", "Why is the sky blue?").stdout


@pytest.mark.model
@pytest.mark.usefixtures("scraped")
def test_route_takes_the_channels_of_a_running_router() -> None:
    done = kev("route", "Why?", "--metrics", "a:1", "--json")
    assert json.loads(done.stdout)["home"] in ("w1/0", "w2/1")


@pytest.mark.model
def test_route_sends_long_questions_to_the_long_channels() -> None:
    limits = ("--set=router.long_channels=1", "--set=router.long_tokens=20", "--set=router.channel_pool_size=3")
    for text, long in (("Why?", False), ("word " * 40, True)):
        told = json.loads(kev("route", text, "--json", "--strategy", "consistent_hash", *limits).stdout)
        assert told["long"] is long
        assert (told["home"] == "w1/2") is long


@pytest.mark.model
def test_route_shows_refusals_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"text": "Why?"}\n{"text": " "}\n')
    done = kev("route", str(file), "--json", "--strategy", "round_robin")
    assert done.exit_code == 1
    assert [json.loads(line)["reason"] for line in done.stdout.splitlines()] == ["", "empty"]
    assert [json.loads(line)["home"] for line in done.stdout.splitlines()] == ["", ""]


def test_route_names_what_is_wrong(tmp_path: Path) -> None:
    assert "missing.jsonl: cannot be read" in kev("route", str(tmp_path / "missing.jsonl")).stderr
    assert "router.strategy: Input should be" in kev("route", "x", "--strategy", "other").stderr


def test_a_codebook_is_fitted_judged_and_loaded_again(tmp_path: Path) -> None:
    file, out = tmp_path / "labelled.jsonl", tmp_path / "book.json"
    things = ["card", "refund", "transfer", "passport", "weather", "football", "guitar", "kitchen"]
    lines = [
        {"text": f"{start} my {thing} {end}?", "intent": thing}
        for thing in things
        for start in ("Where is", "What about", "Is it true that")
        for end in ("today", "now", "again", "still lost")
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = kev("buckets", "fit", str(file), "--out", str(out), "--buckets", "8", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["this codebook"]["same"] > told["this codebook"]["different"]
    assert told["this codebook"]["questions"] == len(lines)
    settings = (f"--set=router.codebook={out}", "--set=router.hash_buckets=8", "--strategy=semantic_hash")
    routed = kev("route", str(file), "--json", *settings)
    assert routed.exit_code == 0, routed.stderr
    assert len({json.loads(line)["bucket"] for line in routed.stdout.splitlines()}) > 1


def test_too_few_questions_for_a_codebook_are_named(tmp_path: Path) -> None:
    file = tmp_path / "few.txt"
    file.write_text("Why?\nHow?\n")
    done = kev("buckets", "fit", str(file), "--buckets", "4", "--out", str(tmp_path / "book.json"))
    assert done.exit_code == 1
    assert "needs at least 8 different questions" in done.stderr
    assert not (tmp_path / "book.json").exists()
