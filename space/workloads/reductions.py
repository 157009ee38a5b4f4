"""Reductions along the rows or the columns of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .operator import DTYPES, FLOATS, Array, Arrays, Operator, param
from .precision import Precision, plain, precision
from .text import Program, Shape, literal


@dataclass(frozen=True)
class Reduction(Operator):
    """``y[kept] = op over the other axis of x[rows, cols]``; the mean divides the sum at the end."""

    op: ClassVar[str]
    over: ClassVar[str]
    order: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int = param(1024, "rows of x")
    cols: int = param(1024, "columns of x")

    @property
    def axis(self) -> int:
        """The axis of x that is reduced."""
        return 1 if self.over == "row" else 0

    def precision(self, dtype: str) -> Precision:
        return plain(dtype) if self.op == "max" else precision(dtype)

    def buffers(self) -> dict[str, Shape]:
        return {"x": (self.rows, self.cols), "y": ((self.rows, self.cols)[1 - self.axis],)}

    def script(self, dtype: str) -> str:
        shapes = self.buffers()
        program = Program(self.name, self.precision(dtype))
        program.inputs([("x", shapes["x"])])
        program.output("y", shapes["y"])
        types = program.precision
        mean = "{v} / " + literal(shapes["x"][self.axis], types.accumulator)
        steps = [("mean", mean)] if self.op == "mean" else [("store", "{v}")] if types.is_mixed else []
        total = program.alloc("total", shapes["y"]) if steps else "y"
        extents = {"i": self.rows, "j": self.cols}
        kept, gone = ("i", "j") if self.axis else ("j", "i")
        target, x = f"{total}[v{kept}]", types.widen("x[vi, vj]")
        update = f"T.max({target}, {x})" if self.op == "max" else f"{target} + {x}"
        start = literal(float("-inf") if self.op == "max" else 0, types.accumulator)
        axes = [(kept, extents[kept], "S"), (gone, extents[gone], "R")]
        program.add(self.name, axes, f"{target} = {update}", f"{target} = {start}")
        program.stages("y", total, [(kept, extents[kept])], [kept], steps)
        return program.text()

    def compute(self, arrays: Arrays) -> dict[str, Array]:
        x = arrays["x"]
        if self.op == "max":
            return {"y": x.max(axis=self.axis)}
        total: Array = x.sum(axis=self.axis, dtype=x.dtype)
        return {"y": total / x.dtype.type(x.shape[self.axis]) if self.op == "mean" else total}


def _reduction(over: str, op: str, summary: str, dtypes: tuple[str, ...]) -> type[Reduction]:
    body = {"__doc__": summary, "__module__": __name__, "name": f"{over}_{op}", "summary": summary, "op": op,
            "over": over, "dtypes": dtypes}  # fmt: skip
    made = type(f"{over.title()}{op.title()}", (Reduction,), body)
    return dataclass(frozen=True)(made)


REDUCTIONS: tuple[type[Reduction], ...] = (
    _reduction("row", "sum", "sum of every row", DTYPES),
    _reduction("row", "max", "largest value of every row", FLOATS),
    _reduction("row", "mean", "mean of every row", FLOATS),
    _reduction("col", "sum", "sum of every column", DTYPES),
    _reduction("col", "max", "largest value of every column", FLOATS),
    _reduction("col", "mean", "mean of every column", FLOATS),
)
