"""Convolutions in one, two and three dimensions, and what may be fused to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ShapeError
from .activations import ACTIVATIONS, NAMES
from .operator import FLOATS, Array, Arrays, hidden, param
from .text import Program, Shape, Step, affine
from .window import Window, Window1d, Window2d, Window3d


@dataclass(frozen=True)
class Conv(Window):
    """``y[n, co, o] = sum over ci, k of x[n, ci, o s + k d - p] w[co, ci, k]``, with o and k of any rank.

    Weights are ``[co, ci, k...]`` where channels come first and ``[k..., ci, co]`` where
    they come last; with groups, ``ci`` and ``co`` are channels of one group.
    """

    constants: ClassVar[tuple[str, ...]] = ("w",)

    ci: int = param(64, "input channels")
    co: int = param(64, "output channels")
    groups: int = param(1, "independent groups of channels")
    bias: int = hidden(0, "1 if a bias is added for each output channel")
    fill: int = hidden(0, "what the border holds")
    layout: str = ""

    @property
    def has_bias(self) -> bool:
        """Whether a bias for each output channel is added."""
        return self.bias == 1

    @property
    def is_last(self) -> bool:
        """Whether channels are the last axis."""
        return self.layout.endswith("c")

    def check(self) -> None:
        super().check()
        if self.ci % self.groups or self.co % self.groups:
            raise ShapeError(
                f"`{self.name}`: groups={self.groups} must divide ci={self.ci} and co={self.co}; use a common divisor"
            )

    def image(self, channels: int, extents: Shape) -> Shape:
        """The shape of an image in the workload's layout."""
        return (self.n, *extents, channels) if self.is_last else (self.n, channels, *extents)

    def buffers(self) -> dict[str, Shape]:
        per_group = self.ci // self.groups
        w = (*self.taps, per_group, self.co) if self.is_last else (self.co, per_group, *self.taps)
        bias = {"bias": (self.co,)} if self.has_bias else {}
        return {"x": self.image(self.ci, self.sizes), "w": w, **bias, "y": self.image(self.co, self.outs)}

    def steps(self, program: Program) -> list[Step]:
        """What is done to a sum before it is the result: the bias is added, or it is only converted."""
        if self.has_bias:
            return [("bias", "{v} + " + program.precision.widen("bias[vco{i}]"))]
        return [("store", "{v}")] if program.precision.is_mixed else []

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shape) for name, shape in shapes.items() if name != "y"])
        program.output("y", shapes["y"])
        self.write(program, self.steps(program))
        return program.text()

    def write(self, program: Program, steps: Sequence[Step]) -> None:
        """Append the sum and what is done to it, in a program that has the parameters."""
        shape = self.buffers()["y"]
        total = program.alloc("acc", shape) if steps else "y"
        self._sum(program, total)
        axes = [("n", self.n), ("co", self.co), *self.out_axes]
        axes = [axes[0], *axes[2:], axes[1]] if self.is_last else axes
        program.stages("y", total, axes, [a for a, _ in axes], steps)

    def _sum(self, program: Program, into: str) -> None:
        """The reduction."""
        source = self.pad_stage(program, self.buffers()["x"], self.layout, self.fill)
        ci, co = self.ci // self.groups, self.co // self.groups
        grouped = self.groups > 1
        group = [("g", self.groups)] if grouped else []
        channel = affine("vg", ci, "vci") if grouped else "vci"
        filters = affine("vg", co, "vco") if grouped else "vco"
        taps, outs = self.tap_axes, self.out_axes
        kernel, point = [f"v{a}" for a, _ in taps], [f"v{a}" for a, _ in outs]
        if self.is_last:
            spatial, reduce = [("n", self.n), *outs, *group, ("co", co)], [*taps, ("ci", ci)]
            x, w, y = ["vn", *self.seen, channel], [*kernel, "vci", filters], ["vn", *point, filters]
        else:
            spatial, reduce = [("n", self.n), *group, ("co", co), *outs], [("ci", ci), *taps]
            x, w, y = ["vn", channel, *self.seen], [filters, "vci", *kernel], ["vn", filters, *point]
        target = f"{into}[{', '.join(y)}]"
        axes = [(a, e, "S") for a, e in spatial] + [(a, e, "R") for a, e in reduce]
        update = f"{target} = {target} + {program.load(source, x)} * {program.load('w', w)}"
        program.add("conv", axes, update, f"{target} = {program.zero()}")

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x, w = arrays["x"], arrays["w"]
        if self.is_last:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
        g, ci, co = self.groups, self.ci // self.groups, self.co // self.groups
        pixels = int(np.prod(self.outs))
        image = self.padded(x, self.fill)
        image = image.reshape(self.n, g, ci, *image.shape[2:])
        weights = w.reshape(g, co, ci, *self.taps)
        total = np.zeros((self.n, g, co, pixels), np.result_type(x, w))
        for at in self.all_taps():
            seen = self.tap(image, at).reshape(self.n, g, ci, pixels)
            total += np.ascontiguousarray(weights[(None, ..., *at)]) @ seen
        y = total.reshape(self.n, self.co, *self.outs)
        if self.has_bias:
            y += arrays["bias"].reshape(-1, *[1] * len(self.space))
        return {"y": np.ascontiguousarray(np.moveaxis(y, 1, -1)) if self.is_last else y}


