"""The estimate for devices that run work-items in step counts what warps do."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from stridesmith.configs import load
from stridesmith.cost_model.features import FeatureMap
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

GPU = load.target("opencl-gpu")


@lru_cache(maxsize=4)
def sketches(name: str = "matmul", **shape: int) -> tuple[Sketch, ...]:
    shape = shape or {"m": 256, "n": 256, "k": 128}
    return generate(workload(name, **shape).func, GPU, {}).sketches


def columns(choices: dict[str, str], sketch: Sketch | None = None) -> dict[str, float]:
    """The columns of one candidate, exponents taken; decisions that are not named have their first alternative."""
    sketch = sketch or next(s for s in sketches() if s.name == "vec=s1,row=s0")
    row = []
    for decision in sketch.decisions:
        label = choices.get(decision.name.split("/", 1)[-1].split("/")[-1], decision.labels[0])
        row.append(decision.labels.index(label))
    ((_, found),) = FeatureMap((sketch,), GPU).blocks(0, np.array([row]))
    return {name: 2.0 ** float(values[0]) for name, values in found.items() if name.startswith("warp:")}


TILE = {"tile:s0": "4", "tile:s1": "4", "tile:r0": "4", "vector:s1": "4", "work_group": "16x8"}
POINTS, ITEMS = 256 * 256 * 128, 64 * 64


def test_instructions_of_full_warps() -> None:
    """4096 items with 16 outputs each are 128 warps, each of which does all steps of its items' points at once."""
    found = columns(TILE)
    assert found["warp:points"] == pytest.approx(POINTS)
    assert found["warp:issued"] == pytest.approx(POINTS / 32)
    # Of four steps of a tile an item loads 4 x 4 elements of A one by one, and four vectors of B.
    assert found["warp:loads"] == pytest.approx((ITEMS / 32) * 32 * (16 + 4))
    assert found["warp:turns"] == pytest.approx(128 / 4)
    assert found["warp:launches"] == 1.0


def test_warps_that_are_half_empty_issue_twice_as_much() -> None:
    """Groups of 16 x 1 items, if there were such, are half a warp; 14 x 2 leave four lanes and some tiles idle."""
    full, some = columns(TILE), columns(TILE | {"work_group": "14x4"})
    assert some["warp:issued"] / full["warp:issued"] == pytest.approx((64 / 56) * (5 * 14 / 64), rel=0.01)


def test_neighbours_that_read_neighbours_share_lines() -> None:
    """Items along x read vectors of a row of B side by side; with the items along y, each reads a row of its own."""
    beside, apart = columns(TILE | {"work_group": "32x4"}), columns(TILE | {"work_group": "1x128"})
    assert apart["warp:lines"] > 2 * beside["warp:lines"]


def test_local_memory_is_loaded_once_for_a_group() -> None:
    """What is staged is the box of a group in each panel, shared by its items; global bytes stay the same."""
    local = TILE | {"tile:r0:panel": "32", "local:i0": "local", "local:i1": "local"}
    found = columns(local)
    box = (8 * 4) * 32 + 32 * (16 * 4)  # of A, and of B
    assert found["warp:staged"] == pytest.approx((ITEMS / 32) * 4 * box / 128)
    assert found["warp:panels"] == pytest.approx(4.0)
    assert columns(TILE)["warp:staged"] < 1e-5 and columns(TILE)["warp:bytes"] == found["warp:bytes"]


def test_parts_of_a_reduction_are_not_read_with_what_lies_between() -> None:
    """A tile with two parts of a long reduction reads the steps of both, not all from the first to the last."""
    shape = {"m": 1, "n": 512, "k": 4096}
    cut = next(s for s in sketches("matmul", **shape) if s.name.startswith("parts="))
    part = cut.parts[0]
    name = next(d.name for d in part.decisions if d.name.endswith("tile:s0"))
    rows = cut.draw(np.random.default_rng(0), 200)
    number = [d.name for d in cut.decisions].index(name)
    blocks = FeatureMap((cut,), GPU).blocks(0, rows)
    loads, issued = (np.broadcast_to(blocks[0][1][f"warp:{what}"], len(rows)) for what in ("loads", "issued"))
    assert len(set(rows[:, number])) > 1
    assert (loads <= issued + 1.01).all(), "a multiply-add reads two elements at most"
