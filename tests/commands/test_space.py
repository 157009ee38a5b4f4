"""`stridesmith show --space`: one workload in full, a suite as a table."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from stridesmith.cli import main
from stridesmith.commands.space import KINDS, _ranges
from stridesmith.space.design import decision

LIST = """
[[matmul]]
name = "one"
m = 13
n = 14
k = 15
[[row_sum]]
name = "two"
rows = 33
cols = 65
"""


@pytest.fixture(autouse=True)
def _plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def listed(tmp_path: Path) -> list[str]:
    """The words that name two small workloads on a described target."""
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    return ["show", "--space", "--target", "cpu", "--config", str(path)]


def spaces(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main([*words, "--format", "json"]) == 0
    return [dict(json.loads(line)) for line in capsys.readouterr().out.splitlines()]


def test_every_kind_is_explained() -> None:
    """The page has a sentence for each kind of decision that a rule can make."""
    assert set(KINDS) == set(decision.KINDS)


def test_a_list_of_work_gives_an_event_for_each(listed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes are products of the alternatives, summed over the sketches."""
    events = spaces(listed, capsys)
    assert [event["workload"] for event in events] == ["matmul", "row_sum"]
    for event in events:
        sizes = [math.prod(len(d["labels"]) for d in sketch["decisions"]) for sketch in event["sketches"]]
        assert event["size"] == sum(sizes) > 1
        assert [sketch["size"] for sketch in event["sketches"]] == sizes


def test_a_list_of_work_is_a_table(listed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each workload, with the counts of the events."""
    events = spaces(listed, capsys)
    assert main([*listed, "--format", "plain"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    heads = rows["workload"]
    for name, event in zip(("one", "two"), events, strict=True):
        kinds = event["description"]["decisions_by_kind"]
        assert rows[name][1] == str(len(event["sketches"]))
        assert [int(word) for word in rows[name][2:-1]] == [
            kinds.get(kind, 0) for kind in KINDS if kind.replace("_", " ") in " ".join(heads)
        ]


def test_one_of_a_list_is_shown_in_full(listed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Decisions that sketches share stand once; every sketch's decisions are accounted for."""
    (event,) = spaces([*listed, "--only", "one"], capsys)
    assert main([*listed, "--only", "one", "--format", "plain"]) == 0
    out = capsys.readouterr().out
    for section in ("Decisions by kind", "Sketches", "Names", "Decisions"):
        assert f"{section}\n---" in out
    table = out[out.rindex("Decisions\n---") :]
    count = len(event["sketches"])
    shown = 0
    for line in table.splitlines()[3:]:
        if found := re.match(r"\S+ +(all|[\d, -]+?) +\d+ ", line):
            shown += count if found.group(1) == "all" else size_of(found.group(1))
    assert shown == sum(len(sketch["decisions"]) for sketch in event["sketches"])


def size_of(ranges: str) -> int:
    """How many numbers ``1-3, 5`` names."""
    return sum(int(b or a) - int(a) + 1 for a, _, b in (part.partition("-") for part in ranges.split(", ")))


@pytest.mark.parametrize(
    ("numbers", "text"), [([1], "1"), ([1, 2, 3], "1-3"), ([1, 3], "1, 3"), ([2, 3, 5, 6, 8], "2-3, 5-6, 8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    """Neighbours are joined."""
    assert _ranges(numbers) == text and size_of(text) == len(numbers)


def test_what_comes_before_every_sketch_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The steps to the normal form are listed where there are some, and only there."""
    words = ["show", "--space", "--target", "cpu", "--workload", "conv2d", "--shape"]
    for groups, steps in ((4, 4), (1, 0)):
        assert main([*words, f"ci=8,co=8,h=6,w=6,groups={groups}"]) == 0
        page = capsys.readouterr().out
        assert ("Before every sketch" in page) == (steps > 0)
        assert page.count("transform_layout") == steps
