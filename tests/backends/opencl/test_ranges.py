"""Programs whose extents are expressions on OpenCL devices: one compiled program for all sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import ranged_programs
from opencl_programs import GENERIC, GPU, device, needs_device

import stridesmith as ss
from stridesmith.backends.errors import CodegenError
from stridesmith.backends.launch import Launch
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import THREAD_POOL, Target
from stridesmith.search.calling.kernel import RangedKernel
from stridesmith.space.schedule import Schedule

WORK = ss.workload("matmul", m=(1, 64), n=(1, 48), k=16)
POOLED = replace(GENERIC, features=f"{GENERIC.features} {THREAD_POOL}")
SHAPES = ((1, 1), (5, 2), (16, 16), (17, 31), (64, 48))


def tiled(sch: Schedule) -> None:
    """A register tile for each work-group, with conditions on its last rows and columns."""
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.unroll(i1)
    sch.vectorize(j1)


def of_items(sch: Schedule) -> None:
    """Work-groups of several items, of which the last one reaches over the end, and two peeled rows for each item."""
    i, j, k = sch.get_loops("matmul")
    (i0, i1, i2), (j0, j1) = sch.split(i, [None, 4, 2]), sch.split(j, [None, 8])
    sch.reorder(i0, j0, i1, j1, k, i2)
    sch.decompose_reduction("matmul", k)
    for loop, place in ((i0, "blockIdx.x"), (j0, "blockIdx.y"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
        sch.bind(loop, place)
    for loop in (i2, f"{i2}_init"):
        sch.unroll(loop)
        sch.annotate(loop, "peel", True)


def in_local_memory(sch: Schedule) -> None:
    """Items load a panel together, and wait for each other before they use it and before the next one."""
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1), (k0, k1) = sch.split(i, [None, 8]), sch.split(j, [None, 8]), sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.cache_read("matmul", 0, "shared")
    sch.compute_at("a_shared", k0)
    sch.decompose_reduction("matmul", k0)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j0, "blockIdx.y")
    for loop in (i1, f"{i1}_init", sch.get_loops("a_shared")[-2]):
        sch.bind(loop, "threadIdx.x")


def in_steps(sch: Schedule) -> None:
    """Blocks of a temporary, which one kernel fills and the next one reads."""
    sch.cache_write("matmul", 0, "global")
    sch.transform_layout("matmul", "c_global", lambda i, j: [i // 4, j // 8, i % 4, j % 8])
    i, j, k = sch.get_loops("matmul")
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, k, i1)
    sch.bind(i0, "blockIdx.x")
    sch.bind(sch.get_loops("c_global")[0], "blockIdx.x")


def in_cases(sch: Schedule) -> None:
    """One row, few rows and others, each with loops of its own."""

    def rows(count: int) -> list[object]:
        split, bind = {"loop": "i", "factors": [None, count]}, {"loop": "i_0", "thread_axis": "blockIdx.x"}
        return [["split", split], ["bind", bind], ["unroll", {"loop": "i_1"}]]

    one = [["bind", {"loop": "j", "thread_axis": "blockIdx.x"}]]
    sch.specialize([[{"m": [1, 1]}, one], [{"m": [1, 16]}, rows(2)], [{}, rows(6)]])


SCHEDULES: tuple[Callable[[Schedule], None], ...] = (
    lambda sch: None, tiled, of_items, in_local_memory, in_steps, in_cases,
)  # fmt: skip
NAMES = ["given", "tiled", "of_items", "in_local_memory", "in_steps", "in_cases"]


def scheduled(steps: Callable[[Schedule], None]) -> PrimFunc:
    sch = Schedule(WORK.func)
    steps(sch)
    return sch.func


def operands(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(100 * m + n)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, 16), (16, n)))
    return a, b


def launched(func: PrimFunc, target: Target, **sizes: int) -> list[Launch]:
    """What a call of these sizes launches, by what an artifact says."""
    launches = [Launch.from_json(launch.to_json()) for launch in generate(lower(func, target), target).launches]
    return [one for launch in launches if (one := launch.at(sizes)) is not None]


@needs_device
@pytest.mark.parametrize("steps", SCHEDULES, ids=NAMES)
def test_one_program_runs_all_shapes(steps: Callable[[Schedule], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the interpreter's and NumPy's, also where no group is whole; nothing is compiled again."""
    from stridesmith.backends.opencl.runtime import OpenCLExecutable

    func, target = scheduled(steps), device()
    assert target is not None
    kernel = ss.build(func, target)
    assert isinstance(kernel, RangedKernel)
    monkeypatch.setattr(OpenCLExecutable, "_program", None)
    for m, n in SHAPES:
        a, b = operands(m, n)
        np.testing.assert_array_equal(kernel(a, b), a @ b, err_msg=f"{m}, {n}")
        out = np.full((m, n), np.nan, np.float32)
        assert kernel(a, b, out=out) is out
        np.testing.assert_array_equal(out, a @ b)
    a, b = operands(5, 2)
    wanted = np.zeros((5, 2), np.float32)
    ss.interpret(func, a, b, wanted)
    np.testing.assert_array_equal(wanted, a @ b)


