"""Reductions, norms, variances, running sums, and where the largest element stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .call import Call, Convert, Result, Unsupported


@dataclass(frozen=True)
class Reduced:
    """What is reduced: a tensor of the result's type, over which dimensions, and whether these are kept."""

    tensor: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    keeps: bool

    @property
    def count(self) -> int:
        """Elements for each of the result."""
        return math.prod(self.shape[at] for at in self.axes)

    @property
    def kept(self) -> tuple[int, ...]:
        """The result's shape with all dimensions."""
        return tuple(1 if at in self.axes else extent for at, extent in enumerate(self.shape))

    @property
    def result(self) -> tuple[int, ...]:
        return self.kept if self.keeps else tuple(e for at, e in enumerate(self.shape) if at not in self.axes)


def _reduced(call: Call, dtype: str) -> Reduced:
    """What a call reduces, in the type `dtype`.  Raises Unsupported for a tensor without dimensions."""
    shape = call.shape("self")
    if not shape:
        raise Unsupported(f"{call.node.target} of a tensor without dimensions has no program")
    given = call.numbers("dim") if call.has("dim") else []
    axes = tuple(sorted({at % len(shape) for at in given})) or tuple(range(len(shape)))
    keeps = call.has("keepdim") and bool(call["keepdim"])
    return Reduced(call.cast(call.tensor("self"), dtype), shape, axes, keeps)


def _part(call: Call, op: str, found: Reduced, tensor: str = "") -> str:
    """Emit a reduction of what is reduced, or of another tensor that lies so."""
    return call.part(op, [tensor or found.tensor], found.result, axes=list(found.axes), keepdims=int(found.keeps))


def _reduction(op: str) -> Convert:
    def convert(call: Call) -> Result:
        return _part(call, op, _reduced(call, call.result().dtype))

    return convert


def _extreme(op: str, places: str) -> Convert:
    """The largest or smallest elements along one dimension, and where the first of each stands."""

    def convert(call: Call) -> Result:
        found = _reduced(call, call.result(0).dtype)
        (axis,) = found.axes
        where = call.part(places, [found.tensor], found.result, "int64", axis=axis, keepdims=int(found.keeps))
        return _part(call, op, found), where

    return convert


def _place(op: str) -> Convert:
    def convert(call: Call) -> Result:
        tensor, shape = call.tensor("self"), call.shape("self")
        if call.has("dim"):
            return call.last(op, [tensor], axis=call.axis("dim", len(shape)), keepdims=int(call["keepdim"]))
        flat = call.reshaped(tensor, (math.prod(shape),))
        return call.last("Reshape", [call.part(op, [flat], (1,), "int64", axis=0, keepdims=1)])

    return convert


def _truth(op: str) -> Convert:
    """Whether any element is not 0, or all are: the largest or smallest of their truths."""

    def convert(call: Call) -> Result:
        shape = call.shape("self")
        found = _reduced(call, "bool")
        number = call.part("Cast", [found.tensor], shape, "int32")
        return call.last("Cast", [_part(call, op, found, number)])

    return convert


def _running_sum(call: Call) -> Result:
    tensor = call.cast(call.tensor("self"), call.result().dtype)
    return call.last("CumSum", [tensor, call.shape_of([call.axis("dim", len(call.shape("self")))])])


def _norm(call: Call) -> Result:
    """``(sum of |x| ** p) ** (1 / p)``, and what it tends to for infinite p."""
    dtype, p = call.result().dtype, float(call["ord"])
    found = _reduced(call, dtype)
    if p in (1.0, 2.0):
        return _part(call, f"ReduceL{int(p)}", found)
    size = call.part("Abs", [found.tensor], found.shape)
    if math.isinf(p):
        return _part(call, "ReduceMax" if p > 0 else "ReduceMin", found, size)
    if p == 0.0:
        raise Unsupported("a norm of order 0, which counts elements, has no program")
    powers = call.part("Pow", [size, call.number(p, dtype)], found.shape)
    return call.part("Pow", [_part(call, "ReduceSum", found, powers), call.number(1 / p, dtype)], found.result)


def _variance(call: Call, dtype: str) -> tuple[str, str]:
    """The variance and the mean, both in `dtype`; halves are computed in float32."""
    wide = "float32" if dtype == "float16" else dtype
    found = _reduced(call, wide)
    correction = float(call["correction"]) if call.has("correction") else 1.0
    if found.count <= correction:
        raise Unsupported(f"{call.node.target} of as few elements as its correction has no program")
    mean = call.part("ReduceMean", [found.tensor], found.kept, axes=list(found.axes), keepdims=1)
    apart = call.part("Sub", [found.tensor, mean], found.shape)
    variance = _part(call, "ReduceMean", found, call.part("Mul", [apart, apart], found.shape))
    if correction:
        share = call.number(found.count / (found.count - correction), wide)
        variance = call.part("Mul", [variance, share], found.result)
    return call.cast(variance, dtype), call.cast(call.reshaped(mean, found.result), dtype)


def _deviation(call: Call) -> Result:
    variance, _ = _variance(call, call.result().dtype)
    return call.part("Sqrt", [variance], call.type(variance).shape)


CONVERT: Mapping[str, Convert] = {
    "mean.dim": _reduction("ReduceMean"),
    "mean": _reduction("ReduceMean"),
    "sum.dim_IntList": _reduction("ReduceSum"),
    "sum": _reduction("ReduceSum"),
    "prod.dim_int": _reduction("ReduceProd"),
    "prod": _reduction("ReduceProd"),
    "logsumexp": _reduction("ReduceLogSumExp"),
    "amax": _reduction("ReduceMax"),
    "max": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "min": _reduction("ReduceMin"),
    "max.dim": _extreme("ReduceMax", "ArgMax"),
    "min.dim": _extreme("ReduceMin", "ArgMin"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    **{f"any{kind}": _truth("ReduceMax") for kind in ("", ".dim", ".dims")},
    **{f"all{kind}": _truth("ReduceMin") for kind in ("", ".dim", ".dims")},
    "cumsum": _running_sum,
    "linalg_vector_norm": _norm,
    "var.correction": lambda call: _variance(call, call.result().dtype)[0],
    "std.correction": _deviation,
    "var_mean.correction": lambda call: _variance(call, call.result(0).dtype),
}
