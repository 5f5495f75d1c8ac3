"""Recording rules and alerts: promtool runs their tables, and a wrong rule is noticed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from deploy_tools import DEPLOY, ROOT, promtool

PROMETHEUS = DEPLOY / "prometheus"


def alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load((PROMETHEUS / "rules" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_and_alerts_do_what_their_tables_say():
    done = promtool("test", "rules", "tests/rules_test.yml", "tests/alerts_test.yml", folder=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("alerts.yml", "> 0.3", "> 0.6"),
        ("alerts.yml", "> 2 * kev:other_buckets", "> 5 * kev:other_buckets"),
        ("kev.yml", "clamp_max(max(kev_router_hash_buckets), 64)", "3"),
        ("kev.yml", '{channel=~".+/.+"}', ""),
    ],
)
def test_the_tables_notice_a_wrong_rule(tmp_path: Path, file: str, right: str, wrong: str):
    folder = tmp_path / "prometheus"
    shutil.copytree(PROMETHEUS, folder)
    rules = folder / "rules" / file
    assert right in rules.read_text()
    rules.write_text(rules.read_text().replace(right, wrong))
    done = promtool("test", "rules", "tests/rules_test.yml", "tests/alerts_test.yml", folder=folder)
    assert done.returncode != 0


def test_the_scrape_configuration_is_valid():
    done = promtool("check", "config", "--syntax-only", "prometheus.yml", folder=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_explained_to_the_operator():
    tables = (PROMETHEUS / "tests" / "alerts_test.yml").read_text()
    page = (ROOT / "docs" / "operations.md").read_text()
    for alert in alerts():
        assert re.search(rf"alertname: {alert['alert']}\b", tables), f"{alert['alert']} has no test"
        assert f"`{alert['alert']}`" in page, f"{alert['alert']} is not on the operations page"
        assert alert["labels"]["severity"] in ("warning", "critical")  # type: ignore[index]


def test_every_series_that_the_rules_read_exists():
    """Names in rules and in code must not drift apart."""
    import aggregator_svc.metrics
    import router_svc.metrics
    from inference_svc.metrics import WorkerMetrics

    assert aggregator_svc.metrics
    assert router_svc.metrics
    from prometheus_client import REGISTRY

    known = {name for registry in (REGISTRY, WorkerMetrics(4, 16).registry) for name in series(registry)}
    text = "".join((PROMETHEUS / "rules" / name).read_text() for name in ("kev.yml", "alerts.yml"))
    read = set(re.findall(r"\bkev_[a-z_0-9]+", text))
    assert read
    assert read <= known, f"nobody exports {sorted(read - known)}"


def series(registry: object) -> set[str]:
    """Every sample name that a registry can export."""
    return set(registry._names_to_collectors)  # type: ignore[attr-defined]
