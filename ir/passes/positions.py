"""Statements by position: the child numbers that lead from the root to them.

A position stays what it is while the statement there is rewritten, and tells equal
statements at different places apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..node import rebuild
from ..stmt import Block, PrimFunc, Stmt, stmt_children

Position = tuple[int, ...]


def position(root: Stmt, target: Stmt) -> Position:
    """The child numbers that lead from `root` to `target`, which is found by identity.  Raises ValueError."""
    found = _position(root, target)
    if found is None:
        raise ValueError("the statement is not part of the function")
    return found


def _position(root: Stmt, target: Stmt) -> Position | None:
    if root is target:
        return ()
    for k, child in enumerate(stmt_children(root)):
        below = _position(child, target)
        if below is not None:
            return (k, *below)
    return None


def at(root: Stmt, place: Sequence[int]) -> Stmt:
    """The statement at a position."""
    for k in place:
        root = stmt_children(root)[k]
    return root


def with_statement(func: PrimFunc, place: Sequence[int], new: Stmt) -> PrimFunc:
    """The function with the statement at a position replaced."""
    body = _put(func.body, place, new)
    assert isinstance(body, Block)
    return func.with_body(body)


def _put(root: Stmt, place: Sequence[int], new: Stmt) -> Stmt:
    if not place:
        return new
    number = -1
    wanted = place[0]
    if isinstance(root, Block) and root.init is not None:
        wanted = 1 - wanted  # the body is the first field, the init runs first

    def swap(child: Any) -> Any:
        nonlocal number
        if not isinstance(child, Stmt):
            return child
        number += 1
        return _put(child, place[1:], new) if number == wanted else child

    result: Stmt = rebuild(root, swap)
    return result
