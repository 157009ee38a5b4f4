"""The proof that every access of a program stays inside its buffer.

For each load and store, and each dimension of its buffer ``b`` with index ``e``::

    for all executed instances:   0 <= e < b.shape[d]

Each view of a memory has its own shape, and needs no more bytes than the memory has.
A vector access is inside in every lane, and a condition on lanes protects those of vector
accesses only: a scalar access beside them is made in any case.  Instances come from loop extents, block
iterators, predicates and the conditions around; what an `Assume` claims is never used,
so that a false claim makes no proof true, nor is what a condition says about memory
that its body writes to.  Only ``if_then_else`` protects its sides, `Select` evaluates
both.  Intervals decide nearly everything, exact sets the rest; what neither can prove
is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...errors import ProgramError
from .. import dtypes
from ..arith.integer_calls import as_arithmetic
from ..arith.intervals import nothing_known
from ..arith.simplifier import simplifier_for
from ..caches import cached
from ..context import Context, below, start
from ..dataflow.accesses import own_expressions
from ..expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    Extent,
    LetExpr,
    Load,
    Ramp,
    Var,
    binary,
    const,
    reads_memory,
    substitute,
    variables,
)
from ..functions import LOAD_WITHIN
from ..node import Node, children, rebuild
from ..ranges import preconditions
from ..stmt import (
    Allocate,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Stmt,
    Store,
    fresh,
)
from ..text import expr_text, extent_text, extents_text

REMEMBERED = 4096  # questions about indices that intervals do not answer

Dims = tuple[tuple[Var, Extent | None], ...]


class OutOfBounds(ProgramError, ValueError):
    """An access that leaves its buffer, or that cannot be proven to stay inside."""


def check_in_bounds(node: PrimFunc | Stmt, of: PrimFunc | None = None, *, flat: bool = False) -> None:
    """Raises `OutOfBounds` with the block, the access and a point unless all accesses of `node` are proven inside.

    A statement may be one that was made `of` a function, whose preconditions hold in it.  Of a `flat` one accesses of
    parameters whose extents are expressions are left out: they are products, and were proven before.
    """
    of = node if isinstance(node, PrimFunc) else of
    nothing = Context(nothing_known(), safety=True)
    here = start(of, safety=True) if of is not None and preconditions(of) else nothing
    if isinstance(node, PrimFunc):
        _statement(node.body, _Scope(f"function `{node.name}`", here, node.buffers))
    else:
        _statement(node, _Scope("the statement", here, flat=flat))


class _Scope(NamedTuple):
    """What holds at one place, the place in words, and the memories that are there."""

    place: str
    here: Context
    memories: tuple[Buffer, ...] = ()
    flat: bool = False

    def where(self, cond: Expr, truth: bool = True) -> _Scope:
        return self._replace(here=self.here.where(cond, truth))

    def owning(self, *buffers: Buffer) -> _Scope:
        return self._replace(memories=self.memories + buffers)


def _statement(stmt: Stmt, scope: _Scope) -> None:
    if scope.here.facts.impossible:
        return
    if isinstance(stmt, Block):
        scope = _in_block(stmt, scope)
        if scope.here.running(stmt).facts.impossible:
            return
    elif isinstance(stmt, Store):
        for expr in (stmt.value, *stmt.indices):
            _expression(expr, scope)
        _access(stmt.buffer, stmt.indices, scope, "writes")
    elif isinstance(stmt, (If, Let, For, Evaluate)):
        for expr, _ in own_expressions(stmt):
            _expression(expr, scope)
    elif isinstance(stmt, Attr) and isinstance(stmt.value, Expr):
        _expression(stmt.value, scope)
    elif isinstance(stmt, Allocate):
        scope = scope.owning(stmt.buffer)
    elif isinstance(stmt, Declare):
        _view(stmt.buffer, scope)
    for child, inside in below(stmt, scope.here):
        _statement(child, scope._replace(here=inside))


def _in_block(block: Block, scope: _Scope) -> _Scope:
    """The scope of a block's own statements, with what stands around its iterators; predicate and bindings checked."""
    scope = scope._replace(place=f"block `{block.name}`" if block.name != "root" else scope.place)
    _expression(block.predicate, scope)
    running = scope._replace(here=scope.here.running(block))
    if not running.here.facts.impossible:
        for item in block.iters:
            _iterator(item, running)
    return scope.owning(*block.allocs)


