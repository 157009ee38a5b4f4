"""Expressions.

::

    expr ::= Var(name, dtype)                  a loop variable, iterator, let binding or scalar argument
           | Const(value, dtype)               True, 3, 0.5, inf
           | Undef(dtype)                      some value that the compiler may choose
           | Binary(op, a, b)                  + - * / // % min max  == != < <= > >=  and or
           | Not(a)
           | Select(cond, a, b)                both sides are evaluated
           | Call(name, args, dtype)           if_then_else, masked_load, load_within (lazy), exp, dot_4x8packed_us, ...
           | Cast(dtype, a)
           | Load(buffer, indices)             T.Buffer read
           | Ramp(base, stride, lanes)         base, base + stride, ...
           | Broadcast(value, lanes)
           | Shuffle(vectors, lanes)           lane n is number lanes[n] of the vectors, one behind the other
           | LetExpr(var, value, body)         body with var = value, evaluated once
    buffer ::= Buffer(name, extents, dtype, scope, axis_separators, data)

Types are those of `dtypes`: scalars, and vectors by lanes.  Element `i` of a
buffer stands ``i * nbytes(dtype)`` bytes after its start, and an access gives
``lanes(index) * lanes(dtype)`` lanes (RFC 0039, convention option 1): with
``A: float32[64]`` and ``V: float32x4[16]``::

    A[i]                float32         A[Ramp(i, 1, 4)]    float32x4
    V[i]                float32x4       V[Ramp(i, 1, 2)]    float32x8

A buffer with `data` is another view of memory that is already defined: `data` is the
name of the buffer that owns it, never of another view (RFC 0070).

``//`` and ``%`` are floor division and modulo.  ``min`` and ``max`` propagate NaN.
A variable or buffer is a handle: its name is unique within a function, so equal
values mean the same thing everywhere in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from threading import get_ident
from typing import Any, Union

from ..errors import ProgramError
from . import dtypes
from .functions import TRUNCATED_CALLS
from .node import TRACING, Derived, Node, children, gathered, rebuild, remembered

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGIC = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
BINARY_OPS = ARITHMETIC + COMPARISONS + LOGIC

ExprLike = Union["Expr", int, float, bool]
Extent = Union[int, "Expr"]


class NotFixed(ProgramError, ValueError):
    """An extent depends on parameters where a number is needed."""


class Expr(Node):
    """An expression; arithmetic on it builds expressions.

    ``==`` and ``!=`` compare structure, but build too in a traced function (`tracing`).
    """

    is_operand = True
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return _operate("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return _operate("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _operate("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return _operate("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _operate("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return _operate("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _operate("/", self, other)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _operate("//", self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return _operate("%", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _operate("/", other, self)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _operate("//", other, self)

    def __rmod__(self, other: ExprLike) -> Expr:
        return _operate("%", other, self)

    def __neg__(self) -> Expr:
        return _operate("-", 0, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return _operate("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return _operate("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return _operate(">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return _operate(">=", self, other)

    def equal(self, other: ExprLike) -> Expr:
        """The condition ``self == other``; the operator itself compares structure."""
        return binary("==", self, other)

    def __ne__(self, other: object) -> bool:
        if TRACING and (tracer := TRACING.get(get_ident())) is not None:
            built: bool = tracer.build("!=", self, other)
            return built
        return not self == other

    def __bool__(self) -> bool:
        if TRACING and (tracer := TRACING.get(get_ident())) is not None:
            tracer.refuse_truth(self)
        raise TypeError(f"`{self!r}` is an expression, which is neither true nor false before it runs")


@dataclass(frozen=True, eq=False, repr=False)
class Buffer(Node):
    """Memory with extents, numbers or expressions of integers; `data` is the owner that an alias views, or empty."""

    name: str
    extents: tuple[Extent, ...]
    dtype: str = "float32"
    scope: str = "global"
    axis_separators: tuple[int, ...] = ()
    data: str = ""

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.extents)

    @property
    def is_fixed(self) -> bool:
        """Whether every extent is a number."""
        return not any(isinstance(e, Expr) for e in self.extents)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The extents as numbers.  Raises NotFixed."""
        return tuple(fixed_extent(e, f"`{self.name}`") for e in self.extents)

    @property
    def size(self) -> int:
        """Number of elements.  Raises NotFixed."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * dtypes.nbytes(self.dtype)

    @property
    def memory(self) -> str:
        """The name of the buffer that owns the memory; buffers of one `memory` overlap, others never do."""
        return self.data or self.name

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides in elements.  Raises NotFixed."""
        return tuple(prod(self.shape[dim + 1 :]) for dim in range(self.rank))

    def __getitem__(self, indices: Any) -> Load:
        """``buffer[i, j]`` is the load of that element."""
        items = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(as_expr(i) for i in items))

    def __repr__(self) -> str:
        return f"Buffer({self.name}{list(self.extents)}: {self.dtype})"


