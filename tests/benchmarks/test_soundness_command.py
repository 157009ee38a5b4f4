"""Many random programs in one command: ranges of seeds go on, and failures leave their stories."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import soundness
from fuzz.trial import Failure


class Spoilt:
    """A trial in the place of a real one, whose program of an odd seed comes out wrong."""

    def __init__(self, seed: int, tally: Counter[tuple[str, bool]]) -> None:
        self.seed, self.tally = seed, tally

    def play(self, steps: int) -> None:
        self.tally["split", True] += steps
        if self.seed % 2:
            raise Failure("wrong", f"the story of {self.seed}")


def test_a_range_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs count once, and each failure is told with its seed."""
    monkeypatch.setattr(soundness, "Trial", Spoilt)
    soundness.Work(tmp_path, 10, 2).play(3, math.inf)
    again = soundness.Work(tmp_path, 10, 2)
    again.play(3, math.inf)
    assert (again.done, again.tally["split", True], again.ends["wrong"]) == (2, 6, 1)
    assert (tmp_path / "failures.txt").read_text() == "##### wrong, seed 11\nthe story of 11\n\n"
    soundness.Work(tmp_path, 12, 2).play(3, 0.0)
    assert soundness.Work(tmp_path, 12, 2).done == 0


def test_real_programs_are_counted_by_primitive(tmp_path: Path) -> None:
    """A handful of programs, none of which is spoilt."""
    work = soundness.Work(tmp_path, 5, 6)
    work.play(4, math.inf)
    assert work.done == 6 and sum(work.tally.values()) > 12
    assert "6 programs" in work.table() and "0 wrong, 0 invalid, 0 broken" in work.table()
