"""Chains of elementwise operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .activations import ACTIVATIONS, NAMES
from .operator import FLOATS, Array, Arrays, Operator, param
from .text import Program, Shape


@dataclass(frozen=True)
class Matrices(Operator):
    """Matrices of `rows` by `cols`."""

    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")


@dataclass(frozen=True)
class ScaleShiftRelu(Matrices):
    """``y[i, j] = max(x[i, j] scale[j] + shift[j], 0)``, as a chain of three blocks."""

    name: ClassVar[str] = "scale_shift_relu"
    summary: ClassVar[str] = "chain of three elementwise stages"

    def buffers(self) -> dict[str, Shape]:
        shape = (self.rows, self.cols)
        return {"x": shape, "scale": (self.cols,), "shift": (self.cols,), "y": shape}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shapes[name]) for name in ("x", "scale", "shift")])
        program.output("y", shapes["y"])
        types = program.precision
        steps = (
            ("scaled", f"t[vi0, vj0] = {types.widen('x[vi0, vj0]')} * {types.widen('scale[vj0]')}"),
            ("shifted", f"u[vi1, vj1] = t[vi1, vj1] + {types.widen('shift[vj1]')}"),
            ("positive", f"y[vi2, vj2] = {types.narrow(f'T.max(u[vi2, vj2], T.{types.accumulator}(0))')}"),
        )
        program.alloc("t", shapes["y"])
        program.alloc("u", shapes["y"])
        for index, (name, body) in enumerate(steps):
            program.add(name, [(f"i{index}", self.rows, "S"), (f"j{index}", self.cols, "S")], body)
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        return {"y": np.maximum(x * arrays["scale"] + arrays["shift"], x.dtype.type(0))}


@dataclass(frozen=True)
class AddAct(Matrices):
    """``y[i, j] = act(x[i, j] + z[i, j])``: what follows a residual branch."""

    name: ClassVar[str] = "add_act"
    summary: ClassVar[str] = "sum of two matrices, then an activation"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    order: ClassVar[tuple[str, ...]] = (*Matrices.order, "act")

    act: str = param("relu", "activation", choices=NAMES)

    def buffers(self) -> dict[str, Shape]:
        shape = (self.rows, self.cols)
        return {"x": shape, "z": shape, "y": shape}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"]), ("z", shapes["z"])])
        program.output("y", shapes["y"])
        types = program.precision
        axes = [("i", self.rows), ("j", self.cols)]
        value = types.widen("{v}") + " + " + types.widen("z[vi{i}, vj{i}]")
        program.stages("y", "x", axes, ["i", "j"], [("add", value), ACTIVATIONS[self.act].step(types.accumulator)])
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        return {"y": ACTIVATIONS[self.act].compute(arrays["x"] + arrays["z"])}
