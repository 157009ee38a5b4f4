"""What holds at a place of a program: the one answer for every proof and rewrite over statements.

Each statement says what holds in those that stand in it::

    for i in n: S                    0 <= i < n
    if c: S else: T                  c in S, not c in T
    let x = e: S                     x == e
    block v(extent) = b where c: S   c, v == b, 0 <= v < extent
    assume(c); S                     c, where it is over variables alone

A `Context` is what came together on the way from the root, and answers twice: quickly through intervals
(`facts`), exactly through the integer points of `domain`.  `below` and `map_below` carry it from a statement to its
children in program order.  `Facts` alone is the half that needs no sets (`facts_below`); `dataflow.instances` has
the same conditions with everything that is bound written out over the loops, as sets of instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from . import dtypes
from .arith.integer_calls import as_arithmetic
from .arith.intervals import Facts, negate, nothing_known
from .arith.simplifier import simplifier_for
from .arith.statements import assumed
from .caches import cached
from .expr import (
    TRUE,
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    binary,
    conjuncts,
    reads_memory,
    substitute,
    variables,
)
from .node import rebuild
from .ranges import preconditions
from .stmt import (
    Block,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    blocks,
    fresh,
    map_children,
    memories_read,
    memories_written,
    stmt_children,
)

if TYPE_CHECKING:
    from .affine.sets import Domain, Extent, IntSet


@dataclass(frozen=True)
class Surroundings:
    """What stands between a block and the block around it.

    `outer` are the iterators of the block around, `steps` the loops (variable and
    extent) and conditions in order, with the values of `lets` written out.  `given` are the preconditions of the
    function.
    """

    outer: tuple[Iter, ...] = ()
    steps: tuple[tuple[Var, Expr] | Expr, ...] = ()
    lets: tuple[tuple[Var, Expr], ...] = ()
    given: tuple[Expr, ...] = ()

    @property
    def loops(self) -> tuple[tuple[Var, Expr], ...]:
        return tuple(s for s in self.steps if isinstance(s, tuple))

    def conditions(self, block: Block) -> tuple[Expr, ...]:
        found = [c for s in self.steps if not isinstance(s, tuple) for c in conjuncts(s)]
        return (*found, *conjuncts(block.predicate))

    def then(self, step: tuple[Var, Expr] | Expr) -> Surroundings:
        """The surroundings of what stands below one more loop or condition."""
        plain = (step[0], self.plain(step[1])) if isinstance(step, tuple) else self.plain(step)
        return replace(self, steps=(*self.steps, plain))

    def let(self, var: Var, value: Expr) -> Surroundings:
        """The surroundings of what stands below a binding."""
        return replace(self, lets=(*self.lets, (var, self.plain(value))))

    def inside(self, block: Block) -> Surroundings:
        """The surroundings of what stands in a block with iterators."""
        return Surroundings(block.iters, given=self.given)

    def plain(self, expr: Expr) -> Expr:
        """An expression with the values of bindings written out."""
        result: Expr = substitute(expr, dict(self.lets)) if self.lets else expr
        return result


@dataclass(frozen=True)
class Context:
    """The loops, iterators and bindings around, and the conditions that lead here.

    Statements may be moved where a context is used for rewriting, so that only what no store can change is kept.
    With `safety`, the context is one of a proof that moves nothing: a condition that loads from memory is kept where
    nothing below stores to what it loads, and assumptions are not believed.
    """

    facts: Facts
    dims: tuple[tuple[Var, Extent], ...] = ()
    conditions: tuple[Expr, ...] = ()
    around: Surroundings = Surroundings()
    safety: bool = False

    def loop(self, loop: For) -> Context:
        """The body of a loop."""
        var, extent = loop.var, loop.extent
        facts = self.facts.looping(var, extent)
        limit: Extent = int(extent.value) if isinstance(extent, Const) else extent
        if isinstance(limit, Expr):
            if self._lasts(limit, loop.body):
                facts = facts.assuming(binary("<", var, limit), memory=self.safety)
            elif self.safety:
                limit = facts.interval(var)[1] + 1
        dims = (*self.dims, (var, limit))
        return replace(self, facts=facts, dims=dims, around=self.around.then((var, extent)))

    def branch(self, stmt: If, truth: bool) -> Context:
        """One side of a conditional."""
        body = stmt.then if truth else stmt.orelse
        return replace(self._knowing(stmt.cond, truth, body), around=self._step(stmt.cond, truth))

    def where(self, cond: Expr, truth: bool = True) -> Context:
        """The context in which `cond` has the value `truth`, of an expression or statement that stores nothing."""
        return replace(self._knowing(cond, truth, None), around=self._step(cond, truth))

    def let(self, stmt: Let) -> Context:
        """The body of a binding."""
        inner = self.bound(stmt.var, stmt.value, stmt.body)
        return replace(inner, around=self.around.let(stmt.var, stmt.value))

    def bound(self, var: Var, value: Expr, body: Stmt | None, limit: tuple[int, int] | None = None) -> Context:
        """The context in which `var` is bound to `value`, which lies in `limit`: of `body`, or of an expression."""
        if not (dtypes.is_int(var.dtype) or dtypes.is_bool(var.dtype)) or dtypes.lanes(var.dtype) > 1:
            return self
        facts = self.facts.binding(var, simplifier_for(self.facts).expr(value), limit)
        dims = self.dims
        if not self.safety or all(v != var for v, _ in dims):
            dims = (*dims, (var, None if limit is None else limit[1] + 1))
        conditions = (*self.conditions, _equal(var, value)) if self._lasts(value, body) else self.conditions
        return replace(self, facts=facts, dims=dims, conditions=conditions)

    def block(self, block: Block) -> Context:
        """The init and the body of a block."""
        inside = block.body if block.init is None else Seq((block.init, block.body))
        outer = inner = self.running(block)
        for item in block.iters:
            binding = simplifier_for(outer.facts).expr(item.binding)
            inner = inner.bound(item.var, binding, inside, outer.facts.within(item.limit))
            if isinstance(item.limit, Expr):
                inner = inner._knowing(binary("<", item.var, item.limit), True, None)
        return replace(inner, around=self.around.inside(block)) if block.iters else inner

    def running(self, block: Block) -> Context:
        """The context inside of a block, in which its predicate holds."""
        inside = block.body if block.init is None else Seq((block.init, block.body))
        return self._knowing(block.predicate, True, inside)

    def after(self, stmt: Stmt) -> Context:
        """Behind `stmt`: what its assumptions say about variables holds from there on."""
        context = self
        for cond in () if self.safety else assumed(stmt):
            context = context._knowing(cond, True, None)
        return context

    def _knowing(self, cond: Expr, truth: bool, body: Stmt | None) -> Context:
        parts = conjuncts(cond if truth else negate(cond))
        kept = tuple(c for c in parts if c != TRUE and self._lasts(c, body))
        facts = self.facts
        for part in kept:
            facts = facts.assuming(part, memory=self.safety) if dtypes.lanes(part.dtype) == 1 else facts
        return replace(self, facts=facts, conditions=self.conditions + kept) if kept else self

    def _step(self, cond: Expr, truth: bool) -> Surroundings:
        return self.around.then(cond if truth else Not(cond))

    def _lasts(self, expr: Expr, body: Stmt | None) -> bool:
        """Whether `expr` keeps its value all through `body`, as far as that counts here."""
        if not reads_memory(expr):
            return True
        return self.safety and (body is None or memories_read(expr).isdisjoint(memories_written(body)))

    def simplify(self, expr: Expr) -> Expr:
        """`expr` as simple as intervals allow."""
        return simplifier_for(self.facts).expr(expr)

    @cached_property
    def domain(self) -> Domain:
        """The values that the variables around take together; a superset where something is not affine."""
        from .affine.sets import Domain

        return Domain(self.dims, self.conditions).relaxed()

    def points(self, *conds: Expr) -> IntSet:
        """The points at which every one of `conds` may hold.  Raises NotAffine and Unknown.

        What `conds` load from memory, and variables that are not known here, may have any value,
        the same wherever the same expression occurs.
        """
        from .affine.sets import Domain, points

        opaque = _Opaque({v.name for v in self.domain.variables}, {v.name for c in conds for v in variables(c)})
        parts = tuple(opaque.seen(c) for c in conds)
        return points(Domain((*self.domain.dims, *opaque.dims), (*self.domain.conditions, *parts)))

    def excludes(self, *conds: Expr) -> bool:
        """Whether `conds` never hold together here; False also where that is unknown."""
        from .affine.guard import NotAffine, Unknown

        try:
            return self.points(*conds).is_empty()
        except (NotAffine, Unknown):
            return False

    def implies(self, cond: Expr) -> bool:
        """Whether `cond` always holds here; False also where that is unknown."""
        return self.simplify(cond) == TRUE or self.excludes(Not(cond))


def nowhere() -> Context:
    """Outside of everything."""
    return Context(nothing_known())


def _equal(var: Var, value: Expr) -> Expr:
    if not dtypes.is_bool(var.dtype):
        return Binary("==", var, value)
    return Binary("or", Binary("and", var, value), Binary("and", Not(var), negate(value)))


@cached(1 << 12)
def has_init(stmt: Stmt) -> bool:
    """Whether some block at or below `stmt` begins a reduction."""
    return any(b.init is not None for b in blocks(stmt))


class _Opaque:
    """Variables in the place of what has no exact set."""

    def __init__(self, known: set[str], taken: set[str]) -> None:
        self.given, self.taken = frozenset(known), known | taken
        self.made: dict[Expr, Var] = {}
        self.dims: list[tuple[Var, int | None]] = []

    def seen(self, expr: Expr) -> Expr:
        if self._is_opaque(expr):
            return self._variable(expr)
        result: Expr = rebuild(expr, lambda child: self.seen(child) if isinstance(child, Expr) else child)
        return result

    def _is_opaque(self, expr: Expr) -> bool:
        if isinstance(expr, Var):
            return expr.name not in self.given
        if isinstance(expr, Binary) and dtypes.is_float(expr.a.dtype):
            return True
        if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
            return dtypes.is_float(expr.dtype)
        return isinstance(expr, Load) or (isinstance(expr, Call) and as_arithmetic(expr) is None)

    def _variable(self, expr: Expr) -> Var:
        if expr not in self.made:
            name = fresh("value", self.taken)
            self.taken.add(name)
            self.made[expr] = Var(name, expr.dtype)
            self.dims.append((self.made[expr], 2 if dtypes.is_bool(expr.dtype) else None))
        return self.made[expr]


# ---------------------------------------------------------------- from a statement to those in it


def _inside(stmt: Stmt, here: Context) -> Iterator[Context]:
    """What holds in each of `stmt_children`, in program order."""
    if isinstance(stmt, Seq):
        for item in stmt.stmts:
            yield here
            here = here.after(item)
    elif isinstance(stmt, If):
        yield here.branch(stmt, True)
        if stmt.orelse is not None:
            yield here.branch(stmt, False)
    elif isinstance(stmt, Block):
        inner = here.block(stmt)
        if stmt.init is not None:
            yield inner
        yield inner
    elif isinstance(stmt, For):
        yield here.loop(stmt)
    elif isinstance(stmt, Let):
        yield here.let(stmt)
    elif stmt_children(stmt):
        yield here


def below(stmt: Stmt, here: Context) -> Iterator[tuple[Stmt, Context]]:
    """The statements that stand directly in `stmt`, which stands at `here`, each with what holds there."""
    return zip(stmt_children(stmt), _inside(stmt, here), strict=True)


Rewrite = Callable[[Stmt, Context], Stmt]


def map_below(stmt: Stmt, here: Context, fn: Rewrite) -> Stmt:
    """`stmt` with `fn` applied to each of these; itself if nothing changed."""
    inside = _inside(stmt, here)
    return map_children(stmt, lambda child: fn(child, next(inside)))


def rewrite(stmt: Stmt, here: Context, fn: Rewrite) -> Stmt:
    """Bottom-up: the children of `stmt` where they stand, then `fn` on what they make."""
    return fn(map_below(stmt, here, lambda child, inner: rewrite(child, inner, fn)), here)


def contexts(stmt: Stmt, here: Context) -> Iterator[tuple[Stmt, Context]]:
    """`stmt` and every statement below with what holds there, parents first, in program order."""
    yield stmt, here
    for child, inner in below(stmt, here):
        yield from contexts(child, inner)


def start(func: PrimFunc, safety: bool = False) -> Context:
    """What holds in a function's body: its integer parameters have any values that its preconditions allow."""
    here = Context(nothing_known(func.is_strict), dims=tuple((v, None) for v in func.integers), safety=safety)
    given = preconditions(func)
    for cond in given:
        here = here._knowing(cond, True, None)
    return replace(here, around=Surroundings(given=given)) if given else here


