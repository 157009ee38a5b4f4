"""Rule 5 of `verify`: types of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import ProgramError
from . import dtypes
from .caches import cached
from .expr import (
    COMPARISONS,
    LOGIC,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Undef,
    Var,
)
from .functions import (
    DOT_CALLS,
    FUNCTIONS,
    INTEGER_CALLS,
    LOAD_WITHIN,
    MASKED_LOAD,
    MULTIPLY_ACCUMULATE,
    PACK_4X8,
    PAIR_CALLS,
    PREFETCH,
    REINTERPRET,
    STATEMENT_CALLS,
    SUBGROUP_CALLS,
    TO_INT_CALLS,
    TWO_ARGUMENTS,
)
from .node import children
from .text import expr_text

_ARGUMENTS = {
    **dict.fromkeys((*TWO_ARGUMENTS, *INTEGER_CALLS), 2),
    **dict.fromkeys(("fma", MULTIPLY_ACCUMULATE, *DOT_CALLS, *PAIR_CALLS), 3), PACK_4X8: 4,
}  # fmt: skip


class TypeFault(ProgramError, ValueError):
    """Operands whose types do not go together."""


@cached(65536)
def check_types(e: Expr) -> None:
    """Raise TypeFault unless every operation below `e` has operands of the types it takes."""
    for child in children(e):
        if isinstance(child, Expr):
            check_types(child)
    check = _CHECKS.get(type(e))
    if check is not None:
        check(e)


def same(e: Expr, what: str, *parts: Expr) -> None:
    kinds = {p.dtype for p in parts}
    if len(kinds) > 1:
        raise TypeFault(f"{what} of `{expr_text(e)}` have the types {' and '.join(sorted(kinds))}; cast one of them")


def _leaf(e: Var | Undef) -> None:
    dtypes.split_dtype(e.dtype)


def _const(e: Const) -> None:
    kind = float if dtypes.is_float(e.dtype) else bool if dtypes.is_bool(e.dtype) else int
    if type(e.value) is not kind or dtypes.lanes(e.dtype) != 1:
        raise TypeFault(f"the constant {e.value!r} is no value of type {e.dtype}")
    if kind is int and not dtypes.int_range(e.dtype)[0] <= e.value <= dtypes.int_range(e.dtype)[1]:
        raise TypeFault(f"the constant {e.value!r} does not fit the type {e.dtype}")


def _binary(e: Binary) -> None:
    same(e, "the operands", e.a, e.b)
    kind = e.a.dtype
    if dtypes.is_storage(kind) and e.op not in COMPARISONS:
        raise TypeFault(f"`{e.op}` in `{expr_text(e)}` computes with {kind}, which only holds numbers; cast them")
    if e.op in LOGIC:
        allowed = dtypes.is_bool(kind)
    elif e.op in COMPARISONS:
        allowed = True
    elif e.op == "/":
        allowed = dtypes.is_float(kind)
    elif e.op in ("//", "%"):
        allowed = dtypes.is_int(kind)
    else:
        allowed = not dtypes.is_bool(kind)
    if not allowed:
        raise TypeFault(f"`{e.op}` in `{expr_text(e)}` does not take operands of type {kind}")


def _not(e: Not) -> None:
    if not dtypes.is_bool(e.a.dtype):
        raise TypeFault(f"`{expr_text(e)}` negates a value of type {e.a.dtype}, not a condition")


def _choice(e: Expr, cond: Expr, a: Expr, b: Expr) -> None:
    same(e, "the two sides", a, b)
    if not dtypes.is_bool(cond.dtype) or dtypes.lanes(cond.dtype) not in (1, dtypes.lanes(a.dtype)):
        raise TypeFault(f"the condition of `{expr_text(e)}` has type {cond.dtype}")


def _call(e: Call) -> None:
    if e.name == "if_then_else":
        if len(e.args) != 3 or e.dtype != e.args[1].dtype:
            raise TypeFault(f"`{expr_text(e)}` must be a condition and two values of its own type")
        _choice(e, *e.args)
        return
    if e.name in STATEMENT_CALLS:
        if e.args or e.dtype != "int32":
            raise TypeFault(f"`{e.name}` takes no arguments")
        return
    if e.name in (MASKED_LOAD, LOAD_WITHIN, PREFETCH):
        _access(e)
        return
    if e.name not in FUNCTIONS:
        raise TypeFault(f"the function `{e.name}` is unknown; known are {', '.join(FUNCTIONS)}")
    if len(e.args) != _ARGUMENTS.get(e.name, 1):
        raise TypeFault(f"`{e.name}` takes {_ARGUMENTS.get(e.name, 1)} arguments, but has {len(e.args)}")
    if e.name in (*PAIR_CALLS, *TO_INT_CALLS, PACK_4X8):
        _between_types(e)
        return
    if e.name == REINTERPRET:
        _reinterpreted(e)
        return
    same(e, "the arguments and the result", e, *e.args)
    if e.name in DOT_CALLS:
        allowed = dtypes.element(e.dtype) == "int32"
    elif e.name in SUBGROUP_CALLS.values():
        allowed = not dtypes.is_bool(e.dtype)
    elif e.name in INTEGER_CALLS:
        allowed = dtypes.is_int(e.dtype)
    else:
        allowed = dtypes.is_float(e.dtype) or (e.name == "abs" and dtypes.is_int(e.dtype))
    if not allowed or dtypes.is_storage(e.dtype):
        raise TypeFault(f"`{expr_text(e)}` is not defined for the type {e.dtype}")


def _between_types(e: Call) -> None:
    """A function whose result is of another type than what it takes."""
    lanes = dtypes.lanes(e.dtype)
    real, whole = (dtypes.with_lanes(base, lanes) for base in ("float32", "int32"))
    if e.name in TO_INT_CALLS:
        if e.dtype != whole or e.args[0].dtype != real:
            raise TypeFault(f"`{expr_text(e)}` takes a float32 and gives an int32, each of as many lanes")
        return
    if e.name == PACK_4X8:
        same(e, "the bytes", *e.args)
        given = dtypes.element(e.args[0].dtype)
        if e.dtype != whole or given not in ("int8", "uint8") or e.args[0].dtype != dtypes.with_lanes(given, lanes):
            raise TypeFault(f"`{expr_text(e)}` takes numbers of 8 bits and gives int32, each of as many lanes")
        return
    same(e, "the words", *e.args[:2])
    same(e, "the number that is added to and the result", e, e.args[2])
    if e.dtype != real or e.args[0].dtype != whole:
        raise TypeFault(f"`{expr_text(e)}` takes two words of int32 and a float32, each of as many lanes")


def _reinterpreted(e: Call) -> None:
    kinds = e.dtype, e.args[0].dtype
    if dtypes.lanes(kinds[0]) != dtypes.lanes(kinds[1]) or dtypes.bits(kinds[0]) != dtypes.bits(kinds[1]):
        raise TypeFault(f"`{expr_text(e)}` takes {kinds[1]}, which has other bits than {kinds[0]}")
    if any(map(dtypes.is_bool, kinds)):
        raise TypeFault(f"`{expr_text(e)}` has no bits that mean something: a bool is true or false")


def _access(e: Call) -> None:
    """A load under a condition, of what lies within its buffer, or of memory ahead of time."""
    load = e.args[e.name == MASKED_LOAD] if len(e.args) in ((2, 3) if e.name == MASKED_LOAD else (1,)) else None
    if not isinstance(load, Load) or load.dtype != e.dtype:
        what = "a condition, a load and what else there is, all" if e.name == MASKED_LOAD else "one load"
        raise TypeFault(f"`{expr_text(e)}` must have {what} of its own type")
    if e.name == MASKED_LOAD:
        _choice(e, e.args[0], load, e.args[-1])
    elif e.name == LOAD_WITHIN and dtypes.lanes(load.buffer.dtype) > 1:
        raise TypeFault(f"`{expr_text(e)}` reads elements of several lanes, which lie within a buffer or not")
    elif e.name == PREFETCH and dtypes.lanes(load.dtype) > dtypes.lanes(load.buffer.dtype):
        raise TypeFault(f"`{expr_text(e)}` names one element, from which memory is fetched")


def _shuffle(e: Shuffle) -> None:
    same(e, "the vectors", *e.vectors)
    if not e.vectors or not e.lanes or any(n.dtype != dtypes.INDEX for n in e.lanes):
        raise TypeFault("a shuffle has vectors, and numbers of their lanes, which are scalars of the index type")
    count = len(e.vectors) * dtypes.lanes(e.vectors[0].dtype)
    wrong = [n.value for n in e.lanes if isinstance(n, Const) and not 0 <= n.value < count]
    if wrong:
        raise TypeFault(f"`{expr_text(e)}` has lane {wrong[0]} of {count}")
    dtypes.split_dtype(e.dtype)


def _cast(e: Cast) -> None:
    if dtypes.lanes(e.dtype) != dtypes.lanes(e.a.dtype):
        raise TypeFault(f"`{expr_text(e)}` changes the number of lanes")


def check_indices(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """Raise TypeFault unless there is one integer index for each dimension, and vectors among them have one length."""
    text = f"{buffer.name}[{', '.join(map(expr_text, indices))}]"
    if len(indices) != buffer.rank:
        raise TypeFault(f"`{text}` has {len(indices)} indices, but the buffer has {buffer.rank} dimensions")
    for index in indices:
        if not dtypes.is_int(index.dtype) or dtypes.is_storage(index.dtype):
            raise TypeFault(f"the index `{expr_text(index)}` of `{text}` has type {index.dtype}")
    if dtypes.is_packed(buffer.dtype) and dtypes.lanes(buffer.dtype) % 2:
        raise TypeFault(f"`{text}` has elements of type {buffer.dtype}, which are two to a byte: their number is even")
    if len({dtypes.lanes(i.dtype) for i in indices} - {1}) > 1:
        raise TypeFault(f"the indices of `{text}` are vectors of different lengths")
    dtypes.split_dtype(Load(buffer, indices).dtype)


def _ramp(e: Ramp) -> None:
    same(e, "base and stride", e.base, e.stride)
    is_index = dtypes.is_int(e.base.dtype) and not dtypes.is_storage(e.base.dtype)
    if not is_index or dtypes.lanes(e.base.dtype) != 1 or e.lanes < 2:
        raise TypeFault(f"`{expr_text(e)}` needs a scalar integer base and at least 2 lanes")
    dtypes.split_dtype(e.dtype)


def _broadcast(e: Broadcast) -> None:
    if dtypes.lanes(e.value.dtype) != 1 or e.lanes < 2:
        raise TypeFault(f"`{expr_text(e)}` needs a scalar and at least 2 lanes")
    dtypes.split_dtype(e.dtype)


def _let(e: LetExpr) -> None:
    if e.var.dtype != e.value.dtype:
        raise TypeFault(f"`{e.var.name}` in `{expr_text(e)}` has type {e.var.dtype}, its value {e.value.dtype}")


_CHECKS: Mapping[type[Expr], Callable[..., None]] = {
    Var: _leaf, Undef: _leaf, Const: _const, Binary: _binary, Not: _not, Call: _call, Cast: _cast,
    Select: lambda e: _choice(e, e.cond, e.a, e.b), Load: lambda e: check_indices(e.buffer, e.indices),
    Ramp: _ramp, Broadcast: _broadcast, Shuffle: _shuffle, LetExpr: _let,
}  # fmt: skip
