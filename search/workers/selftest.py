"""Misbehaviour on request, to test what guards against it; needs ``STRIDESMITH_SELFTEST=1``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from .protocol import Failed, SelfTest, Tested


def run(job: SelfTest, tick: Callable[[], None]) -> Tested | Failed:
    """Do what the job says; the reply of those that return."""
    if os.environ.get("STRIDESMITH_SELFTEST") != "1":
        return Failed(status="refused", message="selftest jobs need STRIDESMITH_SELFTEST=1 in the environment")
    if job.what not in ACTIONS:
        return Failed(status="refused", message=f"unknown selftest `{job.what}`; there are {', '.join(ACTIONS)}")
    for _ in range(job.ticks):
        time.sleep(job.tick_seconds)
        tick()
    return ACTIONS[job.what](job)


def _ping(job: SelfTest) -> Tested:
    return Tested(pid=os.getpid(), echo=job.echo)


def _sleep(job: SelfTest) -> Tested:
    time.sleep(job.seconds)
    return _ping(job)


def _segfault(job: SelfTest) -> Tested:
    ctypes.memset(8, 0, 1)
    return _ping(job)


def _signal(job: SelfTest) -> Tested:
    os.kill(os.getpid(), signal.Signals[job.signal])
    return _ping(job)


def _exit(job: SelfTest) -> Tested:
    os._exit(job.code)


def _hang(job: SelfTest) -> Tested:
    """Never returns, holds the interpreter's lock and does not listen to SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    ctypes.PyDLL(None).sleep(3600)
    return _ping(job)


def _hang_with_child(job: SelfTest) -> Tested:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(job.pid_file, "w") as file:
        file.write(str(child.pid))
    return _hang(job)


def _oom(job: SelfTest) -> Tested:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (64 << 20))


def _abort_for_memory(job: SelfTest) -> Tested:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def _print(job: SelfTest) -> Tested:
    os.write(1, b'{"status": "forged"}\n')
    print('{"status": "forged"}', flush=True)
    return _ping(job)


def _modules(job: SelfTest) -> Tested:
    return Tested(pid=os.getpid(), modules=tuple(sorted(name for name in sys.modules if "." not in name)))


def _environment(job: SelfTest) -> Tested:
    return Tested(pid=os.getpid(), environment=dict(os.environ))


ACTIONS: dict[str, Callable[[SelfTest], Tested]] = {
    "ping": _ping, "sleep": _sleep, "segfault": _segfault, "signal": _signal, "exit": _exit, "hang": _hang,
    "hang_with_child": _hang_with_child, "oom": _oom, "abort_for_memory": _abort_for_memory, "print": _print,
    "modules": _modules, "environment": _environment,
}  # fmt: skip
