"""Programs that some tests of this folder need, and what to do where they are missing."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
PROMETHEUS_IMAGE = "prom/prometheus:v3.5.0"


@functools.cache
def has_image(name: str) -> bool:
    """Whether a container engine answers and holds the image."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "image", "inspect", name], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs promtool in a folder: that beside this Python or on the PATH, else the Prometheus image's. Skips where
    there is none."""
    if found := shutil.which("promtool", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        command = [found, *arguments]
    elif has_image(PROMETHEUS_IMAGE):
        inside = ["--volume", f"{folder}:/rules:ro", "--workdir", "/rules", "--entrypoint", "promtool"]
        command = ["docker", "run", "--rm", "--network", "none", *inside, PROMETHEUS_IMAGE, *arguments]
    else:
        pytest.skip(f"no promtool: install Prometheus (Debian: prometheus), or have the image {PROMETHEUS_IMAGE}")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
