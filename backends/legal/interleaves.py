"""Copies that lay the elements of a few rows side by side, as the steps of a dot product, written out as shuffles.

::

    for k in 2 {unrolled}: B[p + k : p + k + 2*L : 2] = A[q(k) : q(k) + L]
        ->  let r0 = A[q(0) : q(0) + L], r1 = A[q(1) : q(1) + L]
            B[p : p + L]       = shuffle([r0, r1], [0, L, 1, L + 1, ..])
            B[p + L : p + 2*L] = shuffle([r0, r1], [L/2, L + L/2, ..])

Each of the L lanes of a store with steps between them takes an instruction of its own; four rows are two times two.
Conditions: (1) the loop's body is that store, of as many rows as lie side by side, a power of two; (2) `A` and `B` are
two memories, neither of which is a register tile; (3) no lane is masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir import dtypes
from ...ir.arith.linear import as_ramp, shared_form
from ...ir.expr import Const, Expr, Load, Ramp, Shuffle, Var, as_int, binary, const, reads_memory, substitute
from ...ir.stmt import For, Let, Seq, Stmt, Store
from ...ir.target import Target
from .copies import with_copies


def interleaves(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with every such copy as vectors and shuffles."""
    return with_copies(stmt, target, "side", _interleaved)


def _interleaved(loop: For, tiles: frozenset[str], names: Iterator[str]) -> Stmt | None:
    """The copy written out, None where conditions (1) and (2) do not hold."""
    store = loop.body
    if not isinstance(store, Store) or not isinstance(store.value, Load) or not isinstance(loop.extent, Const):
        return None
    load, count, lanes = store.value, as_int(loop.extent), dtypes.lanes(store.value.dtype)
    plain = dtypes.lanes(load.buffer.dtype) == dtypes.lanes(store.buffer.dtype) == 1
    ends = {load.buffer.memory, store.buffer.memory}
    if not plain or len(load.indices) != 1 or len(store.indices) != 1 or len(ends) < 2 or ends & tiles:
        return None
    if count < 2 or count & (count - 1) or lanes < 2 or lanes & (lanes - 1):
        return None
    source, target = as_ramp(load.indices[0]), as_ramp(store.indices[0])
    if source is None or target is None or source[1] != const(1) or target[1] != const(count):
        return None
    if reads_memory(source[0]) or reads_memory(target[0]):
        return None
    starts = [substitute(target[0], {loop.var: const(number)}) for number in range(count)]
    terms, constant = shared_form(starts[0])
    if any(shared_form(start) != (terms, constant + number) for number, start in enumerate(starts)):
        return None
    bound: list[tuple[Var, Expr]] = []

    def bind(value: Expr) -> Expr:
        bound.append((Var(next(names), load.dtype), value))
        return bound[-1][0]

    def together(rows: Sequence[Expr]) -> list[Expr]:
        """The rows side by side: those of even and of odd numbers, each side by side before."""
        if len(rows) == 1:
            return list(rows)
        found: list[Expr] = []
        for pair in zip(together(rows[::2]), together(rows[1::2]), strict=True):
            for first in (0, lanes // 2):
                chosen = [const(first + k // 2 + (k % 2) * lanes) for k in range(lanes)]
                found.append(bind(Shuffle(pair, tuple(chosen))))
        return found

    reads = [substitute(source[0], {loop.var: const(number)}) for number in range(count)]
    rows = together([bind(Load(load.buffer, (Ramp(read, const(1), lanes),))) for read in reads])
    places = [binary("+", starts[0], number * lanes) for number in range(count)]
    body: Stmt = Seq(
        tuple(Store(store.buffer, (Ramp(at, const(1), lanes),), row) for at, row in zip(places, rows, strict=True))
    )
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return body
