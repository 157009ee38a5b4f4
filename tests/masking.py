"""Targets with masks, programs that ask for them, and memory with ends that may not be passed."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stridesmith.backends.host import host_cpu
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.ir.node import rebuild
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Stmt
from stridesmith.ir.target import Target

AVX512 = Target(isa="avx512", cpu="skylake-avx512", vector_bits=512, registers=32)
AVX2 = Target(isa="avx2", cpu="haswell", features="+avx2,+fma", vector_bits=256, registers=16)
WITHOUT = Target(isa="sse2", cpu="x86-64", vector_bits=128, registers=16)


def _runs(target: Target) -> bool:
    return target.isa in {"avx512": ("avx512", "avx2"), "avx2": ("avx2",)}.get(host_cpu().isa, ())


def _param(target: Target) -> Any:
    reason = f"the host has no {target.isa}"
    return pytest.param(target, id=target.isa, marks=pytest.mark.skipif(not _runs(target), reason=reason))


RUNNING = [_param(AVX512), _param(AVX2)]


def read(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    return func


def annotated(func: PrimFunc, key: str = "mask") -> PrimFunc:
    """`func` with the annotation on each of its vectorized loops."""

    def visit(stmt: Any) -> Any:
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            stmt = replace(stmt, annotations=(*(a for a in stmt.annotations if a[0] != key), (key, True)))
        return rebuild(stmt, lambda child: visit(child) if isinstance(child, Stmt) else child)

    return func.with_body(visit(func.body))


def run(func: PrimFunc, target: Target, *arrays: np.ndarray) -> list[np.ndarray]:
    """What a kernel leaves in each buffer, its guards untouched."""
    bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=256)
    bound.poison_guards(b"\xa5\x5a\xff")
    for number, array in enumerate(arrays):
        bound.write(number, array)
    bound.run()
    assert bound.guards_intact()
    return [bound.read(number).reshape(array.shape) for number, array in enumerate(arrays)]


def copy(extent: int, lanes: int, dtype: str = "float32", *, shift: int = 0) -> PrimFunc:
    """``B[i] = 2 * A[i - shift]`` in vectors that do not fit the extent."""
    return annotated(
        read(f'''(A: T.Buffer(({extent},), "{dtype}"), B: T.Buffer(({extent},), "{dtype}")):
    for io in range({-(-(extent + shift) // lanes)}):
        for v in T.vectorized({lanes}):
            if {shift} <= io * {lanes} + v and io * {lanes} + v < {extent + shift}:
                B[io * {lanes} + v - {shift}] = A[io * {lanes} + v - {shift}] + A[io * {lanes} + v - {shift}]
''')
    )


TILE = """(A: T.Buffer(({m}, {k})), B: T.Buffer(({k}, {n})), C: T.Buffer(({m}, {n}))):
    acc = T.alloc_buffer(({m}, {wide}), scope="local")
    for i in range({m}):
        for jo in range({tiles}):
            for jv in T.unroll({vectors}):
                for v in T.vectorized({lanes}):
                    if jo * {tile} + jv * {lanes} + v < {n}:
                        acc[i, jo * {tile} + jv * {lanes} + v] = T.float32(0)
            for k in range({k}):
                for jv in T.unroll({vectors}):
                    for v in T.vectorized({lanes}):
                        if jo * {tile} + jv * {lanes} + v < {n}:
                            acc[i, jo * {tile} + jv * {lanes} + v] = (
                                acc[i, jo * {tile} + jv * {lanes} + v] + A[i, k] * B[k, jo * {tile} + jv * {lanes} + v])
            for jv in T.unroll({vectors}):
                for v in T.vectorized({lanes}):
                    if jo * {tile} + jv * {lanes} + v < {n}:
                        C[i, jo * {tile} + jv * {lanes} + v] = acc[i, jo * {tile} + jv * {lanes} + v]
