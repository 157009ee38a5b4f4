"""Transposed convolutions: the gradient of a convolution with respect to its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Arrays, Operator, param
from .precision import Precision
from .text import Program, Shape, Step, affine, literal


@dataclass(frozen=True)
class Transposed:
    """The program of a transposed convolution in one, two or three dimensions, a letter of `space` for each.

    It gathers: ``y[n, co, o] = sum over ci, k of spread[n, ci, o + k d] w[ci, co, K - 1 - k]`` where `spread` has x
    at every `strides`-th place behind a border of ``d (K - 1) - cuts``, and 0 elsewhere.  With groups, weights are
    ``[ci, co of a group, k...]``.
    """

    n: int
    ci: int
    co: int
    space: str
    sizes: Shape
    taps: Shape
    strides: Shape
    cuts: Shape
    outs: Shape
    dilations: Shape
    groups: int = 1
    bias: bool = False
    layout: str = "nchw"

    @property
    def is_last(self) -> bool:
        """Whether channels are the last axis."""
        return self.layout.endswith("c")

    def image(self, channels: int, extents: Shape) -> Shape:
        """The shape of an image in the layout."""
        return (self.n, *extents, channels) if self.is_last else (self.n, channels, *extents)

    def buffers(self) -> dict[str, Shape]:
        """Every parameter buffer's shape, inputs first."""
        per_group = self.co // self.groups
        w = (*self.taps, self.ci, per_group) if self.is_last else (self.ci, per_group, *self.taps)
        bias = {"bias": (self.co,)} if self.bias else {}
        return {"x": self.image(self.ci, self.sizes), "w": w, **bias, "y": self.image(self.co, self.outs)}

    def script(self, name: str, types: Precision) -> str:
        """The program as text."""
        shapes = self.buffers()
        program = Program(name, types)
        program.inputs([(buffer, shape) for buffer, shape in shapes.items() if buffer != "y"])
        program.output("y", shapes["y"])
        steps = [("store", "{v}")] if types.is_mixed else []
        if self.bias:
            steps = [("bias", "{v} + " + types.widen("bias[vco{i}]"))]
        self.write(program, steps)
        return program.text()

    def write(self, program: Program, steps: Sequence[Step]) -> None:
        """Append the sum and what is done to it, in a program that has the parameters."""
        total = program.alloc("acc", self.buffers()["y"]) if steps else "y"
        self._spread(program)
        self._sum(program, total)
        n, co = ("n", self.n), ("co", self.co)
        outs = [(f"o{a}", e) for a, e in zip(self.space, self.outs, strict=True)]
        axes = [n, *outs, co] if self.is_last else [n, co, *outs]
        program.stages("y", total, axes, [a for a, _ in axes], steps)

    def _sum(self, program: Program, total: str) -> None:
        """The reduction."""
        grouped = self.groups > 1
        each, filters = self.ci // self.groups, self.co // self.groups
        group = [("g", self.groups)] if grouped else []
        channel = affine("vg", each, "vci") if grouped else "vci"
        filtered = affine("vg", filters, "vco") if grouped else "vco"
        outs = [(f"o{a}", e) for a, e in zip(self.space, self.outs, strict=True)]
        taps = [(f"k{a}", e) for a, e in zip(self.space, self.taps, strict=True)]
        turned = [f"{e - 1} - vk{a}" for a, e in zip(self.space, self.taps, strict=True)]
        seen = [affine(f"vo{a}", 1, f"vk{a}", d) for a, d in zip(self.space, self.dilations, strict=True)]
        n, co, ci, point = ("n", self.n), ("co", filters), ("ci", each), [f"v{a}" for a, _ in outs]
        if self.is_last:
            spatial, reduce = [n, *outs, *group, co], [*taps, ci]
            x, w, y = ["vn", *seen, channel], [*turned, channel, "vco"], ["vn", *point, filtered]
        else:
            spatial, reduce = [n, *group, co, *outs], [ci, *taps]
            x, w, y = ["vn", channel, *seen], [channel, "vco", *turned], ["vn", filtered, *point]
        axes = [(a, e, "S") for a, e in spatial] + [(a, e, "R") for a, e in reduce]
        target = f"{total}[{', '.join(y)}]"
        update = f"{target} = {target} + {program.load('x_spread', x)} * {program.load('w', w)}"
        program.add("conv", axes, update, f"{target} = {program.zero()}")

    def _spread(self, program: Program) -> None:
        """``x_spread[b + i s] = x[i]`` and 0 elsewhere, with the border ``b = d (k - 1) - cut``."""
        reach = [d * (k - 1) for d, k in zip(self.dilations, self.taps, strict=True)]
        shape = self.image(self.ci, tuple(map(int.__add__, self.outs, reach)))
        inside: list[str] = []
        at: dict[str, str] = {"n": "vpn", "c": "vpc"}
        for a, whole, cut, size, stride in zip(self.space, reach, self.cuts, self.sizes, self.strides, strict=True):
            low = whole - cut
            moved = affine(f"vp{a}", 1, shift=low)
            inside += [f"{low} <= vp{a} and vp{a} < {low + (size - 1) * stride + 1}"]
            if stride > 1:
                inside.append(f"({moved}) % {stride} == 0")
            at[a] = f"({moved}) // {stride}" if stride > 1 else moved
        value = f"T.if_then_else({' and '.join(inside)}, x[{', '.join(at[a] for a in self.layout)}], "
        value += f"{literal(0, program.precision.storage)})"
        program.alloc("x_spread", shape, program.precision.storage)
        axes = [(f"p{a}", e, "S") for a, e in zip(self.layout, shape, strict=True)]
        program.add("spread", axes, f"x_spread[{', '.join(f'v{a}' for a, _, _ in axes)}] = {value}")


