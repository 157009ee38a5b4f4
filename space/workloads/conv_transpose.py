"""Transposed convolutions: the gradient of a convolution with respect to its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Arrays, Operator, param
from .text import Program, Shape, literal


@dataclass(frozen=True)
class Conv2dTranspose(Operator):
    """``y[n, co, ih s + kh - p, iw s + kw - p] += x[n, ci, ih, iw] w[ci, co, kh, kw]`` over ci, ih, iw, kh, kw.

    The program gathers: it spreads `x` by the stride inside a border of ``k - 1 - p``,
    and convolves that with the kernel turned round.
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
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"]), ("w", shapes["w"])])
        program.output("y", shapes["y"])
        mixed = program.precision.is_mixed
        total = program.alloc("acc", shapes["y"]) if mixed else "y"
        self._spread(program)
        n, co, oh, ow = ("n", self.n), ("co", self.co), ("oh", self.oh), ("ow", self.ow)
        ci, kh, kw = ("ci", self.ci), ("kh", self.kh), ("kw", self.kw)
        turned = [f"{self.kh - 1} - vkh", f"{self.kw - 1} - vkw"]
        if self.layout == "nchw":
            spatial, reduce = [n, co, oh, ow], [ci, kh, kw]
            x, w = ["vn", "vci", "voh + vkh", "vow + vkw"], ["vci", "vco", *turned]
        else:
            spatial, reduce = [n, oh, ow, co], [kh, kw, ci]
            x, w = ["vn", "voh + vkh", "vow + vkw", "vci"], [*turned, "vci", "vco"]
        axes = [(a, e, "S") for a, e in spatial] + [(a, e, "R") for a, e in reduce]
        target = f"{total}[{', '.join(f'v{a}' for a, _ in spatial)}]"
        update = f"{target} = {target} + {program.load('x_spread', x)} * {program.load('w', w)}"
        program.add("conv", axes, update, f"{target} = {program.zero()}")
        if mixed:
            program.stages("y", total, spatial, [a for a, _ in spatial], [("store", "{v}")])
        return program.text()

    def _spread(self, program: Program) -> None:
        """``x_spread[b + i s] = x[i]`` and 0 elsewhere, with the border ``b = k - 1 - p``."""
        low_h, low_w = self.kh - 1 - self.pad_h, self.kw - 1 - self.pad_w
        shape = self._image(self.ci, self.oh + self.kh - 1, self.ow + self.kw - 1)
        inside: list[str] = []
        at: dict[str, str] = {"n": "vpn", "c": "vpc"}
        for a, low, size, stride in (("h", low_h, self.h, self.stride_h), ("w", low_w, self.w, self.stride_w)):
            moved = f"vp{a} - {low}" if low else f"vp{a}"
            inside += [f"{low} <= vp{a} and vp{a} < {low + (size - 1) * stride + 1}"]
            if stride > 1:
                inside.append(f"({moved}) % {stride} == 0")
            at[a] = f"({moved}) // {stride}" if stride > 1 else moved
        value = f"T.if_then_else({' and '.join(inside)}, x[{', '.join(at[a] for a in self.layout)}], "
        value += f"{literal(0, program.precision.storage)})"
        program.alloc("x_spread", shape, program.precision.storage)
        axes = [(f"p{a}", e, "S") for a, e in zip(self.layout, shape, strict=True)]
        program.add("spread", axes, f"x_spread[{', '.join(f'v{a}' for a, _, _ in axes)}] = {value}")

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
