"""Chains of elementwise operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .operator import Array, Arrays, Operator, param
from .text import block, function, literal


@dataclass(frozen=True)
class ScaleShiftRelu(Operator):
    """``y[i, j] = max(x[i, j] scale[j] + shift[j], 0)``, as a chain of three blocks."""

    name: ClassVar[str] = "scale_shift_relu"
    summary: ClassVar[str] = "chain of three elementwise stages"
    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")

    def buffers(self) -> dict[str, tuple[int, ...]]:
        shape = (self.rows, self.cols)
        return {"x": shape, "scale": (self.cols,), "shift": (self.cols,), "y": shape}

    def script(self, dtype: str) -> str:
        stages = (
            ("scaled", "t[vi0, vj0] = x[vi0, vj0] * scale[vj0]"),
            ("shifted", "u[vi1, vj1] = t[vi1, vj1] + shift[vj1]"),
            ("positive", f"y[vi2, vj2] = T.max(u[vi2, vj2], {literal(0, dtype)})"),
        )
        blocks = [
            block(name, [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "S")], body)
            for index, (name, body) in enumerate(stages)
        ]
        allocs = [("t", (self.rows, self.cols)), ("u", (self.rows, self.cols))]
        return function(self.name, dtype, list(self.buffers().items()), blocks, allocs)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        return {"y": np.maximum(x * arrays["scale"] + arrays["shift"], x.dtype.type(0))}
