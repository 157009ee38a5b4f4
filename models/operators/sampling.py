"""GridSample: the values of an image at places between its elements, which another tensor names.

::

    y[n, c, o]  =  sum over k of  w0[n, o, k0] w1[n, o, k1] x[n, c, floor(p0[n, o]) + k0, floor(p1[n, o]) + k1]

with the place p of each dimension in elements and the weights of 1, 2 or 4 taps: nearest, linear, cubic.  Places
outside of the image are brought into it first, but for cubic ones with the border `border`, as ONNX Runtime and PyTorch
have it: there each tap is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, element, literal
from .site import Builder, Built, Site, letters

TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
SHARPNESS = -0.75
"""Of the cubic weights."""


def _grid_sample(site: Site) -> Built:
    dtype, dims = site.dtype(), site.shape()[2:]
    taps = TAPS.get(str(site.attribute("mode", "linear")), 0)
    if dtype not in ("float32", "float64") or site.dtype(1) != dtype or not taps or not dims:
        return None
    program = Program("grid_sample", plain(dtype))
    program.inputs([("x", site.shape()), ("grid", site.shape(1))])
    program.output("y", site.result().shape)
    for at in range(len(dims)):
        _add_places(site, program, at, taps)
    names = letters(len(site.result().shape))
    point = [f"v{name}" for name in names]
    steps = [f"tap{at}s" for at in range(len(dims))]
    places = [element(f"p{at}", [point[0], *point[2:]]) for at in range(len(dims))]
    first = 1 if taps == 4 else 0
    index = [
        _element(place, f"v{step}" if taps > 1 else "0", first, extent, dtype)
        for place, step, extent in zip(places, steps, dims, strict=True)
    ]
    value, inside = _pixel(site, index, point)
    zero = literal(0, dtype)
    value = f"T.if_then_else({inside}, {value}, {zero})" if inside else value
    if taps > 1:
        weights = [element(f"w{at}", [point[0], *point[2:], f"v{step}"]) for at, step in enumerate(steps)]
        value = " * ".join([*weights, value])
    loops = [(name, extent, "S") for name, extent in zip(names, site.result().shape, strict=True)]
    y = element("y", point)
    if taps == 1:
        program.add("sample", loops, f"{y} = {value}")
    else:
        program.add("sample", [*loops, *((step, taps, "R") for step in steps)], f"{y} = {y} + {value}", f"{y} = {zero}")
    return [site.operator(program.text(), [0, 1])]


def _add_places(site: Site, program: Program, at: int, taps: int) -> None:
    """Blocks for the places along a dimension, brought into the image by what its border means, and their weights."""
    dtype, extent, outs = site.dtype(), site.shape()[2 + at], (site.shape()[0], *site.result().shape[2:])
    is_aligned, border = bool(site.attribute("align_corners", 0)), str(site.attribute("padding_mode", "zeros"))

    def number(value: float) -> str:
        return literal(value, dtype)

    names = [f"{name}{at}" for name in letters(len(outs))]
    point = [f"v{name}" for name in names]
    grid = element("grid", [*point, str(len(site.shape()) - 3 - at)])
    factor, shift = ((extent - 1) / 2, (extent - 1) / 2) if is_aligned else (extent / 2, (extent - 1) / 2)
    place = f"({grid} * {number(factor)} + {number(shift)})"
    if taps == 1:
        place = f"T.nearbyint({place})"
    low, high = (0.0, extent - 1.0) if is_aligned else (-0.5, extent - 0.5)
    loops = [(name, e, "S") for name, e in zip(names, outs, strict=True)]
    raw, target = program.alloc(f"q{at}", outs), program.alloc(f"p{at}", outs)
    program.add(f"place{at}", loops, f"{element(raw, point)} = {place}")
    names = [f"{name}{at}b" for name in letters(len(outs))]
    point = [f"v{name}" for name in names]
    place = element(raw, point)
    if border == "border" and taps < 4:  # cubic taps are brought inside one by one
        placed = f"T.min(T.max({place}, {number(0)}), {number(extent - 1)})"
        is_outside = f"{place} < {number(low)} or {place} > {number(high)}"
        place = f"T.Select({is_outside}, {placed}, {place})"
    elif border == "reflection" and high > low:
        period = 2 * (high - low)
        turn = f"({place} - {number(low)})"
        turn = f"({turn} - T.floor({turn} / {number(period)}) * {number(period)})"
        place = f"{number(low)} + T.min({turn}, {number(period)} - {turn})"
    loops = [(name, e, "S") for name, e in zip(names, outs, strict=True)]
    program.add(f"inside{at}", loops, f"{element(target, point)} = {place}")
    if taps > 1:
        _add_weights(program, at, outs, taps, dtype)


def _add_weights(program: Program, at: int, outs: Sequence[int], taps: int, dtype: str) -> None:
    """A block for the weights of the taps around each place of a dimension."""
    into = program.alloc(f"w{at}", (*outs, taps))
    names = [*(f"{name}{at}c" for name in letters(len(outs))), f"tap{at}"]
    point = [f"v{name}" for name in names]

    def number(value: float) -> str:
        return literal(value, dtype)

    place = element(f"p{at}", point[:-1])
    part = f"({place} - T.floor({place}))"
    if taps == 2:
        weight = f"T.Select({point[-1]} == 0, {number(1)} - {part}, {part})"
    else:
        a = SHARPNESS
        sides = [f"({part} + {number(1)})", part, f"({number(1)} - {part})", f"({number(2)} - {part})"]
        far = "(({a} * {x} - {b}) * {x} + {c}) * {x} - {d}"
        near = "({a} * {x} - {b}) * {x} * {x} + {c}"
        outer = {"a": number(a), "b": number(5 * a), "c": number(8 * a), "d": number(4 * a)}
        inner = {"a": number(a + 2), "b": number(a + 3), "c": number(1)}
        forms = [(far, outer), (near, inner), (near, inner), (far, outer)]
        texts = [form.format(x=x, **numbers) for x, (form, numbers) in zip(sides, forms, strict=True)]
        weight = texts[3]
        for tap in (2, 1, 0):
            weight = f"T.Select({point[-1]} == {tap}, {texts[tap]}, {weight})"
    loops = [(name, e, "S") for name, e in zip(names, (*outs, taps), strict=True)]
    program.add(f"weight{at}", loops, f"{element(into, point)} = {weight}")


def _element(place: str, step: str, first: int, extent: int, dtype: str) -> str:
    """The element of a tap, which may lie a little outside of the dimension."""
    kept = f"T.min(T.max(T.floor({place}), {literal(-4, dtype)}), {literal(extent + 4, dtype)})"
    return f"(T.Cast('int64', {kept}) + T.Cast('int64', {step}) - T.int64({first}))"


def _pixel(site: Site, index: Sequence[str], point: Sequence[str]) -> tuple[str, str]:
    """An element of the image, brought inside of it, and the condition under which it counts."""
    border, is_aligned = str(site.attribute("padding_mode", "zeros")), bool(site.attribute("align_corners", 0))
    found, tests = [], []
    for at, extent in zip(index, site.shape()[2:], strict=True):
        if border == "zeros":
            tests.append(f"T.int64(0) <= {at} and {at} < T.int64({extent})")
        elif border == "reflection":
            below, above = (0, 2 * extent - 2) if is_aligned else (-1, 2 * extent - 1)
            for _ in range(2):
                upper = f"T.Select({at} >= T.int64({extent}), T.int64({above}) - {at}, {at})"
                at = f"T.Select({at} < T.int64(0), T.int64({below}) - {at}, {upper})"
        found.append(f"T.min(T.max({at}, T.int64(0)), T.int64({extent - 1}))")
    return element("x", [point[0], point[1], *found]), " and ".join(tests)


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "GridSample"): _grid_sample}
