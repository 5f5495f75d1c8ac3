"""Whoever asks a request for something wrong is told which argument, at the engine and at the client alike."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from engine_lab import fake_model, fake_settings

from kev.app.engine import Engine
from kev.client import Client, arguments, fields
from kev.client.queries import batch_of
from kev.domain.errors import InvalidArgument
from kev.domain.result import ResumePoint

WRONG: list[tuple[str, str, tuple[Any, ...]]] = [
    ("wait", "request_id", (5, 1.0)),
    ("wait", "request_id", (None, 1.0)),
    ("wait", "timeout", ("r", "1")),
    ("wait", "timeout", ("r", nan)),
    ("wait", "timeout", ("r", True)),
    ("cancel", "request_id", (b"r",)),
    ("cancel", "slots", ("r", ["0"])),
    ("cancel", "slots", ("r", "0")),
    ("cancel", "slots", ("r", 0)),
    ("cancel", "slots", ("r", [-1])),
    ("cancel", "slots", ("r", [2**32])),
    ("create_context", "name", (5, "text")),
    ("create_context", "text", ("name", None)),
    ("create_context", "ttl_ms", ("name", "text", 1.5)),
    ("create_context", "ttl_ms", ("name", "text", 0)),
    ("create_context", "ttl_ms", ("name", "text", 2**64)),
    ("delete_context", "name", (5,)),
]


@pytest.fixture(scope="module")
def engine(default_model: Path) -> Iterator[Engine]:
    with Engine(fake_settings(), model=fake_model(default_model)) as made:
        yield made


@pytest.mark.parametrize(("method", "field", "given"), WRONG)
def test_the_client_names_the_argument(method: str, field: str, given: tuple[Any, ...]) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgument) as caught:
        getattr(client, method)(*given)
    assert caught.value.field == field


@pytest.mark.parametrize("given", [50051, None, "", " ", "localhost"])
def test_the_client_says_what_an_address_is(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^address: must be HOST:PORT, or tls://HOST:PORT; got "):
        Client(given)
    if given:
        with pytest.raises(InvalidArgument, match=r"^aggregator: must be HOST:PORT, or tls://HOST:PORT; got "):
            Client("127.0.0.1:1", aggregator=given)


@pytest.mark.model
@pytest.mark.parametrize(("method", "field", "given"), WRONG)
def test_the_engine_names_the_argument(engine: Engine, method: str, field: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        getattr(engine, method)(*given)
    assert caught.value.field == field


@pytest.mark.model
def test_a_tenant_has_a_name(engine: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"^tenant: must be a string"):
        engine.of_tenant(5)  # type: ignore[arg-type]
    assert engine.of_tenant("\ud800").contexts() == []  # half a character is no reason to fail


@pytest.mark.parametrize("wrong", [5, [5], [{"slot": 0}]])
def test_resume_points_are_resume_points(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^resume: must be a list of ResumePoint"):
        arguments.resume_points(wrong)


def test_resume_points_fit_the_wire() -> None:
    with pytest.raises(InvalidArgument, match=r"^resume\.text_offset: must be a whole number"):
        arguments.resume_points([ResumePoint(0, 1, -1)])


def test_how_long_may_be_said_in_any_number() -> None:
    assert [arguments.seconds(value) for value in (None, inf, 2, 0.5, np.float32(0.5))] == [None, None, 2.0, 0.5, 0.5]
    assert [arguments.seconds(value) for value in (0, -1, -inf)] == [0.0, 0.0, 0.0]


def test_numbers_of_other_kinds_are_numbers() -> None:
    assert type(fields.whole("max_tokens", np.int64(3), 1, 9)) is int
    assert type(fields.number("temperature", np.float32(0.5), 0, 2)) is float
    for wrong in (np.bool_(True), np.float64(3), "3", nan):
        with pytest.raises(InvalidArgument):
            fields.whole("max_tokens", wrong, 1, 9)


def test_nothing_of_numpy_goes_on_from_there() -> None:
    two = np.int64(2)
    query = {"text": "Why?", "id": two, "max_tokens": two, "logit_bias": {two: np.float32(1)}}
    plain = {"text": "Why?", "id": 2, "max_tokens": 2, "logit_bias": {2: 1.0}}
    batch = batch_of([query], max_parallel=two)  # type: ignore[arg-type]
    assert batch == batch_of([plain], max_parallel=2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=type(batch)) == batch
    (point,) = arguments.resume_points([ResumePoint(two, two, two)])  # type: ignore[arg-type]
    assert {type(point.slot), type(point.attempt), type(point.text_offset)} == {int}
