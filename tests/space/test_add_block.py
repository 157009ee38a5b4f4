"""add_block: bare loops become a block whose iterators say what the loops are, where that is proven."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of
from expected_space import CPU
from goldens.execute import same_results

from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule, ScheduleError, Trace
from stridesmith.space.tree import find_block

HEAD = """
@T.prim_func
def main(a: T.Buffer((6, 9), "float32"), n: T.Buffer((6,), "int32"), y: T.Buffer((6, 9), "float32")):
"""
PRODUCT = """
@T.prim_func
def main(a: T.Buffer((64, 80), "float32"), b: T.Buffer((80, 48), "float32"), c: T.Buffer((64, 48), "float32")):
    for i in range(64):
        for j in range(48):
            c[i, j] = T.float32(0)
            for k in range(80):
                c[i, j] = c[i, j] + a[i, k] * b[k, j]
"""


def bare(*lines: str) -> PrimFunc:
    """Statements, each one level deeper than the one before."""
    return func_of(HEAD + "".join("    " * (depth + 1) + line + "\n" for depth, line in enumerate(lines)))


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (("for i in range(6):", "for j in range(9):", "y[i, j] = a[i, j] * T.float32(2)"), ["spatial", "spatial"]),
        (("for i in range(6):", "if i >= 2:", "for j in range(9):", "y[i, j] = a[i, j]"), ["spatial", "spatial"]),
    ],
    ids=["elements", "a condition"],
)
def test_the_block_computes_what_the_loops_did(lines: tuple[str, ...], kinds: list[str]) -> None:
    """Iterators that the result has are spatial."""
    func = bare(*lines)
    sch = Schedule(func)
    name = sch.add_block("i")
    verify(sch.func)
    same_results(func, sch.func)
    assert [item.kind for item in find_block(sch.func, name).iters] == kinds
    assert Trace.from_json(sch.trace.to_json()).replay(func).func == sch.func


def test_loops_that_the_result_lacks_are_those_of_a_reduction() -> None:
    """In whatever order they stand."""
    func = func_of(PRODUCT)
    sch = Schedule(func)
    rest = sch.distribute("i", 1)
    name = sch.add_block(rest)
    assert [item.kind for item in find_block(sch.func, name).iters] == ["spatial", "spatial", "reduce"]
    sch.compose_reduction(name, sch.add_block("i"))
    same_results(func, sch.func)
    assert "with T.init():" in sch.func.script()


ROWS = "for i in range(6):"
REFUSED = {
    "an inner loop": ((ROWS, "for j in range(9):", "y[i, j] = a[i, j]"), "j", r"\(1\) loop `j` is not the outermost"),
    "memory decides": ((ROWS, "if n[i] > 0:", "for j in range(9):", "y[i, j] = a[i, j]"), "i", r"\(1\)"),
    "a recurrence": ((ROWS, "for j in range(8):", "a[i, j + 1] = a[i, j] + a[i, j + 1]"), "i", r"\(2\)"),
    "the last one": ((ROWS, "for j in range(9):", "y[i, 0] = a[i, j]"), "i", r"\(3\) loop `j` is no part of"),
}


@pytest.mark.parametrize(("lines", "loop", "match"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_block_is_refused(lines: tuple[str, ...], loop: str, match: str) -> None:
    """Each condition by a program that breaks it."""
    with pytest.raises(ScheduleError, match=match):
        Schedule(bare(*lines)).add_block(loop)
    with pytest.raises(ScheduleError, match=r"\(1\)"):
        Schedule(func_of(PRODUCT)).add_block("i")


def test_bare_loops_have_the_space_of_blocks() -> None:
    """A product as one writes it in C has tiles and vectors."""
    func = func_of(PRODUCT)
    found = generate(func, CPU)
    assert {"vec=s1,row=s0", "vec=s0,row=s1"} <= {sketch.name for sketch in found.sketches}
    for sketch in found.sketches[:2]:
        for row in sketch.draw(np.random.default_rng(0), 2).tolist():
            same_results(func, sketch.schedule(row).func)
