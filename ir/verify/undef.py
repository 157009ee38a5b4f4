"""Rule 12 of `verify`: where undef may stand."""

from __future__ import annotations

from ..caches import cached
from ..dataflow.accesses import own_expressions
from ..expr import COMPARISONS, TRUE, Binary, Call, Expr, LetExpr, Load, Select, Shuffle, Undef
from ..functions import MASKED_LOAD
from ..node import children, transform, walk
from ..stmt import Assume, Evaluate, Stmt, Store
from ..text import expr_text


@cached(65536)
def has_undef(e: Expr) -> bool:
    return any(isinstance(n, Undef) for n in walk(e))


def undef_fault(value: Expr) -> str:
    """What is wrong with undef in a value to store: it must not decide anything.  Empty if nothing is."""
    if not has_undef(value):
        return ""
    for part, what in _deciding(value):
        if has_undef(part):
            return f"{what} of `{expr_text(value)}` is undef"
    faults = (undef_fault(child) for child in children(value) if isinstance(child, Expr))
    return next((fault for fault in faults if fault), "")


def misplaced(stmt: Stmt) -> str:
    """What is wrong with undef in the expressions of a statement, without those below.  Empty if nothing is."""
    if isinstance(stmt, Assume):
        return undef_fault(without_atoms(stmt.cond)) or _decider(without_atoms(stmt.cond))
    if isinstance(stmt, (Store, Evaluate)):
        indices = stmt.indices if isinstance(stmt, Store) else ()
        return next(filter(None, map(_decider, indices)), "") or undef_fault(stmt.value)
    return next(filter(None, (_decider(e) for e, _ in own_expressions(stmt))), "")


def _decider(e: Expr) -> str:
    return f"`{expr_text(e)}` is undef, but decides, binds or is compared" if has_undef(e) else ""


def _deciding(e: Expr) -> list[tuple[Expr, str]]:
    """The operands on which more depends than a value."""
    if isinstance(e, Load):
        return [(index, "an index") for index in e.indices]
    if isinstance(e, Select):
        return [(e.cond, "the condition")]
    if isinstance(e, Call) and e.name in ("if_then_else", MASKED_LOAD):
        return [(e.args[0], "the condition")]
    if isinstance(e, Shuffle):
        return [(number, "a lane") for number in e.lanes]
    if isinstance(e, Binary) and e.op in COMPARISONS:
        return [(e.a, "one side"), (e.b, "one side")]
    if isinstance(e, LetExpr):
        return [(e.value, "the value")]
    return []


def without_atoms(cond: Expr) -> Expr:
    """An assumption with each ``buffer[i] == undef`` replaced by true."""
    if not has_undef(cond):
        return cond
    result: Expr = transform(cond, lambda e: TRUE if _is_atom(e) else e)
    return result


def _is_atom(e: object) -> bool:
    """``buffer[i] == undef``, the indices defined."""
    if not isinstance(e, Binary) or e.op != "==" or isinstance(e.a, Undef) == isinstance(e.b, Undef):
        return False
    element = e.b if isinstance(e.a, Undef) else e.a
    return isinstance(element, Load) and not has_undef(element)
