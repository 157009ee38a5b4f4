"""The one point at which a block accesses a buffer, and where it lies in a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...ir.affine.sets import Domain, IntSet, NotAffine, Unknown, box, find_point, points
from ...ir.arith.intervals import negate
from ...ir.arith.simplify import simplify
from ...ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    substitute,
    variables,
)
from ...ir.layout.index_map import IndexMap
from ...ir.layout.pad_value import PadValue
from ...ir.node import Node, children, rebuild, walk
from ...ir.passes.padding import Padding, check_pad_value
from ...ir.passes.relayout import LayoutError
from ...ir.stmt import (
    Block,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    path_to,
    read_buffers,
    written_buffers,
)
from ...ir.text import expr_text
from ..errors import ScheduleError
from ..tree import extent_of, loops_above, nest_of, replace_stmt, scope_of
from .axes import fresh_axes
from .cache import cache_buffer


@dataclass(frozen=True)
class Reindexing:
    """A buffer's one point of access, ``buffer[point]``, and where it lies in the cache; both over `iters`."""

    buffer: Buffer
    point: tuple[Expr, ...]
    mapped: tuple[Expr, ...]
    iters: tuple[Iter, ...]
    cache: Buffer

    @property
    def axes(self) -> tuple[Var, ...]:
        return tuple(i.var for i in self.iters)

    def source_indices(self, point: Sequence[Var]) -> tuple[Expr, ...]:
        return tuple(substitute(e, dict(zip(self.axes, point, strict=True))) for e in self.point)

    def cache_indices(self, point: Sequence[Var]) -> tuple[Expr, ...]:
        return tuple(substitute(e, dict(zip(self.axes, point, strict=True))) for e in self.mapped)

    @property
    def ranges(self) -> dict[Var, tuple[int, int]]:
        return {i.var: i.span for i in self.iters}

    def touched_set(self, func: PrimFunc, block: Block, like: Block | None = None) -> IntSet:
        """The values of the iterators that are executed.  Raises ScheduleError, condition 8."""
        around = loops_above(func, block)
        own = {i.var for i in self.iters}
        order = [i.var for i in (like or block).iters]
        conditions, lets = _conditions_around(func, block)
        bindings = [substitute(b.binding, lets) for v, b in zip(order, block.iters, strict=True) if v in own]
        try:
            domain = Domain(tuple((x.var, extent_of(x)) for x in around), conditions)
            return points(domain).image(bindings, self.axes)
        except (NotAffine, Unknown) as error:
            raise ScheduleError(
                "(8) it is not known which instances of block `{block}` run: {error}",
                block=block.name, error=str(error),
            ) from None  # fmt: skip

    def read_set(self, func: PrimFunc, block: Block, like: Block | None = None) -> IntSet:
        """The values of the iterators for which the block reads the buffer, inside of it."""
        touched = self.touched_set(func, block, like)
        renamed = {i.var: j.var for i, j in zip(block.iters, (like or block).iters, strict=True)}
        parts = [part for part in (block.init, block.body) if part is not None]
        guards = [all_of(g) for part in parts for g in _guards(part, self.buffer, ())]
        wanted: Expr = FALSE
        for guard in guards:
            wanted = binary("or", wanted, substitute(guard, renamed))
        inside = all_of([c for e, n in zip(self.point, self.buffer.shape, strict=True) for c in (e >= 0, e < n)])
        try:
            return touched.where(wanted).where(inside)
        except (NotAffine, Unknown) as error:
            raise ScheduleError(
                "(8) it is not known what block `{block}` reads: {error}", block=block.name, error=str(error)
            ) from None


def _conditions_around(func: PrimFunc, block: Block) -> tuple[tuple[Expr, ...], dict[Var, Expr]]:
    """What holds wherever a block runs inside of the enclosing block, and the bindings of index arithmetic there."""
    path = path_to(func.body, block)
    assert path is not None
    below = path[path.index(scope_of(func, block)) + 1 :]
    found: list[Expr] = []
    lets: dict[Var, Expr] = {}
    for stmt, child in pairwise(below):
        if isinstance(stmt, If):
            found.append(substitute(stmt.cond if child is stmt.then else negate(stmt.cond), lets))
        elif isinstance(stmt, Let):
            lets[stmt.var] = substitute(stmt.value, lets)
    found.append(substitute(block.predicate, lets))
    return tuple(c for cond in found for c in conjuncts(cond)), lets


