"""The log: one JSON object a line, with what it is about; bounded; without credentials."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kev.config.settings import LogFormat, LogSettings
from kev.telemetry import logs
from kev.telemetry.logs import JsonLines, TextLines, Told, about, all_about, error_in, say_error
from kev.wire.process import read_ready

log = logging.getLogger("kev.test_log")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(stream: io.StringIO) -> Iterator[logging.Handler]:
    """A handler for one logger, of the format that the test sets."""
    made = logging.StreamHandler(stream)
    made.setFormatter(JsonLines("router"))
    log.addHandler(made)
    log.setLevel(logging.DEBUG)
    yield made
    log.removeHandler(made)
    log.setLevel(logging.NOTSET)


@pytest.fixture
def lines(handler: logging.Handler, stream: io.StringIO) -> Any:
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_time_level_service_logger_and_what_it_is_about(lines: Any):
    with all_about(request_id="r-1"):
        log.warning("slot %d is slow", 3, extra=about(slot=3, worker="", reason=None))
    log.info("besides")
    first, second = lines()
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "service": "router",
        "logger": "kev.test_log",
        "message": "slot 3 is slow",
        "request_id": "r-1",
        "slot": 3,
    }
    assert "request_id" not in second


def test_a_traceback_is_a_field_and_breaks_no_line(lines: Any):
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it\nfailed", extra=about(error_id="ab12"))
    (line,) = lines()
    assert line["message"] == "it\nfailed"
    assert line["error_id"] == "ab12"
    assert line["traceback"].endswith("ValueError: two\nlines")


@pytest.mark.parametrize("formatter", [JsonLines("x"), TextLines("%(message)s")])
def test_credentials_of_addresses_are_never_written(
    handler: logging.Handler, stream: io.StringIO, formatter: logging.Formatter
):
    handler.setFormatter(formatter)
    try:
        raise OSError("no way to nats://me:hidden@broker:4222")
    except OSError:
        log.exception("broker %s", "tls://me:hidden@broker")
    assert "hidden" not in stream.getvalue()
    assert "@broker" in stream.getvalue()


def test_odd_texts_and_facts_are_still_json(lines: Any):
    log.info("half \ud83d of it, 问", extra=about(thing=object(), count=2))
    (line,) = lines()
    assert line["count"] == 2
    assert "object" in line["thing"]


def test_text_lines_say_it_at_their_end(handler: logging.Handler, stream: io.StringIO):
    handler.setFormatter(TextLines("%(levelname)s %(message)s"))
    log.info("done", extra=about(request_id="r", slot=0))
    log.info("done")
    assert stream.getvalue() == "INFO done [request_id=r slot=0]\nINFO done\n"


def test_ends_are_told_some_times_a_second_and_the_others_counted(lines: Any):
    now = [5.0]
    told = Told(log, per_s=2, clock=lambda: now[0])
    for slot in range(5):
        told.say("ended", slot=slot)
    now[0] = 6.1
    told.say("ended", slot=5)
    told.say("ended", slot=6)
    assert [(line["slot"], line.get("unsaid")) for line in lines()] == [(0, None), (1, None), (5, 3), (6, None)]


def test_a_level_that_is_off_costs_no_count(lines: Any):
    log.setLevel(logging.WARNING)
    told = Told(log, per_s=1, clock=lambda: 0.0)
    told.say("ended")
    log.setLevel(logging.INFO)
    told.say("ended")
    assert len(lines()) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_end_of_a_process_can_be_read_back(form: str, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(logs, "in_json", lambda: form == "json")
    say_error("no broker at x\nsecond", "router")
    first, second = capsys.readouterr().err.splitlines()
    assert (error_in(first), error_in(second)) == ("no broker at x", "second")
    assert error_in("2026-01-01 INFO x: y") is None
    assert error_in('{"level": "error", "logger": "x", "message": "while it runs"}') is None
    assert first.startswith("{") == (form == "json")


def test_the_ready_line_is_json_where_the_log_is():
    line = '{"time": "…", "level": "info", "service": "router", "message": "ready", "address": "a:1"}'
    assert read_ready(line) == {"service": "router", "address": "a:1"}
    assert read_ready('{"level": "info", "logger": "x", "message": "ready"}') is None
    assert read_ready('{"broken') is None


SERVICE = """
import logging, sys
from kev.wire.process import settings_from_command_line, say_ready
settings_from_command_line("router_svc", sys.argv[1:])
logging.getLogger("kev.x").warning("careful")
say_ready("router", address="a:1")
"""


@pytest.mark.parametrize("given", [["--set", "log.format=json"], []])
def test_a_service_logs_as_its_settings_say(given: list[str], monkeypatch: pytest.MonkeyPatch):
    if not given:
        monkeypatch.setenv("KEV_LOG_FORMAT", "json")
    done = subprocess.run([sys.executable, "-c", SERVICE, *given], capture_output=True, text=True, check=True)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["service"], line["message"]) == ("router", "careful")
    assert read_ready(done.stdout) == {"service": "router", "address": "a:1"}


def test_the_format_has_two_names():
    assert LogSettings(format=LogFormat.JSON).format == "json"
    assert {form.value for form in LogFormat} == {"text", "json"}
