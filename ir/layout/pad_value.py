"""Pad values: what the padding of a layout holds, as an expression over the transformed indices.

RFC 0077 gives a layout's padding a meaning by one of::

    None                               padding may not be touched
    undef                              padding holds something, which may be anything
    0.0                                a number
    lambda io, ii: io + 0.5            a function of the transformed indices
    lambda io, ii: B[0, ii % 2]        one that reads the transformed buffer itself

`PadValue.text` writes each as text and `PadValue.parse` reads it, through `ast`, never
evaluating anything: empty for None, ``undef``, a number, or the lambda.  Layouts in
sequence mix meanings: padding means what the layout that made it says, so a value is a
list of pieces, of which the first whose condition holds counts.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import ProgramError
from .. import dtypes
from ..arith.intervals import negate
from ..expr import FALSE, TRUE, Buffer, Const, Expr, Undef, Var, binary, const, substitute, variables
from ..syntax.base import Scope, ScriptError, Source, dotted
from ..syntax.expressions import ExprParser
from ..syntax.intrinsics import convert
from ..text import expr_text
from ..tracing import traced
from ..type_check import check_types

MAX_TEXT = 8192

Piece = tuple[Expr, "Expr | None"]
Encoded: TypeAlias = str | int | float | None
"""A pad value as it stands in a trace: None, ``"undef"``, a number, or the text of a lambda."""


class PadValueError(ProgramError, ValueError):
    """What was given is no pad value of the buffer."""


@dataclass(frozen=True)
class PadValue:
    """``variables -> value`` in pieces ``(condition, value)``; the last condition is true, a value None forbids."""

    variables: tuple[Var, ...]
    pieces: tuple[Piece, ...]

    @staticmethod
    def make(value: Any, buffer: Buffer, names: Sequence[Var]) -> PadValue:
        """The pad value of the physical `buffer` from anything that `encode` takes, or from its text.

        `names` are the physical indices, for values that do not name them.  Raises PadValueError.
        """
        value = encode(value)
        if isinstance(value, str) and value.lstrip().startswith("lambda"):
            return _parse_lambda(value, buffer)
        return PadValue(tuple(names), ((TRUE, _constant(value, buffer.dtype)),))

    @staticmethod
    def parse(text: str, buffer: Buffer, names: Sequence[Var] | None = None) -> PadValue:
        """The inverse of `text`.  Raises PadValueError; nothing is evaluated."""
        axes = tuple(names) if names is not None else tuple(Var(f"p{d}") for d in range(buffer.rank))
        return PadValue.make(text or None, buffer, axes)

    @property
    def single(self) -> Expr | None:
        """The value everywhere, where it is one constant or undef."""
        value = self.pieces[0][1]
        return value if len(self.pieces) == 1 and isinstance(value, (Const, Undef)) else None

    @property
    def is_none(self) -> bool:
        """Whether all padding is forbidden."""
        return all(value is None for _, value in self.pieces)

    @property
    def text(self) -> str:
        """Empty, ``undef``, a number, or ``lambda io, ii: ...``."""
        if self.is_none:
            return ""
        single = self.single
        if single is not None:
            return "undef" if isinstance(single, Undef) else repr(single.value)  # type: ignore[attr-defined]
        return f"lambda {', '.join(v.name for v in self.variables)}: {_text(self.pieces)}"

    @property
    def encoded(self) -> Encoded:
        """What `encode` gives: None, ``"undef"``, a number, or the text of a lambda."""
        single = self.single
        return single.value if isinstance(single, Const) else self.text or None

    def at(self, indices: Sequence[Expr]) -> tuple[Piece, ...]:
        """The pieces for these index expressions, each condition without what the pieces before it took."""
        mapping = dict(zip(self.variables, indices, strict=True))
        taken: Expr = FALSE
        found: list[Piece] = []
        for cond, value in self.pieces:
            own = substitute(cond, mapping)
            rest = own if taken == FALSE else binary("and", negate(taken), own)
            found.append((rest, None if value is None else substitute(value, mapping)))
            taken = binary("or", taken, own)
        return tuple(found)


def decode(text: str) -> Encoded:
    """The pad value, encoded, whose `PadValue.text` is `text`; what is none is refused by `PadValue.parse`."""
    try:
        return _number(text) if text else None
    except ValueError:
        return text


def encode(value: Any) -> Any:
    """A pad value as it stands in a trace: None, ``"undef"``, a number, or the text of a lambda.

    Takes these, an expression, and a function of the transformed indices that returns one.
    Raises PadValueError.
    """
    if isinstance(value, PadValue):
        return value.text or None
    if isinstance(value, Undef):
        return "undef"
    if isinstance(value, Const):
        return value.value
    if value is None or isinstance(value, (str, int, float)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Expr):
        raise PadValueError("a pad value that varies is a function of the transformed indices, as `lambda io, ii: ...`")
    if callable(value):
        return _from_function(value)
    raise PadValueError(
        f"a pad value is None, undef, a number or a function of the transformed indices, but got {value!r}"
    )


def _from_function(fn: Callable[..., Any]) -> Any:
    parameters = inspect.signature(fn).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = named if len(named) == len(parameters) else [*named, "indices"]  # of which there may be any number
    try:
        result = traced(fn, *(Var(name) for name in names))
        varies = names != named and isinstance(result, Expr) and bool(variables(result))
    except IndexError:
        varies = True
    if varies:
        raise PadValueError("a pad value that varies names its indices one by one, as `lambda io, ii: ...`")
    if not isinstance(result, Expr) or isinstance(result, (Const, Undef)):
        return encode(result)
    return f"lambda {', '.join(names)}: {expr_text(result)}"


def _constant(value: Any, dtype: str) -> Expr | None:
    """None, ``"undef"`` or a number in the element type."""
    if value is None or value == "":
        return None
    if value == "undef":
        return Undef(dtype)
    try:
        number = _number(value)
        if dtypes.is_float(dtype):
            number = float(number)
    except (TypeError, ValueError, OverflowError):
        raise PadValueError(
            f'pad_value must be None, "undef", a number, "inf", "-inf" or a function of the transformed indices, '
            f"but got {value!r}"
        ) from None
    if not _fits(number, dtype):
        raise PadValueError(f"pad_value {value} is not a {dtype}")
    return const(number, dtype)


def _number(value: Any) -> int | float:
    """A number, or what a text says, exactly: an integer is not rounded to a float.  Raises ValueError, TypeError."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if value in ("True", "False"):
            return value == "True"
        try:
            return int(value)
        except ValueError:
            pass
    return float(value)


