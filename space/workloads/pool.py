"""Pooling: windows, and whole images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import FLOATS, Array, Arrays, Operator, flag, param
from .precision import Precision, plain
from .text import Program, Shape, literal
from .window import Window2d

LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Pool2d(Window2d):
    """Windows over each channel of an image."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    c: int = param(64, "channels")
    h: int = param(112, "input height")
    w: int = param(112, "input width")
    stride_h: int = param(2, "step between windows")
    stride_w: int = param(2, "step between windows")
    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)

    def check(self) -> None:
        super().check()
        self.check_border()

    def image(self, extents: Shape) -> Shape:
        """The shape of an image in the workload's layout."""
        return (self.n, self.c, *extents) if self.layout == "nchw" else (self.n, *extents, self.c)

    def buffers(self) -> dict[str, Shape]:
        return {"x": self.image(self.sizes), "y": self.image(self.outs)}

    def axes(self) -> list[tuple[str, int]]:
        """The loops over the result."""
        n, c = ("n", self.n), ("c", self.c)
        return [n, c, *self.out_axes] if self.layout == "nchw" else [n, *self.out_axes, c]

    def pool(self, program: Program, into: str, fill: float, update: str) -> None:
        """Add the reduction: `update` has ``{y}`` for the result and ``{x}`` for a pixel."""
        source = self.pad_stage(program, self.buffers()["x"], self.layout, fill)
        at = ["vn", "vc", *self.seen] if self.layout == "nchw" else ["vn", *self.seen, "vc"]
        axes = [(a, e, "S") for a, e in self.axes()] + [(a, e, "R") for a, e in self.tap_axes]
        y = f"{into}[{', '.join(f'v{a}' for a, _ in self.axes())}]"
        init = f"{y} = {literal(fill, program.precision.accumulator)}"
        program.add("pool", axes, f"{y} = {update.format(y=y, x=program.load(source, at))}", init)

    def planes(self, x: Array) -> Array:
        """``x`` with channels first."""
        return x if self.layout == "nchw" else x.transpose(0, 3, 1, 2)

    def result(self, y: Array) -> dict[str, Array]:
        """``y`` with channels first, in the workload's layout."""
        return {"y": y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))}


@dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """``y[n, c, oh, ow] = max over kh, kw of x[n, c, oh s + kh d - p, ow s + kw d - p]``, -inf outside."""

    name: ClassVar[str] = "max_pool2d"
    summary: ClassVar[str] = "largest value of each window, padded with -inf"
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "dilation", "layout")

    def precision(self, dtype: str) -> Precision:
        return plain(dtype)

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        self.pool(program, "y", float("-inf"), "T.max({y}, {x})")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        image = self.padded(self.planes(arrays["x"]), float("-inf"))
        return self.result(np.maximum.reduce([self.tap(image, at) for at in self.all_taps()]))


@dataclass(frozen=True)
class AvgPool2d(Pool2d):
    """``y[n, c, oh, ow] = (sum over kh, kw of x[n, c, oh s + kh - p, ow s + kw - p]) / count``, 0 outside.

    ``count`` is ``kh kw``, or without `include_pad` the number of pixels of the window inside the image.
    """

    name: ClassVar[str] = "avg_pool2d"
    summary: ClassVar[str] = "mean of each window, padded with 0"
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "include_pad", "layout")

    include_pad: int = flag(1, "1 if padding counts as pixels of the mean")

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        total = program.alloc("total", shapes["y"])
        self.pool(program, total, 0, "{y} + {x}")
        axes = self.axes()
        mean = "{v} / " + self._count(program.precision.accumulator)
        program.stages("y", total, axes, [a for a, _ in axes], [("mean", mean)])
        return program.text()

    def _count(self, dtype: str) -> str:
        if self.include_pad or not any(self.borders):
            return literal(int(np.prod(self.taps)), dtype)
        inside = []
        for a, size, taps, stride, border in zip(
            self.space, self.sizes, self.taps, self.strides, self.borders, strict=True
        ):
            low = f"vo{a}{{i}} * {stride} - {border}"
            inside.append(f"(T.min({size}, {low} + {taps}) - T.max(0, {low}))")
        return f"T.Cast({dtype!r}, {' * '.join(inside)})"

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = self.planes(arrays["x"])
        image = self.padded(x, 0)
        total: Array = np.add.reduce([self.tap(image, at) for at in self.all_taps()])
        counted = self.padded(np.ones(self.sizes, x.dtype), float(self.include_pad))
        return self.result(total / np.add.reduce([self.tap(counted, at) for at in self.all_taps()]))


@dataclass(frozen=True)
class GlobalPool2d(Operator):
    """One value for each channel of an image."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "layout")

    n: int = param(1, "batch")
    c: int = param(512, "channels")
    h: int = param(7, "input height")
    w: int = param(7, "input width")
    layout: str = param("nchw", "order of the axes of x", choices=LAYOUTS)

    def buffers(self) -> dict[str, Shape]:
        x = (self.n, self.c, self.h, self.w) if self.layout == "nchw" else (self.n, self.h, self.w, self.c)
        return {"x": x, "y": (self.n, self.c)}

    def pool(self, program: Program, into: str, start: float, update: str) -> None:
        """Add the reduction: `update` has ``{y}`` for the result and ``{x}`` for a pixel."""
        at = [f"v{a}" for a in self.layout]
        axes = [("n", self.n, "S"), ("c", self.c, "S"), ("h", self.h, "R"), ("w", self.w, "R")]
        y, x = f"{into}[vn, vc]", program.load("x", at)
        init = f"{y} = {literal(start, program.precision.accumulator)}"
        program.add("pool", axes, f"{y} = {update.format(y=y, x=x)}", init)

    def pixels(self, x: Array) -> Array:
        """``x`` as ``[n, c, pixels]``."""
        planes = x if self.layout == "nchw" else x.transpose(0, 3, 1, 2)
        return planes.reshape(self.n, self.c, self.h * self.w)


@dataclass(frozen=True)
class GlobalMaxPool2d(GlobalPool2d):
    """``y[n, c] = max over h, w of x[n, c, h, w]``."""

    name: ClassVar[str] = "global_max_pool2d"
    summary: ClassVar[str] = "largest value of each channel"

    def precision(self, dtype: str) -> Precision:
        return plain(dtype)

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        self.pool(program, "y", float("-inf"), "T.max({y}, {x})")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        return {"y": self.pixels(arrays["x"]).max(axis=2)}


@dataclass(frozen=True)
class GlobalAvgPool2d(GlobalPool2d):
    """``y[n, c] = (sum over h, w of x[n, c, h, w]) / (h w)``."""

    name: ClassVar[str] = "global_avg_pool2d"
    summary: ClassVar[str] = "mean of each channel"

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        total = program.alloc("total", shapes["y"])
        self.pool(program, total, 0, "{y} + {x}")
        mean = "{v} / " + literal(self.h * self.w, program.precision.accumulator)
        program.stages("y", total, [("n", self.n), ("c", self.c)], ["n", "c"], [("mean", mean)])
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = self.pixels(arrays["x"])
        return {"y": x.sum(axis=2) / x.dtype.type(self.h * self.w)}
