"""Reductions in panels, and layouts that keep neighbours in different cache sets."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_run import run_compiled
from scale import scaled

from stridesmith.backends.lower import lower
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques.panels import panel_sizes, stream_sizes
from stridesmith.space.tree import find_block, loops_above
from stridesmith.space.workloads import Workload, from_func, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)

WORKS = {
    "matmul": {"m": 13, "n": 19, "k": 40},
    "matmul_bias_act": {"m": 9, "n": 20, "k": 24},
    "conv2d": {"ci": 16, "h": 7, "w": 9, "co": 10, "k": 3},
    "conv2d_bias_act": {"ci": 16, "h": 6, "w": 6, "co": 9, "k": 3, "layout": "nhwc"},
    "conv1d": {"ci": 64, "w": 20, "co": 9, "k": 3},
}

VECTOR_TIMES_MATRIX = {
    "whole tiles": ("matmul", {"m": 1, "n": 256, "k": 96}),
    "ragged": ("matmul", {"m": 1, "n": 77, "k": 60}),
    "with an epilogue": ("matmul_bias_act", {"m": 1, "n": 200, "k": 48}),
    "sums of rows": ("row_sum", {"rows": 130, "cols": 40}),
}


def chosen(work: Workload, rng: np.random.Generator, count: int, **wanted: str) -> list[tuple[Sketch, np.ndarray]]:
    """Feasible candidates whose decisions have one of the labels that start as told, by the decision's last word."""
    space = generate(work.func, CPU, dict.fromkeys(work.constants, "constant"))
    found: list[tuple[Sketch, np.ndarray]] = []
    for sketch in space.sketches:
        columns = []
        for decision in sketch.decisions:
            start = next((v for k, v in wanted.items() if decision.name.endswith(k)), "")
            numbers = [n for n, label in enumerate(decision.labels) if label.startswith(start) and label != "whole"]
            columns.append(rng.choice(numbers or [0], 4096))
        drawn = np.stack(columns, axis=1)
        found += [(sketch, row) for row in drawn[sketch.mask(drawn)][:count]]
    return found


def test_panels_divide_the_reduction() -> None:
    """Every panel has as many steps as the others, and not too few."""
    assert panel_sizes(96) == [96, 48, 32, 24, 16, 12, 8, 6, 4]
    assert panel_sizes(131) == [131]
    assert panel_sizes(6) == [6]


def test_rows_of_a_panel_are_few_streams() -> None:
    """Along a single axis panels have 4 to 64 steps, however many there are of them; of many lengths some remain."""
    assert stream_sizes(4096) == [4096, 64, 32, 16, 8, 4]
    assert stream_sizes(777) == [777, 37, 21, 7]
    assert stream_sizes(6) == [6] and stream_sizes(4) == [4] and stream_sizes(8) == [8, 4]
    many = stream_sizes(720)
    assert len(many) == 8 and many[:2] == [720, 60] and many[-1] == 4
    assert many == sorted(set(many), reverse=True) and all(720 % size == 0 for size in many)


