"""Faults put into generated code on purpose, to test what guards against them.

Each works on the lowered program, so that every code generator gets it:

- ``null_store``: stores far outside of every mapping;
- ``endless``: runs a loop of 2**62 iterations that no compiler can leave out;
- ``drop_tail``: the last loop nest runs one iteration fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir.expr import Buffer, Const, Expr, Load, Var, as_int, binary, const
from ..ir.node import rebuild
from ..ir.stmt import For, Seq, Stmt, Store, fresh, names, seq, written_buffers

if TYPE_CHECKING:
    from .lower import Lowered

FAR = 2**46  # elements beyond the start of a buffer: more than 47 bits of address, which no process has on x86-64
FOR_EVER = 2**62  # iterations: a century of nanoseconds


def mutate(lowered: Lowered, fault: str) -> Lowered:
    """`lowered` with the fault of that name.  Raises ValueError for an unknown one."""
    if fault not in FAULTS:
        raise ValueError(f"unknown fault `{fault}`; there are {', '.join(FAULTS)}")
    return replace(lowered, body=FAULTS[fault](lowered))


def null_store(lowered: Lowered) -> Stmt:
    """``body`` -> ``out[2**46] = 0; body``: an address that no process can have."""
    out = _output(lowered)
    wild = Store(out, _element(out, FAR), const(0, out.dtype))
    return seq([wild, lowered.body])


def endless(lowered: Lowered) -> Stmt:
    """``body`` -> ``for i in range(2**62): out[0] = out[0] * 3 + 1; body``."""
    out = _output(lowered)
    first = _element(out, 0)
    var = Var(fresh("forever", names(lowered.body)))
    step = binary("+", binary("*", Load(out, first), const(3, out.dtype)), const(1, out.dtype))
    return seq([For(var, const(FOR_EVER), Store(out, first, step)), lowered.body])


def drop_tail(lowered: Lowered) -> Stmt:
    """``...; for i in range(n): S`` -> ``...; for i in range(n - 1): S``, for the last nest of the program."""
    changed, done = _drop(lowered.body)
    return changed if done else Seq(())


def _drop(stmt: Stmt) -> tuple[Stmt, bool]:
    """`stmt` with its last outermost loop shortened, and whether there was one."""
    if isinstance(stmt, For) and isinstance(stmt.extent, Const) and as_int(stmt.extent) > 1:
        return replace(stmt, extent=binary("-", stmt.extent, const(1))), True
    if isinstance(stmt, Seq):
        for position in reversed(range(len(stmt.stmts))):
            changed, done = _drop(stmt.stmts[position])
            if done:
                return Seq((*stmt.stmts[:position], changed, *stmt.stmts[position + 1 :])), True
        return stmt, False
    found = False

    def into(child: Stmt | Expr | Buffer) -> Stmt | Expr | Buffer:
        nonlocal found
        if found or not isinstance(child, Stmt):
            return child
        child, found = _drop(child)
        return child

    changed = rebuild(stmt, into)
    assert isinstance(changed, Stmt)
    return changed, found


def _output(lowered: Lowered) -> Buffer:
    """The last parameter that the program stores to."""
    written = written_buffers(lowered.body)
    outputs: list[Buffer] = [b for b in lowered.params if b in written]
    return outputs[-1]


def _element(buffer: Buffer, index: int) -> tuple[Expr, ...]:
    return (const(index), *(const(0) for _ in buffer.shape[1:]))


FAULTS: dict[str, Callable[[Lowered], Stmt]] = {"null_store": null_store, "endless": endless, "drop_tail": drop_tail}
