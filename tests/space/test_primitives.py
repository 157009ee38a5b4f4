"""Every primitive keeps the meaning of its program, and refuses with its sentence what it cannot keep."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.analysis import evaluate
from stridesmith.ir.expr import Var, const, free_variables
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace
from stridesmith.space.tree import find_loop, leaf_blocks

MATMUL = """
@T.prim_func
def main(a: T.Buffer((7, 9), "float32"), b: T.Buffer((9, 5), "float32"), c: T.Buffer((7, 5), "float32")):
    for i, j, k in T.grid(7, 5, 9):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""

CHAIN = """
@T.prim_func
def main(x: T.Buffer((12, 10), "float32"), y: T.Buffer((12, 10), "float32")):
    t = T.alloc_buffer((12, 10), "float32")
    for i, j in T.grid(12, 10):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj] * T.float32(2)
    for i, j in T.grid(12, 10):
        with T.block("shift"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = t[vi, vj] + T.float32(1)
"""

CONV = """
@T.prim_func
def main(x: T.Buffer((11,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((11,), "float32")):
    p = T.alloc_buffer((13,), "float32")
    for i in range(13):
        with T.block("pad"):
            vi = T.axis.spatial(13, i)
            p[vi] = T.if_then_else(1 <= vi and vi < 12, x[vi - 1], T.float32(0))
    for i, k in T.grid(11, 3):
        with T.block("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + p[vi + vk] * w[vk]
"""


def run(func: PrimFunc) -> np.ndarray:
    """The last parameter after interpreting `func` on fixed integers, which are exact in any order."""
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-4, 5, b.shape).astype(b.dtype) for b in func.buffers]
    arrays[-1][...] = np.nan
    interpret(func, *arrays)
    return arrays[-1]


def same(sch: Schedule, text: str) -> None:
    """The schedule computes what the program did, and its trace replays to an equal program."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    np.testing.assert_array_equal(run(sch.func), run(original))
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func
    assert parse(sch.func.script()) == sch.func


def schedule(text: str) -> Schedule:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return Schedule(func)


@pytest.mark.parametrize("factors", [[None, 3], [4, None], [2, 2, 2], [None], [1, 7]])
def test_split_keeps_meaning_for_factors_that_do_not_divide(factors: list[int | None]) -> None:
    """A split whose product exceeds the extent guards the rest."""
    sch = schedule(MATMUL)
    assert len(sch.split("i", factors)) == len(factors)
    same(sch, MATMUL)


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [([2, 3], "does not cover the extent 7"), ([None, None], "at most one None"), ([0, 7], "must be positive")],
)
def test_split_refuses(factors: list[int | None], sentence: str) -> None:
    """Factors that are not positive, or whose product is too small, are refused with the values."""
    with pytest.raises(ScheduleError, match=sentence):
        schedule(MATMUL).split("i", factors)


def test_fuse_and_reorder_keep_meaning() -> None:
    """Fusing two loops and moving the reduction outside computes the same."""
    sch = schedule(MATMUL)
    sch.reorder("k", "i", "j")
    assert sch.get_loops("matmul") == ["k", "i", "j"]
    sch.fuse("i", "j")
    same(sch, MATMUL)


def test_fuse_refuses_loops_that_are_not_nested_directly() -> None:
    """Condition (1) of fuse names the loops."""
    with pytest.raises(ScheduleError, match="is not the only statement"):
        schedule(MATMUL).fuse("i", "k")


def test_reorder_refuses_loops_of_different_nests() -> None:
    """Condition (1) of reorder: the loops lie on one nest."""
    with pytest.raises(ScheduleError, match="not in a perfect nest"):
        schedule(CHAIN).reorder("i", "i_1")


def test_parallel_on_a_reduction_is_refused() -> None:
    """Two iterations of a reduction write the same element."""
    with pytest.raises(ScheduleError, match="same element of `c`"):
        schedule(MATMUL).parallel("k")


def test_parallel_on_a_shifted_write_is_refused() -> None:
    """A loop whose iterations write overlapping elements stays serial."""
    text = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((9,), "float32")):
    for i, j in T.grid(8, 2):
        with T.block("write"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi + vj] = x[vi]
"""
    with pytest.raises(ScheduleError, match="same element of `y`"):
        schedule(text).parallel("i")


