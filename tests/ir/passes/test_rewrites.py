"""The suite of rewrites: every program becomes what its table says, or shorter, and computes what it did."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from ir.passes.rewrites import BUFFERS, ROWS, Case, cases

import stridesmith as ss
from stridesmith.ir.expr import Expr
from stridesmith.ir.node import walk
from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.stmt import PrimFunc, Stmt, Store

CASES = cases()
ENDS = (-(2**31), -3, -1, 0, 1, 2, 5, 9, 2**31 - 1)
PAGE = Path(__file__).parents[3] / "docs" / "rewrites.md"


def read(body: str) -> PrimFunc:
    """The program of a body, with the buffers that it speaks of as parameters."""
    rows = {**dict.fromkeys("UVW", f'({ROWS},), "int32"'), "R": f'({ROWS},), "bool"'}
    known = {**BUFFERS, **rows}
    own = set(re.findall(r"^\s*(\w) = T\.", body, re.MULTILINE))
    used = [name for name in known if name not in own and re.search(rf"\b{name}\[", body)]
    params = ", ".join(f"{name}: T.Buffer({known[name]})" for name in used)
    lines = "\n".join("    " + line for line in body.splitlines())
    func = ss.parse(f"@T.prim_func\ndef f({params}):\n{lines}\n")
    assert isinstance(func, PrimFunc)
    return func


def size(func: PrimFunc) -> int:
    """How much there is to read: statements, and the nodes of expressions."""
    return sum(isinstance(n, (Stmt, Expr)) for n in walk(func.body))


def results(func: PrimFunc, seed: int) -> list[np.ndarray]:
    """What is in all buffers afterwards: small numbers, with NaN among the floats, and all rows of `ENDS`."""
    rng = np.random.default_rng(seed)
    grid = dict(zip("UVW", np.asarray(list(product(ENDS, repeat=3)), "int32").T, strict=True))
    assumed = 3 if "X[a] == T.int32(3)" in func.script() else 0 if "X[a] == T.int32(0)" in func.script() else None
    arrays = []
    for buffer in func.buffers:
        if buffer.name in grid:
            array = grid[buffer.name].copy()
        elif buffer.dtype == "float32":
            array = rng.choice(np.asarray([0, -0.0, 1, -2.5, np.nan, 3], "float32"), buffer.shape)
        else:
            array = rng.integers(-2, 6, buffer.shape).astype(buffer.dtype)
        if buffer.name == "X" and assumed is not None:
            array[...] = assumed
        arrays.append(np.ascontiguousarray(array))
    ss.interpret(func, *arrays)
    return arrays


def named(func: PrimFunc, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {b.name: a for b, a in zip(func.buffers, arrays, strict=True)}


@pytest.mark.parametrize("case", CASES, ids=[f"{c.kind}-{n}" for n, c in enumerate(CASES)])
def test_a_program_becomes_what_its_table_says(case: Case) -> None:
    """It is no longer than that, computes on all inputs what it did, and loses nothing where it stays."""
    before, after = read(case.before), read(case.after)
    found = PASSES[case.run](before)
    assert size(found) <= size(after), f"\n{before.script()}->\n{found.script()}"
    if case.stays and case.run == "remove_no_op":
        assert sum(isinstance(n, Store) for n in walk(found)) == sum(isinstance(n, Store) for n in walk(before))
    for seed in range(1 if "U[r]" in case.before else 3):
        expected, got = named(before, results(before, seed)), named(found, results(found, seed))
        for name, array in expected.items():
            np.testing.assert_array_equal(array, got[name], err_msg=f"{name}\n{found.script()}")


def test_the_suite_is_as_large_as_its_page_says() -> None:
    """At least 250 different programs; the page has the table of their kinds."""
    assert len({(c.run, c.before) for c in CASES}) == len(CASES) >= 250
    counts = Counter(c.kind for c in CASES)
    shorter = Counter(c.kind for c in CASES if not c.stays)
    runs = {c.kind: c.run for c in CASES}
    rows = [f"| {kind} | `{runs[kind]}` | {n} | {shorter[kind]} | {n - shorter[kind]} |" for kind, n in counts.items()]
    rows.append(f"| all | | {len(CASES)} | {sum(shorter.values())} | {len(CASES) - sum(shorter.values())} |")
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8"), "\n".join(rows)


WRAPPED = [
    ("n < m + 5 and n < m + 10", "n < m + 5", (0, 2**31 - 8)),
    ("n < m + 10 and n < m + 5", "n < m + 5", (0, 2**31 - 8)),
    ("n < m + 10 or n < m + 5", "n < m + 10", (0, 2**31 - 8)),
    ("n < m + 5 or n < m + 10", "n < m + 10", (0, 2**31 - 8)),
    ("T.if_then_else(n < m, n < m + 1, False)", "n < m", (0, 2**31 - 1)),
]
"""Conditions over two int32, what TVM 0.14 makes of them, and integers of which that is something else."""


@pytest.mark.parametrize(("before", "theirs", "at"), WRAPPED)
def test_what_wraps_around_is_not_assumed_away(before: str, theirs: str, at: tuple[int, int]) -> None:
    """TVM says nothing of the ends of a type, and is wrong there; where the program says it, ours are as short."""

    def program(cond: str, known: str = "") -> PrimFunc:
        text = f'@T.prim_func\ndef f(P: T.Buffer((1,), "bool"), n: T.int32, m: T.int32):\n{known}    P[0] = {cond}\n'
        func = ss.parse(text)
        assert isinstance(func, PrimFunc)
        return func

    def value(func: PrimFunc, n: int, m: int) -> bool:
        out = np.zeros(1, bool)
        ss.interpret(func, out, n, m)
        return bool(out[0])

    func = program(before)
    assert value(func, *at) != value(program(theirs), *at)
    assert value(PASSES["simplify"](func), *at) == value(func, *at)
    known = "    T.assume(m < 1000)\n"
    assert size(PASSES["simplify"](program(before, known))) == size(program(theirs, known))


def test_flattening_keeps_axis_separators_of_allocations() -> None:
    """TVM drops those of the allocation, so that a second run flattens it and leaves its declaration in two axes."""
    text = """
@T.prim_func
def f(B: T.Buffer((6,), "float32")):
    A = T.decl_buffer((2, 3, 5, 7), "float32", axis_separators=[2])
    for i, j, k, l in T.grid(2, 3, 5, 7):
        A[i, j, k, l] = T.float32(1)
    for i, j in T.grid(2, 3):
        B[i * 3 + j] = A[i, j, i, j]
"""
    func = ss.parse(text)
    assert isinstance(func, PrimFunc)
    flat = PASSES["flatten_buffers"](func)
    assert PASSES["flatten_buffers"](flat) == flat
    allocated = 'T.allocate([6, 35], "float32"'
    theirs = ss.parse(flat.script().replace(f"{allocated}, axis_separators=[1])", f"{allocated})"))
    assert isinstance(theirs, PrimFunc) and theirs != flat
    again = PASSES["flatten_buffers"](theirs).script()
    assert 'T.allocate([210], "float32")' in again and 'T.decl_buffer((6, 35), "float32"' in again
