"""Figures as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kev.app.top.figures import Figures

TOP = 10
_BREAKER = {1.0: "half-open", 2.0: "open"}
_STATES = ("free", "parked", "prefill", "decode")


def view(figures: Figures) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_summary(figures), _workers(figures), _buckets(figures), _branches(figures)]
    if figures.now.missing:
        parts.append(Text(f"no answer: {', '.join(figures.now.missing)}"))
    return Group(*parts)


def _summary(figures: Figures) -> RenderableType:
    now = figures.now
    pairs = (
        ("questions/s", _number(figures.rate("kev_router_questions_total"))),
        ("answers/s", _number(figures.rate("kev_inference_outcomes_total", status="answered"))),
        ("tokens/s", _number(figures.rate("kev_inference_tokens_total"))),
        ("workers", _number(now.most("kev_router_workers"))),
        ("queued", _number(now.most("kev_router_queued_questions"))),
        ("waiting", _number(sum(now.by("kev_router_waiting_questions").values()))),
        ("oldest", _seconds(now.most("kev_router_oldest_question_seconds"))),
        ("first token p95", _seconds(figures.quantile("kev_aggregator_first_token_seconds", 0.95))),
        ("end to end p95", _seconds(figures.quantile("kev_aggregator_end_to_end_seconds", 0.95))),
    )
    return Text("   ".join(f"{name} {value}" for name, value in pairs) + "\n")


def _workers(figures: Figures) -> RenderableType:
    table = _table("Channels", ["worker", *_STATES, "a forward", "rows/s", "tokens/s", "KV free"])
    now = figures.now
    forwards = figures.rates("kev_inference_forwards_total", "endpoint")
    channels = figures.rates("kev_inference_pack_channels_sum", "endpoint")
    rows = figures.rates("kev_inference_rows_total", "endpoint")
    tokens = figures.rates("kev_inference_tokens_total", "endpoint")
    pages = now.by("kev_inference_kv_pages", "endpoint")
    free = now.by("kev_inference_kv_region_pages", "endpoint", region="free")
    for worker in sorted(pages):
        states = now.by("kev_inference_channels", "state", endpoint=worker)
        pack = channels.get(worker, 0.0) / forwards[worker] if forwards.get(worker) else math.nan
        table.add_row(
            worker,
            *(_number(states.get(state, 0.0)) for state in _STATES),
            _number(pack),
            _number(rows.get(worker, 0.0)),
            _number(tokens.get(worker, 0.0)),
            _share(free.get(worker, 0.0) / pages[worker] if pages[worker] else math.nan),
        )
    return table


def _buckets(figures: Figures) -> RenderableType:
    table = _table("Buckets", ["bucket", "questions/s", "share", "at home", "breaker"])
    breakers = figures.now.by("kev_router_breaker_state", "bucket")
    home = figures.rates("kev_router_questions_total", "bucket", branch="home")
    for bucket, rate, share in figures.shares("kev_router_questions_total", "bucket")[:TOP]:
        at_home = home.get(bucket, 0.0) / rate
        table.add_row(
            bucket, _number(rate), _share(share), _share(at_home), _BREAKER.get(breakers.get(bucket, 0.0), "")
        )
    return table


def _branches(figures: Figures) -> RenderableType:
    table = _table("Branches", ["branch", "questions/s", "share"])
    for branch, rate, share in figures.shares("kev_router_questions_total", "branch"):
        table.add_row(branch, _number(rate), _share(share))
    return table


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at == 0 else "right", no_wrap=True)
    return table


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
