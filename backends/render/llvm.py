"""Legal programs as LLVM IR: from a node and its type to instructions, by one table for each kind of node.

An int64 is a linear form (`Linear`), a vector of them `Ramped` or `Lanes`, a condition that is
decided at generation time a Python bool, and everything else the text of an LLVM operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir import dtypes
from ...ir.arith.intervals import nothing_known
from ...ir.arith.linear import shared_form
from ...ir.expr import (
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
    free_variables,
)
from ...ir.functions import (
    BIT_CALLS,
    DOT_CALLS,
    MASKED_LOAD,
    MULTIPLY_ACCUMULATE,
    PACK_4X8,
    PAIR_CALLS,
    PREFETCH,
    REINTERPRET,
    SHIFT_CALLS,
    TO_INT_CALLS,
    TRUNC_TO_INT32,
    TRUNCATED_CALLS,
)
from ...ir.node import walk
from ...ir.stmt import Allocate, Declare, Evaluate, For, If, Let, Seq, Stmt, Store, written_buffers
from ..errors import CodegenError
from ..legal.written_out import FENCE
from ..llvm import arith, memory
from ..llvm.builder import Builder, Value
from ..llvm.dots import dot_of_words, packed_bytes
from ..llvm.fused import multiply_accumulate
from ..llvm.index import INLINE, INT64_MAX, INT64_MIN, ZERO, Lanes, Linear, Ramped, combined, from_lanes
from ..llvm.masks import joined, mask_where
from ..llvm.math import call_math
from ..llvm.operators import compare_values, condition, index_binary, linear_binary
from ..llvm.types import ModuleText, literal, value_type, vector_literal
from ..passes.roundings import EXACT

MAX_STACK_BYTES = 4 << 20  # half of the 8 MiB that Linux gives a process' first thread
LONGEST = 2**62  # no loop counts further
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


@dataclass(frozen=True)
class Context:
    """What all functions of a module share; `parallel` writes a loop that threads share."""

    module: ModuleText
    name: str = ""
    attributes: str = ""
    parallel: Callable[[Printer, For, Linear], None] | None = None
    stores: dict[int, set[str]] = field(default_factory=dict)

    def written(self, stmt: Stmt) -> set[str]:
        """The memory that `stmt` stores to, by root name."""
        known = self.stores.get(id(stmt))
        if known is None:
            known = self.stores[id(stmt)] = {buffer.memory for buffer in written_buffers(stmt)}
        return known


class Printer:
    """Writes one function: instructions go `out`, variables mean what `env` says."""

    def __init__(self, context: Context, name: str, parameters: Sequence[str]) -> None:
        self.context = context
        self.out = Builder(context.module, name, parameters)
        self.env: dict[str, Value] = {}
        self.parallel_depth = 0
        self.stack_bytes = 0
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self._forms: dict[int, _Form] = {}
        self._types: dict[int, str] = {}
        self._plans: dict[int, Callable[[Printer, Any], Value]] = {}
        self._alive: list[Expr] = []  # no other expression has the address of one of which something is known

    def bind(self, var: Var, value: Value) -> None:
        """`var` means `value` from here on."""
        self.env[var.name] = value
        self._clock += 1
        self._stamps[var.name] = self._clock

    def unbind(self, var: Var) -> None:
        """`var` means nothing from here on."""
        self.env.pop(var.name, None)

    def statement(self, stmt: Stmt) -> None:
        """Write `stmt` at this point."""
        write = STATEMENTS.get(type(stmt))
        if write is None:
            raise CodegenError(f"a {type(stmt).__name__} statement must be lowered before code generation")
        write(self, stmt)

    def value(self, expr: Expr) -> Value:
        """The value of `expr` in its best form."""
        plan = self._plans.get(id(expr))
        if plan is None:  # looked up once for all the times that an unrolled loop writes the expression
            plan = self._plans[id(expr)] = self._plan(expr)
            self._alive.append(expr)
        return plan(self, expr)

    def _plan(self, expr: Expr) -> Callable[[Printer, Any], Value]:
        if isinstance(expr, Binary) and expr.op not in (*COMPARISONS, *LOGIC) and self.dtype(expr) == dtypes.INDEX:
            return Printer.index
        write = EXPRESSIONS.get(type(expr))
        if write is None:
            raise CodegenError(f"no code for a {type(expr).__name__} expression: {expr!r}")
        return write

    def operand(self, expr: Expr) -> str:
        """The LLVM operand that holds `expr`."""
        return self.out.materialise(self.value(expr), self.dtype(expr))

    def linear(self, expr: Expr) -> Linear:
        """A scalar int64 as a linear form."""
        value = self.value(expr)
        if isinstance(value, Linear):
            return value
        raise CodegenError(f"expected a scalar int64, but got {self.dtype(expr)}: {expr!r}")

    def dtype(self, expr: Expr) -> str:
        """The type of `expr`; remembered, because a derived one costs a walk."""
        known = self._types.get(id(expr))
        if known is None:
            known = self._types[id(expr)] = expr.dtype
            self._alive.append(expr)
        return known

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear | Ramped | Lanes:
        """The offset of an access in elements of the buffer."""
        if len(indices) == 1:
            only = self.value(indices[0])
            if isinstance(only, (Linear, Ramped, Lanes)):
                return only
        offset: Value = ZERO
        for index, stride in zip(indices, buffer.strides, strict=True):
            value = self.value(index)
            if isinstance(value, str):
                value = self._unpacked(value, dtypes.lanes(self.dtype(index)))
            scaled = value if stride == 1 else index_binary(self.out, "*", value, Linear(stride))
            offset = scaled if offset is ZERO else index_binary(self.out, "+", offset, scaled)
        assert isinstance(offset, (Linear, Ramped, Lanes))
        return offset

    def _unpacked(self, vector: str, count: int) -> Ramped | Lanes:
        kind, out = value_type(dtypes.with_lanes(dtypes.INDEX, count)), self.out
        names = [out.emit(f"extractelement {kind} {vector}, i64 {n}") for n in range(count)]
        return from_lanes(out.opaque(name, INT64_MIN, INT64_MAX) for name in names)

    def index(self, expr: Binary) -> Value:
        """Index arithmetic, evaluated once for each binding of its variables, and sums term by term."""
        form = self._forms.get(id(expr))
        if form is None:
            form = self._forms[id(expr)] = _Form(expr)
        stamp, stamps = 0, self._stamps
        for name in form.variables:
            if stamps.get(name, 0) > stamp:
                stamp = stamps[name]
        if form.pure and form.stamp == stamp:
            return form.value
        if len(form.terms) == 1 and form.terms[0][0] is expr:
            value = linear_binary(self.out, expr.op, self.linear(expr.a), self.linear(expr.b))
        else:
            value = combined(form.const, [(self._atom(atom), factor) for atom, factor in form.terms])
        if form.pure and isinstance(value, Linear) and value.depth != INLINE:
            form.stamp, form.value = stamp, value
        return value

    def _atom(self, expr: Expr) -> Linear:
        """`linear`, quick for what is bound."""
        value = self.env.get(expr.name) if type(expr) is Var else None
        return value if type(value) is Linear else self.linear(expr)


class _Form:
    """An index expression as a sum, and its value under the bindings of time `stamp`."""

    __slots__ = ("const", "pure", "stamp", "terms", "value", "variables")

    def __init__(self, expr: Expr) -> None:
        terms, self.const = shared_form(expr)
        self.terms = tuple(terms.items())
        nodes = list(walk(expr))
        self.variables = tuple({n.name for n in nodes if isinstance(n, Var)})
        self.pure = not any(isinstance(n, (Load, Call)) for n in nodes)
        self.stamp = -1
        self.value: Value = ZERO


# --- leaves and vectors -------------------------------------------------------------------------


def _var(p: Printer, expr: Var) -> Value:
    try:
        return p.env[expr.name]
    except KeyError:
        raise CodegenError(f"variable `{expr.name}` is used outside of the loop or let that defines it") from None


def _const(_p: Printer, expr: Const) -> Value:
    if expr.dtype == dtypes.INDEX:
        return Linear(int(expr.value))
    if expr.dtype == "bool":
        return bool(expr.value)
    return literal(expr.value, expr.dtype)


def _undef(_p: Printer, expr: Undef) -> Value:
    """Any value does."""
    if expr.dtype == dtypes.INDEX:
        return ZERO
    return False if expr.dtype == "bool" else literal(0, expr.dtype)


def _ramp(p: Printer, expr: Ramp) -> Value:
    base, stride = p.value(expr.base), p.value(expr.stride)
    if isinstance(base, Linear) and isinstance(stride, Linear):
        return Ramped(base, stride, expr.lanes) if expr.lanes > 1 else base
    out, dtype = p.out, p.dtype(expr)
    kind, base_dtype = value_type(dtype), dtypes.element(dtype)
    first, step = (out.splat(out.materialise(v, base_dtype), dtype) for v in (base, stride))
    numbers = vector_literal(tuple(literal(n, base_dtype) for n in range(expr.lanes)), base_dtype)
    return out.emit(f"add {kind} {first}, {out.emit(f'mul {kind} {step}, {numbers}')}")


def _broadcast(p: Printer, expr: Broadcast) -> Value:
    value = p.value(expr.value)
    if isinstance(value, bool) or expr.lanes == 1:
        return value
    if isinstance(value, Linear):
        return Ramped(value, ZERO, expr.lanes)
    if isinstance(value, str) and dtypes.lanes(p.dtype(expr.value)) == 1:
        return p.out.splat(value, p.dtype(expr))
    raise CodegenError(f"a broadcast repeats a scalar, but got {p.dtype(expr.value)}: {expr!r}")


def _shuffle(p: Printer, expr: Shuffle) -> Value:
    part, dtype = p.dtype(expr.vectors[0]), p.dtype(expr)
    vectors = [p.operand(vector) for vector in expr.vectors]
    lanes = [p.linear(lane).const for lane in expr.lanes]
    roots = {p.out.root(v.buffer) if isinstance(v, Load) else "" for v in expr.vectors}
    root = roots.pop() if len(roots) == 1 else ""
    if root and len(lanes) > 1:
        return memory.shuffled_loads(p.out, root, vectors, part, lanes)
    return p.out.computed(memory.shuffled(p.out, vectors, part, lanes), dtype)


def _let_expression(p: Printer, expr: LetExpr) -> Value:
    p.bind(expr.var, p.value(expr.value))
    value = p.value(expr.body)
    p.unbind(expr.var)
    return value


def _load(p: Printer, expr: Load) -> Value:
    dtype = p.dtype(expr)
    return p.out.computed(memory.load(p.out, expr.buffer, p.offset(expr.buffer, expr.indices), dtype), dtype)


# --- operators ----------------------------------------------------------------------------------


def _binary(p: Printer, expr: Binary) -> Value:
    if expr.op in LOGIC:
        return _logic(p, expr)
    a, b = p.value(expr.a), p.value(expr.b)
    dtype = p.dtype(expr.a)
    if not isinstance(a, str) and not isinstance(b, str) and dtypes.element(dtype) == dtypes.INDEX:
        return index_binary(p.out, expr.op, a, b)
    left, right = p.out.materialise(a, dtype), p.out.materialise(b, dtype)
    if expr.op in COMPARISONS:
        return compare_values(p.out, expr.op, left, right, dtype)
    return p.out.computed(arith.binary(p.out, expr.op, left, right, dtype), dtype)


def _logic(p: Printer, expr: Binary) -> Value:
    if expr.op == "and" and isinstance(expr.a, Broadcast):
        return _where(p, expr.a, expr)
    a = p.value(expr.a)
    absorbing = expr.op == "or"
    if isinstance(a, bool):
        return a if a is absorbing else p.value(expr.b)
    b = p.value(expr.b)
    if isinstance(b, bool):
        return b if b is absorbing else a
    dtype, depths = p.dtype(expr), p.out.depths
    left, right = (p.out.materialise(v, dtype) for v in (a, b))
    if (mask := joined(expr.op, left, right)) is not None:
        return mask
    depth = max(depths.get(left, INLINE), depths.get(right, INLINE))
    return condition(p.out, f"{expr.op} {value_type(dtype)} {left}, {right}", depth)


def _where(p: Printer, scalar: Broadcast, expr: Binary) -> Value:
    """The lanes of a condition where a scalar one holds, too."""
    flag, mask = p.value(scalar.value), p.value(expr.b)
    if isinstance(flag, bool):
        return mask if flag else False
    if isinstance(mask, bool) and not mask:
        return False
    dtype, out = p.dtype(expr), p.out
    return mask_where(out, out.materialise(flag, "bool"), out.materialise(mask, dtype), value_type(dtype))


def _not(p: Printer, expr: Not) -> Value:
    a = p.value(expr.a)
    if isinstance(a, bool):
        return not a
    dtype = p.dtype(expr)
    return p.out.emit(f"xor {value_type(dtype)} {p.out.materialise(a, dtype)}, {literal(True, dtype)}")


# --- conditionals, calls and casts ------------------------------------------------------------


def _select(p: Printer, expr: Select) -> Value:
    cond = p.value(expr.cond)
    if isinstance(cond, bool):
        return p.value(expr.a if cond else expr.b)
    flag, dtype = p.out.materialise(cond, "bool"), p.dtype(expr)
    a, b = p.value(expr.a), p.value(expr.b)
    kind = value_type(dtype)
    operands = f"{kind} {p.out.materialise(a, dtype)}, {kind} {p.out.materialise(b, dtype)}"
    name = p.out.emit(f"select {value_type(p.dtype(expr.cond))} {flag}, {operands}")
    if dtype != dtypes.INDEX:
        return name
    assert isinstance(a, Linear) and isinstance(b, Linear)
    (alo, ahi), (blo, bhi) = a.bounds(), b.bounds()
    return p.out.opaque(name, min(alo, blo), max(ahi, bhi))


def _if_then_else(p: Printer, expr: Call) -> Value:
    """Lazy: the condition branches."""
    cond_expr, a, b = expr.args
    cond = p.value(cond_expr)
    if isinstance(cond, bool):
        return p.value(a if cond else b)
    flag, dtype = p.out.materialise(cond, "bool"), p.dtype(expr)
    if dtypes.lanes(p.dtype(cond_expr)) > 1:
        raise CodegenError(f"a condition of lanes is a mask before code generation: {expr!r}")
    return p.out.computed(p.out.choose(flag, lambda: p.operand(a), lambda: p.operand(b), value_type(dtype)), dtype)


def _masked_load(p: Printer, expr: Call) -> Value:
    mask, load, *other = expr.args
    assert isinstance(load, Load)
    cond, dtype, buffer = p.value(mask), p.dtype(expr), load.buffer
    if isinstance(cond, bool):
        if cond or other:
            return p.value(load if cond else other[0])
        return ZERO if dtype == dtypes.INDEX else literal(0, dtype)
    flag = p.out.materialise(cond, p.dtype(mask))
    if dtypes.lanes(p.dtype(mask)) > 1:
        beside = p.operand(other[0]) if other else None
        lanes = p.offset(buffer, load.indices)
        assert not isinstance(lanes, Linear)
        return memory.load_masked(p.out, buffer, lanes, dtype, flag, beside)
    offset = p.offset(buffer, load.indices)
    if isinstance(offset, Lanes) or (isinstance(offset, Ramped) and offset.stride != Linear(1)):
        raise CodegenError(f"one condition for lanes of `{buffer.name}` that are not neighbours: {expr!r}")
    constant = p.operand(other[0]) if other else literal(0, dtype)
    return p.out.computed(memory.load_or_constant(p.out, flag, buffer, offset, dtype, constant), dtype)


def _exact(p: Printer, expr: Call) -> Value:
    """An operation without the flags of others; functions have none."""
    (inner,) = expr.args
    if not isinstance(inner, Binary):
        return p.value(inner)
    dtype = p.dtype(inner)
    a, b = p.operand(inner.a), p.operand(inner.b)
    return p.out.computed(arith.binary(p.out, inner.op, a, b, dtype, exact=True), dtype)


def _bitwise(p: Printer, expr: Call) -> Value:
    operands = ", ".join([p.operand(a) for a in expr.args])
    return p.out.computed(p.out.emit(f"{_BITWISE[expr.name]} {value_type(expr.dtype)} {operands}"), expr.dtype)


def _shift(p: Printer, expr: Call) -> Value:
    a, b = (p.operand(arg) for arg in expr.args)
    return p.out.computed(arith.shift(p.out, expr.name, a, b, expr.dtype), expr.dtype)


def _truncated(p: Printer, expr: Call) -> Value:
    a, b = (p.operand(arg) for arg in expr.args)
    return p.out.computed(arith.truncated(p.out, expr.name, a, b, expr.dtype), expr.dtype)


def _reinterpret(p: Printer, expr: Call) -> Value:
    (value,) = expr.args
    name = arith.reinterpret(p.out, p.operand(value), p.dtype(value), expr.dtype)
    return p.out.computed(name, expr.dtype)


def _dot(p: Printer, expr: Call) -> Value:
    return dot_of_words(p.out, expr.name, [p.operand(a) for a in expr.args], expr.dtype)


def _pack(p: Printer, expr: Call) -> Value:
    parts = [p.operand(a) for a in expr.args]
    return p.out.computed(packed_bytes(p.out, parts, dtypes.lanes(expr.dtype)), expr.dtype)


def _multiply_accumulate(p: Printer, expr: Call) -> Value:
    return multiply_accumulate(p.out, [p.operand(a) for a in expr.args], expr.dtype)


def _math(p: Printer, expr: Call) -> Value:
    operands = [p.operand(a) for a in expr.args]
    return p.out.computed(call_math(p.out, expr.name, operands, expr.dtype), expr.dtype)


def _to_int(p: Printer, expr: Call) -> Value:
    (real,), lanes = expr.args, dtypes.lanes(expr.dtype)
    kind, result, value = value_type(p.dtype(real)), value_type(expr.dtype), p.operand(real)
    if expr.name == TRUNC_TO_INT32:
        return p.out.emit(f"fptosi {kind} {value} to {result}")
    suffix = "i32.f32" if lanes == 1 else f"v{lanes}i32.v{lanes}f32"
    function = p.out.module.declare(f"llvm.lrint.{suffix}", result, kind)
    return p.out.emit(f"call {result} {function}({kind} {value})")


def _cast(p: Printer, expr: Cast) -> Value:
    source, target = p.dtype(expr.a), expr.dtype
    value = p.value(expr.a)
    if source == target:
        return value
    name = arith.cast(p.out, p.out.materialise(value, source), source, target)
    if target != dtypes.INDEX:
        return name
    lo, hi = (0, 1) if source == "bool" else (INT64_MIN, INT64_MAX)
    if dtypes.is_int(source):
        lo, hi = dtypes.int_range(source)
    return p.out.opaque(name, lo, hi)


# --- statements -----------------------------------------------------------------------------------


def _seq(p: Printer, stmt: Seq) -> None:
    for item in stmt.stmts:
        p.statement(item)


def _let(p: Printer, stmt: Let) -> None:
    value = p.value(stmt.value)
    p.bind(stmt.var, p.out.at_entry(value) if isinstance(value, Linear) else value)
    p.statement(stmt.body)
    p.unbind(stmt.var)


def _evaluate(p: Printer, stmt: Evaluate) -> None:
    if stmt.value == FENCE:
        p.out.fence()
        return
    if not isinstance(stmt.value, Call) or stmt.value.name != PREFETCH:
        p.value(stmt.value)
        return
    (load,) = stmt.value.args
    assert isinstance(load, Load)
    offset = p.offset(load.buffer, load.indices)
    assert isinstance(offset, Linear)
    memory.prefetch(p.out, load.buffer, offset)


def _for(p: Printer, stmt: For) -> None:
    if stmt.kind not in ("serial", "unrolled", "parallel"):
        raise CodegenError(f"loop `{stmt.var.name}` is {stmt.kind}, which a CPU kernel cannot hold after lowering")
    extent, parallel = p.linear(stmt.extent), p.context.parallel
    if extent.is_const and (extent.const <= 1 or stmt.kind == "unrolled"):
        _unrolled(p, stmt)
    elif stmt.kind == "parallel" and not p.parallel_depth and annotation(stmt, "threads") != 1 and parallel:
        parallel(p, stmt, extent)
    else:
        _serial(p, stmt, extent)


def _unrolled(p: Printer, stmt: For) -> None:
    """The iterations one after the other; the extent is constant here."""
    for number in range(p.linear(stmt.extent).const):
        p.bind(stmt.var, Linear(number))
        p.statement(stmt.body)
    p.unbind(stmt.var)


def _serial(p: Printer, stmt: For, extent: Linear) -> None:
    largest = min(max(extent.bounds()[1] - 1, 0), LONGEST)
    guarded, written = extent.bounds()[0] < 1, p.context.written(stmt.body)
    with p.out.loop("0", p.out.scalar(extent), (0, largest), guarded, written, stmt.var.name) as var:
        p.bind(stmt.var, var)
        p.statement(stmt.body)
        p.unbind(stmt.var)


def annotation(stmt: For, key: str) -> int:
    """The number that a loop is annotated with, 0 if it is not."""
    value = next((int(v) for k, v in stmt.annotations if k == key), 0)
    if value < 0:
        raise CodegenError(f"loop `{stmt.var.name}` is annotated with `{key}` = {value}; it must be positive")
    return value


def _if(p: Printer, stmt: If) -> None:
    cond, then, orelse = p.value(stmt.cond), stmt.then, stmt.orelse
    if isinstance(cond, bool):
        if cond:
            p.statement(then)
        elif orelse is not None:
            p.statement(orelse)
        return
    assert isinstance(cond, str)
    if dtypes.lanes(p.dtype(stmt.cond)) == 1:
        other = None if orelse is None else lambda: p.statement(orelse)
        p.out.branch(cond, lambda: _within(p, stmt.cond, then), other, p.context.written(stmt))
        return
    if not isinstance(then, Store) or orelse is not None:
        raise CodegenError(f"a condition of lanes is one of a single store before code generation: {stmt.cond!r}")
    dtype, value = p.dtype(then.value), p.operand(then.value)
    memory.store_masked(p.out, then.buffer, p.offset(then.buffer, then.indices), value, dtype, cond)


def _within(p: Printer, cond: Expr, then: Stmt) -> None:
    """A statement where a condition holds, which bounds extents and other numbers that may be any so far."""
    values = {var: p.env.get(var.name) for var in free_variables(cond)}
    unknown = {var: value for var, value in values.items() if isinstance(value, Linear) and value.is_unknown}
    facts = nothing_known().assuming(cond) if unknown else nothing_known()
    for var, value in unknown.items():
        p.bind(var, value.within(*facts.interval(var)))
    p.statement(then)
    for var, value in unknown.items():
        p.bind(var, value)


def _store(p: Printer, stmt: Store) -> None:
    buffer, dtype = stmt.buffer, p.dtype(stmt.value)
    value, offset = p.operand(stmt.value), p.offset(buffer, stmt.indices)
    count = dtypes.lanes(buffer.dtype) * (1 if isinstance(offset, Linear) else offset.lanes)
    if count != dtypes.lanes(dtype):
        raise CodegenError(f"a store of {dtype} to {count} elements of `{buffer.name}`")
    memory.store(p.out, buffer, offset, value, dtype)


def _allocate(p: Printer, stmt: Allocate) -> None:
    p.stack_bytes += stmt.buffer.nbytes
    if p.stack_bytes > MAX_STACK_BYTES:
        raise CodegenError(
            f"allocations of {p.stack_bytes} bytes inside one function exceed the stack's share of "
            f"{MAX_STACK_BYTES}; `{stmt.buffer.name}` ({stmt.buffer.nbytes} bytes) belongs in a workspace"
        )
    p.out.allocate(stmt.buffer)
    p.out.forget({stmt.buffer.name})
    p.statement(stmt.body)


EXPRESSIONS: Mapping[type[Expr], Callable[[Printer, Any], Value]] = {
    Var: _var, Const: _const, Undef: _undef, Binary: _binary, Not: _not, Select: _select, Cast: _cast,
    Call: lambda p, expr: CALLS.get(expr.name, _math)(p, expr),
    Load: _load, Ramp: _ramp, Broadcast: _broadcast, Shuffle: _shuffle, LetExpr: _let_expression,
}  # fmt: skip
CALLS: Mapping[str, Callable[[Printer, Call], Value]] = {
    "if_then_else": _if_then_else, MASKED_LOAD: _masked_load, EXACT: _exact, MULTIPLY_ACCUMULATE: _multiply_accumulate,
    **dict.fromkeys(BIT_CALLS, _bitwise), **dict.fromkeys(SHIFT_CALLS, _shift), REINTERPRET: _reinterpret,
    **dict.fromkeys(TRUNCATED_CALLS, _truncated), **dict.fromkeys((*DOT_CALLS, *PAIR_CALLS), _dot),
    PACK_4X8: _pack,
    **dict.fromkeys(TO_INT_CALLS, _to_int),
}  # fmt: skip
"""Functions that are not those of `math`."""
STATEMENTS: Mapping[type[Stmt], Callable[[Printer, Any], None]] = {
    Seq: _seq, For: _for, If: _if, Store: _store, Let: _let, Evaluate: _evaluate, Allocate: _allocate,
    Declare: lambda p, stmt: p.statement(stmt.body),
}  # fmt: skip
