"""Sliding windows over images: what convolution and pooling share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Operator, param
from .text import affine, block, literal


@dataclass(frozen=True)
class Window(Operator):
    """Windows of ``kh * kw`` taps over an image of ``h * w`` pixels with a border of `pad` on each side."""

    n: int = param(1, "batch")
    h: int = param(56, "input height")
    w: int = param(56, "input width")
    kh: int = param(3, "kernel extent")
    kw: int = param(3, "kernel extent")
    stride_h: int = param(1, "step between windows")
    stride_w: int = param(1, "step between windows")
    pad_h: int = param(1, "border on each side", least=0)
    pad_w: int = param(1, "border on each side", least=0)
    dilation_h: int = param(1, "step between taps")
    dilation_w: int = param(1, "step between taps")

    pairs: ClassVar[Mapping[str, tuple[str, str]]] = {
        "k": ("kh", "kw"),
        "stride": ("stride_h", "stride_w"),
        "pad": ("pad_h", "pad_w"),
        "dilation": ("dilation_h", "dilation_w"),
    }

    @property
    def oh(self) -> int:
        """Output height."""
        return windows(self.h, self.kh, self.stride_h, self.pad_h, self.dilation_h)

    @property
    def ow(self) -> int:
        """Output width."""
        return windows(self.w, self.kw, self.stride_w, self.pad_w, self.dilation_w)

    @property
    def row(self) -> str:
        """The padded image's row that tap ``vkh`` of window row ``voh`` sees, as script text."""
        return affine("voh", self.stride_h, "vkh", self.dilation_h)

    @property
    def col(self) -> str:
        """The padded image's column that tap ``vkw`` of window column ``vow`` sees, as script text."""
        return affine("vow", self.stride_w, "vkw", self.dilation_w)

    def check(self) -> None:
        """Raise ShapeError unless one window fits the padded image in both directions."""
        for axis, size, taps, border, step in (
            ("h", self.h, self.kh, self.pad_h, self.dilation_h),
            ("w", self.w, self.kw, self.pad_w, self.dilation_w),
        ):
            if windows(size, taps, 1, border, step) < 1:
                reach = step * (taps - 1) + 1
                raise ShapeError(
                    f"`{self.name}`: a kernel of k{axis}={taps}{f' with dilation {step}' if step > 1 else ''} spans "
                    f"{reach}, but {axis}={size} with pad {border} on each side is only {size + 2 * border}; use a "
                    f"smaller k{axis} or more pad"
                )

    def pad_stage(
        self, shape: tuple[int, ...], axes: str, fill: float, dtype: str
    ) -> tuple[str, list[tuple[str, tuple[int, ...]]], list[str]]:
        """The buffer to read instead of `x`, its allocation, and the block that fills it; none without padding.

        `shape` is that of `x` and `axes` a letter for each of its dimensions.
        """
        border = {"h": self.pad_h, "w": self.pad_w}
        if not any(border.values()):
            return "x", [], []
        borders = [border.get(a, 0) for a in axes]
        extents = tuple(e + 2 * p for e, p in zip(shape, borders, strict=True))
        inside = [f"{p} <= vp{a} and vp{a} < {e + p}" for a, e, p in zip(axes, shape, borders, strict=True) if p]
        at = ", ".join(affine(f"vp{a}", 1, shift=p) for a, p in zip(axes, borders, strict=True))
        value = f"T.if_then_else({' and '.join(inside)}, x[{at}], {literal(fill, dtype)})"
        everywhere = ", ".join(f"vp{a}" for a in axes)
        nest = [(f"p{a}", e, "S") for a, e in zip(axes, extents, strict=True)]
        return "x_pad", [("x_pad", extents)], [block("pad", nest, f"x_pad[{everywhere}] = {value}")]

    def padded(self, x: Array, fill: float) -> Array:
        """``x[..., h, w]`` with its border of `fill`."""
        if not self.pad_h and not self.pad_w:
            return x
        borders = [(0, 0)] * (x.ndim - 2) + [(self.pad_h, self.pad_h), (self.pad_w, self.pad_w)]
        return np.pad(x, borders, constant_values=fill)

    def tap(self, image: Array, kh: int, kw: int) -> Array:
        """What tap (kh, kw) of every window sees: a view ``[..., oh, ow]`` of the padded image ``[..., h, w]``."""
        top, left = kh * self.dilation_h, kw * self.dilation_w
        rows = slice(top, top + self.stride_h * (self.oh - 1) + 1, self.stride_h)
        cols = slice(left, left + self.stride_w * (self.ow - 1) + 1, self.stride_w)
        return image[..., rows, cols]


def windows(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """How many windows fit: ``(size + 2 pad - dilation (kernel - 1) - 1) // stride + 1``; below 1 if none."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
