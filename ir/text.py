"""Expressions and literals as text that the parser reads back to equal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import dtypes
from .calls import Keyword, Nested, Pointer, Region, Text
from .expr import (
    ARITHMETIC,
    COMPARISONS,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Extent,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Undef,
    Var,
    binary,
)
from .functions import (
    FUNCTIONS,
    LOAD_WITHIN,
    MASKED_LOAD,
    PACK_4X8,
    PAIR_CALLS,
    PREFETCH,
    REINTERPRET,
    STATEMENT_CALLS,
    TO_INT_CALLS,
)
from .node import Node, rebuild

_LEVELS = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
_LEVELS.update(dict.fromkeys(COMPARISONS, 4))
_ATOM = 8
_INFIX = set(ARITHMETIC) - {"min", "max"} | set(COMPARISONS) | {"and", "or"}


def expr_text(node: Expr | Buffer) -> str:
    """One expression as text; a buffer is its name."""
    return node.name if isinstance(node, Buffer) else CLASSIC(node)


def extents_text(extents: Sequence[Extent]) -> str:
    """``n, 32``."""
    return ", ".join(extent_text(e) for e in extents)


def shape_text(extents: Sequence[Extent]) -> str:
    """``(n, 32)``, ``(n,)``."""
    return f"({extents_text(extents)}{',' if len(extents) == 1 else ''})"


def extent_text(extent: Extent) -> str:
    """An extent as a script shows it, without the casts that bring parameters to the index type."""
    return expr_text(uncast(extent)) if isinstance(extent, Expr) else str(extent)


def uncast(extent: Expr) -> Expr:
    """An extent, or a condition over integers, without casts of parameters to the index type: reading adds them."""
    if isinstance(extent, Cast) and isinstance(extent.a, Var):
        return Var(extent.a.name)
    result: Expr = rebuild(extent, uncast)
    return result


class Texts:
    """Writes expressions with the fewest parentheses that keep their shape.

    A plain integer is of the index type.  For `tvm`, whose plain integers have 32 bits
    and whose undef has no type, both are written with their types where they matter.
    """

    def __init__(self, tvm: bool = False) -> None:
        self.tvm = tvm

    def __call__(self, e: Expr) -> str:
        return self._text(e)[0]

    def typed(self, e: Expr) -> str:
        """`e` where nothing beside it gives a literal its type."""
        return typed(e) if self.tvm and isinstance(e, Const) and _is_number(e) else self(e)

    def indices(self, indices: Sequence[Expr]) -> str:
        return ", ".join(self(i) for i in indices) or "()"

    def _text(self, e: Expr) -> tuple[str, int]:
        """The text and how tightly it binds."""
        if isinstance(e, Binary) and e.op in _INFIX:
            return self._infix(e)
        if isinstance(e, Not):
            return f"not {self._paren(e.a, _LEVELS['not'])}", _LEVELS["not"]
        return self._atom(e), _ATOM

    def _paren(self, e: Expr, level: int, exact: bool = False) -> str:
        """`e` in a place that needs at least `level`; `exact` if a literal must show its type."""
        if exact and isinstance(e, Const):
            return typed(e)
        text, own = self._text(e)
        return text if own >= level else f"({text})"

    def _infix(self, e: Binary) -> tuple[str, int]:
        level = _LEVELS[e.op]
        exact = e.a.dtype != e.b.dtype or (self.tvm and _is_number(e.a) and _is_number(e.b))
        left = level + 1 if e.op in COMPARISONS else level
        return f"{self._paren(e.a, left, exact)} {e.op} {self._paren(e.b, level + 1, exact)}", level

    def _atom(self, e: Expr) -> str:
        match e:
            case Var():
                return e.name
            case Const():
                return plain(e)
            case Undef():
                return self._undef(e)
            case Binary():
                return f"T.{e.op}({self._args((e.a, e.b))})"
            case Select():
                return f"T.Select({self(e.cond)}, {self._args((e.a, e.b))})"
            case Cast():
                return f'T.Cast("{e.dtype}", {self.typed(e.a)})'
            case Load():
                return f"{e.buffer.name}[{self.indices(e.indices)}]"
            case Ramp():
                return f"T.Ramp({self._args((e.base, e.stride))}, {e.lanes})"
            case Broadcast():
                return f"T.Broadcast({self.typed(e.value)}, {e.lanes})"
            case Shuffle():
                vectors = ", ".join(self._paren(v, 0, True) for v in e.vectors)
                return f"T.Shuffle([{vectors}], [{', '.join(map(self.typed, e.lanes))}])"
            case LetExpr():
                return f"T.Let({self.typed(e.body)}, where={{{e.var.name}: {self.typed(e.value)}}})"
            case Call():
                return self._call(e)
        raise TypeError(f"no script form for the expression `{type(e).__name__}`")

    def _undef(self, e: Undef) -> str:
        if not self.tvm:
            return f'T.undef("{e.dtype}")'
        lanes = dtypes.lanes(e.dtype)
        return f'T.Cast("{e.dtype}", {"T.undef()" if lanes == 1 else f"T.Broadcast(T.undef(), {lanes})"})'

    def _call(self, e: Call) -> str:
        if e.name == "if_then_else" and len(e.args) == 3 and e.dtype == e.args[1].dtype:
            return f"T.if_then_else({self(e.args[0])}, {self._args(e.args[1:])})"
        if e.name in STATEMENT_CALLS and not e.args:
            return f"T.{e.name}()"
        if e.name == REINTERPRET and len(e.args) == 1:
            return f'T.reinterpret("{e.dtype}", {self.typed(e.args[0])})'
        if e.name == MASKED_LOAD and len(e.args) in (2, 3) and e.dtype == e.args[1].dtype:
            return f"T.masked_load({self(e.args[0])}, {self._args(e.args[1:])})"
        if e.name in (*FUNCTIONS, LOAD_WITHIN, PREFETCH) and e.args and all(a.dtype == e.dtype for a in e.args):
            return f"T.{e.name}({self._args(e.args, exact=True)})"
        if e.name in TO_INT_CALLS and len(e.args) == 1:
            return f"T.{e.name}({self.typed(e.args[0])})"
        if e.name == PACK_4X8 and len(e.args) == 4:
            return f"T.{e.name}({', '.join(map(self.typed, e.args))})"
        if e.name in PAIR_CALLS and len(e.args) == 3 and e.dtype == e.args[2].dtype:
            return f"T.{e.name}({', '.join(map(self.typed, e.args))})"
        tail = "".join(f", {self.typed(a)}" for a in e.args)
        return f'T.call_extern("{e.dtype}", {quoted(e.name)}{tail})'

    def argument(self, arg: Node) -> str:
        """An argument of a call of what is not known here."""
        match arg:
            case Const(dtype=dtypes.INDEX, value=int(value)) if abs(value) < 1 << 31:  # a plain number here is an int32
                return f"T.int64({value})"
            case Expr():
                return self.typed(arg)
            case Text():
                return quoted(arg.value)
            case Pointer():
                place = f"{arg.buffer.name}[{self.indices(arg.indices)}]"
                return f"T.address_of({place})" if arg.indices else f"{arg.buffer.name}.data"
            case Keyword():
                return f"{arg.name}={self.argument(arg.value)}"
            case Nested():
                return self.call(arg.name, arg.args)
        raise TypeError(f"no script form for the argument `{type(arg).__name__}`")

    def call(self, name: str, args: Sequence[Node]) -> str:
        """A call of what is not known here."""
        if name == "access_ptr" and args and isinstance(args[0], Pointer):
            return f"{args[0].buffer.name}.access_ptr({', '.join(map(self.argument, args[1:]))})"
        owner = "" if name.startswith("Module.") else "T."
        return f"{owner}{name}({', '.join(map(self.argument, args))})"

    def region(self, region: Region) -> str:
        """``A[i, 0:4]``."""
        pairs = zip(region.begin, region.extent, strict=True)
        parts = (self(b) if e == Const(1) else f"{self(b)}:{self(simplest_sum(b, e))}" for b, e in pairs)
        return f"{region.buffer.name}[{', '.join(parts) or '()'}]"

    def _args(self, items: Sequence[Expr], exact: bool = False) -> str:
        """Operands that take their type from each other; literals alone show it if `exact`."""
        alone = all(map(_is_number, items))
        exact = len({e.dtype for e in items}) > 1 or (alone and (exact or self.tvm))
        return ", ".join(self._paren(e, 0, exact) for e in items)


CLASSIC = Texts()


def simplest_sum(begin: Expr, extent: Expr) -> Expr:
    """``begin + extent``, of two numbers their sum, and of 0 and an extent that extent."""
    return extent if begin == Const(0) else binary("+", begin, extent)


def _is_number(e: Expr) -> bool:
    return isinstance(e, Const) and e.dtype != "bool"


def plain(e: Const) -> str:
    """A literal where an integer is of the index type."""
    return repr(e.value) if e.dtype in (dtypes.INDEX, "bool") else typed(e)


def typed(e: Const) -> str:
    """``T.float32(0.5)``, ``T.int8(3)``, ``T.float32("inf")``."""
    value = e.value
    if isinstance(value, float) and not math.isfinite(value):
        return f'T.{e.dtype}("{value}")'
    return f"T.{e.dtype}({value!r})"


def literal(value: Any) -> str:
    """A value of an annotation or attribute; pairs of different texts and values as a dictionary."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        if is_dictionary(value):
            return dictionary(value)
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise TypeError(f"an annotation holds numbers, strings, None and tuples, but not `{value!r}`")


def is_dictionary(value: tuple[Any, ...]) -> bool:
    """Whether `value` is not empty and made of pairs, the first of each a text of its own."""
    if not all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in value):
        return False
    return 0 < len(value) == len({p[0] for p in value})


def dictionary(items: Sequence[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f"{quoted(k)}: {literal(v)}" for k, v in items) + "}"


def quoted(text: str) -> str:
    """A string literal, in double quotes where that needs no more escapes."""
    body = repr(text)
    if body.startswith("'") and '"' not in body:
        return f'"{body[1:-1]}"' if "\\'" not in body else body
    return body
