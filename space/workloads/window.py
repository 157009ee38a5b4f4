"""Sliding windows over images of one, two or three dimensions: what convolution and pooling share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np

from ...errors import ShapeError
from .operator import Array, Operator, hidden, param
from .text import Program, Shape, affine, literal


@dataclass(frozen=True)
class Window(Operator):
    """Windows of taps over an image with a border of `pad` on each side.

    `space` has a letter for each direction; for a letter ``h`` the parameters are the
    input's extent ``h``, the kernel's ``kh``, ``stride_h``, ``pad_h`` and ``dilation_h``.
    """

    space: ClassVar[str]

    n: int = param(1, "batch")
    after: tuple[int, ...] = hidden((), "the border at the end of each direction, where it is not that in front")

    def _value(self, name: str) -> int:
        value: int = getattr(self, name)
        return value

    @property
    def sizes(self) -> Shape:
        """The image's extents."""
        return tuple(self._value(a) for a in self.space)

    @property
    def taps(self) -> Shape:
        """The kernel's extents."""
        return tuple(self._value(f"k{a}") for a in self.space)

    @property
    def strides(self) -> Shape:
        """Steps between windows."""
        return tuple(self._value(f"stride_{a}") for a in self.space)

    @property
    def borders(self) -> Shape:
        """Pixels of padding on each side."""
        return tuple(self._value(f"pad_{a}") for a in self.space)

    @property
    def ends(self) -> Shape:
        """Pixels of padding at the end of each direction."""
        return self.after or self.borders

    @property
    def both(self) -> Shape:
        """Pixels of padding in each direction in all."""
        return tuple(map(int.__add__, self.borders, self.ends))

    @property
    def dilations(self) -> Shape:
        """Steps between taps."""
        return tuple(self._value(f"dilation_{a}") for a in self.space)

    @property
    def outs(self) -> Shape:
        """The output's extents."""
        return tuple(map(windows, self.sizes, self.taps, self.strides, self.both, self.dilations))

    @property
    def out_axes(self) -> list[tuple[str, int]]:
        """A loop over the windows in each direction."""
        return [(f"o{a}", e) for a, e in zip(self.space, self.outs, strict=True)]

    @property
    def tap_axes(self) -> list[tuple[str, int]]:
        """A loop over the taps in each direction."""
        return [(f"k{a}", e) for a, e in zip(self.space, self.taps, strict=True)]

    @property
    def seen(self) -> list[str]:
        """The padded image's pixel that tap ``vkh`` of window ``voh`` sees, as script text for each direction."""
        steps = zip(self.space, self.strides, self.dilations, strict=True)
        return [affine(f"vo{a}", stride, f"vk{a}", dilation) for a, stride, dilation in steps]

    def check(self) -> None:
        """Raise ShapeError unless one window fits the padded image in every direction."""
        for axis, size, taps, border, both, step in zip(
            self.space, self.sizes, self.taps, self.borders, self.both, self.dilations, strict=True
        ):
            if windows(size, taps, 1, both, step) < 1:
                reach = step * (taps - 1) + 1
                raise ShapeError(
                    f"`{self.name}`: a kernel of k{axis}={taps}{f' with dilation {step}' if step > 1 else ''} spans "
                    f"{reach}, but {axis}={size} with pad {border} on each side is only {size + both}; use a "
                    f"smaller k{axis} or more pad"
                )

    def check_border(self) -> None:
        """Raise ShapeError where a window would see nothing but padding."""
        for axis, border, taps, step in zip(self.space, self.borders, self.taps, self.dilations, strict=True):
            if border > step * (taps - 1):
                raise ShapeError(
                    f"`{self.name}`: with pad_{axis}={border} and k{axis}={taps} a window would lie wholly in the "
                    f"padding; use a pad of at most {step * (taps - 1)}"
                )

    def pad_stage(self, program: Program, shape: Shape, axes: str, fill: float) -> str:
        """Add the block that puts a border of `fill` around `x`; returns the buffer to read instead of `x`.

        `shape` is that of `x` and `axes` a letter for each of its dimensions.  Without
        a border there is nothing to add.
        """
        if not any(self.both):
            return "x"
        border, both = (dict(zip(self.space, pixels, strict=True)) for pixels in (self.borders, self.both))
        dtype = program.precision.storage
        borders = [border.get(a, 0) for a in axes]
        extents = tuple(e + both.get(a, 0) for a, e in zip(axes, shape, strict=True))
        inside = [
            f"{p} <= vp{a} and vp{a} < {e + p}" for a, e, p in zip(axes, shape, borders, strict=True) if both.get(a, 0)
        ]
        at = ", ".join(affine(f"vp{a}", 1, shift=p) for a, p in zip(axes, borders, strict=True))
        value = f"T.if_then_else({' and '.join(inside)}, x[{at}], {literal(fill, dtype)})"
        everywhere = ", ".join(f"vp{a}" for a in axes)
        source = program.alloc("x_pad", extents, dtype)
        nest = [(f"p{a}", e, "S") for a, e in zip(axes, extents, strict=True)]
        program.add("pad", nest, f"{source}[{everywhere}] = {value}")
        return source

    def padded(self, x: Array, fill: float) -> Array:
        """``x[..., h, w]`` with its border of `fill`."""
        borders = [(0, 0)] * (x.ndim - len(self.space)) + list(zip(self.borders, self.ends, strict=True))
        return np.pad(x, borders, constant_values=fill) if any(self.both) else x

    def tap(self, image: Array, at: Sequence[int]) -> Array:
        """What the tap `at` of every window sees: a view ``[..., oh, ow]`` of the padded image ``[..., h, w]``."""
        parts: list[Any] = [
            slice(k * dilation, k * dilation + stride * (out - 1) + 1, stride)
            for k, dilation, stride, out in zip(at, self.dilations, self.strides, self.outs, strict=True)
        ]
        seen: Array = image[(..., *parts)]
        return seen

    def all_taps(self) -> list[tuple[int, ...]]:
        """Every tap of the kernel."""
        return list(product(*map(range, self.taps)))