_MOST_LEAVES = 1 << 16
_leaves: dict[tuple[Any, ...], Any] = {}


def _one_leaf(cls: type[Any], *fields: Any) -> Any:
    """The shared leaf with these fields, made where it is missing: identical objects are quick to compare."""
    leaf = _leaves.get((cls, *fields))
    if leaf is None:
        if len(_leaves) >= _MOST_LEAVES:
            _leaves.clear()
        leaf = _leaves[cls, *fields] = object.__new__(cls)
    return leaf


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    name: str
    dtype: str = dtypes.INDEX

    def __new__(cls, name: str, dtype: str = dtypes.INDEX) -> Var:
        var: Var = _one_leaf(cls, name, dtype)
        return var

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.name, self.dtype

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Const(Expr):
    value: int | float | bool
    dtype: str = dtypes.INDEX

    def __new__(cls, value: int | float | bool, dtype: str = dtypes.INDEX) -> Const:
        found: Const = _one_leaf(cls, value, dtype) if type(value) is int else object.__new__(cls)
        return found

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.value, self.dtype

    def _key(self) -> tuple[Any, ...]:
        value = self.value  # of floats, the text tells zeros apart and makes NaN equal to itself
        return (value if type(value) is int else repr(value), self.dtype)

    def __repr__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, eq=False)
class Undef(Expr):
    dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr

    @Derived
    def dtype(self) -> str:
        if self.op in COMPARISONS or self.op in LOGIC:
            return dtypes.with_lanes("bool", dtypes.lanes(self.a.dtype))
        return self.a.dtype


@dataclass(frozen=True, eq=False)
class Not(Expr):
    a: Expr

    @Derived
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(frozen=True, eq=False)
class Select(Expr):
    cond: Expr
    a: Expr
    b: Expr

    @Derived
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(frozen=True, eq=False)
class Call(Expr):
    name: str
    args: tuple[Expr, ...]
    dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    dtype: str
    a: Expr


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """One element, or ``lanes(index) * lanes(buffer)`` of them when an index is a vector (RFC 0039)."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @Derived
    def dtype(self) -> str:
        width = max((dtypes.lanes(i.dtype) for i in self.indices), default=1)
        return dtypes.with_lanes(self.buffer.dtype, width * dtypes.lanes(self.buffer.dtype))


@dataclass(frozen=True, eq=False)
class Ramp(Expr):
    base: Expr
    stride: Expr
    lanes: int

    @Derived
    def dtype(self) -> str:
        return dtypes.with_lanes(self.base.dtype, self.lanes)


@dataclass(frozen=True, eq=False)
class Broadcast(Expr):
    value: Expr
    lanes: int

    @Derived
    def dtype(self) -> str:
        return dtypes.with_lanes(self.value.dtype, self.lanes)


@dataclass(frozen=True, eq=False)
class Shuffle(Expr):
    """Lanes of vectors of one type: lane n is number ``lanes[n]`` of all of them, one behind the other.

    One lane is a scalar.  Code generators take numbers that are constant where loops are unrolled.
    """

    vectors: tuple[Expr, ...]
    lanes: tuple[Expr, ...]

    @Derived
    def dtype(self) -> str:
        return dtypes.with_lanes(self.vectors[0].dtype, len(self.lanes))


@dataclass(frozen=True, eq=False)
class LetExpr(Expr):
    """`body` with `var` standing for `value`, which is evaluated once, before the body.

    The same variable may be bound again elsewhere in the function only to an equal value.
    """

    var: Var
    value: Expr
    body: Expr

    @Derived
    def dtype(self) -> str:
        return self.body.dtype


def const(value: int | float | bool, dtype: str | None = None) -> Const:
    """A literal; without a dtype, int gives the index type, float float32, bool bool."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else dtypes.INDEX if isinstance(value, int) else "float32"
    if dtypes.is_float(dtype):
        return Const(float(value), dtype)
    if dtypes.is_bool(dtype):
        return Const(bool(value), dtype)
    return Const(int(value), dtype)


TRUE = const(True)
FALSE = const(False)


def as_expr(value: ExprLike, like: Expr | None = None) -> Expr:
    """`value` as an expression; a Python number takes the type of `like`."""
    if isinstance(value, Expr):
        return value
    return const(value, None if like is None else like.dtype)


def _operate(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """What an operator of Python builds: in a traced function what the script would, with types brought together."""
    if TRACING and (tracer := TRACING.get(get_ident())) is not None:
        built: Expr = tracer.build(op, a, b)
        return built
    return binary(op, a, b)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """``a op b`` with constants folded and ``x + 0``, ``x * 1``, ``c and True`` left out.

    Only identities that hold for every value are applied, so floats keep ``0 * x``.
    """
    left = as_expr(a, b if isinstance(b, Expr) else None)
    right = as_expr(b, left)
    folded = _fold(op, left, right)
    return folded if folded is not None else Binary(op, left, right)


def _fold(op: str, a: Expr, b: Expr) -> Expr | None:
    if isinstance(a, Const) and isinstance(b, Const) and not dtypes.is_float(a.dtype):
        return fold_constants(op, a, b)
    if op == "and" or op == "or":
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Const):
                return other if bool(one.value) == (op == "and") else one
        return None
    if dtypes.is_int(a.dtype):
        if isinstance(b, Const) and b.value == 0 and op in "+-":
            return a
        if isinstance(a, Const) and a.value == 0 and op == "+":
            return b
        if isinstance(b, Const) and b.value == 1 and op in ("*", "//"):
            return a
        if isinstance(a, Const) and a.value == 1 and op == "*":
            return b
        if op == "*" and any(isinstance(e, Const) and e.value == 0 for e in (a, b)):
            return const(0, a.dtype)
    return None


_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "and": lambda x, y: x and y, "or": lambda x, y: x or y,
}  # fmt: skip


