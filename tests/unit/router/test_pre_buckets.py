"""Types of questions with buckets of their own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kev.config.settings import PreBucket, RouterSettings
from kev.domain.question import Strategy
from router_svc.assign import NO_BUCKET
from router_svc.normalise.routing_text import routing_text
from router_svc.pre_buckets import TIMEOUT_S, PreBuckets
from router_svc.strategies import bucketing

BUCKETS = 64


def rule(name: str, share: float = 0.25, **more: Any) -> PreBucket:
    return PreBucket(name=name, share=share, **more)


RULES = (
    rule("refunds", keywords=("refund", "退款", "money back")),
    rule("orders", pattern=r"\border(s|ed)?\b|订单"),
    rule("tiny", share=0.001, keywords=("zebra",)),
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Where is my REFUND?", "refunds"),
        ("I want my  money\nback!", "refunds"),
        ("请问怎么退款？", "refunds"),
        ("a refund for my order", "refunds"),
        ("I ordered two", "orders"),
        ("我的订单到哪了", "orders"),
        ("the border is open", ""),
        ("refunded", ""),
        ("hello", ""),
        ("", ""),
    ],
)
def test_the_first_rule_that_matches_says_the_type(text: str, name: str) -> None:
    assert PreBuckets(RULES, BUCKETS).type_of(routing_text(text)) == name


@given(st.integers(0, BUCKETS - 1), st.sampled_from(["refund", "order", "zebra", "else"]))
def test_types_never_share_a_bucket(bucket: int, text: str) -> None:
    runs = {"refund": range(16), "order": range(16, 32), "zebra": range(32, 33), "else": range(33, 64)}
    assert PreBuckets(RULES, BUCKETS).place(bucket, text) in runs[text]


def test_a_strategy_hashes_within_the_type() -> None:
    strategy = bucketing(RouterSettings(pre_buckets=RULES, hash_buckets=BUCKETS))
    assert strategy.bucket("", "refund one") == strategy.bucket("", "refund one") < 16
    assert len({strategy.bucket("", f"refund {number}") for number in range(500)}) == 16
    assert strategy.bucket("key", "order one") == strategy.bucket("key", "order two")
    assert strategy.bucket("key", "order one") in range(16, 32)


def test_strategies_without_buckets_have_no_types() -> None:
    settings = RouterSettings(strategy=Strategy.ROUND_ROBIN, pre_buckets=RULES)
    assert bucketing(settings).bucket("", "refund") == NO_BUCKET


def test_a_pattern_that_goes_astray_matches_nothing_and_takes_no_time() -> None:
    types = PreBuckets((rule("bad", pattern=r"(a|aa)+$"), rule("good", keywords=("b",))), BUCKETS)
    began = time.process_time()
    assert types.type_of("a" * 500 + " b") == "good"
    assert time.process_time() - began < 100 * TIMEOUT_S
