"""Races of what computes the same: kernels, schedules and functions in turns, with intervals."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.host_load import Load
from stridesmith.report import race as module
from stridesmith.report.race import _results, race

WORK = ss.workload("matmul", m=8, n=16, k=8)


def samples(*ratios: float, noise: float = 0.01) -> list[list[list[float]]]:
    """Races in which each entry takes so many times as long as the first."""
    random = np.random.default_rng(0)
    return [
        [[1e-5 * ratio * float(np.exp(random.normal(0, noise))) for _ in range(20)] for ratio in ratios]
        for _ in range(7)
    ]


def test_a_race_says_what_stood_in_its_way() -> None:
    """A busy machine, and a function that waits, each in a sentence below the table; nothing on a quiet one."""
    busy = Load(busy=1.5, stolen=0.0, throttled=False, processors=2)
    one, two = module.notes_of(busy, {"numpy": 2.5, "mine": 1.0})
    assert one.startswith("other processes keep 1.5 of 2 processors busy: what was measured")
    assert (
        two.startswith("the wall time of 'numpy' is 2.5 times its processor time") and "OPENBLAS_NUM_THREADS=1" in two
    )
    assert not [*module.notes_of(Load(0.0, 0.0, False, 2), {"numpy": 1.0})]
    (crowded,) = module.notes_of(None, {}, 100_000)
    assert crowded.startswith("100000 threads were asked for, where this process may use")
    found = module.Results(_results(["a", "b"], samples(1.0, 1.0)))
    found.notes = (one,)
    assert repr(found).endswith(one)
    call = module._Call(lambda: time.sleep(0.01), ())
    call.time(3)
    assert call.waited > module.MUCH_WAITED


def test_intervals_decide() -> None:
    """What is certain has a verdict, what noise may explain has none."""
    found = module.Results(_results(["a", "b", "c", "d"], samples(1.0, 0.8, 1.3, 1.0)))
    assert [each.verdict for each in found] == ["-", "faster", "slower", "the same"]
    assert found["b"].low < 0.8 < found["b"].high < 1 and found[0].ratio == 1.0
    noisy = module.Results(_results(["a", "b"], samples(1.0, 1.02, noise=0.5)))
    assert noisy["b"].verdict == "unclear"
    text = repr(found)
    assert len(text.splitlines()) == 5 and "0.8" in text and "faster" in text
    assert "<table>" in found._repr_html_()
    with pytest.raises(KeyError, match="no entry 'x'; there are a, b, c, d"):
        found["x"]


def test_kernels_schedules_and_functions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that waits is slower, with Python's share in its time; each has samples of all races."""
    monkeypatch.setattr(module, "RACES", 2)
    sch = ss.Schedule(WORK)
    sch.vectorize("j")
    a, b = np.ones((8, 8), np.float32), np.ones((8, 16), np.float32)
    called: list[Any] = []

    def slow(*given: Any) -> None:
        called.append(given)
        time.sleep(1e-3)

    found = race({"mine": sch, "program": WORK.func, "slow": slow}, a, b, seconds=0.2)
    assert [each.name for each in found] == ["mine", "program", "slow"]
    assert found["slow"].ratio > 10 and found["slow"].latency_us > 900
    assert all(given[0] is a and given[1] is b for given in called)


def test_an_entry_may_be_named_as_in_other_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the file of a script, or its text, as `ss.build` and `ss.load` take them; what names nothing is said."""
    monkeypatch.setattr(module, "RACES", 2)
    file = tmp_path / "mine.py"
    file.write_text(WORK.func.script(), encoding="utf-8")
    found = race({"work": WORK, "file": str(file), "text": WORK.func.script()}, seconds=0.1)
    assert [each.name for each in found] == ["work", "file", "text"]
    with pytest.raises(ss.UsageError, match="nosuch"):
        race({"work": WORK, "b": "nosuch"})


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ({"a": 1}, ss.UsageError, "two entries or more"),
        ([1, 2], ss.UsageError, "by name"),
        ({"a": WORK, 5: WORK}, ss.UsageError, "texts as their names, but one is 5"),
        ({"a": WORK, "b": 5}, TypeError, "'b' is something of type int"),
        ({"a": WORK, "b": ss.workload("matmul", m=4)}, ss.UsageError, "take and give other things"),
    ],
)
def test_what_cannot_race_is_said(entries: Any, error: type[Exception], words: str) -> None:
    """Before anything is measured."""
    with pytest.raises(error, match=words):
        race(entries)


def test_an_error_of_a_function_says_which_entry_it_was() -> None:
    """Whatever it raises, as it is; its traceback ends with the name."""

    def broken() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        race({"well": lambda: None, "hand-made": broken}, seconds=0.1)
    assert caught.value.__notes__ == ["The entry 'hand-made' of the race raised this."]


@pytest.mark.parametrize("call", [ss.load, ss.build])
def test_an_option_that_a_call_has_not_is_answered_with_those_it_has(call: Any) -> None:
    """Or with the one that was meant."""
    with pytest.raises(ss.UsageError, match=r"has no option 'm'; it has \w+, target, "):
        call(WORK, m=8)
    with pytest.raises(ss.UsageError, match=r"has no option 'tarjet' \(did you mean 'target'\?\)"):
        call(WORK, tarjet="cpu")


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so where it is not there."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ss.ToolMissing, match="pip install pandas"):
        module.Results(_results(["a", "b"], samples(1.0, 2.0))).to_pandas()
