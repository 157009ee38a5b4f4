"""Kernels of programs whose extents are expressions: one piece of code for all shapes, checked in each call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranged_programs
from masking import AVX2, AVX512, WITHOUT
from ranged_programs import program

import stridesmith as ss
from stridesmith.backends.lower import LoweringError, lower, lowering_steps
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import Var
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, If, walk_stmts
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import RangedKernel
from stridesmith.space.schedule import Schedule

MATMUL = ranged_programs.MATMUL.replace("m: T.int64", "m: T.int32")
SHAPES = ((1, 1), (5, 2), (16, 3), (17, 1), (64, 8))


def built(steps: Callable[[Schedule], object]) -> RangedKernel:
    """The kernel of the scheduled product."""
    sch = Schedule(program(MATMUL))
    steps(sch)
    kernel = ss.build(sch.func, "cpu")
    assert isinstance(kernel, RangedKernel)
    return kernel


def tiled(sch: Schedule) -> None:
    """A register tile on several threads, with a cache in blocks."""
    sch.cache_write("C", 0, "global")
    sch.transform_layout("C", "C_global", lambda i, j: [i // 4, j // 8, i % 4, j % 8])
    i, j, k = sch.get_loops("C")
    (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    sch.unroll(i1)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("given", lambda s: None),
        ("tile", tiled),
        ("parts", lambda s: s.rfactor(s.split(s.get_loops("C")[2], [None, 4])[1], 0)),
        ("stage", lambda s: (s.cache_read("C", 0, "global"), s.compute_at("A_global", s.get_loops("C")[0]))),
    ],
)
def test_one_kernel_runs_all_shapes(name: str, steps: Callable[[Schedule], object]) -> None:
    """Results are NumPy's, whatever the extents; outputs are allocated or given."""
    kernel = built(steps)
    for n, m in SHAPES:
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((n, 32), (m * 4, 32)))
        np.testing.assert_array_equal(kernel(a, m, b), a @ b.T, err_msg=f"{name} at {n}, {m}")
        out = np.full((n, m * 4), np.nan, np.float32)
        assert kernel(a, m, b, out=out) is out
        np.testing.assert_array_equal(out, a @ b.T)


def test_wrong_calls_are_one_sentence() -> None:
    """Nothing runs where extents disagree, or are not what the program assumes."""
    kernel = built(lambda s: None)
    a, b = np.zeros((5, 32), np.float32), np.zeros((8, 32), np.float32)
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((np.zeros((65, 32), np.float32), 2, b), ValueError, "is only for `n <= 64`, but n = 65, from axis 0"),
        ((np.zeros((0, 32), np.float32), 2, b), ValueError, "is only for `1 <= n`, but n = 0"),
        ((a, 3, b), ValueError, "axis 0 of `B` must be m * 4 = 12, where m = 3, but the array has (8, 32)"),
        ((a, -2, b), ValueError, "axis 0 of `B` must be m * 4 = -8"),
        ((a[:, :31].copy(), 2, b), ValueError, "axis 1 of `A` must be 32"),
        ((a.astype(np.float64), 2, b), TypeError, "`A` must have dtype float32"),
        ((a, 2), TypeError, "the kernel takes 3 inputs (A, m, B), but got 2"),
    ]
    for args, kind, message in wrong:
        with pytest.raises(kind) as refused:
            kernel(*args)
        assert message in str(refused.value)
    with pytest.raises(ValueError, match=r"axis 0 of `C` must be n = 5, where n = 5, from axis 0 of `A`"):
        kernel(a, 2, b, out=np.zeros((6, 8), np.float32))


def test_a_temporary_needs_a_largest_size() -> None:
    """Memory of temporaries has the largest extents that are assumed; without any there is no kernel."""
    sch = Schedule(program(MATMUL.replace("n <= 64 and m <= 8", "m <= 8")))
    sch.cache_read("C", 0, "global")
    with pytest.raises(LoweringError, match=r"`A_global` has the extents \(n, 32\), and nothing says how large `n`"):
        lower(sch.func, Target())


