"""`stridesmith show`: what is behind a record, as a page and as JSON."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from opencl_programs import device, needs_device
from record_makers import make_record

from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.commands.output import Output, folded
from stridesmith.commands.roofline import POINT, drawing
from stridesmith.figures import scaled
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=12, n=32, k=16)
HERE = discover("cpu", threads=1)
ROOF = {"peak_gflops": 200.0, "bandwidth": 2e10, "gflops": 80.0, "intensity": 130.0}


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """A verified record of a small product on this machine, in the default database."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("NO_COLOR", "1")
    sch = Schedule(WORK.func)
    sch.split("j", [None, 8])
    sch.vectorize("j_1")
    made = make_record(
        20.0, script=WORK.script, workload=WORK.name, params=dict(WORK.params), target=HERE.to_json(),
        trace=sch.trace.to_json(), interface={"a": "fixed", "b": "fixed", "c": "fixed"}, id="abcd" + "0" * 12,
    )  # fmt: skip
    with Database(tmp_path / "own.db") as database:
        database.put_records([made, make_record(id="abce" + "0" * 12)])
    return made


def last_event(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_the_diagnosis_as_json(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """One event holds all texts and figures; the limits are measured, and the kernel is below them."""
    assert main(["show", "--record", "abcd", "--format", "json"]) == 0
    event = last_event(capsys)
    assert (event["event"], event["record"]) == ("diagnosis", record.id)
    for text in ("schedule", "program", "lowered", "source", "assembly"):
        assert event[text].strip()
    assert event["useful_flops"] == event["computed_flops"] == 2 * 12 * 32 * 16
    place = event["roofline"]
    assert place["peak_gflops"] > 0 and place["bandwidth"] > 0
    assert math.isclose(place["roofline_fraction"], place["gflops"] / place["attainable_gflops"])
    if event["inner_loop"] is not None:
        assert event["inner_loop"]["flops"] > 0
        assert event["inner_loop"]["registers"] <= event["inner_loop"]["registers_in_all"]


def test_the_diagnosis_as_a_page(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an id the best record of a workload is shown; plain text has every section."""
    shape = "m=12,n=32,k=16"
    assert main(["show", "--workload", "matmul", "--shape", shape, "--threads", "1", "--format", "plain"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"{name}\n---") for name in
              ("Roofline", "Work and memory", "Inner loop", "Schedule")]  # fmt: skip
    assert places == sorted(places)
    assert "sch.split(loop='j'" in out and record.id in out
    assert "share of the bound" in out and "useful" in out
    assert f"`stridesmith show --record {record.id} --lowered` prints the lowered program" in out
    assert "T.parallel" not in out and "T.Buffer" not in out, "programs are views of their own"


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("--trace", "sch.vectorize"),
        ("--program", "T.block"),
        ("--lowered", "T.Ramp"),
        ("--source", "define void"),
        ("--assembly", "kernel_mat"),
    ],
)
def test_single_views(view: str, text: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """One text, and nothing else, so that it can go into a file."""
    assert main(["show", "--record", record.id, view, "--format", "plain"]) == 0
    assert text in capsys.readouterr().out
    assert main(["show", "--record", record.id, view, "--format", "json"]) == 0
    event = last_event(capsys)
    assert event["event"] == view.strip("-") and text in event["text"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--record", "feed"], 3, "no record 'feed'"),
        (["--record", "abc"], 2, "several records"),
        (["--record", "../x"], 3, "hexadecimal"),
        (["--workload", "matmul", "--shape", "m=99"], 3, "to make one, run `stridesmith --workload matmul"),
        ([], 2, "--workload"),
    ],
)
def test_what_is_not_there(
    words: list[str], code: int, sentence: str, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    """One paragraph and the exit code of the interface."""
    assert main(["show", *words]) == code
    captured = capsys.readouterr()
    assert sentence in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_a_record_of_another_isa(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 4; the schedule and the program are still shown."""
    foreign = record.changed(id="f" * 16, target={**record.target, "isa": "sve", "name": "Some ARM"})
    with Database(tmp_path / "own.db") as database:
        database.put_record(foreign)
    assert main(["show", "--record", "ffff", "--format", "json"]) == 4
    captured = capsys.readouterr()
    assert "Some ARM" in captured.err and "--trace" in captured.err
    assert json.loads(captured.out.splitlines()[-1])["code"] == 4
    assert main(["show", "--record", "ffff", "--trace"]) == 0


@needs_device
def test_an_opencl_record_as_a_page(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The source and the driver's facts stand where the CPU has its inner loop; there is no assembly to show."""
    target = device()
    assert target is not None
    other = record.changed(id="c" * 16, target=target.to_json(), trace=None)
    with Database(tmp_path / "own.db") as database:
        database.put_record(other)
    assert main(["show", "--record", "cccc", "--format", "plain"]) == 0
    out = capsys.readouterr().out
    assert "Inner loop" not in out and f"--record {other.id} --lowered" in out and "`--source` its OpenCL C" in out
    assert re.search(r"work-items +\d+.* in \d+ work-groups of \d+", out)
    assert re.search(r"memory +.* local to a group, .* private to a work-item", out)
    assert main(["show", "--record", "cccc", "--assembly"]) == 2
    assert "--source" in capsys.readouterr().err


def test_a_drawing_has_roof_and_point() -> None:
    """The point stands below the flat part of the roof, by a line that reaches down to it."""
    lines = drawing(ROOF, 40, 8)
    assert "GFLOP/s" in lines[0] and lines[-1].endswith("FLOP/byte")
    (row,) = [number for number, line in enumerate(lines) if POINT in line]
    column = lines[row].index(POINT)
    assert lines[row].split("┤")[0].strip() == "80.0" and "200" in lines[1]
    assert all(lines[between][column] == "┊" for between in range(2, row))
    assert lines[1][column] not in " ┊"
    assert all(len(line) <= 40 + 11 for line in lines[:-1])


@pytest.mark.parametrize("intensity", [0.01, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("gflops", [0.001, 1.0, 80.0, 400.0])
def test_a_drawing_of_any_kernel(gflops: float, intensity: float) -> None:
    """Kernels at the edge of the picture, and above a roof that was measured too low, stay in it."""
    lines = drawing({**ROOF, "gflops": gflops, "intensity": intensity})
    assert sum(line.count(POINT) for line in lines) == 1


@pytest.mark.parametrize("missing", sorted(ROOF))
def test_no_drawing_without_figures(missing: str) -> None:
    """What is not known is not drawn."""
    assert drawing({**ROOF, missing: None}) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1753088, "1.75 MB"), (2.3e9, "2.30 GB"), (4e13, "40.0 TB")]
)
def test_scaled(value: float, text: str) -> None:
    """Three digits and a decimal prefix."""
    assert scaled(value, "B") == text


def test_nothing_is_drawn_without_a_terminal() -> None:
    """Plain output has no bars, so that it can be read by anything."""
    assert Output("plain").bar(0.5, 20) == "" and not Output("plain").draws


def test_long_lines_of_programs_go_on_indented() -> None:
    """A line is broken at spaces only, below and to the right of its beginning; short ones stay."""
    text = "for i in range(8):\n    store(one + two, three + four, five)\n"
    assert folded(text, 24).splitlines() == [
        "for i in range(8):", "    store(one + two,", "            three +", "            four, five)",
    ]  # fmt: skip
    assert folded("x" * 50, 20) == "x" * 50
    assert folded("a\n\nb", 20) == "a\n\nb"