@needs_device
@pytest.mark.parametrize("steps", SCHEDULES, ids=NAMES)
def test_nothing_outside_of_the_arrays_is_touched(steps: Callable[[Schedule], None]) -> None:
    """Memory around each array is as before, and what was in the result does not matter."""
    from stridesmith.backends.kernel import compile_lowered, load_artifact

    target = device()
    assert target is not None
    executable = load_artifact(compile_lowered(lower(scheduled(steps), target), target))
    for m, n in SHAPES:
        a, b = operands(m, n)
        bound = executable.at([a.shape, b.shape, (m, n)], [m, n]).bind(guard_bytes=256)
        bound.poison_guards(b"\x5a")
        for number, array in enumerate((a, b, np.full((m, n), np.nan, np.float32))):
            bound.write(number, array)
        for number in range(3, len(bound.names)):
            bound.write(number, np.full(bound.read(number).shape, np.nan, np.float32))
        bound.run()
        np.testing.assert_array_equal(bound.read(2), a @ b)
        assert bound.guards_intact()


@needs_device
def test_wrong_calls_are_one_sentence() -> None:
    """Extents are read from the arrays and checked as on the CPU."""
    kernel = ss.build(scheduled(tiled), device())
    a, b = operands(5, 2)
    wrong = [
        ((np.zeros((65, 16), np.float32), b), "is only for `m <= 64`, but m = 65, from axis 0 of `a`"),
        ((np.zeros((0, 16), np.float32), b), "is only for `1 <= m`, but m = 0"),
        ((a[:, :15].copy(), b), "axis 1 of `a` must be 16"),
        ((a, np.zeros((15, 2), np.float32)), "axis 0 of `b` must be 16"),
    ]
    for args, message in wrong:
        with pytest.raises(ValueError) as refused:
            kernel(*args)
        assert message in str(refused.value)
    with pytest.raises(ValueError, match=r"axis 0 of `c` must be m = 5, where m = 5, from axis 0 of `a`"):
        kernel(a, b, out=np.zeros((6, 2), np.float32))
    one = kernel.at(m=5, n=2)
    assert one.flops == 2 * 5 * 2 * 16 and one.time(seconds=0.01).latency_us > 0


@needs_device
def test_a_kernel_of_many_shapes_has_no_memory_of_its_own() -> None:
    """It is bound for one call's extents, which have to be as many as it takes."""
    from stridesmith.backends.kernel import compile_lowered, load_artifact

    target = device()
    assert target is not None
    executable = load_artifact(compile_lowered(lower(scheduled(tiled), target), target))
    assert executable.is_open and not executable.at([(1, 16), (16, 1), (1, 1)], [1, 1]).is_open
    with pytest.raises(ValueError, match="the size of `a` is a matter of each call"):
        executable.bind()
    with pytest.raises(ValueError, match="takes 3 parameters and 2 sizes, but got 3 and 1"):
        executable.at([(1, 16), (16, 1), (1, 1)], [1])


