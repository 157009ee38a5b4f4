"""Conditions and bindings that do not depend on a loop move out of it.

::

    for v in N: if c: A else: B              ->  if c: { for v in N: A } else: { for v in N: B }
    for v in N: if c and d(v): A             ->  if c: for v in N: if d(v): A        boolean expressions
    for v in N: B[v] = if_then_else(c, x, y) ->  if c: { for v: B[v] = x } else: { for v: B[v] = y }
    for v in N: let x = e: S                 ->  let x = e: for v in N: S

each to the outermost loop that it does not depend on.  Conditions of a move: (1) every
variable is defined above the loop; inside a block that means what its iterators are bound
to; (2) nothing in the loop stores to what is loaded, and that memory exists above;
(3) what may fail (a load, a division) was evaluated in every iteration before, under no
other condition, and the loop has an iteration, and what reads memory that may be undef
decided something before; (4) reductions still provably begin with
their init; (5) the loop is none over threads, which give a kernel its shape; (6) the
copies of one run have at most `LARGEST` statements.  Source: RFC 0077, "New Transform - Hoist Expression".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import Any, TypeVar

from .. import dtypes
from ..arith.intervals import negate
from ..arith.statements import is_empty
from ..context import Context, map_below, nowhere
from ..expr import (
    LOGIC,
    TRUE,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Select,
    Undef,
    Var,
    can_fail,
    const,
    refold,
    substitute,
    variables,
)
from ..node import children, rebuild, walk
from ..stmt import Assume, Block, For, If, Iter, Let, Stmt, Store, memories_read, memories_written
from ..text import expr_text
from ..verify.init import starts
from .conditionals import decide_conditions
from .empty import pruned
from .renaming import another, copied

LARGEST = 512


class HoistConditional(Flag):
    """The kinds of conditions that move."""

    NONE = 0
    IF_ELSE_STMT = auto()
    """Conditions of `If` and predicates of blocks, as a whole."""
    IF_ELSE_EXPR = auto()
    """Conditions of ``if_then_else``."""
    BOOLEAN_EXPRESSION = auto()
    """Other expressions of type bool, and parts of conditions, which are split so, or whole ones of statements."""
    USING_BLOCK_VAR = auto()
    """Also those of the kinds above that depend on a thread."""
    ALL = IF_ELSE_STMT | IF_ELSE_EXPR | BOOLEAN_EXPRESSION | USING_BLOCK_VAR


class HoistLetBinding(Flag):
    """The kinds of bindings that move."""

    NONE = 0
    REQUIRED_BY_CONDITION = auto()
    """Those that a condition needs in order to move."""
    LET_STMT = auto()
    LET_EXPR = auto()
    ALL = REQUIRED_BY_CONDITION | LET_STMT | LET_EXPR


F = TypeVar("F", bound=Flag)


def flags(kind: type[F], given: F | str | Sequence[str]) -> F:
    """Flags from members, or from their names in lower case.  Raises ValueError for an unknown name."""
    if isinstance(given, kind):
        return given
    assert not isinstance(given, Flag)
    result = kind(0)
    for name in (given,) if isinstance(given, str) else given:
        if name.upper() not in kind.__members__:
            known = ", ".join(m.lower() for m in kind.__members__)
            raise ValueError(f"unknown flag {name!r}; known are {known}")
        result |= kind[name.upper()]
    return result


@dataclass(frozen=True)
class Kept:
    """Why a condition or binding stays in a loop."""

    what: Expr
    loop: str
    reason: str

    def __str__(self) -> str:
        return f"`{expr_text(self.what)}` stays in loop `{self.loop}`: {self.reason}"


class Hoister:
    """Moves what it can out of the loops of a statement, the outermost loop first; `kept` tells the rest.

    `taken` are the names in use in the function, and copies take further ones; `undefined` those of what
    may be undef.
    """

    def __init__(
        self, conditionals: HoistConditional, lets: HoistLetBinding, taken: set[str],
        undefined: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.conditionals, self.lets, self.taken, self.undefined = conditionals, lets, taken, undefined
        self.threads: frozenset[str] = frozenset()
        self.kept: dict[Kept, None] = {}
        self.room = LARGEST

    def run(self, stmt: Stmt, place: Context) -> Stmt:
        """`stmt`, which stands at `place`, with everything hoisted that may be."""
        if isinstance(stmt, For) and stmt.thread:
            self.threads |= {stmt.var.name}
        if isinstance(stmt, For) and stmt.kind != "thread_binding":
            lifted = self._lifted(stmt, place)
            if lifted is not None:
                return self.run(lifted, place)
        return map_below(stmt, place, self.run)

    def _lifted(self, loop: For, place: Context) -> Stmt | None:
        """The loop with one condition or binding moved out; None if there is none to move."""
        for found in self._candidates(loop, place):
            reason = _obstacle(found, loop) or self._by_thread(found) or self._undecided(found)
            if reason:
                self.kept[Kept(found.inside, loop.var.name, reason)] = None
            elif found.binding is not None:
                return self._bound(found, found.binding, loop)
            elif (new := self._split(loop, nowhere().simplify(found.expr), place)) is not None:
                return new
        return None

    # ------------------------------------------------------------ conditions

    def _split(self, loop: For, cond: Expr, place: Context) -> Stmt | None:
        """``if cond: loop else: loop``, each simplified; None where that gains nothing or may not be."""
        if isinstance(place.simplify(cond), Const):
            return None
        if isinstance(cond, Not) or (isinstance(cond, Binary) and cond.op == "!="):
            cond = negate(cond)
        then, other = (self._version(loop, cond, truth, place) for truth in (True, False))
        if loop in (then, other):
            return None
        growth = _size(then) + _size(other) - _size(loop)
        if growth > self.room:
            self.kept[Kept(cond, loop.var.name, f"(6) the copies would exceed {LARGEST} statements")] = None
            return None
        if not starts(then, place.where(cond)) or not starts(other, place.where(cond, False)):
            self.kept[Kept(cond, loop.var.name, "(4) a reduction inside might not begin with its init")] = None
            return None
        self.room -= growth
        if is_empty(then):
            return If(place.simplify(negate(cond)), other)
        return If(cond, then, None if is_empty(other) else copied(other, self.taken))

    def _version(self, loop: For, cond: Expr, truth: bool, place: Context) -> Stmt:
        """The loop where `cond` is known to be `truth`."""
        known = {place.simplify(cond): truth, place.simplify(negate(cond)): not truth}
        version: Stmt = _Known(known, place).stmt(loop, {})
        return version if version is loop else pruned(decide_conditions(version, place.where(cond, truth)))

    # ------------------------------------------------------------ bindings

    def _bound(self, found: Candidate, binding: Let | LetExpr, loop: For) -> Stmt:
        """The loop below a binding that stood in it."""
        var = binding.var
        if isinstance(binding, LetExpr):
            var = Var(another(var.name, self.taken), var.dtype)
            self.undefined |= {var.name} if binding.var.name in self.undefined else set()
        body: Stmt = _unbound(loop, binding, var)
        return Let(var, found.expr, body)

    # ------------------------------------------------------------ candidates

    def _candidates(self, loop: For, place: Context) -> Iterator[Candidate]:
        """What the flags let move, in program order, outer ones before their parts."""
        for found in _below(loop.body, _View(place.facts.interval(loop.extent)[0] >= 1, frozenset((loop.var,)))):
            if found.binding is not None:
                wanted = HoistLetBinding.LET_STMT if isinstance(found.binding, Let) else HoistLetBinding.LET_EXPR
                if wanted in self.lets:
                    yield found
                continue
            kinds = found.kind or HoistConditional.BOOLEAN_EXPRESSION
            if kinds is HoistConditional.IF_ELSE_STMT:
                kinds |= HoistConditional.BOOLEAN_EXPRESSION
            if not kinds & self.conditionals:
                continue
            required = [let for let in found.lets if let.var in variables(found.expr)]
            if required and HoistLetBinding.REQUIRED_BY_CONDITION in self.lets:
                yield from self._required(found, required, loop)
            yield found

    def _required(self, found: Candidate, lets: list[Candidate], loop: For) -> Iterator[Candidate]:
        """The bindings of a condition, if with all of them outside the condition could follow."""
        whole = found.expr
        for let in reversed(found.lets):
            if let.var is not None:
                whole = substitute(whole, {let.var: let.expr})
        free = replace(found, expr=whole, bound=found.bound - {let.var for let in found.lets if let.var is not None})
        if not _obstacle(free, loop):
            yield from (let for let in found.lets if let in lets or any(let.var in variables(x.expr) for x in lets))

    def _by_thread(self, found: Candidate) -> str:
        """Whether a thread would decide, although that was not asked for."""
        used = {v.name for v in variables(found.expr)} & self.threads
        if not used or found.binding is not None or HoistConditional.USING_BLOCK_VAR in self.conditionals:
            return ""
        return f"it depends on the thread `{min(used)}`, and conditions of threads were not asked for"

    def _undecided(self, found: Candidate) -> str:
        """Whether something that only was computed with would decide, although it may be undef."""
        undefined = (memories_read(found.expr) | {v.name for v in variables(found.expr)}) & self.undefined
        stays_data = isinstance(found.binding, Let) or (found.var is not None and dtypes.is_float(found.var.dtype))
        if found.decides or stays_data or not undefined:
            return ""
        return f"(3) it decides nothing yet, and reads `{min(undefined)}`, which may be undef"


@dataclass(frozen=True)
class Candidate:
    """A condition, or the value of a binding, below some loop.

    `inside` is what is written there, `expr` the same above the blocks that are between.
    `bound` are the variables bound between, `lets` the bindings among them; `certain` says
    that every iteration evaluates it, `decides` that it is all of a condition, or part of an index.
    """

    inside: Expr
    expr: Expr
    certain: bool
    bound: frozenset[Var]
    buffers: frozenset[str] = frozenset()
    lets: tuple[Candidate, ...] = ()
    kind: HoistConditional | None = None
    binding: Let | LetExpr | None = None
    decides: bool = False

    @property
    def var(self) -> Var | None:
        return None if self.binding is None else self.binding.var


def _obstacle(found: Candidate, loop: For) -> str:
    """Which condition of a move fails; empty if none does."""
    inner = sorted(v.name for v in variables(found.expr) & found.bound)
    if inner:
        return f"(1) it depends on `{inner[0]}`, which is defined inside"
    changed = memories_read(found.expr) & memories_written(loop)
    if changed:
        return f"(2) it loads from `{min(changed)}`, which the loop stores to"
    local = {n.buffer.name for n in walk(found.expr) if isinstance(n, Load)} & found.buffers
    if local:
        return f"(2) it loads from `{min(local)}`, which exists only inside"
    if any(isinstance(n, Undef) for n in walk(found.expr)):
        return "(2) it depends on undef"
    if not found.certain and can_fail(found.expr):
        return "(3) it is evaluated under a condition, which protects it"
    return ""


@dataclass(frozen=True)
class _View:
    """What is known between a loop and an expression below it."""

    certain: bool
    bound: frozenset[Var]
    env: tuple[tuple[Var, Expr], ...] = ()
    buffers: frozenset[str] = frozenset()
    lets: tuple[Candidate, ...] = ()

    def above(self, expr: Expr) -> Expr:
        """`expr` with iterators replaced by what they are bound to."""
        result: Expr = substitute(expr, dict(self.env))
        return result

    def candidate(self, expr: Expr, kind: HoistConditional | None = None, decides: bool = False) -> Candidate:
        own = (expr, self.above(expr), self.certain, self.bound, self.buffers, self.lets)
        return Candidate(*own, kind, decides=decides or kind is not None)

    def unsure(self) -> _View:
        return replace(self, certain=False)

    def let(self, binding: Let | LetExpr, own: Candidate) -> _View:
        return replace(self, bound=self.bound | {binding.var}, lets=(*self.lets, own))


def _below(node: Stmt, view: _View) -> Iterator[Candidate]:
    """Every condition and binding at or below `node`; assumptions keep what they say."""
    if isinstance(node, For):
        yield from _in_expression(node.extent, view, True)
        runs = view if isinstance(node.extent, Const) and node.extent.value >= 1 else view.unsure()
        yield from _below(node.body, replace(runs, bound=view.bound | {node.var}))
    elif isinstance(node, If):
        yield view.candidate(node.cond, HoistConditional.IF_ELSE_STMT)
        yield from _parts_of(node.cond, view)
        for branch in (node.then, node.orelse):
            if branch is not None:
                yield from _below(branch, view.unsure())
    elif isinstance(node, Let):
        yield from _in_expression(node.value, view, False)
        own = replace(view.candidate(node.value), binding=node)
        yield own
        yield from _below(node.body, view.let(node, own))
    elif isinstance(node, Block):
        yield from _in_block(node, view)
    elif not isinstance(node, Assume):
        names = frozenset(n.name for n in children(node) if isinstance(n, Buffer))
        inner = replace(view, buffers=view.buffers | names)
        for child in children(node):
            if isinstance(child, Stmt):
                yield from _below(child, inner)
            elif isinstance(child, Expr):
                yield from _in_expression(child, inner, isinstance(node, Store) and child is not node.value)


def _in_block(block: Block, view: _View) -> Iterator[Candidate]:
    yield view.candidate(block.predicate, HoistConditional.IF_ELSE_STMT)
    yield from _parts_of(block.predicate, view)
    inner = view if block.predicate == TRUE else view.unsure()
    env = dict(view.env)
    for item in block.iters:
        yield from _in_expression(item.binding, inner, True)
        env[item.var] = view.above(item.binding)
    names = frozenset(b.name for b in block.allocs)
    inner = replace(inner, env=tuple(env.items()), buffers=view.buffers | names)
    if block.init is not None:
        yield from _below(block.init, inner.unsure())
    yield from _below(block.body, inner)


def _parts_of(cond: Expr, view: _View) -> Iterator[Candidate]:
    """The candidates in a condition, without the condition itself, which is one of its own kind."""
    found = _in_expression(cond, view, True)
    yield from (one for one in found if one.inside is not cond)


def _in_expression(expr: Expr, view: _View, decides: bool) -> Iterator[Candidate]:
    """The candidates in an expression, whose value `decides` something or is only computed with."""
    if dtypes.is_bool(expr.dtype) and dtypes.lanes(expr.dtype) == 1 and not isinstance(expr, Const):
        yield view.candidate(expr, decides=decides)
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        yield view.candidate(cond, HoistConditional.IF_ELSE_EXPR)
        yield from _parts_of(cond, view)
        yield from _in_expression(a, view.unsure(), decides)
        yield from _in_expression(b, view.unsure(), decides)
        return
    if isinstance(expr, LetExpr):
        yield from _in_expression(expr.value, view, False)
        own = replace(view.candidate(expr.value), binding=expr)
        yield own
        yield from _in_expression(expr.body, view.let(expr, own), decides)
        return
    logic = isinstance(expr, Binary) and expr.op in LOGIC  # one side may decide without the other
    for child in children(expr):
        if isinstance(child, Expr):
            chooses = isinstance(expr, Load) or (isinstance(expr, Select) and child is expr.cond)
            yield from _in_expression(child, view, chooses or (decides and not logic))


class _Known:
    """Replaces conditions that are known at `place`, above the blocks of the statement, by their values."""

    def __init__(self, known: Mapping[Expr, bool], place: Context) -> None:
        self.known, self.place = known, place

    def stmt(self, node: Any, env: Mapping[Var, Expr]) -> Any:
        if isinstance(node, Assume):
            return node
        if isinstance(node, Block):
            return self._block(node, env)
        if isinstance(node, Expr):
            return self.expr(node, env)
        return rebuild(node, lambda child: self.stmt(child, env))

    def _block(self, block: Block, env: Mapping[Var, Expr]) -> Block:
        inner = {**env, **{i.var: substitute(i.binding, env) for i in block.iters}}

        def part(child: Any) -> Any:
            outside = isinstance(child, (Iter, Buffer)) or child is block.predicate
            return self.stmt(child, env if outside else inner)

        new: Block = rebuild(block, part)
        return new

    def expr(self, expr: Expr, env: Mapping[Var, Expr]) -> Expr:
        if isinstance(expr, (Var, Const)) and not dtypes.is_bool(expr.dtype):
            return expr
        if expr.dtype == "bool" and not isinstance(expr, Const):
            truth = self.known.get(self.place.simplify(substitute(expr, env)))
            if truth is not None:
                return const(truth)
        new: Expr = refold(rebuild(expr, lambda c: self.expr(c, env) if isinstance(c, Expr) else c))
        return new


def _unbound(node: Any, binding: Let | LetExpr, var: Var) -> Any:
    """`node` without a binding, whose variable is called `var` from above."""
    is_same = isinstance(node, LetExpr) and (node.var, node.value) == (binding.var, binding.value)
    if node is binding or (isinstance(binding, LetExpr) and is_same):
        return _unbound(substitute(node.body, {node.var: var}), binding, var)
    return rebuild(node, lambda child: _unbound(child, binding, var))


def _size(stmt: Stmt) -> int:
    return sum(1 for n in walk(stmt) if isinstance(n, Stmt))
