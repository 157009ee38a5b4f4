"""When may instances of a block appear or vanish?

Let E be the instances in question.  They are harmless if nothing that they write
is observed, or if what they write is what is there already:

- *unobserved*: the elements that E writes are not read by the other instances of
  the block, not read by any other block, and are not logical elements of a
  parameter;
- *neutral*: the block updates ``C[s] = C[s] op e`` and on all of E a factor of ``e``
  is known padding that makes ``e`` the neutral element of ``op`` (0 for +, where the
  other factors are finite data or finite padding; the value itself for min and max).

Instances that appear are executed, so their accesses must be inside the buffers and
what they read must be initialised.  All of it is decided exactly on sets; what is
not affine is unknown, and unknown refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.affine.sets import Domain, NotAffine, Unknown, points, violations
from ..ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Undef,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    substitute,
)
from ..ir.node import children
from ..ir.script.printer import expr_text
from ..ir.stmt import Block, For, PrimFunc, Store
from .concurrency import check_concurrent
from .contents import Piece, contents, layout_padding, negate
from .errors import ScheduleError
from .primitives.reduction import update_of
from .regions import accesses_below
from .tree import block_stores, extent_of, find_block, leaf_blocks, loops_above


@dataclass(frozen=True)
class Refusal:
    """Why one condition stays: a sentence, and a point where it fails if there is one."""

    cond: Expr
    reason: str
    point: dict[str, int] | None = None

    def __str__(self) -> str:
        at = ""
        if self.point is not None:
            at = "at " + ", ".join(f"{k}={v}" for k, v in self.point.items()) + " "
        return f"`{expr_text(self.cond)}` stays: {at}{self.reason}"


@dataclass(frozen=True)
class _Instances:
    """Instances of a block, as a set over its loops, with iterators resolved to loops."""

    func: PrimFunc
    block: Block
    dims: tuple[tuple[Var, int], ...]
    conditions: tuple[Expr, ...]

    @property
    def domain(self) -> Domain:
        return Domain(self.dims, self.conditions)

    def resolve(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        bindings = {i.var: i.binding for i in self.block.iters}
        return tuple(substitute(i, bindings) for i in indices)


def _instances(func: PrimFunc, name: str, extra: Sequence[Expr] = ()) -> _Instances:
    block = find_block(func, name)
    dims = tuple((loop.var, extent_of(loop)) for loop in loops_above(func, block))
    return _Instances(func, block, dims, (*conjuncts(block.predicate), *extra))


def check_appearing(before: PrimFunc, after: PrimFunc, name: str, cond: Expr) -> Refusal | None:
    """Why the instances that violate `cond` may not run in `after`; None if they may."""
    extra = _instances(after, name, (negate(cond),))
    try:
        if points(extra.domain).is_empty():
            return None
        return (
            _outside(extra, cond)
            or _uninitialised(extra, cond)
            or _observable(before, extra, cond)
            or _concurrent(after, name, cond)
        )
    except (NotAffine, Unknown) as error:
        return Refusal(cond, f"it is unknown whether that is legal: {error}")


def check_vanishing(func: PrimFunc, name: str, cond: Expr) -> Refusal | None:
    """Why the instances that violate `cond` may not be skipped in `func`; None if they may."""
    gone = _instances(func, name, (negate(cond),))
    try:
        return _observable(func, gone, cond)
    except (NotAffine, Unknown) as error:
        return Refusal(cond, f"it is unknown whether that is legal: {error}")


def _guarded(block: Block) -> list[tuple[Load | Store, tuple[Expr, ...]]]:
    """Stores and loads of body and init, each with the lazy conditions under which it is evaluated."""
    found: list[tuple[Load | Store, tuple[Expr, ...]]] = []
    for part in (block.body, block.init):
        for store in _stores(part) if part is not None else []:
            found.append((store, ()))
            _guarded_loads(store.value, (), found)
            for index in store.indices:
                _guarded_loads(index, (), found)
    return found


def _guarded_loads(expr: Expr, guards: tuple[Expr, ...], found: list[tuple[Load | Store, tuple[Expr, ...]]]) -> None:
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, then, orelse = expr.args
        _guarded_loads(cond, guards, found)
        _guarded_loads(then, (*guards, cond), found)
        _guarded_loads(orelse, (*guards, negate(cond)), found)
        return
    if isinstance(expr, Load):
        found.append((expr, guards))
    for child in children(expr):
        if isinstance(child, Expr):
            _guarded_loads(child, guards, found)


def _stores(part: Any) -> list[Store]:
    from ..ir.stmt import stores

    return list(stores(part))


def _outside(extra: _Instances, cond: Expr) -> Refusal | None:
    """(1) Every access of the new instances is inside its buffer."""
    for node, guards in _guarded(extra.block):
        indices = extra.resolve(node.indices)
        inside = all_of([c for i, e in zip(indices, node.buffer.shape, strict=True) for c in (i >= 0, i < e)])
        point = violations(extra.domain.where(*extra.resolve(guards)), inside).first()
        if point is not None:
            verb = "write" if isinstance(node, Store) else "read"
            return Refusal(cond, f"the body would {verb} {_element(node, indices, point)}, outside of its shape", point)
    return None


def _element(node: Load | Store, indices: Sequence[Expr], point: dict[str, int]) -> str:
    from ..ir.arith.simplify import simplify

    values = {Var(k): as_expr(v) for k, v in point.items()}
    numbers = ", ".join(expr_text(simplify(substitute(i, values))) for i in indices)
    return f"{node.buffer.name}[{numbers}]"


def _uninitialised(extra: _Instances, cond: Expr) -> Refusal | None:
    """(2) Everything that the new instances read has been written, or holds data or a pad value."""
    own = {s.buffer for s in block_stores(extra.block)} if extra.block.init is not None else set()
    for load, guards in dict.fromkeys(_guarded(extra.block)):
        if load.buffer in own or isinstance(load, Store):
            continue
        indices = extra.resolve(load.indices)
        known = contents(extra.func, extra.block, load.buffer).initialised(indices)
        point = violations(extra.domain.where(*extra.resolve(guards)), known).first()
        if point is not None:
            held = "whose pad_value is None" if load.buffer in extra.func.params else "which nothing has written"
            return Refusal(cond, f"the body would read {_element(load, indices, point)}, {held}", point)
    return None


def _observable(func: PrimFunc, extra: _Instances, cond: Expr) -> Refusal | None:
    """(3) What the instances write is neutral, or not observed."""
    if _is_neutral(extra):
        return None
    for store in block_stores(extra.block):
        refusal = _observed(func, extra, store, cond)
        if refusal is not None:
            return refusal
    return None


def _observed(func: PrimFunc, extra: _Instances, store: Store, cond: Expr) -> Refusal | None:
    written = points(extra.domain).image(extra.resolve(store.indices), _element_vars(store.buffer))
    if any(b.name == store.buffer.name for b in func.buffers):
        padding = layout_padding(func, store.buffer, written.variables)
        point = written.where(negate(padding)).first()
        if point is not None:
            return Refusal(
                cond,
                f"it would write {_at(store.buffer, point)}, an element of a parameter, and the value is not neutral",
            )
    own = _instances(func, extra.block.name, (cond,))
    for other in leaf_blocks(func.body):
        readers = [a for a in accesses_below(other, store.buffer) if not a.is_write]
        if not readers:
            continue
        mine = other.name == extra.block.name
        domain = own if mine else _instances(func, other.name)
        for access in readers:
            shared = written.intersect(points(domain.domain).image(access.indices, written.variables))
            point = shared.first()
            if point is not None:
                who = "another instance" if mine else f"block `{other.name}`"
                return Refusal(
                    cond, f"it would write {_at(store.buffer, point)}, which {who} reads, and the value is not neutral"
                )
    return None


def _element_vars(buffer: Buffer) -> tuple[Var, ...]:
    return tuple(Var(f"p{d}") for d in range(len(buffer.shape)))


def _at(buffer: Buffer, point: dict[str, int]) -> str:
    return f"{buffer.name}[{', '.join(str(v) for v in point.values())}]"


def _concurrent(after: PrimFunc, name: str, cond: Expr) -> Refusal | None:
    """(4) Concurrent loops around stay free of conflicts."""
    block = find_block(after, name)
    for loop in loops_above(after, block):
        if isinstance(loop, For) and loop.kind in ("parallel", "vectorized", "thread_binding"):
            try:
                check_concurrent(after, loop, private=loop.kind != "vectorized")
            except ScheduleError as error:
                return Refusal(cond, str(error))
    return None


def _is_neutral(extra: _Instances) -> bool:
    """Whether every instance leaves its element as it is."""
    try:
        _, op, value = update_of(extra.block)
    except ScheduleError:
        return False
    if op == "+":
        return _is_zero(extra, value)
    if op in ("min", "max"):
        return _all_hold(extra, value, math.inf if op == "min" else -math.inf)
    return op == "*" and _all_hold(extra, value, 1)


def _factors(value: Expr) -> list[Expr]:
    if isinstance(value, Binary) and value.op == "*":
        return _factors(value.a) + _factors(value.b)
    return [value]


def _is_zero(extra: _Instances, value: Expr) -> bool:
    """Each instance has a factor that is known to be 0, and all other factors are finite."""
    zero = as_expr(False)
    for factor in _factors(value):
        pieces = _pieces_of(extra, factor)
        if pieces is None:
            return False
        for piece in pieces:
            if isinstance(piece.value, Const) and float(piece.value.value) == 0:
                zero = binary("or", zero, piece.condition)
        finite = _finite(pieces)
        if violations(extra.domain, finite).first() is not None:
            return False
    return violations(extra.domain, zero).first() is None


def _finite(pieces: Sequence[Piece]) -> Expr:
    """Where a factor holds data, which is finite by assumption, or a finite pad value; `undef` is neither."""
    result = as_expr(False)
    for piece in pieces:
        infinite = isinstance(piece.value, Const) and not math.isfinite(float(piece.value.value))
        if not isinstance(piece.value, Undef) and not infinite:
            result = binary("or", result, piece.condition)
    return result


def _all_hold(extra: _Instances, value: Expr, neutral: float) -> bool:
    """Every instance's value is known padding with the neutral element."""
    pieces = _pieces_of(extra, value)
    if pieces is None:
        return False
    held = as_expr(False)
    for piece in pieces:
        if isinstance(piece.value, Const) and _is_neutral_value(float(piece.value.value), neutral, piece.value.dtype):
            held = binary("or", held, piece.condition)
    return violations(extra.domain, held).first() is None


def _is_neutral_value(value: float, neutral: float, dtype: str) -> bool:
    """Whether `value` is the neutral element; for integers that of min and max is the end of the type."""
    from ..ir.dtypes import int_range, is_float

    if not is_float(dtype) and math.isinf(neutral):
        low, high = int_range(dtype)
        return value == (high if neutral > 0 else low)
    return value == neutral


def _pieces_of(extra: _Instances, factor: Expr) -> tuple[Piece, ...] | None:
    """What a factor is known to hold: a load's contents, or a constant everywhere."""
    while isinstance(factor, Cast):
        factor = factor.a
    if isinstance(factor, Const):
        return (Piece(as_expr(True), factor),)
    if not isinstance(factor, Load):
        return None
    return contents(extra.func, extra.block, factor.buffer).at(extra.resolve(factor.indices))
