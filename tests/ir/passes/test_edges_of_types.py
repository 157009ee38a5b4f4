"""Programs at the edges of types and of what is known: both passes, both modes of floats, special inputs.

Each is checked in both orders of the passes by the interpreter, on inputs that hold the ends of their types, and, where
floats are strict, NaN, infinities and zeros of both signs, which must come out with their signs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ir.passes.edge_programs import PROGRAMS
from numpy.typing import NDArray

import stridesmith as ss
from stridesmith.ir import dtypes
from stridesmith.ir.expr import Buffer
from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.stmt import PrimFunc

STRICT = {"a negative zero plus zero"}
"""Those in which a sign of a zero shows, which floats that are not strict do not keep."""
FLOATS = (0.0, -0.0, 1, 2, -1, 0.5, 3, np.nan, np.inf, -np.inf, 3e38, 1e-45)
ORDERS = (("simplify", "remove_no_op"), ("remove_no_op", "simplify"))


def program(params: str, body: str) -> PrimFunc:
    """A function of scalars and arrays of eight, ``name:type`` each."""
    pairs = [item.split(":") for item in params.split()]
    listed = ", ".join(f"{n}: T.{t}" if n in "nm" else f'{n}: T.Buffer((8,), "{t}")' for n, t in pairs)
    func = ss.parse(f"@T.prim_func\ndef f({listed}):\n{body}")
    assert isinstance(func, PrimFunc)
    return func


def arguments(func: PrimFunc, seed: int, special: bool) -> list[NDArray[np.generic] | int]:
    """Numbers and arrays with the ends of their types among them, and what is special among floats."""
    rng = np.random.default_rng(seed)
    found: list[NDArray[np.generic] | int] = []
    for param in func.params:
        if dtypes.is_float(param.dtype):
            numbers = np.asarray(FLOATS if special else FLOATS[2:7])
        elif param.dtype == "bool":
            numbers = np.asarray([False, True])
        else:
            low, high = dtypes.int_range(param.dtype)
            small = [0, 1, 2, 3, 5, 7, 100, 127, *((-1, -2, -3, -128) if low else ())]
            numbers = np.asarray([*small, low, low + 1, high // 2 + 1, high - 1, high])
        drawn = rng.choice(numbers, param.shape if isinstance(param, Buffer) else ())
        with np.errstate(over="ignore"):
            found.append(drawn.astype(param.dtype) if isinstance(param, Buffer) else int(drawn))
    return found


def results(func: PrimFunc, given: list[NDArray[np.generic] | int]) -> list[NDArray[np.generic]]:
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    ss.interpret(func, *copies)
    return [a for a in copies if isinstance(a, np.ndarray)]


CASES = [(params, name) for params, programs in PROGRAMS.items() for name in programs]


@pytest.mark.parametrize("case", CASES, ids=[name for _, name in CASES])
def test_what_is_at_the_edges_stays(case: tuple[str, str]) -> None:
    params, name = case
    plain = program(params, PROGRAMS[params][name])
    strict = replace(plain, attrs=(("strict_float", True),))
    for func in (strict,) if name in STRICT else (plain, strict) if "float" in params else (plain,):
        made = []
        for order in ORDERS:
            new = func
            for one in order:
                new = PASSES[one](new)
            made.append(new)
        for seed in range(30 if "n:" in params else 4):
            given = arguments(func, seed, func.is_strict)
            expected = results(func, given)
            for new in dict.fromkeys(made):
                for want, got in zip(expected, results(new, given), strict=True):
                    np.testing.assert_array_equal(got, want, err_msg=new.script())
                    if func.is_strict and want.dtype.kind == "f":
                        known = ~np.isnan(want.astype(np.float64))
                        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]), new.script())


def test_these_programs_are_simplified() -> None:
    """Enough of them that there is something to check."""
    changed = 0
    for params, name in CASES:
        func = program(params, PROGRAMS[params][name])
        changed += PASSES["remove_no_op"](PASSES["simplify"](func)) != func
    assert changed >= len(CASES) // 3, f"{changed} of {len(CASES)}"
