"""Running random programs: arguments for them, what they leave behind, and when two results are one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from random_expressions import ends

from stridesmith.ir import dtypes
from stridesmith.ir.expr import Buffer, Expr, Var, variables
from stridesmith.ir.interpreter.interpret import execute
from stridesmith.ir.interpreter.memory import DEFINED
from stridesmith.ir.numbers import BITS, boundary_dtype, from_storage, held_shape, numpy_dtype, to_storage
from stridesmith.ir.stmt import Block, PrimFunc, Store, loops

Outcome = dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]
"""For each buffer its values, and which of them the program defines."""


def arguments(func: PrimFunc, seed: int = 5) -> list[Any]:
    """Numbers for every parameter; an array for each buffer, with an axis for the lanes of vectors.

    They are small, and a third of the integers such about which sums and products wrap around.
    """
    rng = np.random.default_rng(seed)
    return [_array(p, rng) if isinstance(p, Buffer) else _array(Buffer("", (1,), p.dtype), rng)[0] for p in func.params]


def _array(buffer: Buffer, rng: np.random.Generator) -> NDArray[Any]:
    base, lanes = dtypes.split_dtype(buffer.dtype)
    shape = buffer.shape if lanes == 1 else (*buffer.shape, lanes)
    if dtypes.is_float(base):
        values = rng.integers(-8, 9, shape) / 2
        return np.asarray(to_storage(base, np.asarray(values, numpy_dtype(base))))
    if dtypes.is_packed(buffer.dtype):
        return rng.integers(0, 256, (*buffer.shape, *held_shape(buffer.dtype))).astype(np.uint8)
    low = 0 if dtypes.is_unsigned(base) else -9
    values = rng.integers(low, 2 if base == "bool" else 10, shape)
    if base != "bool":
        values = np.where(rng.random(shape) < 1 / 3, rng.choice(ends(base), shape), values)
        values = np.clip(values, *dtypes.int_range(base)) if dtypes.bits(base) < 8 else values
    return np.asarray(values, boundary_dtype(base))


def scalars(func: PrimFunc, arrays: list[Any]) -> list[Any]:
    """The arguments for the interpreter, which takes scalars as numbers."""
    return [
        from_storage(p.dtype, a) if isinstance(p, Var) and p.dtype in BITS else a
        for p, a in zip(func.params, arrays, strict=True)
    ]


def interpreted(func: PrimFunc, arrays: list[Any]) -> Outcome:
    """What the interpreter leaves in the buffers of `func`."""
    memory = execute(func, *(a.copy() for a in scalars(func, arrays)))
    return {
        name: (np.ravel(m.read(slice(None))), np.ravel(m.states(slice(None))) == DEFINED) for name, m in memory.items()
    }


def assert_refines(got: Outcome, expected: Outcome) -> None:
    """Wherever `expected` is defined, `got` is, and has the same value; NaN is NaN."""
    for name, (values, defined) in expected.items():
        have, also = got[name]
        assert bool(also[defined].all()), f"`{name}` is undef where the program defines it"
        np.testing.assert_array_equal(have[defined], values[defined], err_msg=name)


def tabulated(expr: Expr, extents: dict[Var, int], buffers: list[Buffer]) -> PrimFunc:
    """The function that stores the values of `expr` at every point of `extents`; other variables are parameters."""
    axes = list(extents.items())
    scalars = sorted(variables(expr) - extents.keys(), key=lambda v: v.name)
    out = Buffer("OUT", tuple(extent for _, extent in axes), expr.dtype)
    body = loops(axes, Store(out, tuple(var for var, _ in axes), expr))
    return PrimFunc("table", (*buffers, *scalars, out), Block("root", (), body))
