"""The Helm chart: rendered by Helm's own engine, checked against the schemas of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploy_tools import DEPLOY

from kev.config.load import load_settings

INSTALL = "pip install -r deploy/helm/requirements.txt"
helm = pytest.importorskip("helm_python", reason=f"the Helm engine is not installed: {INSTALL}")
schemas = pytest.importorskip("kubernetes_validate", reason=f"no schemas of Kubernetes: {INSTALL}")
CHART = DEPLOY / "helm" / "kev"
KUBERNETES = ("1.33", "1.37")
OTHERS = {"ScaledObject", "PodMonitor", "PrometheusRule"}
"""Kinds of KEDA and of the Prometheus operator, whose schemas Kubernetes does not have."""
PRODUCTION = ("values-production.yaml",)
GPU = ("values-production.yaml", "values-gpu.yaml")
Object = dict[str, Any]


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(CHART) as loaded:
        yield loaded


def merged(base: Object, top: Object) -> Object:
    both = dict(base)
    for key, value in top.items():
        inner = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if inner else value
    return both


def rendered(chart: Any, *files: str, **values: Any) -> list[Object]:
    given: Object = {}
    for file in files:
        given = merged(given, yaml.safe_load((CHART / file).read_text()))
    made = chart.render(values=merged(given, values), name="kev")
    texts = [text for name, text in made.items() if not name.endswith("NOTES.txt")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def pick(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod(found: Object) -> Object:
    return found["spec"]["template"]["spec"]


def workloads(objects: list[Object]) -> list[Object]:
    return [each for each in objects if each["kind"] in ("Deployment", "StatefulSet")]


@pytest.mark.parametrize("files", [(), PRODUCTION, GPU], ids=["one node", "production", "gpu"])
def test_every_object_is_valid_for_kubernetes(chart: Any, files: tuple[str, ...]):
    objects = rendered(chart, *files)
    assert len(objects) >= 10
    checked = 0
    for each in objects:
        for version in KUBERNETES if each["kind"] not in OTHERS else ():
            schemas.validate(each, version, strict=True)
            checked += 1
    assert checked >= 2 * 10


def test_helm_itself_has_no_complaint():
    report = helm.lint(CHART)
    assert "[ERROR]" not in str(report)


@pytest.mark.parametrize("files", [(), PRODUCTION], ids=["one node", "production"])
def test_no_container_runs_as_root_or_writes_its_root(chart: Any, files: tuple[str, ...]):
    for each in workloads(rendered(chart, *files)):
        spec = pod(each)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)


def test_the_configuration_is_one_that_the_services_take(chart: Any, tmp_path: Any):
    for files in ((), PRODUCTION):
        config = pick(rendered(chart, *files), "ConfigMap", "kev-config")
        file = tmp_path / "kev.yaml"
        file.write_text(config["data"]["kev.yaml"])
        settings = load_settings(file, environment={})
        assert settings.router.aggregator == "kev-aggregator:50052"
        assert settings.deploy.mode == "distributed"
        assert settings.log.format == "json"
        assert settings.bus.replicas == (3 if files else 1)


def test_passwords_are_made_for_each_user_and_never_written_into_values(chart: Any):
    first, second = (pick(rendered(chart), "Secret", "kev-bus")["data"] for _ in range(2))
    assert set(first) == {"router", "inference", "aggregator", "operator"}
    assert len(set(first.values())) == 4
    assert first != second
    assert not [each for each in rendered(chart, *PRODUCTION) if each["kind"] == "Secret"]


def test_workers_keep_their_ids_and_have_time_to_drain(chart: Any):
    worker = pick(rendered(chart), "StatefulSet", "kev-inference")
    assert worker["spec"]["podManagementPolicy"] == "Parallel"
    assert pod(worker)["terminationGracePeriodSeconds"] >= 30


def test_gpu_values_put_workers_on_gpu_nodes(chart: Any):
    objects = rendered(chart, *GPU)
    spec = pod(pick(objects, "StatefulSet", "kev-inference"))
    (container,) = spec["containers"]
    assert container["image"].endswith("kev-inference:0.1.0-gpu")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert {"name": "KEV_CORE_DEVICE", "value": "cuda"} in container["env"]
    (router,) = pod(pick(objects, "Deployment", "kev-router"))["containers"]
    assert router["image"].endswith("kev-router:0.1.0")


def test_production_scales_by_queue_depth_and_leaves_the_number_to_the_scaler(chart: Any):
    objects = rendered(chart, *PRODUCTION)
    scaler = pick(objects, "ScaledObject", "kev-inference")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "kev-inference"
    assert scaler["minReplicaCount"] < scaler["maxReplicaCount"]
    assert "kev_router_queued_questions" in scaler["triggers"][0]["metadata"]["query"]
    assert "replicas" not in pick(objects, "StatefulSet", "kev-inference")["spec"]


def test_production_survives_the_loss_of_one_pod_of_each(chart: Any):
    objects = rendered(chart, *PRODUCTION)
    for name in ("router", "aggregator", "gateway"):
        assert pick(objects, "Deployment", f"kev-{name}")["spec"]["replicas"] >= 2
    budgets = {each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"}
    assert budgets == {"kev-router", "kev-aggregator", "kev-inference", "kev-gateway"}


def test_policies_let_each_service_reach_its_neighbours_only(chart: Any):
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), {"networkPolicy": {"enabled": True}})
    policies = {
        each["metadata"]["name"]: each["spec"] for each in rendered(chart, **values) if each["kind"] == "NetworkPolicy"
    }
    assert set(policies) == {f"kev-{name}" for name in ("router", "aggregator", "inference", "gateway", "nats")}
    out = {
        name: sorted(port["port"] for rule in spec["egress"] for port in rule["ports"])
        for name, spec in policies.items()
    }
    assert out["kev-inference"] == [53, 53, 4222]
    assert out["kev-gateway"] == [53, 53, 50051]
    assert out["kev-nats"] == []
    (into_nats,) = policies["kev-nats"]["ingress"]
    parts = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in into_nats["from"]}
    assert parts == {"router", "aggregator", "inference"}


def test_policies_let_spans_out_where_a_collector_is_named(chart: Any):
    collector = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    policies = {
        each["metadata"]["name"]: each["spec"]["egress"]
        for each in rendered(chart, networkPolicy={"enabled": True, "collector": collector})
        if each["kind"] == "NetworkPolicy"
    }
    spans = {"to": collector, "ports": [{"port": 4318}]}
    assert {name for name, egress in policies.items() if spans in egress} == set(policies) - {"kev-nats"}


def test_rules_users_and_dashboards_are_those_of_the_compose_deployment(chart: Any):
    objects = rendered(chart, *PRODUCTION)
    rules = pick(objects, "PrometheusRule", "kev")["spec"]["groups"]
    files = [yaml.safe_load(file.read_text()) for file in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))]
    assert rules == [group for file in files for group in file["groups"]]
    boards = [each for each in objects if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(boards) == 3
    users = pick(rendered(chart), "ConfigMap", "kev-nats")["data"]["users.conf"]
    assert users.strip() == (DEPLOY / "nats" / "users.conf").read_text().strip()


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"inference": {"replicaz": 3}}, "replicaz"),
        ({"inference": {"device": "tpu"}}, "device"),
        ({"router": {"replicas": 0}}, "replicas"),
        ({"nats": {"embedded": False}}, "nats.url"),
        ({"config": {"bus": {"replicas": 3}}}, "config.bus.replicas"),
    ],
)
def test_a_bad_value_is_refused_by_name(chart: Any, values: Object, names: str):
    with pytest.raises(helm.HelmError, match=names.replace(".", r"\.")):
        rendered(chart, **values)
