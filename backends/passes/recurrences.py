"""What a loop hands to its next iteration stays in registers.

    for j: y[i, j] = x[i, j] + (y[i, j - 1] if j > 0 else 0)
    ->    c = 0;  for j: { c = x[i, j] + c;  y[i, j] = c }

A load of what the iteration before has stored waits for that store to pass through memory, ten cycles where the
addition takes three.  For a serial loop j, with loops u of few points inside, ``for j: for u: y[f(j, u)] = e``:

1. the body is one store, under loops alone, of one element;
2. all loads of its buffer are in its value, at ``y[f(j - 1, u)]``;
3. each u has a dimension of y that nothing else inside the loop moves along, so that no other u stores there;
4. the first iteration starts from what it loads then, or from the other side of a condition that excludes only it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...ir.arith.linear import linear_form
from ...ir.arith.simplify import prove, simplify
from ...ir.expr import Binary, Buffer, Call, Const, Expr, Load, Not, Var, as_int, const, substitute, variables
from ...ir.node import rebuild, walk
from ...ir.stmt import Allocate, For, Seq, Stmt, Store, fresh, names

INSIDE = ("serial", "unrolled", "vectorized")
MOST_CARRIED = 64
"""Elements that a loop may hand on: what registers hold."""


def carry_recurrences(stmt: Stmt) -> Stmt:
    """The statement with the last result of each recurrence in a local buffer."""
    taken: set[str] | None = None

    def visit(node: Any) -> Any:
        nonlocal taken
        if isinstance(node, For) and node.kind == "serial":
            found = _recurrence(node)
            if found is not None:
                taken = names(stmt) if taken is None else taken
                made = _carried(node, *found, taken)
                if made is not None:
                    return made
        return rebuild(node, lambda child: visit(child) if isinstance(child, Stmt) else child)

    result: Stmt = visit(stmt)
    return result


def _recurrence(loop: For) -> tuple[list[For], Store] | None:
    """The loops inside and the store of a loop whose body is one, which reads what it has written elsewhere."""
    inside: list[For] = []
    body = loop.body
    while isinstance(body, For) and body.kind in INSIDE and isinstance(body.extent, Const):
        inside.append(body)
        body = body.body
    if not isinstance(body, Store) or not isinstance(loop.extent, Const) or as_int(loop.extent) < 2:
        return None
    if body.value.dtype != body.buffer.dtype or not _are_apart(loop, inside, body):
        return None
    memory = body.buffer.memory
    loads = [n for part in (body.value, *body.indices) for n in walk(part) if isinstance(n, Load)]
    own = [load for load in loads if load.buffer.memory == memory]
    if not own or any(load.buffer != body.buffer or load.indices == body.indices for load in own):
        return None
    return (inside, body) if prod(as_int(item.extent) for item in inside) <= MOST_CARRIED else None


def _are_apart(loop: For, inside: Sequence[For], store: Store) -> bool:
    """Whether each loop inside has a dimension of its own in the store."""
    moving = {loop.var, *(item.var for item in inside)}
    forms = [linear_form(index)[0] for index in store.indices]
    alone = [moving & {v for atom in form for v in variables(atom)} for form in forms]
    return all(any(used == {u.var} and u.var in f for used, f in zip(alone, forms, strict=True)) for u in inside)


def _carried(loop: For, inside: Sequence[For], store: Store, taken: set[str]) -> Stmt | None:
    """The loop with its recurrence in a buffer of its own; None where a condition of the module does not hold."""
    later = Binary("+", loop.var, const(1))
    bounds = {item.var: (0, as_int(item.extent) - 1) for item in (loop, *inside)}
    for load in (n for n in walk(store.value) if isinstance(n, Load) and n.buffer == store.buffer):
        moved = [simplify(substitute(index, {loop.var: later}), bounds) for index in load.indices]
        if moved != [simplify(index, bounds) for index in store.indices]:
            return None
    carry = Buffer(fresh(f"{store.buffer.name}_last", taken), tuple(as_int(i.extent) for i in inside) or (1,),
                   store.buffer.dtype, "local")  # fmt: skip
    taken.add(carry.name)
    last = Load(carry, tuple(item.var for item in inside) or (const(0),))
    starts: list[Expr] = []
    value = _with_last(store, loop, last, starts)
    if value is None or len(set(starts)) != 1:
        return None
    body = Seq((Store(carry, last.indices, value), Store(store.buffer, store.indices, last)))
    begin = _under(inside, Store(carry, last.indices, simplify(substitute(starts[0], {loop.var: const(0)}))))
    return Allocate(carry, Seq((begin, replace(loop, body=_under(inside, body)))))


def _with_last(store: Store, loop: For, last: Load, starts: list[Expr]) -> Expr | None:
    """The stored value with the last result in the place of loads; adds what the first iteration takes instead.

    None where a condition decides otherwise whether something is loaded.
    """
    decided = False

    def visit(node: Any) -> Any:
        nonlocal decided
        if isinstance(node, Load) and node.buffer == store.buffer:
            starts.append(node)
            return last
        if isinstance(node, Call) and node.name == "if_then_else":
            cond, then, other = node.args
            own = isinstance(then, Load) and then.buffer == store.buffer
            if own and not _reads(other, store.buffer) and _excludes_the_first(cond, loop):
                starts.append(other)
                return last
            decided |= _reads(node, store.buffer)
        return rebuild(node, visit)

    value: Expr = visit(store.value)
    return None if decided else value


def _reads(expr: Expr, buffer: Buffer) -> bool:
    return any(isinstance(n, Load) and n.buffer == buffer for n in walk(expr))


def _excludes_the_first(cond: Expr, loop: For) -> bool:
    """Whether a condition holds in all iterations but the first."""
    first = substitute(cond, {loop.var: const(0)})
    return prove(cond, {loop.var: (1, as_int(loop.extent) - 1)}) and prove(Not(first))


def _under(inside: Sequence[For], body: Stmt) -> Stmt:
    """A statement in loops like `inside`, outermost first."""
    for item in reversed(inside):
        body = For(Var(item.var.name, item.var.dtype), item.extent, body, item.kind, item.thread, item.annotations)
    return body
