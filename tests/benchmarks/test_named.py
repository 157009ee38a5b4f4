"""Operators that somebody names are read as they are printed, and the list is one that can be measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import league
import league_draw
import named
import pytest
from league_draw import CARDS, Operator

from stridesmith.search.tasks.task import check


def test_what_a_league_prints_is_read_back() -> None:
    """The label of every kind of operator, given as a text, is the same operator, with the constants that are said."""
    for card in CARDS:
        for seed in range(4):
            drawn = card.make(league_draw.Random(seed))
            read = named.parsed(drawn.label, drawn.constants).operator
            assert (read.kind, read.label, read.constants) == (drawn.kind, drawn.label, drawn.constants)
            assert read.work.func == drawn.work.func, drawn.label


def test_weights_are_those_of_the_library_where_nothing_is_said() -> None:
    """A convolution's kernel is a weight and a product's matrix is none, unless one says so."""
    assert named.parsed("conv2d(ci=4,h=5,w=5,co=4,k=3)", None).operator.constants == ("w",)
    assert named.parsed("matmul(m=4,n=5,k=6)", None).operator.constants == ()
    assert named.parsed("matmul(m=4,n=5,k=6)", ["b"]).operator.constants == ("b",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("softmax", "an operator reads"),
        ("softmax(rows)", "an operator reads"),
        ("softmax(rows=)", "an operator reads"),
        ("sort(rows=3)", "there is no workload 'sort'"),
        ("cumulative_sum(rows=3)", "missing 2 required"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, words: str) -> None:
    """In words, before anything is tuned."""
    with pytest.raises(ValueError, match=words):
        named.parsed(text, None)


def test_the_list_can_be_measured() -> None:
    """Every operator of the list is well-formed and in bounds, has a name of its own, and weights that it has."""
    entries = list(named.listed(named.LIST))
    assert len({entry.name for entry in entries}) == len(entries) >= 20
    for entry in entries:
        check(entry.operator.work.func)
        assert set(entry.operator.constants) <= set(entry.operator.work.inputs), entry.name


def arguments(folder: Path, **options: Any) -> argparse.Namespace:
    plain: dict[str, Any] = {"operator": [], "list": None, "only": None, "constant": None, "again": False}
    return argparse.Namespace(**plain | {"threads": 2, "seconds": 20.0, "peers": ["torch"], "out": folder} | options)


def test_operators_are_chosen_by_text_by_list_and_by_name(tmp_path: Path) -> None:
    """A text alone is that operator alone; without one it is the list; names pick from it, unknown ones are told."""
    text = "softmax(rows=3,cols=4)"
    assert [e.operator.kind for e in named.chosen(arguments(tmp_path, operator=[text]))] == ["softmax"]
    assert len(named.chosen(arguments(tmp_path))) >= 20
    assert [e.name for e in named.chosen(arguments(tmp_path, only=["cumsum"]))] == ["cumsum"]
    with pytest.raises(ValueError, match="there is no nothing; there are "):
        named.chosen(arguments(tmp_path, only=["nothing"]))
    with pytest.raises(ValueError, match="several operators have the name"):
        named.chosen(arguments(tmp_path, operator=[text, text]))


def test_rows_are_told_and_skipped_when_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is tuned once with the same settings, and its table has name, ratio and trials."""
    tuned: list[str] = []
    found = {"event": "done", "process_seconds": 1.0, "db": "", "record": "r", "trials": 7}
    timed = {"times": {"stridesmith:kernel": [2.0] * 3, "torch:x": [3.0] * 3}, "fastest_us": 1.0, "busy": 0.0,
             "rounds": {"stridesmith:kernel": [2.0], "torch:x": [3.0]}, "missing": {}}  # fmt: skip
    monkeypatch.setattr(league, "tune", lambda case, seconds, folder: tuned.append(case.key) or found)
    monkeypatch.setattr(league, "race", lambda case, found, arguments: timed)
    monkeypatch.setattr(league, "wait_for_quiet", lambda patience: 0.0)
    entries = [named.Named("few", Operator("named", "softmax", {"rows": 3, "cols": 4}))]
    settings = arguments(tmp_path)
    (row,) = named.rows(entries, settings, {}, "avx2")
    assert tuned == ["named/few/-/2"] and row["ratio"] == 1.5
    assert not list(named.rows(entries, settings, {row["key"]: row}, "avx2"))
    assert "| few | softmax(rows=3,cols=4) | 2.0 | 0.0 | torch:x | 3.0 | 1.50 | 7 |" in named.table([row])
    other = arguments(tmp_path, seconds=30.0)
    assert [r["asked"]["seconds"] for r in named.rows(entries, other, {row["key"]: row}, "avx2")] == [30.0]
