"""What moves memory (blocks around loops, intrinsics, caches, packing) keeps what a program computes, or refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from goldens.execute import same_results
from scheduled import schedule

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError
from stridesmith.space.tensor_intrinsics import TensorIntrin

Change = Callable[[Schedule], object]

SUM = """
@T.prim_func
def main(A: T.Buffer((2, 4), "float32"), C: T.Buffer((2,), "float32")):
    for {loops}:
        with T.block("b"):
            vi = T.axis.spatial(2, i)
            vk = T.axis.reduce(4, {k}){where}
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""


def sums(loops: str, k: str = "k", where: str = "") -> str:
    return SUM.format(loops=loops, k=k, where=where and f"\n            T.where({where})")


SHIFTED = """
@T.prim_func
def main(X: T.Buffer((1,), "float32"), A: T.Buffer({shape}, "float32")):
    for {loops}:
        with T.block("fill"):
            A[{point}] = T.Cast("float32", f + 1)
    for j in range(4):
        with T.block("b"):
            vj = T.axis.opaque(4, j)
            {store}
"""
NESTED = """
@T.prim_func
def main(X: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.block("o"):
            vo = T.axis.spatial(4, i)
            for {loops}:
                with T.block("b"):
                    vi = T.axis.spatial(4, {i})
                    vj = T.axis.spatial(4, j)
                    C[vi, vj] = X[vi, vj]
"""
WATCHED = """
@T.prim_func
def main(X: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            C[vi] = X[vi]
"""
CHANGED = """
@T.prim_func
def main(X: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    A = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("first"):
            v = T.axis.spatial(4, i)
            A[v] = X[v]
    for i in range(4):
        with T.block("b1"):
            v = T.axis.spatial(4, i)
            B[v] = A[v]
    for i in range(4):
        with T.block("again"):
            v = T.axis.spatial(4, i)
            A[v] = X[v] * T.float32(10)
    for i in range(4):
        with T.block("b2"):
            v = T.axis.spatial(4, i)
            D[v] = A[v]
"""
HALF = """
@T.prim_func
def main(X: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    A = T.alloc_buffer((8,), "float32")
    for i in range(4):
        with T.block("first"):
            v = T.axis.spatial(8, i)
            A[v] = X[v]
    for i in range(8):
        if i < 4:
            with T.block("b1"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        else:
            with T.block("b2"):
                v = T.axis.spatial(8, i)
                B[v] = X[v]
"""
PACKED = """
@T.prim_func
def main(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32"), n: T.float32):
    W = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("fill"):
            v = T.axis.spatial(4, i)
            W[v] = X[v] * n
    for i in range(4):
        with T.block("use"):
            v = T.axis.spatial(4, i)
            Y[v] = W[v]
"""


def shifted(shape: tuple[int, ...], store: str) -> str:
    point = ", ".join("ef"[-len(shape) :])
    loops = f"f in range({shape[0]})" if len(shape) == 1 else f"e, f in T.grid{shape}"
    return SHIFTED.format(shape=shape, loops=loops, point=point, store=store)


def kept(text: str, change: Change) -> Schedule:
    """The schedule after a change that keeps the results."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    sch = schedule(text)
    change(sch)
    verify(sch.func)
    same_results(original, sch.func)
    return sch


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (sums("i, k, u in T.grid(2, 4, 2)"), "block `b` may run at one point twice"),
        (sums("i, k, u in T.grid(2, 8, 1)", "k // 2"), "block `b` may run at one point twice"),
        (sums("i, k, u in T.grid(2, 4, 2)", where="u < 1"), "a loop that its spatial points do not use"),
        (sums("i, k, u in T.grid(2, 4, 1)", "3 - k"), "the reduction `vk` of `b` does not begin where its loops do"),
    ],
)
def test_an_init_moves_where_each_point_runs_once(text: str, message: str) -> None:
    """Condition (3) of blockize: an init that stands outside runs once before all of its updates."""
    with pytest.raises(ScheduleError, match=rf"\(3\) .*{message}"):
        schedule(text, is_valid=False).blockize("u")


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        (sums("r, i, k, u in T.grid(2, 2, 4, 1)"), "u"),
        (sums("i, k, u in T.grid(2, 2, 2)", "k * 2 + u"), "u"),
        (sums("k, i, u in T.grid(2, 2, 2)", "k * 2 + u"), "i"),
        (sums("i, k, u in T.grid(2, 4, 2)"), "k"),
    ],
)
def test_blocks_around_loops_keep_reductions(text: str, loop: str) -> None:
    """Whole rounds may repeat, and what repeats below a block that keeps its init may, too."""
    kept(text, lambda sch: sch.blockize(loop))


def test_a_loop_without_iterations_is_no_iterator() -> None:
    """Condition (2) of blockize: an iterator has values."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(0, 4):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(4, j)
            A[vi, vj] = T.float32(0)
