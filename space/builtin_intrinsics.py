"""The intrinsics that are there without registration, as text: vector multiply-adds and fused dot products."""

from __future__ import annotations

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


def _fma(dtype: str, lanes: int) -> tuple[str, str]:
    """``c[i] += a * b[i]`` in one vector instruction."""
    return _FMA_DESC.format(dtype=dtype, lanes=lanes), _FMA_IMPL.format(dtype=dtype, lanes=lanes)


def _dot(terms: int) -> tuple[str, str]:
    """``c += sum over k of a[k] b[k]`` of bytes, as one expression with a single store."""
    total = " + ".join(f'T.Cast("int32", a[{k}]) * T.Cast("int32", b[{k}])' for k in range(terms))
    return _DOT_DESC.format(terms=terms), _DOT_IMPL.format(terms=terms, sum=total)


BUILTIN: dict[str, tuple[str, str]] = {
    **{f"fma_{d}x{n}": _fma(d, n) for d, widths in FMA_LANES.items() for n in widths},
    **{f"dot_int8x{n}_int32": _dot(n) for n in DOT_TERMS},
}
"""Description and implementation of each."""
