"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Arrays, param
from .text import block, function, literal
from .window import Window

FLOATS = ("float32", "float64", "float16")


@dataclass(frozen=True)
class MaxPool2d(Window):
    """``y[n, c, oh, ow] = max over kh, kw of x[n, c, oh s + kh d - p, ow s + kw d - p]``, -inf outside."""

    name: ClassVar[str] = "max_pool2d"
    summary: ClassVar[str] = "largest value of each window, padded with -inf"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    order: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "stride", "pad", "dilation")

    c: int = param(64, "channels")
    h: int = param(112, "input height")
    w: int = param(112, "input width")
    stride_h: int = param(2, "step between windows")
    stride_w: int = param(2, "step between windows")

    def check(self) -> None:
        super().check()
        for axis, pad, taps, step in (("h", self.pad_h, self.kh, self.dilation_h),
                                      ("w", self.pad_w, self.kw, self.dilation_w)):  # fmt: skip
            if pad > step * (taps - 1):
                raise ShapeError(
                    f"`max_pool2d`: with pad_{axis}={pad} and k{axis}={taps} a window would lie wholly in the padding "
                    f"and give -inf; use a pad of at most {step * (taps - 1)}"
                )

    def buffers(self) -> dict[str, tuple[int, ...]]:
        return {"x": (self.n, self.c, self.h, self.w), "y": (self.n, self.c, self.oh, self.ow)}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        source, allocs, blocks = self.pad_stage(shapes["x"], "nchw", float("-inf"), dtype)
        axes = [
            ("n", self.n, "S"), ("c", self.c, "S"), ("oh", self.oh, "S"), ("ow", self.ow, "S"),
            ("kh", self.kh, "R"), ("kw", self.kw, "R"),
        ]  # fmt: skip
        y = "y[vn, vc, voh, vow]"
        body = f"{y} = T.max({y}, {source}[vn, vc, {self.row}, {self.col}])"
        pool = block("pool", axes, body, f"{y} = {literal(float('-inf'), dtype)}")
        return function(self.name, dtype, list(shapes.items()), [*blocks, pool], allocs)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        image = self.padded(arrays["x"], float("-inf"))
        y = self.tap(image, 0, 0).copy()
        for kh in range(self.kh):
            for kw in range(self.kw):
                np.maximum(y, self.tap(image, kh, kw), out=y)
        return {"y": y}
