"""Loop structure: split, fuse, reorder, and the kinds of loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from ...ir import dtypes
from ...ir.arith.simplify import bound, simplify
from ...ir.context import start
from ...ir.dataflow.instances import Statement
from ...ir.dataflow.order import Time
from ...ir.expr import (
    Const,
    Expr,
    ExprLike,
    Extent,
    Var,
    all_of,
    as_expr,
    as_index,
    binary,
    can_fail,
    reads_memory,
)
from ...ir.extents import as_extent
from ...ir.stmt import SUBGROUP, THREAD_AXES, For, PrimFunc, Stmt, fresh, names, path_to, span_of, walk_stmts
from ...ir.text import extent_text
from ..concurrency import check_concurrent
from ..errors import ScheduleError
from ..nest import (
    any_order,
    check_order,
    check_rectangular,
    check_still_concurrent,
    depth_of,
    enclosing_bounds,
    perfect_nest,
)
from ..primitive import Result, primitive
from ..tree import extent_in, extent_of, find_loop, guard, limit_of, substitute_loops, with_stmt

LONGEST_BOX = 1 << 32
"""The most iterations that `make_rectangular` gives a loop: a larger end follows from no bound that is stated."""


@primitive
def split(func: PrimFunc, loop: str, factors: Sequence[int | None]) -> Result:
    """``for i in N: S(i)`` -> ``for i_0 in f0: for i_1 in f1: if i_0*f1 + i_1 < N: S(i_0*f1 + i_1)``.

    One factor may be None: the least that covers N.  The condition stays only
    where the product exceeds N.  Conditions: (1) every factor is positive and at
    most one is None; (2) the product covers N, and the type of `i` holds it and each factor; (3) where N is an
    expression, None is the first one.  Returns the new loops, outermost first.
    """
    target = find_loop(func, loop)
    extent = limit_of(func, target)
    if not isinstance(extent, int):
        return _split_open(func, target, extent, factors)
    sizes = _resolve_factors(extent, factors)
    if max(prod(sizes) - 1, *sizes) > dtypes.int_range(target.var.dtype)[1]:
        raise ScheduleError("(2) the factors {sizes} count further than the type {dtype} of loop `{loop}`",
                            sizes=sizes, dtype=target.var.dtype, loop=loop)  # fmt: skip
    new_vars = _parts(func, target, len(sizes))
    index: Expr = as_expr(0, target.var)
    for var, size in zip(new_vars, sizes, strict=True):
        index = index * size + var
    bounds = {v: (0, s - 1) for v, s in zip(new_vars, sizes, strict=True)}
    body = substitute_loops(target.body, {target.var: index}, {**enclosing_bounds(func, target), **bounds})
    if prod(sizes) > extent:
        body = guard(body, simplify(binary("<", index, extent), bounds))
    return _rebuilt(func, target, new_vars, sizes, body)


def _parts(func: PrimFunc, target: For, count: int) -> list[Var]:
    """Variables for the loops that a loop is split into."""
    taken = names(func)
    new_vars = []
    for position in range(count):
        name = fresh(f"{target.var.name}_{position}", taken)
        taken.add(name)
        new_vars.append(Var(name, target.var.dtype))
    return new_vars


def _split_open(func: PrimFunc, target: For, extent: Expr, factors: Sequence[int | None]) -> Result:
    """`split` of a loop whose extent is an expression: the first factor covers it, the condition cuts the last tile."""
    outermost, inner = factors[0] if factors else 0, [f for f in factors[1:] if f is not None]
    if any(not isinstance(f, int) or f < 1 for f in (*inner, 1 if outermost is None else outermost)):
        raise ScheduleError(
            "(1) factors must be positive, with at most one None, but got {factors}", factors=list(factors)
        )
    if len(inner) < len(factors) - 1:
        raise ScheduleError("(3) the extent `{extent}` of loop `{loop}` is an expression, so the first factor alone "
                            "can be None, but got {factors}", extent=extent_text(extent), loop=target.var.name,
                            factors=list(factors))  # fmt: skip
    here, tile, extent = start(func), prod(inner), as_index(extent)
    first = as_extent(here.simplify((extent + (tile - 1)) // tile)) if outermost is None else outermost
    if outermost is not None and not here.implies(binary("<=", extent, outermost * tile)):
        raise ScheduleError("(2) the product of the factors {factors} is {product}, and nothing says that it covers "
                            "the extent `{extent}`", hint="leave the first factor None, or assume more at the top",
                            factors=list(factors), product=outermost * tile, extent=extent_text(extent))  # fmt: skip
    new_vars = _parts(func, target, len(factors))
    sizes: list[Extent] = [first, *inner]
    index: Expr = new_vars[0]
    place = as_index(index)  # also of the last tile's end, beyond what a narrow type holds
    for var, size in zip(new_vars[1:], inner, strict=True):
        index, place = index * size + var, place * size + as_index(var)
    bounds = {v: here.facts.within(size) for v, size in zip(new_vars, sizes, strict=True)}
    body = substitute_loops(target.body, {target.var: index}, {**enclosing_bounds(func, target), **bounds})
    whole = outermost is None and here.implies(binary("==", extent % tile, 0))
    if not whole:
        body = guard(body, binary("<", place, extent))
    return _rebuilt(func, target, new_vars, sizes, body)


def _rebuilt(func: PrimFunc, target: For, new_vars: Sequence[Var], sizes: Sequence[Extent], body: Stmt) -> Result:
    """The function with loops over `body` in the place of `target`, and their names."""
    for var, size in zip(reversed(new_vars), reversed(sizes), strict=True):
        body = For(var, extent_in(func, var, size, "2"), body)
    assert isinstance(body, For)
    body = replace(body, annotations=target.annotations)
    return with_stmt(func, target, body), [v.name for v in new_vars]


def _resolve_factors(extent: int, factors: Sequence[int | None]) -> list[int]:
    known = [f for f in factors if f is not None]
    if len(known) < len(factors) - 1 or any(not isinstance(f, int) or f < 1 for f in known) or not factors:
        raise ScheduleError(
            "(1) factors must be positive, with at most one None, but got {factors}", factors=list(factors)
        )
    rest = prod(known)
    sizes = [-(-extent // rest) if f is None else int(f) for f in factors]
    if prod(sizes) < extent:
        raise ScheduleError(
            "(2) the product of the factors {sizes} is {product} and does not cover the extent {extent}",
            hint="leave one factor None",
            sizes=sizes,
            product=prod(sizes),
            extent=extent,
        )
    return sizes


@primitive
def fuse(func: PrimFunc, *loops: str) -> Result:
    """``for i in N: for j in M: S(i, j)`` -> ``for f in N*M: S(f // M, f % M)``.

    Of the types of the loops, the new one has that which counts furthest.  Conditions: (1) each loop is the only
    statement of the one before; (2) this type holds the product; (3) of the extents the first alone may be an
    expression.  Returns the new loop.
    """
    chain = [find_loop(func, name) for name in loops]
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            raise ScheduleError(
                "(1) loop `{inner}` is not the only statement of loop `{outer}`",
                inner=inner.var.name,
                outer=outer.var.name,
            )
    if not chain:
        raise ScheduleError("(1) at least one loop must be given")
    first = limit_of(func, chain[0])
    extents = [first if isinstance(first, int) else 1, *(_counted_inside(func, loop) for loop in chain[1:])]
    name = fresh("_".join([*loops, "fused"]), names(func))
    dtype = counting([loop.var for loop in chain])
    if prod(extents) > dtypes.int_range(dtype)[1]:
        raise ScheduleError("(2) the loops {loops} have {count} iterations together, more than {dtype} counts",
                            loops=list(loops), count=prod(extents), dtype=dtype)  # fmt: skip
    var = Var(name, dtype)
    mapping = dict(zip((loop.var for loop in chain), fused_indices(var, extents), strict=True))
    count: Extent = prod(extents)
    if not isinstance(first, int):
        count = as_extent(start(func).simplify(as_index(first) * as_expr(prod(extents))))
    last = prod(map(_counted, extents)) - 1 if isinstance(count, int) else span_of(count)[1]
    body = substitute_loops(chain[-1].body, mapping, {**enclosing_bounds(func, chain[0]), var: (0, last)})
    return with_stmt(func, chain[0], For(var, extent_in(func, var, count, "2"), body)), name


def _counted_inside(func: PrimFunc, loop: For) -> int:
    """The extent of a loop by which another is multiplied: a number."""
    extent = limit_of(func, loop)
    if isinstance(extent, int):
        return extent
    raise ScheduleError("(3) the extent `{extent}` of the inner loop `{loop}` is an expression, which no index divides",
                        hint="fuse it as the outermost", extent=extent_text(extent), loop=loop.var.name)  # fmt: skip


def fused_indices(index: Expr, extents: Sequence[int]) -> list[Expr]:
    """The variables of nested loops, outermost first, as digits of the one that counts all of their iterations."""
    sizes = [_counted(extent) for extent in extents]
    steps = [prod(sizes[place + 1 :]) for place in range(len(sizes))]
    quotients = [index // step for step in steps]
    return [quotients[0], *(q % size for q, size in zip(quotients[1:], sizes[1:], strict=True))]


def counting(variables: Sequence[Var]) -> str:
    """The type among those of some loops that counts furthest; the first of several."""
    return max((v.dtype for v in variables), key=lambda dtype: dtypes.int_range(dtype)[1])


def _counted(extent: int) -> int:
    """The extent of a loop in index arithmetic: one without iterations never runs, and divides as if it had one."""
    return max(extent, 1)


@primitive
def reorder(func: PrimFunc, *loops: str) -> Result:
    """``for i: for j: S`` -> ``for j: for i: S``: the named loops take each other's places in the given order.

    Conditions between the loops, ``for i: if c(i): for j: S``, move inside the last one.
    Conditions: (1) the loops lie on one perfect nest; (2) their extents do not depend on
    each other; (3) no two instances that touch one element change their order, unless both
    are updates by one associative operation; for a single block whose iterators are
    spatial or reduce that holds by their meaning; (4) concurrent loops may still be so.
    """
    nest = perfect_nest(func, loops)
    check_rectangular(nest)
    named = {loop.var.name: loop for loop in nest.loops}
    order = iter(loops)
    new_loops = [named[next(order)] if loop.var.name in loops else loop for loop in nest.loops]
    outer = nest.loops[0]
    if not any_order(nest):
        check_order(func, outer, _permuted(depth_of(func, outer), [loop.var for loop in new_loops]), 3)
    body = guard(nest.body, all_of(nest.conditions))
    for loop in reversed(new_loops):
        body = replace(loop, body=body)
    result = with_stmt(func, outer, body)
    check_still_concurrent(result, new_loops, "4")
    return result, None


def _permuted(depth: int, variables: Sequence[Var]) -> Callable[[Statement], Time]:
    """Time stamps with the loops from `depth` on in another order."""

    def time(statement: Statement) -> Time:
        stamp: list[ExprLike] = list(statement.schedule)
        for place, var in enumerate(variables):
            stamp[2 * (depth + place) + 1] = var
        return tuple(stamp)

    return time


@primitive
def make_rectangular(func: PrimFunc, loop: str) -> Result:
    """``for v in e: S`` -> ``for v in E: if v < e: S``, where E is the largest value of the extent e.

    The rows of a triangle become those of a box, whose loops have tiles, vectors and any order; lowering leaves out
    what the condition leaves out.  A constant extent stays as it is.
    Condition: (1) the extent reads no memory, divides by nothing that may be 0, and has a largest value of at most
    2**32 by the extents of the loops around and what is assumed of integers.
    """
    target = find_loop(func, loop)
    extent = target.extent
    if isinstance(extent, Const):
        return func, None
    known = enclosing_bounds(func, target)
    largest = bound(extent, known)[1]
    if reads_memory(extent) or can_fail(extent) or largest > dtypes.int_range(target.var.dtype)[1] // 2:
        raise ScheduleError("(1) the largest value of the extent {extent!r} of loop `{loop}` is not known",
                            extent=extent, loop=loop)  # fmt: skip
    if largest > LONGEST_BOX:
        raise ScheduleError("(1) nothing says how large the extent `{extent}` of loop `{loop}` may be",
                            hint="assume it at the top of the function",
                            extent=extent_text(extent), loop=loop)  # fmt: skip
    body = guard(target.body, binary("<", target.var, extent))
    return with_stmt(func, target, replace(target, extent=as_expr(max(largest, 0), target.var), body=body)), None


def _set_kind(func: PrimFunc, loop: str, kind: str, thread: str = "") -> Result:
    target = find_loop(func, loop)
    if kind in ("vectorized", "unrolled"):
        extent_of(target)
    else:
        limit_of(func, target)
    return with_stmt(func, target, replace(target, kind=kind, thread=thread)), None


@primitive
def parallel(func: PrimFunc, loop: str) -> Result:
    """Run the iterations of `loop` on several threads.

    Condition: (1) no two iterations write the same element or one writes what
    another reads, decided on all writes, the harmless ones included.
    """
    check_concurrent(func, find_loop(func, loop))
    return _set_kind(func, loop, "parallel")


@primitive
def vectorize(func: PrimFunc, loop: str) -> Result:
    """Run the iterations of `loop` in the lanes of vectors.  Condition as for `parallel`."""
    check_concurrent(func, find_loop(func, loop), private=False)
    return _set_kind(func, loop, "vectorized")


@primitive
def unroll(func: PrimFunc, loop: str) -> Result:
    """Repeat the body of `loop` once for each iteration, in order; always legal."""
    return _set_kind(func, loop, "unrolled")


@primitive
def bind(func: PrimFunc, loop: str, thread_axis: str) -> Result:
    """Give the iterations of `loop` to ``blockIdx.{x,y,z}``, ``threadIdx.{x,y,z}`` or ``subgroup``.

    The iterations of a ``subgroup`` are work-items that stand beside each other along x; an OpenCL device that
    has subgroups of so many reduces what they have without a barrier, and others refuse.
    Conditions: (1) as for `parallel`, but that iterations of a ``subgroup`` may update elements together,
    ``C[s] = C[s] op e`` by +, min or max; (2) the axis is known, and no loop around or below has it.
    """
    if thread_axis not in THREAD_AXES:
        raise ScheduleError("(2) unknown thread axis `{axis}`; known are {known}", axis=thread_axis, known=THREAD_AXES)
    target = find_loop(func, loop)
    check_concurrent(func, target, reduces=thread_axis == SUBGROUP)
    for other in (*(path_to(func.body, target) or ()), *walk_stmts(target)):
        if isinstance(other, For) and other is not target and other.thread == thread_axis:
            raise ScheduleError("(2) loop `{other}` of this nest is bound to {axis} already",
                                other=other.var.name, axis=thread_axis)  # fmt: skip
    return _set_kind(func, loop, "thread_binding", thread_axis)
