"""Convolutions in one, two and three dimensions, transposed ones too, as the workload library writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.dtypes import is_float
from ...space.workloads.conv import Conv1d, Conv2d, Conv3d
from ...space.workloads.conv_transpose import Transposed
from ...space.workloads.depthwise import DepthwiseConv2d
from ...space.workloads.precision import precision
from ...space.workloads.text import Program, affine, element
from .site import Builder, Built, Site

SPACE = {1: "w", 2: "hw", 3: "dhw"}
CONVOLUTIONS: Mapping[int, Any] = {1: Conv1d, 2: Conv2d, 3: Conv3d}


@dataclass(frozen=True)
class Geometry:
    """The windows of a convolution or a pooling over the last dimensions of `x`."""

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    front: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def spans(self) -> tuple[int, ...]:
        """Pixels from the first to the last tap, both counted."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.taps, self.dilations, strict=True))

    def parameters(self) -> dict[str, Any]:
        """The fields of a `Window`."""
        fields: dict[str, Any] = {"after": self.end}
        for at, a in enumerate(SPACE[len(self.taps)]):
            fields |= {f"k{a}": self.taps[at], f"stride_{a}": self.strides[at], f"pad_{a}": self.front[at],
                       f"dilation_{a}": self.dilations[at]}  # fmt: skip
        return fields


def geometry(site: Site, taps: tuple[int, ...]) -> Geometry:
    """The windows that a node's attributes describe; `auto_pad` is resolved."""
    rank = len(taps)
    strides = tuple(site.attribute("strides", [1] * rank))
    dilations = tuple(site.attribute("dilations", [1] * rank))
    pads = list(site.attribute("pads", [0] * 2 * rank))
    auto = site.attribute("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        spans = [d * (k - 1) + 1 for k, d in zip(taps, dilations, strict=True)]
        sizes = site.shape()[2:]
        total = [
            max(0, (-(-size // stride) - 1) * stride + span - size)
            for size, stride, span in zip(sizes, strides, spans, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if auto == "SAME_UPPER" else large + small
    elif auto == "VALID":
        pads = [0] * 2 * rank
    return Geometry(taps, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))


def _conv(site: Site) -> Built:
    x, w = site.shape(0), site.shape(1)
    rank = len(x) - 2
    if rank not in CONVOLUTIONS or not is_float(site.dtype()):
        return None
    groups = site.attribute("group", 1)
    windows = geometry(site, w[2:])
    if min(*windows.front, *windows.end) < 0:
        return None
    fields: dict[str, Any] = dict(zip(SPACE[rank], x[2:], strict=True)) | windows.parameters()
    fields |= {"bias": int(site.has(2)), "layout": f"nc{SPACE[rank]}"}
    inputs = [2] if site.has(2) else []
    weights = site.constant(1)
    if rank == 2 and groups == x[1] == w[0] and weights is not None:
        single = site.new_constant(weights.reshape(w[0], *w[2:]))
        depthwise = DepthwiseConv2d(n=x[0], c=x[1], **fields)
        return [site.operator(depthwise.script(site.dtype()), [0, single, *inputs])]
    made = CONVOLUTIONS[rank](n=x[0], ci=x[1], co=w[0], groups=groups, **fields)
    return [site.operator(made.script(site.dtype()), [0, 1, *inputs])]


def transposed(site: Site) -> Transposed | None:
    """A node's transposed convolution; where the output's shape is given, it says how much is cut off in all.

    None in more dimensions than three.
    """
    x, w, outs = site.shape(0), site.shape(1), site.result().shape[2:]
    rank = len(outs)
    if rank not in SPACE:
        return None
    windows = geometry(site, w[2:])
    cuts, auto = windows.front, site.attribute("auto_pad", "NOTSET")
    if auto.startswith("SAME") or site.attribute("output_shape", []):
        extra = site.attribute("output_padding", [0] * rank)
        total = [
            stride * (size - 1) + more + span - out
            for stride, size, more, span, out in zip(windows.strides, x[2:], extra, windows.spans, outs, strict=True)
        ]
        total = [max(0, t) for t in total]
        cuts = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
    groups = site.attribute("group", 1)
    return Transposed(
        x[0], x[1], w[1] * groups, SPACE[rank], x[2:], windows.taps, windows.strides, cuts, outs, windows.dilations,
        groups, layout=f"nc{SPACE[rank]}",
    )  # fmt: skip


def _conv_transpose(site: Site) -> Built:
    made = transposed(site) if is_float(site.dtype()) else None
    if made is None:
        return None
    made = replace(made, bias=site.has(2))
    text = made.script(f"conv{len(made.space)}d_transpose", precision(site.dtype()))
    return [site.operator(text, [0, 1, *([2] if site.has(2) else [])])]


def _col2im(site: Site) -> Built:
    """``y[n, c, i] = sum of x[n, (c, k), b]`` over taps k of blocks b with ``i = b stride + k dilation``."""
    sizes, taps = site.integers(1), site.integers(2)
    if sizes is None or taps is None or not is_float(site.dtype()):
        return None
    rank, (n, c) = len(sizes), site.result().shape[:2]
    windows = geometry(site, tuple(taps))
    counts = [
        (size + front + end - span) // stride + 1
        for size, front, end, span, stride in zip(
            sizes, windows.front, windows.end, windows.spans, windows.strides, strict=True
        )
    ]
    program = Program("col2im", precision(site.dtype()))
    program.inputs([("x", site.shape())])
    program.output("y", site.result().shape)
    into = program.alloc("total", site.result().shape) if program.precision.is_mixed else "y"
    names = ["n", "c", *(f"i{d}" for d in range(rank))]
    conditions, tap, place = [], "0", "0"
    for d in range(rank):
        begin = affine(f"vi{d}", 1, f"vk{d}", -windows.dilations[d], -windows.front[d])
        block = f"({begin}) // {windows.strides[d]}"
        conditions.append(f"0 <= {begin} and {block} < {counts[d]}")
        if windows.strides[d] > 1:
            conditions.append(f"({begin}) % {windows.strides[d]} == 0")
        tap, place = f"({tap}) * {taps[d]} + vk{d}", f"({place}) * {counts[d]} + {block}"
    x = program.load("x", ["vn", f"vc * {math.prod(taps)} + {tap}", place])
    point = [f"v{a}" for a in names]
    y = element(into, point)
    loops = [(a, e, "S") for a, e in zip(names, (n, c, *sizes), strict=True)]
    value = f"T.if_then_else({' and '.join(conditions)}, {x}, {program.zero()})"
    taken = [*loops, *((f"k{d}", taps[d], "R") for d in range(rank))]
    program.add("col2im", taken, f"{y} = {y} + {value}", f"{y} = {program.zero()}")
    if into != "y":
        program.stages("y", into, [(a, e) for a, e, _ in loops], names, [("store", "{v}")])
    return [site.operator(program.text(), [0])]


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "Conv"): _conv, ("", "ConvTranspose"): _conv_transpose, ("", "Col2Im"): _col2im,
}  # fmt: skip
