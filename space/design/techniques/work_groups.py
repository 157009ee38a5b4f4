"""Work-groups of an OpenCL device.

A group is either *linear*, a run of so many iterations of the fused shared loops, or a *grid*: ``x`` tiles along the
vector axis and ``y`` along the row axis, so that what its items read is a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..candidates import Bools, Candidates
from ..decision import Collector
from ..plan import Plan, one
from ..structure import Site
from .technique import Phase, Technique, Verdicts

RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIDES = (1, 2, 3, 4, 7, 8, 16, 32)
CPU_ITEMS = 32
CPU_SIDES = (1, 2, 4, 8)
"""Work-items of a group on a CPU device, which runs them one after the other, and of the sides of a grid."""
WARP_ITEMS = 256
WARP_SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64, 128)
"""The same on a device that runs items in step; NVIDIA's driver takes kernels of 256, whatever limit it tells."""


@dataclass(frozen=True)
class Group:
    """A work-group: `items` iterations of the fused shared loops, or a grid of ``x * y`` tiles where `x` is not 0."""

    items: int
    x: int = 0
    y: int = 0

    @property
    def is_grid(self) -> bool:
        return self.x > 0

    @property
    def label(self) -> str:
        return f"{self.x}x{self.y}" if self.is_grid else str(self.items)


def group_of(plan: Plan) -> Group:
    """The work-group of a candidate; a single item where the target has none."""
    group: Group = plan.value("work_group", 0, Group(1))
    return group


def _opens(site: Site, out: Collector) -> None:
    """Work-groups that the device takes: runs of the shared loops, and grids of tiles."""
    target, wide = site.target, site.wide
    if target.kind != "opencl" or not wide or site.chunks:
        return
    most = WARP_ITEMS if target.warp > 1 else target.max_work_group
    if target.execution.work_items_share_a_thread:
        most = CPU_ITEMS
    limit = min(target.max_work_group, most)
    groups = [Group(items) for items in RUNS if items <= limit]
    vec = site.structure.vec if site.structure.vec in wide else None
    across, along = (_sides(site, axis) for axis in (vec, site.structure.row))
    groups += [Group(x * y, x, y) for x in across for y in along if 1 < x * y <= limit]
    table: dict[str, Sequence[float]] = {
        "work_group": [g.items for g in groups],
        "group:x": [g.x for g in groups],
        "group:y": [g.y for g in groups],
    }
    out.add("work_group", 0, "work_group", "work_group", groups, [g.label for g in groups], table)


def _sides(site: Site, axis: int | None) -> list[int]:
    target = site.target
    sides = CPU_SIDES if target.execution.work_items_share_a_thread else WARP_SIDES if target.warp > 1 else SIDES
    return [1] if axis is None else [s for s in sides if s <= site.anchor.axes[axis].extent]


def _excludes(c: Candidates) -> Verdicts:
    if c.part.of("work_group"):
        yield "work-group", _covers_tiles(c)
        if c.target.warp > 1:
            # A group has the items of a warp or more, or all that there are; subgroups have several items each.
            items = c.items * c.lane if c.structure.subgroup else c.items
            least = min(c.target.warp, c.target.max_work_group)
            yield "warp", np.asarray((items >= least) | (c.items >= c.iterations))


def _covers_tiles(c: Candidates) -> Bools:
    """Whether work-groups leave few items idle: at most a fifth of a linear group's, and no row or column of a grid's.

    The axes of a grid are shared loops.
    """
    linear = 4 * -(-c.iterations // c.items) * c.items <= 5 * c.iterations
    if c.target.warp > 1:  # what is left of a single warp costs nothing
        linear = linear | (c.items <= c.target.warp)
    grid: Bools = np.ones(1, bool)
    for along, side in ((c.structure.vec, c.group("x")), (c.structure.row, c.group("y"))):
        if along is not None and along in c.tiles:
            grid = grid & ((side <= 1) | (~c.inside[along] & (side <= c.tiles[along])))
    return np.where(c.group("x") > 0, grid, linear)


def _split_items(plan: Plan) -> None:
    """The loops over the items of a grid, rows along ``y``, vectors along ``x``; the outer loops then have groups."""
    structure, group = plan.structure, group_of(plan)
    for name, axis, side in (("y", structure.row, group.y), ("x", structure.vec, group.x)):
        if axis is not None and side > 1:
            plan.outer_of[axis], plan.items[name] = plan.sch.split(plan.outer_of[axis], [None, side])


def share_grid(plan: Plan, loop: str) -> bool:
    """Give a loop to work-groups, and loops inside of it to their items, where the group is a grid; whether it is.

    Where panels are loaded by all items, the initialisation of their sum stands in loops of its own.
    """
    if not group_of(plan).is_grid:
        return False
    held = one(plan.chosen.any_in_local_memory)
    plan.sch.bind(loop, "blockIdx.x")
    for suffix in ["", "_init"] if plan.panel_loop and held else [""]:
        for axis, item in plan.items.items():
            plan.sch.bind(item + suffix, f"threadIdx.{axis}")
    return True


WORK_GROUPS = Technique(("work_group",), opens=_opens, excludes=_excludes, applies={Phase.GROUP: _split_items})
