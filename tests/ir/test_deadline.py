"""Deadlines: what holds where, and who hears of it."""

from __future__ import annotations

import threading
import time

import pytest

from stridesmith.ir.deadline import OutOfTime, has_deadline, is_over, look, until


def test_nothing_is_ever_late_without_a_deadline() -> None:
    """Work that looks at the clock goes on for as long as it takes."""
    look()
    with until(None):
        look()
        assert not is_over() and not has_deadline()


def test_work_hears_of_its_deadline_when_it_looks() -> None:
    """Behind the block it is over."""
    with until(time.monotonic() - 1):
        assert is_over() and has_deadline()
        with pytest.raises(OutOfTime):
            look()
    look()


def test_the_earlier_of_two_deadlines_holds() -> None:
    """Whoever has less time may not take more by giving it to somebody else."""
    now = time.monotonic()
    with until(now - 1), until(now + 100), pytest.raises(OutOfTime):
        look()
    with until(now + 100):
        with until(now - 1), pytest.raises(OutOfTime):
            look()
        look()


def test_a_deadline_is_of_one_thread() -> None:
    """Another one, which may work for another run, has none."""
    found: list[bool] = []
    with until(time.monotonic() - 1):
        thread = threading.Thread(target=lambda: found.append(has_deadline()))
        thread.start()
        thread.join()
    assert found == [False]


def test_no_handler_of_errors_takes_it_for_one() -> None:
    """A candidate that was late has not failed."""
    with pytest.raises(OutOfTime), until(time.monotonic() - 1):
        try:
            look()
        except Exception as error:
            raise AssertionError("it was taken for an error") from error
