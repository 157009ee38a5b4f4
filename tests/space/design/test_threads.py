"""The number of threads of an anchor: open where it is small, and what all parallel loops of the anchor keep to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from expected_space import CPU, OPENCL
from opencl_programs import device

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate as llvm_text
from stridesmith.backends.render.opencl.program import generate as opencl_text
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.target import THREAD_POOL, Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

POOL = "stridesmith_parallel"
ON_POOL = replace(OPENCL, features=THREAD_POOL)
"""A device whose kernels run on stridesmith's threads."""


def number_of(sketch: Sketch) -> int | None:
    """The position of the decision, None where it is not open."""
    return next((n for n, d in enumerate(sketch.decisions) if d.name.endswith("/threads")), None)


def small(target: Target = CPU) -> tuple[Sketch, int]:
    """A convolution with a stage, and where its sketch decides on threads."""
    work = workload("conv2d", ci=3, h=9, w=11, co=10, k=3)
    sketch = generate(work.func, target, {"w": "constant"}).sketches[0]
    number = number_of(sketch)
    assert number is not None
    return sketch, number


def parallel(func: PrimFunc) -> list[dict[str, object]]:
    """The annotations of parallel loops."""
    return [dict(n.annotations) for n in walk(func.body) if isinstance(n, For) and n.kind == "parallel"]


