"""Operators that read images at places between their elements, which other tensors say: GridSample and RoiAlign.

For each point of the result and each dimension of the image there are taps: places of elements, and how much of each is
taken.  Both are computed first, so that the result is a sum of products::

    y[n, c, i] = sum over taps a, b of  wh[n, i, a] ww[n, i, b] x[n, c, ph[n, i, a], pw[n, i, b]]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...space.workloads.precision import precision
from ...space.workloads.text import AxisText, Program, element, literal
from .graph import OWN_DOMAIN
from .site import Builder, Built, Site

CUBIC = -0.75
MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes before version 20."""
TAPS = "taps"
"""A padding: places stay where they are, and each tap outside of the image reads what is next to it on the border."""
FAR = 1 << 30
"""Places further away are no elements of any image, and are not converted to integers."""


@dataclass
class _Sampler:
    """A program that reads an image of the given extents at taps.

    With `align` the ends of its range are its first and last elements, else their outer edges; `padding` says what is
    read outside.
    """

    program: Program
    image: tuple[int, ...]
    align: bool = False
    padding: str = "zeros"

    @property
    def dims(self) -> list[str]:
        """A letter for each dimension of the image."""
        return ["d", "h", "w"][-len(self.image) :]

    def number(self, value: float) -> str:
        return literal(float(value), self.program.precision.accumulator)

    def block(self, buffer: str, lead: Sequence[tuple[str, int]], value: str) -> None:
        """Add ``buffer[lead] = value``; in `value` the iterators are ``{i}`` and so on, by the names in `lead`."""
        axes = [(f"{a}_{buffer}", e, "S") for a, e in lead]
        at = {a: f"v{a}_{buffer}" for a, _ in lead}
        self.program.add(buffer, axes, f"{element(buffer, list(at.values()))} = {value.format(**at)}")

    def reflected(self, x: str, extent: int) -> str:
        """A number in the range of an image, mirrored at the ends of that range."""
        low = 0.0 if self.align else -0.5
        size = extent - 1.0 if self.align else float(extent)
        if not size:
            return self.number(0)
        away = f"T.abs({x} - {self.number(low)})"
        turn = f"({away} - {self.number(2 * size)} * T.floor({away} * {self.number(0.5 / size)}))"
        return f"({self.number(low)} + T.min({turn}, {self.number(2 * size)} - {turn}))"

    def kept(self, x: str, extent: int) -> str:
        """A coordinate that lies outside of an image, moved into it as the padding says."""
        if self.padding in ("zeros", TAPS):
            return x
        low, high = (0.0, extent - 1.0) if self.align else (-0.5, extent - 0.5)
        first, last = self.number(0), self.number(extent - 1)
        moved = f"T.min(T.max({x}, {first}), {last})" if self.padding == "border" else self.reflected(x, extent)
        return f"T.Select({x} < {self.number(low)} or {x} > {self.number(high)}, {moved}, {x})"

    def whole(self, x: str) -> str:
        """A whole number, which may be none or too large, as an integer."""
        return f"T.Cast('int64', T.min(T.max({x}, {self.number(-FAR)}), {self.number(FAR)}))"

    def total(
        self, factors: Sequence[str], spatial: Sequence[AxisText], taps: Sequence[AxisText], how: str = "sum"
    ) -> None:
        """Add ``y[spatial]``, the sum of the products of `factors` over the taps, or the largest of these."""
        types = self.program.precision
        has_stage = types.is_mixed
        total = self.program.alloc("total", tuple(e for _, e, _ in spatial)) if has_stage else "y"
        y, value = element(total, [f"v{a}" for a, _, _ in spatial]), " * ".join(factors)
        update = f"{y} + {value}" if how == "sum" else f"T.max({y}, {value})"
        start = self.number(0 if how == "sum" else -math.inf)
        self.program.add("sample", [*spatial, *taps], f"{y} = {update}", f"{y} = {start}")
        if has_stage:
            axes = [(a, e) for a, e, _ in spatial]
            self.program.stages("y", total, axes, [a for a, _ in axes], [("store", "{v}")])


def inside(buffer: str, at: Sequence[str], extent: int) -> str:
    """A place that a buffer of int64 holds, kept inside of a dimension."""
    return f"T.min(T.max({element(buffer, at)}, T.int64(0)), T.int64({extent - 1}))"