def reindexing(
    func: PrimFunc, block: Block, buffer: Buffer, index_map: Any, scope: str, physical_shape: Sequence[int] | None
) -> Reindexing:
    if not block.iters:
        raise ScheduleError("(1) block `{block}` has no iterators to index a cache with", block=block.name)
    point = _single_point(block, buffer)
    try:
        made = IndexMap.make(index_map, len(block.iters))
        shape = made.map_shape([i.extent for i in block.iters])
    except ValueError as error:
        raise ScheduleError("(3) {error}", error=str(error)) from None
    if physical_shape is not None:
        given = tuple(int(e) for e in physical_shape)
        if len(given) != len(shape) or any(g < s for g, s in zip(given, shape, strict=True)):
            raise ScheduleError("(6) the physical shape {given} does not hold the image, which needs {shape}",
                                given=given, shape=shape)  # fmt: skip
        shape = given
    iterators = [i.var for i in block.iters]
    ranges = {i.var: i.span for i in block.iters}
    mapped = tuple(e if isinstance(e, Var) else simplify(e, ranges) for e in made.map_indices(iterators))
    used = {v for e in (*point, *mapped) for v in variables(e)}
    iters = tuple(i for i in block.iters if i.var in used)
    cache, _ = cache_buffer(func, buffer, shape, scope)
    plan = Reindexing(buffer, point, mapped, iters, replace(cache, axis_separators=tuple(made.axis_separators)))
    sentence = "(4) the instances {a} and {b} share the element {at} of the cache, but not of `{buffer}`"
    _check_apart(plan, block, sentence, plan.mapped, plan.point)
    return plan


def _single_point(block: Block, buffer: Buffer) -> tuple[Expr, ...]:
    found: dict[tuple[Expr, ...], None] = {}
    for part in (block.init, block.body):
        for node in walk(part) if part is not None else ():
            if isinstance(node, (Load, Store)) and node.buffer == buffer:
                found[node.indices] = None
    if len(found) != 1:
        listed = " and ".join(f"{buffer.name}[{', '.join(map(expr_text, e))}]" for e in found)
        raise ScheduleError("(2) block `{block}` accesses several points, {listed}", block=block.name, listed=listed)
    return next(iter(found))


def _check_apart(plan: Reindexing, block: Block, sentence: str, same: Sequence[Expr], apart: Sequence[Expr]) -> None:
    """Raise unless any two values of the iterators that agree in `same` agree in `apart`."""
    other = {v: Var(f"{v.name}__", v.dtype) for v in plan.axes}
    dims = tuple((i.var, i.extent) for i in plan.iters) + tuple((other[i.var], i.extent) for i in plan.iters)
    equal = all_of([Binary("==", e, substitute(e, other)) for e in same])
    differ: Expr = FALSE
    for e in apart:
        differ = binary("or", differ, Binary("!=", e, substitute(e, other)))
    try:
        pair = find_point(Domain(dims, (equal, differ)))
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(8) the indices of block `{block}` are not affine: {error}", block=block.name,
                            error=str(error)) from None  # fmt: skip
    if pair is not None:
        a = {v.name: pair[v.name] for v in plan.axes}
        b = {v.name: pair[other[v].name] for v in plan.axes}
        at = [expr_text(e) for e in same]
        raise ScheduleError(sentence, a=a, b=b, at=at, buffer=plan.buffer.name)


def check_same_point(plan: Reindexing, reader: Block, other: Block) -> None:
    if [i.extent for i in other.iters] != [i.extent for i in reader.iters]:
        raise ScheduleError("(9) block `{other}` has other iterators than `{block}`", other=other.name,
                            block=reader.name)  # fmt: skip
    renamed = {i.var: j.var for i, j in zip(other.iters, reader.iters, strict=True)}
    point = [simplify(substitute(e, renamed), plan.ranges) for e in _single_point(other, plan.buffer)]
    if point != [simplify(e, plan.ranges) for e in plan.point]:
        raise ScheduleError("(9) block `{other}` reads `{buffer}` at another point than `{block}`", other=other.name,
                            buffer=plan.buffer.name, block=reader.name)  # fmt: skip


def check_writer(func: PrimFunc, writer: Block, plan: Reindexing) -> None:
    target = plan.buffer
    used = {v for e in plan.point for v in variables(e)}
    extra = [v.name for e in plan.mapped for v in variables(e) if v not in used]
    if extra:
        raise ScheduleError("(3) the map uses `{name}`, which does not decide the element of `{buffer}`",
                            name=extra[0], buffer=target.name)  # fmt: skip
    sentence = "(4) the instances {a} and {b} share the element {at} of `{buffer}`, but not of the cache"
    _check_apart(plan, writer, sentence, plan.point, plan.mapped)
    rest = replace_stmt(nest_of(func, writer), writer, Evaluate(as_expr(0)))
    if target in (*read_buffers(rest), *written_buffers(rest)):
        raise ScheduleError("(5) something else in the nest of block `{block}` touches `{buffer}`",
                            block=writer.name, buffer=target.name)  # fmt: skip
    if not any(isinstance(s, Store) and s.buffer == target for s in _unconditional(writer.body)):
        raise ScheduleError("(8) not every instance of block `{block}` stores to `{buffer}`", block=writer.name,
                            buffer=target.name)  # fmt: skip
    reads = any(isinstance(n, Load) and n.buffer == target for n in walk(writer.body))
    init = () if writer.init is None else _unconditional(writer.init)
    fills = any(isinstance(s, Store) and s.buffer == target for s in init)
    if (reads and not fills) or (writer.init is not None and target in read_buffers(writer.init)):
        raise ScheduleError("(9) block `{block}` reads what `{buffer}` held before", block=writer.name,
                            buffer=target.name)  # fmt: skip


