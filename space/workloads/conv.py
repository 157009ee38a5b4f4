"""Two-dimensional convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Arrays, param
from .text import affine, block, function, literal
from .window import Window

LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Conv2d(Window):
    """``y[n, co, oh, ow] = sum over ci, kh, kw of x[n, ci, oh s + kh d - p, ow s + kw d - p] w[co, ci, kh, kw]``."""

    name: ClassVar[str] = "conv2d"
    summary: ClassVar[str] = "convolution with zero padding; weights oihw for nchw, hwio for nhwc"
    constants: ClassVar[tuple[str, ...]] = ("w",)
    always_split: ClassVar[tuple[str, ...]] = ("k",)
    order: ClassVar[tuple[str, ...]] = (
        "n", "ci", "h", "w", "co", "k", "stride", "pad", "dilation", "groups", "layout",
    )  # fmt: skip

    ci: int = param(64, "input channels")
    co: int = param(64, "output channels")
    groups: int = param(1, "independent groups of channels")
    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)

    def check(self) -> None:
        super().check()
        if self.ci % self.groups or self.co % self.groups:
            raise ShapeError(
                f"`conv2d`: groups={self.groups} must divide ci={self.ci} and co={self.co}; use a common divisor"
            )

    def buffers(self) -> dict[str, tuple[int, ...]]:
        per_group = self.ci // self.groups
        if self.layout == "nchw":
            x, y = (self.n, self.ci, self.h, self.w), (self.n, self.co, self.oh, self.ow)
            return {"x": x, "w": (self.co, per_group, self.kh, self.kw), "y": y}
        x, y = (self.n, self.h, self.w, self.ci), (self.n, self.oh, self.ow, self.co)
        return {"x": x, "w": (self.kh, self.kw, per_group, self.co), "y": y}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        source, allocs, blocks = self.pad_stage(shapes["x"], self.layout, 0, dtype)
        blocks.append(self._conv_block(source, dtype))
        return function(self.name, dtype, list(shapes.items()), blocks, allocs)

    def _conv_block(self, source: str, dtype: str) -> str:
        extents = {
            "n": self.n, "g": self.groups, "co": self.co // self.groups, "oh": self.oh, "ow": self.ow,
            "ci": self.ci // self.groups, "kh": self.kh, "kw": self.kw,
        }  # fmt: skip
        grouped = self.groups > 1
        group = ["g"] if grouped else []
        channel = affine("vg", extents["ci"], "vci") if grouped else "vci"
        filters = affine("vg", extents["co"], "vco") if grouped else "vco"
        if self.layout == "nchw":
            order = ["n", *group, "co", "oh", "ow", "ci", "kh", "kw"]
            x, w = f"vn, {channel}, {self.row}, {self.col}", f"{filters}, vci, vkh, vkw"
            y = f"vn, {filters}, voh, vow"
        else:
            order = ["n", "oh", "ow", *group, "co", "kh", "kw", "ci"]
            x, w = f"vn, {self.row}, {self.col}, {channel}", f"vkh, vkw, vci, {filters}"
            y = f"vn, voh, vow, {filters}"
        axes = [(a, extents[a], "R" if a in ("ci", "kh", "kw") else "S") for a in order]
        return block("conv", axes, f"y[{y}] = y[{y}] + {source}[{x}] * w[{w}]", f"y[{y}] = {literal(0, dtype)}")

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        x, w = arrays["x"], arrays["w"]
        if self.layout == "nhwc":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
        g, ci, co, pixels = self.groups, self.ci // self.groups, self.co // self.groups, self.oh * self.ow
        image = self.padded(x, 0)
        image = image.reshape(self.n, g, ci, *image.shape[2:])
        weights = w.reshape(g, co, ci, self.kh, self.kw)
        total = np.zeros((self.n, g, co, pixels), np.result_type(x, w))
        for kh in range(self.kh):
            for kw in range(self.kw):
                seen = self.tap(image, kh, kw).reshape(self.n, g, ci, pixels)
                total += np.ascontiguousarray(weights[None, :, :, :, kh, kw]) @ seen
        y = total.reshape(self.n, self.co, self.oh, self.ow)
        return {"y": y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))}


@dataclass(frozen=True)
class DepthwiseConv2d(Window):
    """``y[n, c, oh, ow] = sum over kh, kw of x[n, c, oh s + kh d - p, ow s + kw d - p] w[c, kh, kw]``."""

    name: ClassVar[str] = "depthwise_conv2d"
    summary: ClassVar[str] = "convolution of every channel with its own kernel; weights chw for nchw, hwc for nhwc"
    constants: ClassVar[tuple[str, ...]] = ("w",)
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "dilation", "layout")

    c: int = param(64, "channels")
    layout: str = param("nchw", "order of the axes of x and y", choices=LAYOUTS)

    def buffers(self) -> dict[str, tuple[int, ...]]:
        if self.layout == "nchw":
            x, y = (self.n, self.c, self.h, self.w), (self.n, self.c, self.oh, self.ow)
            return {"x": x, "w": (self.c, self.kh, self.kw), "y": y}
        x, y = (self.n, self.h, self.w, self.c), (self.n, self.oh, self.ow, self.c)
        return {"x": x, "w": (self.kh, self.kw, self.c), "y": y}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        source, allocs, blocks = self.pad_stage(shapes["x"], self.layout, 0, dtype)
        n, c, oh, ow = ("n", self.n, "S"), ("c", self.c, "S"), ("oh", self.oh, "S"), ("ow", self.ow, "S")
        taps = [("kh", self.kh, "R"), ("kw", self.kw, "R")]
        if self.layout == "nchw":
            axes, y = [n, c, oh, ow, *taps], "vn, vc, voh, vow"
            x, w = f"vn, vc, {self.row}, {self.col}", "vc, vkh, vkw"
        else:
            axes, y = [n, oh, ow, c, *taps], "vn, voh, vow, vc"
            x, w = f"vn, {self.row}, {self.col}, vc", "vkh, vkw, vc"
        body, init = f"y[{y}] = y[{y}] + {source}[{x}] * w[{w}]", f"y[{y}] = {literal(0, dtype)}"
        return function(self.name, dtype, list(shapes.items()), [*blocks, block("conv", axes, body, init)], allocs)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        x, w = arrays["x"], arrays["w"]
        if self.layout == "nhwc":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(2, 0, 1)
        image = self.padded(x, 0)
        y = np.zeros((self.n, self.c, self.oh, self.ow), np.result_type(x, w))
        for kh in range(self.kh):
            for kw in range(self.kw):
                y += self.tap(image, kh, kw) * w[:, kh, kw, None, None]
        return {"y": y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))}
