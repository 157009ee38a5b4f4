"""What an OpenCL device adds to a design space: vector width, work-groups, texture memory, local memory.

Results of kernels are those of the search's own verification, on the first device of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from expected_space import OPENCL
from opencl_programs import device, needs_device
from scale import SCALE, scaled

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered
from stridesmith.backends.lower import lower
from stridesmith.backends.render.opencl.program import generate as source_of
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Compiled, Verified, Verify
from stridesmith.space.design.decision import Decision
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.design.stages import schedule_stage
from stridesmith.space.design.techniques.images import image_layout, image_shape
from stridesmith.space.design.techniques.vector_width import device_tiles, widths
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule, Trace
from stridesmith.space.tree import leaf_blocks
from stridesmith.space.workloads import Workload, workload

SHAPES = {
    "conv2d": {"ci": 5, "h": 7, "w": 9, "co": 10, "k": 3},
    "matmul": {"m": 13, "n": 19, "k": 11},
    "depthwise_conv2d": {"c": 9, "h": 7, "w": 10, "k": 3},
    "max_pool2d": {"c": 10, "h": 9, "w": 19, "k": 3, "stride": 2, "pad": 1},
    "softmax": {"rows": 40, "cols": 21},
    "row_sum": {"rows": 9, "cols": 37},
}
KINDS = ("vector", "work_group", "image", "local")
FEW = tuple(SHAPES) if SCALE > 1 else ("conv2d", "matmul", "softmax")
Choice = tuple[int, ...]


@lru_cache(maxsize=16)
def space_of(name: str, target: Target, dtype: str = "", **shape: int) -> tuple[Workload, tuple[Sketch, ...]]:
    parameters = {**SHAPES[name], **shape, **({"dtype": dtype} if dtype else {})}
    work = workload(name, **parameters)
    return work, generate(work.func, target, dict.fromkeys(work.constants, "constant")).sketches


def short(decision: Decision) -> str:
    """``image:i0`` of ``<sketch>/<block>/image:i0``."""
    return decision.name.rsplit("/", 1)[-1]


def of_kind(sketch: Sketch, kind: str) -> list[int]:
    """The decisions of a sketch whose names begin with the kind."""
    return [n for n, d in enumerate(sketch.decisions) if short(d).startswith(kind)]


def drawn(sketch: Sketch, count: int, seed: int = 0, **pinned: int) -> list[Choice]:
    """Candidates, with every decision of the kinds `pinned` at that alternative."""
    values = [np.arange(len(d)) for d in sketch.decisions]
    for kind, alternative in pinned.items():
        for number in of_kind(sketch, kind):
            values[number] = np.array([alternative])
    return [tuple(map(int, row)) for row in sketch.draw(np.random.default_rng(seed), count, values)]


def pairs(sketch: Sketch, number: int) -> Iterator[tuple[Choice, Choice]]:
    """Candidates that differ in one decision alone."""
    count = len(sketch.decisions[number])
    for row in drawn(sketch, 30, seed=number):
        variants = [(*row[:number], c, *row[number + 1 :]) for c in range(count)]
        alive = [v for v in variants if sketch.mask(np.asarray([v]))[0]]
        if len(alive) > 1:
            order = np.random.default_rng(len(alive)).permutation(len(alive))
            yield alive[order[0]], alive[order[1]]


def text_of(func: PrimFunc, target: Target) -> str:
    return source_of(lower(func, target), target).text


def different(sketch: Sketch, number: int, target: Target) -> tuple[PrimFunc, PrimFunc] | None:
    for _, (one, other) in zip(range(20), pairs(sketch, number), strict=False):
        first, second = sketch.schedule(one).func, sketch.schedule(other).func
        if text_of(first, target) != text_of(second, target):
            return first, second
    return None


def verify(work: Workload, func: PrimFunc, target: Target) -> None:
    """The compiled program passes the search's verification: twice, with different poison."""
    kernel = Compiled(compile_lowered(lower(func, target), target), arguments_of(func))
    reply = jobs.run(Verify(kernel=kernel, work=name_of(work), seed=1))
    assert isinstance(reply, Verified), f"{reply}\n{func.script()}"


@needs_device
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FEW)
def test_a_decision_alone_makes_another_kernel_that_is_right(name: str, kind: str) -> None:
    """Candidates that differ in width, work-group, image or local memory alone: other source, the same results."""
    target = device()
    assert target is not None
    work, sketches = space_of(name, target)
    found = 0
    for sketch in [s for s in sketches if of_kind(s, kind)][: scaled(1)]:
        for number in of_kind(sketch, kind)[: scaled(1)]:
            pair = different(sketch, number, target)
            assert pair is not None, f"no alternative of {sketch.decisions[number].name} changes anything"
            for func in pair:
                verify(work, func, target)
            found += 1
    assert found


