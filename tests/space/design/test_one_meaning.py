"""One candidate has one meaning: the scheduler, the mask and the cost model read its decisions alike."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.cost_model import tiling
from stridesmith.cost_model.geometry import Geometry
from stridesmith.ir.target import Target
from stridesmith.space.design import population
from stridesmith.space.design.decision import OVERCOMPUTE
from stridesmith.space.design.plan import Plan
from stridesmith.space.design.space import generate
from stridesmith.space.design.structure import Open
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import names, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
OPENCL = Target(kind="opencl", vector_bits=256, registers=16, units=2, threads=2, max_work_group=64)


def scheduler(part: Open, row: np.ndarray, target: Target) -> dict[str, int]:
    """What the scheduler takes a candidate's decisions for."""
    values = {n: d.values[c] for n, (d, c) in enumerate(zip(part.decisions, row, strict=True))}
    plan = Plan(Schedule(workload("row_sum").func), part, target, values)
    found = {"lane": plan.lane(), "fused": int(plan.fused is not None)}
    for axis in range(len(part.anchor.axes)):
        found |= {f"cover:{axis}": plan.cover(axis), f"extent:{axis}": plan.extent(axis)}
        found |= {f"block:{axis}": plan.block_of(axis), f"over:{axis}": int(plan.boundary(axis) == OVERCOMPUTE)}
    return found


def mask(part: Open, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What the mask does."""
    one, none = np.ones(len(rows), np.int64), np.zeros(len(rows), bool)
    cover, block = population.covers(part, rows), population.blocks(part, rows)
    extent, over = population.extents(part, rows), population.overcomputed(part, rows)
    found = {"lane": population.lanes(part, rows), "fused": population.fused(part, rows)}
    for axis in range(len(part.anchor.axes)):
        found |= {f"cover:{axis}": cover.get(axis, one), f"extent:{axis}": extent[axis] * one}
        found |= {f"block:{axis}": block.get(axis, one), f"over:{axis}": over.get(axis, none)}
    return found


def cost_model(part: Open, rows: np.ndarray, target: Target) -> dict[str, np.ndarray]:
    """What the cost model does."""
    geometry, one = Geometry(part, target), np.ones(len(rows))
    raw = {name: values[rows[:, n]] for n, table in enumerate(geometry.tables()) for name, values in table.items()}
    cover, axes = tiling.covers(geometry.axes, raw, geometry.pair), geometry.axes
    effective = geometry.effective(raw)
    found = {"lane": cover.levels["lane"][part.structure.vec] * one, "fused": cover.fused * one}
    for number, axis in enumerate(axes):
        found |= {f"cover:{number}": cover.levels["reg"][number] * one, f"extent:{number}": cover.extents[number] * one}
        found[f"block:{number}"] = raw.get(f"tile:{axis.name}:block", one)
        found[f"over:{number}"] = effective.get(f"boundary:{axis.name}", 0 * one) == OVERCOMPUTE
    return found


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=["cpu", "opencl"])
@pytest.mark.parametrize("name", names())
def test_three_readers_agree(name: str, target: Target) -> None:
    """Tiles, lanes, blocks, fused rows and edges of drawn candidates are the same for all who read them."""
    work = workload(name)
    for sketch in generate(work.func, target, dict.fromkeys(work.constants, "constant")).sketches[:8]:
        rows, start = sketch.draw(np.random.default_rng(1), 24), 0
        for part in sketch.parts:
            mine, start = rows[:, start : start + len(part.decisions)], start + len(part.decisions)
            masked, modelled = mask(part, mine), cost_model(part, mine, target)
            for at, row in enumerate(mine):
                planned = scheduler(part, row, target)
                assert planned == {key: int(values[at]) for key, values in masked.items()}
                assert planned == {key: int(values[at]) for key, values in modelled.items()}
