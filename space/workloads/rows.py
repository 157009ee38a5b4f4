"""Normalisations of the rows of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import FLOATS, Array, Arrays, Operator, param
from .text import Program, Shape, literal

EPSILON = 1e-5


@dataclass(frozen=True)
class Rows(Operator):
    """A matrix of `rows` by `cols`."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")

    def reduction(self, program: Program, name: str, into: str, start: float, update: str, index: str) -> None:
        """Add ``into[row] = update`` over a row, from `start`; `index` sets its loops' names apart."""
        target = program.alloc(into, (self.rows,))
        axes = [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "R")]
        init = f"{target}[vi{index}] = {literal(start, program.precision.accumulator)}"
        program.add(name, axes, f"{target}[vi{index}] = {update}", init)

    def map(self, program: Program, name: str, body: str, index: str) -> None:
        """Add an elementwise block over the whole matrix."""
        program.add(name, [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "S")], body)


@dataclass(frozen=True)
class Softmax(Rows):
    """``y[i, j] = exp(x[i, j] - m[i]) / sum over k of exp(x[i, k] - m[i])`` with ``m[i]`` the row's maximum."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax of every row"

    def buffers(self) -> dict[str, Shape]:
        return {"x": (self.rows, self.cols), "y": (self.rows, self.cols)}

    def script(self, dtype: str) -> str:
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", (self.rows, self.cols))])
        program.output("y", (self.rows, self.cols))
        types = program.precision
        lowest = float("-inf")
        self.reduction(program, "peak", "m", lowest, f"T.max(m[vi0], {types.widen('x[vi0, vj0]')})", "0")
        program.alloc("e", (self.rows, self.cols))
        self.map(program, "power", f"e[vi1, vj1] = T.exp({types.widen('x[vi1, vj1]')} - m[vi1])", "1")
        self.reduction(program, "total", "s", 0, "s[vi2] + e[vi2, vj2]", "2")
        self.map(program, "share", f"y[vi3, vj3] = {types.narrow('e[vi3, vj3] / s[vi3]')}", "3")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": e / e.sum(axis=1, keepdims=True)}


@dataclass(frozen=True)
class LayerNorm(Rows):
    """``y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta``, mean and variance over each row."""

    name: ClassVar[str] = "layernorm"
    summary: ClassVar[str] = "every row to mean 0 and variance 1, then scaled and shifted by column"

    def buffers(self) -> dict[str, Shape]:
        shape = (self.rows, self.cols)
        return {"x": shape, "gamma": (self.cols,), "beta": (self.cols,), "y": shape}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shapes[name]) for name in ("x", "gamma", "beta")])
        program.output("y", shapes["y"])
        types = program.precision
        count, epsilon = literal(self.cols, types.accumulator), literal(EPSILON, types.accumulator)
        centred = f"({types.widen('x[vi1, vj1]')} - s[vi1] / {count})"
        result = (
            f"({types.widen('x[vi2, vj2]')} - s[vi2] / {count}) * T.rsqrt(q[vi2] / {count} + {epsilon})"
            f" * {types.widen('gamma[vj2]')} + {types.widen('beta[vj2]')}"
        )
        self.reduction(program, "total", "s", 0, f"s[vi0] + {types.widen('x[vi0, vj0]')}", "0")
        self.reduction(program, "spread", "q", 0, f"q[vi1] + {centred} * {centred}", "1")
        self.map(program, "normal", f"y[vi2, vj2] = {types.narrow(result)}", "2")
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        return {"y": centred / np.sqrt(variance + x.dtype.type(EPSILON)) * arrays["gamma"] + arrays["beta"]}