def test_a_fused_loop_is_parallel_when_its_quotient_and_remainder_are_separated() -> None:
    """Fused spatial loops may run concurrently; the exact test also accepts them cut into groups."""
    sch = schedule(MATMUL)
    fused = sch.fuse("i", "j")
    group, item = sch.split(fused, [None, 4])
    sch.bind(group, "blockIdx.x")
    sch.bind(item, "threadIdx.x")
    same(sch, MATMUL)


def test_bind_refuses_an_unknown_axis() -> None:
    """Condition (2) of bind lists the axes."""
    with pytest.raises(ScheduleError, match="unknown thread axis"):
        schedule(MATMUL).bind("i", "warp")


def test_cache_read_and_cache_write_keep_meaning() -> None:
    """Staging an input and the result through buffers computes the same."""
    sch = schedule(MATMUL)
    assert sch.cache_read("matmul", 0, "global") == "a_global"
    assert sch.cache_write("matmul", 0, "local") == "c_local"
    same(sch, MATMUL)


def test_cache_read_refuses_an_index_that_is_not_there() -> None:
    """Condition (1) of cache_read counts the buffers."""
    with pytest.raises(ScheduleError, match="reads 2 buffers"):
        schedule(MATMUL).cache_read("matmul", 2, "global")


def test_set_scope_refuses_a_parameter() -> None:
    """A parameter's memory is the caller's: it stays global, textures included."""
    for scope in ("local", "shared"):
        with pytest.raises(ScheduleError, match="is a parameter"):
            schedule(MATMUL).set_scope("matmul", 0, scope)
    sch = schedule(MATMUL)
    sch.set_scope("matmul", sch.func.buffers[1].name, "global.texture")
    assert [b.scope for b in sch.func.buffers] == ["global", "global.texture", "global"]
    same(sch, MATMUL)
    with pytest.raises(ScheduleError, match="does not read a buffer `nothing`"):
        sch.set_scope("matmul", "nothing", "global")


def test_compute_at_computes_what_one_iteration_needs() -> None:
    """The producer of a convolution moves under the consumer's tile, halo included."""
    sch = schedule(CONV)
    outer, _ = sch.split("i_1", [None, 4])
    sch.compute_at("pad", outer)
    same(sch, CONV)
    assert "pad_ax0 in range(6)" in sch.func.script().replace("T.serial", "range")


def test_compute_at_refuses_a_reader_outside() -> None:
    """Condition (3): every reader is below the loop."""
    with pytest.raises(ScheduleError, match=r"\(3\) reader"):
        schedule(CHAIN).compute_at("scale", "i")


def test_reverse_compute_at_moves_the_consumer() -> None:
    """The copy of a tile follows the tile; a reduction loop outside refuses."""
    sch = schedule(MATMUL)
    copy = sch.cache_write("matmul", 0, "local")
    outer, _ = sch.split("i", [None, 3])
    sch.reverse_compute_at(copy, outer)
    same(sch, MATMUL)


def test_reverse_compute_at_refuses_an_unfinished_element() -> None:
    """Condition (3): the reduction has to be complete inside one iteration."""
    sch = schedule(MATMUL)
    copy = sch.cache_write("matmul", 0, "local")
    sch.reorder("k", "i", "j")
    with pytest.raises(ScheduleError, match="is not final in one iteration of `k`"):
        sch.reverse_compute_at(copy, "k")


def test_a_moved_stage_runs_no_more_points_than_before() -> None:
    """A reduction whose loop is shorter than its iterator, or fused with another, keeps its domain when it moves."""
    text = """@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 2):
        with T.block("sum"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(6, k)
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk]
    for j in range(4):
        with T.block("copy"):
            vj = T.axis.spatial(4, j)
            C[vj] = S[vj]
"""
    for fused in (False, True):
        sch = schedule(text)
        if fused:
            sch.fuse("i", "k")
        sch.compute_at("sum", "j")
        same(sch, text)


def test_rfactor_refuses_a_loop_of_both_kinds() -> None:
    """Condition (2): parts whose first point lies anywhere would not be initialised."""
    sch = schedule(MATMUL)
    outer, inner = sch.split("k", [None, 2])
    fused = sch.fuse("j", outer)
    with pytest.raises(ScheduleError, match=rf"\(2\) loop `{fused}` is part of the reduction and of the result"):
        sch.rfactor(inner, 0)


def test_inlining_in_both_directions() -> None:
    """A chain of element-wise blocks becomes one block, whichever side goes."""
    forward = schedule(CHAIN)
    forward.compute_inline("scale")
    same(forward, CHAIN)
    backward = schedule(CHAIN)
    backward.reverse_compute_inline("shift")
    same(backward, CHAIN)
    assert len(forward.get_blocks()) == len(backward.get_blocks()) == 1


