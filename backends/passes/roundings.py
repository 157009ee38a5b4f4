"""Floats that decide a step are rounded as the program says, operation by operation.

::

    floor(a / b)            ->  floor(exact(a / b))
    c = a * b;  c + d < e   ->  c = exact(a * b);  exact(c + d) < e

A *step* is where the smallest difference decides: `floor`, `ceil` and `nearbyint`, `//` and `%`, a float that becomes
an integer, a bool or a float of 8 bits, or whose bits are looked at, a comparison.  Elsewhere a division may be a
product with a reciprocal, and a product and a sum one multiply-add, at the price of one rounding; before a step that
price may be a whole one: 1.55 / 0.1 is 15.499999 and becomes 15, but 1.55 * 10 is 15.5 and becomes 16.

What decides is followed from the step through expressions, variables and all buffers that the program itself writes.
It ends at a statement that adds to what its buffer holds, the step of a sum, whose order is the schedule's in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ...ir import dtypes
from ...ir.expr import COMPARISONS, Binary, Call, Cast, Expr, LetExpr, Load, Select, Var
from ...ir.functions import REINTERPRET, TO_INT_CALLS
from ...ir.node import Node, children, rebuild, walk
from ...ir.stmt import Let, Stmt, Store

EXACT = "exact"
"""The call whose argument is one operation, of which neither a part nor the result is combined with others."""

ROUNDED = ("+", "-", "*", "/")
ROUNDED_CALLS = ("sqrt", "rsqrt")
STEPS = ("floor", "ceil", "nearbyint", "fmod", *TO_INT_CALLS)

Holder: TypeAlias = str | Var
"""The name of a memory, or a variable."""


def keep_roundings(stmt: Stmt) -> Stmt:
    """`stmt` with each operation that decides a step as the argument of `EXACT`."""
    if not any(isinstance(node, Expr) and is_step(node) for node in walk(stmt)):
        return stmt
    held: set[Holder] = set()
    while not held.issuperset(found := set(_held(stmt, held))):
        held |= found
    result = _marked(stmt, held)
    assert isinstance(result, Stmt)
    return result


def is_step(expr: Expr) -> bool:
    """Whether the operands are floats, and the smallest difference between them decides."""
    if isinstance(expr, Binary):
        return dtypes.is_float(expr.a.dtype) and (expr.op in COMPARISONS or expr.op in ("//", "%"))
    if isinstance(expr, Cast):
        is_coarse = dtypes.is_storage(expr.dtype) and not dtypes.is_storage(expr.a.dtype)
        return dtypes.is_float(expr.a.dtype) and (is_coarse or not dtypes.is_float(expr.dtype))
    if not isinstance(expr, Call) or not expr.args:
        return False
    return dtypes.is_float(expr.args[0].dtype) and (expr.name in STEPS or expr.name == REINTERPRET)


def _parts(node: Node, decides: bool, held: set[Holder]) -> Iterator[tuple[Node, bool]]:
    """The children of a node, and whether the value of each decides a step; `decides` says it of the node."""
    if isinstance(node, (Let, LetExpr)):
        yield node.value, node.var in held
        yield node.body, decides
    elif isinstance(node, Store):
        own = node.buffer.memory in held and not _adds(node.value, node.buffer.memory)
        yield from ((child, own and child is node.value) for child in children(node))
    elif isinstance(node, Expr):
        below = is_step(node) or (decides and not isinstance(node, Load))
        chosen = _condition(node)
        yield from ((child, below and child is not chosen) for child in children(node))
    else:
        yield from ((child, False) for child in children(node))


def _condition(expr: Expr) -> Expr | None:
    if isinstance(expr, Select):
        return expr.cond
    return expr.args[0] if isinstance(expr, Call) and expr.name == "if_then_else" else None


def _held(stmt: Stmt, held: set[Holder]) -> Iterator[Holder]:
    """The memories and variables that steps read, of which `held` are known."""
    stack: list[tuple[Node, bool]] = [(stmt, False)]
    while stack:
        node, decides = stack.pop()
        if decides and isinstance(node, Load) and dtypes.is_float(node.dtype):
            yield node.buffer.memory
        elif decides and isinstance(node, Var) and dtypes.is_float(node.dtype):
            yield node
        stack.extend(_parts(node, decides, held))


def _marked(node: Node, held: set[Holder], decides: bool = False) -> Node:
    deciding = {id(child): own for child, own in _parts(node, decides, held)}
    made: Node = rebuild(node, lambda child: _marked(child, held, deciding.get(id(child), False)))
    is_rounded = isinstance(made, Binary) and made.op in ROUNDED
    is_rounded |= isinstance(made, Call) and made.name in ROUNDED_CALLS
    if decides and is_rounded and isinstance(made, Expr) and dtypes.is_float(made.dtype):
        return Call(EXACT, (made,), made.dtype)
    return made


def _adds(value: Expr, memory: str) -> bool:
    """Whether `value` is a sum, one part of which is an element of `memory`."""
    if isinstance(value, Binary) and value.op in ("+", "-"):
        return any(_is_of(side, memory) or _adds(side, memory) for side in (value.a, value.b))
    if isinstance(value, Call) and value.name == "fma":
        return _is_of(value.args[2], memory) or _adds(value.args[2], memory)
    if isinstance(value, Call) and value.name == "if_then_else":
        return any(_adds(side, memory) for side in value.args[1:])
    if isinstance(value, Select):
        return _adds(value.a, memory) or _adds(value.b, memory)
    return isinstance(value, Cast) and _adds(value.a, memory)


def _is_of(value: Expr, memory: str) -> bool:
    value = value.a if isinstance(value, Cast) else value
    return isinstance(value, Load) and value.buffer.memory == memory
