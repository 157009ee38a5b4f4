"""Unrolled loops that copy, found and replaced: the walk that every pass over such copies makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...ir import dtypes
from ...ir.node import rebuild
from ...ir.stmt import Allocate, For, If, Stmt, names_below
from ...ir.target import Target

Rewrite = Callable[[For, frozenset[str], Iterator[str]], Stmt | None]


def with_copies(stmt: Stmt, target: Target, prefix: str, rewrite: Rewrite) -> Stmt:
    """The statement, for a CPU, with what `rewrite` gives in place of each unrolled loop; a loop stays for None.

    `rewrite` gets the loop, the names of the register tiles around it, and an iterator of fresh names that begin with
    `prefix`.  What stands under a vector of conditions stays, as some of its lanes are masked.
    """
    if target.kind != "cpu":
        return stmt
    taken = names_below(stmt)
    names = (name for number in range(1 << 30) if (name := f"{prefix}{number}") not in taken)

    def visit(stmt: Stmt, tiles: frozenset[str]) -> Stmt:
        if isinstance(stmt, If) and dtypes.lanes(stmt.cond.dtype) > 1:
            return stmt
        if isinstance(stmt, Allocate) and stmt.buffer.scope == "local":
            tiles |= {stmt.buffer.name}
        if isinstance(stmt, For) and stmt.kind == "unrolled" and (found := rewrite(stmt, tiles, names)) is not None:
            return found
        result: Stmt = rebuild(stmt, lambda child: visit(child, tiles) if isinstance(child, Stmt) else child)
        return result

    return visit(stmt, frozenset())
