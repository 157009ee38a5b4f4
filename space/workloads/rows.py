"""Reductions along the rows of a matrix, and what is built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import Array, Arrays, Operator, param
from .text import block, function, literal

FLOATS = ("float32", "float64", "float16")
EPSILON = 1e-5


@dataclass(frozen=True)
class Rows(Operator):
    """A matrix of `rows` by `cols`."""

    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")

    def reduction(self, name: str, target: str, start: float, update: str, dtype: str, index: str) -> str:
        """A block ``target[row] = update`` over a row, from `start`; `index` sets its loops' names apart."""
        axes = [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "R")]
        return block(name, axes, f"{target}[vi{index}] = {update}", f"{target}[vi{index}] = {literal(start, dtype)}")


@dataclass(frozen=True)
class RowSum(Rows):
    """``y[i] = sum over j of x[i, j]``."""

    name: ClassVar[str] = "row_sum"
    summary: ClassVar[str] = "sum of every row"

    def buffers(self) -> dict[str, tuple[int, ...]]:
        return {"x": (self.rows, self.cols), "y": (self.rows,)}

    def script(self, dtype: str) -> str:
        total = self.reduction("row_sum", "y", 0, "y[vi] + x[vi, vj]", dtype, "")
        return function(self.name, dtype, list(self.buffers().items()), [total])

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        return {"y": arrays["x"].sum(axis=1, dtype=arrays["x"].dtype)}


@dataclass(frozen=True)
class Softmax(Rows):
    """``y[i, j] = exp(x[i, j] - m[i]) / sum over k of exp(x[i, k] - m[i])`` with ``m[i]`` the row's maximum."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax of every row"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def buffers(self) -> dict[str, tuple[int, ...]]:
        return {"x": (self.rows, self.cols), "y": (self.rows, self.cols)}

    def script(self, dtype: str) -> str:
        blocks = [
            self.reduction("peak", "m", float("-inf"), "T.max(m[vi0], x[vi0, vj0])", dtype, "0"),
            self._map("power", "e[vi1, vj1] = T.exp(x[vi1, vj1] - m[vi1])", "1"),
            self.reduction("total", "s", 0, "s[vi2] + e[vi2, vj2]", dtype, "2"),
            self._map("share", "y[vi3, vj3] = e[vi3, vj3] / s[vi3]", "3"),
        ]
        allocs = [("m", (self.rows,)), ("e", (self.rows, self.cols)), ("s", (self.rows,))]
        return function(self.name, dtype, list(self.buffers().items()), blocks, allocs)

    def _map(self, name: str, body: str, index: str) -> str:
        return block(name, [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "S")], body)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": e / e.sum(axis=1, keepdims=True)}


@dataclass(frozen=True)
class LayerNorm(Rows):
    """``y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta``, mean and variance over each row."""

    name: ClassVar[str] = "layernorm"
    summary: ClassVar[str] = "every row to mean 0 and variance 1, then scaled and shifted by column"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def buffers(self) -> dict[str, tuple[int, ...]]:
        shape = (self.rows, self.cols)
        return {"x": shape, "gamma": (self.cols,), "beta": (self.cols,), "y": shape}

    def script(self, dtype: str) -> str:
        count, epsilon = literal(self.cols, dtype), literal(EPSILON, dtype)
        centred = f"(x[vi1, vj1] - s[vi1] / {count})"
        result = (
            f"y[vi2, vj2] = (x[vi2, vj2] - s[vi2] / {count}) * T.rsqrt(q[vi2] / {count} + {epsilon})"
            " * gamma[vj2] + beta[vj2]"
        )
        blocks = [
            self.reduction("total", "s", 0, "s[vi0] + x[vi0, vj0]", dtype, "0"),
            self.reduction("spread", "q", 0, f"q[vi1] + {centred} * {centred}", dtype, "1"),
            block("normal", [("i2", self.rows, "S"), ("j2", self.cols, "S")], result),
        ]
        allocs = [("s", (self.rows,)), ("q", (self.rows,))]
        return function(self.name, dtype, list(self.buffers().items()), blocks, allocs)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        return {"y": centred / np.sqrt(variance + x.dtype.type(EPSILON)) * arrays["gamma"] + arrays["beta"]}