def _fits(value: int | float, dtype: str) -> bool:
    if dtypes.is_float(dtype):
        return not dtypes.overflows(value, dtype)
    if dtypes.is_bool(dtype):
        return value in (0, 1)
    low, high = dtypes.int_range(dtype)
    return low <= value <= high and value == int(value)


def _parse_lambda(text: str, buffer: Buffer) -> PadValue:
    if len(text) > MAX_TEXT:
        raise PadValueError(f"a pad value takes at most {MAX_TEXT} characters, but this has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PadValueError(f"`{text[:200]}` is not a pad value: {error}") from None
    args = tree.args if isinstance(tree, ast.Lambda) else None
    odd = args is None or args.vararg or args.kwarg or args.kwonlyargs or args.defaults
    if not isinstance(tree, ast.Lambda) or args is None or odd:
        raise PadValueError(f"`{text[:200]}` is not a pad value: write e.g. `lambda io, ii: io + ii`")
    names = tuple(Var(a.arg) for a in (*args.posonlyargs, *args.args))
    if len(names) != buffer.rank:
        raise PadValueError(
            f"the pad value `{text[:200]}` takes {len(names)} indices, but `{buffer.name}` has {buffer.rank} dimensions"
        )
    try:
        return PadValue(names, tuple(_Reader(names, buffer, text.strip()).pieces(tree.body, TRUE)))
    except RecursionError:
        raise PadValueError(f"`{text[:200]}` is nested too deeply for a pad value") from None


class _Reader:
    """Pieces of a lambda's body, whose outer conditionals may have None on a side."""

    def __init__(self, names: Sequence[Var], buffer: Buffer, text: str) -> None:
        scope = Scope(Source(text.splitlines()))
        for name in names:
            scope.frames[0][name.name] = name
        if buffer.name not in scope.frames[0]:
            scope.frames[0][buffer.name] = buffer
        self.parser = ExprParser(scope)
        self.dtype = buffer.dtype

    def pieces(self, node: ast.expr, cond: Expr) -> list[Piece]:
        if isinstance(node, ast.Constant) and node.value is None:
            return [(cond, None)]
        if isinstance(node, ast.Call) and dotted(node.func) == "if_then_else" and len(node.args) == 3:
            test, then, orelse = node.args
            try:
                here = self.parser.expr(test, "bool")
            except ScriptError as error:
                raise PadValueError(str(error)) from None
            return [*self.pieces(then, binary("and", cond, here)), *self.pieces(orelse, cond)]
        try:
            value = convert(self.parser.expr(node, self.dtype), self.dtype)
            check_types(cond)
            check_types(value)
            return [(cond, value)]
        except ValueError as error:
            raise PadValueError(f"a pad value has the element type {self.dtype}: {error}") from None


def _text(pieces: Sequence[Piece]) -> str:
    (cond, value), *rest = pieces
    text = "None" if value is None else expr_text(value)
    if not rest or cond == TRUE:
        return text
    return f"T.if_then_else({expr_text(cond)}, {text}, {_text(rest)})"
