"""Copies that turn columns into rows (see `backends.squares`), written out: vectors of columns, and their shuffles.

::

    for k in 4 {unrolled}: B[4*k : 4*k + 4] = A[k : k + 4*t : t]
        ->  let r0 = A[0 : 4], r1 = A[t : t + 4], ..
            let r4 = shuffle([r0, r2], [0, 1, 4, 5]), r5 = shuffle([r0, r2], [2, 3, 6, 7]), ..
            B[0 : 4] = r8;  B[4 : 8] = r9;  ..

Conditions: (1) the loop copies such a square; (2) `A` and `B` are two memories, neither of which is a register tile;
(3) no lane is masked.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.expr import Expr, Load, Ramp, Shuffle, Var, binary, const
from ...ir.stmt import For, Let, Seq, Stmt, Store
from ...ir.target import Target
from ..squares import Square, exchanges, square_of
from .copies import with_copies


def transposes(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with every square as vectors and shuffles."""
    return with_copies(stmt, target, "row", _transposed)


def _transposed(loop: For, tiles: frozenset[str], names: Iterator[str]) -> Stmt | None:
    """The square that a loop copies, by conditions (1) and (2); None for any other loop."""
    square = square_of(loop)
    if square is None:
        return None
    ends = {square.source.memory, square.target.memory}
    if len(ends) < 2 or ends & tiles:
        return None
    return exchanged(square, names)


def exchanged(square: Square, names: Iterator[str]) -> Stmt:
    """The copy of a square as vectors, each bound to one of `names`, and their shuffles in pairs."""
    count = square.lanes
    bound: list[tuple[Var, Expr]] = []

    def bind(value: Expr) -> Expr:
        bound.append((Var(next(names), square.dtype), value))
        return bound[-1][0]

    starts = [binary("+", square.base, binary("*", square.stride, number)) for number in range(count)]
    rows = [bind(Load(square.source, (Ramp(start, const(1), count),))) for start in starts]
    for first, second, *chosen in exchanges(count):
        pair = rows[first], rows[second]
        rows[first], rows[second] = (bind(Shuffle(pair, tuple(map(const, lanes)))) for lanes in chosen)
    places = [(Ramp(start, const(1), count),) for start in square.targets]
    body: Stmt = Seq(tuple(Store(square.target, place, row) for place, row in zip(places, rows, strict=True)))
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return body
