"""Small makers of Grafana panels: what all dashboards of this folder are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
SOURCE: Json = {"type": "prometheus", "uid": "kev-prometheus"}
WIDTH = 24


class Line(NamedTuple):
    """One query of a panel and the name of its lines."""

    query: str
    legend: str = ""


def panel(kind: str, title: str, lines: Sequence[Line], *, text: str, unit: str = "short", width: int = 8) -> Json:
    """A panel without a place.

    Args:
        text: What the panel tells, for the little i in its corner.
        unit: Grafana's name of a unit: ``s``, ``reqps``, ``percentunit``, ``short``.
        width: Columns, of 24.
    """
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": line.query, "legendFormat": line.legend or "__auto"}
        for at, line in enumerate(lines)
    ]
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "targets": targets,
        "gridPos": {"w": width, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {},
    }


def graph(title: str, *lines: Line, text: str, unit: str = "short", width: int = 8, stacked: bool = False) -> Json:
    """Lines over time."""
    made = panel("timeseries", title, lines, text=text, unit=unit, width=width)
    custom: Json = {"drawStyle": "line", "fillOpacity": 30 if stacked else 5, "showPoints": "never"}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    made["fieldConfig"]["defaults"]["custom"] = custom
    made["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return made


def number(title: str, line: Line, *, text: str, unit: str = "short", width: int = 4) -> Json:
    """One large number of now."""
    made = panel("stat", title, [line], text=text, unit=unit, width=width)
    made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return made


def heat_map(title: str, line: Line, *, text: str, unit: str = "short", width: int = 24) -> Json:
    """Colour by series and time: one row for each series."""
    made = panel("heatmap", title, [line], text=text, unit=unit, width=width)
    made["gridPos"]["h"] = 12
    made["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": "short"},
        "cellValues": {"unit": unit},
        "rowsFrame": {"layout": "auto"},
    }
    return made


def top_list(title: str, line: Line, *, text: str, unit: str = "short", width: int = 8) -> Json:
    """A bar for each series, of now."""
    made = panel("bargauge", title, [line], text=text, unit=unit, width=width)
    made["targets"][0]["instant"] = True
    made["options"] = {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return made


def timeline(title: str, line: Line, states: Sequence[str], *, text: str, width: int = 24) -> Json:
    """States over time, a row for each series; values 0, 1, 2 … have these names."""
    made = panel("state-timeline", title, [line], text=text, width=width)
    names = {str(value): {"text": name, "index": value} for value, name in enumerate(states)}
    made["fieldConfig"]["defaults"]["mappings"] = [{"type": "value", "options": names}]
    return made


def quantiles(metric: str, by: str = "", *, picked: str = "", window: str = "2m") -> list[Line]:
    """Median, 95th and 99th percentile of a histogram.

    Args:
        by: A label to keep, or empty.
        picked: A label selector.
    """
    keep = f"le, {by}" if by else "le"
    named = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({keep}) (rate({metric}_bucket{{{picked}}}[{window}]))"
    return [Line(f"histogram_quantile({q}, {rate})", f"p{round(q * 100)}{named}") for q in (0.5, 0.95, 0.99)]


def dashboard(uid: str, title: str, panels: Sequence[Json], *, variables: Sequence[Json] = ()) -> Json:
    """A dashboard; panels flow from left to right and wrap."""
    x = y = height = 0
    for at, made in enumerate(panels, start=1):
        place = made["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, height = 0, y + height, 0
        made["id"] = at
        place |= {"x": x, "y": y}
        x, height = x + place["w"], max(height, place["h"])
    return {
        "uid": uid,
        "title": title,
        "tags": ["kev"],
        "timezone": "browser",
        "schemaVersion": 41,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": list(variables)},
        "links": [{"type": "dashboards", "tags": ["kev"], "title": "Kev", "asDropdown": True}],
        "panels": list(panels),
    }


def variable(name: str, query: str) -> Json:
    """A variable with the values of a label: ``label_values(metric, label)``."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }
