"""Texture memory of an OpenCL device: an input as an image of texels, four elements along the last physical axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ....ir.layout.layout import Layout, Size
from ....ir.target import Target
from ...errors import ScheduleError
from ..candidates import Bools, Candidates, Ints, product
from ..decision import ROOT, SELDOM, Collector
from ..layouts import is_read_in_words
from ..operand import Operand
from ..plan import Plan, one
from ..structure import Site
from .technique import Technique, Verdicts

TEXEL = 4
TEXTURE = "global.texture"

_Extent = TypeVar("_Extent", int, Ints)


def _opens(site: Site, out: Collector) -> None:
    for number, operand in enumerate(site.anchor.operands):
        in_words = is_read_in_words(site.anchor, operand, site.structure)
        if site.target.kind == "opencl" and _may_be_image(operand, site.target) and not in_words:
            name = f"image:{operand.name}"
            weights = SELDOM if site.target.execution.has_one_memory else ()  # a CPU has no texture units
            out.add("image", number, name, "memory", (False, True), ("buffer", "image2d"), {name: (0, 1)}, weights)


def _may_be_image(operand: Operand, target: Target) -> bool:
    """An input whose layout is the search's, of a type and a rank that images have."""
    known = (operand.is_packed_by_caller or operand.source in ("fixed", "stage")) and len(operand.dims) > 1
    return not operand.is_output and known and operand.dtype in target.image_types.split()


def _excludes(c: Candidates) -> Verdicts:
    """An image lies in a buffer that the search lays out, is no larger than the device's, and is one of a few."""
    count: Ints = np.zeros(1, np.int64)
    for number in c.part.of("image"):
        wanted = c.in_memory("image", number)
        count = count + wanted
        yield "image of what lies elsewhere", ~wanted | _laid_out(c, number)
        yield "extents of an image", ~wanted | _fits(c, number)
    if c.part.of("image"):
        yield "number of images", count <= c.target.image_args


def _laid_out(c: Candidates, number: int) -> Bools:
    """Whether an input is a parameter that is packed, or a stage that is stored."""
    operand = c.operands[number]
    if operand.is_packed_by_caller:
        return np.ones(1, bool)
    return np.asarray((c.place(number) == ROOT) & (c.moved(number) | (operand.source == "stage")))


def _fits(c: Candidates, number: int) -> Bools:
    """Whether some cut between the physical axes leaves rows and columns within the limits."""
    found = []
    for layout in c.layouts(number):
        fits: Bools = np.zeros(1, bool)
        for _, here in _cuts(layout.shape(c.operands[number], c.cover, c.logical(number)), c.target):
            fits = fits | here
        found.append(fits)
    return c.by_layout(number, found)


def _cuts(shape: Sequence[Size], target: Target) -> Iterator[tuple[int, Bools]]:
    """Each cut of physical axes into rows and columns, the last one first, and whether both are within the limits."""
    extents = [np.asarray(extent, np.int64) for extent in shape]
    extents[-1] = _whole_texels(extents[-1])
    for cut in range(len(extents) - 1, 0, -1):
        rows, columns = product(extents[:cut]), product(extents[cut:])
        yield cut, (rows <= target.image_height) & (columns // TEXEL <= target.image_width)


def _whole_texels(extent: _Extent) -> _Extent:
    return -(-extent // TEXEL) * TEXEL


def is_image(plan: Plan, number: int) -> bool:
    """Whether an input of a candidate is held as an image."""
    return bool(one(plan.chosen.in_memory("image", number)))


def image_shape(shape: Sequence[int], target: Target) -> tuple[int, tuple[int, ...]] | None:
    """``(cut, extents)``: where the axis separator goes, and the shape with whole texels; None if no cut fits.

    The last extent is rounded up to whole texels.  Of the cuts that fit the device's largest image the last is
    taken, which gives the most rows.
    """
    cut = next((cut for cut, fits in _cuts(shape, target) if one(fits)), None)
    return None if cut is None else (cut, (*shape[:-1], _whole_texels(shape[-1])))


def image_layout(layout: Layout, target: Target) -> Layout:
    """The layout with an axis separator between rows and columns, and extents of whole texels.

    Raises ScheduleError where no cut between the axes gives an image that the device can hold.
    """
    shape = layout.physical_shape
    found = image_shape(shape, target)
    if found is None:
        raise ScheduleError(
            "no cut of the physical shape {shape} fits images of at most {width} x {height} texels",
            shape=list(shape), width=target.image_width, height=target.image_height,
        )  # fmt: skip
    cut, extents = found
    return replace(layout, index_map=replace(layout.index_map, axis_separators=(cut,)), physical_shape=extents)


IMAGES = Technique(("image",), opens=_opens, excludes=_excludes)
