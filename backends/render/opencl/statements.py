"""Statements: for each type of them the function that writes its lines.

A loop that is bound to ``blockIdx.*``, ``threadIdx.*`` or ``subgroup`` becomes a group or local id, an unrolled one is
written out, and every other one stays.  Buffers of scope ``local`` are private arrays, which live in registers once all
loops over them are written out; those of scope ``shared`` are local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....ir import dtypes
from ....ir.arith.intervals import Facts
from ....ir.arith.linear import as_ramp
from ....ir.expr import Binary, Buffer, Call, Const, Expr, Load, Not, Ramp, Var, as_int, binary, const, substitute
from ....ir.functions import BARRIERS, SUBGROUP_CALLS
from ....ir.stmt import (
    Allocate,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    memories_read,
    memories_written,
)
from ...errors import CodegenError
from ...launch import OFFSETS
from ...legal.unrolling import PRAGMA_UNROLL
from ...legal.work_items import AXES, GUARDED, Work, is_serial, place_of
from .kernel import Kernel, NeedsLong
from .lanes import lane
from .masks import write_under
from .memory import ARRAY_ALIGNMENT, position, write, write_vector
from .registers import Loaded
from .transpose import square, transpose
from .types import bare, memory_type, pieces

NUMBERED = f"(long)(get_group_id(0) + get_global_offset(0) + get_global_offset(1) * {OFFSETS})"
"""The number of a work-group among all of a program.

