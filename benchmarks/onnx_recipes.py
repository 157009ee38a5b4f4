"""How models of one operator are drawn, by the operator; what moves elements without computing is in `onnx_moves`.

What ONNX leaves undefined is not drawn: integers divided by 0, numbers cast to integers that do not hold them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper
from onnx_cases import EXTENTS, Draw, Recipe, Shape


def _unary(**choices: Sequence[Any]) -> Recipe:
    def recipe(d: Draw) -> None:
        d.add("x", d.array(d.shape(), d.dtype()), False)
        d.give(**{name: d.pick(*some) for name, some in choices.items() if d.chance(0.7)})

    return recipe


def broadcast(d: Draw, shape: Shape, one_way: bool = False) -> Shape:
    """A shape that can be broadcast with `shape`."""
    kept = shape[int(d.rng.integers(len(shape) + 1)) :] if d.chance(0.5) else shape
    found = [1 if d.chance(0.3) else e for e in kept]
    if not one_way and len(found) == len(shape) and d.chance(0.15):
        found = [int(d.pick(1, 3)), *found]
    return tuple(found)


def _opened(d: Draw, shape: Shape, other: Shape) -> Shape:
    """`shape` with extents of 1 where `other` has more of them."""
    lead = len(shape) - len(other)
    return tuple(1 if at >= lead and d.chance(0.2) else e for at, e in enumerate(shape))


def _binary(d: Draw) -> None:
    shape = d.shape()
    other = broadcast(d, shape)
    first, second = d.dtype(0), d.dtype(1)
    kinds = ["", ""]
    if d.op in ("Div", "Mod"):
        kinds = ["whole", "nonzero"] if "int" in first else ["", ""]
        if d.op == "Mod" and "float" in first:
            d.values["fmod"], kinds = 1, ["whole", "nonzero"]
        elif d.op == "Mod" and d.chance(0.4):
            d.values["fmod"] = 1
    if d.op == "Pow" and "int" in first:
        kinds = ["whole", "positive"]
    if d.op == "BitShift":
        d.values["direction"], kinds = d.pick("LEFT", "RIGHT"), ["", "positive"]
    operands = [d.array(_opened(d, shape, other), first, kinds[0]), d.array(other, second, kinds[1])]
    if d.op == "Pow" and d.chance(0.5):
        power = d.pick(2, 3, 0.5, -1, 0, 1, -2, 1.5)
        operands[1] = np.array(abs(int(power)) if "int" in second else power, second)
    if d.chance(0.3) and first == second and kinds == ["", ""]:
        operands.reverse()
    d.add("a", operands[0])
    d.add("b", operands[1], "a" not in d.constants and d.chance(0.3))


def _variadic(d: Draw) -> None:
    shape, dtype = d.shape(), d.dtype()
    for at in range(int(d.rng.integers(1, 5))):
        kind = "whole" if d.op in ("Sum", "Mean") and d.chance(0.7) else ""
        own = shape if d.opset < 8 or not at else broadcast(d, shape)
        d.add(f"x{at}", d.array(own, dtype, kind), at > 0 and d.chance(0.2))


def _clip(d: Draw) -> None:
    dtype = d.dtype()
    d.add("x", d.array(d.shape(), dtype), False)
    low, high = (np.array(d.pick(*((-3, 0, 2, 5) if dtype[0] != "u" else (0, 2, 5))), dtype) for _ in range(2))
    if "float" in dtype and d.chance(0.1):
        low = np.array(-math.inf, dtype)
    if d.opset < 11:
        d.give(**({"min": float(low)} if d.chance(0.7) else {}), **({"max": float(high)} if d.chance(0.7) else {}))
        return
    d.add("min", low if d.chance(0.7) else None)
    d.add("max", high if d.chance(0.7) else None)


def _cast(d: Draw) -> None:
    first, second = d.dtype(0), d.dtype(-1)
    kind = "whole" if "int" in second and "float" in first else ""
    x = d.array(d.shape(), first, kind)
    if kind and second == "uint8":
        x = np.abs(x)
    elif kind and d.chance(0.5):
        x = x + np.asarray(d.pick(0.5, -0.75, 0.25), first)
    if kind:
        x = np.clip(x, -100, 100).astype(first)
    d.add("x", x, False)
    if d.op == "CastLike":
        d.add("like", np.zeros(2, second))
    else:
        d.values["to"] = int(helper.np_dtype_to_tensor_dtype(np.dtype(second)))


def _where(d: Draw) -> None:
    shape, dtype = d.shape(), d.dtype(1)
    d.add("condition", d.array(broadcast(d, shape, True), "bool"))
    d.add("x", d.array(shape, dtype), False)
    d.add("y", d.array(broadcast(d, shape), dtype))


def _prelu(d: Draw) -> None:
    shape, dtype = d.shape(1), d.dtype()
    d.add("x", d.array(shape, dtype), False)
    d.add("slope", d.array(broadcast(d, shape, True), dtype))


def _expand(d: Draw) -> None:
    shape = d.shape()
    other = [int(d.pick(1, 2, 3)), *shape] if d.chance(0.4) else [e if d.chance(0.5) else 1 for e in shape]
    d.add("x", d.array(tuple(1 if d.chance(0.4) else e for e in shape), d.dtype()), False)
    d.add("shape", np.array(other, np.int64), True)


def _batch_normalization(d: Draw) -> None:
    shape = d.shape(2, 5)
    d.add("x", d.array(shape, d.dtype(0), "plain"), False)
    for at, name in enumerate(("scale", "bias", "mean", "var"), 1):
        d.add(name, d.array(shape[1:2], d.dtype(at), "positive" if name == "var" else "plain"), d.chance(0.8))
    d.give(epsilon=d.pick(1e-5, 1e-3, 0.0, 0.5), momentum=d.pick(0.9, 0.1))


def _axes_of(d: Draw, rank: int) -> list[int]:
    count = int(d.rng.integers(1, rank + 1)) if rank else 0
    found = [int(a) for a in d.rng.permutation(rank)[:count]]
    return [a - rank if d.chance(0.4) else a for a in found]


def _reduction(d: Draw) -> None:
    shape, dtype = d.shape(0, 5, 0.04), d.dtype()
    kind = d.pick("plain", "whole", "infinite") if d.op not in ("ReduceMax", "ReduceMin") else ""
    if "int" in dtype:
        kind = d.pick("", "plain")
    x = d.array(shape, dtype, kind)
    if d.op == "ReduceProd" and "float" in dtype:  # whose products neither overflow nor vanish in any order
        x = d.rng.choice([1, 1, 1, -1, 2, 0.5], shape).astype(dtype)
    d.add("x", x, False)
    d.give(keepdims=d.pick(0, 1, None), noop_with_empty_axes=d.pick(0, 1, None))
    axes = _axes_of(d, len(shape)) if shape and d.chance(0.8) else d.pick(None, [])
    if d.opset < 11 and axes:
        axes = [a % len(shape) for a in axes]
    d.integers("axes", axes if axes or "axes" not in d.schema.attributes else None)


def _arg(d: Draw) -> None:
    shape = d.shape(1, 5, 0.0)
    d.add("x", d.array(shape, d.dtype()), False)
    axis = int(d.rng.integers(-len(shape) if d.opset >= 11 else 0, len(shape)))
    d.give(axis=d.pick(axis, axis, None), keepdims=d.pick(0, 1, None), select_last_index=d.pick(0, 1, None))


def _cumsum(d: Draw) -> None:
    shape = d.shape(1, 4)
    d.add("x", d.array(shape, d.dtype(), d.pick("whole", "plain")), False)
    d.add("axis", np.array(int(d.rng.integers(-len(shape), len(shape))), d.pick("int32", "int64")), True)
    d.give(exclusive=d.pick(0, 1, None), reverse=d.pick(0, 1, None))


def _rows(d: Draw) -> None:
    shape = d.shape(1, 5)
    d.add("x", d.array(shape, d.dtype(), d.pick("plain", "whole", "infinite")), False)
    axis = int(d.rng.integers(-len(shape) if d.opset >= 11 else 0, len(shape)))
    d.give(axis=axis if d.chance(0.8) or len(shape) < 2 else None, p=d.pick(1, 2, None))


def _layer_normalization(d: Draw) -> None:
    shape, dtype = d.shape(1, 4), d.dtype()
    axis = int(d.rng.integers(-len(shape), len(shape)))
    d.add("x", d.array(shape, dtype, "plain"), False)
    d.add("scale", d.array(shape[axis:], dtype, "plain"))
    d.add("bias", d.array(shape[axis:], dtype, "plain") if d.chance(0.6) else None)
    d.give(axis=axis if axis != -1 or d.chance(0.5) else None, epsilon=d.pick(1e-5, 1e-2, None))


def _channel_normalization(d: Draw) -> None:
    shape, dtype = d.shape(3, 5, 0.0), d.dtype()
    d.add("x", d.array(shape, dtype, "plain"), False)
    if d.op == "MeanVarianceNormalization":
        if d.chance(0.6):
            d.give(axes=[a % len(shape) for a in _axes_of(d, len(shape))])
        elif len(shape) < 4:
            d.give(axes=[0, 2])
        return
    groups = shape[1]
    if d.op == "GroupNormalization":
        groups = int(d.pick(*[g for g in range(1, shape[1] + 1) if shape[1] % g == 0]))
        d.values["num_groups"] = groups
    count = groups if d.op == "GroupNormalization" and d.opset < 21 else shape[1]
    d.add("scale", d.array((count,), dtype, "plain"))
    d.add("bias", d.array((count,), dtype, "plain"))
    d.give(epsilon=d.pick(1e-5, 1e-2, None))


def _lrn(d: Draw) -> None:
    d.add("x", d.array(d.shape(3, 4, 0.0), d.dtype(), "plain"), False)
    alpha, beta, bias = d.pick(1e-4, 0.5, None), d.pick(0.75, 0.5, 1.0, None), d.pick(1.0, 2.0, None)
    d.give(size=int(d.pick(1, 2, 3, 4, 5)), alpha=alpha, beta=beta, bias=bias)


@dataclass
class _Windows:
    """Attributes of windows over an image that is large enough."""

    taps: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    auto: str
    sizes: list[int]


def _windows(d: Draw, rank: int, dilates: bool) -> _Windows:
    def several(*choices: int) -> list[int]:
        return [int(d.pick(*choices)) for _ in range(rank)]

    taps, strides = several(1, 2, 3, 3, 4), several(1, 1, 2, 3)
    dilations = several(1, 1, 2, 3) if dilates and d.chance(0.4) else [1] * rank
    auto = d.pick("NOTSET", "NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    spans = [s * (k - 1) + 1 for k, s in zip(taps, dilations, strict=True)]
    pads = [int(d.rng.integers(0, k)) for k in (*taps, *taps)] if auto == "NOTSET" and d.chance(0.7) else [0] * 2 * rank
    least = [max(1, span - p - q) for span, p, q in zip(spans, pads[:rank], pads[rank:], strict=True)]
    sizes = [int(size + d.rng.integers(0, 7)) for size in least]
    return _Windows(taps, strides, dilations, pads, auto, sizes)


def _give_windows(d: Draw, w: _Windows, shape_needed: bool) -> None:
    def some(numbers: list[int], default: int) -> list[int] | None:
        return numbers if any(n != default for n in numbers) or d.chance(0.3) else None

    d.give(
        kernel_shape=w.taps if shape_needed or d.chance(0.5) else None,
        strides=some(w.strides, 1),
        dilations=some(w.dilations, 1),
        pads=some(w.pads, 0) if w.auto == "NOTSET" else None,
        auto_pad=w.auto if w.auto != "NOTSET" or d.chance(0.2) else None,
    )


def _pool(d: Draw) -> None:
    rank = int(d.pick(1, 2, 2, 3))
    w = _windows(d, rank, "dilations" in d.schema.attributes)
    n, c = (int(d.pick(1, 2)) for _ in range(2))
    kind = "" if d.op == "MaxPool" else d.pick("plain", "whole", "infinite")
    d.add("x", d.array((n if not d.chance(0.01) else 0, c, *w.sizes), d.dtype(), kind), False)
    _give_windows(d, w, True)
    d.give(
        ceil_mode=d.pick(0, 1, 1, None), count_include_pad=d.pick(0, 1, None), p=d.pick(1, 2, 3, None),
        storage_order=0 if d.chance(0.1) else None,
    )  # fmt: skip
    if d.op == "MaxPool" and d.opset >= 8 and d.chance(0.1):
        d.outputs = 2


def _global(d: Draw) -> None:
    d.add("x", d.array(d.shape(3, 5, 0.0), d.dtype(), "" if "Max" in d.op else d.pick("plain", "whole")), False)
    d.give(p=d.pick(1, 2, 3, None))


def _conv(d: Draw) -> None:
    rank, groups = int(d.pick(1, 2, 2, 3)), int(d.pick(1, 1, 1, 2, 3))
    w = _windows(d, rank, True)
    ci, co = groups * int(d.pick(1, 2, 3)), groups * int(d.pick(1, 2))
    dtype = d.dtype(0)
    kind = d.pick("plain", "whole", "whole")
    weights = (ci, co // groups, *w.taps) if d.op == "ConvTranspose" else (co, ci // groups, *w.taps)
    if d.op == "ConvTranspose":
        w.sizes = [int(d.pick(1, 2, 3, 4, 5)) for _ in w.sizes]
    n = 0 if d.chance(0.01) else int(d.pick(1, 2))
    d.add("x", d.array((n, ci, *w.sizes), dtype, kind), False)
    d.add("w", d.array(weights, dtype, kind), d.chance(0.7))
    d.add("b", d.array((co,), dtype, kind) if d.chance(0.5) else None, d.chance(0.7))
    _give_windows(d, w, False)
    d.give(group=groups if groups > 1 or d.chance(0.3) else None)
    if d.op != "ConvTranspose":
        return
    if d.chance(0.4):
        d.give(output_padding=[int(d.rng.integers(0, max(s, t))) for s, t in zip(w.strides, w.dilations, strict=True)])
    spans = [s * (k - 1) + 1 for k, s in zip(w.taps, w.dilations, strict=True)]
    if d.chance(0.15):
        d.values.pop("pads", None)
        largest = [s * (e - 1) + span for s, e, span in zip(w.strides, w.sizes, spans, strict=True)]
        d.give(output_shape=[max(1, whole - int(d.rng.integers(0, 3))) for whole in largest])


def _matmul(d: Draw) -> None:
    m, k, n = (int(d.pick(*EXTENTS)) for _ in range(3))
    lead = d.shape(0, 2)
    dtype = d.dtype()
    kind = "plain" if "int" in dtype else d.pick("plain", "whole", "infinite")
    left, right = (*lead, m, k), (*broadcast(d, lead), k, n)
    if d.chance(0.15):
        left = (k,)
    elif d.chance(0.15):
        right = (k,)
    d.add("a", d.array(left, dtype, kind))
    d.add("b", d.array(right, dtype, kind), "a" not in d.constants and d.chance(0.3))


def _gemm(d: Draw) -> None:
    m, k, n = (int(d.pick(*EXTENTS)) for _ in range(3))
    dtype = d.dtype()
    a, b = int(d.chance(0.5)), int(d.chance(0.5))
    kind = d.pick("plain", "whole")
    d.add("a", d.array((k, m) if a else (m, k), dtype, kind), False)
    d.add("b", d.array((n, k) if b else (k, n), dtype, kind))
    bias = d.pick((), (1,), (n,), (1, n), (m, 1), (m, n), (1, 1))
    d.add("c", d.array(bias, dtype, kind) if d.opset < 11 or d.chance(0.7) else None)
    d.give(transA=a or None, transB=b or None)
    if "float" in dtype:
        d.give(alpha=d.pick(1.0, 0.5, 0.0, -2.0, None), beta=d.pick(1.0, 0.5, 0.0, -2.0, None))


EQUATIONS = (
    "ij,jk->ik", "bij,bkj->bik", "ij,ij->ij", "i,j->ij", "bhqd,bhkd->bhqk", "ij,kj->ki", "ab,ab->a", "ij,jk", "ij->ji",
    "ij->", "...i,i->...", "iI,Ik->ik", "ij,jk,kl->il",
)  # fmt: skip


def _einsum(d: Draw) -> None:
    equation = d.pick(*EQUATIONS)
    extents = {letter: int(d.pick(*EXTENTS)) for letter in "abcdefghijklmnopqIk"}
    dtype, kind = d.dtype(), d.pick("plain", "whole")
    for at, term in enumerate(equation.partition("->")[0].split(",")):
        shape = [extents[letter] for letter in term.replace("...", "ab")]
        d.add(f"x{at}", d.array(shape, dtype, kind), False)
    d.values["equation"] = equation


ARITHMETIC: Mapping[str, Recipe] = {
    **{op: _unary() for op in (
        "Abs", "Acosh", "Asinh", "Atanh", "BitwiseNot", "Ceil", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity",
        "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sinh", "Softplus",
        "Softsign", "Sqrt", "Tanh", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    )},
    "LeakyRelu": _unary(alpha=(0.01, 0.0, -0.5, 2.0)), "Elu": _unary(alpha=(1.0, 0.0, -0.5, 2.0)),
    "Celu": _unary(alpha=(1.0, 0.5, 3.0)), "Selu": _unary(alpha=(1.5, 0.0), gamma=(1.0, 0.5)),
    "ThresholdedRelu": _unary(alpha=(1.0, 0.0, -1.0)), "HardSigmoid": _unary(alpha=(0.2, 0.0, -1.0), beta=(0.5, 0.0)),
    "Gelu": _unary(approximate=("none", "tanh")), "Shrink": _unary(lambd=(0.5, 0.0, 1.5), bias=(0.0, 0.5, -1.0)),
    "IsInf": _unary(detect_negative=(0, 1), detect_positive=(0, 1)),
    **dict.fromkeys((
        "Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
        "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
    ), _binary),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), _variadic),
    "Clip": _clip, "Cast": _cast, "CastLike": _cast, "Where": _where, "PRelu": _prelu, "Expand": _expand,
    "BatchNormalization": _batch_normalization, "ArgMax": _arg, "ArgMin": _arg, "CumSum": _cumsum,
    **{f"Reduce{how}": _reduction for how in (
        "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp",
    )},
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"), _rows),
    "LayerNormalization": _layer_normalization, "LRN": _lrn,
    **dict.fromkeys(
        ("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"), _channel_normalization
    ),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), _global),
    "Conv": _conv, "ConvTranspose": _conv, "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum,
}  # fmt: skip