def _view(buffer: Buffer, scope: _Scope) -> None:
    """A declared view needs no more bytes than its memory has."""
    for memory in scope.memories:
        same = (buffer.extents, buffer.dtype) == (memory.extents, memory.dtype)
        if memory.name == buffer.data and not same and buffer.nbytes > memory.nbytes:
            raise OutOfBounds(
                f"{scope.place} declares `{buffer.name}` of {buffer.nbytes} bytes over `{memory.name}`, "
                f"which has only {memory.nbytes}"
            )


def _iterator(item: Iter, scope: _Scope) -> None:
    """The binding of a block iterator stays inside the iterator's extent."""
    _expression(item.binding, scope)
    problem = _problem(item.binding, item.limit, scope)
    if problem is not None:
        raise OutOfBounds(
            f"{scope.place} binds `{item.var.name}` of extent {extent_text(item.limit)} to "
            f"`{expr_text(item.binding)}`, which {problem}; restrict it with `T.where`"
        )


def _expression(expr: Expr, scope: _Scope) -> None:
    """Check the loads in `expr`."""
    if not reads_memory(expr) or scope.here.facts.impossible:
        return
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        _expression(cond, scope)
        _expression(a, scope.where(cond))
        _expression(b, scope.where(cond, False))
        return
    if isinstance(expr, Call) and expr.name == LOAD_WITHIN:
        (load,) = expr.args
        for index in children(load):
            if isinstance(index, Expr):
                _expression(index, scope)
        return
    if isinstance(expr, LetExpr):
        _expression(expr.value, scope)
        _expression(expr.body, scope._replace(here=scope.here.bound(expr.var, expr.value, None)))
        return
    for child in children(expr):
        if isinstance(child, Expr):
            _expression(child, scope)
    if isinstance(expr, Load):
        _access(expr.buffer, expr.indices, scope, "reads")


def _access(buffer: Buffer, indices: tuple[Expr, ...], scope: _Scope, verb: str) -> None:
    if scope.flat and not buffer.is_fixed:
        return
    if len(indices) != buffer.rank:
        raise OutOfBounds(
            f"{scope.place} {verb} `{_access_text(buffer, indices)}` with {len(indices)} indices, "
            f"but `{buffer.name}` has {buffer.rank} dimensions"
        )
    if all(dtypes.lanes(index.dtype) == 1 for index in indices):
        alone = tuple(c for c in scope.here.conditions if dtypes.lanes(c.dtype) == 1)
        scope = scope._replace(here=replace(scope.here, conditions=alone))
    for dim, (index, extent) in enumerate(zip(indices, buffer.extents, strict=True)):
        problem = _problem(index, extent, scope)
        if problem is not None:
            raise OutOfBounds(
                f"{scope.place} {verb} `{_access_text(buffer, indices)}` of shape [{extents_text(buffer.extents)}]: "
                f"index `{expr_text(index)}` of dimension {dim} with extent {extent_text(extent)} {problem}"
            )


def _problem(index: Expr, extent: Extent, scope: _Scope) -> str | None:
    """None if ``0 <= index < extent`` is proven, otherwise what goes wrong."""
    facts = scope.here.facts
    if isinstance(extent, Expr):
        return _exact_problem(index, extent, scope.here.dims, scope.here.conditions)
    low, high = facts.interval(index)
    if low < 0 or high >= extent:
        low, high = facts.interval(simplifier_for(facts).expr(index))
    if low >= 0 and high < extent:
        return None
    return _exact_problem(index, extent, scope.here.dims, scope.here.conditions)


@cached(REMEMBERED)
def _exact_problem(index: Expr, extent: Extent, dims: Dims, given: tuple[Expr, ...]) -> str | None:
    """What goes wrong with an index among loops with their extents where conditions hold.

    Remembered, as most steps of a schedule leave what most accesses rest on as it was.
    """
    from ..affine import sets

    view = _SetView(dims)
    value = view.scalar(index)
    conditions = tuple(view.scalar(c) for c in given)
    domain = sets.Domain((*view.dims, *view.extra), conditions)
    end = view.scalar(extent) if isinstance(extent, Expr) else extent
    inside = binary("and", binary("<=", const(0), value), binary("<", value, end))
    try:
        relaxed = domain.relaxed()
        point = sets.counterexample(relaxed, inside)
    except sets.NotAffine as err:
        if _is_inside_loosely(value, end, view, conditions):
            return None
        return f"cannot be proven inside, because {err}; clamp it with `T.min` and `T.max`"
    except sets.Unknown as err:
        return f"cannot be proven inside: {err}"
    if point is None:
        return None
    used = variables(inside)
    shown = {v.name: point[v.name] for v in domain.variables if v in used}
    where = ", ".join(f"{name} = {number}" for name, number in shown.items()) or "every instance"
    certain = relaxed == domain and all(limit is not None for _, limit in view.extra)
    return f"is outside at {where}" if certain else f"cannot be proven inside, for example at {where}"


