"""Pooling over windows and over whole images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...ir.dtypes import is_float, is_int
from ...space.workloads.pool import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LpPool1d,
    LpPool2d,
    LpPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    norm,
)
from ...space.workloads.precision import plain, precision
from ...space.workloads.text import Program, affine, element
from .convolutions import SPACE, Geometry, geometry
from .reductions import Reduction, reduced
from .site import Builder, Built, Site, letters

MAXIMUM: Mapping[int, Any] = {1: MaxPool1d, 2: MaxPool2d, 3: MaxPool3d}
AVERAGE: Mapping[int, Any] = {1: AvgPool1d, 2: AvgPool2d, 3: AvgPool3d}
NORM: Mapping[int, Any] = {1: LpPool1d, 2: LpPool2d, 3: LpPool3d}


def _windows(site: Site) -> tuple[Geometry, tuple[int, ...]]:
    """The windows, with the border long enough for the last ones, and by how much it is longer for that."""
    found = geometry(site, tuple(site.attribute("kernel_shape", [])))
    beyond = tuple(
        max(0, (out - 1) * stride + span - size - front - end)
        for out, stride, span, size, front, end in zip(
            site.result().shape[2:], found.strides, found.spans, site.shape()[2:], found.front, found.end, strict=True
        )
    )
    return replace(found, end=tuple(map(int.__add__, found.end, beyond))), beyond


def _fields(site: Site, windows: Geometry) -> dict[str, Any]:
    x = site.shape()
    space = SPACE[len(x) - 2]
    return {
        "n": x[0],
        "c": x[1],
        **dict(zip(space, x[2:], strict=True)),
        **windows.parameters(),
        "layout": f"nc{space}",
    }


def _max_pool(site: Site) -> Built:
    is_number = is_float(site.dtype()) or is_int(site.dtype())
    if len(site.shape()) - 2 not in MAXIMUM or not is_number:
        return None
    windows, _ = _windows(site)
    made = MAXIMUM[len(windows.taps)](**_fields(site, windows))
    if made.buffers()["y"] != site.result().shape:
        return None
    found = [site.operator(made.script(site.dtype()), [0])]
    if site.wants(1):
        found.append(site.operator(_places(site, windows), [0, site.node.outputs[0]], 1))
    return found


def _places(site: Site, windows: Geometry) -> str:
    """The program that finds where the first of the largest elements of each window stands in the whole tensor.

    With ``storage_order`` 1 the first dimension of an image counts by ones, and the last one most.
    """
    shape, result = site.shape(), site.result().shape
    turns = bool(site.attribute("storage_order", 0))
    program = Program("max_pool_places", plain(site.dtype()))
    program.inputs([("x", shape), ("y", result)])
    program.output("places", result, "int64")
    into = program.alloc("first", result, "int64") if turns else "places"
    names, taps = letters(len(shape)), [f"k{a}" for a in SPACE[len(windows.taps)]]
    point = [f"v{a}" for a in names]
    at, inside = point[:2], []
    for d, size in enumerate(shape[2:]):
        place = affine(point[2 + d], windows.strides[d], f"v{taps[d]}", windows.dilations[d], windows.front[d])
        at.append(place)
        if windows.front[d] or (result[2 + d] - 1) * windows.strides[d] + windows.spans[d] > size:
            inside.append(f"0 <= {place} and {place} < {size}")
    steps = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    number = " + ".join(f"({place}) * {step}" for place, step in zip(at, steps, strict=True))
    most = f"T.int64({math.prod(shape) - 1})"
    x, y, target = element("x", at), element("y", point), element(into, point)
    is_it = f"{x} == {y} or ({x} != {x} and {y} != {y})" if is_float(site.dtype()) else f"{x} == {y}"
    text = f"T.Select({is_it}, T.Cast('int64', {number}), {most})"
    text = f"T.if_then_else({' and '.join(inside)}, {text}, {most})" if inside else text
    loops = [(a, e, "S") for a, e in zip(names, result, strict=True)]
    taken = [*loops, *((a, e, "R") for a, e in zip(taps, windows.taps, strict=True))]
    program.add("places", taken, f"{target} = T.min({target}, {text})", f"{target} = {most}")
    if turns:
        end = [f"{p}_t" for p in point]
        first, image = element(into, end), math.prod(shape[2:])
        parts = [f"{first} // T.int64({image}) * T.int64({image})"]
        for d in range(2, len(shape)):
            place = f"{first} // T.int64({steps[d]}) % T.int64({shape[d]})"
            parts.append(f"{place} * T.int64({math.prod(shape[2:d])})")
        text = f"{element('places', end)} = {' + '.join(parts)}"
        program.add("turned", [(f"{a}_t", e, k) for a, e, k in loops], text)
    return program.text()


def _average_pool(site: Site) -> Built:
    if len(site.shape()) - 2 not in AVERAGE or not is_float(site.dtype()):
        return None
    windows, beyond = _windows(site)
    include = int(site.attribute("count_include_pad", 0))
    made = AVERAGE[len(windows.taps)](**_fields(site, windows), include_pad=include, beyond=beyond)
    return [site.operator(made.script(site.dtype()), [0])] if made.buffers()["y"] == site.result().shape else None


def _lp_pool(site: Site) -> Built:
    if len(site.shape()) - 2 not in NORM or not is_float(site.dtype()):
        return None
    windows, _ = _windows(site)
    made = NORM[len(windows.taps)](**_fields(site, windows), p=int(site.attribute("p", 2)))
    return [site.operator(made.script(site.dtype()), [0])] if made.buffers()["y"] == site.result().shape else None


def _global_lp_pool(site: Site) -> Built:
    axes, p = tuple(range(2, len(site.shape()))), int(site.attribute("p", 2))
    if not is_float(site.dtype()) or not axes:
        return None
    power, root = norm(p, precision(site.dtype()).accumulator)
    return reduced(site, f"l{p}", axes, Reduction(0, "{y} + {x}", power, root))


def _global(how: str) -> Builder:
    def build(site: Site) -> Built:
        axes = tuple(range(2, len(site.shape())))
        return reduced(site, how, axes) if is_float(site.dtype()) and axes else None

    return build


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "MaxPool"): _max_pool,
    ("", "AveragePool"): _average_pool,
    ("", "LpPool"): _lp_pool,
    ("", "GlobalLpPool"): _global_lp_pool,
    ("", "GlobalMaxPool"): _global("max"),
    ("", "GlobalAveragePool"): _global("mean"),
}
