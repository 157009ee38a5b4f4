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
