"""What a statement touches: its loads and its store, over the variables around it.

Iterators, let bindings and views are written out, and a vector access becomes one of its
lanes.  `instances` says where statements run; here is what one instance reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .. import dtypes
from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..caches import cached
from ..calls import Region, elements, values_of
from ..expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Ramp,
    Select,
    Shuffle,
    Undef,
    Var,
    as_index,
    binary,
    const,
    free_variables,
    substitute,
)
from ..extents import where_within
from ..functions import LOAD_WITHIN, MASKED_LOAD
from ..node import children, rebuild, walk
from ..statements import LONGEST
from ..stmt import Assert, Block, Evaluate, For, If, Let, Opaque, Stmt, Store, While

Env = Mapping[Var, Expr]
Dims = tuple[tuple[Var, Expr | int | None], ...]
Bindings = tuple[tuple[Var, Expr], ...]
Owners = tuple[tuple[str, tuple[Var, ...]], ...]
Aliases = tuple[tuple[str, Buffer], ...]


class Frame(NamedTuple):
    """Where a statement stands: values of bindings, loops with their extents, and the loop that its lanes are.

    `owners` are the loops around each allocation, `aliases` the memory that each view is of, both by name.
    """

    env: Bindings
    dims: Dims
    lane: Var | None
    owners: Owners
    aliases: Aliases


@dataclass(frozen=True)
class Access:
    """One load or store: ``buffer[indices]``, over the loops of its statement.

    `buffer` is the memory itself; of an alias (`node.buffer`) with elements of the same
    size the indices are computed, of another one `whole` says that any element may be
    meant.  `guards` are the lazy conditions under which a load is evaluated.  A load
    that decides an index or a condition is a `control`.  `owners` are the loops around the
    allocation: every iteration of them has memory of its own.
    """

    node: Load | Store
    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    guards: tuple[Expr, ...] = ()
    is_control: bool = False
    whole: bool = False
    owners: tuple[Var, ...] = ()


Accesses = tuple[Access, ...]


def element_variables(buffer: Buffer) -> tuple[Var, ...]:
    """Names for the coordinates of an element, which no program has."""
    return tuple(Var(f"p{d}'") for d in range(buffer.rank))


@cached(1 << 12)
def lanes_of(stmt: Stmt) -> int:
    """The most lanes of an index in the statement; 1 if it accesses one element at a time, be that a vector."""
    if not isinstance(stmt, (Store, Evaluate)):
        return 1
    accesses = (n for n in walk(stmt) if isinstance(n, (Load, Store)))
    return max((dtypes.lanes(i.dtype) for n in accesses for i in n.indices), default=1)


def own_expressions(stmt: Stmt) -> Iterator[tuple[Expr, bool]]:
    """The expressions that a statement evaluates itself, and whether they decide indices or control."""
    if isinstance(stmt, Store):
        for index in stmt.indices:
            yield index, True
        yield stmt.value, False
    elif isinstance(stmt, Evaluate):
        yield stmt.value, False
    elif isinstance(stmt, Let):
        yield stmt.value, not dtypes.is_float(stmt.var.dtype) or _decides(stmt)
    elif isinstance(stmt, For):
        yield stmt.extent, True
    elif isinstance(stmt, (If, While, Assert)):
        yield stmt.cond, True
    elif isinstance(stmt, Opaque):
        for value in values_of((*stmt.args, *stmt.reads, *stmt.writes)):
            yield value, True
    elif isinstance(stmt, Block):
        yield stmt.predicate, True
        for item in stmt.iters:
            yield item.binding, True


@cached(1 << 12)
def _decides(let: Let) -> bool:
    """Whether the variable of a let binding decides an index or a condition in its body, through others or not."""
    mark = Load(Buffer("let'", (1,), let.var.dtype), (const(0),))
    for stmt in walk(let.body):
        if not isinstance(stmt, Stmt):
            continue
        for expr, is_control in own_expressions(stmt):
            if let.var not in free_variables(expr):
                continue
            found = loads_of(substitute(expr, {let.var: mark}), control=is_control)
            if any(control and load == mark for load, _, control in found):
                return True
    return False


@cached(1 << 13)
def accesses_of(stmt: Stmt, frame: Frame) -> Accesses:
    found: dict[Access, None] = {}
    for expr, is_control in own_expressions(stmt):
        for access in resolved_loads(expr, frame):
            found[replace(access, is_control=True) if is_control else access] = None
    if isinstance(stmt, Store):
        found[_access(stmt, (), False, frame)] = None
    return tuple(found)


def region_access(region: Region, inside: tuple[Var | None, ...], is_write: bool, frame: Frame) -> Access:
    """The access of the element of a region that the variables `inside` count; any one where some extent is no number.

    A dimension that is one long has no variable.
    """
    indices = elements(region, inside)
    node = Store(region.buffer, indices, Undef(region.buffer.dtype)) if is_write else Load(region.buffer, indices)
    return _access(node, (), False, frame)


@cached(1 << 13)
def resolved_loads(expr: Expr, frame: Frame) -> Accesses:
    return tuple(dict.fromkeys(_access(load, guards, control, frame) for load, guards, control in loads_of(expr)))


def _access(node: Load | Store, guards: tuple[Expr, ...], is_control: bool, frame: Frame) -> Access:
    env, dims, lane, owners, aliases = frame
    indices = tuple(resolved(i, env, dims, lane) for i in node.indices)
    conditions = tuple(resolved(g, env, dims, lane) for g in guards)
    buffer = dict(aliases).get(node.buffer.name, node.buffer)
    whole = buffer.dtype != node.buffer.dtype
    if buffer.extents != node.buffer.extents and not whole:
        bounds = {v: (0, e - 1) for v, e in dims if isinstance(e, int)}
        indices = _reshaped(node.buffer, buffer, indices, bounds)
    own = dict(owners).get(buffer.name, ())
    return Access(node, buffer, indices, isinstance(node, Store), conditions, is_control, whole, own)


def loads_of(
    expr: Expr, guards: tuple[Expr, ...] = (), control: bool = False
) -> Iterator[tuple[Load, tuple[Expr, ...], bool]]:
    """The loads of an expression, each with its lazy conditions and whether it decides an index or a condition.

    The value of a let expression is evaluated before its body, whether the body uses it or
    not; what it decides there counts too.
    """
    if isinstance(expr, LetExpr):
        yield from loads_of(expr.value, guards, control)
        yield from loads_of(_written_out(expr.body, expr.var, expr.value), guards, control)
        return
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        yield from loads_of(cond, guards, True)
        yield from loads_of(a, (*guards, cond), control)
        yield from loads_of(b, (*guards, negate(cond)), control)
        return
    if isinstance(expr, Call) and expr.name == MASKED_LOAD:
        cond, load, *other = expr.args
        yield from loads_of(cond, guards, True)
        yield from loads_of(load, (*guards, cond), control)
        for value in other:
            yield from loads_of(value, guards, control)
        return
    if isinstance(expr, Call) and expr.name == LOAD_WITHIN:
        yield from loads_of(where_within(expr), guards, control)
        return
    if isinstance(expr, Shuffle):  # any lane may be meant by any other
        lanes = (_scalar(vector, const(n), dtypes.lanes(vector.dtype)) for vector in expr.vectors
                 for n in range(dtypes.lanes(vector.dtype)))  # fmt: skip
        for part in (*lanes, *expr.lanes):
            yield from loads_of(part, guards, control or part in expr.lanes)
        return
    for child in children(expr):
        if isinstance(child, Expr):
            decides = isinstance(expr, Load) or (isinstance(expr, Select) and child is expr.cond)
            yield from loads_of(child, guards, control or decides)
    if isinstance(expr, Load):
        yield expr, guards, control


def _written_out(expr: Any, var: Var, value: Expr) -> Any:
    """`expr` with `value` for `var`, except where a let expression inside binds it again."""
    if isinstance(expr, LetExpr) and expr.var == var:
        return replace(expr, value=_written_out(expr.value, var, value))
    if expr == var:
        return value
    return rebuild(expr, lambda child: _written_out(child, var, value))


def _reshaped(
    alias: Buffer, memory: Buffer, indices: tuple[Expr, ...], bounds: dict[Var, tuple[int, int]]
) -> tuple[Expr, ...]:
    """The indices in `memory` of an element of an alias: both lie row by row from the same first element."""
    flat: Expr = const(0)
    for index, stride in zip(indices, alias.strides, strict=True):
        flat = flat + as_index(index) * stride
    result = []
    for extent, stride in zip(memory.shape, memory.strides, strict=True):
        digit = flat // stride
        result.append(simplify(digit if stride * extent >= memory.size else digit % extent, bounds))
    return tuple(result)


def inlined(expr: Any, env: Env) -> Any:
    """`expr` with variables replaced and let expressions written out."""
    if isinstance(expr, LetExpr):
        value = inlined(expr.value, env)
        return inlined(expr.body, {**env, expr.var: value})
    if isinstance(expr, Var):
        return env.get(expr, expr)
    return rebuild(expr, lambda child: inlined(child, env))


def _scalar(expr: Any, lane: Expr, width: int) -> Any:
    """`expr` for one of `width` lanes; a shorter ramp beside it steps once in several of them."""
    if isinstance(expr, Ramp) and width % expr.lanes == 0:
        step = binary("//", lane, width // expr.lanes)
        return binary("+", _scalar(expr.base, lane, width), binary("*", _scalar(expr.stride, lane, width), step))
    if isinstance(expr, Broadcast):
        return _scalar(expr.value, lane, width)
    new = rebuild(expr, lambda child: _scalar(child, lane, width))
    if isinstance(new, (Cast, Call)) and dtypes.lanes(new.dtype) == width:
        return replace(new, dtype=dtypes.element(new.dtype))
    return new


def resolved(expr: Expr, env: Bindings, dims: Dims, lane: Var | None, strict: bool = False) -> Expr:
    """An expression in terms of the variables of a place: for one lane, simplified."""
    return expr if isinstance(expr, Const) else _resolved(expr, env, dims, lane, strict)


@cached(1 << 15)
def _resolved(expr: Expr, env: Bindings, dims: Dims, lane: Var | None, strict: bool) -> Expr:
    bounds = {v: (0, (e if isinstance(e, int) else LONGEST) - 1) for v, e in dims if e is not None}
    if lane is not None:
        expr = _scalar(expr, lane, bounds[lane][1] + 1)
    result: Expr = simplify(inlined(expr, dict(env)), bounds, strict=strict)
    return result
