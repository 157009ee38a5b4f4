"""Measuring is exclusive on a host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stridesmith.ir.deadline import OutOfTime, until
from stridesmith.search.workers import host_lock


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_lock, "FOLDER", tmp_path)


def test_builders_share_and_a_measurement_waits_for_them() -> None:
    """Two builders hold the lock at once; the measurement comes after both."""
    events: list[str] = []
    inside = threading.Barrier(3)

    def build() -> None:
        with host_lock.shared():
            inside.wait(5)
            time.sleep(0.1)
            events.append("built")

    builders = [threading.Thread(target=build) for _ in range(2)]
    for thread in builders:
        thread.start()
    inside.wait(5)
    with host_lock.exclusive():
        events.append("measured")
    for thread in builders:
        thread.join()
    assert events == ["built", "built", "measured"]


def test_a_measurement_is_not_starved_by_overlapping_builders() -> None:
    """Builders that always overlap cannot keep a measurement out."""
    stop = threading.Event()

    def keep_building() -> None:
        while not stop.is_set():
            with host_lock.shared():
                time.sleep(0.02)

    builders = [threading.Thread(target=keep_building) for _ in range(4)]
    for thread in builders:
        thread.start()
    start = time.monotonic()
    with host_lock.exclusive():
        waited = time.monotonic() - start
    stop.set()
    for thread in builders:
        thread.join()
    assert waited < 10.0


def test_measurements_exclude_each_other() -> None:
    """Never two at a time."""
    inside, most = 0, 0

    def measure() -> None:
        nonlocal inside, most
        with host_lock.exclusive():
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=measure) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_measurements_on_other_devices_go_on_beside_builds() -> None:
    """Two of them take turns, while a builder keeps building; a measurement on the CPU waits for all."""
    events: list[str] = []
    building, measuring = threading.Event(), threading.Event()

    def build() -> None:
        with host_lock.shared():
            building.set()
            measuring.wait(60)
            events.append("built")

    def measure_on_cpu() -> None:
        with host_lock.exclusive():
            events.append("cpu")

    builder = threading.Thread(target=build)
    builder.start()
    building.wait(5)
    inside: list[int] = []

    def measure() -> None:
        with host_lock.beside_builds():
            inside.append(len(inside))
            time.sleep(0.05)
            inside.append(len(inside))

    others = [threading.Thread(target=measure) for _ in range(2)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert inside == [0, 1, 2, 3] and events == []
    last = threading.Thread(target=measure_on_cpu)
    last.start()
    time.sleep(0.05)
    measuring.set()
    for thread in (builder, last):
        thread.join()
    assert events == ["built", "cpu"]


def test_whoever_has_a_deadline_waits_no_longer() -> None:
    """For a lock that another process holds; what it has locked already is free again."""
    with host_lock.exclusive():
        for locked in (host_lock.shared, host_lock.exclusive, host_lock.beside_builds):
            start = time.monotonic()
            with pytest.raises(OutOfTime), until(start + 0.1), locked():
                pass
            assert time.monotonic() - start < 5
    with until(time.monotonic() + 60), host_lock.exclusive():
        pass


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_a_stopped_process_that_holds_a_lock_is_named() -> None:
    """One that runs is none; one that is stopped is named until it goes on."""
    with host_lock.shared():
        pass  # makes the files
    (path,) = host_lock.FOLDER.glob("*.device.lock")
    program = f"import fcntl; f = open({str(path)!r}); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert host_lock.stopped_holders() == ""
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        told = host_lock.stopped_holders()
        process.send_signal(signal.SIGCONT)
        process.communicate(b"\n", timeout=30)
    assert f"process {process.pid} (" in told and f"until `kill -CONT {process.pid}`" in told
    assert host_lock.stopped_holders() == ""
