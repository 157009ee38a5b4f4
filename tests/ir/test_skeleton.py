"""Programs up to where accesses begin, and floats: what is left out, and what is not."""

from __future__ import annotations

import pytest

from stridesmith.ir.script.parser import parse
from stridesmith.ir.skeleton import skeleton
from stridesmith.ir.stmt import PrimFunc

PROGRAM = """
@T.prim_func
def part(x: T.Buffer((9, 40), "float32"), t: T.Buffer((8,), "int32"), y: T.Buffer((8, 16), "float32")):
    for i, j in T.grid(8, 16):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(x[1, vj * 2 + 3], T.float32(0.5)) + x[t[vi], vj]
"""
SAME = {
    "an index that is a number": ("x[1, ", "x[7, "),
    "a number added to one": ("vj * 2 + 3", "vj * 2 + 7"),
    "a float": ("T.float32(0.5)", "T.float32(-3e38)"),
}
OTHER = {
    "a step": ("vj * 2", "vj"),
    "an extent": ("T.grid(8, 16)", "T.grid(8, 8)"),
    "a shape": ("(9, 40)", "(9, 41)"),
    "an index in place of a number": ("x[1, ", "x[vi, "),
    "an operation": ("T.max", "T.min"),
    "whether something is added": ("vj * 2 + 3", "vj * 2"),
    "an element type": ('t: T.Buffer((8,), "int32")', 't: T.Buffer((8,), "int64")'),
}


def read(old: str = "", new: str = "") -> PrimFunc:
    assert old in PROGRAM
    func = parse(PROGRAM.replace(old, new))
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("name", SAME)
def test_offsets_and_floats_are_left_out(name: str) -> None:
    """Programs that differ in one of them are others, of one skeleton."""
    one, other = read(), read(*SAME[name])
    assert one != other and skeleton(one) == skeleton(other) and hash(skeleton(one)) == hash(skeleton(other))


@pytest.mark.parametrize("name", OTHER)
def test_all_else_counts(name: str) -> None:
    """What decides how a program may be scheduled, and how fast it is."""
    assert skeleton(read()) != skeleton(read(*OTHER[name]))


def test_it_is_found_once() -> None:
    """Whoever asks again for one program gets the same object."""
    func = read()
    assert skeleton(func) is skeleton(func)