def context_of(func: PrimFunc, stmt: Stmt) -> Context:
    """What holds at a statement of the function, which is found by identity.  Raises ValueError."""
    for item, here in contexts(func.body, start(func)):
        if item is stmt:
            return here
    raise ValueError("the statement is not part of the function")


# ---------------------------------------------------------------- by intervals alone, in programs without blocks


def _facts_inside(stmt: Stmt, facts: Facts) -> Iterator[Facts]:
    if isinstance(stmt, If):
        yield facts.assuming(stmt.cond)
        if stmt.orelse is not None:
            yield facts.assuming(stmt.cond, False)
    elif isinstance(stmt, For):
        yield facts.looping(stmt.var, stmt.extent)
    elif isinstance(stmt, Let):
        yield facts.binding(stmt.var, stmt.value)
    else:
        yield from (facts for _ in stmt_children(stmt))


def facts_below(stmt: Stmt, facts: Facts) -> Iterator[tuple[Stmt, Facts]]:
    """The statements that stand directly in `stmt`, each with the facts there."""
    return zip(stmt_children(stmt), _facts_inside(stmt, facts), strict=True)


def map_with_facts(stmt: Stmt, facts: Facts, fn: Callable[[Stmt, Facts], Stmt]) -> Stmt:
    """`stmt` with `fn` applied to each of these; itself if nothing changed."""
    inside = _facts_inside(stmt, facts)
    return map_children(stmt, lambda child: fn(child, next(inside)))
