"""Waiting for cores that a host has given away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stridesmith.backends import cores
from stridesmith.backends.cores import BURSTS, ENOUGH, PATIENCE_SECONDS, TRIALS, Cores, settler
from stridesmith.backends.host import host_cpu
from stridesmith.ir.target import Target


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(cores, "time", found)
    return found


def machine(rates: list[float]) -> Iterator[float]:
    """Bursts at full speed while it is learnt, then at these rates, the last one for ever."""
    yield from [100.0] * TRIALS * BURSTS
    yield from rates
    while True:
        yield rates[-1]


def waited(rates: list[float], clock: Clock) -> tuple[Cores, float]:
    bursts = machine(rates)
    found = Cores(lambda: next(bursts))
    start = clock.now
    found.settle()
    return found, clock.now - start


def test_nothing_waits_for_a_machine_at_full_speed(clock: Clock) -> None:
    assert waited([100.0 * ENOUGH], clock)[1] == 0


def test_the_best_of_some_bursts_counts(clock: Clock) -> None:
    """A burst that was interrupted is no verdict."""
    assert waited([50.0] * (BURSTS - 1) + [100.0], clock)[1] == 0


def test_cores_that_are_gone_are_waited_for(clock: Clock) -> None:
    """Half the speed is two threads on one core."""
    _, seconds = waited([50.0] * 5 * BURSTS + [100.0], clock)
    assert seconds == pytest.approx(5 * cores.PAUSE_SECONDS)


def test_a_machine_that_stays_slow_is_taken_as_it_is(clock: Clock) -> None:
    """The wait ends, and is not repeated at every kernel."""
    found, seconds = waited([50.0], clock)
    assert PATIENCE_SECONDS <= seconds < 2 * PATIENCE_SECONDS
    clock.sleep(1.0)
    start = clock.now
    found.settle()
    assert clock.now == start


def test_cores_may_go_while_a_turn_is_taken(clock: Clock) -> None:
    """What was seen before says nothing of what is seen after; nobody waits for it."""
    found, _ = waited([100.0] * BURSTS + [50.0] * BURSTS + [100.0], clock)
    start = clock.now
    assert not found.whole()
    assert found.whole()
    assert clock.now == start


def test_what_was_seen_is_believed_for_a_while(clock: Clock) -> None:
    """Between two calls in a row nothing is asked."""
    asked = 0

    def burst() -> float:
        nonlocal asked
        asked += 1
        return 100.0

    found = Cores(burst)
    found.settle()
    before = asked
    found.settle()
    assert asked == before
    clock.sleep(2 * cores.FRESH_SECONDS)
    found.settle()
    assert asked == before + BURSTS


def test_only_threads_of_the_host_are_waited_for() -> None:
    """One thread has its core, and a device of its own knows nothing of ours."""
    gpu = Target(kind="opencl", threads=64, is_cpu_device=False)
    assert settler(Target(kind="cpu", threads=1)) is settler(gpu)
    assert settler(Target(kind="opencl", threads=2)) == settler(Target(kind="cpu", threads=2)) != settler(gpu)


def test_bursts_of_this_machine() -> None:
    """What jobs call: it comes back, and soon again."""
    settle = settler(Target(kind="cpu", threads=max(2, host_cpu().threads)))
    settle()
    settle()
