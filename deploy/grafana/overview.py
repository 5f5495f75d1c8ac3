"""The dashboard for everyday: is everything well?"""

from __future__ import annotations

from panels import Json, Line, dashboard, graph, number, quantiles


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
