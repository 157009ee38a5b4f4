"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .operator import Array, Arrays, Operator, param
from .text import block, function, literal


@dataclass(frozen=True)
class Matmul(Operator):
    """``c[i, j] = sum over k of a[i, k] b[k, j]``."""

    name: ClassVar[str] = "matmul"
    summary: ClassVar[str] = "product of two matrices"
    order: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    m: int = param(1024, "rows of a and c")
    n: int = param(1024, "columns of b and c")
    k: int = param(1024, "columns of a, rows of b")

    def buffers(self) -> dict[str, tuple[int, ...]]:
        return {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}

    def script(self, dtype: str) -> str:
        axes = [("i", self.m, "S"), ("j", self.n, "S"), ("k", self.k, "R")]
        body, init = "c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]", f"c[vi, vj] = {literal(0, dtype)}"
        return function(self.name, dtype, list(self.buffers().items()), [block("matmul", axes, body, init)])

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        return {"c": arrays["a"] @ arrays["b"]}


@dataclass(frozen=True)
class BatchMatmul(Matmul):
    """``c[s, i, j] = sum over k of a[s, i, k] b[s, k, j]``."""

    name: ClassVar[str] = "batch_matmul"
    summary: ClassVar[str] = "products of pairs of matrices"
    order: ClassVar[tuple[str, ...]] = ("b", "m", "n", "k")

    b: int = param(8, "pairs of matrices")

    def buffers(self) -> dict[str, tuple[int, ...]]:
        return {name: (self.b, *shape) for name, shape in super().buffers().items()}

    def script(self, dtype: str) -> str:
        axes = [("s", self.b, "S"), ("i", self.m, "S"), ("j", self.n, "S"), ("k", self.k, "R")]
        body = "c[vs, vi, vj] = c[vs, vi, vj] + a[vs, vi, vk] * b[vs, vk, vj]"
        init = f"c[vs, vi, vj] = {literal(0, dtype)}"
        return function(self.name, dtype, list(self.buffers().items()), [block("matmul", axes, body, init)])
