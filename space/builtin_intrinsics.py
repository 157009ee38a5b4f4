"""The intrinsics that are there without registration: vector multiply-adds and fused dot products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.caches import cached
from ..ir.stmt import PrimFunc
from .tensor_intrinsics import TensorIntrin, checked

FMA_LANES = {"float32": (4, 8, 16), "float64": (2, 4, 8)}
DOT_TERMS = (4, 8, 16)

_FMA_DESC = """
@T.prim_func
def desc(a: T.Buffer((1,), "{dtype}"), b: T.Buffer(({lanes},), "{dtype}"), c: T.Buffer(({lanes},), "{dtype}")):
    for i in range({lanes}):
        with T.block("fma"):
            vi = T.axis.spatial({lanes}, i)
            c[vi] = c[vi] + a[0] * b[vi]
"""

_FMA_IMPL = """
@T.prim_func
def impl(a: T.Buffer((1,), "{dtype}"), b: T.Buffer(({lanes},), "{dtype}"), c: T.Buffer(({lanes},), "{dtype}")):
    c[T.Ramp(0, 1, {lanes})] = T.fma(T.Broadcast(a[0], {lanes}), b[T.Ramp(0, 1, {lanes})], c[T.Ramp(0, 1, {lanes})])
"""

_DOT_DESC = """
@T.prim_func
def desc(a: T.Buffer(({terms},), "int8"), b: T.Buffer(({terms},), "int8"), c: T.Buffer((1,), "int32")):
    for k in range({terms}):
        with T.block("dot"):
            vk = T.axis.reduce({terms}, k)
            c[0] = c[0] + T.Cast("int32", a[vk]) * T.Cast("int32", b[vk])
"""

_DOT_IMPL = """
@T.prim_func
def impl(a: T.Buffer(({terms},), "int8"), b: T.Buffer(({terms},), "int8"), c: T.Buffer((1,), "int32")):
    c[0] = c[0] + ({sum})
"""


def _parsed(text: str) -> PrimFunc:
    from ..ir.script.parser import parse

    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


@cached(64)
def fma(dtype: str, lanes: int) -> TensorIntrin:
    """``c[i] += a * b[i]`` in one vector instruction."""
    desc, impl = (text.format(dtype=dtype, lanes=lanes) for text in (_FMA_DESC, _FMA_IMPL))
    return checked(_parsed(desc), _parsed(impl))


@cached(64)
def dot(terms: int) -> TensorIntrin:
    """``c += sum over k of a[k] b[k]`` of bytes, as one expression with a single store."""
    total = " + ".join(f'T.Cast("int32", a[{k}]) * T.Cast("int32", b[{k}])' for k in range(terms))
    return checked(_parsed(_DOT_DESC.format(terms=terms)), _parsed(_DOT_IMPL.format(terms=terms, sum=total)))


BUILTIN: dict[str, Callable[[], TensorIntrin]] = {
    **{f"fma_{d}x{n}": partial(fma, d, n) for d, widths in FMA_LANES.items() for n in widths},
    **{f"dot_int8x{n}_int32": partial(dot, n) for n in DOT_TERMS},
}
"""Each is built and checked when it is first used."""