def _unconditional(stmt: Stmt) -> list[Stmt]:
    """Statements that run in every instance: those of the sequence, not below conditions and loops."""
    parts = getattr(stmt, "stmts", (stmt,))
    return [inner for part in parts for inner in ([part] if isinstance(part, Store) else _bodies(part))]


def _bodies(stmt: Stmt) -> list[Stmt]:
    return [] if isinstance(stmt, (If, Block)) or not hasattr(stmt, "body") or hasattr(stmt, "extent") else (
        _unconditional(stmt.body)
    )  # fmt: skip


def _guards(node: Node, buffer: Buffer, conds: tuple[Expr, ...]) -> list[tuple[Expr, ...]]:
    """The conditions under which each load of the buffer is evaluated, outermost first."""
    found = [conds] if isinstance(node, Load) and node.buffer == buffer else []
    if isinstance(node, For) and not (isinstance(node.extent, Const) and node.extent.value > 0):
        found += _guards(node.extent, buffer, conds)
        return found + _guards(node.body, buffer, (*conds, binary(">", node.extent, 0)))
    if isinstance(node, Block) and node.predicate != TRUE:
        inner = (*conds, node.predicate)
        return [g for child in children(node)
                for g in _guards(child, buffer, inner if isinstance(child, Stmt) else conds)]  # fmt: skip
    if isinstance(node, If):
        found += _guards(node.cond, buffer, conds) + _guards(node.then, buffer, (*conds, node.cond))
        return found + (_guards(node.orelse, buffer, (*conds, negate(node.cond))) if node.orelse is not None else [])
    if isinstance(node, Call) and node.name == "if_then_else":
        cond, then, orelse = node.args
        found += _guards(cond, buffer, conds) + _guards(then, buffer, (*conds, cond))
        return found + _guards(orelse, buffer, (*conds, negate(cond)))
    return found + [g for child in children(node) for g in _guards(child, buffer, conds)]


# ---------------------------------------------------------------- the statements


def copy_nest(func: PrimFunc, plan: Reindexing, copied: IntSet, store: Callable[[Sequence[Var]], Stmt]) -> Stmt:
    """``store(v)`` for all v in `copied`, in a block of its own."""
    name = plan.cache.name
    iters, loop_vars = fresh_axes(func, name, [i.extent for i in plan.iters], [v.dtype for v in plan.axes])
    whole = box(plan.axes, [i.extent for i in plan.iters])
    predicate: Expr = TRUE
    if not whole.is_subset(copied):
        outer = {axis: var for axis, (var, _) in zip(plan.axes, loop_vars, strict=True)}
        predicate = substitute(copied.condition(whole), outer)
    point = [i.var for i in iters]
    return loops(loop_vars, Block(name, iters, store(point), predicate))


def padding_of(func: PrimFunc, plan: Reindexing, copied: IntSet, pad_value: Any) -> Padding | None:
    """What is left of the cache, if it has a pad value.  Raises ScheduleError, condition 7."""
    taken = names(func)
    axes: list[Var] = []
    for d in range(plan.cache.rank):
        axes.append(Var(fresh(f"{plan.cache.name}_pad{d}", taken)))
    try:
        value = PadValue.make(pad_value, plan.cache, axes)
        if value.is_none:
            return None
        whole = box(axes, plan.cache.shape)
        rest = whole.subtract(copied.image(plan.mapped, axes))
        if rest.is_empty():
            return None
        padding = Padding(plan.cache, tuple(axes), rest.condition(whole), value)
        check_pad_value(padding)
    except (LayoutError, ValueError) as error:
        raise ScheduleError("(7) {error}", error=str(error).removeprefix("(4) ")) from None
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(8) it is not known what the copy leaves: {error}", error=str(error)) from None
    return padding


def redirect(block: Block, buffer: Buffer, plan: Reindexing, reader: Block) -> Block:
    """The block with its accesses of the buffer in the cache."""
    renamed: dict[Var, Expr] = {j.var: i.var for i, j in zip(block.iters, reader.iters, strict=True)}
    indices = tuple(substitute(e, renamed) for e in plan.mapped)

    def swap(item: Any) -> Any:
        item = rebuild(item, swap)
        if isinstance(item, Load) and item.buffer == buffer:
            return Load(plan.cache, indices)
        return Store(plan.cache, indices, item.value) if isinstance(item, Store) and item.buffer == buffer else item

    init = None if block.init is None else swap(block.init)
    return replace(block, init=init, body=swap(block.body))