def test_cache_read_copies_what_is_held() -> None:
    """Padding that holds nothing is left out of the copy, and the results stay."""
    sch = schedule(CHAIN)
    first = sch.get_block(sch.get_blocks()[0])
    buffer = next(b for b in sch.func.body.allocs)
    shape = [extent + 3 for extent in buffer.shape]
    names = ", ".join(f"d{k}" for k in range(len(shape)))
    sch.transform_layout(first, buffer.name, f"lambda {names}: [{names}]", physical_shape=shape)
    copy = sch.cache_read(sch.get_blocks()[1], buffer.name, "global")
    assert "T.where" in sch.func.script() and copy in sch.get_blocks()
    same(sch, CHAIN)


def test_cache_write_refuses_to_lose_what_was_there() -> None:
    """Conditions (2) and (5): other writers, and reads of what the block has not written."""
    text = """@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    {first}
    with T.block("update"):
        for i in range(4):
            C[i] = {value}
"""
    other = text.format(first="for j in range(4): C[j] = T.float32(0)", value="A[i]")
    with pytest.raises(ScheduleError, match=r"\(2\) `C` has other writers than `update`"):
        schedule(other).cache_write("update", 0, "local")
    with pytest.raises(ScheduleError, match=r"\(5\) block `update` reads elements of `C`.*i=0"):
        schedule(text.format(first="T.evaluate(0)", value="C[i] + A[i]")).cache_write("update", 0, "local")


INSIDE = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for o in range(2):
        with T.block("scope"):
            vo = T.axis.spatial(2, o)
            S = T.alloc_buffer((4,), "float32")
            for i in range(4):
                with T.block("make"):
                    vi = T.axis.spatial(4, i)
                    S[vi] = A[vo * 4 + vi]
            for j in range(4):
                with T.block("use"):
                    vj = T.axis.spatial(4, j)
                    C[vo * 4 + vj] = S[vj] + A[vo * 4 + vj]
"""


def test_what_a_block_allocates_is_not_among_what_it_reads_and_writes() -> None:
    """Places count the buffers around a block; what is inside exists nowhere else, and has its caches there."""
    one = schedule(INSIDE)
    assert one.cache_write("scope", 0, "local") == schedule(INSIDE).cache_write("scope", "C", "local") == "C_local"
    assert one.cache_read("scope", 0, "local") == "A_local"
    verify(one.func)
    for call in (lambda s: s.cache_write("scope", "S", "local"), lambda s: s.cache_read("scope", "S", "local")):
        with pytest.raises(ScheduleError, match=r"\(1\) `S` is allocated in block `scope`.*; give a block inside"):
            call(schedule(INSIDE))
    two = schedule(INSIDE)
    two.cache_write("make", 0, "local")
    two.cache_read("use", "S", "shared")
    arrays = [np.arange(8, dtype=np.float32), np.zeros(8, np.float32)]
    for sch in (one, two):
        verify(sch.func)
        interpret(sch.func, *arrays)
        assert (arrays[1] == 2 * arrays[0]).all()
        arrays[1][...] = 0


def test_reverse_compute_inline_takes_whole_stores_that_are_read() -> None:
    """Conditions (2) and (5): the writer is one store, and what it stores is what the block reads."""
    several = """@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((4,), "float32")
    with T.block("both"):
        for i in range(4):
            S[i] = T.float32(0)
            S[i] = S[i] + A[i]
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, i)
            C[vi] = S[vi]
"""
    with pytest.raises(ScheduleError, match=r"\(2\) `S` must have one writer, a store"):
        schedule(several).reverse_compute_inline("copy")
    wider = """@T.prim_func
def main(A: T.Buffer((6,), "float32"), C: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((6,), "float32")
    for i in range(6):
        with T.block("make"):
            vi = T.axis.spatial(6, i)
            S[vi] = A[vi]
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, i)
            C[vi] = S[vi]