def strips(name: str, rng: np.random.Generator, count: int) -> tuple[Workload, Sketch, np.ndarray]:
    """Candidates without rows whose vectors form blocks of several tiles, around which most have panels."""
    kind, shape = VECTOR_TIMES_MATRIX[name]
    work = workload(kind, **shape)
    sketches = generate(work.func, CPU, dict.fromkeys(work.constants, "constant")).sketches
    sketch = next(s for s in sketches if not s.main.structure.factored)
    drawn = sketch.draw(rng, 4096)
    (block,), (panel,) = sketch.main.of("block").values(), sketch.main.of("panel").values()
    blocked, cut = drawn[:, block] > 0, drawn[:, panel] > 0
    assert not (cut & ~blocked).any(), "nothing runs inside of a panel"
    return work, sketch, np.concatenate([drawn[blocked & cut][:count], drawn[blocked & ~cut][: count // 2]])


@pytest.mark.parametrize("name", VECTOR_TIMES_MATRIX)
def test_blocks_along_the_vectors_compute_the_reference(name: str) -> None:
    """Blocks of tiles along the only wide axis, inside of panels or of none, leave the program what it was."""
    work, sketch, rows = strips(name, np.random.default_rng(7), scaled(8))
    assert len(rows) >= 8
    for row in rows:
        run_compiled(work, sketch.schedule(row).func)


def test_a_thread_runs_panels_around_a_block_of_its_columns() -> None:
    """threads / panels / tiles of the block / steps of the panel: as many trips as were chosen."""
    _, sketch, rows = strips("whole tiles", np.random.default_rng(3), 12)
    part = sketch.main
    (block_number,), (panel_number,) = part.of("block").values(), part.of("panel").values()
    for row in rows[:12]:
        block, panel = (part.decisions[number].values[row[number]] for number in (block_number, panel_number))
        func = sketch.schedule(row).func
        loops = loops_above(func, find_block(func, "matmul_rf"))
        assert [loop.kind for loop in loops[:3]] == ["parallel", "serial", "serial"]
        assert [int(loop.extent.value) for loop in loops[1:3]] == [96 // panel, block]


@pytest.mark.parametrize("name", WORKS)
def test_a_reduction_in_panels_computes_the_reference(name: str) -> None:
    """Candidates that cut their reduction, an epilogue after it included, are the program that they were."""
    work, rng = workload(name, **WORKS[name]), np.random.default_rng(5)
    found = chosen(work, rng, 2)
    assert found
    for sketch, row in found:
        assert any(d.name.endswith(":panel") for d in sketch.decisions)
        run_compiled(work, sketch.schedule(row).func)


MEAN = """
@T.prim_func
def mean(x: T.Buffer((1, 6, 8, 24), "float32"), y: T.Buffer((1, 1, 1, 24), "float32")):
    s = T.alloc_buffer((1, 24, 1, 1), "float32")
    for n, c, h, w in T.grid(1, 24, 6, 8):
        with T.block("sum"):
            vn, vc, vh, vw = T.axis.remap("SSRR", [n, c, h, w])
            with T.init():
                s[vn, vc, 0, 0] = T.float32(0)
            s[vn, vc, 0, 0] = s[vn, vc, 0, 0] + x[vn, vh, vw, vc]
    for n, c in T.grid(1, 24):
        with T.block("mean"):
            vn, vc = T.axis.remap("SS", [n, c])
            y[vn, 0, 0, vc] = s[vn, vc, 0, 0] / T.float32(32)
"""


def test_a_result_with_constant_indices_is_reduced_in_panels() -> None:
    """As a mean over an image leaves it: the sum of its panels has no loop for a dimension that no axis indexes."""
    func = parse(MEAN)
    assert isinstance(func, PrimFunc)
    work = from_func(func)
    found = [pair for pair in chosen(work, np.random.default_rng(6), 6) if pair[0].main.of("panel")]
    assert found
    for sketch, row in found:
        run_compiled(work, sketch.schedule(row).func)


def test_the_panels_run_outside_of_the_tiles_and_inside_of_the_threads() -> None:
    """threads / panels / tiles: a thread adds its own panels, and what a panel touches serves all tiles."""
    work, rng = workload("matmul", **WORKS["matmul"]), np.random.default_rng(0)
    for sketch, row in chosen(work, rng, 8, parallel="1"):
        func = sketch.schedule(row).func
        names = [loop.var.name for loop in loops_above(func, find_block(func, "matmul_rf"))]
        kinds = [loop.kind for loop in loops_above(func, find_block(func, "matmul_rf"))]
        assert kinds[0] == "parallel" and kinds.count("parallel") == 1
        assert 0 < names.index("k_0") < len(names) - 1
        assert [loop.var.name for loop in loops_above(func, find_block(func, "matmul"))][: names.index("k_0") + 1] == (
            names[: names.index("k_0") + 1]
        )


def test_partial_sums_stay_in_registers() -> None:
    """The parts of a panel are a register tile: nothing but the result itself is written to memory."""
    work, rng = workload("matmul", m=12, n=32, k=32), np.random.default_rng(1)
    for sketch, row in chosen(work, rng, 3):
        func = sketch.schedule(row).func
        lowered = lower(func, CPU)
        assert all("rf" not in buffer.name for buffer in lowered.workspaces)
        assert next(loop for loop in loops_above(func, find_block(func, "matmul")) if isinstance(loop, For))


@pytest.mark.parametrize("label", ["blocked", "pitched"])
def test_layouts_that_keep_neighbours_apart_compute_the_reference(label: str) -> None:
    """Blocks of a cache line, and rows that are a line longer, hold what they should."""
    work = workload("conv2d", ci=64, h=5, w=6, co=9, k=3, layout="nhwc")
    found = chosen(work, np.random.default_rng(2), 4, **{"layout:i1": label})
    assert found
    having = [(s, row) for s, row in found if any(v.startswith(label) for v in s.labels(row).values())]
    assert having
    for sketch, row in having[:12]:
        run_compiled(work, sketch.schedule(row).func)


def test_panels_of_a_strided_result_are_added_up_as_vectors() -> None:
    """Vectors along the rows of a column-wise result: sums stay in the tile's order, and one copy scatters them."""
    work, rng = workload("conv2d", ci=16, h=7, w=9, co=24, k=3), np.random.default_rng(4)
    found = [(s, row) for s, row in chosen(work, rng, 4) if s.main.structure.vec == 1]
    assert found
    for sketch, row in found:
        func = sketch.schedule(row).func
        out = find_block(func, "y_global")
        kinds = {
            name: [loop.kind for loop in loops_above(func, find_block(func, name))] for name in ("conv", "conv_rf")
        }
        assert ("vectorized" in kinds["conv"]) is ("vectorized" in kinds["conv_rf"])
        panel = loops_above(func, find_block(func, "conv_rf"))
        shared = [loop.var.name for loop in loops_above(func, out) if loop.kind == "parallel"]
        assert shared == [loop.var.name for loop in panel if loop.kind == "parallel"]
        assert "ci_0" not in [loop.var.name for loop in loops_above(func, out)]
        run_compiled(work, func)


def test_sums_that_no_thread_has_room_for_are_masked() -> None:
    """Half of 2 MB for each of two threads is more than a thread may have, in panels; a whole reduction needs none."""
    space = generate(workload("conv2d", ci=64, h=64, w=64, co=128, k=1).func, CPU, {"w": "constant"})
    sketch = next(s for s in space.sketches if s.main.structure.vec == 1)
    (number,) = sketch.main.of("panel").values()
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    masked = sketch.exclusions(drawn)["size of a sum inside"]
    assert masked.any() and (drawn[masked][:, number] > 0).all()
    rows = drawn[sketch.mask(drawn) & (drawn[:, number] > 0)]
    for row in rows[:12]:
        lower(sketch.schedule(row).func, CPU)