def _grid_sample(site: Site) -> Built:
    shape, grid = site.shape(), site.shape(1)
    rank, mode = len(shape) - 2, str(site.attribute("mode", "linear"))
    mode = MODES.get(mode, mode)
    known = mode in ("nearest", "linear") or (mode == "cubic" and rank == 2)
    if site.dtype() not in ("float16", "float32", "float64") or site.dtype(1) != site.dtype() or not known:
        return None
    if rank not in (1, 2, 3):
        return None
    program = Program("grid_sample", precision(site.dtype()))
    program.inputs([("x", shape), ("grid", grid)])
    program.output("y", site.result().shape)
    made = _Sampler(program, shape[2:], bool(site.attribute("align_corners", 0)),
                    str(site.attribute("padding_mode", "zeros")))  # fmt: skip
    points = [("n", shape[0]), *zip("ijk", grid[1:-1], strict=False)]
    lead = [f"{{{a}}}" for a, _ in points]
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    for at, (dim, extent) in enumerate(zip(made.dims, made.image, strict=True)):
        g = program.load("grid", [*lead, str(rank - 1 - at)])
        half = made.number((extent - 1) / 2 if made.align else extent / 2)
        shift = made.number(0 if made.align else 0.5)
        raw = f"({g} + {made.number(1)}) * {half} - {shift}"
        program.alloc(f"raw_{dim}", tuple(e for _, e in points))
        made.block(f"raw_{dim}", points, f"T.nearbyint({raw})" if mode == "nearest" else raw)
        program.alloc(f"at_{dim}", tuple(e for _, e in points))
        made.block(f"at_{dim}", points, made.kept(element(f"raw_{dim}", lead), extent))
        _grid_taps(made, dim, extent, points, mode, taps)
    spatial = [(a, e, "S") for a, e in (points[0], ("c", shape[1]), *points[1:])]
    own = [f"v{a}" for a, _ in points]
    loops = [(f"t{dim}", taps, "R") for dim in made.dims]
    weights = [element(f"w_{dim}", [*own, f"vt{dim}"]) for dim in made.dims]
    places = [inside(f"p_{d}", [*own, f"vt{d}"], e) for d, e in zip(made.dims, made.image, strict=True)]
    x = program.load("x", ["vn", "vc", *places])
    made.total([*weights, x], spatial, loops)
    return [site.operator(program.text(), [0, 1])]


def _grid_taps(made: _Sampler, dim: str, extent: int, points: Sequence[tuple[str, int]], mode: str, taps: int) -> None:
    """Add the places ``p_dim`` and weights ``w_dim`` of the taps along a dimension."""
    n, lead = made.number, [f"{{{a}}}" for a, _ in points]
    x, every = element(f"at_{dim}", lead), [*points, ("t", taps)]
    base = f"T.floor({x})" if mode != "cubic" else f"T.floor({x}) - {n(1)}"
    tap = f"T.Cast({made.program.precision.accumulator!r}, {{t}})"
    place, share = f"({base} + {tap})", f"({x} - T.floor({x}))"
    if mode == "nearest":
        weight = n(1)
    elif mode == "linear":
        weight = f"T.Select({{t}} == 0, {n(1)} - {share}, {share})"
    else:
        a, far = CUBIC, f"T.abs({x} - {place})"
        outer = f"(({n(a)} * {far} - {n(5 * a)}) * {far} + {n(8 * a)}) * {far} - {n(4 * a)}"
        inner = f"({n(a + 2)} * {far} - {n(a + 3)}) * {far} * {far} + {n(1)}"
        weight = f"T.Select({{t}} == 0 or {{t}} == 3, {outer}, {inner})"
    shape = tuple(e for _, e in every)
    made.program.alloc(f"p_{dim}", shape, "int64")
    made.program.alloc(f"w_{dim}", shape)
    moved = made.reflected(place, extent) if made.padding == "reflection" else place
    outside = f"{place} < {n(0)} or {place} > {n(extent - 1)}"
    if made.padding == "reflection":
        moved = f"T.Select({outside}, {moved}, {place})"
    made.block(f"p_{dim}", every, made.whole(moved))
    if made.padding == "zeros":
        weight = f"T.Select({outside}, {n(0)}, {weight})"
    made.block(f"w_{dim}", every, weight)


