"""pad_einsum: extents of a sum of products become multiples, results stay, and each condition is told."""

from __future__ import annotations

import re

import numpy as np
import pytest
from goldens.execute import same_results

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc, blocks
from stridesmith.ir.verify.bounds import check_in_bounds

MATMUL = """
@T.prim_func
def main(A: T.Buffer((12, 11), "{dtype}"), B: T.Buffer((11, 13), "{dtype}"), C: T.Buffer(({m}, 13), "{dtype}")):
    {attrs}
    for i, j, k in T.grid(12, 13, 11):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{dtype}(0)
            C[vi, vj] = C[vi, vj] + {value}
"""
SIZED = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (8, 7), "float32")
    B = T.match_buffer(b, (n, 7), "float32")
    C = T.match_buffer(c, (8, n), "float32")
    for i0, i1, i2 in T.grid(8, n, 7):
        with T.block("C"):
            i, j, k = T.axis.remap("SSR", [i0, i1, i2])
            with T.init():
                C[i, j] = T.float32(0)
            C[i, j] = C[i, j] + A[i, k] * B[j, k]
"""


def matmul(value: str = "A[vi, vk] * B[vk, vj]", dtype: str = "float32", m: int = 12, attrs: str = "pass") -> PrimFunc:
    func = ss.parse(MATMUL.format(value=value, dtype=dtype, m=m, attrs=attrs))
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("padding", [[8, 8, 8], [1, 8, 1], [1, 1, 4], [4, 1, 1], [5, 7, 2]])
def test_extents_become_multiples_and_results_stay(dtype: str, padding: list[int]) -> None:
    """Only what is indexed by an iterator that grows is copied, and no condition is left in the block."""
    func = matmul(dtype=dtype)
    sch = ss.Schedule(func)
    sch.pad_einsum("C", padding)
    ss.verify(sch.func)
    check_in_bounds(sch.func)
    same_results(func, sch.func)
    grown = [-(-e // p) * p for e, p in zip((12, 13, 11), padding, strict=True)]
    block = next(b for b in blocks(sch.func.body) if b.name == "C")
    assert [i.extent for i in block.iters] == grown
    assert "where" not in sch.func.script()
    changed = [a != b for a, b in zip(grown, (12, 13, 11), strict=True)]
    i, j, k = changed
    wanted = {"A_pad": i or k, "B_pad": j or k, "C_pad": i or j}
    assert {b.name for b in sch.func.body.allocs} == {name for name, copied in wanted.items() if copied}
    assert sch.trace.replay(func).func == sch.func


def test_multiples_stay_as_they_are() -> None:
    sch = ss.Schedule(matmul())
    before = sch.func
    sch.pad_einsum("C", [4, 13, 11])
    assert sch.func == before


def test_extents_that_are_expressions() -> None:
    """One program for every n, whose padded loop has ``(n + 3) // 4 * 4`` iterations."""
    sch = ss.Schedule(ss.parse(SIZED))
    sch.pad_einsum("C", [4, 4, 4])
    assert "T.grid((n + 3) // 4 * 4, 8)" in sch.func.script()
    rng = np.random.default_rng(0)
    for n in (1, 4, 5):
        a, b = (rng.integers(-3, 4, s).astype("float32") for s in ((8, 7), (n, 7)))
        c = np.zeros((8, n), "float32")
        ss.interpret(sch.func, a, b, c)
        np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize(
    ("func", "padding", "sentence"),
    [
        (matmul("A[vi, vk] / B[vk, vj]"), [1, 1, 8], "(5) block `C` cannot run for what is added"),
        (matmul("A[vi, vk] * B[vk, vj] + T.float32(1)"), [1, 1, 8], "(5) block `C` cannot run for what is added"),
        (matmul(attrs='T.func_attr({"strict_float": True})'), [1, 1, 8], "(5) block `C` cannot run"),
        (matmul("A[vi, vk] * B[vk, 12 - vj]"), [8, 8, 8], "(2) block `C` touches `B` at other indices"),
        (matmul("A[vi, vk] * A[0, vk]"), [8, 8, 8], "(2) block `C` touches `A` at other indices"),
        (matmul(), [8, 8], "(3) block `C` has 3 iterators, and padding=[8, 8] is no positive number"),
        (matmul(), [8, 8, 0], "(3) block `C` has 3 iterators"),
        (matmul(m=16), [8, 8, 8], "(4) block `C` does not write all of `C`"),
    ],
)
def test_refusals(func: PrimFunc, padding: list[int], sentence: str) -> None:
    with pytest.raises(ss.ScheduleError, match=re.escape(sentence)):
        ss.Schedule(func).pad_einsum("C", padding)


