"""The HTTP door: the same answers, every mistake of a caller a clear 4xx, a caller who leaves frees its channels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_lab import SLEEPY, FakeModel, fake_model, fake_settings

from inference_svc.loading import LoadedModel
from kev.app.engine.tiers import Tiers
from kev.app.http.app import create_app
from kev.app.http.bodies import QueryBody, QuestionBody
from kev.app.http.server import listen_on, open_door, serve
from kev.config.settings import Settings
from kev.wire.process import StartError

pytestmark = pytest.mark.model
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def model(default_model: Path) -> LoadedModel:
    return fake_model(default_model)


@pytest.fixture
def fake(model: LoadedModel) -> FakeModel:
    assert isinstance(model.backend, FakeModel)
    model.backend.gate.set()
    return model.backend


@asynccontextmanager
async def running_tiers(settings: Settings, model: LoadedModel) -> AsyncIterator[Tiers]:
    tiers = Tiers(settings, model)
    tiers.worker._self_test = None
    await tiers.start()
    try:
        yield tiers
    finally:
        await tiers.close()


@pytest.fixture
async def tiers(model: LoadedModel, fake: FakeModel) -> AsyncIterator[Tiers]:
    async with running_tiers(fake_settings(), model) as running:
        yield running
        fake.gate.set()


@pytest.fixture
async def http(tiers: Tiers) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(tiers), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://kev") as client:
        yield client


async def accepted(client: httpx.AsyncClient, request_id: str) -> None:
    """Waits until the request is known."""
    while (await client.get(f"/v1/query/{request_id}")).status_code == 404:  # noqa: ASYNC110 - seen from outside only
        await asyncio.sleep(0.01)


def events(text: str) -> list[tuple[str, Any]]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [
        (block.partition("\n")[0].removeprefix("event: "), json.loads(block.partition("data: ")[2])) for block in blocks
    ]


async def test_a_query_answers_with_one_result_a_slot(http: httpx.AsyncClient) -> None:
    queries = ["What is the capital of France?", {"text": "请问怎么退款？", "id": "refund", "max_tokens": 2}, ""]
    reply = await http.post("/v1/query", json={"queries": queries, "isolation": "strict", "max_tokens": 9})
    assert reply.status_code == 200
    body = reply.json()
    assert body["complete"] is True
    first, second, third = body["results"]
    assert (first["slot"], first["status"]) == (0, "answered")
    assert first["text"]
    assert {"channel_id", "elapsed_ms", "tokens", "audit", "finish_reason"} <= set(first)
    assert (second["id"], second["tokens"] <= 2) == ("refund", True)
    assert (third["status"], third["reason"]) == ("refused", "empty")


async def test_constraints_and_log_probabilities_go_through_the_door(http: httpx.AsyncClient) -> None:
    queries = [
        {"text": "Yes or no?", "constraint": {"choices": ["yes", "no"]}, "logprobs": 2, "logit_bias": {"10": -3}},
        {"text": "A number.", "constraint": {"regex": "[0-9]{3}", "json_schema": None}},
        {"text": "Anything.", "max_tokens": 2, "temperature": 0.5, "min_p": 0.1, "presence_penalty": 1},
    ]
    body = {"queries": queries, "max_tokens": 9}
    first, second, third = (await http.post("/v1/query", json=body)).json()["results"]
    assert first["text"] in ("yes", "no")
    assert bytes(byte for one in first["logprobs"] for byte in one["bytes"]).decode() == first["text"]
    assert [len(one["top"]) for one in first["logprobs"]] == [2] * first["tokens"]
    assert {"token", "text", "bytes", "logprob"} == set(first["logprobs"][0]["top"][0])
    assert first["logprobs"][0]["logprob"] < 0
    assert len(second["text"]) == 3
    assert second["text"].isdecimal()
    assert (third["status"], third["logprobs"]) == ("answered", [])
    told = events((await http.post("/v1/query", json={**body, "stream": True})).text)
    assert told[-1][1]["results"][0]["logprobs"] == first["logprobs"]


async def test_a_constraint_of_the_batch_is_for_questions_that_name_none(http: httpx.AsyncClient) -> None:
    queries = ["a", {"text": "b", "constraint": {"choices": ["z"]}}]
    reply = await http.post("/v1/query", json={"queries": queries, "constraint": {"choices": ["x", "y"]}})
    texts = [result["text"] for result in reply.json()["results"]]
    assert texts[0] in ("x", "y")
    assert texts[1] == "z"


async def test_results_come_in_the_result_mode(http: httpx.AsyncClient) -> None:
    queries = [{"text": "a", "priority": "background", "max_tokens": 2}, {"text": "b", "priority": "express"}]
    reply = await http.post("/v1/query", json={"queries": queries, "mode": "priority", "max_tokens": 3})
    assert [result["slot"] for result in reply.json()["results"]] == [1, 0]


async def test_a_stream_says_the_same_as_whole_results(http: httpx.AsyncClient) -> None:
    query = {"queries": ["Name a river.", "Name a lake."], "max_tokens": 12}
    whole = (await http.post("/v1/query", json=query)).json()["results"]
    reply = await http.post("/v1/query", json={**query, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    told = events(reply.text)
    pieces = {0: "", 1: ""}
    for name, data in told:
        if name in ("delta", "result"):
            pieces[data["slot"]] += data["text"]
    assert [pieces[slot] for slot in (0, 1)] == [result["text"] for result in whole]
    assert told[-1][0] == "done"
    assert [result["text"] for result in told[-1][1]["results"]] == [result["text"] for result in whole]
    assert {name for name, _ in told} == {"delta", "result", "done"}


async def test_a_request_can_be_polled_waited_for_and_cancelled(http: httpx.AsyncClient, fake: FakeModel) -> None:
    fake.gate.clear()
    body = {"queries": ["One.", "Two."], "request_id": "mine", "max_tokens": 3}
    asking = asyncio.create_task(http.post("/v1/query", json=body))
    await accepted(http, "mine")
    polled = (await http.get("/v1/query/mine")).json()
    assert (polled["complete"], [result["status"] for result in polled["results"]]) == (False, ["pending"] * 2)
    ended = await http.delete("/v1/query/mine", params={"slots": [1]})
    assert ended.json() == {"request_id": "mine", "cancelled_slots": [1]}
    fake.gate.set()
    waited = (await http.get("/v1/query/mine", params={"wait_ms": 20_000})).json()
    assert [result["status"] for result in waited["results"]] == ["answered", "cancelled"]
    assert (await asking).json() == waited


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"queries": [{"text": "x", "constraint": {"regex": "("}}]}', "queries[0].constraint.regex"),
        (b'{"queries": [{"text": "x", "constraint": {"choices": ["a"], "regex": "a"}}]}', "queries[0].constraint"),
        (b'{"queries": [{"text": "x", "constraint": {}}]}', "queries[0].constraint"),
        (b'{"queries": [{"text": "x", "constraint": {"json_schema": 5}}]}', "queries[0].constraint.json_schema"),
        (b'{"queries": [{"text": "x", "logprobs": 21}]}', "queries[0].logprobs"),
        (b'{"queries": [{"text": "x", "min_p": 2}]}', "queries[0].min_p"),
        (b'{"queries": [{"text": "x", "logit_bias": {"a": 2}}]}', "queries[0].logit_bias"),
        (b'{"queries": [{"text": "x", "logit_bias": {"1": "a", "2": "a", "3": NaN}}]}', "queries[0].logit_bias"),
        (b'{"queries": [{"text": "x", "logit_bias": {"1": NaN, "2": 101}}]}', "queries[0].logit_bias"),
        (
            b'{"queries": [{"text": "x", "logit_bias": {' + b", ".join(b'"%d": 1' % n for n in range(301)) + b"}}]}",
            "queries[0].logit_bias",
        ),
        (b'{"queries": [{"text": "x", "logit_bias": {"1": 2, "01": 3}}]}', "queries[0].logit_bias"),
        (
            b'{"queries": [{"text": "x", "constraint": {"json_schema": {"maximum": NaN}}}]}',
            "queries[0].constraint.json_schema",
        ),
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"\xff\xfe", "body"),
        (b"[" * 100_000, "body"),
        (b'{"queries": ["a"], "max_tokens": ' + b"9" * 6000 + b"}", "body"),
        (b"{}", "queries"),
        (b'{"queries": "a"}', "queries"),
        (b'{"queries": []}', "queries"),
        (json.dumps({"queries": ["a"] * 1001}).encode(), "queries"),
        (b'{"queries": [5]}', "queries[0]"),
        (b'{"queries": ["a", {}]}', "queries[1]"),
        (b'{"queries": [{"text": "a", "messages": []}]}', "queries[0]"),
        (b'{"queries": [{"text": 5}]}', "queries[0].text"),
        (b'{"queries": [{"text": "a", "txet": "b"}]}', "queries[0].txet"),
        (b'{"queries": [{"messages": [{"role": "user"}]}]}', "queries[0].messages[0].content"),
        (b'{"queries": [{"messages": [{"role": "robot", "content": "a"}]}]}', "queries[0].messages[0].role"),
        (b'{"queries": [{"text": "a", "temperature": NaN}]}', "queries[0].temperature"),
        (b'{"queries": [{"text": "a", "temperature": 1e999}]}', "queries[0].temperature"),
        (b'{"queries": [{"text": "a", "temperature": 3}]}', "queries[0].temperature"),
        (b'{"queries": [{"text": "a", "max_tokens": 0}]}', "queries[0].max_tokens"),
        (b'{"queries": [{"text": "a", "max_tokens": 1.5}]}', "queries[0].max_tokens"),
        (b'{"queries": [{"text": "a", "max_tokens": "5"}]}', "queries[0].max_tokens"),
        (b'{"queries": [{"text": "a", "seed": 18446744073709551616}]}', "queries[0].seed"),
        (b'{"queries": [{"text": "a", "stop": 5}]}', "queries[0].stop"),
        (b'{"queries": [{"text": "a", "id": true}]}', "queries[0].id"),
        (b'{"queries": [{"text": null}]}', "queries[0]"),
        (b'{"queries": null}', "queries"),
        (b'{"queries": ["a"], "nonsense": null}', "nonsense"),
        (b'{"queries": [{"text": "a", "priority": "urgent"}]}', "queries[0].priority"),
        (b'{"queries": ["a"], "isolation": "weak"}', "isolation"),
        (b'{"queries": ["a"], "strategy": "best"}', "strategy"),
        (b'{"queries": ["a"], "mode": 1}', "mode"),
        (b'{"queries": ["a"], "max_parallel": 0}', "max_parallel"),
        (b'{"queries": ["a"], "timeout_ms": -1}', "timeout_ms"),
        (b'{"queries": ["a"], "request_id": "a b"}', "request_id"),
        (b'{"queries": ["a"], "stream": "yes"}', "stream"),
        (b'{"queries": ["a"], "nonsense": 1}', "nonsense"),
        (b'{"queries": [' + b"1," * 2000 + b"1]}", "queries"),
        (b'{"queries": [{"messages": [' + b"1," * 2000 + b"1]}]}", "queries[0].messages[0]"),
        (b'{"queries": [{"text": "a", "stop": [' + b"1," * 2000 + b"1]}]}", "queries[0].stop[0]"),
        (b'{"queries": [{' + b", ".join(b'"k%d": 1' % number for number in range(2000)) + b"}]}", "queries[0]"),
        (b'{"queries": ["a"], ' + b", ".join(b'"k%d": 1' % number for number in range(2000)) + b"}", "body"),
    ],
)
async def test_a_malformed_body_is_a_422_that_names_the_field(http: httpx.AsyncClient, body: bytes, field: str) -> None:
    reply = await http.post("/v1/query", content=body, headers=JSON)
    assert reply.status_code == 422, reply.text
    error = reply.json()["error"]
    assert error["reason"] == "INVALID_ARGUMENT"
    assert field in [problem["field"] for problem in error["fields"]]
    assert field in error["message"]
    assert error["retryable"] is False
    assert len(error["fields"]) == 1


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        ({"queries": ["a"], "max_tokens": -1}, "max_tokens", "greater than or equal to 1"),
        ({"queries": [{"text": "a", "max_tokens": 0}]}, "queries[0].max_tokens", "greater than or equal to 1"),
        ({"queries": [{"text": "a", "timeout_ms": 0}]}, "queries[0].timeout_ms", "greater than or equal to 1"),
        ({"queries": [{"text": "a", "logprobs": 21}]}, "queries[0].logprobs", "less than or equal to 20"),
        ({"queries": [{"text": "a", "top_p": -1}]}, "queries[0].top_p", "above 0 and at most 1"),
        ({"queries": ["a"], "max_token": 1}, "max_token", "unknown key; allowed: queries, isolation, mode"),
        ({"queries": ["a"], "query": "b"}, "query", "unknown key; allowed: queries, isolation, mode"),
        ({"queries": [{"text": "a", "path": 1}]}, "queries[0].path", "unknown key; allowed: text, messages"),
        ({"queries": [{"text": "a", "max_token": 1}]}, "queries[0].max_token", "unknown key; allowed: text, messages"),
        (
            {"queries": [{"messages": [{"role": "user", "content": "a", "name": "b"}]}]},
            "queries[0].messages[0].name",
            "unknown key; allowed: role, content",
        ),
        ({"queries": ["a"], "constraint": {"choice": 1}}, "constraint.choice", "allowed: choices, json_schema, regex"),
        ({"queries": ["a"], "constraint": {"choices": []}}, "constraint.choices", "1 to 1,000 strings"),
    ],
)
async def test_a_422_says_what_is_allowed(http: httpx.AsyncClient, body: dict[str, Any], field: str, told: str) -> None:
    reply = await http.post("/v1/query", json=body)
    (problem,) = reply.json()["error"]["fields"]
    assert (reply.status_code, problem["field"]) == (422, field)
    assert told in problem["message"]


async def test_null_is_as_if_the_key_was_not_there(http: httpx.AsyncClient) -> None:
    plain = {"text": "One.", "max_tokens": 3}
    nulls = dict.fromkeys(set(QuestionBody.model_fields) - set(plain)) | plain
    batch = dict.fromkeys(set(QueryBody.model_fields) - {"queries"})
    reply = await http.post("/v1/query", json={"queries": [plain, nulls], **batch})
    assert reply.status_code == 200, reply.text
    one, other = reply.json()["results"]
    assert (one["status"], one["text"]) == ("answered", other["text"])


async def test_half_a_character_refuses_nothing(http: httpx.AsyncClient) -> None:
    """What cuts a text inside an emoji sends it; in Python and in files it is taken, too."""
    body = rb'{"queries": ["\ud83d hello", "hello"]}'
    reply = await http.post("/v1/query", content=body, headers={"content-type": "application/json"})
    assert [result["status"] for result in reply.json()["results"]] == ["answered", "answered"]


async def test_a_label_may_be_a_number_and_one_stop_string_needs_no_list(http: httpx.AsyncClient) -> None:
    asked = {"text": "One.", "max_tokens": 6}
    whole = (await http.post("/v1/query", json={"queries": [asked]})).json()["results"][0]["text"]
    stop = whole[2]
    queries = [{**asked, "id": 7, "stop": stop}, {**asked, "id": "7", "stop": [stop]}]
    one, other = (await http.post("/v1/query", json={"queries": queries})).json()["results"]
    assert (one["id"], one["text"], one["finish_reason"]) == ("7", whole[: whole.index(stop)], "stop")
    assert (other["id"], other["text"], other["finish_reason"]) == (one["id"], one["text"], one["finish_reason"])


async def test_a_body_of_mistakes_only_is_answered_with_the_first_ones(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/query", json={"queries": [1] * 1000})
    assert reply.status_code == 422
    assert [problem["field"] for problem in reply.json()["error"]["fields"]] == [
        f"queries[{slot}]" for slot in range(50)
    ]


@pytest.mark.parametrize(
    "query",
    [
        {"text": "a", "x" * 200_000: 1},
        {"messages": [{"role": "x" * 200_000, "content": "a"}]},
        {"text": "a", "logit_bias": {"x" * 200_000: 1}},
        {"text": "a", "logit_bias": {"1": "x" * 200_000}},
        {"text": "a", "stop": ["x" * 200_000]},
    ],
)
async def test_an_error_does_not_repeat_what_was_sent(http: httpx.AsyncClient, query: dict[str, Any]) -> None:
    reply = await http.post("/v1/query", json={"queries": [query]})
    assert reply.status_code == 422
    assert reply.json()["error"]["fields"][0]["field"].startswith("queries[0].")
    assert len(reply.content) < 2_000


async def test_a_parameter_that_is_not_read_is_refused(http: httpx.AsyncClient) -> None:
    """Cancelling ``slot=0`` must not cancel all."""
    asked = await http.post("/v1/query", json={"queries": ["One."], "request_id": "known", "max_tokens": 2})
    assert asked.status_code == 200
    for reply in (
        await http.delete("/v1/query/known", params={"slot": 0}),
        await http.get("/v1/query/known", params={"slot": 0}),
        await http.post("/v1/query", params={"slot": 0}, json={"queries": ["a"]}),
        await http.get("/v1/contexts", params={"slot": 0}),
    ):
        problem = reply.json()["error"]["fields"][0]
        assert (reply.status_code, problem["field"]) == (422, "slot")
        assert "unknown parameter; allowed: " in problem["message"]
    assert (await http.get("/healthz", params={"slot": 0})).status_code == 200


async def test_a_parameter_that_is_given_twice_is_refused_but_for_slots(http: httpx.AsyncClient) -> None:
    asked = await http.post("/v1/query", json={"queries": ["One."], "request_id": "twice", "max_tokens": 2})
    assert asked.status_code == 200
    reply = await http.get("/v1/query/twice?wait_ms=1&wait_ms=2")
    assert (reply.status_code, reply.json()["error"]["message"]) == (422, "wait_ms: must be given once")
    assert (await http.delete("/v1/query/twice?slots=0&slots=0")).status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "x" * 200])
async def test_a_compressed_body_is_refused_as_such(http: httpx.AsyncClient, coding: str) -> None:
    headers = {**JSON, "content-encoding": coding}
    reply = await http.post("/v1/query", content=b"\x1f\x8b\x08", headers=headers)
    assert reply.status_code == 415
    assert "content-encoding must be identity" in reply.json()["error"]["message"]


@pytest.mark.parametrize("slot", ["-1", "1000", "4294967296", "9" * 30, "x"])
async def test_a_bad_slot_to_cancel_names_the_parameter(http: httpx.AsyncClient, slot: str) -> None:
    reply = await http.delete("/v1/query/nobody", params={"slots": [slot]})
    assert (reply.status_code, reply.json()["error"]["fields"][0]["field"]) == (422, "slots[0]")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_does_not_say_it_is_json_is_refused(http: httpx.AsyncClient, kind: str) -> None:
    reply = await http.post("/v1/query", content=b'{"queries": ["a"]}', headers={"content-type": kind})
    assert (reply.status_code, reply.json()["error"]["reason"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_body_above_the_limit_is_refused_before_it_is_read(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * (1 << 20)

    for reply in (
        await http.post("/v1/query", content=b"", headers={**JSON, "content-length": "99999999999"}),
        await http.post("/v1/query", content=endless(), headers=JSON),
    ):
        assert (reply.status_code, reply.json()["error"]["reason"]) == (413, "TOO_LARGE")


async def test_what_is_not_there_is_a_404(http: httpx.AsyncClient) -> None:
    for reply in (
        await http.get("/v1/query/nobody"),
        await http.delete("/v1/query/nobody"),
        await http.get("/v1/query/%ff%20"),
        await http.get("/nowhere"),
    ):
        assert (reply.status_code, reply.json()["error"]["reason"]) == (404, "NOT_FOUND")
    assert (await http.put("/v1/query")).json()["error"]["reason"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("wait", ["-1", "abc", "600001", "9" * 5000, "nan"])
async def test_a_bad_wait_names_the_parameter(http: httpx.AsyncClient, wait: str) -> None:
    reply = await http.get("/v1/query/nobody", params={"wait_ms": wait})
    assert (reply.status_code, reply.json()["error"]["fields"][0]["field"]) == (422, "wait_ms")


async def test_errors_follow_the_table(http: httpx.AsyncClient) -> None:
    weaker = await http.post("/v1/query", json={"queries": ["a"], "isolation": "loose"})
    assert (weaker.status_code, weaker.json()["error"]["reason"]) == (409, "NOT_SERVED")
    await http.post("/v1/query", json={"queries": ["a"], "request_id": "used", "max_tokens": 1})
    used = await http.post("/v1/query", json={"queries": ["b"], "request_id": "used", "max_tokens": 1})
    assert (used.status_code, used.json()["error"]["reason"]) == (409, "REQUEST_ID_USED")


async def test_no_room_is_a_429_that_says_when_to_try_again(model: LoadedModel, fake: FakeModel) -> None:
    settings = fake_settings(router_overflow_policy="reject", bus_queue_bound=1)
    async with running_tiers(settings, model) as tiers:
        transport = httpx.ASGITransport(create_app(tiers))
        async with httpx.AsyncClient(transport=transport, base_url="http://kev") as client:
            reply = await client.post("/v1/query", json={"queries": ["a"] * 100})
    assert (reply.status_code, reply.json()["error"]["reason"]) == (429, "OVERLOADED")
    assert reply.json()["error"]["retryable"] is True
    assert int(reply.headers["retry-after"]) >= 1


async def test_an_error_of_ours_is_told_by_number_only(http: httpx.AsyncClient, tiers: Tiers) -> None:
    async def broken(request_id: str, wait_s: float | None) -> list[Any]:
        raise RuntimeError("the secret inside")

    tiers.wait = broken  # type: ignore[method-assign]
    reply = await http.get("/v1/query/any")
    assert (reply.status_code, reply.json()["error"]["reason"]) == (500, "INTERNAL")
    assert "secret" not in reply.text


async def test_health_and_description(http: httpx.AsyncClient, tiers: Tiers) -> None:
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    description = (await http.get("/openapi.json")).json()
    assert {"/v1/query", "/v1/query/{request_id}", "/healthz"} <= set(description["paths"])
    assert "queries" in description["components"]["schemas"]["QueryBody"]["properties"]
    question = description["components"]["schemas"]["QuestionBody"]["properties"]
    kinds = {key: [kind["type"] for kind in question[key]["anyOf"]] for key in ("id", "stop")}
    assert kinds == {"id": ["string", "integer"], "stop": ["string", "array"]}, "what is taken, not what it becomes"
    assert (await http.get("/docs")).status_code == 200
    await tiers.worker.close()
    assert (await http.get("/healthz")).status_code == 503


@asynccontextmanager
async def served(tiers: Tiers, **options: float) -> AsyncIterator[str]:
    """The app behind a real socket."""
    with listen_on("127.0.0.1", 0) as door:
        door.listen()
        serving = asyncio.create_task(serve(create_app(tiers, **options), door))
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_leaves_cancels_its_open_slots(tiers: Tiers, stream: bool) -> None:
    body = {"queries": [f"A {SLEEPY} story."], "max_tokens": 240, "request_id": "left", "stream": stream}
    async with served(tiers) as url, httpx.AsyncClient(base_url=url) as client:
        if stream:
            async with client.stream("POST", "/v1/query", json=body) as reply:
                async for _ in reply.aiter_bytes():
                    break
        else:
            asking = asyncio.create_task(client.post("/v1/query", json=body))
            await accepted(client, "left")
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        (result,) = await tiers.wait("left", 20)
    assert result.status == "cancelled"


async def test_a_caller_who_leaves_before_the_first_piece_cancels_too(tiers: Tiers, fake: FakeModel) -> None:
    fake.gate.clear()
    body = {"queries": ["Held back."], "request_id": "early", "stream": True}
    async with served(tiers) as url, httpx.AsyncClient(base_url=url) as client:
        asking = asyncio.create_task(client.post("/v1/query", json=body))
        await accepted(client, "early")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        (result,) = await tiers.wait("early", 20)
    assert result.status == "cancelled"


async def test_a_caller_who_leaves_while_it_sends_its_body_is_no_error_of_ours(
    tiers: Tiers, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tiers) as url, httpx.AsyncClient(base_url=url) as client:
        address = client.base_url
        _, writer = await asyncio.open_connection(address.host, address.port)
        head = "POST /v1/query HTTP/1.1\r\nhost: kev\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
        writer.write(head.encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await client.get("/healthz")).status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_body_that_never_ends_is_a_408_and_the_connection_ends(tiers: Tiers) -> None:
    head = "POST /v1/query HTTP/1.1\r\nhost: kev\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
    async with served(tiers, body_timeout_s=0.1) as url, asyncio.timeout(20):
        address = httpx.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(head.encode())
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 408 ")
    assert json.loads(answer.partition("\r\n\r\n")[2])["error"]["reason"] == "TIMEOUT"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("content-type: application/json\r\ncontent-length: 34000000", 413),
        ("content-type: text/plain\r\ncontent-length: 34000000", 415),
        ("content-type: application/json\r\ntransfer-encoding: chunked", 413),
    ],
)
async def test_a_caller_that_sends_all_of_a_large_body_first_still_gets_the_answer(
    tiers: Tiers, head: str, status: int
) -> None:
    piece = b"a" * 1_000_000
    if "chunked" in head:
        piece = b"%x\r\n" % len(piece) + piece + b"\r\n"
    async with served(tiers) as url, asyncio.timeout(60):
        address = httpx.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"POST /v1/query HTTP/1.1\r\nhost: kev\r\n{head}\r\n\r\n".encode())
        for _ in range(34):
            writer.write(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if "chunked" in head else b"")
        assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
        writer.close()


async def test_a_caller_that_waits_before_it_sends_a_large_body_is_not_told_to_send(tiers: Tiers) -> None:
    head = "content-type: application/json\r\ncontent-length: 34000000\r\nexpect: 100-continue"
    async with served(tiers) as url, asyncio.timeout(60):
        address = httpx.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"POST /v1/query HTTP/1.1\r\nhost: kev\r\n{head}\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_busy_port_is_told_in_one_line() -> None:
    with listen_on("127.0.0.1", 0) as door:
        door.listen()
        port = door.getsockname()[1]
        with pytest.raises(StartError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: Address already in use$"):
            listen_on("127.0.0.1", port)


async def test_a_port_that_another_process_took_meanwhile_is_told_in_one_line() -> None:
    with listen_on("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with listen_on("127.0.0.1", port) as second:  # nobody listens yet, so both have it
            open_door(first, 1)
            with pytest.raises(StartError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: Address already in use$"):
                open_door(second, 1)
