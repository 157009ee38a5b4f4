"""Loops and iterators of every integer type: what a primitive accepts is valid, and wraps around as before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.ir.expr import Var
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

Step = Callable[[Schedule], object]


def schedule(text: str) -> Schedule:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return Schedule(func)


def results(func: PrimFunc) -> list[np.ndarray]:
    """All arguments after a run on fixed numbers."""
    rng = np.random.default_rng(5)
    arrays = [rng.integers(0, 10, b.shape).astype(b.dtype) for b in func.buffers]
    interpret(func, *arrays)
    return arrays


def same(sch: Schedule, text: str) -> None:
    """The schedule's program is valid, computes what `text` does, and its trace replays."""
    original = schedule(text).func
    verify(sch.func)
    check_in_bounds(sch.func)
    for got, wanted in zip(results(sch.func), results(original), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=sch.func.script())
    assert parse(sch.func.script()) == sch.func
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func


def kinds(func: PrimFunc) -> set[str]:
    """The types of the loops."""
    return {node.var.dtype for node in walk(func.body) if isinstance(node, For)}


# ------------------------------------------------------------ products of extents

PAIR = """
@T.prim_func
def main(A: T.Buffer((3, 100), "float32"), B: T.Buffer((3, 100), "float32")):
    for i in range(T.{first}(3)):
        for j in range(T.{second}(100)):
            B[i, j] = A[i, j] + T.Cast("float32", j * T.{second}(2))
"""


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_loops_are_not_fused_beyond_their_type(kind: str) -> None:
    """Three times a hundred iterations are more than a byte counts."""
    sch = schedule(PAIR.format(first=kind, second=kind))
    with pytest.raises(ScheduleError, match=rf"\(2\) the loops .* have 300 iterations together, more than {kind}"):
        sch.fuse("i", "j")


@pytest.mark.parametrize(
    ("first", "second"), [("int8", "int64"), ("int64", "uint8"), ("uint8", "int16"), ("int32", "int32")]
)
def test_loops_of_two_types_fuse_in_the_one_that_counts_furthest(first: str, second: str) -> None:
    """The fused program is valid, computes the same, and compiles."""
    text = PAIR.format(first=first, second=second)
    sch = schedule(text)
    fused = sch.fuse("i", "j")
    same(sch, text)
    wanted = max((first, second), key=lambda kind: int(kind.strip("uint")))
    assert Var(fused, wanted) in {node.var for node in walk(sch.func.body) if isinstance(node, For)}
    a, b = np.arange(300, dtype=np.float32).reshape(3, 100), np.zeros((3, 100), np.float32)
    interpret(schedule(text).func, a, b)
    np.testing.assert_array_equal(ss.build(sch.func)(a), b)


def test_factors_that_their_type_does_not_hold_are_refused() -> None:
    """A loop of 256 iterations has no extent in uint8, although its last number is one."""
    head = '@T.prim_func\ndef main(A: T.Buffer((200,), "int32")):\n'
    sch = schedule(head + "    for i in range(T.uint8(200)):\n        A[i] = 1\n")
    with pytest.raises(ScheduleError, match=r"\(2\) the factors \[1, 256\] count further than the type uint8"):
        sch.split("i", [None, 256])


def test_loops_are_not_transformed_beyond_their_type() -> None:
    """The sum of two loops runs to 102, and its triple further than a byte counts."""
    text = PAIR.format(first="int8", second="int8")
    sch = schedule(text)
    with pytest.raises(ScheduleError, match=r"\(3\) the type int8 of the loops does not hold the extents \[306, 100\]"):
        sch.transform_loops(["i", "j"], "lambda i, j: [i * 3 + j * 3, j]", [306, 100])
    sch.transform_loops(["i", "j"], "lambda i, j: [i + j, j]")
    same(sch, text)


# ------------------------------------------------------------ iterators keep their types

STAGES = """
@T.prim_func
def main(A: T.Buffer((10, 10), "float32"), C: T.Buffer((10, 10), "float32")):
    B = T.alloc_buffer((10, 10), "float32")
    for i in range({loop}(10)):
        for j in range({loop}(10)):
            with T.block("b"):
                vi = T.axis.spatial({axis}(10), {bi})
                vj = T.axis.spatial({axis}(10), {bj})
                B[vi, vj] = A[vi, vj] + T.Cast("float32", vi * {axis}({factor}))
    for k in range(10):
        for l in range(10):
            with T.block("c"):
                wi, wj = T.axis.remap("SS", [k, l])
                C[wi, wj] = B[wi, wj] * T.float32(2)
"""
FACTORS = {"int32": 1000000000, "int16": 20000, "int8": 100, "uint8": 200}


def stages(loop: str, axis: str, reverse: bool = False) -> str:
    """A stage with iterators of type `axis`, bound to loops of type `loop`, and one of the index type, or reversed."""
    cast = (lambda v: v) if loop == axis else (lambda v: f'T.Cast("{axis}", {v})')
    text = STAGES.format(loop=f"T.{loop}", axis=f"T.{axis}", bi=cast("i"), bj=cast("j"), factor=FACTORS[axis])
    if reverse:
        text = text.replace("A[vi, vj]", "B[vi, vj]").replace("    B[vi, vj] = ", "    C[vi, vj] = ")
        text = text.replace("C[wi, wj] = B[wi, wj]", "B[wi, wj] = A[wi, wj]")
        head, rest = text.split("    for i in")
        first, second = rest.split("    for k in")
        text = f"{head}    for k in{second}    for i in{first}"
    return text