def test_only_what_is_read_is_copied() -> None:
    """Of an intermediate that is filled in part, the rest holds nothing."""
    func = ss.parse("""
@T.prim_func
def main(A: T.Buffer((9,), "int32"), C: T.Buffer((9,), "int32")):
    t = T.alloc_buffer((3, 16), "int32")
    for i in range(9):
        with T.block("t"):
            vi = T.axis.spatial(9, i)
            t[1, vi] = A[vi] * 2
    for i in range(9):
        with T.block("C"):
            vi = T.axis.spatial(9, i)
            C[vi] = t[1, vi] * 3
""")
    assert isinstance(func, PrimFunc)
    sch = ss.Schedule(func)
    sch.pad_einsum("C", [4])
    same_results(func, sch.func)


def test_a_block_under_other_loops_or_conditions_is_refused() -> None:
    sch = ss.Schedule(matmul())
    with pytest.raises(ss.ScheduleError, match=r"\(1\) block `root` does not stand alone in a nest"):
        sch.pad_einsum("root", [])
    sch.split("j", factors=[None, 4])
    with pytest.raises(ss.ScheduleError, match=r"\(1\) block `C` does not stand alone in a nest"):
        sch.pad_einsum("C", [8, 8, 8])
    text = MATMUL.format(value="A[vi, vk] * B[vk, vj]", dtype="int32", m=12, attrs="pass")
    init = "            with T.init():\n                C[vi, vj] = T.int32(0)\n"
    assert init in text
    sch = ss.Schedule(ss.parse(text.replace(init, "")))
    with pytest.raises(ss.ScheduleError, match=r"\(4\) block `C` does not write all of `C`, or adds to what it held"):
        sch.pad_einsum("C", [8, 8, 8])


def test_wider_loops_are_held_by_their_type() -> None:
    """A loop of int8 is not padded to 128, nor is one over a size that may be rounded up to that."""
    narrow = SIZED.replace("T.int64", "T.int8").replace("    for ", "    T.assume(1 <= n and n <= 97)\n    for ", 1)
    constant = ss.parse(
        MATMUL.format(value="A[vi, vk] * B[vk, vj]", dtype="float32", m=12, attrs="pass"), integers="int8"
    )
    for text, padding, loop, extent in (
        (constant, [128, 1, 1], "i", "128"),
        (ss.parse(narrow, integers="int8"), [1, 32, 1], "i1", r"\(n \+ 31\) // 32 \* 32"),
    ):
        assert isinstance(text, PrimFunc)
        sentence = rf"\(6\) the type int8 of loop `{loop}` is not known to hold its extent `{extent}`"
        with pytest.raises(ss.ScheduleError, match=sentence):
            ss.Schedule(text).pad_einsum("C", padding)


NARROW = """
@T.prim_func
def f(n: T.int32, A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), C: T.Buffer((1,), "float32")):
    {known}
    for k in T.serial(n):
        with T.block("C"):
            vk = T.axis.reduce(n, k)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vk] * B[vk]
"""


def test_loops_of_int32_whose_multiples_are_known_to_fit() -> None:
    sch = ss.Schedule(ss.parse(NARROW.format(known="T.assume(n <= 1000)"), integers="int32"))
    sch.pad_einsum("C", [32])
    for n in (1, 32, 33):
        a, c = np.arange(n, dtype="float32") % 5, np.zeros(1, "float32")
        ss.interpret(sch.func, n, a, a, c)
        assert c[0] == (a * a).sum()
    unknown = ss.Schedule(ss.parse(NARROW.format(known="pass"), integers="int32"))
    with pytest.raises(ss.ScheduleError, match=re.escape("(6) the type int32 of loop `k` is not known to hold")):
        unknown.pad_einsum("C", [32])
