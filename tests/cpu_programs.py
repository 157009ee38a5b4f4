"""Lowered programs written by hand, for tests of the CPU code generator."""

from __future__ import annotations

import numpy as np

from stridesmith.backends import cpu
from stridesmith.backends.executable import numpy_dtype
from stridesmith.backends.lower import Lowered
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, const
from stridesmith.ir.stmt import Allocate, For, Seq, Stmt, Store, loops
from stridesmith.ir.target import Target

GUARD = 256


def lowered(body: Stmt, *params: Buffer, workspaces: tuple[Buffer, ...] = ()) -> Lowered:
    return Lowered("program", params, workspaces, body)


def run(body: Stmt, arrays: dict[Buffer, np.ndarray], *outputs: Buffer, threads: int = 1, workspaces=(), target=None):
    """Run `body` on `arrays`; the outputs start as NaN or -1, and what they hold afterwards is returned.

    Without a `target` the code may use all of this machine, but does not know what it has.
    """
    program = lowered(body, *arrays, *outputs, workspaces=workspaces)
    bound = cpu.load_cpu(cpu.compile_cpu(program, target or Target(threads=threads))).bind(guard_bytes=GUARD)
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


def matmul_tile(rows: int, columns: int, depth: int, lanes: int, tiles: tuple[int, int] = (4, 4), kind="parallel"):
    """``C = A @ B`` with B packed in panels of `columns`, and a register tile of rows x columns.

    A is (tiles[0] * rows, depth) row-major, B is (tiles[1], depth, columns), C row-major.
    """
    height, width = rows * tiles[0], columns * tiles[1]
    a, b, c = Buffer("A", (height * depth,)), Buffer("B", (depth * width,)), Buffer("C", (height * width,))
    tile = Buffer("tile", (rows * columns,), scope="local")
    io, jo, k, ii, jv = (Var(n) for n in ("io", "jo", "k", "ii", "jv"))
    vectors = columns // lanes

    def vector(offset):
        return (Ramp(offset, const(1), lanes),)

    place = vector(ii * columns + jv * lanes)
    row = io * rows + ii
    product = Broadcast(a[row * depth + k], lanes) * Load(b, vector(jo * (depth * columns) + k * columns + jv * lanes))
    target = vector(row * width + jo * columns + jv * lanes)
    unrolled = [(ii, rows), (jv, vectors)]
    zero = loops(unrolled, Store(tile, place, Broadcast(const(0.0), lanes)), "unrolled")
    update = loops(unrolled, Store(tile, place, Load(tile, place) + product), "unrolled")
    copy = loops(unrolled, Store(c, target, Load(tile, place)), "unrolled")
    body = Allocate(tile, Seq((zero, For(k, const(depth), update), copy)))
    return lowered(For(jo, const(tiles[1]), For(io, const(tiles[0]), body), kind), a, b, c)
