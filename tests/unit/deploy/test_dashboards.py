"""The dashboards: written from their source, and every series that they read exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deploy_tools import DEPLOY
from prometheus_client import REGISTRY

import aggregator_svc.metrics
import kev.app.http.metrics
import router_svc.metrics
from inference_svc.metrics import WorkerMetrics

GRAFANA = DEPLOY / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
USED = (aggregator_svc.metrics, router_svc.metrics, kev.app.http.metrics)


def panels(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["panels"]
    return found


def queries(file: Path) -> list[str]:
    return [target["expr"] for panel in panels(file) for target in panel["targets"]]


def test_the_files_are_those_of_the_source():
    done = subprocess.run(
        [sys.executable, str(GRAFANA / "build.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_there_is_a_dashboard_for_each_of_the_operators_questions():
    titles = {json.loads(file.read_text())["title"] for file in FILES}
    assert titles == {"Kev: overview", "Kev: hot buckets", "Kev: one worker"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_series_that_is_read_exists(file: Path):
    exported = {
        name for registry in (REGISTRY, WorkerMetrics(4, 16).registry) for name in registry._names_to_collectors
    }
    recorded = set(re.findall(r"record: (\S+)", (DEPLOY / "prometheus" / "rules" / "kev.yml").read_text()))
    text = " ".join(queries(file))
    assert set(re.findall(r"\bkev_[a-z_0-9]+", text)) <= exported
    assert set(re.findall(r"\bkev:[a-z_0-9:]+", text)) <= recorded


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_lie_side_by_side_and_explain_themselves(file: Path):
    taken: set[tuple[int, int]] = set()
    for panel in panels(file):
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "kev-prometheus"


def test_grafana_is_told_where_they_are():
    source = (GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text()
    assert "uid: kev-prometheus" in source
    assert "path: /etc/grafana/dashboards" in (GRAFANA / "provisioning" / "dashboards" / "kev.yml").read_text()
