"""What holds where a statement stands, and rewriting that carries it along.

A `Place` answers twice: quickly through intervals (`facts`), and exactly through the
integer points of `domain`.  Only what no store can change is recorded; a condition
that loads from memory holds at its place and perhaps not any more below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .. import dtypes
from ..arith.intervals import Facts, negate, nothing_known
from ..arith.simplify import simplifier_for
from ..arith.statements import assumed
from ..caches import cached
from ..expr import TRUE, Binary, Call, Const, Expr, Load, Not, Select, Var, binary, conjuncts
from ..node import Node, rebuild, walk
from ..stmt import Allocate, Attr, Block, Declare, For, If, Let, PrimFunc, Seq, Stmt, blocks, fresh, seq, stores
from ..verify.init import Surroundings, init_fault

if TYPE_CHECKING:
    from ..affine.sets import Domain, Extent, IntSet


_NOTHING_AROUND = Surroundings((), ())


@dataclass(frozen=True)
class Place:
    """The loops, iterators and bindings around, and the conditions that lead here.

    `around` is what the proof that a reduction's init comes first starts from.
    """

    facts: Facts
    dims: tuple[tuple[Var, Extent], ...] = ()
    conditions: tuple[Expr, ...] = ()
    around: Surroundings = _NOTHING_AROUND

    def loop(self, loop: For) -> Place:
        """The body of a loop."""
        high = self.facts.interval(loop.extent)[1] - 1
        extent = int(loop.extent.value) if isinstance(loop.extent, Const) else loop.extent
        facts = self.facts.with_bounds({loop.var: (0, high)})
        if isinstance(extent, Expr) and is_stable(extent):
            facts = facts.assuming(binary("<", loop.var, extent))
        dims = (*self.dims, (loop.var, extent))
        return replace(self, facts=facts, dims=dims, around=self._step((loop.var, loop.extent)))

    def bound(self, var: Var, value: Expr, limit: tuple[int, int] | None = None) -> Place:
        """Below a definition of `var`, which is known to lie in `limit`."""
        if not (dtypes.is_int(var.dtype) or dtypes.is_bool(var.dtype)) or dtypes.lanes(var.dtype) > 1:
            return self
        facts = self.facts
        if dtypes.is_int(var.dtype):
            low, high = facts.interval(simplifier_for(facts).expr(value))
            if limit is not None:
                low, high = max(low, limit[0]), min(high, limit[1])
            facts = facts.with_bounds({var: (low, high)})
        dims = (*self.dims, (var, None if limit is None else limit[1] + 1))
        conditions = (*self.conditions, _equal(var, value)) if is_stable(value) else self.conditions
        return replace(self, facts=facts, dims=dims, conditions=conditions)

    def where(self, cond: Expr, truth: bool = True) -> Place:
        """Where `cond` has the value `truth`."""
        return replace(self._knowing(cond, truth), around=self._step(cond if truth else Not(cond)))

    def _knowing(self, cond: Expr, truth: bool = True) -> Place:
        parts = tuple(c for c in conjuncts(cond if truth else negate(cond)) if c != TRUE and is_stable(c))
        facts = self.facts
        for part in parts:
            facts = facts.assuming(part)
        return replace(self, facts=facts, conditions=self.conditions + parts) if parts else self

    def block(self, block: Block) -> Place:
        """The body of a block."""
        outer = inner = self._knowing(block.predicate)
        for item in block.iters:
            binding = simplifier_for(outer.facts).expr(item.binding)
            inner = inner.bound(item.var, binding, (0, item.extent - 1))
        return replace(inner, around=Surroundings(block.iters, ())) if block.iters else inner

    def after(self, stmt: Stmt) -> Place:
        """Behind `stmt`: what its assumptions say about variables holds from there on."""
        place = self
        for cond in assumed(stmt):
            place = place._knowing(cond)
        return place

    def _step(self, step: tuple[Var, Expr] | Expr) -> Surroundings:
        return Surroundings(self.around.outer, (*self.around.steps, step))

    def starts(self, stmt: Stmt) -> bool:
        """Whether every reduction below `stmt`, which stands here, provably begins with its init."""
        if not has_init(stmt):
            return True
        return not any(
            isinstance(item, Block) and item.init is not None and init_fault(item, here.around)
            for item, here in places(stmt, self)
        )

    def simplify(self, expr: Expr) -> Expr:
        """`expr` as simple as intervals allow."""
        return simplifier_for(self.facts).expr(expr)

    @cached_property
    def domain(self) -> Domain:
        """The values that the variables around take together; a superset where something is not affine."""
        from ..affine.sets import Domain

        return Domain(self.dims, self.conditions).relaxed()

    def points(self, *conds: Expr) -> IntSet:
        """The points at which every one of `conds` may hold.  Raises NotAffine and Unknown.

        What `conds` load from memory, and variables that are not known here, may have any value,
        the same wherever the same expression occurs.
        """
        from ..affine.sets import Domain, points

        opaque = _Opaque({v.name for v in self.domain.variables})
        parts = tuple(opaque.seen(c) for c in conds)
        return points(Domain((*self.domain.dims, *opaque.dims), (*self.domain.conditions, *parts)))

    def excludes(self, *conds: Expr) -> bool:
        """Whether `conds` never hold together here; False also where that is unknown."""
        from ..affine.guard import NotAffine, Unknown

        try:
            return self.points(*conds).is_empty()
        except (NotAffine, Unknown):
            return False

    def implies(self, cond: Expr) -> bool:
        """Whether `cond` always holds here; False also where that is unknown."""
        return self.simplify(cond) == TRUE or self.excludes(Not(cond))


def nowhere() -> Place:
    """Outside of everything."""
    return Place(nothing_known())


def _equal(var: Var, value: Expr) -> Expr:
    if not dtypes.is_bool(var.dtype):
        return Binary("==", var, value)
    return Binary("or", Binary("and", var, value), Binary("and", Not(var), negate(value)))


@cached(1 << 14)
def memories_read(node: Node) -> frozenset[str]:
    """Names of the memories that are loaded from below `node`."""
    return frozenset(n.buffer.memory for n in walk(node) if isinstance(n, Load))


@cached(1 << 12)
def memories_written(stmt: Stmt) -> frozenset[str]:
    """Names of the memories that are stored to below `stmt`."""
    return frozenset(s.buffer.memory for s in stores(stmt))


@cached(1 << 12)
def has_init(stmt: Stmt) -> bool:
    """Whether some block at or below `stmt` begins a reduction."""
    return any(b.init is not None for b in blocks(stmt))


def is_stable(expr: Expr) -> bool:
    """Whether no store can change the value."""
    return not memories_read(expr)


class _Opaque:
    """Variables in the place of what has no exact set."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.made: dict[Expr, Var] = {}
        self.dims: list[tuple[Var, int | None]] = []

    def seen(self, expr: Expr) -> Expr:
        if self._is_opaque(expr):
            return self._variable(expr)
        result: Expr = rebuild(expr, lambda child: self.seen(child) if isinstance(child, Expr) else child)
        return result

    def _is_opaque(self, expr: Expr) -> bool:
        if isinstance(expr, Var):
            return expr.name not in self.known
        if isinstance(expr, Binary) and dtypes.is_float(expr.a.dtype):
            return True
        if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
            return dtypes.is_float(expr.dtype)
        return isinstance(expr, (Load, Call))

    def _variable(self, expr: Expr) -> Var:
        if expr not in self.made:
            name = fresh("value", self.known)
            self.known.add(name)
            self.made[expr] = Var(name, expr.dtype)
            self.dims.append((self.made[expr], 2 if dtypes.is_bool(expr.dtype) else None))
        return self.made[expr]