A launch may have a range of them.  Its offset tells where that begins, in groups instead of items, since no kernel asks
for global ids; along y it counts runs of `OFFSETS`, since PoCL takes an offset for less than 2 ** 16.
"""
_FLAGS = {"shared": "CLK_LOCAL_MEM_FENCE", "global": "CLK_GLOBAL_MEM_FENCE"}
_OPERATIONS = {name: op for op, name in SUBGROUP_CALLS.items()}


@dataclass
class Body:
    """The statements of a kernel: who runs them, and the number of a work-group, where groups are numbered.

    `first_item` is the condition by which one item of a subgroup writes what all of them share.
    """

    kernel: Kernel
    work: Work
    loaded: Loaded
    group: str = ""
    first_item: str = ""


def statement(b: Body, stmt: Stmt) -> None:
    """Write a statement."""
    write_lines = STATEMENTS.get(type(stmt))
    if write_lines is None:
        raise CodegenError(f"a {type(stmt).__name__} statement must be lowered before code generation")
    write_lines(b, stmt)


def _sequence(b: Body, stmt: Seq) -> None:
    for item in stmt.stmts:
        statement(b, item)


def _declare(b: Body, stmt: Declare) -> None:
    statement(b, stmt.body)


def _evaluate(b: Body, stmt: Evaluate) -> None:
    k, value = b.kernel, stmt.value
    if isinstance(value, Call) and value.name in BARRIERS:
        k.writer.line(f"barrier({' | '.join(_FLAGS[scope] for scope in value.name.split('_')[1:])});")
    else:
        k.writer.line(f"(void){k.scalar(k.known.fixed(value))};")


# ---------------------------------------------------------------- stores


def _store(b: Body, stmt: Store) -> None:
    if isinstance(stmt.value, Binary) and isinstance(stmt.value.b, Call) and stmt.value.b.name in _OPERATIONS:
        _reduce(b, stmt, stmt.value, stmt.value.b)
        return
    k = b.kernel
    indices, value = tuple(map(k.known.fixed, stmt.indices)), k.known.fixed(stmt.value)
    b.loaded.note(replace(stmt, value=value))
    at = position(stmt.buffer, indices)
    lanes, ramp = dtypes.lanes(at.dtype), as_ramp(at)
    by_lane = dtypes.is_bool(stmt.buffer.dtype) or stmt.buffer.dtype in k.types.emulated
    if lanes == 1:
        write(k, stmt.buffer, at, k.scalar(value))
    elif ramp is not None and ramp[1] == const(1) and not by_lane:
        _store_vector(k, stmt.buffer, ramp[0], value, lanes)
    else:
        _store_lanes(k, stmt.buffer, at, value, lanes)


def _reduce(b: Body, stmt: Store, value: Binary, reduction: Call) -> None:
    """What the items of a subgroup do together; memory that they share is written by the first."""
    k, part = b.kernel, reduction.args[0]
    if part.dtype == dtypes.INDEX and k.types.index != "long":
        raise NeedsLong  # the sum may, where no part does
    total, kind = Var(k.writer.names.fresh("all"), part.dtype), k.types.scalar(part.dtype)
    k.variables[total] = total.name
    function = k.helpers.subgroup(_OPERATIONS[reduction.name], kind, dtypes.is_float(part.dtype))
    k.writer.line(f"const {kind} {total.name} = {function}({bare(k.scalar(k.known.fixed(part)))});")
    update = replace(stmt, value=replace(value, b=total))
    if k.space(stmt.buffer) == "private":
        _store(b, update)
    else:
        with k.writer.braces(b.first_item):
            _store(b, update)


def _store_vector(k: Kernel, buffer: Buffer, base: Expr, value: Expr, lanes: int) -> None:
    parts = pieces(lanes)
    kind = memory_type(buffer.dtype)
    texts = [k.vector(value, start, count) for start, count in parts]
    if len(parts) > 1 and buffer.memory in memories_read(value):
        texts = k.writer.before(texts, [kind if count == 1 else f"{kind}{count}" for _, count in parts])
    for (start, count), text in zip(parts, texts, strict=True):
        at = binary("+", base, start)
        if k.under is not None:
            write_under(k, k.under, buffer, at, text, start, count)
        elif count == 1:
            write(k, buffer, at, text)
        else:
            write_vector(k, buffer, at, count, text)


def _store_lanes(k: Kernel, buffer: Buffer, at: Expr, value: Expr, lanes: int) -> None:
    if k.under is not None:
        raise CodegenError(f"a store to `{buffer.name}` under a condition of lanes writes neighbours")
    kind = k.types.lane(buffer.dtype)
    texts = k.writer.before([k.vector(value, number, 1) for number in range(lanes)], [kind] * lanes)
    for number, text in enumerate(texts):
        write(k, buffer, lane(at, number), text)


# ---------------------------------------------------------------- loops


def _for(b: Body, stmt: For) -> None:
    if stmt.kind == "thread_binding" and not is_serial(stmt):
        _bound(b, stmt)
    elif stmt.kind == "unrolled" and isinstance(b.kernel.known.fixed(stmt.extent), Const):
        if (found := square(b.kernel, stmt)) is not None:
            transpose(b.kernel, found)
        else:
            _write_out(b, stmt, as_int(b.kernel.known.fixed(stmt.extent)))
    else:
        _loop(b, stmt)


def _write_out(b: Body, stmt: For, extent: int) -> None:
    k, spare = b.kernel, b.loaded.spare(stmt)
    for value in range(extent):
        if value and spare is not None:
            b.loaded.relieve(k, spare)
        k.known.constants[stmt.var] = const(value)
        statement(b, stmt.body)
    k.known.constants.pop(stmt.var, None)


def _loop(b: Body, stmt: For) -> None:
    k, extent = b.kernel, b.kernel.known.fixed(stmt.extent)
    limit = k.scalar(extent)
    if k.writer.changes(extent):  # the extent counts as it is when the loop begins
        (limit,) = k.writer.before([limit], [k.types.scalar(extent.dtype)])
    name = k.variables[stmt.var] = k.writer.names.fresh(stmt.var.name)
    facts = _range(k, stmt.var, extent)
    if stmt.kind == "unrolled" or (PRAGMA_UNROLL, 1) in stmt.annotations:
        k.writer.line("#pragma unroll")
    b.loaded.begin_loop()
    with k.known.knowing(facts), k.writer.braces(f"for ({k.types.index} {name} = 0; {name} < {limit}; ++{name})"):
        statement(b, stmt.body)


def _range(k: Kernel, var: Var, extent: Expr) -> Facts:
    facts = k.known.facts.looping(var, extent)
    return facts if isinstance(extent, Const) else facts.assuming(var < extent)


def _bound(b: Body, stmt: For) -> None:
    k, (where, axis) = b.kernel, place_of(stmt)
    name = k.variables[stmt.var] = k.writer.names.fresh(stmt.var.name)
    function = "get_group_id" if where == "blockIdx" else "get_local_id"
    value = f"({k.types.index}){function}({AXES.index(axis)})"
    if where == "blockIdx" and b.group:
        value = _along(axis, b.work.groups, b.group)
    around = b.first_item
    if stmt.reduces:
        b.first_item = f"if ({name} == 0)"
    with k.known.knowing(_range(k, stmt.var, stmt.extent)), k.writer.braces(""):
        k.writer.line(f"const {k.types.index} {name} = {value};")
        if (GUARDED, 1) in stmt.annotations:
            with k.writer.braces(f"if ({name} < {as_int(stmt.extent)})"):
                statement(b, stmt.body)
        else:
            statement(b, stmt.body)
    b.first_item = around


def _along(axis: str, groups: Mapping[str, int], number: str) -> str:
    """Where a work-group with a number among all of them stands along an axis; x is the fastest."""
    before = prod(groups.get(a, 1) for a in AXES[: AXES.index(axis)])
    behind = any(groups.get(a, 1) > 1 for a in AXES[AXES.index(axis) + 1 :])
    text = number if before == 1 else f"{number} / {before}"
    return f"{text} % {groups[axis]}" if behind else text


# ---------------------------------------------------------------- conditions and variables


def _if(b: Body, stmt: If) -> None:
    k = b.kernel
    cond = k.known.simple(k.known.fixed(stmt.cond))
    if isinstance(cond, Const):
        chosen = stmt.then if cond.value else stmt.orelse
        if chosen is not None:
            statement(b, chosen)
        return
    if dtypes.lanes(cond.dtype) > 1:
        _if_lanes(b, cond, stmt)
        return
    head = f"if ({bare(k.scalar(cond))})"  # before the condition counts as known
    with k.known.knowing(k.known.facts.assuming(cond)), k.writer.braces(head):
        statement(b, stmt.then)
    if stmt.orelse is not None:
        with k.known.knowing(k.known.facts.assuming(cond, False)), k.writer.braces("else"):
            statement(b, stmt.orelse)


def _if_lanes(b: Body, cond: Expr, stmt: If) -> None:
    """Each side for its own lanes, which are in one vector."""
    sides = [(cond, stmt.then)] + ([] if stmt.orelse is None else [(Not(cond), stmt.orelse)])
    for lanes, side in sides:
        with b.kernel.writer.braces(""), b.kernel.where(lanes):
            statement(b, side)


def _let(b: Body, stmt: Let) -> None:
    k, dtype = b.kernel, stmt.var.dtype
    value = k.known.fixed(stmt.value)
    if isinstance(value, (Const, Var)) or dtypes.lanes(dtype) > 1:
        _substituted(b, stmt, value)
        return
    with k.writer.braces(""):
        text = k.scalar(value)
        name = k.variables[stmt.var] = k.writer.names.fresh(stmt.var.name)
        k.writer.line(f"const {k.types.scalar(dtype)} {name} = {bare(text)};")
        with k.known.knowing(k.known.facts.binding(stmt.var, value)):
            statement(b, stmt.body)


def _substituted(b: Body, stmt: Let, value: Expr) -> None:
    """The body with the value in place of the variable; a vector that memory may change is kept in an array."""
    if memories_read(value).isdisjoint(memories_written(stmt.body)):
        statement(b, substitute(stmt.body, {stmt.var: value}))
        return
    base, lanes = dtypes.split_dtype(value.dtype)
    kept, all_lanes = Buffer(stmt.var.name, (lanes,), base, "local"), (Ramp(const(0), const(1), lanes),)
    body: Stmt = substitute(stmt.body, {stmt.var: Load(kept, all_lanes)})
    b.kernel.writer.written |= {kept.name}
    _allocate(b, Allocate(kept, Seq((Store(kept, all_lanes, value), body))))


def _allocate(b: Body, stmt: Allocate) -> None:
    k, buffer, aligned = b.kernel, stmt.buffer, f"__attribute__((aligned({ARRAY_ALIGNMENT})))"
    if buffer.scope == "shared":  # stands at the top of the kernel, one for all of a group's work-items
        k.declare(buffer, "local")
        text = f"__local {k.types.array(buffer.dtype)} {k.memories[buffer.name].pointer}[{buffer.size}]"
        k.writer.first_lines.append(f"    {text} {aligned};")
        statement(b, stmt.body)
        return
    k.declare(buffer, "private")
    with k.writer.braces(""):
        k.writer.line(f"{k.types.array(buffer.dtype)} {k.memories[buffer.name].pointer}[{buffer.size}] {aligned};")
        statement(b, stmt.body)


STATEMENTS: Mapping[type[Stmt], Callable[[Body, Any], None]] = {
    Seq: _sequence, Store: _store, For: _for, If: _if, Let: _let, Allocate: _allocate, Declare: _declare,
    Evaluate: _evaluate,
}  # fmt: skip
