"""The compose file: what an operator relies on, read from the file itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from deploy_tools import DEPLOY, ROOT

from kev.config.load import SECTIONS, load_settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LASTING = sorted(set(SERVICES) - {"secrets"})


def test_the_services_of_a_whole_cluster_are_there():
    wanted = {"nats", "router", "inference", "inference-gpu", "aggregator", "gateway", "prometheus", "grafana"}
    assert set(LASTING) == wanted
    assert SERVICES["inference-gpu"]["profiles"] == ["gpu"]
    assert [name for name in LASTING if "profiles" in SERVICES[name]] == ["inference-gpu"]


@pytest.mark.parametrize("name", LASTING)
def test_a_service_is_bound_in_what_it_may_do_and_take(name: str):
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\$\{MEMORY_[A-Z]+:-\d+[mg]\}", service["mem_limit"])
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", LASTING)
def test_a_service_starts_after_those_it_needs_are_healthy(name: str):
    needs = SERVICES[name]["depends_on"]
    assert needs
    conditions = {need["condition"] for need in needs.values()}
    assert conditions <= {"service_healthy", "service_completed_successfully"}


def test_ports_are_published_on_this_machine_only():
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert all(port.startswith("${PUBLISH_BIND:-127.0.0.1}:") for port in published)


def test_only_those_that_use_the_broker_reach_it():
    assert COMPOSE["networks"]["bus"] == {"internal": True}
    on_bus = {name for name in LASTING if "bus" in SERVICES[name]["networks"]}
    assert on_bus == {"nats", "router", "inference", "inference-gpu", "aggregator"}


def test_each_service_has_its_own_password_and_none_is_written_down():
    mounts = {name: [m for m in SERVICES[name].get("volumes", []) if m.startswith("secrets-")] for name in LASTING}
    for name in ("router", "aggregator", "inference", "nats", "grafana"):
        assert mounts[name] == [f"secrets-{name}:/run/kev:ro"]
    assert mounts["inference-gpu"] == mounts["inference"]
    assert not re.search(r"password\s*[:=]\s*['\"]?\w{3,}", (ROOT / "docker-compose.yml").read_text(), re.IGNORECASE)


def test_variables_that_are_handed_on_are_settings():
    for variable in COMPOSE["x-settings"]:
        _, section, key = variable.lower().split("_", 2)
        assert key in SECTIONS[section].model_fields, variable


def test_the_configuration_is_one_that_the_services_take():
    settings = load_settings(DEPLOY / "kev.yaml", environment={})
    assert settings.bus.url == "nats://nats:4222"
    assert settings.router.aggregator == "aggregator:50052"


def test_encryption_is_settings_and_addresses_that_the_services_take():
    services = yaml.safe_load((DEPLOY / "compose.tls.yml").read_text())["services"]
    assert set(services) <= set(SERVICES)
    for name, service in services.items():
        load_settings(DEPLOY / "kev.yaml", environment=service["environment"])
        mounted = [volume.rpartition("}")[2].split(":")[1] for volume in service["volumes"]]
        assert all(path.startswith("/run/tls") for path in (*service["environment"].values(), *mounted)), name
    assert services["gateway"]["command"][-1] == "tls://router:50051"
    plain = [*services["gateway"]["command"][:-1], "router:50051"]
    assert f"CMD {json.dumps(plain)}" in (DEPLOY / "images" / "Dockerfile").read_text()


@pytest.mark.parametrize("files", [(), ("-f", "docker-compose.yml", "-f", "deploy/compose.tls.yml")])
def test_compose_itself_takes_the_file(files: tuple[str, ...]):
    command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    if shutil.which(command[0]) is None:
        pytest.skip("neither docker-compose nor docker is installed")
    if subprocess.run([*command, "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("docker is installed without compose")
    done = subprocess.run(
        [*command, *files, "config", "--quiet"],
        env={**os.environ, "TLS_DIR": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
