"""Runs a program that dies with its parent, also when the parent is killed.

Run as a script: ``python exec_bound.py PARENT_PID PROGRAM [ARGUMENT ...]``. It
asks the kernel for a signal at the parent's death (Linux; elsewhere only the
orderly stop works) and then *becomes* the program: same process id.

A wrapper and not a ``preexec_fn``, because that would run Python between fork
and exec in a process that has threads.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def bound_command(program: str, *arguments: str) -> list[str]:
    """The command line that runs ``program`` bound to this process.

    The kernel watches the *thread* that starts the child: start it from one
    that lives as long as the process, i.e. the main thread.
    """
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), program, *arguments]


def _die_with(parent_pid: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:
            raise SystemExit("the parent died before the program started")


if __name__ == "__main__":
    _die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