@dataclass(frozen=True)
class Conv2dTranspose(Operator):
    """``y[n, co, ih s + kh - p, iw s + kw - p] += x[n, ci, ih, iw] w[ci, co, kh, kw]`` over ci, ih, iw, kh, kw.

    The program gathers, as `Transposed` says.
    """

    name: ClassVar[str] = "conv2d_transpose"
    summary: ClassVar[str] = "transposed convolution; weights iohw for nchw, hwio for nhwc"
    constants: ClassVar[tuple[str, ...]] = ("w",)
    joint: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "k": ("kh", "kw"), "stride": ("stride_h", "stride_w"), "pad": ("pad_h", "pad_w"),
        "output_pad": ("output_pad_h", "output_pad_w"),
    }  # fmt: skip
    order: ClassVar[tuple[str, ...]] = (
        "n", "ci", "h", "w", "co", "k", "stride", "pad", "output_pad", "layout",
    )  # fmt: skip

    n: int = param(1, "batch")
    ci: int = param(64, "input channels")
    h: int = param(28, "input height")
    w: int = param(28, "input width")
    co: int = param(64, "output channels")
    kh: int = param(4, "kernel extent")
    kw: int = param(4, "kernel extent")
    stride_h: int = param(2, "distance of input pixels in the output")
    stride_w: int = param(2, "distance of input pixels in the output")
    pad_h: int = param(1, "rows or columns cut off on each side", least=0)
    pad_w: int = param(1, "rows or columns cut off on each side", least=0)
    output_pad_h: int = param(0, "rows or columns added at the end", least=0)
    output_pad_w: int = param(0, "rows or columns added at the end", least=0)
    layout: str = param("nchw", "order of the axes of x and y", choices=("nchw", "nhwc"))

    @property
    def oh(self) -> int:
        """Output height."""
        return (self.h - 1) * self.stride_h - 2 * self.pad_h + self.kh + self.output_pad_h

    @property
    def ow(self) -> int:
        """Output width."""
        return (self.w - 1) * self.stride_w - 2 * self.pad_w + self.kw + self.output_pad_w

    def check(self) -> None:
        for axis, taps, stride, cut, extra, out in (
            ("h", self.kh, self.stride_h, self.pad_h, self.output_pad_h, self.oh),
            ("w", self.kw, self.stride_w, self.pad_w, self.output_pad_w, self.ow),
        ):
            if cut > taps - 1 or out < 1:
                raise ShapeError(
                    f"`{self.name}`: pad_{axis}={cut} cuts off more than k{axis}={taps} adds; "
                    f"use a pad of at most {taps - 1} that leaves an output"
                )
            if extra >= stride:
                raise ShapeError(
                    f"`{self.name}`: output_pad_{axis}={extra} must be less than stride_{axis}={stride}, "
                    f"or whole rows would be empty"
                )

    def _image(self, channels: int, height: int, width: int) -> Shape:
        first = self.layout == "nchw"
        return (self.n, channels, height, width) if first else (self.n, height, width, channels)

    def buffers(self) -> dict[str, Shape]:
        first = self.layout == "nchw"
        w = (self.ci, self.co, self.kh, self.kw) if first else (self.kh, self.kw, self.ci, self.co)
        return {"x": self._image(self.ci, self.h, self.w), "w": w, "y": self._image(self.co, self.oh, self.ow)}

    def script(self, dtype: str) -> str:
        made = Transposed(
            self.n, self.ci, self.co, "hw", (self.h, self.w), (self.kh, self.kw), (self.stride_h, self.stride_w),
            (self.pad_h, self.pad_w), (self.oh, self.ow), (1, 1), layout=self.layout,
        )  # fmt: skip
        return made.script(self.name, self.precision(dtype))

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        """Scatters each input pixel, which the program does not do."""
        x, w = arrays["x"], arrays["w"]
        if self.layout == "nhwc":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1)
        height = (self.h - 1) * self.stride_h + self.kh + self.output_pad_h
        width = (self.w - 1) * self.stride_w + self.kw + self.output_pad_w
        whole = np.zeros((self.n, self.co, height, width), np.result_type(x, w))
        for kh in range(self.kh):
            for kw in range(self.kw):
                rows = slice(kh, kh + (self.h - 1) * self.stride_h + 1, self.stride_h)
                cols = slice(kw, kw + (self.w - 1) * self.stride_w + 1, self.stride_w)
                whole[:, :, rows, cols] += np.einsum("nihw,io->nohw", x, w[:, :, kh, kw])
        y = whole[:, :, self.pad_h : self.pad_h + self.oh, self.pad_w : self.pad_w + self.ow]
        return {"y": np.ascontiguousarray(y if self.layout == "nchw" else y.transpose(0, 2, 3, 1))}