def _is_inside_loosely(value: Expr, end: Extent, view: _SetView, conditions: tuple[Expr, ...]) -> bool:
    """Whether ``0 <= value < end`` also where the parts of `value` that have no exact set are any numbers.

    A remainder is one of those below its divisor, where that is positive: as in ``x[i % n]``.  Of other parts nothing
    is known, which suffices where they are clamped: ``T.min(T.max(.., 0), n - 1)``.
    """
    from ..affine import sets

    known = list(conditions)

    def domain() -> sets.Domain:
        return sets.Domain((*view.dims, *view.extra), tuple(known))

    def loose(node: Node) -> Node:
        new: Node = rebuild(node, loose)
        if not isinstance(new, Expr) or isinstance(new, (Const, Var)) or not dtypes.is_int(new.dtype):
            return new
        here = domain()
        if here.has_set(new):
            return new
        made = view.any_value(new)
        if isinstance(new, Binary) and new.op == "%" and here.interval(new.b)[0] >= 1:
            known.extend((binary("<=", const(0), made), binary("<", made, new.b)))
        return made

    known += [found for cond in conditions if isinstance(found := loose(cond), Expr) and found not in conditions]
    any_value = loose(value)
    assert isinstance(any_value, Expr)
    inside = binary("and", binary("<=", const(0), any_value), binary("<", any_value, end))
    try:
        return sets.counterexample(domain().relaxed(), inside) is None
    except (sets.NotAffine, sets.Unknown):
        return False


class _SetView:
    """Expressions for exact sets: lanes become a variable, and what is read from memory any value."""

    def __init__(self, dims: Dims) -> None:
        self.extra: list[tuple[Var, int | None]] = []
        self._known = {v for v, _ in dims}
        self._made: dict[Node, Var] = {}
        self.dims = tuple((v, self.scalar(e) if isinstance(e, Expr) else e) for v, e in dims)

    def scalar(self, expr: Expr) -> Expr:
        """`expr` for one lane, over the variables of `dims` and `extra`."""
        result = self._scalar(expr)
        assert isinstance(result, Expr)
        return result

    def any_value(self, expr: Expr) -> Var:
        """A variable in place of an expression."""
        return self._fresh("part", expr, dtypes.element(expr.dtype), None)

    def _scalar(self, node: Node) -> Node:
        if isinstance(node, Ramp):
            lane = self._fresh("lane", const(node.lanes), dtypes.element(node.dtype), node.lanes)
            return binary("+", self.scalar(node.base), binary("*", self.scalar(node.stride), lane))
        if isinstance(node, Broadcast):
            return self._scalar(node.value)
        if isinstance(node, LetExpr):
            return self._scalar(substitute(node.body, {node.var: node.value}))
        if isinstance(node, Var):
            known = node in self._known or not dtypes.is_int(node.dtype)
            return node if known else self._fresh(node.name, node, dtypes.element(node.dtype), None)
        is_opaque = isinstance(node, Call) and node.name != "if_then_else" and as_arithmetic(node) is None
        if is_opaque or isinstance(node, Load):
            assert isinstance(node, Expr)
            return self._fresh("value", node, dtypes.element(node.dtype), None) if dtypes.is_int(node.dtype) else node
        new: Node = rebuild(node, self._scalar)
        return new

    def _fresh(self, base: str, node: Node, dtype: str, extent: int | None) -> Var:
        """The variable that stands for `node`, of the same type, so that both wrap around alike."""
        if node not in self._made:
            taken = {v.name for v in self._known} | {v.name for v in self._made.values()}
            self._made[node] = Var(fresh(base, taken), dtype)
            self._known.add(self._made[node])
            self.extra.append((self._made[node], extent))
        return self._made[node]


def _access_text(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(expr_text(i) for i in indices)}]"
