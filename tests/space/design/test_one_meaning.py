"""A choice has one meaning: what `Candidates` reads is what the program does and what the cost model counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from stridesmith.backends.lower import lower
from stridesmith.cost_model.features import FeatureMap
from stridesmith.cost_model.tiling import covers
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import Allocate, For, PrimFunc
from stridesmith.ir.target import BYTE_DOTS, Target
from stridesmith.space.design.candidates import Candidates
from stridesmith.space.design.decision import BOUNDARIES, BRANCH, INNER, OVERCOMPUTE, PEEL
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.design.structure import Open
from stridesmith.space.design.techniques.technique import MAX_SCRATCH
from stridesmith.space.tree import extent_of, find_block
from stridesmith.space.workloads import names, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
OPENCL = Target(kind="opencl", vector_bits=256, registers=16, units=2, threads=2, max_work_group=64)
DOTS = replace(OPENCL, features=BYTE_DOTS)
SUBGROUPS = replace(OPENCL, subgroups="4 8 16")
SCHEDULED = ("conv2d", "matmul", "depthwise_conv2d", "max_pool2d", "row_sum", "conv1d")


def drawn(name: str, target: Target, sketches: int, count: int) -> Iterator[tuple[Sketch, Open, np.ndarray]]:
    """Candidates of each anchor of a workload's sketches: the sketch, the anchor's part of it, and rows of choices.

    Of bytes, where the target has dot products of them.
    """
    work = workload(name, dtype="int8") if target.dot_signs else workload(name)
    for sketch in generate(work.func, target, dict.fromkeys(work.constants, "constant")).sketches[:sketches]:
        rows, start = sketch.draw(np.random.default_rng(1), count), 0
        for part in sketch.parts:
            yield sketch, part, rows[:, start : start + len(part.decisions)]
            start += len(part.decisions)


def read_plainly(part: Open, row: np.ndarray) -> dict[str, object]:
    """The labels of a row's choices, by the last word of the decision's name: no table is read."""
    return {d.name.split("/")[-1]: d.labels[c] for d, c in zip(part.decisions, row, strict=True)}


def tile_of(label: object) -> int:
    """``3x16`` or ``48`` as a number of points."""
    return int(np.prod([int(n) for n in str(label).split("x")]))


@pytest.mark.parametrize(
    "name, target",
    [(name, target) for name in names() for target in (CPU, OPENCL)]
    + [("matmul", DOTS), ("conv2d", DOTS), ("row_sum", SUBGROUPS), ("softmax", SUBGROUPS)],
)
def test_candidates_read_what_labels_say(name: str, target: Target) -> None:
    """Tiles, blocks, panels, edges, layouts and orders: by the tables of a whole population, and by the labels."""
    for _, part, rows in drawn(name, target, 16 if target in (DOTS, SUBGROUPS) else 8, 24):
        found = Candidates(part, rows, target)
        cover = covers(found)
        every = np.zeros(len(rows), np.int64)
        for at, row in enumerate(rows):
            said = read_plainly(part, row)
            order: list[str] = []
            for number, axis in enumerate(part.anchor.axes):
                tile = tile_of(said.get(f"tile:{axis.name}", 1))
                assert (found.cover[number] + every)[at] == tile == (cover.levels["reg"][number] + every)[at]
                assert (found.block[number] + every)[at] == int(str(said.get(f"tile:{axis.name}:block", 1)))
                panel = said.get(f"tile:{axis.name}:panel", "whole")
                assert (found.panel[number] + every)[at] == (axis.extent if panel == "whole" else int(str(panel)))
                extent = axis.extent
                if "*" in str(said.get(f"tile:{axis.name}:rows", "")):
                    assert found.pair is not None and found.pair[1] == number and (found.fused + every)[at]
                    extent *= part.anchor.axes[found.pair[0]].extent
                    order.append(axis.name)
                assert (found.extent[number] + every)[at] == extent == (cover.extents[number] + every)[at]
                edge = BOUNDARIES.index(str(said.get(f"boundary:{axis.name}", "branch")))
                edge = edge if extent % tile else BRANCH
                assert (found.boundary[number] + every)[at] == edge
                computed = -(-extent // tile) * tile if edge == OVERCOMPUTE else extent
                assert (found.computed[number] + every)[at] == computed
            if "order" in said and not order:
                places = {part.anchor.axes[a].name: (place + every)[at] for a, place in found.position.items()}
                assert sorted(places, key=lambda name: places[name]) == str(said["order"]).split(">")
            for number, operand in enumerate(part.anchor.operands):
                layout = found.layouts(number)[(found.layout(number) + every)[at]]
                assert layout.label == said.get(f"layout:{operand.name}", "identity")


def loops(func: PrimFunc, kind: str) -> list[For]:
    return [n for n in walk(func.body) if isinstance(n, For) and n.kind == kind]


@pytest.mark.parametrize("name", SCHEDULED)
def test_the_scheduled_program_has_the_chunks_and_edges_that_were_read(name: str) -> None:
    """The shared loop has an iteration for each chunk that the cost model counts; a peeled edge is marked as one."""
    checked = 0
    for sketch, part, rows in drawn(name, CPU, 3, 4):
        if len(sketch.parts) > 1:
            continue
        features = FeatureMap((sketch,), CPU)
        chunks = np.exp2(features.matrix(0, rows)[:, features.columns.index("chunks")]).round().astype(int)
        found = Candidates(part, rows, CPU)
        for at, row in enumerate(rows):
            func = sketch.schedule(row).func
            block = find_block(func, part.anchor.block)
            around = [loop for loop in loops(func, "parallel") if any(n is block for n in walk(loop))]
            assert [extent_of(loop) for loop in around] == ([chunks[at]] if around else [])
            if around and part.of("threads"):
                assert chunks[at] == found.iterations[at % len(found.iterations)]
            checked += len(around)
            edges = [int(how[at % len(how)]) for how in found.boundary]
            tile = loops(func, "unrolled") + loops(func, "vectorized")
            assert not (PEEL in edges and part.anchor.reduce) or any("peel" in dict(n.annotations) for n in tile)
    assert checked


@pytest.mark.parametrize("name", ["conv2d", "matmul", "depthwise_conv2d", "conv2d_nhwc"])
def test_the_model_believes_in_the_footprint_that_is_allocated(name: str) -> None:
    """A register tile has as many elements as the cost model says, and an input staged inside the shared loops needs
    what one of their iterations touches, rounded up to the tiles of its layout at most."""
    shown = {"layout": "nhwc"} if name.endswith("_nhwc") else {}
    work = workload(name.removesuffix("_nhwc"), **shown)
    staged = 0
    for sketch in generate(work.func, CPU, dict.fromkeys(work.constants, "constant")).sketches[:4]:
        (part,) = sketch.parts
        inner = [
            np.array([n for n, v in enumerate(d.values) if v == INNER] if d.kind == "place" else range(len(d)))
            for d in part.decisions
        ]
        if not part.of("place") or any(not len(values) for values in inner):
            continue
        rows = sketch.draw(np.random.default_rng(2), 6, inner)
        candidates = Candidates(part, rows, CPU)
        cover = covers(candidates)
        for at, row in enumerate(rows):
            func = lower(sketch.schedule(row).func, CPU)
            sizes = {n.buffer.name: n.buffer.size for n in walk(func.body) if isinstance(n, Allocate)}
            for number, operand in enumerate(part.anchor.operands):
                copied = operand.source in ("fixed", "stage") and _at(candidates.staged(number), at)
                if operand.is_output or not copied:
                    continue
                name = operand.buffer.name
                (size,) = [s for b, s in sizes.items() if b in (name, f"{name}_global")]
                spans = [_at(reach, at) for reach in cover.reach(operand, "chunk")]
                layout = candidates.layouts(number)[_at(candidates.layout(number), at)]
                order = layout.order(operand, [_at(c, at) for c in candidates.cover])
                tiles = zip(cover.levels["chunk"], cover.levels["reg"], strict=True)
                whole = [-(-chunk // tile) * tile for chunk, tile in tiles]
                most = 1
                for dim in order:
                    reach = _at(candidates.span(operand, whole)[dim.dim], at)
                    most *= {"block": -(-reach // dim.step) + 1, "inner": dim.step}.get(dim.part, dim.size(reach))
                assert np.prod(spans) <= size <= most
                assert 4 * size <= MAX_SCRATCH * 4 // 3
                staged += 1
            rounded = int(np.prod([_at(c, at) for a, c in enumerate(candidates.cover) if a in part.anchor.spatial]))
            tiles = [s for b, s in sizes.items() if b.endswith(("_local", "_rf"))]
            assert not tiles or rounded in tiles
    assert staged > 4


def _at(values: np.ndarray, at: int) -> int:
    return int(values[at % len(values)])
