"""What only proofs need goes: assumptions, and stores of `undef`.

::

    assume(c)                                  ->  nothing
    A[i] = undef                               ->  nothing
    A[i] = if c: x else: undef                 ->  if c: A[i] = x

A stored value counts as it is after simplification: ``A[i] = 0 * undef`` stores 0, since the
compiler chooses the value.  Both run after every proof that rests on what they take away.
Source: RFC 0077, "Remove T.assume" and "Remove T.undef".
"""

from __future__ import annotations

from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..arith.statements import NOTHING
from ..expr import Call, Select, Undef
from ..node import Node, children, remembered
from ..stmt import Assume, If, Stmt, Store, transform_statements


def without_assume(stmt: Stmt) -> Stmt:
    """The statement without its assumptions."""
    return transform_statements(stmt, lambda node: NOTHING if isinstance(node, Assume) else node)


def without_undef_stores(stmt: Stmt, strict: bool = False) -> Stmt:
    """The statement without stores of `undef`, which may write anything, so write nothing; `strict` as `simplify`."""
    return transform_statements(stmt, lambda node: _defined(node, strict) if isinstance(node, Store) else node)


def _defined(store: Store, strict: bool) -> Stmt:
    if not has_undef(store.value):
        return store
    return _defined_part(Store(store.buffer, store.indices, simplify(store.value, strict=strict)))


def _defined_part(store: Store) -> Stmt:
    value = store.value
    if not has_undef(value):
        return store
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, a, b = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        then = _defined_part(Store(store.buffer, store.indices, a))
        other = _defined_part(Store(store.buffer, store.indices, b))
        if other == NOTHING:
            return NOTHING if then == NOTHING else If(cond, then)
        return If(negate(cond), other) if then == NOTHING else If(cond, then, other)
    return NOTHING


@remembered
def has_undef(node: Node) -> bool:
    """Whether `undef` occurs in the expression."""
    return isinstance(node, Undef) or any(map(has_undef, children(node)))