def fold_constants(op: str, a: Const, b: Const) -> Expr | None:
    """``a op b`` of integers or bools as the interpreter computes it: integers wrap around.

    None for floats, which each type rounds in its own way, for ``/``, and for division by zero.
    """
    x, y = a.value, b.value
    if dtypes.is_float(a.dtype) or op == "/" or (op in ("//", "%") and y == 0):
        return None
    value = _INTEGERS[op](x, y)
    if op in COMPARISONS or op in LOGIC:
        return const(bool(value))
    return const(dtypes.wrap(value, a.dtype) if dtypes.is_int(a.dtype) else value, a.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def if_then_else(cond: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """The lazy conditional: only the chosen side is evaluated."""
    left = as_expr(a, b if isinstance(b, Expr) else None)
    right = as_expr(b, left)
    if isinstance(cond, Const):
        return left if cond.value else right
    return Call("if_then_else", (cond, left, right), left.dtype)


def barrier(scopes: Collection[str]) -> Call:
    """The barrier for memory of these scopes, ``shared`` or ``global``."""
    return Call("_".join(("barrier", *(scope for scope in ("shared", "global") if scope in scopes))), (), "int32")


def as_conditional(masked: Call) -> Call:
    """A masked load as the conditional that it is."""
    cond, load, *other = masked.args
    zero, count = const(0, dtypes.element(masked.dtype)), dtypes.lanes(masked.dtype)
    beside = other[0] if other else zero if count == 1 else Broadcast(zero, count)
    return Call("if_then_else", (cond, load, beside), masked.dtype)


def all_of(conds: Sequence[Expr]) -> Expr:
    """The conjunction; true when empty."""
    result: Expr = TRUE
    for cond in conds:
        result = binary("and", result, cond)
    return result


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """``a and b and c`` -> ``(a, b, c)``; true gives none."""
    if isinstance(cond, Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return () if isinstance(cond, Const) and cond.value is True else (cond,)


def substitute(node: Any, mapping: Mapping[Var, Expr]) -> Any:
    """Replace variables; constants that appear are folded upwards.  What holds none of the variables stays as it is.

    What stands for an integer variable keeps its type, in which the operations around it wrap around: where the
    expression has another one, it is cast.
    """
    if not mapping:
        return node

    def replace(item: Any) -> Any:
        if isinstance(item, Var):
            value = mapping.get(item, item)
            return value if value.dtype == item.dtype else in_type(value, item.dtype)
        if _occurring(item).isdisjoint(mapping):
            return item
        return refold(rebuild(item, replace))

    return replace(node)


def refold(node: Any) -> Any:
    """Fold one node whose children may have become constants."""
    if isinstance(node, Binary):
        folded = _fold(node.op, node.a, node.b)
        return node if folded is None else folded
    if isinstance(node, Call) and node.name == "if_then_else" and isinstance(node.args[0], Const):
        return node.args[1] if node.args[0].value else node.args[2]
    if isinstance(node, Not) and isinstance(node.a, Const):
        return const(not node.a.value)
    return node


def variables(node: Node) -> set[Var]:
    """Every variable that occurs in `node`, without those that let expressions inside bind."""
    return set(free_variables(node))


@remembered
def free_variables(node: Node) -> frozenset[Var]:
    """`variables`, kept."""
    found, bound = _occurring(node), let_variables(node)
    return found - bound if bound else found


@gathered
def _occurring(node: Node) -> frozenset[Var]:
    return frozenset((node,)) if isinstance(node, Var) else frozenset()


@gathered
def let_variables(node: Node) -> frozenset[Var]:
    """The variables that let expressions in `node` bind."""
    return frozenset((node.var,)) if isinstance(node, LetExpr) else frozenset()


@remembered
def reads_memory(node: Node) -> bool:
    """Whether `node` loads from any buffer."""
    return isinstance(node, Load) or any(map(reads_memory, children(node)))


def divisor_of(node: Any) -> Expr | None:
    """What a node divides by, or takes the rest of a division by; None for any other."""
    if isinstance(node, Binary) and node.op in ("//", "%"):
        return node.b
    return node.args[1] if isinstance(node, Call) and node.name in TRUNCATED_CALLS else None


@remembered
def can_fail(node: Node) -> bool:
    """Whether `node` reads memory, which an index may miss, or divides integers by what may be 0."""
    divisor = divisor_of(node)
    divides = divisor is not None and not (isinstance(divisor, Const) and divisor.value)
    return divides or isinstance(node, Load) or any(map(can_fail, children(node)))


def as_index(expr: Expr) -> Expr:
    """An integer expression in the index type, in which the numbers of elements do not wrap around; lanes stay."""
    return in_type(expr, dtypes.INDEX)


def in_type(expr: Expr, dtype: str) -> Expr:
    """An integer expression in another integer type, as a cast computes it; lanes stay, and so do other expressions."""
    wanted, own = dtypes.element(dtype), dtypes.element(expr.dtype)
    if wanted == own or not (dtypes.is_int(wanted) and dtypes.is_int(own)):
        return expr
    if isinstance(expr, Const):
        return const(dtypes.wrap(int(expr.value), wanted), wanted)
    if isinstance(expr, Broadcast):
        return Broadcast(in_type(expr.value, wanted), expr.lanes)
    if isinstance(expr, Cast) and dtypes.element(expr.a.dtype) == wanted and dtypes.widens(wanted, own):
        return expr.a
    return Cast(dtypes.with_lanes(wanted, dtypes.lanes(expr.dtype)), expr)


def fixed_extent(value: Extent, owner: str) -> int:
    """An extent of `owner` as a number.  Raises NotFixed."""
    if not isinstance(value, Expr):
        return value
    names = ", ".join(f"`{v.name}`" for v in sorted(free_variables(value), key=lambda v: v.name))
    raise NotFixed(f"an extent of {owner} depends on {names}; here it must be a number")


def as_int(expr: ExprLike) -> int:
    """The value of a constant index.  Raises ValueError otherwise."""
    if isinstance(expr, (int, bool)):
        return int(expr)
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return int(expr.value)
    raise ValueError(f"expected a constant integer, but got `{expr!r}`")