"""
    with pytest.raises(ScheduleError, match=r"\(5\) at i=4 block `make` stores an element"):
        schedule(wider).reverse_compute_inline("copy")


def test_compute_inline_refuses_a_reduction() -> None:
    """Condition (1): a reduction has no single value to put in place."""
    with pytest.raises(ScheduleError, match="cannot be inlined"):
        schedule(MATMUL).compute_inline("matmul")


def test_decompose_reduction_keeps_meaning_under_tiling() -> None:
    """The init is separated with the spatial loops below."""
    sch = schedule(MATMUL)
    outer, inner = sch.split("i", [None, 3])
    sch.reorder(outer, "k", inner, "j")
    assert sch.decompose_reduction("matmul", "k") == "matmul_init"
    same(sch, MATMUL)


def test_decompose_reduction_of_a_loop_fused_of_both_kinds() -> None:
    """The init runs over the spatial part of the loop."""
    sch = schedule(MATMUL)
    fused = sch.fuse("j", "k")
    sch.decompose_reduction("matmul", fused)
    same(sch, MATMUL)
    holed = MATMUL.replace("vi, vj, vk = T.axis", "T.where(j != 1 or k != 0)\n            vi, vj, vk = T.axis")
    with pytest.raises(ScheduleError, match=r"\(3\) .* at {'vi': 0, 'vj': 1}"):
        schedule(holed).decompose_reduction("matmul", "j")


def test_decompose_reduction_finds_a_first_point_that_is_not_at_zero() -> None:
    """A reduction whose loops start at an offset, or lie askew, is initialised where its first point runs."""
    text = """@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 9):
        with T.block("sum"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(6, {binding})
            T.where({where})
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""
    offset = text.format(binding="k - 2", where="2 <= k and k < 8")
    askew = text.format(binding="k - i", where="i <= k and k < i + 6")
    for program, loop in ((offset, "k"), (offset, "i"), (askew, "i")):
        sch = schedule(program)
        assert sch.decompose_reduction("sum", loop) == "sum_init"
        same(sch, program)


def test_decompose_reduction_refuses_a_loop_inside_the_reduction() -> None:
    """Condition (2): no reduce loop may remain outside."""
    sch = schedule(MATMUL)
    sch.reorder("k", "i", "j")
    with pytest.raises(ScheduleError, match="is part of the reduction"):
        sch.decompose_reduction("matmul", "i")


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_rfactor_reduces_in_parts(factor: int) -> None:
    """Parts along a split reduction, ragged or not, add up to the same."""
    sch = schedule(MATMUL)
    _, parts = sch.split("k", [None, factor])
    sch.rfactor(parts, -1)
    same(sch, MATMUL)


def test_rfactor_refuses_a_spatial_loop() -> None:
    """Condition (2): the loop must be part of the reduction alone."""
    with pytest.raises(ScheduleError, match="not part of the reduction alone"):
        schedule(MATMUL).rfactor("i", 0)


@pytest.mark.parametrize("pad", [None, "undef", 0, 3.5])
@pytest.mark.parametrize("rewrite", [False, True])
def test_transform_layout_of_an_intermediate(pad: object, rewrite: bool) -> None:
    """Any pad value and either way of writing it leave the logical result alone."""
    sch = schedule(CHAIN)
    sch.transform_layout("scale", "t", lambda i, j: [j // 4, i, j % 4], pad, rewrite_loops=rewrite)
    same(sch, CHAIN)
    assert "(3, 12, 4)" in sch.func.script()


def test_transform_layout_of_a_parameter_tells_the_caller() -> None:
    """The function records how its argument lies and assumes the pad value."""
    sch = schedule(MATMUL)
    sch.transform_layout("matmul", "b", lambda k, j: [j // 4, k, j % 4], 0)
    ((name, layout),) = sch.func.layouts
    assert (name, layout.logical_shape, layout.pad_value) == ("b", (9, 5), 0.0)
    assert "T.assume" in sch.func.script()


@pytest.mark.parametrize(
    ("index_map", "shape", "sentence"),
    [
        (lambda i, j: [i], None, "both map to"),
        (lambda i: [i], None, "takes 1 indices"),
        (lambda i, j: [i, j], (12, 9), "does not hold the image"),
    ],
)
def test_transform_layout_refuses(index_map: object, shape: object, sentence: str) -> None:
    """Conditions (1) to (3), with the colliding indices."""
    with pytest.raises(ScheduleError, match=sentence):
        schedule(CHAIN).transform_layout("scale", "t", index_map, physical_shape=shape)


def packed(pad_a: object, pad_b: object, text: str = MATMUL) -> Schedule:
    """A matrix product with both inputs packed along a reduction that is split by 4."""
    sch = schedule(text)
    copy = sch.cache_read("matmul", 0, "global")
    sch.transform_layout(copy, ["write", 0], lambda i, k: [k // 4, i, k % 4], pad_a, rewrite_loops=True)
    copy = sch.cache_read("matmul", 1, "global")
    sch.transform_layout(copy, ["write", 0], lambda k, j: [k // 4, j, k % 4], pad_b, rewrite_loops=True)
    sch.split("k", [None, 4])
    return sch


def test_overcompute_of_a_reduction_over_zeros_is_accepted() -> None:
    """Zero padding on both sides makes the extra products vanish."""
    sch = packed(0, 0)
    sch.remove_branching_through_overcompute("matmul")
    assert "T.where" not in sch.func.script().split('matmul"')[1]
    same(sch, MATMUL)


@pytest.mark.parametrize(("pad_a", "pad_b"), [("undef", 0), (0, "undef"), (None, 0), (3, 0.5)])
def test_overcompute_of_a_reduction_needs_zero_times_finite(pad_a: object, pad_b: object) -> None:
    """`undef` may be NaN, unwritten padding may be anything, and two numbers need not multiply to zero."""
    with pytest.raises(ScheduleError, match=r"stays: .*(not neutral|nothing has written)"):
        packed(pad_a, pad_b).remove_branching_through_overcompute("matmul")


HALF = MATMUL.replace("float32", "float16")
SQUARED = HALF.replace("a[vi, vk] *", "a[vi, vk] * a[vi, vk] *")
NARROWED = HALF.replace('a: T.Buffer((7, 9), "float16")', 'a: T.Buffer((7, 9), "float32")').replace(
    "a[vi, vk] *", 'T.Cast("float16", a[vi, vk]) *'
)


@pytest.mark.parametrize(
    ("text", "small", "large"), [(SQUARED, 100.0, 1000.0), (NARROWED, 1e4, 1e5)], ids=["product", "cast"]
)
def test_overcompute_sees_what_a_type_holds(text: str, small: float, large: float) -> None:
    """Zero times a number that float16 holds vanishes; times one that it takes for infinite is NaN."""
    sch = packed(small, 0, text)
    sch.remove_branching_through_overcompute("matmul")
    with pytest.raises(ScheduleError, match=r"stays: .*not neutral"):
        packed(large, 0, text).remove_branching_through_overcompute("matmul")


def test_overcompute_outside_of_the_allocation_is_refused_with_a_point() -> None:
    """A read beyond the caller's array is refused with the element."""
    sch = schedule(MATMUL)
    sch.split("i", [None, 4])
    with pytest.raises(ScheduleError, match=r"at .*i_0=1.* would (read a\[7|write c\[7)"):
        sch.remove_branching_through_overcompute("matmul")


def test_overcompute_into_a_padded_tile_is_accepted_and_undone() -> None:
    """Rows beyond the edge land in padding that nobody reads; the branch that leaves zeros out comes back."""
    sch = packed(0, 0)
    copy = sch.cache_write("matmul", 0, "local")
    sch.transform_layout("matmul", ["write", 0], lambda i, j: [i, j], "undef", physical_shape=[8, 5])
    sch.remove_branching_through_overcompute("matmul")
    sch.remove_overcompute_through_branching("matmul")
    assert copy == "c_local"
    same(sch, MATMUL)


def test_removing_overcompute_needs_known_padding() -> None:
    """Condition (1): without padding of known value there is nothing to leave out."""
    with pytest.raises(ScheduleError, match="touches no padding"):
        schedule(MATMUL).remove_overcompute_through_branching("matmul")


FAR = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((8,), "float32")):
    x_pad = T.alloc_buffer((20,), "float32")
    for h in range(20):
        with T.block("pad"):
            vh = T.axis.spatial(20, h)
            x_pad[vh] = T.if_then_else(6 <= vh and vh < 14, x[vh - 6], T.float32({pad}))
    for i, k in T.grid(8, 3):
        with T.block("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x_pad[vi + 6 * vk] * w[vk]
"""


def in_tiles(rows: int, pad: int = 0) -> Schedule:
    """A sum of taps 6 apart in tiles of some rows, inside of the reduction, its initialisation apart."""
    sch = schedule(FAR.format(pad=pad))
    sch.split("i", [None, rows])
    sch.reorder("i_0", "k", "i_1")
    sch.decompose_reduction("conv", "k")
    return sch


def test_tiles_of_padding_are_left_out_as_a_whole() -> None:
    """With tiles of 2 rows out of 8, two of three taps meet data in one tile of four alone; no test looks inside."""
    sch = in_tiles(2)
    sch.remove_overcompute_through_branching("conv", tile=["i_1"])
    (cond,) = [b.predicate for b in leaf_blocks(sch.func.body) if b.name == "conv"]
    assert {v.name for v in free_variables(cond)} == {"i_0", "k"}
    tile, tap = np.indices((4, 3))
    runs = np.argwhere(evaluate(cond, {Var("i_0"): tile, Var("k"): tap})).tolist()
    assert runs == [[0, 1], [0, 2], [1, 1], [2, 1], [3, 0], [3, 1]]
    same(sch, FAR.format(pad=0))


def test_tiles_that_all_meet_data_and_padding_that_counts_are_refused() -> None:
    """(1) A tile of all rows meets data with each tap; (2) what a border of ones adds is not nothing."""
    with pytest.raises(ScheduleError, match=r"\(1\) block `conv` touches no padding"):
        in_tiles(8).remove_overcompute_through_branching("conv", tile=["i_1"])
    with pytest.raises(ScheduleError, match=r"\(2\) no condition .*not neutral"):
        in_tiles(2, pad=1).remove_overcompute_through_branching("conv", tile=["i_1"])
    with pytest.raises(ScheduleError, match="there are"):
        in_tiles(2).remove_overcompute_through_branching("conv", tile=["j"])


def test_unknown_names_list_what_there_is() -> None:
    """A wrong block or loop is answered with the right ones."""
    with pytest.raises(ScheduleError, match="there are i, j, k"):
        schedule(MATMUL).unroll("q")
    with pytest.raises(ScheduleError, match="there are root, matmul"):
        schedule(MATMUL).get_block("mm")


@pytest.mark.parametrize(
    "data",
    ["x", [["nope", {}]], [["split", 3]], [["split", {"loop": "i", "factors": [None, 2], "evil": 1}]], [[1, 2, 3]]],
)
def test_a_trace_from_outside_is_checked(data: object) -> None:
    """Anything that is not a list of known primitives with known arguments is refused."""
    with pytest.raises(ScheduleError):
        Trace.from_json(data)


REUSED = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((8,), "float32")
    u = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("first"):
            vi = T.axis.spatial(8, i)
            t[vi] = x[vi] + T.float32(1)
    for i in range(8):
        with T.block("second"):
            vi = T.axis.spatial(8, i)
            u[vi] = t[vi] * T.float32(2)
    for i in range(8):
        with T.block("third"):
            vi = T.axis.spatial(8, i)
            t[vi] = x[vi] - T.float32(1)
    for i in range(8):
        with T.block("fourth"):
            vi = T.axis.spatial(8, i)
            y[vi] = u[vi] + t[vi]
"""


PARTS = """
@T.prim_func
def main(x: T.Buffer((8, 4), "float32"), z: T.Buffer((8,), "float32"), y: T.Buffer((16,), "float32")):
    t = T.alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 4):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                t[vi] = T.float32(0)
            t[vi] = t[vi] + x[vi, vk]
    for i in range(8):
        with T.block("front"):
            vi = T.axis.spatial(8, i)
            y[vi] = z[vi]
    for i in range(8):
        with T.block("back"):
            vi = T.axis.spatial(8, i)
            y[vi + 8] = t[vi] * T.float32(2)
"""


def test_a_stage_moves_past_what_writes_another_part_of_its_result() -> None:
    """The parts of a concatenation share no element; where they share one, they keep their order."""
    sch = schedule(PARTS)
    sch.reverse_compute_at("back", "i")
    same(sch, PARTS)
    with pytest.raises(ScheduleError, match=r"\(5\) `back` cannot pass `front`: both use `y`"):
        schedule(PARTS.replace("vi + 8", "vi + 7")).reverse_compute_at("back", "i")


def test_a_stage_does_not_move_past_a_write_of_its_input() -> None:
    """Memory that is used again keeps its order: later, earlier, and inlined."""
    with pytest.raises(ScheduleError, match=r"\(5\) `second` cannot pass `third`: both use `t`"):
        schedule(REUSED).compute_at("second", "i_3")
    with pytest.raises(ScheduleError, match=r"\(4\) `second` cannot pass `third`: both use `t`"):
        schedule(REUSED).compute_inline("second")
    with pytest.raises(ScheduleError, match=r"\(5\) `fourth` cannot pass `third`: both use `t`"):
        schedule(REUSED).reverse_compute_at("fourth", "i_1")


def test_decompose_reduction_refuses_when_the_first_point_may_be_skipped() -> None:
    """Condition (3): a triangular reduction starts late for some rows."""
    text = MATMUL.replace(
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n            T.where(i <= k)',
    )
    with pytest.raises(ScheduleError, match="first point of the reduction of block `matmul` may be skipped"):
        schedule(text).decompose_reduction("matmul", "k")
    lower = text.replace("i <= k", "k <= i")
    sch = schedule(lower)
    sch.decompose_reduction("matmul", "k")
    same(sch, lower)


def test_vectors_have_no_private_buffers() -> None:
    """A buffer that is used only inside a loop is no excuse for lanes that share it."""
    text = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((1,), "float32")
    for i in range(8):
        with T.block("in"):
            vi = T.axis.spatial(8, i)
            t[0] = x[vi]
        with T.block("out"):
            vi = T.axis.spatial(8, i)
            y[vi] = t[0]
"""
    with pytest.raises(ScheduleError, match="same element of `t`"):
        schedule(text).vectorize("i")
    sch = schedule(text)
    sch.parallel("i")
    same(sch, text)


def test_padding_that_is_written_again_is_not_known() -> None:
    """A constant counts only where no other block stores into it: here ones replace the zeros."""
    text = """
@T.prim_func
def main(x: T.Buffer((6,), "float32"), y: T.Buffer((1,), "float32")):
    p = T.alloc_buffer((2, 4), "float32")
    for a, b in T.grid(2, 4):
        with T.block("pack"):
            va, vb = T.axis.remap("SS", [a, b])
            p[va, vb] = T.if_then_else(va * 4 + vb < 6, x[va * 4 + vb], T.float32(0))
    for b in range(4):
        with T.block("again"):
            vb = T.axis.spatial(4, b)
            p[1, vb] = T.float32(1)
    for k, l in T.grid(2, 4):
        with T.block("sum"):
            vk, vl = T.axis.remap("RR", [k, l])
            T.where(k * 4 + l < 6)
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + p[vk, vl]
"""
    with pytest.raises(ScheduleError, match="not neutral"):
        schedule(text).remove_branching_through_overcompute("sum")
    i, j = text.index("    for b in range(4):"), text.index("    for k, l")
    once = text[:i] + text[j:]
    sch = schedule(once)
    sch.remove_branching_through_overcompute("sum")
    same(sch, once)


def test_only_what_this_iteration_wrote_is_initialised() -> None:
    """A cache that is filled row by row cannot be read ahead of its loop."""
    text = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    p = T.alloc_buffer((8,), "float32")
    q = T.alloc_buffer((8, 2), "float32")
    for i in range(8):
        with T.block("fill"):
            vi = T.axis.spatial(8, i)
            p[vi] = x[vi]
        for j in range(2):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j < 1)
                q[vi, vj] = p[T.min(vi + vj, 7)]
    for i in range(8):
        with T.block("out"):
            vi = T.axis.spatial(8, i)
            y[vi] = q[vi, 0]
"""
    with pytest.raises(ScheduleError, match="nothing has written"):
        schedule(text).remove_branching_through_overcompute("use")


TOTAL = """
@T.prim_func
def main(x: T.Buffer((7,), "float32"), c: T.Buffer((), "float32")):
    for i in range(7):
        with T.block("total"):
            vi = T.axis.reduce(7, i)
            with T.init():
                c[()] = T.float32(0)
            c[()] = c[()] + x[vi]
"""


def test_a_buffer_without_dimensions_is_cached() -> None:
    """Its copy is one store in a block; in bare loops there is no loop to name, and none is made."""
    sch = schedule(TOTAL)
    sch.cache_write("total", 0, "local")
    same(sch, TOTAL)
    bare = TOTAL.replace('        with T.block("total"):\n            vi = T.axis.reduce(7, i)\n', "").replace(
        "            with T.init():\n                c[()] = T.float32(0)\n            c[()] = c[()] + x[vi]",
        "        c[()] = x[i]",
    )
    with pytest.raises(ScheduleError, match=r"\(1\) `c_local` has no dimensions"):
        schedule(bare).cache_write("root", "c", "local")


def test_cache_write_refuses_a_partial_result() -> None:
    """Condition (4): copying back all of a buffer would overwrite what the block leaves to the caller."""
    text = """
@T.prim_func
def main(x: T.Buffer((6,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(6):
        with T.block("shift"):
            vi = T.axis.spatial(6, i)
            y[vi + 1] = x[vi]
"""
    with pytest.raises(ScheduleError, match="does not write all of `y`"):
        schedule(text).cache_write("shift", 0, "local")


@pytest.mark.parametrize("extents", [(0, 4), (4, 0), (0, 0), (3, 0, 4)])
def test_loops_without_iterations_fuse_and_split(extents: tuple[int, ...]) -> None:
    """A nest that never runs is one loop that never runs, and stays a program."""
    names = ", ".join("ijk"[: len(extents)])
    sch = schedule(f"""
@T.prim_func
def main(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
    for {names} in T.grid{extents}:
        y[i, j] = x[i, j]
""")
    fused = sch.fuse(*names.split(", "))
    verify(sch.func)
    assert find_loop(sch.func, fused).extent == const(0)
    sch.split(fused, [None, 4])
    verify(sch.func)
    y = np.ones((4, 4), "float32")
    interpret(sch.func, y, y.copy())


@pytest.mark.parametrize(("first", "second"), [("i", "j"), ("j", "i")])
def test_a_thread_axis_is_bound_once_in_a_nest(first: str, second: str) -> None:
    """Two loops, one in the other, cannot both be one axis; loops beside each other can."""
    sch = schedule(CHAIN)
    i, j = sch.get_loops("scale")
    named = {"i": i, "j": j}
    sch.bind(named[first], "threadIdx.x")
    with pytest.raises(ScheduleError, match=rf"\(2\) loop `{named[first]}` of this nest is bound to threadIdx.x"):
        sch.bind(named[second], "threadIdx.x")
    sch.bind(named[second], "threadIdx.y")
    sch.bind(sch.get_loops("shift")[0], "threadIdx.x")
    sch.bind(named[first], "threadIdx.x")


@pytest.mark.parametrize(
    "body",
    [
        "if x[i] > T.float32(3):\n            y[i] = x[i]",
        """with T.block("b"):
            v = T.axis.spatial(10, i)
            T.where(x[i] > T.float32(3))
            y[v] = x[v]""",
        """d: T.int64 = 9 // (10 - i)
        with T.block("b"):
            v = T.axis.spatial(10, i)
            T.where(d > 2)
            y[v] = x[v]""",
        """for j in range(T.min(n[i], 10)):
            with T.block("b"):
                v = T.axis.spatial(10, i)
                w = T.axis.opaque(10, j)
                y[v] = x[w]""",
    ],
    ids=["condition", "predicate", "let", "extent"],
)
def test_the_rest_of_a_ragged_tile_evaluates_nothing(body: str) -> None:
    """What reads memory or divides stays inside of the condition that a split makes."""
    sch = schedule(f"""
@T.prim_func
def main(n: T.Buffer((10,), "int64"), x: T.Buffer((10,), "float32"), y: T.Buffer((10,), "float32")):
    for i in range(10):
        {body}
""")
    n, x, results = np.arange(10), np.arange(10, dtype="float32"), []
    for func in (sch.func, (sch.split("i", [None, 4]), sch.func)[1]):
        verify(func)
        check_in_bounds(func)
        y = np.zeros(10, "float32")
        interpret(func, n, x, y)
        results.append(y[n > 3].tolist())
    assert results[0] == results[1]


BLOCKED = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((10,), "float32")
    for o in range(2):
        for i in range(5):
            with T.block("write"):
                vi = T.axis.spatial(10, o * 5 + i)
                T.where(o * 5 + i < 8)
                S[vi] = A[vi]
        with T.block("part"):
            vo = T.axis.spatial(WHERE)
            for j in range(5):
                with T.block("read"):
                    vj = T.axis.spatial(8, vo * 5 + j)
                    T.where(vo * 5 + j < 8)
                    C[vj] = S[vj]
"""


def test_cache_read_inside_of_a_block_names_its_iterators_not_loops_outside() -> None:
    """The loop around the block tells which elements are stored by now; the iterator that is bound to it does, too."""
    text = BLOCKED.replace("WHERE", "2, o")
    sch = schedule(text)
    sch.cache_read("read", 0, "local")
    verify(sch.func)
    assert "T.where(S_local_ax0 < 5 or S_local_ax0 < 8 and vo == 1)" in sch.func.script()
    same(sch, text)
    # Here the iterator is 0 in both iterations of the loop, of which the second finds more.
    with pytest.raises(ScheduleError, match=r"\(3\) it is unknown .* iterations of loops outside of the block"):
        schedule(BLOCKED.replace("WHERE", "1, o // 2")).cache_read("read", 0, "local")
