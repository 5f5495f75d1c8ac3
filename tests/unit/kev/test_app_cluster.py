"""Supervision of a local cluster's processes, tried with small programs in place of the services."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kev.app.cluster.backoff import Backoff
from kev.app.cluster.child import Child, ChildDied, Spec, how_it_ended
from kev.app.cluster.keeper import Keeper

READY = 'print("fake ready address=127.0.0.1:77", flush=True)'


class Log(list[tuple[str, str]]):
    """Collects what is said; ``seen`` waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.append((name, line))
        self._news.set()

    async def seen(self, part: str) -> str:
        while True:
            for _, line in self:
                if part in line:
                    return line
            self._news.clear()
            await self._news.wait()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(body: str, **options: object) -> Spec:
        (tmp_path / "fake_service.py").write_text(textwrap.dedent(body))
        return Spec(name="fake", module="fake_service", **options)  # type: ignore[arg-type]

    return make


def test_pauses_grow_and_a_long_life_resets_them() -> None:
    backoff = Backoff(first_s=1, most_s=5, calm_s=60)
    assert [backoff.after(0.1) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert [backoff.after(61), backoff.after(0.1), backoff.after(0.1)] == [1, 2, 4]


async def test_a_child_is_ready_when_it_says_so_and_its_log_is_passed_on(spec) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    body = f"import sys, time\nprint('hello', file=sys.stderr)\n{READY}\nprint('after')\ntime.sleep(60)"
    child = Child(spec(body), log)
    assert await child.start() == {"service": "fake", "address": "127.0.0.1:77"}
    await log.seen("hello")
    await log.seen("after")
    assert ("fake", "fake ready address=127.0.0.1:77") not in log
    await child.stop()
    assert await child.ended() == -signal.SIGTERM


async def test_a_child_that_cannot_start_says_why_in_one_line(spec) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    body = "import sys\nsys.stderr.write('error: cannot listen on 127.0.0.1:1\\n')\nsys.exit(1)"
    with pytest.raises(ChildDied, match=r"^fake did not start: cannot listen on 127\.0\.0\.1:1$"):
        await Child(spec(body), log).start()
    assert log == []
    with pytest.raises(ChildDied, match=r"^fake did not start: it ended with exit code 3$"):
        await Child(spec("import sys; sys.exit(3)"), log).start()


async def test_a_child_that_does_not_end_is_killed(spec) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    body = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\ntime.sleep(60)"
    child = Child(spec(body, drain_s=0.2), log)
    await child.start()
    await child.stop()
    assert await child.ended() == -signal.SIGKILL
    await log.seen("does not end within 0.2 s: killed")


async def test_a_very_long_line_does_no_harm(spec) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    body = f"import sys, time\nsys.stderr.write('x' * 3_000_000 + '\\nshort\\n')\n{READY}\ntime.sleep(60)"
    child = Child(spec(body), log)
    await child.start()
    await log.seen("short")
    await child.stop()


async def test_a_keeper_starts_a_dead_service_again_where_it_was(spec, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    body = f"import sys, time\nprint('flags', sys.argv[1:], file=sys.stderr)\n{READY}\ntime.sleep(60)"
    keeper = Keeper(spec(body), log, pin=lambda facts: {"router.listen": facts["address"]})
    await keeper.start()
    first = keeper.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await log.seen("is ready again")
    assert "it was ended by SIGKILL; starts again in 0.5 s" in [line for _, line in log]
    assert "router.listen=127.0.0.1:77" in await log.seen("'--set'")
    assert keeper.restarts == 1
    assert keeper.pid != first
    await keeper.stop()


async def test_a_stopped_keeper_starts_nothing(spec) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    keeper = Keeper(spec(f"import time\n{READY}\ntime.sleep(60)"), log)
    await keeper.start()
    await keeper.stop()
    assert not [line for _, line in log if "again" in line]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "fake_service.py").write_text(f"import time\n{READY}\ntime.sleep(600)")
    parent = textwrap.dedent("""
        import asyncio
        from kev.app.cluster.child import Child, Spec

        async def main():
            child = Child(Spec("fake", "fake_service"), print)
            await child.start()
            print(child.pid, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    watch = os.pidfd_open(child)
    process.kill()
    process.wait()
    process.stdout.close()
    import select

    assert select.select([watch], [], [], 30)[0], "the child outlived its parent"
    os.close(watch)


def test_an_exit_code_in_words() -> None:
    assert how_it_ended(3) == "it ended with exit code 3"
    assert how_it_ended(-9) == "it was ended by SIGKILL"
    assert how_it_ended(-200) == "it was ended by signal 200"
