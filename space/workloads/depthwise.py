"""Depthwise convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import Array, Arrays, hidden, param
from .text import Program, Shape, Step
from .window import Window2d


@dataclass(frozen=True)
class DepthwiseConv2d(Window2d):
    """``y[n, c, oh, ow] = sum over kh, kw of x[n, c, oh s + kh d - p, ow s + kw d - p] w[c, kh, kw]``."""

    name: ClassVar[str] = "depthwise_conv2d"
    summary: ClassVar[str] = "convolution of every channel with its own kernel; weights chw for nchw, hwc for nhwc"
    constants: ClassVar[tuple[str, ...]] = ("w",)
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "dilation", "layout")

    c: int = param(64, "channels")
    bias: int = hidden(0, "1 if a bias is added for each channel")
    fill: int = hidden(0, "what the border holds")
    layout: str = param("nchw", "order of the axes of x and y", choices=("nchw", "nhwc"))

    def buffers(self) -> dict[str, Shape]:
        bias = {"bias": (self.c,)} if self.bias else {}
        if self.layout == "nchw":
            x, w, y = (self.n, self.c, *self.sizes), (self.c, *self.taps), (self.n, self.c, *self.outs)
        else:
            x, w, y = (self.n, *self.sizes, self.c), (*self.taps, self.c), (self.n, *self.outs, self.c)
        return {"x": x, "w": w, **bias, "y": y}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shape) for name, shape in shapes.items() if name != "y"])
        program.output("y", shapes["y"])
        steps = [("store", "{v}")] if program.precision.is_mixed else []
        if self.bias:
            steps = [("bias", "{v} + " + program.precision.widen("bias[vc{i}]"))]
        self.write(program, steps)
        return program.text()

    def write(self, program: Program, steps: Sequence[Step]) -> None:
        """Append the sum and what is done to it, in a program that has the parameters."""
        shapes = self.buffers()
        total = program.alloc("acc", shapes["y"]) if steps else "y"
        source = self.pad_stage(program, shapes["x"], self.layout, self.fill)
        n, c = ("n", self.n), ("c", self.c)
        if self.layout == "nchw":
            axes, x, w = [n, c, *self.out_axes], ["vn", "vc", *self.seen], ["vc", "vkh", "vkw"]
        else:
            axes, x, w = [n, *self.out_axes, c], ["vn", *self.seen, "vc"], ["vkh", "vkw", "vc"]
        loops = [(a, e, "S") for a, e in axes] + [(a, e, "R") for a, e in self.tap_axes]
        target = f"{total}[{', '.join(f'v{a}' for a, _ in axes)}]"
        update = f"{target} = {target} + {program.load(source, x)} * {program.load('w', w)}"
        program.add("conv", loops, update, f"{target} = {program.zero()}")
        program.stages("y", total, axes, [a for a, _ in axes], steps)

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x, w = arrays["x"], arrays["w"]
        if self.layout == "nhwc":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(2, 0, 1)
        image = self.padded(x, self.fill)
        y = np.zeros((self.n, self.c, *self.outs), np.result_type(x, w))
        for at in self.all_taps():
            y += self.tap(image, at) * w[(slice(None), *at, None, None)]
        if self.bias:
            y += arrays["bias"][:, None, None]
        return {"y": y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))}
