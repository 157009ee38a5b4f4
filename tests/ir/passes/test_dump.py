"""The debug knob: programs after each pass, in a folder or printed, for pipelines here and in lowering."""

from __future__ import annotations

from pathlib import Path

import pytest
from ir.passes.examples import program

from stridesmith.backends.lower import PASSES as LOWERING
from stridesmith.backends.lower import lower
from stridesmith.ir.passes.transform import dumping, remove_assume, run_passes
from stridesmith.ir.script.parser import parse
from stridesmith.ir.target import Target

FUNC = program("T.assume(B[0] == 1.0)\nfor i in range(16):\n    A[i] = 0.0\n    A[i] = 1.0")


def test_a_folder_holds_the_program_after_each_pass(tmp_path: Path) -> None:
    """In order, by the names of the passes; each file is a program that parses."""
    with dumping(tmp_path):
        result = run_passes(FUNC, "simplify", "remove_no_op", remove_assume)
    [run] = tmp_path.iterdir()
    files = sorted(run.iterdir())
    assert [f.name for f in files] == ["00-given.py", "01-simplify.py", "02-remove_no_op.py", "03-remove_assume.py"]
    assert parse(files[0].read_text()) == FUNC and parse(files[-1].read_text()) == result
    assert run.name.startswith("func.")


def test_the_environment_asks_for_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering leaves a file for each of its passes."""
    monkeypatch.setenv("STRIDESMITH_DUMP", str(tmp_path))
    lower(FUNC, Target(kind="cpu", vector_bits=256, registers=16, threads=2))
    names = [f.name.split("-")[1] for f in sorted(next(tmp_path.iterdir()).iterdir())]
    assert names == ["given.py", *(f"{name}.py" for name, _ in LOWERING)]


def test_without_a_folder_programs_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """On the standard error stream, with the name of the pass."""
    with dumping():
        run_passes(FUNC, "remove_no_op")
    shown = capsys.readouterr().err
    assert "# func after given" in shown and "# func after remove_no_op" in shown


def test_nothing_is_dumped_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither before nor after a `dumping` block."""
    with dumping(tmp_path):
        pass
    run_passes(FUNC, "remove_no_op")
    assert not list(tmp_path.iterdir()) and capsys.readouterr().err == ""
