"""Every golden: the programs that its steps give are the ones in the file, and compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from goldens.equal import Different, same_program
from goldens.runner import FOLDER, check, goldens

from stridesmith.ir.script.parser import parse


@pytest.mark.parametrize("path", goldens(), ids=lambda path: path.relative_to(FOLDER).with_suffix("").as_posix())
def test_golden(path: Path) -> None:
    """Steps give the programs of the file; refusals come with its words; all programs agree on logical data."""
    check(path)


PROGRAM = """
@T.prim_func
def func(A: T.Buffer((4, 4), "int32")):
    for io, ii in T.grid(4, 4):
        if {}:
            A[io, ii] = {}
"""


def test_programs_are_the_same_whatever_loops_and_conditions_are_called() -> None:
    """Names of loops and the spelling of an affine condition or index do not matter."""
    other = PROGRAM.replace("io", "x").replace("ii", "y")
    same_program(parse(PROGRAM.format("io * 4 + ii >= 14", 0)), parse(other.format("x == 3 and y >= 2", 0)))


@pytest.mark.parametrize(("cond", "value"), [("io * 4 + ii >= 13", 0), ("io * 4 + ii >= 14", 1), ("io >= 2", 0)])
def test_programs_that_differ_at_one_point_are_different(cond: str, value: int) -> None:
    """One element more, or another value, is another program."""
    with pytest.raises(Different):
        same_program(parse(PROGRAM.format(cond, value)), parse(PROGRAM.format("io == 3 and ii >= 2", 0)))