"""
    with pytest.raises(ScheduleError, match=r"\(2\) loop `i` outside has no iterations"):
        schedule(text).blockize("j")


@pytest.mark.parametrize(
    ("extent", "store"),
    [
        (5, "A[vj + 1] = A[vj + 1] + X[0] * A[vj]"),
        (4, "A[vj] = A[vj] + A[0] * A[vj]"),
        (5, "A[vj] = A[vj] + X[0] * A[vj + 1]"),
        (8, "A[vj + 4] = A[vj + 4] + A[5] * A[vj]"),
    ],
)
def test_operands_that_overlap_are_not_tensorized(extent: int, store: str) -> None:
    """Condition (5) of tensorize: a vector reads all of its elements before it stores one."""
    sch = schedule(shifted((extent,), store))
    with pytest.raises(ScheduleError, match=r"\(5\) `A` is `.` and `.` of the description, and these may overlap"):
        sch.tensorize("j", "fma_float32x4")


@pytest.mark.parametrize(
    ("shape", "store"),
    [
        ((8,), "A[vj + 4] = A[vj + 4] + X[0] * A[vj]"),
        ((2, 4), "A[1, vj] = A[1, vj] + X[0] * A[0, vj]"),
        ((4,), "A[vj] = A[vj] + X[0] * A[vj]"),
        ((5,), "A[vj + 1] = A[vj + 1] + A[0] * A[vj + 1]"),
    ],
)
def test_operands_of_one_buffer_are_tensorized_apart_or_alike(shape: tuple[int, ...], store: str) -> None:
    """Parts of one buffer that are disjoint, or the same element by element, give the same results."""
    kept(shifted(shape, store), lambda sch: sch.tensorize("j", "fma_float32x4"))


def test_a_shape_that_the_intrinsic_works_on_in_several_stores_does_not_alias() -> None:
    """Condition (5) of tensorize: the same part is safe only where one store follows all loads."""
    desc = """