Rewrite = Callable[[Stmt, Place], Stmt]


def rewrite(stmt: Stmt, place: Place, fn: Rewrite) -> Stmt:
    """Bottom-up: the children of `stmt` at their places, then `fn` on what they make."""
    return fn(map_below(stmt, place, lambda child, here: rewrite(child, here, fn)), place)


def map_below(stmt: Stmt, place: Place, fn: Rewrite) -> Stmt:
    """`stmt` with `fn` applied to each child statement at its place; itself if nothing changed."""
    if isinstance(stmt, Seq):
        return _map_sequence(stmt, place, fn)
    if isinstance(stmt, If):
        then = fn(stmt.then, place.where(stmt.cond))
        other = None if stmt.orelse is None else fn(stmt.orelse, place.where(stmt.cond, False))
        return stmt if then is stmt.then and other is stmt.orelse else If(stmt.cond, then, other)
    if isinstance(stmt, Block):
        inner = place.block(stmt)
        init = None if stmt.init is None else fn(stmt.init, inner)
        body = fn(stmt.body, inner)
        return stmt if init is stmt.init and body is stmt.body else replace(stmt, init=init, body=body)
    if isinstance(stmt, (For, Let, Attr, Allocate, Declare)):
        body = fn(stmt.body, below(stmt, place))
        return stmt if body is stmt.body else replace(stmt, body=body)
    return stmt


def _map_sequence(stmt: Seq, place: Place, fn: Rewrite) -> Stmt:
    items: list[Stmt] = []
    for item in stmt.stmts:
        items.append(fn(item, place))
        place = place.after(item)
    return stmt if all(a is b for a, b in zip(items, stmt.stmts, strict=True)) else seq(items)


def below(stmt: For | Let | Attr | Allocate | Declare, place: Place) -> Place:
    """The place of the one body of `stmt`."""
    if isinstance(stmt, For):
        return place.loop(stmt)
    return place.bound(stmt.var, stmt.value) if isinstance(stmt, Let) else place


def places(stmt: Stmt, place: Place) -> Iterator[tuple[Stmt, Place]]:
    """`stmt` and every statement below with its place, parents first, in program order."""
    found: list[tuple[Stmt, Place]] = []

    def visit(item: Stmt, here: Place) -> Stmt:
        found.append((item, here))
        return map_below(item, here, visit)

    visit(stmt, place)
    return iter(found)


def start(func: PrimFunc) -> Place:
    """The place of a function's body: its integer parameters may have any value."""
    scalars = [p for p in func.params if isinstance(p, Var) and dtypes.is_int(p.dtype)]
    return replace(nowhere(), dims=tuple((p, None) for p in scalars))


def place_of(func: PrimFunc, stmt: Stmt) -> Place:
    """The place of a statement of the function, which is found by identity.  Raises ValueError."""
    for item, place in places(func.body, start(func)):
        if item is stmt:
            return place
    raise ValueError("the statement is not part of the function")