def test_a_copy_inside_of_a_parallel_loop_is_private_to_it() -> None:
    """Each iteration fills all rows of a copy, whose number is that of a call, and reads no other one's."""

    def staged(sch: Schedule) -> None:
        sch.cache_read("C", 0, "global")
        sch.transform_layout("C", "A_global", lambda i, k: [k // 8, i, k % 8], rewrite_loops=True)
        i, j, k = sch.get_loops("C")
        j0, j1 = sch.split(j, [None, 4])
        sch.reorder(j0, i, k, j1)
        sch.parallel(j0)
        sch.compute_at("A_global", j0)

    kernel = built(staged)
    for n, m in SHAPES:
        a, b, expected = ranged_programs.operands(n, m)
        np.testing.assert_array_equal(kernel(a, m, b), expected)


def test_a_shape_that_comes_again_is_called_as_one_of_its_own() -> None:
    """Kernels of shapes are kept, at most so many; one of them has its flops and its time."""
    func = ss.workload("matmul", m=(1, 64), n=8, k=4).func
    kernel = ss.build(func, "cpu")
    assert isinstance(kernel, RangedKernel)
    assert "matmul(a: float32[m, 4], b: float32[4, 8]) -> c: float32[m, 8]" in repr(kernel)
    for m in (*range(1, 65), 3):
        a, b = np.ones((m, 4), np.float32), np.ones((4, 8), np.float32)
        assert (kernel(a, b) == 4).all() and (kernel(a, b, out=np.zeros((m, 8), np.float32)) == 4).all()
    one = kernel.at(m=5)
    assert one.flops == 2 * 5 * 8 * 4 and one.time(seconds=0.01).latency_us > 0
    assert kernel.time(a, b, seconds=0.01).latency_us > 0
    with pytest.raises(ss.UsageError, match="has the integers m, but got q"):
        kernel.at(q=1)
    with pytest.raises(ValueError, match="is only for `m <= 64`, but m = 65"):
        kernel.at(m=65)


def test_whole_tiles_of_an_unknown_extent_have_no_conditions() -> None:
    """Each number of rows that may be left has its version, in none of which the sum tests anything."""

    def peeled(sch: Schedule) -> None:
        i, j, k = sch.get_loops("C")
        (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 4])
        sch.reorder(i0, j0, k, i1, j1)
        sch.decompose_reduction("C", k)
        for loop in (i1, f"{i1}_init"):
            sch.unroll(loop)
            sch.annotate(loop, "peel", True)

    sch = Schedule(program(MATMUL))
    peeled(sch)
    sums = [loop for loop in walk_stmts(lower(sch.func, Target(threads=1)).body)
            if isinstance(loop, For) and loop.var.name == "k"]  # fmt: skip
    assert len(sums) == 4
    assert not any(isinstance(stmt, If) for loop in sums for stmt in walk_stmts(loop))
    kernel = built(peeled)
    for n, m in SHAPES:
        a, b, expected = ranged_programs.operands(n, m)
        np.testing.assert_array_equal(kernel(a, m, b), expected)


@pytest.mark.parametrize("target", [AVX512, AVX2, WITHOUT], ids=lambda target: target.isa)
def test_the_last_vector_of_an_unknown_extent_is_cut(target: Target) -> None:
    """Vectors before it are whole, each number of vectors has its version, and results are NumPy's at every size."""
    func = ss.workload("matmul", m=(1, 3), n=(1, 100), k=4).func
    sch = Schedule(func)
    i, j, k = sch.get_loops("matmul")
    j0, j1, j2 = sch.split(j, [None, 3, 16])
    sch.reorder(i, j0, k, j1, j2)
    sch.decompose_reduction("matmul", k)
    for loop in (j1, f"{j1}_init"):
        sch.unroll(loop)
        sch.annotate(loop, "peel", True)
    for loop in (j2, f"{j2}_init"):
        sch.vectorize(loop)
        sch.annotate(loop, "peel", True)
        sch.annotate(loop, "mask", True)
    steps = dict(lowering_steps(sch.func, target))
    counts = [sum(isinstance(stmt, For) and stmt.var.name == "k" for stmt in walk_stmts(steps[name]))
              for name in ("partition_loops", "rewrite_storage")]  # fmt: skip
    assert counts[0] == 4  # whole, and with 3, 2 and 1 vectors of which the last one is cut
    assert counts[1] <= 6  # not for each number of lanes
    kernel = ss.build(sch.func, "cpu")
    for n in range(1, 101):
        a, b = np.ones((3, 4), np.float32), np.arange(4 * n, dtype=np.float32).reshape(4, n)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_what_follows_from_other_conditions_is_not_tested() -> None:
    """A row within its tile, and a whole tile within the extent, is within the extent."""
    func = ss.parse("""
@T.prim_func
def rows(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 32), "float32")
    C = T.match_buffer(c, (n, 32), "float32")
    T.assume(n <= 64)
    for i_0, i_1, i_2, j in T.grid((n + 4) // 5, 2, 4, 32):
        with T.block("C"):
            vi = T.axis.spatial(n, i_0 * 5 + i_1 * 4 + i_2)
            vj = T.axis.spatial(32, j)
            T.where(i_0 * 5 + i_1 * 4 + i_2 < n and i_1 * 4 + i_2 < 5)
            C[vi, vj] = A[vi, vj] + T.float32(1.0)
""")
    sch = Schedule(func)
    for loop in sch.get_loops("C")[1:3]:
        sch.annotate(loop, "peel", True)
    shown = str(lower(sch.func, Target(threads=1)).body)
    whole = next(stmt for stmt in walk_stmts(lower(sch.func, Target(threads=1)).body)
                 if isinstance(stmt, If) and stmt.orelse is not None)  # fmt: skip
    assert not any(isinstance(n, If) and {v.name for v in walk(n.cond) if isinstance(v, Var)} & {"n"}
                   for n in walk_stmts(whole.then)), shown  # fmt: skip


def test_a_tile_in_two_parts_is_peeled_in_each() -> None:
    """What one part of a tile leaves of a condition is over the loops outside alone, and is decided there."""
    func = ss.workload("softmax", rows=(1, 64), cols=16).func
    sch = Schedule(func)
    rows, columns = sch.get_loops("peak")
    i0, tile = sch.split(rows, [None, 8])
    i1, i2 = sch.split(tile, [None, 6])
    sch.reorder(i0, i1, columns, i2)
    sch.decompose_reduction("peak", columns)
    for loop in (i2, f"{i2}_init"):
        sch.unroll(loop)
        sch.annotate(loop, "peel", True)
    body = lower(sch.func, Target(threads=1)).body
    sums = [loop for loop in walk_stmts(body) if isinstance(loop, For) and loop.var.name == columns]
    assert sums and not any(isinstance(stmt, If) for loop in sums for stmt in walk_stmts(loop))
    kernel = ss.build(sch.func, "cpu")
    for n in range(1, 20):
        x = np.random.default_rng(n).uniform(-1, 1, (n, 16)).astype(np.float32)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_calls_of_all_shapes_are_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is checked in Python, with an output or without; and what is wrong is said as in the careful way."""
    kernel = ss.build(ss.workload("matmul", m="2..64:2", n=8, k=4).func, "cpu")
    b = np.ones((4, 8), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(RangedKernel, "_of_call", None)
        for m in (2, 64, 6, 2):
            a, out = np.full((m, 4), m, np.float32), np.zeros((m, 8), np.float32)
            assert kernel(a, b, out=out) is out and (out == 4 * m).all()
            assert (kernel(a, b) == 4 * m).all() and kernel(a, b).shape == (m, 8)
    a = np.ones((6, 4), np.float32)
    wrong: list[tuple[tuple[Any, ...], Any, type[Exception], str]] = [
        (
            (a, b),
            np.zeros((4, 8), np.float32),
            ValueError,
            "axis 0 of `c` must be m = 6, where m = 6, from axis 0 of `a`",
        ),
        ((a[:3].copy(), b), None, ValueError, "is only for `m % 2 == 0`, but m = 3, from axis 0 of `a`"),
        ((np.ones((66, 4), np.float32), b), None, ValueError, "is only for `m <= 64`, but m = 66"),
        ((np.ones((0, 4), np.float32), b), None, ValueError, "`, but m = 0, from axis 0 of `a`"),
        ((a, np.ones((4, 9), np.float32)), None, ValueError, "axis 1 of `b` must be 8"),
        ((a, b.astype(np.float64)), None, TypeError, "`b` must have dtype float32"),
        ((a, b), np.lib.stride_tricks.as_strided(a, (6, 8), (0, 0)), ValueError, "must be C-contiguous"),
        ((), None, TypeError, "the kernel takes 2 inputs"),
    ]
    for args, result, kind, message in wrong:
        with pytest.raises(kind) as refused:
            kernel(*args, out=result)
        assert message in str(refused.value)
    both = np.ones(6 * 8 + 6 * 4 - 1, np.float32)
    with pytest.raises(ValueError, match="`c` is written and shares memory with `a`"):
        kernel(both[: 6 * 4].reshape(6, 4), b, out=both[6 * 4 - 1 :].reshape(6, 8))


def test_a_relation_of_two_sizes_is_checked_in_each_call() -> None:
    """What is not a range of one size goes the careful way."""
    func = ss.parse("""
@T.prim_func
def rows(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    C = T.match_buffer(c, (n,), "float32")
    T.assume(n <= 64 and m <= 64 and n <= m)
    for i in range(n):
        C[i] = A[i, 0] + B[0, i]
""")
    kernel = ss.build(func, "cpu")
    for n, m in ((3, 4), (4, 4), (1, 9)):
        a, b = np.ones((n, m), np.float32), np.ones((m, n), np.float32)
        assert (kernel(a, b) == 2).all() and kernel(a, b).shape == (n,)
    for _ in range(2):
        with pytest.raises(ValueError, match="is only for `n <= m`, but m = 2, from axis 1 of `A` and n = 3"):
            kernel(np.ones((3, 2), np.float32), np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"axis 0 of `B` must be m = 4, where m = 4, from axis 1 of `A`"):
        kernel(np.ones((3, 4), np.float32), np.ones((5, 3), np.float32))


def test_rows_of_an_unknown_stride_share_addresses_and_masks() -> None:
    """Lanes are compared in 32 bits, in a whole tile once for all rows, and a row is a multiple of the stride away."""
    func = ss.workload("depthwise_conv2d", c=2, h=(16, 128), w=(16, 128)).func
    sch = Schedule(func)
    sch.compute_inline("pad")
    n, c, oh, ow, kh, kw = sch.get_loops("conv")
    (oh0, oh1), (ow0, ow1) = sch.split(oh, [None, 4]), sch.split(ow, [None, 16])
    sch.reorder(n, c, oh0, ow0, kw, kh, oh1, ow1)
    sch.cache_write("conv", 0, "local")
    sch.reverse_compute_at("y_local", ow0)
    sch.decompose_reduction("conv", kw)
    for loop in (oh1, f"{oh1}_init"):
        sch.unroll(loop)
        sch.annotate(loop, "peel", True)
    for loop in (ow1, f"{ow1}_init", sch.get_loops("y_local")[-1]):
        sch.vectorize(sch.split(loop, [None, 16])[1] if loop.startswith("y_local") else loop)
    for loop in (ow1, f"{ow1}_init"):
        sch.annotate(loop, "peel", True)
        sch.annotate(loop, "mask", True)
    sch.unroll(kh)
    text = generate(lower(sch.func, AVX512), AVX512)
    assert "x i64>" not in text, [line for line in text.splitlines() if "x i64>" in line][:3]
    assert len(re.findall(r"icmp \w+ <16 x i32>", text)) < 20
    kernel = ss.build(sch.func, "cpu")
    rng = np.random.default_rng(0)
    for h, w in ((16, 16), (17, 31), (18, 33), (19, 47), (128, 100)):
        x, weights = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((1, 2, h, w), (2, 3, 3)))
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        parts = [padded[:, :, a : a + h, b : b + w] * weights[None, :, a, b, None, None] for a, b in np.ndindex(3, 3)]
        np.testing.assert_allclose(kernel(x, weights), sum(parts), rtol=1e-4, atol=1e-5)


def test_a_nest_has_a_limited_number_of_versions() -> None:
    """Not each pair of rows and columns that may be left has one: small ones keep their conditions, all are right."""
    func = ss.workload("matmul", m=(1, 64), n=(1, 128), k=4).func
    sch = Schedule(func)
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1, j2) = sch.split(i, [None, 16]), sch.split(j, [None, 6, 4])
    sch.reorder(i0, j0, k, i1, j1, j2)
    sch.decompose_reduction("matmul", k)
    for loop in (i1, f"{i1}_init", j1, f"{j1}_init"):
        sch.unroll(loop)
        sch.annotate(loop, "peel", True)
    steps = dict(lowering_steps(sch.func, Target(threads=1)))
    versions = sum(isinstance(s, For) and s.var.name == k for s in walk_stmts(steps["partition_loops"]))
    assert 8 < versions < 32  # without a limit, one for each of 16 rows, with whole columns and with the others
    kernel = ss.build(sch.func, "cpu")
    for m, n in ((1, 1), (3, 5), (15, 24), (16, 23), (17, 25), (31, 47), (64, 128)):
        a, b = np.ones((m, 4), np.float32), np.arange(4 * n, dtype=np.float32).reshape(4, n)
        np.testing.assert_array_equal(kernel(a, b), a @ b)
