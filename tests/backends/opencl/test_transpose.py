"""Copies that turn columns into rows on OpenCL devices of CPUs: squares of vectors, transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_programs import GENERIC, GPU, bound, lowered, needs_device, run

from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.expr import Buffer, Load, Ramp, Var, const
from stridesmith.ir.stmt import Allocate, For, Stmt, Store, loops, seq
from stridesmith.ir.target import Target

G, K, Q = Var("g"), Var("k"), Var("q")
SIDE, BLOCKS = 8, 3


def copy(source: Buffer, target: Buffer, side: int = SIDE, stride: int = 40, step: int = 1, scale: int = 1) -> For:
    """``for q: for k: target[..] = source[side q + step k : : stride]``, the inner loop unrolled."""
    read = Load(source, (Ramp(Q * side + K * step, const(stride), side),))
    value = read * const(scale) if scale != 1 else read
    write = Ramp(Q * (side * side) + K * side, const(1), side)
    return loops([(Q, BLOCKS)], For(K, const(side), Store(target, (write,), value), "unrolled"))  # type: ignore[return-value]


def buffers(dtype: str = "float32", side: int = SIDE, stride: int = 40) -> tuple[Buffer, Buffer]:
    return Buffer("a", (side * stride,), dtype), Buffer("out", (BLOCKS * side * side,), dtype)


def text(body: Stmt, *params: Buffer, target: Target = GENERIC) -> str:
    return generate(lowered(bound(G, 1, "blockIdx.x", body), *params), target).text


@needs_device
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
@pytest.mark.parametrize("side", [4, 8])
def test_each_element_comes_to_its_place(dtype: str, side: int) -> None:
    """``out[q, k, l] = a[l, side q + k]``, of every type and side."""
    a, out = buffers(dtype, side)
    data = np.arange(side * 40).reshape(side, 40) % 100
    got = run(bound(G, 1, "blockIdx.x", copy(a, out, side)), {a: data.ravel()}, out)
    want = data[:, : BLOCKS * side].reshape(side, BLOCKS, side).transpose(1, 2, 0)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_a_square_is_a_load_and_a_store_for_each_vector() -> None:
    """Three rounds of four pairs of vectors lie between them, and nothing is loaded by itself."""
    found = text(copy(*buffers()), *buffers())
    body = found[found.index("__kernel") :]
    assert body.count("LOAD8_global_float(") == body.count("STORE8_global_float(") == SIDE
    assert body.count("= pick_float8_") == 3 * SIDE and "a[" not in body


def test_registers_are_transposed_without_memory() -> None:
    """What lies in a private array of vectors goes to its rows in the same way."""
    _, out = buffers()
    tile = Buffer("tile", (SIDE * SIDE,), scope="local")
    source, _ = buffers()
    fill = loops([(K, SIDE)], Store(tile, (Ramp(K * SIDE, const(1), SIDE),),
                 Load(source, (Ramp(K * SIDE, const(1), SIDE),))), "unrolled")  # fmt: skip
    write = For(K, const(SIDE), Store(out, (Ramp(K * SIDE, const(1), SIDE),),
                Load(tile, (Ramp(K, const(SIDE), SIDE),))), "unrolled")  # fmt: skip
    found = text(Allocate(tile, seq([fill, write])), source, out)
    assert found.count("= pick_float8_") == 3 * SIDE


def no_squares() -> dict[str, tuple[Stmt, tuple[Buffer, ...]]]:
    a, out = buffers()
    narrow = buffers("float16")
    return {
        "neighbours already": (copy(a, out, stride=1), (a, out)),
        "no neighbours": (copy(a, out, step=2), (a, out)),
        "no copy": (copy(a, out, scale=2), (a, out)),
        "within one memory": (copy(out, out, stride=SIDE), (out,)),
        "a type that is emulated": (copy(*narrow), narrow),
    }


@pytest.mark.parametrize("case", no_squares())
def test_what_is_no_square_is_copied_as_it_stands(case: str) -> None:
    """Nothing is moved past anything else, and no element is read that the program does not read."""
    body, params = no_squares()[case]
    assert " = pick_" not in text(body, *params)


def test_items_of_a_gpu_are_lanes() -> None:
    """There each item copies its own elements."""
    assert "pick_" not in text(copy(*buffers()), *buffers(), target=GPU)
