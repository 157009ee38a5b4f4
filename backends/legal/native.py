"""Vectors of OpenCL kernels as the device has them, and conditions settled.

::

    B[r] = e                 12 lanes           ->  B[r : r + 8] = e[0:8];  B[r + 8 : r + 12] = e[8:12]
    B[i : i + 8 : 2] = e                        ->  let h0 = e[0], h1 = e[1], ..; B[i] = h0; B[i + 2] = h1; ..
    e                        no such vectors    ->  shuffle([e[0], e[1], ..], [0, 1, ..])
    if_then_else(c, a, b)    c is known         ->  a, or b
    if_then_else(s, a, b)    one condition      ->  if_then_else(s, a, b)
    if_then_else(c, A[r], 0.5)                  ->  masked_load(c, A[r], 0.5)          where an instruction has masks
                                                ->  select(c, A[r], 0.5)               where all of r is in A
                                                ->  select(c, load_within(A[r]), 0.5)  elsewhere
    if_then_else(s, A[i], 0.5)                  ->  masked_load(s, A[i], 0.5)
    select(c, a, b)                             ->  select(c, a, b)                    where c has a vector form
    if c: B[r] = e                              ->  B[r] = select(c, e, B[r])          in private memory
                                                ->  if c: B[r] = e                     where an instruction has masks
                                                ->  let h = e; B[r : r + 2] = h[0:2]; if c[2]: B[r + 2] = h[2]; ..
    I[r, c]                  of an image        ->  shuffle([I[r, c // 4 * 4 : .. + 4]], [c % 4])
    A[p : p + 8 : 2]                            ->  shuffle([A[p : p + 4], A[p + 3 : p + 7]], [0, 2, 5, 7])

What has no vector form (conditions by lane, accesses with large strides) is assembled from its lanes, as are bools,
indices, and floats that are computed as another type.  OpenCL C has no masked loads: lanes for which a condition does
not hold, such as those behind the end of a row, are read and dropped, as long as they are in the buffer
(see `lane_reads`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.arith.linear import as_ramp
from ...ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Shuffle,
    Var,
    as_int,
    binary,
    const,
    reads_memory,
)
from ...ir.functions import TRUNCATED_CALLS
from ...ir.node import Node, children, rebuild, remembered, walk
from ...ir.stmt import Allocate, For, If, Let, Stmt, Store, memories_read, names_below, seq
from ..errors import CodegenError
from ..neighbours import picks
from .lane_reads import (
    Part,
    Place,
    component,
    components,
    condition,
    flat,
    guarded,
    is_image,
    load_or_constant,
    masked,
    masked_access,
    ramp,
    within,
)
from .lanes import lane, pieces, position

ARITHMETIC = ("+", "-", "*", "/", "min", "max")


def native(kernel: Stmt, place: Place) -> Stmt:
    """A kernel, written out, with vectors that the device has, and accesses as it has them."""
    taken = names_below(kernel)
    names = (name for number in range(1 << 30) if (name := f"held_{number}") not in taken)
    return _Native(names).statement(kernel, place)


class _Native:
    """Rewrites one kernel; `names` are those for values that are held."""

    def __init__(self, names: Iterator[str]) -> None:
        self.names = names

    # ------------------------------------------------------------ statements

    def statement(self, stmt: Stmt, at: Place) -> Stmt:
        made: Stmt = _STATEMENTS.get(type(stmt), _Native._other)(self, stmt, at)
        return made

    def _other(self, stmt: Stmt, at: Place) -> Stmt:
        def visit(child: Node) -> Any:
            if isinstance(child, Stmt):
                return self.statement(child, at)
            return self.scalar(child, at) if isinstance(child, Expr) else child

        result: Stmt = rebuild(stmt, visit)
        return result

    def _for(self, stmt: For, at: Place) -> Stmt:
        def looping(facts: Facts) -> Facts:
            facts = facts.looping(stmt.var, stmt.extent)
            return facts if isinstance(stmt.extent, Const) else facts.assuming(stmt.var < stmt.extent)

        return replace(stmt, extent=self.scalar(stmt.extent, at), body=self.statement(stmt.body, at.inside(looping)))

    def _allocate(self, stmt: Allocate, at: Place) -> Stmt:
        space = "local" if stmt.buffer.scope == "shared" else "private"
        return replace(stmt, body=self.statement(stmt.body, at.having(stmt.buffer, space)))

    def _let(self, stmt: Let, at: Place) -> Stmt:
        if dtypes.lanes(stmt.var.dtype) > 1:  # a row of a square, which is one already
            return replace(stmt, body=self.statement(stmt.body, at))
        inside = at.inside(lambda facts: facts.binding(stmt.var, stmt.value))
        return replace(stmt, value=self.scalar(stmt.value, at), body=self.statement(stmt.body, inside))

    def _if(self, stmt: If, at: Place) -> Stmt:
        if dtypes.lanes(stmt.cond.dtype) > 1:
            then = self.statement(stmt.then, at.where(stmt.cond))
            if stmt.orelse is None:
                return then
            return seq([then, self.statement(stmt.orelse, at.where(Not(stmt.cond)))])
        made = If(self.scalar(stmt.cond, at), self.statement(stmt.then, at.assuming(stmt.cond)))
        if stmt.orelse is None:
            return made
        return replace(made, orelse=self.statement(stmt.orelse, at.assuming(stmt.cond, False)))

    def _store(self, stmt: Store, at: Place) -> Stmt:
        place = position(stmt.buffer, stmt.indices)
        lanes, found = dtypes.lanes(place.dtype), as_ramp(place)
        if lanes == 1:
            indices = tuple(self.scalar(index, at) for index in stmt.indices)
            return replace(stmt, indices=indices, value=self.scalar(stmt.value, at))
        if found is not None and found[1] == const(1) and stmt.buffer.dtype not in at.by_lane:
            return self._store_vectors(flat(stmt.buffer), found[0], stmt.value, lanes, at)
        if at.mask is not None:
            raise CodegenError(f"a store to `{stmt.buffer.name}` under a condition of lanes writes neighbours")
        values = [self.vector(stmt.value, number, 1, at) for number in range(lanes)]
        places = [self.scalar(lane(place, number), at) for number in range(lanes)]
        return self._held(values, [(flat(stmt.buffer), (index,)) for index in places])

    def _store_vectors(self, buffer: Buffer, base: Expr, value: Expr, lanes: int, at: Place) -> Stmt:
        parts = pieces(lanes)
        values = [self.vector(value, start, count, at) for start, count in parts]
        bound: list[tuple[Var, Expr]] = []
        if len(parts) > 1 and buffer.memory in memories_read(value):
            bound = [(Var(next(self.names), made.dtype), made) for made in values]
            values = [var for var, _ in bound]
        made = [
            self._store_one(buffer, binary("+", base, start), one, (start, count), at)
            for (start, count), one in zip(parts, values, strict=True)
        ]
        body = seq(made)
        for var, one in reversed(bound):
            body = Let(var, one, body)
        return body

    def _store_one(self, buffer: Buffer, base: Expr, value: Expr, part: Part, at: Place) -> Stmt:
        """A vector, or one lane, at a position; `part` are the lanes that it is of its statement's."""
        start, count = part
        if count == 1:
            store = Store(buffer, (self.scalar(base, at),), value)
            return store if at.mask is None else If(self.scalar(lane(at.mask, start), at), store)
        if at.mask is None:
            return Store(buffer, ramp(self, base, count, at), value)
        return self._store_masked(buffer, base, value, part, at.mask, at)

    def _store_masked(self, buffer: Buffer, base: Expr, value: Expr, part: Part, mask: Expr, at: Place) -> Stmt:
        """The lanes of a vector for which a condition holds."""
        (start, count), (low, high) = part, at.facts.interval(base)
        if at.kind(buffer) == "private" and low >= 0 and high <= buffer.size - count:
            cond, whole = condition(self, mask, part, at), ramp(self, base, count, at)
            if cond is not None:
                return Store(buffer, whole, Select(cond, value, Load(buffer, whole)))
        found = masked_access(self, mask, buffer, base, part, at)
        if found is not None:
            return If(found[0], Store(buffer, found[1], value))
        held = Var(next(self.names), value.dtype)
        conditions = [self.scalar(lane(mask, start + n), at) for n in range(count)]
        made: list[Stmt] = []
        for first, group in _runs([isinstance(one, Const) and bool(one.value) for one in conditions]):
            for n, size in ((first + n, size) for n, size in pieces(group) if size > 1):
                lanes = Shuffle((held,), tuple(const(n + k) for k in range(size)))
                made.append(Store(buffer, ramp(self, binary("+", base, n), size, at), lanes))
                conditions[n : n + size] = [const(False, "bool")] * size
        for n, one in enumerate(conditions):
            store = Store(buffer, (self.scalar(binary("+", base, n), at),), Shuffle((held,), (const(n),)))
            if not isinstance(one, Const):
                made.append(If(one, store))
            elif one.value:
                made.append(store)
        return Let(held, value, seq(made))

    def _held(self, values: Sequence[Expr], places: Sequence[tuple[Buffer, tuple[Expr, ...]]]) -> Stmt:
        """All values, and then a store of each."""
        bound = [(Var(next(self.names), value.dtype), value) for value in values]
        stores = [Store(*place, var) for place, (var, _) in zip(places, bound, strict=True)]
        body = seq(stores)
        for var, value in reversed(bound):
            body = Let(var, value, body)
        return body

    # ------------------------------------------------------------ scalars

    def scalar(self, expr: Expr, at: Place) -> Expr:
        """A scalar, its conditions settled and its accesses as the device has them."""
        if not _has_choices(expr) and not (at.has_images and reads_memory(expr)):
            return expr
        if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
            return self._scalar_choice(expr, at)
        if isinstance(expr, Load) and is_image(expr, at):
            return component(self, expr, at)
        if isinstance(expr, Shuffle):
            vector, number = divmod(_lane_number(expr), dtypes.lanes(expr.vectors[0].dtype))
            return self.scalar(lane(expr.vectors[vector], number), at)
        made: Expr = rebuild(expr, lambda child: self.scalar(child, at) if isinstance(child, Expr) else child)
        return made

    def _scalar_choice(self, expr: Select | Call, at: Place) -> Expr:
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        cond = at.settled(cond)
        if isinstance(cond, Const):
            return self.scalar(a if cond.value else b, at)
        if isinstance(expr, Call):
            read = load_or_constant(self, cond, a, b, (0, 1), at)
            if read is not None:
                return read
        return self._branches(expr, cond, a, b, at, self.scalar)

    def _branches(self, expr: Expr, cond: Expr, a: Expr, b: Expr, at: Place, side: Any) -> Expr:
        """Either side where its condition is known to hold; of a `select`, which evaluates both, nothing is known."""
        test = self.scalar(cond, at)
        if isinstance(expr, Select):
            return Select(test, side(a, at), side(b, at))
        left, right = side(a, at.assuming(cond)), side(b, at.assuming(cond, False))
        return Call("if_then_else", (test, left, right), left.dtype)

    # ------------------------------------------------------------ vectors

    def vector(self, expr: Expr, start: int, count: int, at: Place) -> Expr:
        """Lanes ``[start, start + count)`` of a vector, or a scalar in every lane."""
        if count == 1:
            return self._lane(expr, start, at)
        if dtypes.lanes(expr.dtype) == 1 or isinstance(expr, Broadcast):
            one = expr.value if isinstance(expr, Broadcast) else expr
            if dtypes.lanes(one.dtype) != 1:
                raise CodegenError(f"a broadcast repeats a scalar, but got {one.dtype}: {expr!r}")
            return Broadcast(self.scalar(one, at), count)
        if isinstance(expr, Var) and dtypes.lanes(expr.dtype) == count:
            return expr
        write = _VECTORS.get(type(expr))
        if write is None or dtypes.element(expr.dtype) in at.by_lane:
            return self._assembled(expr, start, count, at)
        made: Expr = write(self, expr, start, count, at)
        return made

    def _assembled(self, expr: Expr, start: int, count: int, at: Place) -> Expr:
        """A vector of single lanes."""
        lanes = tuple(self._lane(expr, number, at) for number in range(start, start + count))
        return Shuffle(lanes, tuple(map(const, range(count))))

    def _lane(self, expr: Expr, number: int, at: Place) -> Expr:
        """One lane; where its condition does not hold nothing is evaluated."""
        one, zero = lane(expr, number), const(0, dtypes.element(expr.dtype))
        cond: Expr = const(True, "bool") if at.mask is None else lane(at.mask, number)
        if isinstance(cond, Const):
            return self.scalar(one, at) if cond.value else zero
        inside = at.assuming(cond)
        return Call("if_then_else", (self.scalar(cond, at), self.scalar(one, inside), zero), zero.dtype)

    def _binary(self, e: Binary, start: int, count: int, at: Place) -> Expr:
        if e.op not in ARITHMETIC:
            return self._assembled(e, start, count, at)
        return Binary(e.op, self.vector(e.a, start, count, at), self.vector(e.b, start, count, at))

    def _cast(self, e: Cast, start: int, count: int, at: Place) -> Expr:
        if dtypes.element(e.a.dtype) in at.by_lane:
            return self._assembled(e, start, count, at)
        return Cast(dtypes.with_lanes(dtypes.element(e.dtype), count), self.vector(e.a, start, count, at))

    def _call(self, e: Call, start: int, count: int, at: Place) -> Expr:
        if e.name == "if_then_else":
            return self._choice(e, start, count, at)
        if e.name in TRUNCATED_CALLS or any(dtypes.element(arg.dtype) in at.by_lane for arg in e.args):
            return self._assembled(e, start, count, at)
        args = tuple(self.vector(arg, start, count, at) for arg in e.args)
        return Call(e.name, args, dtypes.with_lanes(dtypes.element(e.dtype), count))

    def _choice(self, e: Select | Call, start: int, count: int, at: Place) -> Expr:
        cond, a, b = (e.cond, e.a, e.b) if isinstance(e, Select) else e.args
        part = start, count
        cond, other = at.settled(cond), b.value if isinstance(b, Broadcast) else b
        if isinstance(cond, Const):
            return self.vector(a if cond.value else b, start, count, at)
        is_one = dtypes.lanes(cond.dtype) == 1
        if isinstance(a, Load) and isinstance(other, Const) and not is_image(a, at):
            read = (masked if is_one else guarded)(self, cond, a, other, part, at)
            if read is None and is_one:
                read = load_or_constant(self, cond, a, other, part, at)
            if read is not None:
                return read
            if not is_one:
                return self._assembled(e, start, count, at)
        if is_one:
            return self._branches(e, cond, a, b, at, lambda side, inside: self.vector(side, start, count, inside))
        if isinstance(e, Call) and any(isinstance(n, Load) for side in (a, b) for n in walk(side)):
            return self._assembled(e, start, count, at)
        chosen = condition(self, cond, part, at)
        if chosen is None:
            return self._assembled(e, start, count, at)
        return Select(chosen, self.vector(a, start, count, at), self.vector(b, start, count, at))

    def _load(self, e: Load, start: int, count: int, at: Place) -> Expr:
        if is_image(e, at):
            whole = components(self, e, (start, count), at) if at.mask is None else None
            return self._assembled(e, start, count, at) if whole is None else whole
        found = as_ramp(position(e.buffer, e.indices))
        if found is None or not isinstance(found[1], Const) or dtypes.is_bool(e.dtype):
            return self._assembled(e, start, count, at)
        buffer, base, stride = flat(e.buffer), binary("+", found[0], binary("*", found[1], start)), as_int(found[1])
        if stride == 1 and at.mask is not None:
            zero = const(0, dtypes.element(e.dtype))
            read = masked(self, at.mask, e, zero, (start, count), at)
            if read is None:
                read = within(self, buffer, base, count, at)
            return self._assembled(e, start, count, at) if read is None else read
        if stride == 1:
            return Load(buffer, ramp(self, base, count, at))
        # Private arrays that are read in overlapping vectors do not stay in registers.
        apart = at.target.execution.has_vectors and at.mask is None and at.kind(buffer) != "private"
        chosen = picks([stride * number for number in range(count)]) if apart else None
        if chosen is None:
            return self._assembled(e, start, count, at)
        starts = (ramp(self, binary("+", base, first), chosen.length, at) for first in chosen.starts)
        numbers = (chosen.length * k + inside for k, inside in zip(chosen.holder, chosen.inside, strict=True))
        return Shuffle(tuple(Load(buffer, first) for first in starts), tuple(map(const, numbers)))


@remembered
def _has_choices(node: Node) -> bool:
    """Whether a conditional stands in `node`, or a shuffle."""
    own = isinstance(node, (Select, Shuffle)) or (isinstance(node, Call) and node.name == "if_then_else")
    return own or any(map(_has_choices, children(node)))


def _lane_number(expr: Shuffle) -> int:
    (number,) = expr.lanes
    if not isinstance(number, Const):
        raise CodegenError(f"which lane `{number!r}` of a shuffle is must be known; unroll the loop")
    return as_int(number)


def _runs(chosen: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """``(first, count)`` of neighbours that are all chosen."""
    start = 0
    for is_chosen, group in groupby(chosen):
        count = len(list(group))
        if is_chosen:
            yield start, count
        start += count


_STATEMENTS: Mapping[type[Stmt], Any] = {
    For: _Native._for, Allocate: _Native._allocate, Let: _Native._let, If: _Native._if, Store: _Native._store,
}  # fmt: skip
_VECTORS: Mapping[type[Expr], Any] = {
    Binary: _Native._binary, Cast: _Native._cast, Call: _Native._call, Select: _Native._choice, Load: _Native._load,
}  # fmt: skip