@dataclass(frozen=True)
class Window1d(Window):
    """Windows along a row ``w``."""

    space: ClassVar[str] = "w"
    joint: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "k": ("kw",), "stride": ("stride_w",), "pad": ("pad_w",), "dilation": ("dilation_w",),
    }  # fmt: skip

    w: int = param(1024, "input width")
    kw: int = param(3, "kernel extent")
    stride_w: int = param(1, "step between windows")
    pad_w: int = param(1, "border on each side", least=0)
    dilation_w: int = param(1, "step between taps")


@dataclass(frozen=True)
class Window2d(Window):
    """Windows over an image ``h`` by ``w``."""

    space: ClassVar[str] = "hw"
    joint: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "k": ("kh", "kw"), "stride": ("stride_h", "stride_w"), "pad": ("pad_h", "pad_w"),
        "dilation": ("dilation_h", "dilation_w"),
    }  # fmt: skip

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


@dataclass(frozen=True)
class Window3d(Window):
    """Windows over a volume ``d`` by ``h`` by ``w``."""

    space: ClassVar[str] = "dhw"
    joint: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "k": ("kd", "kh", "kw"), "stride": ("stride_d", "stride_h", "stride_w"), "pad": ("pad_d", "pad_h", "pad_w"),
        "dilation": ("dilation_d", "dilation_h", "dilation_w"),
    }  # fmt: skip

    d: int = param(16, "input depth")
    h: int = param(28, "input height")
    w: int = param(28, "input width")
    kd: int = param(3, "kernel extent")
    kh: int = param(3, "kernel extent")
    kw: int = param(3, "kernel extent")
    stride_d: int = param(1, "step between windows")
    stride_h: int = param(1, "step between windows")
    stride_w: int = param(1, "step between windows")
    pad_d: int = param(1, "border on each side", least=0)
    pad_h: int = param(1, "border on each side", least=0)
    pad_w: int = param(1, "border on each side", least=0)
    dilation_d: int = param(1, "step between taps")
    dilation_h: int = param(1, "step between taps")
    dilation_w: int = param(1, "step between taps")


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows fit: ``(size + padding - dilation (kernel - 1) - 1) // stride + 1``; below 1 if none.

    `padding` counts the pixels on both sides.
    """
    return (size + padding - dilation * (kernel - 1) - 1) // stride + 1