@dataclass(frozen=True)
class Conv1d(Window1d, Conv):
    """A convolution along a row."""

    name: ClassVar[str] = "conv1d"
    summary: ClassVar[str] = "convolution along a row with zero padding; weights oiw for ncw, wio for nwc"
    order: ClassVar[tuple[str, ...]] = ("n", "ci", "w", "co", "k", "stride", "pad", "dilation", "groups", "layout")

    layout: str = param("ncw", "order of the axes of x and y", choices=("ncw", "nwc"))


@dataclass(frozen=True)
class Conv2d(Window2d, Conv):
    """A convolution of an image."""

    name: ClassVar[str] = "conv2d"
    summary: ClassVar[str] = "convolution with zero padding; weights oihw for nchw, hwio for nhwc"
    always_split: ClassVar[tuple[str, ...]] = ("k",)
    order: ClassVar[tuple[str, ...]] = (
        "n", "ci", "h", "w", "co", "k", "stride", "pad", "dilation", "groups", "layout",
    )  # fmt: skip

    layout: str = param("nchw", "order of the axes of x and y", choices=("nchw", "nhwc"))


@dataclass(frozen=True)
class Conv3d(Window3d, Conv):
    """A convolution of a volume."""

    name: ClassVar[str] = "conv3d"
    summary: ClassVar[str] = "convolution of a volume with zero padding; weights oidhw for ncdhw, dhwio for ndhwc"
    order: ClassVar[tuple[str, ...]] = (
        "n", "ci", "d", "h", "w", "co", "k", "stride", "pad", "dilation", "groups", "layout",
    )  # fmt: skip

    ci: int = param(16, "input channels")
    co: int = param(16, "output channels")
    layout: str = param("ncdhw", "order of the axes of x and y", choices=("ncdhw", "ndhwc"))


@dataclass(frozen=True)
class Conv2dBiasAct(Conv2d):
    """``y = act(conv2d(x, w) + bias)``, as a chain of blocks."""

    name: ClassVar[str] = "conv2d_bias_act"
    summary: ClassVar[str] = "conv2d, plus a bias for each output channel, then an activation"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    constants: ClassVar[tuple[str, ...]] = ("w", "bias")
    order: ClassVar[tuple[str, ...]] = (*Conv2d.order, "act")

    act: str = param("relu", "activation", choices=NAMES)

    @property
    def has_bias(self) -> bool:
        return True

    def steps(self, program: Program) -> list[Step]:
        return [*super().steps(program), ACTIVATIONS[self.act].step(program.precision.accumulator)]

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        return {"y": ACTIVATIONS[self.act].compute(super().compute(arrays)["y"])}
