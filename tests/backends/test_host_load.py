"""What is seen of a machine that does other work, and of one that is throttled."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stridesmith.backends import cpu_topology, host_load
from stridesmith.backends.host_load import Load, _between, _read, _Reading, look


def stat(folder: Path, *rows: str) -> Path:
    lines = ["cpu  0 0 0 0 0 0 0 0 0 0", *(f"cpu{n} {row}" for n, row in enumerate(rows)), "intr 0"]
    (folder / "stat").write_text("\n".join(lines))
    return folder


@pytest.fixture(autouse=True)
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_topology, "affinity", lambda: {0, 1})


def test_the_time_of_others_is_what_is_left_of_what_was_computed() -> None:
    """1.7 processor seconds in one second, of which 0.2 were our own; of two a quarter of one was stolen."""
    before = _Reading(at=10.0, computed=100.0, stolen=3.0, own=5.0, throttlings=7)
    after = _Reading(at=11.0, computed=101.7, stolen=3.5, own=5.2, throttlings=7)
    found = _between(before, after, 2)
    assert found.busy == pytest.approx(1.5) and found.stolen == pytest.approx(0.25) and not found.throttled
    assert "other processes keep 1.5 of 2 processors busy" in found.told and "gives 25 % of the time" in found.told
    hot = _between(before, _Reading(11.0, 100.0, 3.0, 5.0, 8), 2)
    assert hot.throttled and hot.told == "the processors are slowed down for their heat"


def test_a_quiet_machine_is_not_mentioned() -> None:
    """Nothing is said of what does no harm."""
    assert Load(busy=0.1, stolen=0.01, throttled=False, processors=2).told == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_counters_are_those_of_this_processs_processors(tmp_path: Path) -> None:
    """Idle time and waiting count for nothing, and a processor that is not ours neither."""
    row = "100 10 50 900 70 20 20 30 5 0"
    found = _read(stat(tmp_path, row, row, "9 9 9 9 9 9 9 9 9 9"))
    assert found is not None
    assert (found.computed, found.stolen) == (2 * 200 / 100, 2 * 30 / 100)


@pytest.mark.parametrize("text", [None, "", "cpu0 1 2", "cpu7 1 2 3 4 5 6 7 8"])
def test_what_the_system_does_not_tell_is_not_known(text: str | None, tmp_path: Path) -> None:
    """Another system, a container without /proc, an old kernel."""
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert _read(tmp_path) is None


def test_what_happened_within_a_moment_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters count in ticks, of which a moment has hardly one."""
    readings = iter([_Reading(0.0, 0.0, 0.0, 0.0, 0), _Reading(0.02, 0.02, 0.0, 0.0, 0)])
    monkeypatch.setattr(host_load, "_read", lambda: next(readings))
    assert host_load.watch()() is None


def test_a_look_waits_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seconds are slept, in which this process computes nothing."""
    slept: list[float] = []
    readings = iter([_Reading(0.0, 0.0, 0.0, 0.0, 0), _Reading(0.5, 0.5, 0.0, 0.0, 0)])
    monkeypatch.setattr(host_load.time, "sleep", slept.append)
    monkeypatch.setattr(host_load, "_read", lambda: next(readings))
    found = look(0.5)
    assert found is not None and slept == [0.5] and found.busy == pytest.approx(1.0)
