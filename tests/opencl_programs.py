"""Lowered programs written by hand, for tests of the OpenCL code generator."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from stridesmith.backends.executable import numpy_dtype
from stridesmith.backends.lower import Lowered
from stridesmith.errors import DeviceMissing
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, const
from stridesmith.ir.stmt import Allocate, For, Stmt, Store, loops, seq
from stridesmith.ir.target import Target

GUARD = 256
GENERIC = Target(kind="opencl", name="device", max_work_group=64, local_bytes=1 << 15, features="cl_khr_fp64")
GPU = Target(kind="opencl", name="gpu", max_work_group=64, local_bytes=1 << 15, is_cpu_device=False)


@lru_cache(maxsize=1)
def device() -> Target | None:
    try:
        from stridesmith.backends.opencl.devices import match_opencl

        return match_opencl()
    except (ImportError, DeviceMissing):
        return None


needs_device = pytest.mark.skipif(device() is None, reason="no OpenCL device on this machine")


def lowered(body: Stmt, *params: Buffer, workspaces: tuple[Buffer, ...] = ()) -> Lowered:
    return Lowered("program", params, workspaces, body)


def run(body: Stmt, arrays: dict[Buffer, np.ndarray], *outputs: Buffer, workspaces: tuple[Buffer, ...] = ()):
    """Run `body` on `arrays`; the outputs start as NaN or 1, and what they hold afterwards is returned."""
    from stridesmith.backends.opencl import runtime as opencl

    target = device()
    assert target is not None
    program = lowered(body, *arrays, *outputs, workspaces=workspaces)
    bound = opencl.OpenCLExecutable(opencl.compile_opencl(program, target)).bind(guard_bytes=GUARD)
    bound.poison_guards(b"\xa5\x5a\xff")
    for number, (buffer, array) in enumerate(arrays.items()):
        bound.write(number, np.asarray(array, numpy_dtype(buffer.dtype)))
    for number, buffer in enumerate(outputs, len(arrays)):
        bound.write(number, fresh(buffer))
    bound.run()
    assert bound.guards_intact()
    results = [bound.read(len(arrays) + number) for number in range(len(outputs))]
    return results[0] if len(results) == 1 else results


def fresh(buffer: Buffer) -> np.ndarray:
    """Contents that a program has to overwrite."""
    dtype = numpy_dtype(buffer.dtype)
    return np.full(buffer.shape, np.nan if dtype.kind == "f" else 1, dtype)


def bound(var: Var, extent: int, thread: str, body: Stmt) -> For:
    return For(var, const(extent), body, "thread_binding", thread)


def matmul_tile(rows: int, columns: int, depth: int, lanes: int, tiles: tuple[int, int]) -> tuple[Stmt, list[Buffer]]:
    """``C = A @ B`` with B packed in panels of `columns`; a group for each register tile of rows x columns."""
    height, width = rows * tiles[0], columns * tiles[1]
    a, b, c = Buffer("A", (height * depth,)), Buffer("B", (depth * width,)), Buffer("C", (height * width,))
    tile = Buffer("tile", (rows * columns,), scope="local")
    io, jo, k, ii, jv = (Var(n) for n in ("io", "jo", "k", "ii", "jv"))

    def vector(offset):
        return (Ramp(offset, const(1), lanes),)

    place = vector(ii * columns + jv * lanes)
    row = io * rows + ii
    product = Broadcast(a[row * depth + k], lanes) * Load(b, vector(jo * (depth * columns) + k * columns + jv * lanes))
    target = vector(row * width + jo * columns + jv * lanes)
    unrolled = [(ii, rows), (jv, columns // lanes)]

    def written_out(stmt: Stmt) -> Stmt:
        return loops(unrolled, stmt, "unrolled")

    body = seq(
        [
            written_out(Store(tile, place, Broadcast(const(0.0), lanes))),
            loops([(k, depth)], written_out(Store(tile, place, Load(tile, place) + product))),
            written_out(Store(c, target, Load(tile, place))),
        ]
    )
    nest = bound(io, tiles[0], "blockIdx.x", bound(jo, tiles[1], "blockIdx.y", Allocate(tile, body)))
    return nest, [a, b, c]