@needs_device
def test_constants_are_packed_once() -> None:
    """Those whose extents are numbers, in the layout of the schedule."""
    work = ss.workload("matmul", m=(1, 64), n=24, k=16)
    sch = Schedule(work.func)
    sch.transform_layout("matmul", "b", lambda k, j: [j // 8, k, j % 8])
    i, j, k = sch.get_loops("matmul")
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i, j0, k, j1)
    sch.bind(sch.fuse(i, j0), "blockIdx.x")
    sch.vectorize(j1)
    kernel = ss.build(sch.func, device(), {"a": "fixed", "b": "constant", "c": "fixed"})
    a, b = operands(17, 24)
    packed = kernel.pack(b=b)
    for m in (1, 17):
        np.testing.assert_array_equal(kernel(a[:m].copy(), b), a[:m] @ b)
        np.testing.assert_array_equal(packed(a[:m].copy()), a[:m] @ b)


def test_the_host_counts_work_groups() -> None:
    """Of a tile that does not divide a size the last one is counted; a pool's threads share one row of groups."""
    func = scheduled(tiled)
    (launch,) = launched(func, GENERIC, m=17, n=31)
    assert launch.global_size == (4, 5, 1) and launch.values == (17, 31) and not launch.is_single
    (launch,) = launched(func, POOLED, m=17, n=31)
    assert launch.global_size == (20, 1, 1) and launch.groups == 20
    (launch,) = launched(scheduled(of_items), GENERIC, m=17, n=31)
    assert launch.global_size == (24, 16, 1) and launch.local_size == (8, 4, 1)
    (launch,) = launched(func, GENERIC, m=1, n=1)
    assert launch.groups == 1


def test_sizes_are_arguments_of_kernels() -> None:
    """They stand behind arrays, no array has them, and what the host has checked no kernel tests."""
    source = generate(lower(scheduled(tiled), GENERIC), GENERIC)
    assert "const long m_size, const long n_size)" in source.text and "const long m = m_size;" in source.text
    assert source.launches[0].args == (0, 1, 2) and not re.search("[mn] <= (64|48)|1L? <= [mn]", source.text)
    on_gpu = generate(lower(scheduled(of_items), GPU), GPU).text
    assert "const int m = m_size;" in on_gpu and "long k" not in on_gpu


def test_a_case_is_chosen_before_anything_is_launched() -> None:
    """Each kernel runs for the sizes of its case alone."""
    func = scheduled(in_cases)
    source = generate(lower(func, GENERIC), GENERIC)
    assert len(source.launches) == 3
    for m, groups in ((1, 48), (2, 1), (16, 8), (17, 3), (64, 11)):
        (launch,) = launched(func, GENERIC, m=m, n=48)
        assert launch.groups == groups, m
    assert len({launched(func, GENERIC, m=m, n=1)[0].kernel for m in (1, 2, 16, 17, 64)}) == 3


def test_extents_over_parameters_are_refused() -> None:
    """How many work-groups there are is decided before the kernel runs, when only extents of arrays are known."""
    func = ranged_programs.program(ranged_programs.MATMUL)
    sentence = "extents of `matmul` are expressions of its parameter `m`, which is not known on `device` before"
    with pytest.raises(LoweringError, match=sentence):
        lower(func, GENERIC)


def test_threads_of_an_unknown_number_are_refused() -> None:
    """A work-group has a size that its kernel is compiled for."""
    sch = Schedule(WORK.func)
    sch.bind("i", "threadIdx.x")
    with pytest.raises(CodegenError, match=r"loop `i` is bound to threadIdx.x; its extent must be constant"):
        generate(lower(sch.func, GENERIC), GENERIC)
