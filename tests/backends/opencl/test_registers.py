"""Loaded values that need more registers than are left beside a tile are loaded again, on CPUs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from opencl_programs import GENERIC, GPU, bound, lowered, needs_device, run

from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, const
from stridesmith.ir.stmt import Allocate, For, Stmt, Store, loops, seq
from stridesmith.ir.target import Target

G, K, KH, I = Var("g"), Var("k"), Var("kh"), Var("i")  # noqa: E741
LANES, ROWS, STEPS, TAPS = 4, 5, 6, 3
CPU = replace(GENERIC, vector_bits=128, registers=8)
X, W = Buffer("x", ((ROWS + TAPS - 1) * STEPS,)), Buffer("w", (TAPS * STEPS * LANES,))
Y = Buffer("y", (ROWS * LANES,))
FENCE = "LOAD_AGAIN();"


def convolution(taps: str = "unrolled") -> Stmt:
    """``y[i, 0:4] = sum(x[i + kh, k] * w[kh, k, 0:4])`` in a tile; the rows that taps share are loaded for each."""
    tile = Buffer("tile", (ROWS * LANES,), scope="local")
    place = (Ramp(I * LANES, const(1), LANES),)
    weights = (Ramp(KH * (STEPS * LANES) + K * LANES, const(1), LANES),)
    product = Broadcast(X[(I + KH) * STEPS + K], LANES) * Load(W, weights)
    update = loops([(I, ROWS)], Store(tile, place, Load(tile, place) + product), "unrolled")
    clear = loops([(I, ROWS)], Store(tile, place, Broadcast(const(0.0), LANES)), "unrolled")
    copy = loops([(I, ROWS)], Store(Y, place, Load(tile, place)), "unrolled")
    steps = For(K, const(STEPS), For(KH, const(TAPS), update, taps))
    return bound(G, 1, "blockIdx.x", Allocate(tile, seq([clear, steps, copy])))


def text(body: Stmt, target: Target) -> str:
    return generate(lowered(body, X, W, Y), target).text


def test_a_fence_stands_between_iterations_that_load_more_than_fits() -> None:
    """Between the taps, of which each loads five rows and a vector while three registers are left; not behind."""
    assert text(convolution(), CPU).count(FENCE) == TAPS - 1
    behind = text(convolution(), CPU).split(FENCE)[1]
    assert f"= x[k + {STEPS}];" in text(convolution(), CPU).split(FENCE)[0]
    assert f"= x[k + {STEPS}];" in behind, "the rows that taps share are loaded again"


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (convolution(), replace(CPU, registers=32)),
        (convolution("serial"), CPU),
        (convolution(), replace(GPU, vector_bits=128, registers=8)),
    ],
    ids=["all fits", "a loop of its own", "a GPU"],
)
def test_there_is_none_where_it_does_not_help(body: Stmt, target: Target) -> None:
    """Nothing needs to be forgotten, the compiler keeps nothing over a loop, or spills in other ways."""
    assert FENCE not in text(body, target) and "restrict x" in text(body, target)


def test_pointers_do_not_promise_that_memory_stays_as_it_is() -> None:
    """A compiler may keep what a pointer to constants of its own reads, also over a fence."""
    assert "__global const float* x, __global const float* w, __global float* restrict y" in text(convolution(), CPU)


def test_what_is_computed_after_a_fence_is_not_forgotten() -> None:
    """Addresses are held over a fence, and what has been loaded is not."""
    lines = text(convolution(), CPU).splitlines()
    fence = next(n for n, line in enumerate(lines) if FENCE in line)
    address = next(line.split()[2] for line in lines[:fence] if "const long t" in line)
    assert any(f" + {address} +" in line for line in lines[fence:])
    values = [line.split()[2] for line in lines[:fence] if "const float" in line and "=" in line]
    assert values and not any(re.search(rf"\b{value}\b", line) for value in values for line in lines[fence:])


@needs_device
def test_results_are_those_without() -> None:
    """On the device, whatever it has of registers."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((ROWS + TAPS - 1, STEPS)), rng.standard_normal((TAPS, STEPS, LANES))
    got = run(convolution(), {X: x.ravel(), W: w.ravel()}, Y).reshape(ROWS, LANES)
    want = sum(x[kh : kh + ROWS] @ w[kh] for kh in range(TAPS))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