TYPES = [
    ("int32", "int32"), ("int64", "int32"), ("int8", "int8"), ("int32", "int8"), ("uint8", "int16"), ("int64", "uint8"),
]  # fmt: skip
TILED = "lambda i, j: [j, i // 4, i % 4]"

FORWARD: dict[str, Step] = {
    "compute_inline": lambda sch: sch.compute_inline("b"),
    "compute_at": lambda sch: sch.compute_at("b", "k"),
    "compute_at a tile": lambda sch: sch.compute_at("b", sch.split("k", [None, 4])[0]),
    "reindex_cache_read": lambda sch: sch.reindex_cache_read("b", 0, "global", "lambda i, j: [j, i + 1]"),
    "reindex_cache_write": lambda sch: sch.reindex_cache_write("b", 0, "global", "lambda i, j: [j // 4, i, j % 4]"),
    "rewrite_loops": lambda sch: sch.transform_layout("b", "B", TILED, 0, rewrite_loops=True),
    "transform_layout": lambda sch: sch.transform_layout("b", "B", TILED),
    "transform_loops": lambda sch: sch.transform_loops(["i", "j"], "lambda i, j: [i + j, j]"),
    "split": lambda sch: sch.split("i", [None, 4]),
    "fuse": lambda sch: sch.fuse("i", "j"),
    "sequential_buffer_access": lambda sch: (
        sch.transform_layout("b", "B", TILED),
        sch.sequential_buffer_access("b", "B"),
    ),
    "blockize": lambda sch: sch.blockize("j"),
    "cache_read": lambda sch: sch.cache_read("b", 0, "global"),
    "cache_write": lambda sch: sch.cache_write("b", 0, "global"),
}
BACKWARD: dict[str, Step] = {
    "reverse_compute_inline": lambda sch: sch.reverse_compute_inline("b"),
    "reverse_compute_at": lambda sch: sch.reverse_compute_at("b", "k"),
    "reverse_compute_at a tile": lambda sch: sch.reverse_compute_at("b", sch.split("k", [None, 4])[0]),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize(("loop", "axis"), TYPES)
def test_a_producer_wraps_around_in_its_types(loop: str, axis: str, name: str) -> None:
    """Arithmetic of its iterators stays in their type, whatever replaces them."""
    text = stages(loop, axis)
    sch = schedule(text)
    FORWARD[name](sch)
    same(sch, text)


@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.parametrize(("loop", "axis"), TYPES)
def test_a_consumer_wraps_around_in_its_types(loop: str, axis: str, name: str) -> None:
    """As in producers."""
    text = stages(loop, axis, reverse=True)
    sch = schedule(text)
    BACKWARD[name](sch)
    same(sch, text)


@pytest.mark.parametrize("kind", ["int32", "int8"])
def test_loops_of_one_type_have_the_space_of_the_index_type(kind: str) -> None:
    """What is moved, tiled, fused and transformed then has the type of the program throughout."""
    text = stages("int32", "int32").replace("int32", kind).replace("1000000000", "3")
    text = text.replace("range(10)", f"range(T.{kind}(10))")
    sch = schedule(text)
    sch.compute_at("b", sch.split("k", [None, 4])[0])
    sch.fuse(*sch.get_loops("c")[1:])
    sch.split(sch.get_loops("b")[1], [2, None])
    sch.fuse(*sch.get_loops("b")[2:])
    sch.vectorize(sch.split(sch.get_loops("c")[-1], [None, 5])[1])
    same(sch, text)
    assert kinds(sch.func) == {kind}


@pytest.mark.parametrize("kind", ["int64", "int32", "int8"])
def test_block_layouts_of_narrow_iterators(kind: str) -> None:
    """The map is computed exactly, and the loops keep their type."""
    text = stages("int32", "int32").replace("int32", kind).replace("1000000000", "3")
    sch = schedule(text)
    sch.transform_block_layout("b", TILED)
    same(sch, text)
    assert kinds(sch.func) == {kind, "int64"}


WRAPS = """
@T.prim_func
def main(A: T.Buffer((100,), "float32"), C: T.Buffer((6, 8), "float32")):
    B = T.alloc_buffer((100,), "float32")
    for k in range(100):
        with T.block("b"):
            v = T.axis.spatial(100, k)
            B[v] = A[v] * T.float32(2)
    for i in range(T.uint8(6)):
        for j in range(T.uint8(8)):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[(vi * T.uint8(50) + vj) % T.uint8(100)]
"""


def test_a_region_holds_indices_that_wrap_around() -> None:
    """Five times fifty and seven is 1 in uint8: what is read lies anywhere, not between 50 i and 50 i + 7."""
    sch = schedule(WRAPS)
    sch.compute_at("b", "i")
    same(sch, WRAPS)


# ------------------------------------------------------------ valid programs

IDLE = """
@T.prim_func
def main(A: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
    for i in range(5):
        C[i] = A[i]
    for z in range(0):
        C[z] = T.float32(1)
    for j in range(5):
        for k in range(0):
            C[j] = A[j]
        C[j] = C[j] + A[j]
"""


@pytest.mark.parametrize("loop", ["z", "k", "j"])
def test_nests_that_never_run_leave_no_sequence_in_a_sequence(loop: str) -> None:
    """They go, and what stood beside them stands there alone."""
    sch = schedule(IDLE)
    sch.simplify(loop)
    same(sch, IDLE)
    assert f"{'k' if loop == 'j' else loop} in range(0)" not in sch.func.script()


def test_a_loop_without_iterations_becomes_no_iterator() -> None:
    """Iterators have at least one value."""
    with pytest.raises(ScheduleError, match=r"\(1\) loop `z` has no iterations"):
        schedule(IDLE).add_block("z")


SKEWED = """
@T.prim_func
def main(A: T.Buffer((6,), "int32"), C: T.Buffer((5,), "int32")):
    for i in range(6):
        for j in range(2):
            with T.block("b"):
                vi = T.axis.spatial(5, i - j)
                vj = T.axis.reduce(2, j)
                T.where(j <= i and i < j + 5)
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + A[vi + vj]
"""


def test_an_init_within_an_outer_block_comes_first() -> None:
    """In the iteration i = 1 the block begins with the second term of C[0], which its init would forget."""
    with pytest.raises(ScheduleError, match=r"\(4\) .* the first instance of a spatial point is vi=0, vj=1"):
        schedule(SKEWED).blockize("j")
    text = SKEWED.replace("i - j", "i").replace("range(6)", "range(5)").replace("T.where(j <= i and i < j + 5)", "pass")
    sch = schedule(text)
    sch.blockize("j")
    same(sch, text)


DOTS = """
@T.prim_func
def main(A: T.Buffer((3, 8), "int8"), W: T.Buffer((8,), "int8"), C: T.Buffer((3,), "int32")):
    for i in range(T.{kind}(3)):
        C[i] = 0
    for i2 in range(T.{kind}(3)):
        for k in range(T.{kind}(8)):
            with T.block("b"):
                vi, vk = T.axis.remap("SR", [i2, k])
                C[vi] = C[vi] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", W[vk])
"""


@pytest.mark.parametrize("kind", ["int64", "int32", "int8"])
def test_intrinsics_match_loops_of_every_type(kind: str) -> None:
    """The description is over loops of the index type, and so is the implementation."""
    text = DOTS.format(kind=kind)
    sch = schedule(text)
    inner = sch.split("k", [None, 4])[1]
    sch.tensorize(inner, "dot_int8x4_int32")
    same(sch, text)


SCALED = """
@T.prim_func
def main(A: T.Buffer((5,), "int32"), n: T.{kind}, C: T.Buffer((5,), "int32")):
    for i in range(5):
        C[i] = A[i] + T.Cast("int32", n)
"""


@pytest.mark.parametrize("kind", ["int8", "int32", "int64"])
def test_a_copy_of_a_padded_input_holds_its_data_whatever_the_scalars_are(kind: str) -> None:
    """Padding that holds nothing is left out of the copy, and nothing else is."""
    sch = schedule(SCALED.format(kind=kind))
    sch.transform_layout("root", "A", "lambda i: [i + 1]", None, physical_shape=[9])
    sch.cache_read("root", "A", "local")
    verify(sch.func)
    a, c = np.arange(9, dtype=np.int32), np.zeros(5, np.int32)
    interpret(sch.func, a, 7, c)
    np.testing.assert_array_equal(c, a[1:6] + 7)


FULL = """
@T.prim_func
def main(A: T.Buffer((128, 6), "int32"), C: T.Buffer((128,), "int32")):
    for i in range(T.int8(2)):
        for j in range(T.int8(64)):
            for k in range(T.int8(6)):
                with T.block("b"):
                    vi = T.axis.spatial(T.int8(128), i * T.int8(64) + j)
                    vk = T.axis.reduce(T.int8(6), k)
                    with T.init():
                        C[vi] = 0
                    C[vi] = C[vi] + A[vi, vk]
"""
WHOLE: dict[str, Step] = {
    "rfactor": lambda sch: sch.rfactor(sch.split("k", [2, 3])[1], 0),
    "reindex_cache_write": lambda sch: sch.reindex_cache_write("b", 0, "global", "lambda i, k: [i]"),
    "reindex_cache_read": lambda sch: sch.reindex_cache_read("b", 0, "global", "lambda i, k: [k, i]"),
    "decompose_reduction": lambda sch: sch.decompose_reduction("b", "k"),
    "blockize": lambda sch: sch.blockize("j"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_iterator_with_every_number_of_its_type_gets_loops_that_count_them(name: str) -> None:
    """An iterator may run over 128 points in int8, whose last one is 127; a loop may not have that extent."""
    sch = schedule(FULL)
    WHOLE[name](sch)
    same(sch, FULL)
