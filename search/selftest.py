"""Misbehaviour on request, to test what guards against it; needs ``STRIDESMITH_SELFTEST=1``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .process import failure


def run(job: dict[str, Any], tick: Callable[[], None]) -> dict[str, Any]:
    """Do ``job["what"]``; the reply of those that return."""
    if os.environ.get("STRIDESMITH_SELFTEST") != "1":
        return failure("refused", "selftest jobs need STRIDESMITH_SELFTEST=1 in the environment")
    what = str(job["what"])
    if what not in ACTIONS:
        return failure("refused", f"unknown selftest `{what}`; there are {', '.join(ACTIONS)}")
    for _ in range(int(job.get("ticks", 0))):
        time.sleep(float(job["tick_seconds"]))
        tick()
    return ACTIONS[what](job)


def _ping(job: dict[str, Any]) -> dict[str, Any]:
    return {"status": "ok", "pid": os.getpid(), "echo": job.get("echo")}


def _sleep(job: dict[str, Any]) -> dict[str, Any]:
    time.sleep(float(job["seconds"]))
    return _ping(job)


def _segfault(job: dict[str, Any]) -> dict[str, Any]:
    ctypes.memset(8, 0, 1)
    return _ping(job)


def _signal(job: dict[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.Signals[str(job["signal"])])
    return _ping(job)


def _exit(job: dict[str, Any]) -> dict[str, Any]:
    os._exit(int(job["code"]))


def _hang(job: dict[str, Any]) -> dict[str, Any]:
    """Never returns, holds the interpreter's lock and does not listen to SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    ctypes.PyDLL(None).sleep(3600)
    return _ping(job)


def _hang_with_child(job: dict[str, Any]) -> dict[str, Any]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(str(job["pid_file"]), "w") as file:
        file.write(str(child.pid))
    return _hang(job)


def _oom(job: dict[str, Any]) -> dict[str, Any]:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (64 << 20))


def _abort_for_memory(job: dict[str, Any]) -> dict[str, Any]:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def _print(job: dict[str, Any]) -> dict[str, Any]:
    os.write(1, b'{"status": "forged"}\n')
    print('{"status": "forged"}', flush=True)
    return _ping(job)


def _modules(job: dict[str, Any]) -> dict[str, Any]:
    return {"status": "ok", "modules": sorted(name for name in sys.modules if "." not in name)}


def _environment(job: dict[str, Any]) -> dict[str, Any]:
    return {"status": "ok", "environment": dict(os.environ)}


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ping": _ping, "sleep": _sleep, "segfault": _segfault, "signal": _signal, "exit": _exit, "hang": _hang,
    "hang_with_child": _hang_with_child, "oom": _oom, "abort_for_memory": _abort_for_memory, "print": _print,
    "modules": _modules, "environment": _environment,
}  # fmt: skip
