"""Normalisations of the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import FLOATS, Array, Arrays, Operator, hidden, param
from .text import Program, Shape, element, literal

EPSILON = 1e-5


@dataclass(frozen=True)
class Rows(Operator):
    """A matrix of `rows` by `cols`, whose rows are normalised; or a tensor of any rank, along dimensions of it."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")
    dims: tuple[int, ...] = hidden((), "the shape of x, where it is no matrix")
    over: tuple[int, ...] = hidden((1,), "the dimensions that are normalised together")

    @property
    def extents(self) -> Shape:
        """The shape of x."""
        return self.dims or (self.rows, self.cols)

    @property
    def kept(self) -> list[int]:
        """The dimensions along which nothing is normalised."""
        return [at for at in range(len(self.extents)) if at not in self.over]

    @property
    def count(self) -> int:
        """How many elements are normalised together."""
        return math.prod(self.extents[at] for at in self.over)

    def at(self, buffer: str, index: str, dims: Sequence[int] | None = None) -> str:
        """An element of a buffer that has the dimensions `dims`, all by default; `index` sets iterators apart."""
        which = range(len(self.extents)) if dims is None else dims
        return element(buffer, [f"v{_LETTERS[at]}{index}" for at in which])

    def part(self, buffer: str, index: str) -> str:
        """An element of a buffer with one for each row."""
        return self.at(buffer, index, self.kept)

    def reduction(self, program: Program, name: str, into: str, start: float, update: str, index: str) -> None:
        """Add ``into[row] = update`` over a row, from `start`; `index` sets its loops' names apart."""
        program.alloc(into, tuple(self.extents[at] for at in self.kept))
        target = self.part(into, index)
        axes = [(f"{_LETTERS[at]}{index}", self.extents[at], "S") for at in self.kept]
        axes += [(f"{_LETTERS[at]}{index}", self.extents[at], "R") for at in self.over]
        init = f"{target} = {literal(start, program.precision.accumulator)}"
        program.add(name, axes, f"{target} = {update}", init)

    def map(self, program: Program, name: str, body: str, index: str) -> None:
        """Add an elementwise block over the whole matrix."""
        program.add(name, [(f"{_LETTERS[at]}{index}", e, "S") for at, e in enumerate(self.extents)], body)


_LETTERS = "ijklmnopqrstuvw"


@dataclass(frozen=True)
class Softmax(Rows):
    """``y[i, j] = exp(x[i, j] - m[i]) / sum over k of exp(x[i, k] - m[i])`` with ``m[i]`` the row's maximum."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax of every row"

    logarithm: int = hidden(0, "1 for the logarithm of the result")

    def buffers(self) -> dict[str, Shape]:
        return {"x": self.extents, "y": self.extents}

    def script(self, dtype: str) -> str:
        program = Program("log_softmax" if self.logarithm else self.name, self.precision(dtype))
        program.inputs([("x", self.extents)])
        program.output("y", self.extents)
        types, part = program.precision, self.part
        x = [types.widen(self.at("x", index)) for index in "0123"]
        lowest = float("-inf")
        self.reduction(program, "peak", "m", lowest, f"T.max({part('m', '0')}, {x[0]})", "0")
        program.alloc("e", self.extents)
        self.map(program, "power", f"{self.at('e', '1')} = T.exp({x[1]} - {part('m', '1')})", "1")
        self.reduction(program, "total", "s", 0, f"{part('s', '2')} + {self.at('e', '2')}", "2")
        share = f"{self.at('e', '3')} / {part('s', '3')}"
        if self.logarithm:
            share = f"{x[3]} - {part('m', '3')} - T.log({part('s', '3')})"
        self.map(program, "share", f"{self.at('y', '3')} = {types.narrow(share)}", "3")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        centred = x - x.max(axis=self.over, keepdims=True)
        e = np.exp(centred)
        total = e.sum(axis=self.over, keepdims=True)
        return {"y": centred - np.log(total) if self.logarithm else e / total}


@dataclass(frozen=True)
class LayerNorm(Rows):
    """``y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta``, mean and variance over each row."""

    name: ClassVar[str] = "layernorm"
    summary: ClassVar[str] = "every row to mean 0 and variance 1, then scaled and shifted by column"

    epsilon: float = hidden(EPSILON, "what is added to the variance")
    scaled: tuple[int, ...] = hidden(
        (), "the dimensions of gamma and beta, where they are not those that are normalised"
    )
    shifts: int = hidden(1, "0 where there is no beta")

    @property
    def columns(self) -> Shape:
        """The dimensions of gamma and beta."""
        return self.scaled or self.over

    def buffers(self) -> dict[str, Shape]:
        column = tuple(self.extents[at] for at in self.columns)
        beta = {"beta": column} if self.shifts else {}
        return {"x": self.extents, "gamma": column, **beta, "y": self.extents}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shape) for name, shape in shapes.items() if name != "y"])
        program.output("y", shapes["y"])
        types, part = program.precision, self.part
        x = [types.widen(self.at("x", index)) for index in "012"]
        count, epsilon = literal(self.count, types.accumulator), literal(self.epsilon, types.accumulator)
        centred = f"({x[1]} - {part('s', '1')} / {count})"
        result = f"({x[2]} - {part('s', '2')} / {count}) * T.rsqrt({part('q', '2')} / {count} + {epsilon})"
        result += f" * {types.widen(self.at('gamma', '2', self.columns))}"
        if self.shifts:
            result += f" + {types.widen(self.at('beta', '2', self.columns))}"
        self.reduction(program, "total", "s", 0, f"{part('s', '0')} + {x[0]}", "0")
        self.reduction(program, "spread", "q", 0, f"{part('q', '1')} + {centred} * {centred}", "1")
        self.map(program, "normal", f"{self.at('y', '2')} = {types.narrow(result)}", "2")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        centred = x - x.mean(axis=self.over, keepdims=True)
        variance = (centred * centred).mean(axis=self.over, keepdims=True)
        column = tuple(e if at in self.columns else 1 for at, e in enumerate(self.extents))
        y = centred / np.sqrt(variance + x.dtype.type(self.epsilon)) * arrays["gamma"].reshape(column)
        return {"y": y + arrays["beta"].reshape(column) if self.shifts else y}