@needs_device
@pytest.mark.parametrize("name", FEW)
def test_candidates_in_local_memory_and_images_are_right(name: str) -> None:
    """Random candidates that hold every input they can in local memory, and then in images: all build and verify."""
    target = device()
    assert target is not None
    work, sketches = space_of(name, target)
    for sketch in sketches[: scaled(1)]:
        for pinned in ({"local": 1}, {"image": 1}):
            for choice in drawn(sketch, scaled(1), seed=5, **pinned):
                verify(work, sketch.schedule(choice).func, target)


@needs_device
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_other_types_have_images_and_local_memory(dtype: str) -> None:
    """Half floats and bytes in images and in local memory, with the sum in a wider type."""
    target = device()
    assert target is not None
    work, sketches = space_of("matmul", target, dtype)
    for sketch in sketches[: scaled(1)]:
        names = {short(d) for d in sketch.decisions}
        assert {"image:i0", "image:i1", "local:i0", "local:i1"} <= names
        for pinned in ({"local": 1}, {"image": 1}):
            for choice in drawn(sketch, scaled(1), seed=3, **pinned):
                verify(work, sketch.schedule(choice).func, target)


@needs_device
@pytest.mark.parametrize("shape", [{"m": 1, "n": 7, "k": 5}, {"m": 6, "n": 1, "k": 9}, {"m": 5, "n": 6, "k": 1}])
def test_axes_of_one_point(shape: dict[str, int]) -> None:
    """Programs with axes of one point have candidates of every kind that is left, and these are right."""
    target = device()
    assert target is not None
    work, sketches = space_of("matmul", target, **shape)
    for sketch in sketches[: scaled(1)]:
        choices = [*drawn(sketch, scaled(1)), *drawn(sketch, 1, local=1), *drawn(sketch, 1, image=1)]
        assert choices
        for choice in choices:
            verify(work, sketch.schedule(choice).func, target)


@needs_device
def test_panels_of_a_strided_result_are_added_up_as_vectors() -> None:
    """On the device of a CPU, too: sums in the order of the tile, and squares of them scattered when all are there."""
    target = device()
    assert target is not None
    work, sketches = space_of("conv2d", target, ci=16, co=24, w=16)
    sketch = next(s for s in sketches if s.main.structure.vec == 1)
    (panel,) = sketch.main.of("panel").values()
    choices = [choice for choice in drawn(sketch, 400, seed=0) if choice[panel]]
    kinds = [n for kind in ("local", "work_group") for n in of_kind(sketch, kind)]
    apart = [choice for choice in choices if not any(choice[n] for n in kinds)]
    assert apart and len(apart) < len(choices)
    funcs = [sketch.schedule(choice).func for choice in apart[: scaled(12)]]
    assert all("y_global" in {block.name for block in leaf_blocks(func.body)} for func in funcs)
    squares = [func for func in funcs if "= pick_float" in text_of(func, target)]
    assert bool(squares) is target.is_cpu_device
    for func in [*squares[: scaled(2)], *funcs[: scaled(2)]]:
        verify(work, func, target)
    for choice in [choice for choice in choices if choice not in apart][: scaled(2)]:
        verify(work, sketch.schedule(choice).func, target)


def test_a_trace_replays_to_the_same_kernel() -> None:
    """A candidate with an image and local memory, from JSON: the same program and source."""
    _, sketches = space_of("matmul", OPENCL)
    (choice,) = drawn(sketches[0], 1, image=1, local=1)
    sch = sketches[0].schedule(choice)
    again = Trace.from_json(sch.trace.to_json()).replay(sketches[0].func).func
    assert again == sch.func
    text = text_of(again, OPENCL)
    assert text == text_of(sch.func, OPENCL) and "image2d_t" in text and "__local" in text


def test_local_memory_is_loaded_by_all_items_before_any_reads_it() -> None:
    """One copy for each input, shared by the items, and a barrier between copies and use, none in a condition.

    A reduction in panels has another one before the next panel is loaded.
    """
    _, sketches = space_of("matmul", OPENCL)
    for sketch in sketches:
        for choice in drawn(sketch, scaled(3), local=1):
            func = sketch.schedule(choice).func
            assert func.script().count('scope="shared"') == 2
            text = text_of(func, OPENCL)
            kernel = text[text.rindex("__kernel") :]
            body = kernel.splitlines()
            barriers = [n for n, line in enumerate(body) if "barrier(CLK_LOCAL_MEM_FENCE" in line]
            assert len(barriers) == (2 if in_panels(sketch, choice) else 1), kernel
            assert not any(re.search(r"\bif \(", _open_braces(body[:n])) for n in barriers)
            at = barriers[0]
            stores = [n for n, line in enumerate(body) if re.match(r" *\w+_shared\[", line)]
            assert stores and max(stores) < at