def test_it_is_open_where_all_threads_have_little_to_do() -> None:
    """Up to 2 ** 15 vectors of points for each thread, never on a single one, nor on a device that is no CPU."""
    limit = 2**15 * 2 * CPU.vector_lanes("float32")
    for rows, expected in ((limit // 256, True), (limit // 256 + 1, False)):
        sketch = generate(workload("row_sum", rows=rows, cols=256).func, CPU).sketches[0]
        assert (number_of(sketch) is not None) == expected
    func = workload("row_sum", rows=8, cols=64).func
    for target in (replace(OPENCL, is_cpu_device=False), Target(kind="cpu", vector_bits=256, threads=1)):
        assert all(number_of(sketch) is None for sketch in generate(func, target).sketches)


@pytest.mark.parametrize(("threads", "labels"), [(2, ("2", "1")), (4, ("4", "2", "1")), (64, ("64", "32", "8", "1"))])
def test_all_threads_come_first(threads: int, labels: tuple[str, ...]) -> None:
    """Then half of them, an eighth, one."""
    sketch, number = small(Target(kind="cpu", vector_bits=256, registers=16, threads=threads))
    assert sketch.decisions[number].labels == labels


def test_every_loop_of_the_anchor_keeps_to_it() -> None:
    """Stages too: on one thread nothing is left that calls the pool; on all, nothing is annotated."""
    sketch, number = small()
    rows = sketch.draw(np.random.default_rng(0), 60)
    stages = 0
    for row in rows[rows[:, number] == 1][:12]:
        func = sketch.schedule(row).func
        found = parallel(func)
        stages += len(found) > 1
        assert found and all(notes.get("threads") == 1 for notes in found)
        assert POOL not in llvm_text(lower(func, CPU), CPU)
        row[number] = 0
        assert all("threads" not in notes for notes in parallel(sketch.schedule(row).func))
    assert stages


def test_as_many_as_there_are_iterations_are_all() -> None:
    """With a single iteration, or with two of them for two of four threads, the candidate is the one with all."""
    sketch, number = small(Target(kind="cpu", vector_bits=256, registers=16, threads=4))
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    excluded = sketch.exclusions(rows)["threads"]
    assert not excluded[rows[:, number] == 0].any()
    assert excluded[rows[:, number] == 2].any() and not excluded[rows[:, number] == 2].all()
    for row in rows[sketch.mask(rows) & (rows[:, number] == 1)][:8]:
        func = sketch.schedule(row).func
        extents = [n.extent for n in walk(func.body) if isinstance(n, For) and "threads" in dict(n.annotations)]
        assert max(int(e.value) for e in extents) > 2  # type: ignore[union-attr]


def groups(func: PrimFunc) -> list[dict[str, object]]:
    """The annotations of loops over work-groups."""
    return [dict(n.annotations) for n in walk(func.body) if isinstance(n, For) and n.thread.startswith("blockIdx")]


@pytest.mark.parametrize("target", [ON_POOL, OPENCL], ids=["pool", "driver"])
def test_a_device_may_run_small_programs_on_one_thread(target: Target) -> None:
    """On one thread all loops over work-groups are annotated, and there is one group."""
    sketch, number = small(target)
    assert sketch.decisions[number].labels == ("2", "1")
    for row in sketch.draw(np.random.default_rng(3), 40)[:16]:
        func = sketch.schedule(row).func
        found, alone = groups(func), row[number] == 1
        assert found and all((notes.get("threads") == 1) == alone for notes in found)
        launches = opencl_text(lower(func, target), target).launches
        assert all(launch.is_single for launch in launches) or not alone


def test_threads_of_a_driver_all_take_part_or_one_does() -> None:
    """The pool's may be half of them."""
    for target, labels in ((replace(ON_POOL, threads=4), ("4", "2", "1")), (replace(OPENCL, threads=4), ("4", "1"))):
        sketch, number = small(target)
        assert sketch.decisions[number].labels == labels


def test_work_groups_of_several_items_run_on_all_threads() -> None:
    """A single group of many items would wait at each barrier for nothing."""
    sketch, number = small(ON_POOL)
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    group = next(n for n, d in enumerate(sketch.decisions) if d.name.endswith("/work_group"))
    single = np.array([label == "1" for label in sketch.decisions[group].labels])[rows[:, group]]
    excluded = sketch.exclusions(rows)["one thread for groups"]
    np.testing.assert_array_equal(excluded, (rows[:, number] == 1) & ~single)


def test_chunks_of_rows_share_the_decision() -> None:
    """It is open in the first anchor alone, and the loop over chunks keeps to it."""
    work = workload("softmax", rows=24, cols=40)
    sketches = [s for s in generate(work.func, ON_POOL).sketches if s.chunks]
    assert sketches
    for sketch in sketches[:3]:
        numbers = [n for n, d in enumerate(sketch.decisions) if d.name.endswith("/threads")]
        assert len(numbers) == 1 and numbers[0] < len(sketch.parts[0].decisions)
        rows = sketch.draw(np.random.default_rng(4), 30)
        assert {0, 1} == set(rows[:, numbers[0]])
        for row in rows[:6]:
            found = groups(sketch.schedule(row).func)
            assert found and all((notes.get("threads") == 1) == (row[numbers[0]] == 1) for notes in found)


def test_single_work_groups_verify() -> None:
    """With poison in everything that may not be relied on."""
    target = device()
    if target is None or not target.has_thread_pool:
        pytest.skip("kernels run on the driver's threads here")
    for work in (workload("conv2d", ci=3, h=9, w=11, co=10, k=3), workload("softmax", rows=24, cols=40)):
        samples = make_samples(work.func, work.reference, 0)
        sketch = generate(work.func, target).sketches[0]
        number = number_of(sketch)
        assert number is not None
        rows = sketch.draw(np.random.default_rng(2), 40)
        for row in rows[rows[:, number] == 1][:2]:
            func = sketch.schedule(row).func
            bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=GUARD_BYTES)
            assert verify(bound, arguments_of(func), samples).complete


def test_the_estimate_knows_what_a_launch_on_all_threads_takes() -> None:
    """A product of 8x8x8 is done before two threads have begun; at 80x80x80 the second one is worth it."""
    for size, alone in ((8, True), (80, False)):
        sketch = generate(workload("matmul", m=size, n=size, k=size).func, ON_POOL).sketches[0]
        number = number_of(sketch)
        assert number is not None
        one = sketch.draw(np.random.default_rng(0), 200)
        one = one[one[:, number] == 1]
        both = one.copy()
        both[:, number] = 0
        features = FeatureMap((sketch,), ON_POOL)
        gains = features.estimate(0, both) - features.estimate(0, one)
        assert (np.median(gains) > 0) == alone


def test_kernels_with_few_threads_verify() -> None:
    """With poison in everything that may not be relied on."""
    work = workload("conv2d", ci=3, h=9, w=11, co=10, k=3)
    sketch, number = small()
    rows = sketch.draw(np.random.default_rng(2), 40)
    samples = make_samples(work.func, work.reference, 0)
    for row in rows[rows[:, number] == 1][:3]:
        func = sketch.schedule(row).func
        bound = load_artifact(compile_lowered(lower(func, CPU), CPU)).bind(guard_bytes=GUARD_BYTES)
        assert verify(bound, arguments_of(func), samples).complete


def test_the_estimate_prefers_one_thread_where_nothing_else_counts() -> None:
    """A product of 8x8x8 is done before two threads have met; one of 80x80x80 gains from the second one."""
    for size, alone in ((8, True), (80, False)):
        sketch = generate(workload("matmul", m=size, n=size, k=size).func, CPU).sketches[0]
        number = number_of(sketch)
        assert number is not None
        rows = sketch.draw(np.random.default_rng(0), 200)
        both = rows[rows[:, number] == 1]
        others = both.copy()
        others[:, number] = 0
        features = FeatureMap((sketch,), CPU)
        one, two = features.estimate(0, both), features.estimate(0, others)
        assert ((one < two) == alone).mean() > 0.9
        threads = features.matrix(0, both)[:, features.columns.index("threads")]
        assert (threads == 0).all()
