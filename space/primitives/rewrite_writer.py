"""The writer of a buffer over its physical indices, padding included (RFC 0039, "loop iteration order")."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.affine.sets import Domain, NotAffine, Unknown, box, points
from ...ir.arith.intervals import negate
from ...ir.arith.simplify import simplify
from ...ir.expr import FALSE, TRUE, Call, Expr, Load, Var, binary, can_fail, free_variables, if_then_else, substitute
from ...ir.node import walk
from ...ir.passes.relayout import Change
from ...ir.stmt import Block, For, PrimFunc, Stmt, Store, loops, stores
from ...ir.text import extents_text
from ..errors import ScheduleError
from ..nest import updates_itself
from ..tree import block_stores, extent_of, limit_of, loops_above, nest_of, producers, with_stmt
from .axes import fresh_axes


def rewrite_writer(func: PrimFunc, change: Change) -> tuple[PrimFunc, list[str]]:
    """``A'[f(i)] = e(i)`` for all i -> ``A'[p] = if p is padding: pad_value else e(f^-1(p))`` for all p.

    Accesses go to the new buffer already.  Padding without a value is left out.  Returns
    the loops.  Raises ScheduleError, condition 8 of `transform_layout`.
    """
    writer = _writer(func, change)
    if any(isinstance(n, Load) for _, value in change.pad_value.pieces if value is not None for n in walk(value)):
        raise ScheduleError("(8) the pad value reads `{buffer}`, which the same loops would still be writing",
                            hint="leave out rewrite_loops", buffer=change.old.name)  # fmt: skip
    nest = nest_of(func, writer)
    _check_alone(writer, nest)
    _check_all_points(func, writer, change)
    iters, loop_vars = fresh_axes(func, writer.name, change.new.extents)
    point = tuple(i.var for i in iters)
    value: Expr = substitute(block_stores(writer)[0].value, _inverse_of_iters(writer, change, point))
    predicate: Expr = TRUE
    if change.pads:
        forbidden, value = _with_padding(change, point, value)
        predicate = substitute(negate(forbidden), {i.var: i.binding for i in iters})
    value = simplify(value, {i.var: i.span for i in iters})
    block = Block(writer.name, iters, Store(change.new, point, value), predicate, None, (), writer.annotations)
    return with_stmt(func, nest, loops(loop_vars, block)), [v.name for v, _ in loop_vars]


def _writer(func: PrimFunc, change: Change) -> Block:
    writers = producers(func, change.new)
    stored = [s for s in stores(func.body) if s.buffer.memory == change.new.memory]
    plain = len(writers) == 1 and len(stored) == 1 and writers[0].body is stored[0]
    if not plain or writers[0].reduce or writers[0].init is not None or writers[0].predicate != TRUE:
        raise ScheduleError("(8) `{buffer}` must have one writer without a reduction", buffer=change.old.name)
    if any(i.kind == "opaque" for i in writers[0].iters) or updates_itself(writers[0]):
        raise ScheduleError("(8) the points of block `{block}` may need their order", block=writers[0].name)
    return writers[0]


def _check_alone(writer: Block, nest: Stmt) -> None:
    """Check that nothing but loops stands around the writer, and that only its bindings use them."""
    stmt, around = nest, set[Var]()
    while isinstance(stmt, For):
        around.add(stmt.var)
        stmt = stmt.body
    if stmt is not writer or writer.allocs:
        raise ScheduleError("(8) block `{block}` is not alone in its loop nest", block=writer.name)
    if not around.isdisjoint(free_variables(writer.body)):
        raise ScheduleError("(8) block `{block}` uses its loops beside its iterators", block=writer.name)


def _check_all_points(func: PrimFunc, writer: Block, change: Change) -> None:
    """The iterators go over the whole buffer, and the loops over every value of the iterators."""
    above, extents = loops_above(func, writer), tuple(i.limit for i in writer.iters)
    if extents != tuple(change.old.extents):
        raise ScheduleError("(8) block `{block}` goes over [{extents}] and `{buffer}` has [{shape}]", block=writer.name,
                            extents=extents_text(extents), buffer=change.old.name,
                            shape=extents_text(change.old.extents))  # fmt: skip
    if {(i.binding, i.limit) for i in writer.iters} == {(loop.var, limit_of(func, loop)) for loop in above}:
        return
    marks = [Var(f"{i.var.name}.s") for i in writer.iters]
    try:
        run = points(Domain(tuple((loop.var, extent_of(loop)) for loop in above)))
        every = box(marks, [i.extent for i in writer.iters])
        missing = every.subtract(run.image([i.binding for i in writer.iters], marks)).first()
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(8) the points of block `{block}` that run are unknown: {error}",
                            block=writer.name, error=str(error)) from None  # fmt: skip
    if missing is not None:
        point = {i.var.name: missing[m.name] for i, m in zip(writer.iters, marks, strict=True)}
        raise ScheduleError("(8) block `{block}` does not run at {point}", block=writer.name, point=point)


def _with_padding(change: Change, point: Sequence[Var], value: Expr) -> tuple[Expr, Expr]:
    """The condition under which a point is not written, and the value that is written otherwise."""
    padding = change.padding(point)
    forbidden: Expr = FALSE
    held: Expr | None = None
    for cond, pad in reversed(change.pad_value.at(point)):
        if pad is None:
            forbidden = binary("or", forbidden, binary("and", padding, cond))
        else:
            held = pad if held is None else if_then_else(cond, pad, held)
    if held is None:
        return padding, value
    return forbidden, _merge_conditional(if_then_else(negate(padding), value, held))


def _inverse_of_iters(writer: Block, change: Change, point: Sequence[Var]) -> dict[Var, Expr]:
    """The writer's iterators in terms of physical indices."""
    logical = change.inverse.map_indices(point)
    iterators = [i.var for i in writer.iters]
    plain = change.index_map.map_indices(iterators) if len(iterators) == change.old.rank else ()
    ranges = {i.var: i.span for i in writer.iters}
    stored = tuple(simplify(e, ranges) for e in block_stores(writer)[0].indices)
    if tuple(simplify(e, ranges) for e in plain) != stored:
        raise ScheduleError("(8) block `{block}` does not store at its iterators in order", block=writer.name)
    return dict(zip(iterators, logical, strict=True))


def _merge_conditional(value: Expr) -> Expr:
    """``if a: (if b: x else y) else y`` -> ``if a and b: x else y``, unless b can fail: it runs everywhere then."""
    if isinstance(value, Call) and value.name == "if_then_else":
        cond, then, orelse = value.args
        nested = isinstance(then, Call) and then.name == "if_then_else" and then.args[2] == orelse
        if isinstance(then, Call) and nested and not can_fail(then.args[0]):
            return if_then_else(binary("and", cond, then.args[0]), then.args[1], orelse)
    return value
