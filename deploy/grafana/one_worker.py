"""The dashboard of one worker: what does it do?"""

from __future__ import annotations

from panels import Json, Line, dashboard, graph, number, quantiles, variable

WORKER = 'instance="$worker"'


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
