"""Matrix products, and what may be fused to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .activations import ACTIVATIONS, NAMES
from .operator import FLOATS, Array, Arrays, Operator, flag, param
from .text import Program, Shape, Step


@dataclass(frozen=True)
class Matmul(Operator):
    """``c[i, j] = sum over k of a[i, k] b[k, j]``, with either input stored transposed."""

    name: ClassVar[str] = "matmul"
    summary: ClassVar[str] = "product of two matrices"
    order: ClassVar[tuple[str, ...]] = ("m", "n", "k", "transpose_a", "transpose_b")

    m: int = param(1024, "rows of a and c")
    n: int = param(1024, "columns of b and c")
    k: int = param(1024, "columns of a, rows of b")
    transpose_a: int = flag(0, "1 if a is stored as [k, m]")
    transpose_b: int = flag(0, "1 if b is stored as [n, k]")

    @property
    def batch(self) -> list[tuple[str, int]]:
        """Loops over independent products."""
        return []

    def buffers(self) -> dict[str, Shape]:
        lead = tuple(e for _, e in self.batch)
        a = (self.k, self.m) if self.transpose_a else (self.m, self.k)
        b = (self.n, self.k) if self.transpose_b else (self.k, self.n)
        return {"a": (*lead, *a), "b": (*lead, *b), "c": (*lead, self.m, self.n)}

    def steps(self, program: Program) -> list[Step]:
        """What is done to a sum before it is the result: nothing but its conversion."""
        return [("store", "{v}")] if program.precision.is_mixed else []

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([(name, shape) for name, shape in shapes.items() if name != "c"])
        program.output("c", shapes["c"])
        steps = self.steps(program)
        total = program.alloc("acc", shapes["c"]) if steps else "c"
        spatial = [*self.batch, ("i", self.m), ("j", self.n)]
        lead = [f"v{a}" for a, _ in self.batch]
        a = program.load("a", [*lead, *(("vk", "vi") if self.transpose_a else ("vi", "vk"))])
        b = program.load("b", [*lead, *(("vj", "vk") if self.transpose_b else ("vk", "vj"))])
        target = f"{total}[{', '.join(f'v{name}' for name, _ in spatial)}]"
        axes = [(name, e, "S") for name, e in spatial] + [("k", self.k, "R")]
        program.add("matmul", axes, f"{target} = {target} + {a} * {b}", f"{target} = {program.zero()}")
        program.stages("c", total, spatial, [name for name, _ in spatial], steps)
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        a = np.swapaxes(arrays["a"], -1, -2) if self.transpose_a else arrays["a"]
        b = np.swapaxes(arrays["b"], -1, -2) if self.transpose_b else arrays["b"]
        return {"c": a @ b}


@dataclass(frozen=True)
class BatchMatmul(Matmul):
    """``c[s, i, j] = sum over k of a[s, i, k] b[s, k, j]``, with either input stored transposed."""

    name: ClassVar[str] = "batch_matmul"
    summary: ClassVar[str] = "products of pairs of matrices"
    order: ClassVar[tuple[str, ...]] = ("b", *Matmul.order)

    b: int = param(8, "pairs of matrices")

    @property
    def batch(self) -> list[tuple[str, int]]:
        return [("s", self.b)]


@dataclass(frozen=True)
class MatmulBiasAct(Matmul):
    """``c = act(a @ b + bias)``, as a chain of blocks."""

    name: ClassVar[str] = "matmul_bias_act"
    summary: ClassVar[str] = "matmul, plus a bias for each column, then an activation"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    constants: ClassVar[tuple[str, ...]] = ("b", "bias")
    order: ClassVar[tuple[str, ...]] = (*Matmul.order, "act")

    act: str = param("relu", "activation", choices=NAMES)

    def buffers(self) -> dict[str, Shape]:
        shapes = super().buffers()
        return {"a": shapes["a"], "b": shapes["b"], "bias": (self.n,), "c": shapes["c"]}

    def steps(self, program: Program) -> list[Step]:
        types = program.precision
        return [("bias", "{v} + " + types.widen("bias[vj{i}]")), ACTIVATIONS[self.act].step(types.accumulator)]

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        return {"c": ACTIVATIONS[self.act].compute(super().compute(arrays)["c"] + arrays["bias"])}
