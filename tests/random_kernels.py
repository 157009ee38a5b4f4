"""Random programs as kernels: what the target lacks is said in other loops, and results are compared bit by bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from random_runs import Outcome, arguments, assert_refines, interpreted

from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.ir import dtypes
from stridesmith.ir.expr import Var
from stridesmith.ir.node import rebuild
from stridesmith.ir.numbers import from_storage, unpacked
from stridesmith.ir.stmt import For, PrimFunc, Stmt
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import OutOfBounds

GUARD = 256


def runnable(func: PrimFunc, cpu: bool) -> PrimFunc:
    """`func` with loops over threads, and parallel ones where they are nested or not to be had, as serial ones."""

    def visit(stmt: Any, around: bool) -> Any:
        if isinstance(stmt, For):
            serial = stmt.kind == "thread_binding" or (stmt.kind == "parallel" and (around or not cpu))
            stmt = replace(stmt, kind="serial", thread="") if serial else stmt
            around = around or stmt.kind == "parallel"
        return rebuild(stmt, lambda child: visit(child, around) if isinstance(child, Stmt) else child)

    return func.with_body(visit(func.body, False))


def compiled(func: PrimFunc, target: Target, arrays: list[Any]) -> Outcome:
    """What a kernel leaves in the buffers of `func`; all of it counts as defined."""
    executable = load_artifact(compile_lowered(lower(func, target, strict=True), target))
    bound = executable.bind(guard_bytes=GUARD)
    bound.poison_guards(b"\xa5\x5a\xff")
    for number, array in enumerate(arrays):
        bound.write(number, np.asarray(array))
    bound.run()
    assert bound.guards_intact()
    outcome: Outcome = {}
    for number, param in enumerate(func.params):
        if not isinstance(param, Var):
            held = bound.read(number)
            is_packed = dtypes.is_packed(param.dtype)
            numbers = unpacked(param.dtype, held) if is_packed else from_storage(param.dtype, held)
            values = np.ravel(numbers)
            outcome[param.name] = values, np.ones(values.shape, np.bool_)
    return outcome


def check(func: PrimFunc, target: Target) -> str:
    """Run `func` both ways and compare; the words of the refusal where lowering refuses it."""
    func = runnable(func, target.kind == "cpu")
    arrays = arguments(func)
    expected = interpreted(func, arrays)
    try:
        got = compiled(func, target, arrays)
    except (LoweringError, OutOfBounds) as refusal:
        return str(refusal)
    assert_refines(got, expected)
    return ""
