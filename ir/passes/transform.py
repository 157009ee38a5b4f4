"""Passes over functions that are independent of a target: function in, function out.

Each finds and leaves a valid program, does what it can prove and leaves the rest alone;
the primitive of the same name on a schedule acts in one place, and says why where it can
do nothing.  `PASSES` lists them; `run_passes` applies several in order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

from ..context import start
from ..dataflow.instances import instances
from ..dataflow.writers import undefined_names
from ..script.programs import func_of
from ..stmt import Block, PrimFunc, names
from ..verify.rules import verify
from . import branching, overcompute
from .dump import dumping, program_log
from .empty import without_empty
from .flat import flatten_buffers as _flatten_buffers
from .hoist import HoistConditional, Hoister, HoistLetBinding, flags
from .layouts import apply_buffer_transforms as _apply_buffer_transforms
from .loop_extents import reduce_extents
from .merge import merge_adjacent
from .no_op import without_no_ops
from .removal import without_assume, without_undef_stores
from .simplification import simplified

P = ParamSpec("P")
Pass = Callable[[PrimFunc], PrimFunc]
PASSES: dict[str, Callable[..., PrimFunc]] = {}

__all__ = [
    "PASSES", "HoistConditional", "HoistLetBinding", "Pass", "apply_buffer_transforms", "dumping", "flatten_buffers",
    "hoist_expression", "merge_adjacent_loops", "reduce_loop_extents", "remove_assume",
    "remove_branching_through_overcompute", "remove_no_op", "remove_overcompute_through_branching",
    "remove_store_undef", "run_passes", "simplify",
]  # fmt: skip


def run_passes(func: PrimFunc, *passes: str | Pass) -> PrimFunc:
    """`func` after the given passes (functions, or names in `PASSES`), in order; `dumping` shows it after each."""
    log = program_log(func.name)
    log("given", func)
    for one in passes:
        run = PASSES[one] if isinstance(one, str) else one
        func = run(func)
        log(getattr(run, "__name__", "pass"), func)
    return func


def _pass(run: Callable[Concatenate[PrimFunc, P], PrimFunc]) -> Callable[Concatenate[PrimFunc, P], PrimFunc]:
    """Register a pass under its name; the program is verified before and after it."""

    @functools.wraps(run)
    def checked(func: PrimFunc, /, *args: P.args, **options: P.kwargs) -> PrimFunc:
        if not isinstance(func, PrimFunc):
            func = func_of(func, f"transform.{run.__name__}")
        verify(func)
        result = run(func, *args, **options)
        verify(result)
        return result

    PASSES[run.__name__] = checked
    return checked


def _with_body(func: PrimFunc, body: object) -> PrimFunc:
    assert isinstance(body, Block)
    return func.with_body(body)


@_pass
def simplify(func: PrimFunc) -> PrimFunc:
    """Simpler expressions; conditions decided, conditionals merged, assumptions used, wherever that is proven."""
    return simplified(func, func.body)


@_pass
def hoist_expression(
    func: PrimFunc,
    hoisted_conditionals: HoistConditional | str | Sequence[str] = HoistConditional.ALL,
    hoisted_let_bindings: HoistLetBinding | str | Sequence[str] = HoistLetBinding.REQUIRED_BY_CONDITION,
) -> PrimFunc:
    """Conditions and bindings that do not depend on a loop move out of it; the flags say which (`hoist`)."""
    conditionals, lets = flags(HoistConditional, hoisted_conditionals), flags(HoistLetBinding, hoisted_let_bindings)
    hoister = Hoister(conditionals, lets, names(func), undefined_names(instances(func)))
    return without_empty(_with_body(func, hoister.run(func.body, start(func))))


@_pass
def reduce_loop_extents(func: PrimFunc) -> PrimFunc:
    """Loops run only over the values for which the conditions inside let something happen."""
    return without_empty(_with_body(func, reduce_extents(func.body, start(func))))


@_pass
def merge_adjacent_loops(func: PrimFunc) -> PrimFunc:
    """Neighbouring serial loops of equal extents become one, where no dependence is turned round."""
    return merge_adjacent(func, func.body)[0]


@_pass
def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Stores that nobody sees, that change nothing, and what is empty: all of it goes."""
    return without_no_ops(func, func.body)[0]


@_pass
def remove_assume(func: PrimFunc) -> PrimFunc:
    """``assume(c)`` -> nothing, for use after every proof that rests on it has been made."""
    return without_empty(_with_body(func, without_assume(func.body)))


@_pass
def remove_store_undef(func: PrimFunc) -> PrimFunc:
    """``A[i] = undef`` -> nothing; ``A[i] = if c: x else: undef`` -> ``if c: A[i] = x``."""
    return without_empty(_with_body(func, without_undef_stores(func.body, func.is_strict)))


remove_branching_through_overcompute = _pass(overcompute.remove_branching_through_overcompute)
remove_overcompute_through_branching = _pass(branching.remove_overcompute_through_branching)
apply_buffer_transforms = _pass(_apply_buffer_transforms)
flatten_buffers = _pass(_flatten_buffers)
