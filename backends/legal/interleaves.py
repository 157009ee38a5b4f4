"""Copies that lay the elements of a few rows side by side, as the steps of a dot product, written out as shuffles.

::

    for k in 2 {unrolled}: B[p + k : p + k + 2*L : 2] = A[q(k) : q(k) + L]
        ->  let r0 = A[q(0) : q(0) + L], r1 = A[q(1) : q(1) + L]
            B[p : p + L]       = shuffle([r0, r1], [0, L, 1, L + 1, ..])
            B[p + L : p + 2*L] = shuffle([r0, r1], [L/2, L + L/2, ..])

Each of the L lanes of a store with steps between them takes an instruction of its own; four rows are two times two.
In the place of what is read may stand what is computed from it lane by lane, as its quantisation, and numbers in the
border around an image: ``f(A[q(k) : q(k) + L]) if c else 0``.  Where a border begins within a vector, the loop's body
is several stores, of vectors and of single elements, which stay.  Conditions: (1) the body consists of such stores to
`B`, each of as many rows as lie side by side, a power of two, at places that none of the others stores to; (2) what is
read is another memory than `B`, and neither is a register tile; (3) no lane is masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...ir import dtypes
from ...ir.arith.linear import Linear, as_ramp, shared_form
from ...ir.expr import (
    Broadcast,
    Call,
    Const,
    Expr,
    LetExpr,
    Load,
    Ramp,
    Shuffle,
    Var,
    as_int,
    binary,
    const,
    reads_memory,
    substitute,
)
from ...ir.node import walk
from ...ir.stmt import For, Let, Seq, Stmt, Store, seq
from ...ir.target import Target
from .copies import with_copies


def interleaves(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with every such copy as vectors and shuffles."""
    return with_copies(stmt, target, "side", _interleaved)


@dataclass(frozen=True)
class _Part:
    """A store of rows of so many `lanes`, side by side from the place `start` on; a row of one lane stays."""

    store: Store
    lanes: int
    start: Expr
    form: Linear


def _interleaved(loop: For, tiles: frozenset[str], names: Iterator[str]) -> Stmt | None:
    """The copy written out, None where conditions (1) and (2) do not hold."""
    if not isinstance(loop.extent, Const):
        return None
    count, stmts = as_int(loop.extent), loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)
    if count < 2 or count & (count - 1):
        return None
    found = [_part(stmt, loop.var, count) for stmt in stmts]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found) or all(part.lanes == 1 for part in parts) or not _apart(parts, count, tiles):
        return None
    return seq([_written_out(part, loop, count, names) for part in parts])


def _part(stmt: Stmt, var: Var, count: int) -> _Part | None:
    """A store by condition (1), but for what other ones store."""
    if not isinstance(stmt, Store) or len(stmt.indices) != 1 or dtypes.lanes(stmt.buffer.dtype) > 1:
        return None
    lanes, target = dtypes.lanes(stmt.value.dtype), as_ramp(stmt.indices[0])
    if target is None or (lanes > 1 and (target[1] != const(count) or not _is_row(stmt.value))):
        return None
    terms, constant = shared_form(target[0])
    rest = {atom: k for atom, k in terms.items() if atom != var}
    if reads_memory(target[0]) or terms.get(var) != 1 or any(var in walk(atom) for atom in rest):
        return None
    return _Part(stmt, lanes, substitute(target[0], {var: const(0)}), (rest, constant))


def _is_row(value: Expr) -> bool:
    """Whether a value is computed, lane by lane, from neighbours in memory and from numbers that all lanes have.

    What is chosen among is chosen by one condition for all lanes.
    """
    for node in walk(value):
        if isinstance(node, Call) and node.name == "if_then_else":
            if dtypes.lanes(node.args[0].dtype) > 1 or reads_memory(node.args[0]):
                return False
        elif isinstance(node, Load):
            place = as_ramp(node.indices[0]) if len(node.indices) == 1 else None
            if place is None or dtypes.lanes(node.buffer.dtype) > 1 or reads_memory(place[0]):
                return False
            if dtypes.lanes(node.dtype) > 1 and place[1] != const(1):
                return False
        elif isinstance(node, (Shuffle, LetExpr)):
            return False
    return True


def _apart(parts: Sequence[_Part], count: int, tiles: frozenset[str]) -> bool:
    """Whether the parts store to places of their own of one memory, by condition (2)."""
    (target, *others) = {part.store.buffer for part in parts}
    read = {n.buffer.memory for part in parts for n in walk(part.store.value) if isinstance(n, Load)}
    if others or target.memory in read or tiles & {target.memory, *read}:
        return False
    terms = parts[0].form[0]
    spans = sorted((part.form[1], part.form[1] + part.lanes * count) for part in parts)
    ends_first = all(one[1] <= other[0] for one, other in pairwise(spans))
    return ends_first and all(part.form[0] == terms for part in parts)


def _written_out(part: _Part, loop: For, count: int, names: Iterator[str]) -> Stmt:
    """A part as vectors and shuffles; a row of one lane in a loop of its own."""
    store, lanes = part.store, part.lanes
    if lanes == 1:
        return For(loop.var, loop.extent, store, loop.kind)
    if isinstance(store.value, Broadcast) and not any(isinstance(n, (Load, Var)) for n in walk(store.value)):
        whole = Broadcast(store.value.value, lanes * count)
        return Store(store.buffer, (Ramp(part.start, const(1), lanes * count),), whole)
    bound: list[tuple[Var, Expr]] = []

    def bind(value: Expr) -> Expr:
        bound.append((Var(next(names), store.value.dtype), value))
        return bound[-1][0]

    def together(rows: Sequence[Expr]) -> list[Expr]:
        """The rows side by side: those of even and of odd numbers, each side by side before."""
        if len(rows) == 1:
            return list(rows)
        found: list[Expr] = []
        for pair in zip(together(rows[::2]), together(rows[1::2]), strict=True):
            for first in (0, lanes):
                chosen = [const((first + k) // 2 + (first + k) % 2 * lanes) for k in range(lanes)]
                found.append(bind(Shuffle(pair, tuple(chosen))))
        return found

    rows = together([bind(substitute(store.value, {loop.var: const(number)})) for number in range(count)])
    places = [binary("+", part.start, number * lanes) for number in range(count)]
    body: Stmt = Seq(
        tuple(Store(store.buffer, (Ramp(at, const(1), lanes),), row) for at, row in zip(places, rows, strict=True))
    )
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return body
