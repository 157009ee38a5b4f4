"""Kernels of programs whose extents are expressions: one piece of code for all shapes, checked in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranged_programs
from ranged_programs import program

import stridesmith as ss
from stridesmith.backends.lower import LoweringError, lower
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
        ((np.zeros((65, 32), np.float32), 2, b), ValueError, "takes what meets `n <= 64` alone, but n = 65 by axis 0"),
        ((np.zeros((0, 32), np.float32), 2, b), ValueError, "takes what meets `1 <= n` alone, but n = 0"),
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
    with pytest.raises(ValueError, match=r"axis 0 of `C` must be n = 5, where n = 5 by axis 0 of `A`"):
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
    with pytest.raises(ValueError, match="takes what meets `m <= 64` alone, but m = 65"):
        kernel.at(m=65)
