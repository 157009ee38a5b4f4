"""Python functions of expressions, as users give them: index maps and pad values.

Such a function is run once, on variables, and what it returns is the expression that it
means.  While it runs (`traced`), every operator builds what its text would build in a
script: ``==`` and ``!=`` are comparisons, and operands of two types are brought to their
common one.  Elsewhere ``==`` compares structure, since expressions are keys of tables.

What Python decides by itself cannot be built, so it is refused: the truth value of an
expression, in ``a if c else b``, ``and``, ``not``, ``0 <= i < 4``, ``i in (1, 2)``, ``min(i, 3)``, and
looking one up in a set or a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from . import dtypes
from .expr import Expr, ExprLike, binary
from .node import TRACING, Tracer
from .syntax.intrinsics import match
from .text import expr_text

P = ParamSpec("P")
R = TypeVar("R")

_INSTEAD = (
    "write T.if_then_else(c, a, b) or T.Select(c, a, b) for `a if c else b`; T.all, T.any and T.Not for `and`, `or` "
    "and `not`, also for `0 <= i < 4` and for `i in (1, 2)`; T.min and T.max for `min` and `max`"
)


def traced(fn: Callable[..., Any], *args: Expr, **keywords: Expr) -> Any:
    """``fn(*args, **keywords)``, in which every operator on expressions builds an expression."""
    with _tracer(_Tracer()):
        return fn(*args, **keywords)


def structural(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, which compares expressions by their structure also where a traced function calls it."""

    @wraps(fn)
    def asked(*args: P.args, **keywords: P.kwargs) -> R:
        if not TRACING:
            return fn(*args, **keywords)
        with _tracer(None):
            return fn(*args, **keywords)

    return asked


@contextmanager
def _tracer(tracer: Tracer | None) -> Iterator[None]:
    """Operators of this thread ask `tracer` inside, and whom they asked before afterwards."""
    me = get_ident()
    before = TRACING.get(me)
    _set(me, tracer)
    try:
        yield
    finally:
        _set(me, before)


def _set(thread: int, tracer: Tracer | None) -> None:
    if tracer is None:
        TRACING.pop(thread, None)
    else:
        TRACING[thread] = tracer


class _Tracer:
    """What operators on expressions do in a traced function."""

    @structural
    def build(self, op: str, a: ExprLike, b: ExprLike) -> Expr:
        """``a op b`` of the language, operands in their common type.  Raises TypeError for what is no operand."""
        try:
            left, right = match(*(x.item() if isinstance(x, np.generic) else x for x in (a, b)))
        except ValueError as error:
            raise TypeError(f"an operand of `{op}` is no expression that fits: {error}") from None
        if op == "/" and not dtypes.is_float(left.dtype):
            raise TypeError(
                f"`{expr_text(left)} / {expr_text(right)}` divides integers: write `//` for the floor of the quotient, "
                f'or divide T.Cast("float32", {expr_text(left)})'
            )
        return binary(op, left, right)

    @structural
    def refuse_truth(self, expr: Expr) -> NoReturn:
        """Raises TypeError: Python asks whether an expression is true."""
        raise TypeError(
            f"`{expr_text(expr)}` is an expression, which is neither true nor false before it runs: {_INSTEAD}"
        )

    @structural
    def refuse_hash(self, expr: Expr) -> NoReturn:
        """Raises TypeError: Python looks an expression up in a set or a dictionary."""
        raise TypeError(
            f"`{expr_text(expr)}` is an expression, which no set or dictionary holds before it runs: compare it by "
            f"`==`, and {_INSTEAD}"
        )
