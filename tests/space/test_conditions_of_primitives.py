"""Primitives on programs whose init, extents, conditions or indices are not the usual ones: the same results, or no."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scheduled import same, schedule

from stridesmith.space.schedule import Schedule, ScheduleError

UNSURE = """
@T.prim_func
def main(M: T.Buffer((4,), "int32"), X: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for i in range(4):
        B[i] = 0
    for i in range(4):
        with T.block("w"):
            v = T.axis.spatial(4, i)
            T.where(M[i] > 0)
            A[v] = X[v]
    for i in range(4):
        with T.block("r"):
            v = T.axis.spatial(4, i)
            T.where(M[i] > 0)
            B[v] = A[v]
"""
BOUND = """
@T.prim_func
def main(A: T.Buffer((4, 4), "int32"), C: T.Buffer((4,), "int32")):
    for f in range(16):
        y: T.int64 = f // 4
        with T.block("sum"):
            vi = T.axis.spatial(4, y)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + A[vi, vk]
"""
EXTENT = """
@T.prim_func
def main(B: T.Buffer((4, 12), "int32"), n: T.int64):
    for i in range(4):
        if n > 0:
            for j in range(12 // n):
                B[i, j] = 1
"""
TERMS = """
@T.prim_func
def main(X: T.Buffer((2,), "int32"), A: T.Buffer((2, 3), "int32"), C: T.Buffer((2,), "int32")):
    D = T.alloc_buffer((2,), "int32")
    for i, k in T.grid(2, 3):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = X[vi]
                C[vi] = 0
            C[vi] = C[vi] + A[vi, vk] * D[vi]
"""
PLACES = """
@T.prim_func
def main(A: T.Buffer((2, 4), "int32"), C: T.Buffer((2, 2), "int32")):
    for i, k in T.grid(2, 4):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                for j in range(2):
                    C[vi, j] = 0
            C[vi, vk % 2] = C[vi, vk % 2] + A[vi, vk]
"""
PARTIAL = """
@T.prim_func
def main(A: T.Buffer((4, 3), "int32"), C: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("first"):
            v = T.axis.spatial(4, i)
            C[v] = 100
    for i, k in T.grid(4, 3):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                if vi > 1:
                    C[vi] = 0
            C[vi] = C[vi] + A[vi, vk]
"""
READING = PARTIAL.replace("if vi > 1:\n                    C[vi] = 0", "C[vi] = C[vi] + 1")
LOOPS = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for i in range(3):
        with T.block("w"):
            v = T.axis.spatial(3, i)
            A[v + 1] = X[v + 1]
    for i in range(4):
        with T.block("r"):
            v = T.axis.spatial(4, i)
            B[v] = 0
            for j in range(v):
                B[v] = B[v] + A[v]
"""
NEVER = """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), C: T.Buffer((1,), "int32")):
    for i, k in T.grid(1, 8):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + T.if_then_else(vk % 4 == 5, A[vk], 0)
"""
NARROW = """
@T.prim_func
def main(A: T.Buffer((200, 4), "int32"), P: T.Buffer((8,), "uint8"), B: T.Buffer((8, 4), "int32")):
    idx = T.alloc_buffer((8,), "uint8")
    for i in range(8):
        idx[i] = T.uint8(100) + P[i] % T.uint8(4)
    for i, j in T.grid(8, 4):
        with T.block("g"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[idx[vi], vj]
"""
FACTORED = """
@T.prim_func
def main(A: T.Buffer((3, 4), "int32"), C: T.Buffer((3,), "int32")):
    for i in T.serial(T.int32(3)):
        for k in T.serial(T.int32(4)):
            with T.block("b"):
                vi = T.axis.spatial(T.int32(3), i)
                vk = T.axis.reduce(T.int32(4), k)
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + A[vi, vk]
"""
MOVING = """
@T.prim_func
def main(A: T.Buffer((2, 4), "int8"), W: T.Buffer((4,), "int8"), C: T.Buffer((1,), "int32")):
    C[0] = 0
    for k in range(4):
        with T.block("b"):
            vk = T.axis.opaque(4, k)
            C[0] = C[0] + T.Cast("int32", A[T.min(T.max(C[0], 0), 1), vk]) * T.Cast("int32", W[vk])
"""

Step = Callable[[Schedule], object]


@pytest.mark.parametrize(
    ("text", "step", "number"),
    [
        (UNSURE, lambda sch: sch.cache_read("r", 0, "global"), "3"),
        (EXTENT, lambda sch: sch.reorder("j", "i"), "2"),
        (TERMS, lambda sch: sch.rfactor("k", 0), "1"),
        (PLACES, lambda sch: sch.rfactor("k", 0), "1"),
        (PLACES, lambda sch: sch.restrict_reduction("b", "k"), "1"),
        (PARTIAL, lambda sch: sch.reindex_cache_write("sum", 0, "global", lambda vi, vk: [vi]), "9"),
        (READING, lambda sch: sch.reindex_cache_write("sum", 0, "global", lambda vi, vk: [vi]), "9"),
        (NEVER, lambda sch: sch.restrict_reduction("b", "k"), "3"),
        (MOVING, lambda sch: sch.tensorize("k", "dot_int8x4_int32"), "4"),
    ],
    ids=["memory decides", "extent", "terms", "places", "places again", "partial init", "init that adds", "never",
         "moving part"],
)  # fmt: skip
def test_what_would_be_something_else_is_refused(text: str, step: Step, number: str) -> None:
    """By the number of the condition, and the program stays as it is."""
    sch = schedule(text, is_valid=False)
    before = sch.func
    with pytest.raises(ScheduleError, match=rf"\({number}\) "):
        step(sch)
    assert sch.func == before


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (BOUND, lambda sch: sch.decompose_reduction("sum", "f")),
        (LOOPS, lambda sch: sch.reindex_cache_read("r", 0, "global", lambda v: [v])),
        (NARROW, lambda sch: sch.transform_layout("g", "A", lambda i, j: [i * 4 + j])),
        (FACTORED, lambda sch: sch.rfactor("k", 0)),
    ],
    ids=["a bound iterator", "loops that may not run", "narrow indices", "narrow loops"],
)
def test_what_is_accepted_computes_the_same(text: str, step: Step) -> None:
    """Bindings are looked through, loops may have no iteration, and indices have their types."""
    sch = schedule(text)
    step(sch)
    same(sch, text)


def test_factors_beyond_the_type_of_a_loop_are_refused() -> None:
    """The last of 150 iterations would be counted as a negative number, and run."""
    text = """
@T.prim_func
def main(A: T.Buffer((120,), "int32")):
    for i in T.serial(T.int8(120)):
        A[i] = 1
"""
    with pytest.raises(ScheduleError, match=r"\(2\) the factors \[3, 50\] count further than the type int8"):
        schedule(text).split("i", [None, 50])
    sch = schedule(text)
    sch.split("i", [None, 40])
    same(sch, text)
