"""Carrying out the device's decisions: layouts of images, work-groups, and what they load together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.layout.index_map import IndexMap
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import extent_of, find_loop
from .device import Group, image_shape

TEXTURE = "global.texture"


def image_layout(text: str, shape: Sequence[int], target: Target) -> tuple[str, tuple[int, ...]]:
    """The map with an axis separator between rows and columns, and extents of whole texels.

    Raises ScheduleError where no cut between the axes gives an image that the device can hold.
    """
    found = image_shape(shape, target)
    if found is None:
        raise ScheduleError(
            "no cut of the physical shape {shape} fits images of at most {width} x {height} texels",
            shape=list(shape), width=target.image_width, height=target.image_height,
        )  # fmt: skip
    cut, extents = found
    return replace(IndexMap.parse(text), axis_separators=(cut,)).text, extents


def share_between_groups(sch: Schedule, loop: str, items: Mapping[str, str], suffixes: Sequence[str]) -> None:
    """Give a loop to work-groups, and loops inside of it to their items along ``x`` and ``y``.

    `suffixes` are those of the copies of the items' loops: ``""``, and ``"_init"`` where an initialisation stands
    apart from them.
    """
    sch.bind(loop, "blockIdx.x")
    for suffix in suffixes:
        for axis, item in items.items():
            sch.bind(item + suffix, f"threadIdx.{axis}")


def stage_locally(sch: Schedule, block: str, buffer: str, loop: str, group: Group) -> None:
    """``S(A[i])`` -> a copy of the box that one iteration of `loop` reads in local memory, then ``S(A_shared[i])``.

    All items of the group copy: neighbours along x take neighbouring elements of the last dimension, those along
    y rows of the one before.
    """
    copy = sch.cache_read(block, buffer, "shared")
    sch.compute_at(copy, loop)
    around = sch.get_loops(copy)
    own = around[around.index(loop) + 1 :]
    long = [name for name in own if extent_of(find_loop(sch.func, name)) > 1] or own[-1:]
    items: dict[str, str] = {}
    if group.x > 1 and group.y > 1 and len(long) == 1:
        _, items["y"], items["x"] = sch.split(long[0], [None, group.y, group.x])
    else:
        for axis, side in (("x", group.x), ("y", group.y)):
            if side > 1:
                items[axis] = sch.split(long.pop(), [None, side])[1]
    for axis, item in items.items():
        sch.bind(item, f"threadIdx.{axis}")
    inside = sch.get_loops(copy)
    rest = [name for name in inside[inside.index(loop) + 1 :] if name not in items.values()]
    sch.reorder(*reversed(items.values()), *rest)