"""


def tile(m: int, n: int, k: int, lanes: int, vectors: int) -> PrimFunc:
    """A product with a register tile of `vectors` vectors, which the last tile does not fill."""
    size = lanes * vectors
    tiles = -(-n // size)
    text = TILE.format(m=m, n=n, k=k, lanes=lanes, vectors=vectors, tile=size, tiles=tiles, wide=size * tiles)
    return annotated(read(text))


SUM = """(A: T.Buffer((3, {n})), Y: T.Buffer((3,))):
    part = T.alloc_buffer((16,), scope="local")
    for i in range(3):
        for v in T.vectorized(16):
            part[v] = T.float32({start})
        for jo in range({tiles}):
            for v in T.vectorized(16):
                if jo * 16 + v < {n}:
                    part[v] = T.{op}
        Y[i] = T.float32({start})
        for v in range(16):
            Y[i] = {end}
"""


def row_maximum(n: int) -> PrimFunc:
    """The maximum of rows, in lanes all of which are read in the end."""
    text = SUM.format(
        n=n, tiles=-(-n // 16), start=-99, op="max(part[v], A[i, jo * 16 + v])", end="T.max(Y[i], part[v])"
    )
    return annotated(read(text))


HALO = """(X: T.Buffer((5, {w})), W: T.Buffer((3,)), Y: T.Buffer((5, {w}))):
    for h in range(5):
        for wo in range({tiles}):
            for v in T.vectorized(8):
                if wo * 8 + v < {w}:
                    Y[h, wo * 8 + v] = T.float32(0)
            for k in range(3):
                for v in T.vectorized(8):
                    if wo * 8 + v < {w}:
                        Y[h, wo * 8 + v] = Y[h, wo * 8 + v] + W[k] * T.if_then_else(
                            1 <= h and 1 <= wo * 8 + v + k and wo * 8 + v + k < {w} + 1, X[h - 1, wo * 8 + v + k - 1],
                            T.float32({other}))
"""


def halo(w: int, other: float = 0.0) -> PrimFunc:
    return annotated(read(HALO.format(w=w, tiles=-(-w // 8), other=other)))


CASES = {
    "copy": copy(1003, 16),
    "copy of short vectors": copy(29, 4),
    "fewer elements than lanes": copy(5, 16),
    "an edge at both ends": copy(50, 16, shift=7),
    "five lanes": copy(29, 5),
    "three lanes": copy(29, 3),
    "an edge at both ends of seven lanes": copy(50, 7, shift=7),
    "float64": copy(45, 8, "float64"),
    "int32": copy(45, 8, "int32"),
    "int64": copy(45, 4, "int64"),
    "int8": copy(145, 64, "int8"),
    "float16": copy(145, 32, "float16"),
    "register tile": tile(3, 37, 5, 16, 2),
    "register tile of one vector": tile(2, 9, 4, 8, 1),
    "register tile wider than the rows": tile(2, 5, 4, 16, 2),
    "maximum": row_maximum(49),
    "halo": halo(17),
    "halo of another value": halo(17, 2.5),
}


def filled(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.integers(-9, 10, b.shape).astype(b.dtype) for b in func.buffers]


class Edge:
    """An array that ends where a page begins that may not be touched."""

    def __init__(self, data: np.ndarray, front: bool = False) -> None:
        page = mmap.PAGESIZE
        size = -(-data.nbytes // page) * page
        self._map = mmap.mmap(-1, size + 2 * page)
        view = np.frombuffer(self._map, np.uint8)
        self.start = view.ctypes.data + page + (0 if front else size - data.nbytes)
        libc = ctypes.CDLL(None, use_errno=True)
        for place in (view.ctypes.data, view.ctypes.data + page + size):
            assert libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(page), 0) == 0
        ctypes.memmove(self.start, data.ctypes.data, data.nbytes)
        self.data = np.ctypeslib.as_array((ctypes.c_uint8 * data.nbytes).from_address(self.start)).view(data.dtype)
