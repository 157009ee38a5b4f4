"""The clock of a run: what its seconds were spent on."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from stridesmith.search.tuning import clock as module
from stridesmith.search.tuning.clock import ACTIVITIES, Clock, process_start


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A time that passes only where a test says so."""
    moment = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    return moment


def test_every_second_counts_once(now: list[float]) -> None:
    """The activities add up to the seconds since the start, which may lie before the clock was made."""
    clock = Clock(98.0)
    now[0] += 1
    clock.enter("building")
    now[0] += 5
    with clock.during("baseline"):
        now[0] += 2
    now[0] += 1
    spent = clock.spent
    assert set(spent) == set(ACTIVITIES)
    assert {k: v for k, v in spent.items() if v} == {"startup": 3.0, "building": 6.0, "baseline": 2.0}
    assert sum(spent.values()) == clock.seconds == 11.0


def test_what_was_before_goes_on_after_an_error(now: list[float]) -> None:
    """An activity that ends with an exception has its time, and no more."""
    clock = Clock()
    with pytest.raises(KeyError), clock.during("race"):
        now[0] += 1
        raise KeyError
    now[0] += 1
    assert (clock.spent["race"], clock.spent["startup"]) == (1.0, 1.0)


def test_unknown_activities_are_refused() -> None:
    """A misspelt name would lose its seconds."""
    with pytest.raises(ValueError, match="unknown activity `dreaming`"):
        Clock().enter("dreaming")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_a_command_counts_from_the_start_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's own start is part of a run; a process that did other things before starts now."""
    text = "import time; time.sleep(0.2); from stridesmith.search.tuning.clock import process_start as p; print(p())"
    before = time.monotonic()
    began = float(subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True).stdout)
    assert before - 0.05 <= began <= time.monotonic() - 0.2
    monkeypatch.setattr(module, "YOUNG_SECONDS", 0.0)
    assert time.monotonic() - process_start() < 0.5


def test_what_is_left_ends_before_the_process_has_to(now: list[float]) -> None:
    """A tenth of a short run, and a second or so of a long one, are for the end of workers, Ray and interpreter."""
    assert Clock().left is None and Clock().deadline() is None
    assert Clock(98.0, 10.0).left == pytest.approx(10.0 - 2.0 - 1.0)
    assert Clock(98.0, 1000.0).left == pytest.approx(1000.0 - 2.0 - module.CLOSING_SECONDS)
    clock = Clock(100.0, 10.0)
    assert clock.deadline() == pytest.approx(109.0) and clock.deadline(0.5) == pytest.approx(104.5)
    now[0] += 20
    assert clock.deadline() == pytest.approx(120.0) and clock.deadline(0.1, least=2.0) == pytest.approx(122.0)


def test_a_crowded_machine_is_told_by_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the cores that there are; a machine that is idle makes nothing faster."""
    for load, found in ((0.2, 1.0), (2.0 * (module.os.cpu_count() or 1), 2.0)):
        monkeypatch.setattr(module.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert module.crowding() == pytest.approx(found)
