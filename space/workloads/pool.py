"""Pooling: windows, and whole images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import FLOATS, Array, Arrays, Operator, flag, hidden, param
from .precision import Precision, plain
from .text import Program, Shape, literal
from .window import Window, Window1d, Window2d, Window3d

LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Pool(Window):
    """Windows over each channel of an image of any rank."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    c: int = param(64, "channels")
    layout: str = ""

    @property
    def is_last(self) -> bool:
        """Whether channels are the last axis."""
        return self.layout.endswith("c")

    def check(self) -> None:
        super().check()
        self.check_border()

    def image(self, extents: Shape) -> Shape:
        """The shape of an image in the workload's layout."""
        return (self.n, *extents, self.c) if self.is_last else (self.n, self.c, *extents)

    def buffers(self) -> dict[str, Shape]:
        return {"x": self.image(self.sizes), "y": self.image(self.outs)}

    def axes(self) -> list[tuple[str, int]]:
        """The loops over the result."""
        n, c = ("n", self.n), ("c", self.c)
        return [n, *self.out_axes, c] if self.is_last else [n, c, *self.out_axes]

    def pool(self, program: Program, into: str, fill: float, update: str) -> None:
        """Add the reduction: `update` has ``{y}`` for the result and ``{x}`` for a pixel."""
        source = self.pad_stage(program, self.buffers()["x"], self.layout, fill)
        at = ["vn", *self.seen, "vc"] if self.is_last else ["vn", "vc", *self.seen]
        axes = [(a, e, "S") for a, e in self.axes()] + [(a, e, "R") for a, e in self.tap_axes]
        y = f"{into}[{', '.join(f'v{a}' for a, _ in self.axes())}]"
        init = f"{y} = {literal(fill, program.precision.accumulator)}"
        program.add("pool", axes, f"{y} = {update.format(y=y, x=program.load(source, at))}", init)

    def planes(self, x: Array) -> Array:
        """``x`` with channels first."""
        return np.moveaxis(x, -1, 1) if self.is_last else x

    def channels(self, y: Array) -> dict[str, Array]:
        """``y`` with channels first, in the workload's layout."""
        return {"y": np.ascontiguousarray(np.moveaxis(y, 1, -1)) if self.is_last else y}


@dataclass(frozen=True)
class MaxPool(Pool):
    """``y[n, c, o] = max over k of x[n, c, o s + k d - p]``, -inf outside, with o and k of any rank."""

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
        return self.channels(np.maximum.reduce([self.tap(image, at) for at in self.all_taps()]))


@dataclass(frozen=True)
class AvgPool(Pool):
    """``y[n, c, o] = (sum over k of x[n, c, o s + k d - p]) / count``, 0 outside, with o and k of any rank.

    ``count`` is the number of taps, or without `include_pad` that of the pixels of the window inside the image.
    The last `beyond` pixels of the border count in no case.
    """

    include_pad: int = flag(1, "1 if padding counts as pixels of the mean")
    beyond: tuple[int, ...] = hidden(
        (), "pixels at the end of the border that are there only to complete the last window"
    )

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

    def _counted(self) -> list[tuple[int, int]]:
        """The pixels that a window counts in each direction, from the first to before the end."""
        if not self.include_pad:
            return [(0, size) for size in self.sizes]
        beyond = self.beyond or (0,) * len(self.space)
        spans = zip(self.sizes, self.borders, self.ends, beyond, strict=True)
        return [(-front, size + end - extra) for size, front, end, extra in spans]

    def _count(self, dtype: str) -> str:
        if not any(self.beyond if self.include_pad else self.both):
            return literal(int(np.prod(self.taps)), dtype)
        inside = []
        for a, (first, last), taps, stride, border, step in zip(
            self.space, self._counted(), self.taps, self.strides, self.borders, self.dilations, strict=True
        ):
            low = f"vo{a}{{i}} * {stride} - {border}"
            if step == 1:
                inside.append(f"(T.min({last}, {low} + {taps}) - T.max({first}, {low}))")
                continue
            ends, begins = (f"({step - 1 + end + border} - vo{a}{{i}} * {stride}) // {step}" for end in (last, first))
            inside.append(f"(T.min({taps}, {ends}) - T.max(0, {begins}))")
        return f"T.Cast({dtype!r}, {' * '.join(inside)})"

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = self.planes(arrays["x"])
        image = self.padded(x, 0)
        total: Array = np.add.reduce([self.tap(image, at) for at in self.all_taps()])
        counted = np.zeros(image.shape[2:], x.dtype)
        counted[tuple(slice(a + p, b + p) for (a, b), p in zip(self._counted(), self.borders, strict=True))] = 1
        return self.channels(total / np.add.reduce([self.tap(counted, at) for at in self.all_taps()]))