def in_panels(sketch: Sketch, choice: Choice) -> bool:
    """Whether the candidate cuts its reduction in panels."""
    return any(
        d.name.endswith(":panel") and d.labels[c] != "whole" for d, c in zip(sketch.decisions, choice, strict=True)
    )


def _open_braces(lines: list[str]) -> str:
    """The heads of the blocks that are open after the lines."""
    heads: list[str] = []
    for line in lines:
        if line.strip().startswith("}"):
            heads.pop()
        if line.rstrip().endswith("{"):
            heads.append(line)
    return "\n".join(heads)


def test_a_device_without_images_or_local_memory_has_no_such_decision() -> None:
    """What a device lacks is not offered; nor are types that its images do not have."""
    bare = replace(OPENCL, images=False, image_types="", image_width=0, image_height=0, image_args=0, local_bytes=0)
    for target, kinds in ((bare, set()), (OPENCL, {"memory"})):
        _, sketches = space_of("conv2d", target)
        assert {d.kind for s in sketches for d in s.decisions} & {"memory"} == kinds
    _, sketches = space_of("matmul", OPENCL, "float16")
    assert not any(short(d).startswith("image") for s in sketches for d in s.decisions)


@needs_device
def test_chunks_fused_rows_and_inputs_computed_in_place_are_right() -> None:
    """What a CPU's device shares with the CPU: one kernel for all stages of a chunk, tiles that span the end of a row,
    and copies and producers inside of a work-item.
    """
    target = device()
    if target is None or not target.is_cpu_device:
        pytest.skip("no OpenCL device of a CPU")
    work, sketches = space_of("softmax", target)
    chosen = [(work, s, c) for s in sketches if s.chunks for c in drawn(s, 1)][::6]
    for name, kind, alternative in (("conv2d", "place:", 2), ("conv2d", "tile:s3:rows", 1), ("softmax", "place:", 1)):
        work, sketches = space_of(name, target)
        able = [s for s in sketches if of_kind(s, kind) and not s.chunks]
        able = [s for s in able if all(len(s.decisions[n]) > alternative for n in of_kind(s, kind))]
        assert able, f"no sketch of {name} has {kind}"
        chosen += [(work, s, c) for s in able[:3] for c in drawn(s, 2, **{kind: alternative})]
    assert len(chosen) > 12
    for work, sketch, choice in chosen:
        verify(work, sketch.schedule(choice).func, target)


@needs_device
def test_a_padded_copy_fills_work_groups_of_a_gpu() -> None:
    """3 * 9 * 11 elements in groups of 64, neighbours by neighbours; on a CPU a row each, in vectors."""
    here = device()
    assert here is not None
    work = workload("conv2d", ci=3, h=7, w=9, co=4, k=3, pad=1)
    sizes = {}
    for target in (here, replace(here, is_cpu_device=False)):
        schedule = Schedule(work.func)
        schedule_stage(schedule, "pad", target)
        schedule.bind(schedule.get_loops("conv")[1], "blockIdx.x")
        sizes[target.is_cpu_device] = re.findall(r"reqd_work_group_size\((\d+), ", text_of(schedule.func, target))
        verify(work, schedule.func, target)
    assert sizes == {True: ["1", "1"], False: ["64", "1"]}


def test_a_result_of_one_point_has_no_work_group() -> None:
    """Nothing is shared between items there, and nothing is loaded by them together."""
    _, sketches = space_of("matmul", OPENCL, m=1, n=1, k=40)
    kinds = {short(d).split(":")[0] for s in sketches for d in s.decisions}
    assert "image" in kinds and not kinds & {"work_group", "local"}
    for sketch in sketches:
        for choice in drawn(sketch, 2):
            lower(sketch.schedule(choice).func, OPENCL)


def test_images_beyond_the_limits_are_masked() -> None:
    """Where no cut between the axes fits, the mask says so, and the layout refuses."""
    narrow = replace(OPENCL, image_width=3, image_height=4)
    _, sketches = space_of("matmul", narrow)
    for sketch in sketches:
        for number in of_kind(sketch, "image"):
            rows = np.asarray(drawn(sketch, 50))
            rows[:, number] = 1
            for row, passed in zip(rows, sketch.mask(rows), strict=True):
                if passed:
                    func = sketch.schedule(row).func
                    images = [b for b in _buffers(func) if b.scope == "global.texture"]
                    assert images and all(_texels(b.shape, b.axis_separators) <= (3, 4) for b in images)
    with pytest.raises(ScheduleError, match=r"no cut of the physical shape \[9, 9\] fits images of at most 3 x 4"):
        image_layout(Layout.plain((9, 9)), narrow)


