"""What importing pulls in, seen from fresh interpreters: services stay apart, and torch stays in its place."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SERVICES = ("router_svc", "inference_svc", "aggregator_svc")


def modules_after(code: str) -> set[str]:
    """Names in ``sys.modules`` after ``code`` in a fresh interpreter."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("service", ["router_svc", "aggregator_svc"])
def test_router_and_aggregator_load_neither_torch_nor_another_service(service: str) -> None:
    found = modules_after(f"import pkgutil, importlib, {service}\n{IMPORT_ALL.format(service)}")
    assert f"{service}.__main__" in found
    assert not {"torch", "transformers"} & found
    assert not {name for name in found if name.split(".")[0] in SERVICES and name.split(".")[0] != service}


IMPORT_ALL = "for found in pkgutil.walk_packages({0}.__path__, '{0}.'):\n    importlib.import_module(found.name)"


def test_kev_alone_loads_next_to_nothing() -> None:
    found = modules_after("import kev")
    assert not {name for name in found if name.startswith("kev.")}
    assert not {"grpc", "torch", "pydantic"} & found


def test_the_client_needs_no_service_and_no_torch() -> None:
    found = modules_after("import kev; kev.Client, kev.AsyncClient")
    assert not {"torch", *SERVICES} & found


def test_the_command_line_starts_without_torch_or_services() -> None:
    found = modules_after("import kev.app.cli.main")
    assert not {"torch", "transformers", "fastapi", *SERVICES} & found


def test_a_native_worker_needs_no_torch() -> None:
    found = modules_after("import inference_svc.__main__, inference_svc.backends.native")
    assert "inference_svc.backends.native.backend" in found
    assert not {"torch", "transformers"} & found


def test_a_wrong_name_is_an_attribute_error() -> None:
    import kev

    assert {"Engine", "Client", "AsyncClient"} <= set(dir(kev))
    with pytest.raises(AttributeError, match="module 'kev' has no attribute 'Nothing'"):
        kev.Nothing  # noqa: B018
