"""The dashboard of skewed traffic: is it, and does the spill even it out?"""

from __future__ import annotations

from panels import Json, Line, dashboard, graph, heat_map, timeline, top_list


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
