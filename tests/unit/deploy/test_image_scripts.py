"""The small programs inside the images."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from deploy_tools import DEPLOY, ROOT

from kev.bus.nats.server import LocalNats, find_server
from kev.config.settings import TlsSettings
from kev.domain.errors import BusUnavailable
from kev.tokens.tokenizer import Tokenizer
from kev.wire.serving import GrpcHost
from kev.wire.tls import target_of

IMAGES = DEPLOY / "images"
USERS = ("router", "inference", "aggregator", "operator", "grafana")


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def certificate(folder: Path, name: str) -> TlsSettings:
    issued = trustme.CA().issue_cert(name)
    tls = TlsSettings(cert=str(folder / "cert.pem"), key=str(folder / "key.pem"))
    issued.private_key_pem.write_to_path(tls.key)
    issued.cert_chain_pems[0].write_to_path(tls.cert)
    return tls


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder of volumes, and the program beside the broker's users, as in its image."""
    for name in ("nats", *USERS):
        (tmp_path / "volumes" / name).mkdir(parents=True)
    for source in (IMAGES / "passwords.py", DEPLOY / "nats" / "users.conf"):
        (tmp_path / source.name).write_text(source.read_text())
    return tmp_path


def passwords(folder: Path, *arguments: str) -> dict[str, str]:
    done = run(sys.executable, folder / "passwords.py", folder / "volumes", *arguments)
    assert done.returncode == 0, done.stderr
    return {user: (folder / "volumes" / user / "password").read_text() for user in USERS}


def test_passwords_are_made_once_and_differ(secrets: Path):
    first = passwords(secrets)
    assert len(set(first.values())) == len(USERS)
    assert min(map(len, first.values())) > 60
    assert passwords(secrets) == first
    renewed = passwords(secrets, "--renew")
    assert not set(renewed.values()) & set(first.values())


def test_one_password_can_be_shown(secrets: Path):
    made = passwords(secrets)
    done = run(sys.executable, secrets / "passwords.py", secrets / "volumes", "--show", "grafana")
    assert done.stdout.strip() == made["grafana"]


def test_the_broker_takes_the_users_file_that_is_made(secrets: Path):
    made = passwords(secrets)
    users = secrets / "volumes" / "nats" / "users.conf"
    assert made["router"] in users.read_text()
    assert made["grafana"] not in users.read_text()
    try:
        find_server()
    except BusUnavailable as error:
        pytest.skip(str(error))
    with LocalNats(secrets / "broker", include=users) as server:
        assert server.pid


def test_the_vocabulary_alone_is_the_same_tokenizer(default_model: Path, tmp_path: Path):
    small = tmp_path / "vocabulary.gguf"
    done = run(sys.executable, IMAGES / "vocabulary.py", default_model, small)
    assert done.returncode == 0, done.stderr
    assert small.stat().st_size < default_model.stat().st_size / 20
    whole, cut = Tokenizer.load(default_model), Tokenizer.load(small)
    assert cut.digest == whole.digest
    assert cut.encode_text("Wo ist meine Karte? 我的卡在哪里") == whole.encode_text("Wo ist meine Karte? 我的卡在哪里")


def test_a_password_in_a_file_becomes_a_setting(tmp_path: Path):
    file = tmp_path / "password"
    file.write_text("word of many letters\n")
    done = run(
        IMAGES / "start", "sh", "-c", 'echo "$KEV_BUS_PASSWORD|${BUS_PASSWORD_FILE:-gone}"', BUS_PASSWORD_FILE=str(file)
    )
    assert done.stdout.strip() == "word of many letters|gone"


def test_a_password_file_that_is_missing_stops_the_start(tmp_path: Path):
    done = run(IMAGES / "start", "echo", "started", BUS_PASSWORD_FILE=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "BUS_PASSWORD_FILE" in done.stderr
    assert "started" not in done.stdout


@pytest.mark.parametrize("encrypted", [False, True])
async def test_health_follows_the_service(tmp_path: Path, encrypted: bool):
    tls = certificate(tmp_path, "kev.example") if encrypted else TlsSettings()
    host = GrpcHost("127.0.0.1:0", ["kev.v1.RouterService"], tls)
    address, _ = target_of(await host.start())

    async def ask() -> int:
        environment = {**os.environ, "KEV_TLS_CERT": tls.cert}
        command = [sys.executable, str(IMAGES / "health"), address]
        return await (await asyncio.create_subprocess_exec(*command, env=environment)).wait()

    try:
        assert await ask() == 1
        await host.set_serving(True)
        assert await ask() == 0
    finally:
        await host.stop(0)
    assert await ask() == 1


@pytest.mark.parametrize(("line", "code"), [("HTTP/1.1 200 OK", 0), ("HTTP/1.1 503 Service Unavailable", 1), ("", 1)])
async def test_health_over_http(line: str, code: int):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{line}\r\n\r\n".encode() if line else b"")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/healthz"
        child = await asyncio.create_subprocess_exec(sys.executable, str(IMAGES / "health"), url)
        assert await child.wait() == code


def test_images_are_built_from_what_they_need_only():
    """What the build sees is listed by name: no data, no virtual environment, no secrets."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line for line in lines if line.startswith("!")} >= {"!kev", "!router_svc", "!constraints.txt"}
    for line in (IMAGES / "Dockerfile").read_text().splitlines():
        assert not line.startswith("COPY . ")
        assert ":latest" not in line


def test_the_files_that_an_image_packs_the_model_with_are_enough(tmp_path: Path):
    """The layer holds only what kernels and weights are made from; an import beyond that would break the build."""
    lines = (IMAGES / "Dockerfile").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("# Kernels for every instruction set"))
    end = next(number for number, line in enumerate(lines) if "inference_svc.backends.native.build" in line)
    for _, *sources, target in (line.split() for line in lines[begin:end] if line.startswith("COPY")):
        for source in sources:
            _copy_into(tmp_path, source, target)
    program = (
        "import sys, runpy\n"
        "sys.path[:] = [p for p in sys.path if p != sys.argv[1]]\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in str(finder).lower()]\n"
        "import inference_svc.backends.native.build\n"
        "runpy.run_path('deploy/images/pack.py', run_name='imported')\n"
        "ours = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] in ('kev', 'inference_svc')]\n"
        "print(*ours, sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert all(Path(file).is_relative_to(tmp_path) for file in done.stdout.split())


def _copy_into(folder: Path, source: str, target: str) -> None:
    """As COPY does: a folder's content, a file into a folder or under a name."""
    place = folder / target
    if (ROOT / source).is_dir():
        shutil.copytree(ROOT / source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    elif target.endswith("/"):
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, place)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, place)
