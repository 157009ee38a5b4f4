"""Rule 13 of `verify`: the one form that each statement has, and what annotations hold."""

from __future__ import annotations

from typing import Any

from ..expr import Expr
from ..stmt import Annotations, Attr, Seq
from ..syntax.words import SCOPE_KEY

RESERVED = frozenset({"layouts", "axis_separators"})


def sequence_fault(stmt: Seq, alone: bool) -> str:
    """What is wrong with a sequence; `alone` if it is the whole body of something."""
    if any(isinstance(item, Seq) for item in stmt.stmts):
        return "a sequence holds a sequence; splice it in by `seq`"
    if len(stmt.stmts) == 1:
        return "a sequence holds one statement; let that stand alone"
    return "" if stmt.stmts or alone else "an empty sequence stands among other statements"


def annotations_fault(pairs: Annotations, function: bool = False) -> str:
    """What is wrong with annotations, or with a function's attributes."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if not isinstance(key, str) or keys.count(key) > 1:
            return f"the annotation {key!r} is no text or is given twice"
        if function and key in RESERVED:
            return f"the attribute `{key}` is reserved for the script"
    wrong = next((value for _, value in pairs if not _is_literal(value)), None)
    return "" if wrong is None else f"the annotation {wrong!r} is no number, text, None or tuple of them"


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str))


def attribute_fault(stmt: Attr) -> str:
    """What is wrong with the key and value of an attribute."""
    if not isinstance(stmt.key, str) or stmt.key == SCOPE_KEY:
        return f"{stmt.key!r} is no key of an attribute"
    return "" if isinstance(stmt.value, (Expr, str)) else f"the attribute `{stmt.key}` is {stmt.value!r}"