def _roi_align(site: Site) -> Built:
    """The mean, or the largest, of samples on a regular grid in each bin of each region.

    Where the number of samples follows from the size of a region, nothing is built.
    """
    shape, rois = site.shape(), site.shape(1)
    ratio, how = int(site.attribute("sampling_ratio", 0)), str(site.attribute("mode", "avg"))
    if ratio < 1 or how not in ("avg", "max"):
        return None
    if site.dtype() not in ("float16", "float32", "float64") or site.dtype(1) != site.dtype():
        return None
    program = Program("roi_align", precision(site.dtype()))
    program.inputs([("x", shape), ("rois", rois)])
    program.inputs([("images", site.shape(2))], site.dtype(2))
    bins = site.result().shape[2:]
    program.output("y", site.result().shape)
    made = _Sampler(program, shape[2:])
    n, scale = made.number, float(site.attribute("spatial_scale", 1.0))
    usual = "half_pixel" if site.opset >= 16 else "output_half_pixel"
    is_half = site.attribute("coordinate_transformation_mode", usual) == "half_pixel"
    offset = n(0.5 if is_half else 0)
    for at, (dim, extent, count) in enumerate(zip(made.dims, made.image, bins, strict=True)):
        first, last = (program.load("rois", ["{r}", str(1 - at + 2 * end)]) for end in (0, 1))
        start = f"({first} * {n(scale)} - {offset})"
        size = f"({last} * {n(scale)} - {offset} - {start})"
        size = size if is_half else f"T.max({size}, {n(1)})"
        bin_size = f"{size} / {n(count)}"
        wide = program.precision.accumulator
        steps = f"(T.Cast({wide!r}, {{s}}) + {n(0.5)}) * ({bin_size}) / {n(ratio)}"
        lead = [("r", rois[0]), ("b", count), ("s", ratio)]
        program.alloc(f"at_{dim}", tuple(e for _, e in lead))
        made.block(f"at_{dim}", lead, f"{start} + T.Cast({wide!r}, {{b}}) * ({bin_size}) + {steps}")
        x, every = element(f"at_{dim}", ["{r}", "{b}", "{s}"]), [*lead, ("t", 2)]
        program.alloc(f"p_{dim}", tuple(e for _, e in every), "int64")
        program.alloc(f"w_{dim}", tuple(e for _, e in every))
        near = f"T.min(T.max({x}, {n(0)}), {n(extent - 1)})"
        low = f"T.floor({near})"
        made.block(f"p_{dim}", every, made.whole(f"{low} + T.Cast({wide!r}, {{t}})"))
        weight = f"T.Select({{t}} == 0, {n(1)} - ({near} - {low}), {near} - {low})"
        weight = weight if how == "max" else f"({weight}) * {n(1 / ratio)}"
        made.block(f"w_{dim}", every, f"T.Select({x} < {n(-1)} or {x} > {n(extent)}, {n(0)}, {weight})")
    spatial = [("r", rois[0], "S"), ("c", shape[1], "S"), ("h", bins[0], "S"), ("w", bins[1], "S")]
    loops = [("sh", ratio, "R"), ("sw", ratio, "R"), ("th", 2, "R"), ("tw", 2, "R")]
    own = {dim: ["vr", f"v{dim}", f"vs{dim}", f"vt{dim}"] for dim in made.dims}
    weights = [element(f"w_{dim}", own[dim]) for dim in made.dims]
    places = [inside(f"p_{dim}", own[dim], e) for dim, e in zip(made.dims, made.image, strict=True)]
    image = f"T.min(T.max(T.Cast('int64', {element('images', ['vr'])}), T.int64(0)), T.int64({shape[0] - 1}))"
    x = program.load("x", [image, "vc", *places])
    made.total([*weights, x], spatial, loops, "sum" if how == "avg" else how)
    return [site.operator(program.text(), [0, 1, 2])]


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "GridSample"): _grid_sample, (OWN_DOMAIN, "GridSample"): _grid_sample, ("", "RoiAlign"): _roi_align,
}  # fmt: skip
