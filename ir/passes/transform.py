"""Passes over functions that are independent of a target: function in, function out, valid before and after.

Each does what it can prove and leaves the rest alone.
"""

from __future__ import annotations

from ..arith import simplify as simplifier
from ..arith.intervals import negate
from ..arith.statements import NOTHING
from ..expr import Call, Select, Undef
from ..node import Node, transform, walk
from ..stmt import Assume, Block, If, PrimFunc, Stmt, Store


def simplify(func: PrimFunc) -> PrimFunc:
    """Simpler expressions, and conditions decided, wherever the domains of loops and iterators allow."""
    return func.with_body(_block(simplifier.simplify(func.body)))


def remove_assume(func: PrimFunc) -> PrimFunc:
    """``assume(c)`` -> nothing, for use after every proof that rests on it has been made."""
    return func.with_body(_block(without_assume(func.body)))


def remove_store_undef(func: PrimFunc) -> PrimFunc:
    """``A[i] = undef`` -> nothing; ``A[i] = if c: x else: undef`` -> ``if c: A[i] = x``."""
    return func.with_body(_block(without_undef_stores(func.body)))


def _block(stmt: Stmt) -> Block:
    assert isinstance(stmt, Block)
    return stmt


def without_assume(stmt: Stmt) -> Stmt:
    """The statement without its assumptions."""
    result: Stmt = transform(stmt, lambda node: NOTHING if isinstance(node, Assume) else node)
    return result


def without_undef_stores(stmt: Stmt) -> Stmt:
    """The statement without stores of `undef`: they may write anything, so they write nothing."""
    result: Stmt = transform(stmt, lambda node: _defined(node) if isinstance(node, Store) else node)
    return result


def _defined(store: Store) -> Stmt:
    value = store.value
    if not _has_undef(value):
        return store
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, a, b = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        then = _defined(Store(store.buffer, store.indices, a))
        other = _defined(Store(store.buffer, store.indices, b))
        if other == NOTHING:
            return NOTHING if then == NOTHING else If(cond, then)
        return If(negate(cond), other) if then == NOTHING else If(cond, then, other)
    return NOTHING


def _has_undef(node: Node) -> bool:
    return any(isinstance(n, Undef) for n in walk(node))
