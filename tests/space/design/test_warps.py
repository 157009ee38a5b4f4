"""What a design space is on a device that runs work-items in step: groups of warps, small tiles, and much to share."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
import pytest

from stridesmith.backends.lower import lower
from stridesmith.backends.render.opencl.program import generate as source_of
from stridesmith.configs import load
from stridesmith.space.design.candidates import Candidates
from stridesmith.space.design.program import anchors
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import OF_WARPS, Space, generate
from stridesmith.space.design.techniques.local_memory import KEPT_BYTES, _box_bytes
from stridesmith.space.design.techniques.shared_reductions import shared_reductions
from stridesmith.space.workloads import workload

GPU = load.target("opencl-gpu")
SHAPES = {
    "conv2d": {"ci": 16, "h": 14, "w": 15, "co": 24, "k": 3, "pad": 1},
    "matmul": {"m": 64, "n": 72, "k": 96},
    "row_sum": {"rows": 20, "cols": 400},
    "max_pool2d": {"c": 10, "h": 19, "w": 19, "k": 3, "stride": 2, "pad": 1},
    "softmax": {"rows": 40, "cols": 21},
}


@lru_cache(maxsize=8)
def space(name: str) -> Space:
    return generate(workload(name, **SHAPES[name]).func, GPU, {})


def candidates(sketch: Sketch, rows: np.ndarray) -> list[Candidates]:
    """The decisions of each part of a sketch in some rows."""
    found, start = [], 0
    for part in sketch.parts:
        found.append(Candidates(part, rows[:, start : start + len(part.decisions)], GPU))
        start += len(part.decisions)
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_groups_are_warps_and_tiles_are_small(name: str) -> None:
    """A group has 32 to 256 items, or all that there are; an item computes one tile, which its registers hold."""
    seen = 0
    for sketch in space(name).sketches[:8]:
        rows = sketch.draw(np.random.default_rng(0), 60)
        for c in candidates(sketch, rows):
            seen += len(rows)
            iterations = np.broadcast_to(c.iterations, len(rows))
            items = np.broadcast_to(c.items, len(rows))
            assert ((items >= 32) | (items >= iterations)).all() and (items <= 256).all()
            accumulators = prod(np.broadcast_to(c.cover[a], len(rows)) for a in c.anchor.spatial)
            if not c.structure.factored:
                assert (accumulators <= 96).all()
            assert not any(np.any(inside) for inside in c.inside.values())
            assert all((count == 1).all() for count in c.block)
    assert seen >= 60


def test_the_version_is_one_of_its_own() -> None:
    """What other spaces stored is not read as this one's; a device without warps is what it was."""
    plain = generate(workload("matmul", **SHAPES["matmul"]).func, replace(GPU, warp=1), {})
    assert space("matmul").version == OF_WARPS != plain.version
    assert max(d for s in plain.sketches for d in map(len, s.decisions)) != OF_WARPS


@pytest.mark.parametrize(
    ("name", "shape"),
    [("conv2d", SHAPES["conv2d"]), ("matmul", SHAPES["matmul"]), ("matmul", {"m": 64, "n": 72, "k": 260})],
)
def test_local_memory_is_never_more_than_the_device_has(name: str, shape: dict[str, int]) -> None:
    """A kernel declares what the rule has counted at most, also of blocks that panels begin anywhere in."""
    tried = 0
    for sketch in generate(workload(name, **shape).func, GPU, {}).sketches:
        values = [np.arange(len(d)) for d in sketch.decisions]
        for number, decision in enumerate(sketch.decisions):
            if "/local:" in decision.name:
                values[number] = np.array([1])
            blocked = [n for n, label in enumerate(decision.labels) if label.startswith("blocked")]
            if blocked and "/layout:" in decision.name:
                values[number] = np.array(blocked)
        for row in sketch.draw(np.random.default_rng(1), 3, values):
            text = source_of(lower(sketch.schedule(tuple(map(int, row))).func, GPU), GPU).text
            declared = sum(4 * int(size) for size in re.findall(r"__local float \w+\[(\d+)\]", text))
            (c,) = (c for c in candidates(sketch, row[None]) if c.part.of("local"))
            counted = sum(int(_box_bytes(c, number)[0]) for number in c.part.of("local"))
            assert 0 < declared <= counted <= GPU.local_bytes - KEPT_BYTES
            tried += 1
    assert tried >= 6


@pytest.mark.parametrize(
    ("name", "shape", "parts"),
    [
        ("matmul", {"m": 1, "n": 4096, "k": 4096}, [16, 64]),
        ("matmul", {"m": 128, "n": 768, "k": 768}, [2]),
        ("matmul", {"m": 1024, "n": 1024, "k": 1024}, []),
        ("row_sum", {"rows": 41, "cols": 97}, [9]),
        ("row_sum", {"rows": 1, "cols": 100000}, [250]),
        ("softmax", {"rows": 40, "cols": 15}, []),
    ],
)
def test_reductions_of_few_results_are_cut_in_parts(name: str, shape: dict[str, int], parts: list[int]) -> None:
    """Until there are 512, or 2048, results for each compute unit, each of eight steps or more; else nothing is cut."""
    func = workload(name, **shape).func
    found = shared_reductions(anchors(func, {}), GPU)
    assert [count for count, _ in found] == list(dict.fromkeys(parts))
    labels = {s.name.split(";")[0] for s in generate(func, GPU, {}).sketches if s.name.startswith("parts=")}
    assert labels == {f"parts={count}" for count in parts}


def test_panels_that_fit_into_blocks_need_no_more_room() -> None:
    """Four steps of blocks of 32 are four elements for each row, of which local memory holds thousands."""
    free = generate(workload("matmul", **SHAPES["matmul"]).func, GPU, {"a": "constant"}).sketches
    part = next(s for s in free if s.name == "vec=s1,row=s0").parts[0]
    layouts = {(n, layout.label): layout for n, d in part.of("layout").items() for layout in part.decisions[d].values}
    number, layout = next((n, layout) for (n, label), layout in layouts.items() if label == "blocked:d1:32")
    operand = part.anchor.operands[number]
    for span, expected in ((4, [1, 4]), (32, [1, 32]), (64, [2, 32]), (12, [3, 32]), (48, [3, 32])):
        box = layout.box(operand, [np.array([16]), np.array([span])])
        assert [int(size[0]) for size in box] == [16, *expected]
