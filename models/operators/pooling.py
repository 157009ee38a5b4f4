"""Pooling over windows and over whole images."""

from __future__ import annotations

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
from ...space.workloads.precision import precision
from .convolutions import SPACE, Geometry, geometry
from .reductions import Reduction, reduced
from .site import Builder, Built, Site

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
    if len(site.shape()) - 2 not in MAXIMUM or not is_number or site.wants(1):
        return None
    windows, _ = _windows(site)
    made = MAXIMUM[len(windows.taps)](**_fields(site, windows))
    return [site.operator(made.script(site.dtype()), [0])] if made.buffers()["y"] == site.result().shape else None


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
    return reduced(site, f"l{p}", axes, Reduction(0, "{y} + {x}", power, root, integers=False))


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