@T.prim_func
def desc(a: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("twice"):
            vi = T.axis.spatial(4, i)
            c[vi] = a[vi] * T.float32(2)
"""
    impl = """
@T.prim_func
def impl(a: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
    for i in range(4):
        c[i] = T.float32(0)
        c[i] = c[i] + a[i] * T.float32(2)
"""
    one, other = parse(desc), parse(impl)
    assert isinstance(one, PrimFunc)
    assert isinstance(other, PrimFunc)
    TensorIntrin.register("twice_in_two_stores", one, other, override=True)
    sch = schedule(shifted((4,), "A[vj] = A[vj] * T.float32(2)"))
    with pytest.raises(ScheduleError, match=r"\(5\) `A` is `a` and `c`|\(5\) `A` is `c` and `a`"):
        sch.tensorize("j", "twice_in_two_stores")


@pytest.mark.parametrize(
    "more",
    [
        "        D[i] = C[i]\n",
        "        if C[i] > T.float32(1):\n            with T.block(\"d\"):\n                D[i] = T.float32(2)\n",
        "        for j in range(T.Cast(\"int32\", C[i])):\n            D[i] = T.float32(2)\n",
    ],
    ids=["bare", "condition", "extent"],
)  # fmt: skip
def test_a_result_that_its_nest_reads_is_not_cached(more: str) -> None:
    """Condition (3) of cache_write: statements, conditions and extents read too."""
    with pytest.raises(ScheduleError, match=r"\(3\) something besides block `b` reads `C`"):
        schedule(WATCHED + more).cache_write("b", 0, "local")


def test_a_copy_that_repeats_finds_all_of_its_elements_written() -> None:
    """Condition (4) of cache_write: one iteration around the copy writes all, or earlier ones have."""
    with pytest.raises(ScheduleError, match=r"\(4\) block `b` does not write all of `C` before it is copied back"):
        schedule(NESTED.format(loops="j in range(4)", i="vo")).cache_write("b", 0, "local")
    kept(NESTED.format(loops="q, j in T.grid(4, 4)", i="q"), lambda sch: sch.cache_write("b", 0, "local"))


def test_a_cache_for_several_readers_holds_what_each_of_them_reads() -> None:
    """Condition (5) of reindex_cache_read: nothing writes between the readers; after or before them it may."""
    with pytest.raises(ScheduleError, match=r"\(5\) `again` writes `A` between its consumers"):
        schedule(CHANGED).reindex_cache_read("b1", 0, "local", lambda i: [i], ["b2"])
    for block in ("b1", "b2"):
        kept(CHANGED, lambda sch, name=block: sch.reindex_cache_read(name, 0, "local", lambda i: [i]))


def test_readers_of_one_cache_stand_in_one_block() -> None:
    """Condition (9) of reindex_cache_read: a copy inside another block runs when that does."""
    around = '    for q in range(1):\n        with T.block("o"):\n            vq = T.axis.spatial(1, q)\n'
    first = CHANGED.index('    for i in range(4):\n        with T.block("b1")')
    again = CHANGED.index('    for i in range(4):\n        with T.block("again")')
    last = CHANGED.index('    for i in range(4):\n        with T.block("b2")')
    inner = "".join(f"        {line}" for line in CHANGED[first:again].splitlines(keepends=True))
    text = CHANGED[:first] + around + inner + CHANGED[last:]
    with pytest.raises(ScheduleError, match=r"\(9\) block `b2` is not in the same block as `b1`"):
        schedule(text).reindex_cache_read("b1", 0, "local", lambda i: [i], ["b2"])


@pytest.mark.parametrize(
    "change",
    [
        lambda sch: sch.reindex_cache_read("b1", 0, "local", lambda i: [i]),
        lambda sch: sch.reindex_cache_read("b2", 0, "local", lambda i: [7 - i]),
    ],
)
def test_a_copy_goes_over_what_runs(change: Change) -> None:
    """Conditions around a block decide which elements it reads."""
    kept(HALF, change)


def test_a_copy_back_goes_over_what_runs() -> None:
    """Conditions around a block decide which elements it writes."""
    text = HALF[: HALF.index("        else:")]
    kept(text, lambda sch: sch.reindex_cache_write("b1", 0, "local", lambda i: [i]))


def test_a_condition_on_memory_leaves_open_what_runs() -> None:
    """Condition (8) of the reindexing caches: what a block touches is an affine set."""
    text = HALF.replace("if i < 4:", "if X[i] < T.float32(4):").replace("for i in range(4):", "for i in range(8):")
    with pytest.raises(ScheduleError, match=r"\(8\) it is not known which instances of block `b1` run"):
        schedule(text).reindex_cache_read("b1", 0, "local", lambda i: [i])


def test_packing_takes_the_scalars_that_it_uses() -> None:
    """The packing function has every parameter that what fills the buffer uses."""
    sch = schedule(PACKED)
    assert sch.split_packing("W") == "pack_W"
    pack, rest = sch.module.functions
    for func in (pack, rest):
        verify(func)
    assert [p.name for p in pack.params] == ["X", "n", "W"]
    x, w, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    interpret(pack, x, 3.0, w)
    interpret(rest, *(({"W": w, "Y": y, "n": 3.0})[p.name] for p in rest.params))
    np.testing.assert_array_equal(y, x * 3)


@pytest.mark.parametrize("name", ["a b", "", "1x", "for", "T", "f()"])
def test_a_function_has_a_name(name: str) -> None:
    """Condition (4) of split_packing."""
    with pytest.raises(ScheduleError, match=r"\(4\) .* is no name of a function"):
        schedule(PACKED).split_packing("W", name)


@pytest.mark.parametrize("scope", ["", "x y", "global.", "a'); evil('"])
@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda sch, scope: sch.cache_read("use", 0, scope), 4),
        (lambda sch, scope: sch.cache_write("use", 0, scope), 6),
        (lambda sch, scope: sch.set_scope("fill", 0, scope), 2),
        (lambda sch, scope: sch.reindex_cache_read("use", 0, scope, lambda i: [i]), 10),
        (lambda sch, scope: sch.reindex_cache_write("use", 0, scope, lambda i: [i]), 10),
    ],
)  # fmt: skip
def test_a_memory_scope_has_a_name(change: Callable[[Schedule, str], object], number: int, scope: str) -> None:
    """A scope is a name, or names joined by dots, in every primitive that takes one."""
    with pytest.raises(ScheduleError, match=rf"\({number}\) .* is no name of a memory scope"):
        change(schedule(PACKED), scope)
    change(schedule(PACKED), "shared.dyn")


def test_a_number_without_dimensions_gets_one() -> None:
    """A map of no indices gives a buffer of rank 0 a layout."""
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((), "float32")
    with T.block("put"):
        B[()] = A[0]
    for i in range(4):
        with T.block("get"):
            v = T.axis.spatial(4, i)
            C[v] = B[()] + A[v]
"""
    kept(text, lambda sch: sch.transform_layout("get", "B", "lambda: [0]"))


@pytest.mark.parametrize("index", ["x", 0.0, None, True, [0]])
def test_the_place_of_a_buffer_is_a_number(index: object) -> None:
    """Condition (1): among what a block reads or writes, a place is an integer."""
    for side in ("read", "write"):
        with pytest.raises(ScheduleError, match=r"\(1\) block `use` .* but got index"):
            schedule(PACKED).transform_layout("use", [side, index], "lambda i: [i]")