def _buffers(func: PrimFunc):
    from stridesmith.ir.passes.relayout import buffers

    return buffers(func)


def _texels(shape: tuple[int, ...], cuts: tuple[int, ...]) -> tuple[int, int]:
    (cut,) = cuts
    return int(np.prod(shape[cut:])) // 4, int(np.prod(shape[:cut]))


def test_the_number_of_images_is_masked() -> None:
    """A kernel takes no more images than the device says."""
    _, sketches = space_of("conv2d", replace(OPENCL, image_args=1))
    for sketch in sketches:
        rows = np.asarray(drawn(sketch, 40))
        rows[:, of_kind(sketch, "image")] = 1
        assert not sketch.mask(rows).any()


def test_local_memory_that_is_too_small_is_masked() -> None:
    """With 64 bytes no candidate has room, though each says so by the mask alone, not by the compiler."""
    small = replace(OPENCL, local_bytes=256)
    _, sketches = space_of("matmul", small)
    for sketch in sketches:
        for choice in drawn(sketch, 10, local=1):
            assert "__local" in text_of(sketch.schedule(choice).func, small)
    _, sketches = space_of("conv2d", replace(OPENCL, local_bytes=64))
    assert not any(drawn(sketch, 1, local=1) for sketch in sketches)


def test_where_an_image_is_cut() -> None:
    """The last cut that fits gives the most rows; the last axis is rounded up to whole texels."""
    target = replace(OPENCL, image_width=16, image_height=64)
    assert image_shape((3, 5, 7), target) == (2, (3, 5, 8))
    assert image_shape((16, 8, 8), target) == (1, (16, 8, 8))
    assert image_shape((65, 1, 4), target) is None and image_shape((4,), target) is None
    image = image_layout(Layout.ordered((6, 5), block=(0, 2), pad_value="undef"), target)
    assert image.index_map.text == "lambda d0, d1: [d0 // 2, d1, AXIS_SEPARATOR, d0 % 2]"
    assert (image.physical_shape, image.index_map.axis_separators, image.pad_value) == ((3, 5, 4), (2,), "undef")


def test_widths_and_tiles() -> None:
    """A CPU device has half to twice its native width, others one lane to twice; no vector is more than half empty."""
    gpu = replace(OPENCL, is_cpu_device=False, vector_bits=128)
    assert widths(100, OPENCL, "float32") == [4, 8, 16] and widths(100, gpu, "float32") == [1, 2, 4, 8]
    assert widths(3, OPENCL, "float32") == [4] and widths(1, OPENCL, "float32") == [1]
    assert device_tiles(100, 8, False, OPENCL) == [4, 8, 12, 16, 24, 32, 48, 64]
    assert device_tiles(10, 4, False, gpu) == [1, 2, 4, 6, 8, 12]
    assert device_tiles(20, 8, True, OPENCL) == [4, 8, 12, 16]


def test_work_groups_of_a_gpu_are_larger() -> None:
    """Up to what the device takes; on a CPU device, whose items run one after the other, up to 32."""
    sizes = {}
    for target in (OPENCL, replace(OPENCL, is_cpu_device=False, max_work_group=256)):
        _, sketches = space_of("conv2d", target, co=64, h=64, w=64)
        groups = next(d for d in sketches[0].decisions if d.kind == "work_group")
        sizes[target.is_cpu_device] = {g.items for g in groups.values}
    assert max(sizes[True]) == 32 and max(sizes[False]) == 256


def test_what_an_item_computes_for_itself_fits_its_private_memory() -> None:
    """A padded image of 1.3 MB, copied inside of work-items: the parts that they take are small enough for a source."""
    _, sketches = space_of("depthwise_conv2d", OPENCL, c=24, h=112, w=112, stride=2)
    inside = 0
    for sketch in sketches[:4]:
        places = [n for n in of_kind(sketch, "place") if "inner" in sketch.decisions[n].labels]
        values = [np.arange(len(d)) for d in sketch.decisions]
        for number in places:
            values[number] = np.array([sketch.decisions[number].labels.index("inner")])
        for row in sketch.draw(np.random.default_rng(3), 8, values):
            inside += len(places)
            assert "float x_pad" in text_of(sketch.schedule(tuple(map(int, row))).func, OPENCL)
    assert inside >= 8
