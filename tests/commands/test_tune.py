"""What `tune` says before it begins, and at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stridesmith.cli import main
from stridesmith.commands.output import Output
from stridesmith.commands.tune import _summary, speed
from stridesmith.configs import Entry
from stridesmith.search.tasks.command_line import Options
from stridesmith.space.workloads import workload

ONE_THREAD_MORE = """
[tune]
threads = 3
[[matmul]]
name = "one"
m = 13
n = 14
k = 15
"""


def test_speed_is_told_beside_the_peak() -> None:
    """A peak may not have been measured, and a program of integers has no speed in GFLOP/s."""
    assert speed({"gflops": 90.0, "peak_gflops": 120.0, "peak_fraction": 0.75}) == (
        "90.0 GFLOP/s, 75.0 % of the measured peak of 120 GFLOP/s"
    )
    assert speed({"gflops": 90.0, "peak_gflops": None}) == "90.0 GFLOP/s"
    assert "GFLOP/s" not in speed({"gflops": 0.0, "peak_gflops": 120.0, "peak_fraction": 0.0})


def test_a_result_says_which_figure_is_which(capsys: pytest.CaptureFixture[str]) -> None:
    """Its spread, why the search had promised more, what the roof is made of, and what else the machine did."""
    done = {
        "db": "x.db", "device": "d", "threads": 2, "latency_us": 1653.0, "low_us": 1610.0, "high_us": 1700.0,
        "search_us": 1288.0, "gflops": 1.0, "trials": 64, "seconds": 1.0, "stopped_by": "trials", "record": "0",
        "activities": {"building": 1.0, "measuring": 1.0}, "failed": {}, "verified": True, "run": "12-ab",
        "roofline_fraction": 0.5, "bandwidth": 8e10, "cached": True, "busy": 1.3,
    }  # fmt: skip
    _summary(Options(workload="matmul", target="cpu"), Entry("x", workload("matmul"), {}), Output("plain"), done)
    out = " ".join(capsys.readouterr().out.split())
    assert "1.653 ms, half of all samples from 1.610 ms to 1.700 ms" in out
    assert "the best of the search, 1.288 ms, is the luckiest of 64 measurements" in out
    assert "50.0 % of what the peak and 80.0 GB/s of caches, which hold the arguments allow" in out
    assert "machine others kept 1.3 processors busy as the run began" in out and "0 of run 12-ab in x.db" in out
    _summary(Options(workload="matmul", target="cpu"), Entry("x", workload("matmul"), {}), Output("plain"),
             done | {"search_us": 1640.0, "busy": 0.1})  # fmt: skip
    assert "luckiest" not in (out := capsys.readouterr().out) and "machine" not in out
    _summary(Options(workload="matmul", target="cpu"), Entry("x", workload("matmul"), {}), Output("plain"),
             done | {"search_us": 2000.0, "roofline_fraction": None})  # fmt: skip
    out = " ".join(capsys.readouterr().out.split())
    assert "the best of the search, 2.000 ms, is of single measurements" in out  # slower than the race has it
    assert "there was no time, or no final race, to measure the device's peak and bandwidth in" in out


@pytest.mark.parametrize("words", [["--dry-run"], ["show", "--space"]])
def test_the_threads_of_a_list_are_those_of_its_device(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be searched is what a run would search; an option goes before the list."""
    path = tmp_path / "list.toml"
    path.write_text(ONE_THREAD_MORE)
    for threads, more in ((3, []), (1, ["--threads", "1"])):
        assert main([*words, "--config", str(path), *more, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["target"].endswith(f"|threads={threads}")


@pytest.mark.parametrize(("db", "words"), [(None, ""), ("my runs.db", " --db 'my runs.db'")])
def test_the_command_that_replays_names_the_database_as_it_was_named(
    db: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the environment says is not repeated: a URL is shown without its password, and could not be pasted."""
    entry = Entry("product", workload("matmul"), {})
    done = {
        "db": "postgresql+psycopg://u:***@host/runs", "device": "d", "threads": 1, "latency_us": 2.0, "gflops": 0.0,
        "trials": 1, "seconds": 1.0, "stopped_by": "trials", "activities": {"building": 1.0, "measuring": 1.0},
        "failed": {}, "record": "0", "verified": True,
    }  # fmt: skip
    _summary(Options(workload="matmul", target="cpu", db=db), entry, Output("plain"), done)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "stridesmith replay" in line]
    assert line.partition("stridesmith replay")[2].rstrip() == f" --workload matmul --target cpu{words}"
