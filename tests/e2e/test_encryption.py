"""A cluster that encrypts, as a user starts it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trustme
from cluster_lab import SMALL, child_with, kev_process, kev_run, sets

import kev

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


def test_a_cluster_with_a_certificate_answers_encrypted_also_after_a_restart(
    default_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, ca = trustme.CA(), str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    pair = str(tmp_path / "pair.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pair)
    flags = {
        **SMALL,
        "tls.cert": pair,
        "tls.key": pair,
        "tls.ca": ca,
        "router.listen": "127.0.0.1:0",
        "aggregator.listen": "127.0.0.1:0",
        "bus.url": "nats://127.0.0.1:0",
    }
    with kev_process("up", *sets(flags)) as up:
        at = up.ready()
        for name in ("router", "aggregator"):
            assert at[name].startswith("tls://127.0.0.1:")
        with kev.Client(at["router"], aggregator=at["aggregator"], ca=ca, retries=10) as client:
            request_id = client.submit(["Name a river."], max_tokens=4)
            assert [result.status for result in client.wait(request_id, timeout=60)] == ["answered"]
            os.kill(child_with(up.pid, "router_svc"), signal.SIGKILL)
            up.wait_for_line("router     | is ready again")
            request_id = client.submit(["Name a river."], max_tokens=4)
            assert [result.status for result in client.wait(request_id, timeout=60)] == ["answered"]
        stranger = kev_run("ask", "--router", at["router"], "Name a river.")
        assert stranger.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in stranger.stderr
        assert all(line.startswith("error: ") for line in stranger.stderr.splitlines())
        monkeypatch.setenv("KEV_TLS_CA", ca)
        assert kev_run("ask", "--router", at["router"], "--max-tokens", "4", "Name a river.").returncode == 0
        assert kev_run("ask", "--router", at["router"].removeprefix("tls://"), "Name a river.").returncode == 1
