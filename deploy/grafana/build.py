"""Writes the dashboards: ``python deploy/grafana/build.py [--check]``. Edit here, not the JSON files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from panels import (  # noqa: E402 - found beside this file
    Json,
    Line,
    dashboard,
    graph,
    heat_map,
    number,
    quantiles,
    timeline,
    top_list,
    variable,
)

WORKER = 'instance="$worker"'


def overview() -> Json:
    """Is everything well?"""
    return dashboard(
        "kev-overview",
        "Kev: overview",
        [
            number(
                "Questions a second",
                Line("sum(rate(kev_router_questions_total[1m]))"),
                text="Questions put into queues.",
                unit="reqps",
            ),
            number(
                "Answers a second",
                Line('sum(rate(kev_inference_outcomes_total{status="answered"}[1m]))'),
                text="Outcomes that are answers.",
                unit="reqps",
            ),
            number(
                "Not answered",
                Line(
                    '(sum(rate(kev_inference_outcomes_total{status!="answered"}[5m])) or vector(0))'
                    " / (sum(rate(kev_inference_outcomes_total[5m])) > 0)"
                ),
                text="Share of outcomes that are no answers: refused, timed out, cancelled, failed.",
                unit="percentunit",
            ),
            number("Tokens a second", Line("sum(rate(kev_inference_tokens_total[1m]))"), text="Tokens of answers."),
            number("Workers", Line("max(kev_router_workers)"), text="Workers in the fleet, as the routers see it."),
            number("Queued", Line("max(kev_router_queued_questions)"), text="Questions in the channels' queues."),
            graph(
                "Submits by result",
                Line("sum by (result) (rate(kev_router_submits_total[1m]))", "{{result}}"),
                text="Calls of Submit and Ask: accepted, duplicate, or the reason of the refusal.",
                unit="reqps",
            ),
            graph(
                "Outcomes by status",
                Line("sum by (status) (rate(kev_inference_outcomes_total[1m]))", "{{status}}"),
                text="What became of the questions, by the workers.",
                unit="reqps",
                stacked=True,
            ),
            graph(
                "Errors",
                Line('sum(rate(kev_inference_slots_total{reason="error"}[1m])) or vector(0)', "failed in a forward"),
                Line("sum by (reason) (rate(kev_router_refused_total[1m]))", "refused: {{reason}}"),
                Line("sum(rate(kev_aggregator_placeholders_total[1m]))", "timed out unseen"),
                Line("sum(rate(kev_aggregator_fell_behind_total[1m]))", "readers cut off"),
                text="Everything that is not an answer, where it was noticed.",
                unit="reqps",
            ),
            graph(
                "Time to first token",
                *quantiles("kev_aggregator_first_token_seconds"),
                text="From the start of following a new request to a slot's first text.",
                unit="s",
            ),
            graph(
                "Between tokens",
                *quantiles("kev_aggregator_inter_token_seconds"),
                text="Pause between two texts of a slot.",
                unit="s",
            ),
            graph(
                "End to end",
                *quantiles("kev_aggregator_end_to_end_seconds"),
                text="Acceptance of a question to its end.",
                unit="s",
            ),
            graph(
                "Channels by state",
                Line("sum by (state) (kev_inference_channels)", "{{state}}"),
                text="Channels of all workers.",
                stacked=True,
            ),
            graph(
                "KV pages by region",
                Line("sum by (region) (kev_inference_kv_region_pages)", "{{region}}"),
                text="Pages of 16 positions: free, of channels, of stored context.",
                stacked=True,
            ),
            graph(
                "Pack size",
                *quantiles("kev_inference_pack_channels"),
                text="Channels in one forward: the more, the cheaper each token.",
            ),
            graph(
                "Rows a second",
                Line("sum by (kind) (rate(kev_inference_rows_total[1m]))", "{{kind}}"),
                text="Tokens computed, of prompts and of answers.",
                stacked=True,
            ),
            graph(
                "Waiting for room",
                Line("sum(kev_router_waiters)", "calls"),
                Line("sum(kev_router_waiting_questions)", "questions"),
                text="Submits that the routers hold because no channel has room.",
            ),
            graph(
                "Saved by normalisation",
                Line("sum(rate(kev_router_saved_tokens_total[1m]))", "tokens"),
                Line("sum(rate(kev_router_saved_characters_total[1m]))", "characters"),
                text="What the models need not read, each second, because fillers and repeated marks were taken out.",
            ),
            graph(
                "HTTP requests by status",
                Line("sum by (status) (rate(kev_http_requests_total[1m]))", "{{status}}"),
                text="Requests at the HTTP gateway, its own health checks included.",
                unit="reqps",
                stacked=True,
            ),
            graph(
                "HTTP request time",
                *quantiles("kev_http_request_seconds", picked='route!="GET /healthz"', window="5m"),
                text="Request to the last byte of its answer, health checks left out.",
                unit="s",
            ),
            graph(
                "Readers",
                Line("sum(kev_aggregator_readers)", "streams"),
                Line("sum(kev_aggregator_requests)", "requests"),
                text="Streams and requests that the aggregators follow.",
            ),
        ],
    )


def hot_buckets() -> Json:
    """Is the traffic skewed, and does the spill even it out?"""
    return dashboard(
        "kev-hot-buckets",
        "Kev: hot buckets",
        [
            heat_map(
                "Traffic by bucket",
                Line("kev:bucket_questions:rate1m", "{{bucket}}"),
                text="Questions a second of every hash bucket.",
                unit="reqps",
            ),
            top_list(
                "Top ten buckets",
                Line("topk(10, kev:bucket_share:ratio1m)", "{{bucket}}"),
                text="Share of all questions.",
                unit="percentunit",
            ),
            graph(
                "Imbalance of buckets and of channels",
                Line("kev:bucket_imbalance:ratio1m", "buckets, before the spill"),
                Line("kev:channel_imbalance:ratio1m", "channels, after the spill"),
                text="Largest over mean; 1 is even. The distance between the lines is what the spill does.",
            ),
            graph(
                "Branches",
                Line("kev:branch_questions:rate1m", "{{branch}}"),
                text="How questions got their channels: home, spilled along the ring, spilled to the emptier of two.",
                unit="reqps",
                stacked=True,
            ),
            graph(
                "Queue depth against the bound",
                Line('max(kev_router_queue_questions{channel=~".+/.+"})', "deepest"),
                Line('avg(kev_router_queue_questions{channel=~".+/.+"})', "mean"),
                Line("max(kev_router_queue_bound_questions)", "bound"),
                text="Questions in a channel's queue, the running one included.",
            ),
            graph(
                "Age of the oldest question",
                Line("max(kev_router_oldest_question_seconds)", "oldest"),
                Line("max(kev_router_timeout_seconds)", "a question's time"),
                text="The oldest question in any queue, against the time that a question has.",
                unit="s",
            ),
            graph(
                "Wait of the hottest bucket against the others, p95",
                Line(
                    "max(kev:bucket_wait_seconds:p95_5m and on (bucket) topk(1, kev:bucket_share:ratio1m))", "hottest"
                ),
                Line(
                    "histogram_quantile(0.95, sum by (le) (rate(kev_inference_queue_seconds_bucket[5m])"
                    " unless on (bucket) topk(1, kev:bucket_share:ratio1m)))",
                    "others",
                ),
                text="Acceptance to start. Far apart: the hot bucket's home is too slow for it.",
                unit="s",
            ),
            timeline(
                "Breakers",
                Line(
                    "max by (bucket) (kev_router_breaker_state > 0) or vector(0)",
                    "{{bucket}}",
                ),
                ["closed", "half-open", "open"],
                text="While a breaker is open its bucket's questions spill around their home.",
            ),
            heat_map(
                "Questions in the queues",
                Line("max by (channel) (kev_router_queue_questions)", "{{channel}}"),
                text="Every channel's queue and the shared lanes.",
            ),
        ],
    )


def one_worker() -> Json:
    """What does this worker do?"""
    return dashboard(
        "kev-worker",
        "Kev: one worker",
        [
            number(
                "Self-test",
                Line(f"kev_inference_self_test_passed{{{WORKER}}}"),
                text="1: packed equalled alone, bit for bit, on the loaded model at the start.",
            ),
            number(
                "Failed integrity checks",
                Line(f'kev_inference_integrity_checks_total{{result="failed",{WORKER}}}'),
                text="A KV page was lost or in two tables. The worker ends itself after one.",
            ),
            number(
                "Dead letters",
                Line(f"kev_inference_dead_letters_total{{{WORKER}}}"),
                text="Questions that were taken again and again without an end.",
            ),
            number(
                "Tokens a second", Line(f"sum(rate(kev_inference_tokens_total{{{WORKER}}}[1m]))"), text="Of answers."
            ),
            number(
                "Forwards a second",
                Line(f"rate(kev_inference_forwards_total{{{WORKER}}}[1m])"),
                text="Passes of the model.",
            ),
            number(
                "Up",
                Line(f'time() - process_start_time_seconds{{job="inference",{WORKER}}}'),
                text="Since the last start.",
                unit="s",
            ),
            graph(
                "Forward time by phase, mean",
                Line(
                    f"sum by (phase) (rate(kev_inference_forward_seconds_sum{{{WORKER}}}[2m]))"
                    f" / (sum by (phase) (rate(kev_inference_forward_seconds_count{{{WORKER}}}[2m])) > 0)",
                    "{{phase}}",
                ),
                text="One forward, sampling included: of prompts, of answers, or mixed.",
                unit="s",
            ),
            graph(
                "Forward time",
                *quantiles("kev_inference_forward_seconds", picked=WORKER),
                text="All forwards.",
                unit="s",
            ),
            graph(
                "Pack composition",
                Line(f"sum by (kind) (rate(kev_inference_rows_total{{{WORKER}}}[1m]))", "{{kind}} rows"),
                text="Rows a second: of prompts, of answers.",
                stacked=True,
            ),
            graph(
                "Channels in a forward",
                *quantiles("kev_inference_pack_channels", picked=WORKER),
                text="Pack size in channels.",
            ),
            graph(
                "Rows in a forward",
                *quantiles("kev_inference_pack_rows", picked=WORKER),
                text="Pack size in rows.",
            ),
            graph(
                "Channels by state",
                Line(f"kev_inference_channels{{{WORKER}}}", "{{state}}"),
                text="Free, parked, reading a prompt, answering.",
                stacked=True,
            ),
            graph(
                "KV pages",
                Line(f"kev_inference_kv_region_pages{{{WORKER}}}", "{{region}}"),
                text="Free, of channels, of stored context.",
                stacked=True,
            ),
            graph(
                "Stored context",
                Line(
                    f"sum by (kind, result) (rate(kev_inference_context_lookups_total{{{WORKER}}}[1m]))",
                    "{{kind}} {{result}}",
                ),
                Line(
                    f"sum by (kind) (rate(kev_inference_context_evictions_total{{{WORKER}}}[1m]))", "{{kind}} dropped"
                ),
                text="Context that was there (hit), computed (miss), or dropped for room, by kind.",
                unit="ops",
            ),
            graph(
                "Isolation checks",
                Line(f"sum by (result) (increase(kev_inference_integrity_checks_total{{{WORKER}}}[5m]))", "{{result}}"),
                text="Page tables checked in idle moments: no page lost, none in two tables.",
            ),
            graph(
                "Ends of runs",
                Line(f"sum by (reason) (rate(kev_inference_slots_total{{{WORKER}}}[1m]))", "{{reason}}"),
                text="Stop, length, timeout, cancelled, error.",
                unit="reqps",
            ),
            graph(
                "Questions by channel",
                Line(f"sum by (channel) (rate(kev_inference_channel_questions_total{{{WORKER}}}[2m]))", "{{channel}}"),
                text="Questions run in each channel.",
                unit="reqps",
                width=12,
            ),
            graph(
                "Questions taken again",
                Line(f"rate(kev_inference_retaken_questions_total{{{WORKER}}}[5m])", "taken again"),
                text="Questions that a worker had taken before: it crashed, or gave them back.",
                unit="reqps",
                width=12,
            ),
        ],
        variables=[variable("worker", "label_values(kev_inference_forwards_total, instance)")],
    )


DASHBOARDS = {"overview": overview, "hot-buckets": hot_buckets, "one-worker": one_worker}


def main() -> int:
    """Writes the files, or says which are stale."""
    stale = []
    for name, make in DASHBOARDS.items():
        file = HERE / "dashboards" / f"{name}.json"
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.is_file() or file.read_text() != text:
            stale.append(file.name)
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run python deploy/grafana/build.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
