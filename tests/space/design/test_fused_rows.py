"""Register tiles whose rows run along two axes: 49 points of a 7 x 7 image in tiles of 6."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_run import run_compiled
from scale import scaled

from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.expr import variables
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.tree import extent_of, find_block, leaf_blocks, loops_above
from stridesmith.space.workloads import Workload, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)

WORKS = {
    "conv2d": {"ci": 16, "h": 7, "w": 9, "co": 18, "k": 3},
    "conv2d_bias_act": {"ci": 16, "h": 7, "w": 7, "co": 9, "k": 1, "pad": 0, "layout": "nhwc"},
    "depthwise_conv2d": {"c": 18, "h": 7, "w": 9, "k": 3, "layout": "nhwc"},
    "max_pool2d": {"c": 9, "h": 9, "w": 11, "k": 3, "stride": 2, "pad": 1, "layout": "nhwc"},
    "conv3d": {"ci": 4, "d": 3, "h": 4, "w": 5, "co": 9, "k": 2, "pad": 0},
}


def fused(work: Workload, count: int, rows: str = "") -> list[tuple[Sketch, np.ndarray]]:
    """Candidates of every sketch that can fuse its rows, all of which do; `rows` is the label of their number."""
    rng, found = np.random.default_rng(3), []
    for sketch in generate(work.func, CPU, dict.fromkeys(work.constants, "constant")).sketches:
        columns = [rng.integers(len(d), size=8192) for d in sketch.decisions]
        numbers = [n for n, d in enumerate(sketch.decisions) if d.name.endswith(":rows")]
        for number in numbers:
            columns[number][:] = 1
            tile = next(d for d in sketch.decisions if d.name == sketch.decisions[number].name.removesuffix(":rows"))
            if rows:
                columns[sketch.decisions.index(tile)][:] = tile.labels.index(rows)
        drawn = np.stack(columns, axis=1)
        found += [(sketch, row) for row in drawn[sketch.mask(drawn)][:count]] if numbers else []
    return found


@pytest.mark.parametrize("name", WORKS)
def test_fused_rows_compute_the_reference(name: str) -> None:
    """With every boundary, with panels, with an epilogue, with strides: the program that it was."""
    work = workload(name, **WORKS[name])
    found = fused(work, 4)
    assert found
    for sketch, row in found:
        run_compiled(work, sketch.schedule(row).func)


def test_tiles_cover_all_points_but_the_last_tile() -> None:
    """6 rows of 7 x 7 points: 9 tiles, where rows of 7 in tiles of 6 make 14."""
    work = workload("conv2d", ci=3, h=7, w=7, co=8, k=3, layout="nhwc")
    found = [item for item in fused(work, 40, rows="6") if "1x8" in item[0].labels(item[1]).values()]
    assert found
    for sketch, row in found[:6]:
        func = sketch.schedule(row).func
        block = find_block(func, "conv")
        along = {v for item in block.spatial for v in variables(item.binding)}
        loops = [loop for loop in loops_above(func, block) if loop.var in along and loop.kind in ("serial", "parallel")]
        assert np.prod([extent_of(loop) for loop in loops]) == 9


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_model_counts_the_chunks_of_the_program(layout: str) -> None:
    """In every order of the loops, one or two of them shared, with blocks and panels: the parallel iterations."""
    work = workload("conv2d", n=2, ci=8, h=8, w=6, co=24, k=3, layout=layout)
    sketches = generate(work.func, CPU, dict.fromkeys(work.constants, "constant")).sketches
    columns = FeatureMap(sketches, CPU)
    seen = set()
    for sketch, row in fused(work, scaled(10)):
        labels = {name.rsplit("/", 1)[-1]: label for name, label in sketch.labels(row).items()}
        func = sketch.schedule(row).func
        block = next(b for b in leaf_blocks(func.body) if b.name.startswith("conv"))
        shared = [extent_of(loop) for loop in loops_above(func, block) if loop.kind == "parallel"]
        features = columns.matrix(sketches.index(sketch), np.asarray([row]))[0]
        assert 2 ** features[columns.columns.index("chunks")] == pytest.approx(np.prod(shared), rel=0.02), labels
        seen.add((labels["order"], labels["parallel"]))
    assert len(seen) > 6


def test_only_axes_that_inputs_share_are_fused() -> None:
    """The batch of a batched product moves one matrix and not the other, and rows stay rows of one of them."""
    for name, shape in (("batch_matmul", {"b": 3, "m": 9, "n": 9, "k": 9}), ("matmul", {"m": 9, "n": 9, "k": 9})):
        work = workload(name, **shape)
        assert fused(work, 1) == []