@dataclass(frozen=True)
class LpPool(Pool):
    """``y[n, c, o] = (sum over k of |x[n, c, o s + k d - q]| ** p) ** (1/p)``, 0 outside, with o and k of any rank."""

    p: int = hidden(2, "which norm of a window")

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        total = program.alloc("total", shapes["y"])
        power, root = norm(self.p, program.precision.accumulator)
        self.pool(program, total, 0, "{y} + " + power)
        axes = self.axes()
        program.stages("y", total, axes, [a for a, _ in axes], [("root", root.format(y="{v}"))])
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        image = np.abs(self.padded(self.planes(arrays["x"]), 0)) ** self.p
        return self.channels(np.add.reduce([self.tap(image, at) for at in self.all_taps()]) ** (1 / self.p))


def norm(p: int, dtype: str) -> tuple[str, str]:
    """What a norm adds up of each ``{x}``, and the norm from the sum ``{y}``, as script text."""
    if p in (1, 2):
        return [("T.abs({x})", "{y}"), ("{x} * {x}", "T.sqrt({y})")][p - 1]
    return f"T.pow(T.abs({{x}}), {literal(p, dtype)})", f"T.pow({{y}}, {literal(1 / p, dtype)})"


@dataclass(frozen=True)
class MaxPool1d(Window1d, MaxPool):
    """Windows along a row."""

    name: ClassVar[str] = "max_pool1d"
    summary: ClassVar[str] = "largest value of each window along a row, padded with -inf"

    layout: str = param("ncw", "order of the axes of x and y", choices=("ncw", "nwc"))


@dataclass(frozen=True)
class MaxPool2d(Window2d, MaxPool):
    """Windows over an image."""

    name: ClassVar[str] = "max_pool2d"
    summary: ClassVar[str] = "largest value of each window, padded with -inf"
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "dilation", "layout")

    h: int = param(112, "input height")
    w: int = param(112, "input width")
    stride_h: int = param(2, "step between windows")
    stride_w: int = param(2, "step between windows")
    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)


@dataclass(frozen=True)
class MaxPool3d(Window3d, MaxPool):
    """Windows over a volume."""

    name: ClassVar[str] = "max_pool3d"
    summary: ClassVar[str] = "largest value of each window of a volume, padded with -inf"

    layout: str = param("ncdhw", "order of the axes of x and y", choices=("ncdhw", "ndhwc"))


@dataclass(frozen=True)
class AvgPool1d(Window1d, AvgPool):
    """Windows along a row."""

    name: ClassVar[str] = "avg_pool1d"
    summary: ClassVar[str] = "mean of each window along a row, padded with 0"

    layout: str = param("ncw", "order of the axes of x and y", choices=("ncw", "nwc"))


@dataclass(frozen=True)
class AvgPool2d(Window2d, AvgPool):
    """Windows over an image."""

    name: ClassVar[str] = "avg_pool2d"
    summary: ClassVar[str] = "mean of each window, padded with 0"
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "include_pad", "layout")

    h: int = param(112, "input height")
    w: int = param(112, "input width")
    stride_h: int = param(2, "step between windows")
    stride_w: int = param(2, "step between windows")
    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)


@dataclass(frozen=True)
class AvgPool3d(Window3d, AvgPool):
    """Windows over a volume."""

    name: ClassVar[str] = "avg_pool3d"
    summary: ClassVar[str] = "mean of each window of a volume, padded with 0"

    layout: str = param("ncdhw", "order of the axes of x and y", choices=("ncdhw", "ndhwc"))


@dataclass(frozen=True)
class LpPool1d(Window1d, LpPool):
    """Windows along a row."""

    name: ClassVar[str] = "lp_pool1d"
    summary: ClassVar[str] = "norm of each window along a row, padded with 0"

    layout: str = param("ncw", "order of the axes of x and y", choices=("ncw", "nwc"))


@dataclass(frozen=True)
class LpPool2d(Window2d, LpPool):
    """Windows over an image."""

    name: ClassVar[str] = "lp_pool2d"
    summary: ClassVar[str] = "norm of each window, padded with 0"

    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)


@dataclass(frozen=True)
class LpPool3d(Window3d, LpPool):
    """Windows over a volume."""

    name: ClassVar[str] = "lp_pool3d"
    summary: ClassVar[str] = "norm of each window of a volume, padded with 0"

    layout: str = param("ncdhw", "order of the axes of x and y", choices=("ncdhw", "ndhwc"))


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
