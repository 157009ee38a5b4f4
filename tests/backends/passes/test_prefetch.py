"""Panels of weights are fetched while the ones before them are used: all of the next, once, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from draws import func_of

from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.ir.arith.simplify import simplify
from stridesmith.ir.expr import Call, Expr, Load, as_int, const, substitute
from stridesmith.ir.functions import PREFETCH
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import children
from stridesmith.ir.stmt import Evaluate, For, PrimFunc, Stmt, walk_stmts

CPU = discover("cpu", threads=2)
LINE = 16
PANELS, STEPS = 3, 4

NESTED = """
@T.prim_func
def main(x: T.Buffer(({rows}, 4), "float32"), w: T.Buffer((3, 4, {width}), "float32"),
         y: T.Buffer((3, {rows}, {width}), "float32")):
    for p in T.parallel(3, annotations={{"prefetch": {which}}}):
        for r in range({rows}):
            for c in T.vectorized({width}):
                y[p, r, c] = T.float32(0)
            for k in range(4):
                for j in T.unroll({width} // 16):
                    for c in T.vectorized(16):
                        y[p, r, j * 16 + c] = y[p, r, j * 16 + c] + w[{panel}, k, j * 16 + c] * x[r, k]
"""
FUSED = """
@T.prim_func
def main(x: T.Buffer(({rows}, 4), "float32"), w: T.Buffer((3, 4, {width}), "float32"),
         y: T.Buffer((3, {rows}, {width}), "float32")):
    for f in T.parallel(3 * {rows}, annotations={{"prefetch": {which}}}):
        for c in T.vectorized({width}):
            y[f // {rows}, f % {rows}, c] = T.float32(0)
        for k in range(4):
            for j in T.unroll({width} // 16):
                for c in T.vectorized(16):
                    y[f // {rows}, f % {rows}, j * 16 + c] = (
                        y[f // {rows}, f % {rows}, j * 16 + c]
                        + w[f // {rows}, k, j * 16 + c] * x[f % {rows}, k]
                    )
"""


def program(text: str, rows: int, width: int, which: str = "[1]", panel: str = "p") -> PrimFunc:
    return func_of(text.format(rows=rows, width=width, which=which, panel=panel))


def fetches(func: PrimFunc) -> list[tuple[list[For], Expr]]:
    """What is fetched, each with the loops around it."""
    return list(_fetches(lower(func, CPU).body, ()))


def _fetches(stmt: Stmt, around: tuple[For, ...]) -> Iterator[tuple[list[For], Expr]]:
    if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.name == PREFETCH:
        (load,) = stmt.value.args
        assert isinstance(load, Load) and load.buffer.name == "w"
        yield list(around), load.indices[0]
    inside = (*around, stmt) if isinstance(stmt, For) else around
    for child in children(stmt):
        if isinstance(child, Stmt):
            yield from _fetches(child, inside)


def lines(found: list[tuple[list[For], Expr]], outermost: int) -> list[int]:
    """The lines that are fetched while the outermost loop is at a value."""
    result = []
    for loops, index in found:
        extents = [range(as_int(loop.extent) or 0) for loop in loops[1:]]
        for values in product([outermost], *extents):
            at = {loop.var: const(value) for loop, value in zip(loops, values, strict=True)}
            place = as_int(simplify(substitute(index, at)))
            assert place is not None
            assert place % LINE == 0
            result.append(place // LINE)
    return result


@pytest.mark.parametrize(("rows", "width"), [(2, 64), (3, 64), (4, 64), (6, 32), (5, 48), (9, 16)])
@pytest.mark.parametrize("text", [NESTED, FUSED])
def test_all_of_the_next_panel_is_fetched(text: str, rows: int, width: int) -> None:
    """By all of the iterations that use a panel together; none of them fetches more than its share, rounded up."""
    found = fetches(program(text, rows, width))
    panel = STEPS * width // LINE
    for number in range(PANELS - 1):
        each = [number] if text == NESTED else range(number * rows, (number + 1) * rows)
        got = [line for value in each for line in lines(found, value)]
        wanted = set(range((number + 1) * panel, (number + 2) * panel))
        assert wanted <= set(got)
        share = -(-(width // LINE) // rows)
        assert len(got) == rows * STEPS * share
        if width // LINE % rows == 0:
            assert sorted(got) == sorted(wanted)


@pytest.mark.parametrize(
    ("rows", "which", "panel"),
    [(1, "[1]", "p"), (4, "[0]", "p"), (4, "[7]", "p"), (4, "[1]", "0"), (4, '"w"', "p"), (4, "[1]", "p * p % 3")],
)
def test_nothing_is_fetched(rows: int, which: str, panel: str) -> None:
    """A panel that is used once, another parameter, none, the one panel that there is, and steps of no one distance."""
    found = fetches(program(NESTED, rows, 32, which, panel))
    assert found == [] or panel == "p * p % 3"


def test_loops_that_are_not_annotated_fetch_nothing() -> None:
    text = NESTED.replace(', annotations={{"prefetch": {which}}}', "")
    assert fetches(program(text, 4, 32)) == []


@pytest.mark.parametrize("text", [NESTED, FUSED])
def test_results_stay(text: str) -> None:
    """Also beyond the last panel, where what is fetched does not exist."""
    func = program(text, 4, 32)
    rng = np.random.default_rng(0)
    given = {b.name: rng.integers(-3, 4, b.shape).astype(np.float32) for b in func.buffers[:2]}
    wanted = np.zeros(func.buffers[2].shape, np.float32)
    interpret(func, given["x"], given["w"], wanted)
    lowered = lower(func, CPU)
    assert any(isinstance(s, Evaluate) for s in walk_stmts(lowered.body))
    bound = load_artifact(compile_lowered(lowered, CPU)).bind()
    for number, name in enumerate(("x", "w")):
        bound.write(number, given[name])
    bound.run()
    np.testing.assert_array_equal(bound.read(2).reshape(wanted.shape), wanted)
