"""Benches of this process end with their threads, also those that were just beginning a job."""

from __future__ import annotations

import threading
import time

import pytest

from stridesmith.search.workers import local_pool
from stridesmith.search.workers.bench import Limits
from stridesmith.search.workers.local_pool import LocalPool
from stridesmith.search.workers.protocol import Done, Job, Ping, Reply


class SlowBench:
    """Starts its worker when the gate opens."""

    gate = threading.Event()
    workers = 0

    def __init__(self, limits: Limits) -> None:
        self.has_worker = False

    def build(self, job: Job[Reply]) -> Reply:
        self.gate.wait(5)
        self.has_worker = True
        SlowBench.workers += 1
        return Done()

    def close(self) -> None:
        SlowBench.workers -= self.has_worker
        self.has_worker = False


def threads() -> int:
    return sum(thread.name == "stridesmith-bench" for thread in threading.enumerate())


def test_a_worker_that_starts_too_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while its job was about to start a worker: neither that nor the thread is left."""
    monkeypatch.setattr(local_pool, "Bench", SlowBench)
    before, pool = threads(), LocalPool(2, Limits())
    pool.start_missing()
    busy = pool.actors[0]
    pool.give(busy, "build", 0, Ping())
    pool.stop_busy()
    assert busy not in pool.actors and len(pool.actors) == 1
    SlowBench.gate.set()
    pool.close()
    assert SlowBench.workers == 0 and not pool.actors
    end = time.monotonic() + 5
    while threads() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threads() == before
