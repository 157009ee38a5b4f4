"""Buffers move to where they are used, and shrink to what is used there.

::

    alloc B[N, M]:  for i in n: S1(B[i*t + .., ..]); S2(B[i*t + .., ..])
        ->  for i in n: alloc B[t, ..]:  S1(B[.., ..]); S2(B[.., ..])

A buffer enters a loop when its iterations use it independently (`privacy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.arith.intervals import ANY_INDEX, Facts, nothing_known
from ...ir.arith.linear import Linear, add, build, shared_form, variables_of
from ...ir.arith.simplify import simplify
from ...ir.context import map_with_facts
from ...ir.expr import Binary, Buffer, Const, Expr, Load, Var, as_int, binary, reads_memory
from ...ir.node import Node, rebuild
from ...ir.stmt import Allocate, Declare, For, If, Let, Seq, Stmt, Store, seq, walk_stmts
from .errors import LoweringError
from .masks import without_lane_conditions
from .privacy import is_private
from .scopes import Access, Step, accesses

CONCURRENT = ("parallel", "thread_binding")


def compact_buffers(stmt: Stmt) -> Stmt:
    """The statement with each allocation as far inside as its accesses allow, and as large as they need there.

    Raises LoweringError when concurrent iterations may share a buffer's elements.
    """
    return _visit(stmt, nothing_known(), False)


def _visit(stmt: Stmt, facts: Facts, inside: bool) -> Stmt:
    if isinstance(stmt, Allocate):
        return _place(stmt.buffer, _visit(stmt.body, facts, inside), facts, inside)
    inside = inside or isinstance(stmt, For)
    return map_with_facts(stmt, facts, lambda child, known: _visit(child, known, inside))


def _place(buffer: Buffer, body: Stmt, facts: Facts, inside: bool) -> Stmt:
    # Where other names stand for the same memory it must keep its shape.
    if any(isinstance(n, Declare) and n.buffer.data == buffer.name for n in walk_stmts(body)):
        return Allocate(buffer, body)
    found = list(accesses(body, frozenset((buffer,)), facts))
    if not found:
        return body
    whole = without_lane_conditions(body) if buffer.scope == "local" else body
    spans = found if whole is body else list(accesses(whole, frozenset((buffer,)), facts))
    return _Sink(buffer, found, spans).into(body, 0, facts, inside)


@dataclass
class _Sink:
    """One buffer on its way inwards.  `spans` are its accesses with all lanes of masked loops."""

    buffer: Buffer
    accesses: list[Access]
    spans: list[Access]

    def into(self, stmt: Stmt, depth: int, facts: Facts, entered: bool) -> Stmt:
        """`stmt` with the buffer allocated inside; `depth` steps of every access's path lie outside it.

        `entered` says whether there is a loop around; only there a buffer shrinks.
        """
        step = self._common_step(depth)
        if isinstance(stmt, (Allocate, Declare, Let)):
            return replace(stmt, body=self.into(stmt.body, depth, facts, entered))
        if isinstance(stmt, For) and step == stmt and self._may_enter(stmt, depth, facts):
            body = self.into(stmt.body, depth + 1, facts.looping(stmt.var, stmt.extent), True)
            return replace(stmt, body=body)
        if isinstance(stmt, If) and step == (stmt, 1):
            return replace(stmt, then=self.into(stmt.then, depth + 1, facts, entered))
        if isinstance(stmt, If) and step == (stmt, 0) and stmt.orelse is not None:
            return replace(stmt, orelse=self.into(stmt.orelse, depth + 1, facts, entered))
        if isinstance(stmt, Seq):
            return self._into_sequence(stmt, depth, facts, entered)
        return self._allocate(stmt, depth, entered)

    def _common_step(self, depth: int) -> Step | None:
        first = self.accesses[0].path
        if any(len(a.path) <= depth or a.path[depth] != first[depth] for a in self.accesses):
            return None
        return first[depth]

    def _into_sequence(self, stmt: Seq, depth: int, facts: Facts, entered: bool) -> Stmt:
        positions = [step[1] for a in self.accesses if not isinstance(step := a.path[depth], For)]
        first, last = min(positions), max(positions)
        if first == last:
            inner = self.into(stmt.stmts[first], depth + 1, facts, entered)
        else:
            inner = self._allocate(Seq(stmt.stmts[first : last + 1]), depth, entered)
        return seq([*stmt.stmts[:first], inner, *stmt.stmts[last + 1 :]])

    def _may_enter(self, loop: For, depth: int, facts: Facts) -> bool:
        if loop.kind == "vectorized" or (self.buffer.scope == "shared" and loop.has_items):
            return False
        if is_private(loop, depth, self.accesses, facts):
            return True
        if loop.kind in CONCURRENT:
            raise LoweringError(
                f"buffer `{self.buffer.name}` is used only inside the {loop.kind} loop `{loop.var.name}`, but it is "
                f"not proven that each iteration reads only what it wrote itself; compute the buffer outside of the "
                f"loop, or write all that is read of it first"
            )
        return False

    def _allocate(self, stmt: Stmt, depth: int, entered: bool) -> Stmt:
        if not entered:
            return Allocate(self.buffer, stmt)
        bases, shape = [], []
        inside = {v for a in self.accesses for v in a.bound_below(depth)}
        for dim, extent in enumerate(self.buffer.shape):
            base, size = _region(dim, extent, self.spans, inside, grows=self.spans is not self.accesses)
            bases.append(base)
            shape.append(size)
        smaller = replace(self.buffer, shape=tuple(shape))
        body: Stmt = _shift(stmt, self.buffer, smaller, bases)
        return Allocate(smaller, body)


def _region(dim: int, extent: int, found: Sequence[Access], inside: set[Var], grows: bool) -> tuple[Expr, int]:
    """The first index that is used in dimension `dim`, free of the variables `inside`, and how many follow.

    They are at most the `extent` of the buffer, unless it `grows` to hold lanes that nothing but a vector needs.
    """
    base: Linear | None = None
    low = high = 0
    for access in found:
        if reads_memory(access.indices[dim]):
            return Const(0), extent  # which the accesses may see changed
        form = shared_form(access.indices[dim])
        if not access.facts.is_exact(form):
            return Const(0), extent
        terms, lo, hi = _spread(form, access.facts, inside)
        if base is None:
            base, low, high = (terms, 0), lo, hi
        elif terms != base[0]:
            return Const(0), extent
        low, high = min(low, lo), max(high, hi)
    assert base is not None
    if high - low + 1 >= extent and not (grows and high - low + 1 > extent):
        return Const(0), extent
    return build((base[0], low)), high - low + 1


def _spread(form: Linear, facts: Facts, inside: set[Var]) -> tuple[dict[Expr, int], int, int]:
    """``form`` lies in ``terms + [low, high]`` with terms free of the variables `inside`.

    Of ``x//c`` with ``x`` in ``X + [l, h]`` the part outside is ``(X + l)//c``, and
    ``(X + l + d)//c - (X + l)//c <= ceil(d/c)``.
    """
    outer: Linear = ({}, 0)
    inner: dict[Expr, int] = {}
    low = high = 0
    for atom, k in form[0].items():
        if variables_of(atom).isdisjoint(inside):
            outer = add(outer, ({atom: k}, 0))
            continue
        quotient = _mixed_quotient(atom, facts, inside) if k > 0 else None
        if quotient is None:
            inner[atom] = k
        else:
            outer = add(outer, quotient[0], k)
            high += k * quotient[1]
    lo, hi = facts.of_form((inner, form[1] + outer[1]))
    return outer[0], low + lo, high + hi


def _mixed_quotient(atom: Expr, facts: Facts, inside: set[Var]) -> tuple[Linear, int] | None:
    if not isinstance(atom, Binary) or atom.op != "//" or not isinstance(atom.b, Const):
        return None
    divisor, form = as_int(atom.b), shared_form(atom.a)
    if divisor <= 0 or not facts.is_exact(form):
        return None
    terms, low, high = _spread(form, facts, inside)
    start = build((terms, low))
    used = variables_of(start)
    if not terms or not all(ANY_INDEX[0] <= end <= ANY_INDEX[1] for v in used for end in facts.interval(v)):
        return None
    # As each access has it, whatever else is known there.
    base = shared_form(simplify(binary("//", start, divisor), dict.fromkeys(used, ANY_INDEX)))
    return base, -((low - high) // divisor)


def _shift(node: Any, old: Buffer, new: Buffer, bases: Sequence[Expr]) -> Any:
    """Accesses of `old` become accesses of `new`, relative to `bases`."""

    def visit(item: Node) -> Node:
        made: Node = rebuild(item, guard)
        if isinstance(made, (Load, Store)) and made.buffer == old:
            indices = tuple(binary("-", i, b) for i, b in zip(made.indices, bases, strict=True))
            return replace(made, buffer=new, indices=indices)
        return made

    def guard(item: Node) -> Node:
        return visit(item) if isinstance(item, Stmt) or reads_memory(item) else item

    return guard(node)
