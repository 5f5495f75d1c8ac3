"""Which questions share a bucket."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kev.config.settings import RouterSettings
from kev.domain.errors import NotServed
from kev.domain.question import Strategy
from router_svc.assign import NO_BUCKET
from router_svc.semantic.codebook import BadCodebook, Codebook
from router_svc.semantic.fit import fit
from router_svc.semantic.salience import Salience
from router_svc.semantic.table import Table
from router_svc.strategies import SemanticHash, Strategies, bucketing

BUCKETS = 8
ALIKE = [
    ("i want a refund", "how do i get my refund", "refund not received yet"),
    ("my card was stolen", "someone has stolen my card", "stolen card"),
    ("what is the exchange rate", "how is the exchange rate set", "is the exchange rate good"),
    ("怎么退款", "申请退款要怎么操作", "退款多久能到账"),
    ("我的订单到哪了", "订单在哪里", "订单什么时候到"),
]


@pytest.fixture(scope="module")
def table() -> Table:
    pytest.importorskip("wordllama", reason="the word vectors are not installed")
    return Table.load()


@pytest.fixture(scope="module")
def salience(table: Table) -> Salience:
    return Salience(table)


def test_round_robin_uses_no_buckets() -> None:
    assert bucketing(RouterSettings(strategy=Strategy.ROUND_ROBIN)).bucket("key", "text") == NO_BUCKET


def test_consistent_hash_takes_the_key_else_the_text() -> None:
    strategy = bucketing(RouterSettings(strategy=Strategy.CONSISTENT_HASH, hash_buckets=1000))
    assert strategy.bucket("key", "one") == strategy.bucket("key", "two")
    assert strategy.bucket("", "one") == strategy.bucket("", "one")
    assert strategy.bucket("", "one") != strategy.bucket("", "two")
    assert strategy.bucket("", "key") == strategy.bucket("key", "whatever")


@pytest.mark.parametrize("texts", ALIKE)
def test_questions_about_one_thing_have_one_key(salience: Salience, texts: tuple[str, ...]) -> None:
    assert len({salience.key(text) for text in texts}) == 1


def test_questions_about_different_things_have_different_keys(salience: Salience) -> None:
    assert len({salience.key(texts[0]) for texts in ALIKE}) == len(ALIKE)


def test_a_question_without_words_has_itself_for_a_key(salience: Salience) -> None:
    assert salience.key("1+1=?") == "1+1=?"
    assert salience.key("") == ""


def test_semantic_hash_prefers_the_callers_key(table: Table) -> None:
    strategy = SemanticHash(1000, table)
    assert strategy.bucket("mine", "i want a refund") == strategy.bucket("mine", "stolen card")
    assert strategy.bucket("", "i want a refund") == strategy.bucket("", "how do i get my refund")


def _texts() -> list[str]:
    things = ("card", "refund", "transfer", "password", "invoice", "delivery", "coupon", "account")
    asks = ("where is my {}", "i lost the {}", "help with a {}", "my {} is late", "{} please", "cancel the {}")
    return [ask.format(thing) for thing in things for ask in asks]


def test_a_fitted_codebook_groups_and_stays_balanced(table: Table) -> None:
    codebook = fit(table, _texts(), BUCKETS)
    buckets = np.array([codebook.bucket(table.embed(text)) for text in _texts()])
    by_thing = buckets.reshape(8, 6)
    same = np.mean([len(row) - len(set(row)) for row in by_thing.tolist()])
    assert same >= 3  # most questions about a thing meet
    assert np.bincount(buckets, minlength=BUCKETS).max() <= 3 * len(buckets) / BUCKETS


def test_a_codebook_survives_its_file_and_two_fits_agree(table: Table, tmp_path: Path) -> None:
    one, two = fit(table, _texts(), BUCKETS), fit(table, _texts(), BUCKETS)
    one.save(tmp_path / "book.json")
    read = Codebook.load(tmp_path / "book.json", table=table.digest, buckets=BUCKETS)
    vectors = table.embed_all(_texts())
    for codebook in (two, read):
        assert [codebook.bucket(vector) for vector in vectors] == [one.bucket(vector) for vector in vectors]
    settings = RouterSettings(
        strategy=Strategy.SEMANTIC_HASH, codebook=str(tmp_path / "book.json"), hash_buckets=BUCKETS
    )
    assert bucketing(settings).bucket("", _texts()[0]) == one.bucket(vectors[0])


def test_a_codebook_that_does_not_fit_is_refused_by_name(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    with pytest.raises(BadCodebook, match="cannot be read"):
        Codebook.load(path, table=table.digest, buckets=BUCKETS)
    path.write_text("{}")
    with pytest.raises(BadCodebook, match="is no codebook"):
        Codebook.load(path, table=table.digest, buckets=BUCKETS)
    fit(table, _texts(), BUCKETS).save(path)
    with pytest.raises(BadCodebook, match="hash_buckets is 9"):
        Codebook.load(path, table=table.digest, buckets=9)
    with pytest.raises(BadCodebook, match="fit"):
        Codebook.load(path, table="other", buckets=BUCKETS)


def test_too_few_questions_are_refused(table: Table) -> None:
    with pytest.raises(ValueError, match="at least 16 different questions"):
        fit(table, ["one", "two"], BUCKETS)


def test_a_batch_may_ask_for_another_strategy_than_the_deployments() -> None:
    strategies = Strategies(RouterSettings(strategy=Strategy.ROUND_ROBIN))
    assert strategies.of(None).bucket("key", "text") == NO_BUCKET
    assert strategies.of(Strategy.CONSISTENT_HASH).bucket("key", "text") != NO_BUCKET
    assert strategies.of(Strategy.CONSISTENT_HASH) is strategies.of(Strategy.CONSISTENT_HASH)


def test_a_strategy_that_lacks_something_here_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    strategies = Strategies(RouterSettings())
    with pytest.raises(NotServed, match=r"batch\.strategy: length_aware needs .* router\.long_channels"):
        strategies.of(Strategy.LENGTH_AWARE)
    monkeypatch.setattr("router_svc.semantic.table.find_spec", lambda name: None)
    with pytest.raises(NotServed, match=r"batch\.strategy: semantic_hash is not served here: .* pip install wordllama"):
        strategies.of(Strategy.SEMANTIC_HASH)
