"""Children that are forked while other threads compute: they compute too, or say why they cannot, and never hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import stridesmith as ss
from stridesmith import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SCALED = """
@T.prim_func
def scaled(a: T.Buffer((8,), "float32"), n: T.int32, b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi] * T.Cast("float32", n)
"""


def in_child(work: Callable[[], bool]) -> int:
    """The exit code of a child that does some work: 0 where it gives True; 10 s are far too long for it."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            import signal

            signal.alarm(10)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def elsewhere(enter: Callable[[threading.Event, threading.Event], None]) -> Iterator[threading.Event]:
    """Another thread that is amid something until the event is set."""
    inside, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=enter, args=(inside, over))
    thread.start()
    assert inside.wait(10)
    yield over
    over.set()
    thread.join()


def test_a_kernel_that_another_thread_calls() -> None:
    """The lock that orders calls which convert something is free in a child."""
    func = ss.parse(SCALED)
    assert isinstance(func, ss.PrimFunc)
    kernel, a = ss.build(func, "cpu"), np.ones(8, np.float32)

    def amid(inside: threading.Event, over: threading.Event) -> None:
        with kernel._lock:
            inside.set()
            over.wait(10)

    with elsewhere(amid):
        assert in_child(lambda: bool((kernel(a, 3) == 3).all())) == 0
    assert (kernel(a, 3) == 3).all()


def test_a_fork_waits_for_a_lock_that_another_thread_holds() -> None:
    """What is amid the lock ends first, so that the child finds it free and whole."""
    lock = forks.held_at_forks(threading.RLock())

    def amid(inside: threading.Event, over: threading.Event) -> None:
        with lock:
            inside.set()
            over.wait(0.2)

    with elsewhere(amid):
        assert in_child(lambda: lock.acquire(blocking=False)) == 0
    assert lock.acquire(blocking=False)
    lock.release()


def test_a_fork_waits_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of other threads end before; one that does not end in time is known to be cut off in the child alone."""
    calls = forks.Calls()

    def amid(inside: threading.Event, over: threading.Event) -> None:
        with calls, calls:
            inside.set()
            over.wait(0.2)

    def enters() -> bool:
        with calls:
            return not calls.is_lost

    with elsewhere(amid):
        assert in_child(enters) == 0
    monkeypatch.setattr(forks, "PATIENCE", 0.02)
    with elsewhere(amid):
        assert in_child(lambda: calls.is_lost) == 0
    assert enters()


def python(script: str, **variables: str) -> str:
    """What a Python prints that has no more than a minute."""
    environment = os.environ | {"PYTHONPATH": str(Path(ss.__file__).resolve().parents[1])} | variables
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(command, timeout=60, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


OPENCL = """if True:
    import os, signal, sys, threading
    import numpy as np
    import stridesmith as ss
    kernel = ss.build(ss.workload("matmul", m=256, n=256, k=256).func, {target!r})
    a = np.ones((256, 256), np.float32)
    over = []
    def call():
        while not over:
            kernel(a, a)
    kernel(a, a)
    if {busy}:
        thread = threading.Thread(target=call)
        thread.start()
    for _ in range(6):
        child = os.fork()
        if not child:
            signal.alarm(10)
            try:
                print("right" if (kernel(a, a) == 256).all() else "wrong", flush=True)
            except ss.StridesmithError as error:
                print(error, flush=True)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "the child hangs"
    over.append(True)
    if {busy}:
        thread.join()
"""


def opencl() -> list[str]:
    """The targets here whose kernels run on stridesmith's threads."""
    try:
        from stridesmith.backends.opencl.devices import selectors

        return [selector for selector, target, _ in selectors() if target.has_thread_pool]
    except (ImportError, ss.DeviceMissing):
        return []


@pytest.mark.parametrize("target", opencl())
def test_a_child_calls_opencl_kernels(target: str) -> None:
    """Also the very kernel that another thread is in when the process forks."""
    assert python(OPENCL.format(target=target, busy=True)).split() == ["right"] * 6


@pytest.mark.skipif(not any("pocl" in target for target in opencl()), reason="needs the PoCL of the package")
def test_a_child_has_no_threads_of_the_driver() -> None:
    """Kernels that run on those say so, and what to do, where they would wait for ever."""
    told = python(OPENCL.format(target="opencl:pocl", busy=False), POCL_DEVICES="pthread").splitlines()
    assert len(told) == 6
    assert "was called in a forked child, which has none of them: start processes that do not share memory" in told[0]
