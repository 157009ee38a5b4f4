"""Python functions of expressions: index maps and pad values mean what their text means."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith import T
from stridesmith.ir.expr import Buffer, Load, Var, const
from stridesmith.ir.layout.index_map import IndexMap, IndexMapError
from stridesmith.ir.layout.pad_value import PadValue
from stridesmith.ir.node import TRACING
from stridesmith.ir.passes.layouts import with_layout_transform

COPY = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    for i in range(14):
        with T.block("copy"):
            vi = T.axis.spatial(14, i)
            B[vi] = A[vi]
"""
MEMORY = Buffer("B", (4, 4))


def padding(pad_value: Any) -> list[float]:
    """What the interpreter leaves in the two elements of padding at B[3, 2] and B[3, 3]."""
    sch = ss.Schedule(ss.parse(COPY))
    sch.transform_layout("copy", "B", "lambda i: [i // 4, i % 4]", pad_value=pad_value)
    ss.verify(sch.func)
    result = np.zeros((4, 4), np.float32)
    ss.interpret(sch.func, np.arange(14, dtype=np.float32), result)
    return [float(value) for value in result[3, 2:]]


@pytest.mark.parametrize(("value", "expected"), [
    (lambda io, ii: T.Select(ii == 2, 1.0, 2.0), [1.0, 2.0]),
    (lambda io, ii: T.Select(ii != 2, 1.0, 2.0), [2.0, 1.0]),
    (lambda io, ii: T.Select(2 == ii, 1.0, 2.0), [1.0, 2.0]),  # noqa: SIM300
    (lambda io, ii: T.Select(np.int64(2) == ii, 1.0, 2.0), [1.0, 2.0]),
    (lambda io, ii: T.Select(ii == np.int64(2), 1.0, 2.0), [1.0, 2.0]),
    (lambda io, ii: T.if_then_else(ii % 2 == 0, 5.0, io), [5.0, 3.0]),
    (lambda io, ii: T.if_then_else(T.all(io == 3, T.Not(ii == 2)), 1.0, 2.0), [2.0, 1.0]),
    (lambda io, ii: T.Select(T.min(io, ii) == io, 1.0, 2.0), [2.0, 1.0]),
    (lambda io, ii: T.Select(MEMORY[0, ii] == 2, 1.0, 7.0), [1.0, 7.0]),
    (lambda io, ii: T.Select(MEMORY[0, 2] == MEMORY[0, 3], 1.0, 7.0), [7.0, 7.0]),
    (lambda io, ii: ii == 2, [1.0, 0.0]),
    (lambda io, ii: io + 0.5, [3.5, 3.5]),
    (lambda io, ii: ii * 0.5, [1.0, 1.5]),
    (lambda io, ii: ii / 2.0, [1.0, 1.5]),
    (lambda io, ii: -ii * 0.25, [-0.5, -0.75]),
    (lambda io, ii: 6.0 / ii, [3.0, 2.0]),
    (lambda io, ii: 7 // ii + 7 % ii, [4.0, 3.0]),
    (lambda io, ii: T.Select(ii < 2.5, 1.0, 2.0), [1.0, 2.0]),
])  # fmt: skip
def test_a_function_pads_with_what_it_says(value: Callable[..., Any], expected: list[float]) -> None:
    """Comparisons are built, and numbers of another type are not cut to that of the index."""
    assert padding(value) == expected


@pytest.mark.parametrize(("value", "text"), [
    (lambda io, ii: io + 0.5, "lambda io, ii: io + 0.5"),
    (lambda io, ii: ii == 2, "lambda io, ii: ii == 2"),
    (lambda io, ii: T.Select(ii <= 2.5, ii, 0.25), "lambda io, ii: T.Select(ii <= 2.5, ii, 0.25)"),
])  # fmt: skip
def test_a_function_means_what_its_text_means(value: Callable[..., Any], text: str) -> None:
    """Values are those of the script, types included."""
    names = (Var("io"), Var("ii"))
    made, read = PadValue.make(value, MEMORY, names), PadValue.make(text, MEMORY, names)
    assert made == read


@pytest.mark.parametrize("value", [
    lambda io, ii: 1.0 if ii == 2 else 2.0,
    lambda io, ii: 1.0 if MEMORY[0, 0] == 2 else 2.0,
    lambda io, ii: T.Select(io == 3 and ii == 2, 1.0, 2.0),
    lambda io, ii: T.Select(io == 3 or ii == 2, 1.0, 2.0),
    lambda io, ii: T.Select(not ii < 2, 1.0, 2.0),
    lambda io, ii: T.Select(0 <= ii < 3, 1.0, 2.0),
    lambda io, ii: T.Select(ii in (1, 2), 1.0, 2.0),
    lambda io, ii: min(ii, 1),
    lambda io, ii: max(ii, 1),
])  # fmt: skip
def test_what_python_would_decide_is_refused(value: Callable[..., Any]) -> None:
    """A truth value of an expression is an error that says what to write."""
    with pytest.raises(TypeError, match=r"is neither true nor false before it runs: write T.if_then_else\(c, a, b\)"):
        padding(value)


@pytest.mark.parametrize("value", [lambda io, ii: {2: 1.0}.get(ii, 2.0), lambda io, ii: float(ii in {1, 2})])
def test_an_expression_is_no_key(value: Callable[..., Any]) -> None:
    """A table of Python finds no element by an expression."""
    with pytest.raises(TypeError, match="no set or dictionary holds before it runs: compare it by `==`"):
        padding(value)


def test_other_refusals() -> None:
    """Integers are not divided by `/`, operands are expressions or numbers, and indices have names."""
    with pytest.raises(TypeError, match=r"`ii / 2` divides integers: write `//`"):
        padding(lambda io, ii: ii / 2)
    with pytest.raises(ss.ScheduleError, match="`/` in `ii / 2` does not take operands of type int64"):
        padding("lambda io, ii: ii / 2")
    with pytest.raises(TypeError, match=r"an operand of `==` is no expression that fits: .* got `None`"):
        padding(lambda io, ii: T.Select(ii == None, 1.0, 2.0))  # noqa: E711
    for varying in (lambda *indices: sum(indices), lambda *indices: indices[1]):
        with pytest.raises(ss.ScheduleError, match="a pad value that varies names its indices one by one"):
            padding(varying)
    for number in (int, float, round, range):
        with pytest.raises(TypeError):
            padding(lambda io, ii, number=number: number(ii))


def test_index_maps_may_compare() -> None:
    """`==` and `!=` in an index map choose between indices."""
    swapped = IndexMap.from_func(lambda i: [T.if_then_else(i == 3, 4, T.if_then_else(i == 4, 3, i))])
    assert [swapped.map_point([i])[0] for i in range(6)] == [0, 1, 2, 4, 3, 5]
    assert swapped == IndexMap.parse(swapped.text)
    apart = IndexMap.from_func(lambda i, j: [T.Select(i != j, 0, 1), i, j])
    assert all(apart.map_point([i, j]) == (int(i == j), i, j) for i, j in product(range(3), repeat=2))
    sch = ss.Schedule(ss.parse(COPY))
    sch.transform_layout("copy", "B", lambda i: [T.if_then_else(i == 0, 13, i - 1)])
    result = np.zeros(14, np.float32)
    ss.interpret(sch.func, np.arange(14, dtype=np.float32), result)
    assert result.tolist() == [*range(1, 14), 0]


@pytest.mark.parametrize(("index", "why"), [
    (lambda i: [i, i == 2], "an index must be an integer, not a condition, but got `i == 2`"),
    (lambda i: [i, True], "an index map returns index expressions, but got True"),
    (lambda i: [i * 0.5], "is computed from .* which is a float32"),
    (lambda i: [T.Cast("int64", i * 0.5)], "is computed from .* which is a float32"),
])  # fmt: skip
def test_indices_are_integers(index: Callable[..., Any], why: str) -> None:
    """Conditions and floats are no indices."""
    with pytest.raises(IndexMapError, match=why):
        IndexMap.from_func(index)


@pytest.mark.parametrize("use", [
    lambda sch, index: IndexMap.from_func(index),
    lambda sch, index: IndexMap.make(index),
    lambda sch, index: sch.transform_layout("copy", "B", index),
    lambda sch, index: sch.transform_loops(["i"], index),
    lambda sch, index: sch.transform_block_layout("copy", index),
    lambda sch, index: sch.reindex_cache_read("copy", 0, "global", index),
    lambda sch, index: sch.reindex_cache_write("copy", 0, "global", index),
    lambda sch, index: ss.propose_pad_values(sch.func, "A", index),
    lambda sch, index: with_layout_transform(sch.func, "A", index),
])  # fmt: skip
def test_every_place_that_takes_an_index_map_traces_it(use: Callable[..., Any]) -> None:
    """What Python would decide is refused, and what compares is built."""
    with pytest.raises(TypeError, match="`i == 3` is an expression, which is neither true nor false"):
        use(ss.Schedule(ss.parse(COPY)), lambda i: [0 if i == 3 else i])
    use(ss.Schedule(ss.parse(COPY)), lambda i: [T.if_then_else(i == 3, 4, T.if_then_else(i == 4, 3, i))])


def test_maps_are_used_inside_of_maps() -> None:
    """What a traced function calls compares by structure, and tracing goes on after it."""
    tiles = IndexMap.from_func(lambda i: [i // 4, i % 4])

    def outer(i: Any) -> list[Any]:
        high, low = tiles.map_indices([i])
        again = IndexMap.from_func(lambda k: [T.if_then_else(k == 0, 1, T.if_then_else(k == 1, 0, k))])
        return [*again.map_indices([high]), T.if_then_else(low == 0, 0, low)]

    made = IndexMap.from_func(outer)
    assert [made.map_point([i]) for i in (0, 1, 5)] == [(1, 0), (1, 1), (0, 1)]
    assert tiles.inverse([16]).map_point([1, 2]) == (6,)


def test_only_the_traced_thread_builds() -> None:
    """Elsewhere, also at the same time, `==` compares structure; an error ends it."""
    seen: list[bool] = []

    def read(i: Any) -> list[Any]:
        other = threading.Thread(target=lambda: seen.append(Var("i") + 1 == Var("i") + 1 and Var("i") != const(1)))
        other.start()
        other.join()
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        IndexMap.from_func(read)
    assert seen == [True]
    assert not TRACING
    assert Load(MEMORY, (Var("i"), const(0))) == MEMORY[Var("i"), 0]
    assert len({Var("i"), Var("i"), const(1)}) == 2
