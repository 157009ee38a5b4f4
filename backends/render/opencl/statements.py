"""Statements: for each type of them the function that writes its lines.

A loop that is bound to ``blockIdx.*``, ``threadIdx.*`` or ``subgroup`` becomes a group or local id, every other one
stays, but for the unrolled one of one iteration around several statements that are a kernel.  Buffers of scope
``local`` are private arrays, which live in registers once all loops over them are written out; those of scope
``shared`` are local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ....ir import dtypes
from ....ir.arith.intervals import Facts
from ....ir.expr import Binary, Call, Const, Expr, Extent, Load, Shuffle, Var, const
from ....ir.extents import as_extent
from ....ir.functions import BARRIERS, SIGNAL_FENCE, SUBGROUP_CALLS
from ....ir.passes.flat import product
from ....ir.stmt import Allocate, Declare, Evaluate, For, If, Let, Seq, Stmt, Store
from ...errors import CodegenError
from ...launch import OFFSETS
from ...legal.lanes import position
from ...legal.unrolling import PRAGMA_UNROLL
from ...legal.work_items import AXES, GUARDED, Work, is_serial, place_of
from .kernel import Kernel, NeedsLong
from .masks import first, read_in_place, store_masked
from .memory import ARRAY_ALIGNMENT, write, write_vector
from .types import bare

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

    `first_item` is the condition by which one item of a subgroup writes what all of them share.  Of what each call
    decides, `sizes` are the names of the kernel's arguments by those of the sizes; conditions `when` hold.
    """

    kernel: Kernel
    work: Work
    group: str = ""
    first_item: str = ""
    sizes: Mapping[str, str] = field(default_factory=dict)
    when: tuple[Expr, ...] = ()


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
    elif isinstance(value, Call) and value.name == SIGNAL_FENCE:
        k.writer.forget_loads()
        k.writer.line(f"{k.helpers.load_again()}();")
    else:
        k.writer.line(f"(void){k.scalar(value)};")


# ---------------------------------------------------------------- stores


def _store(b: Body, stmt: Store) -> None:
    k, value = b.kernel, stmt.value
    if isinstance(value, Binary) and isinstance(value.b, Call) and value.b.name in _OPERATIONS:
        _reduce(b, stmt, value, value.b)
    elif dtypes.lanes(value.dtype) == 1:
        write(k, stmt.buffer, position(stmt.buffer, stmt.indices), k.scalar(value))
    else:
        text = k.vector(value)
        write_vector(k, stmt.buffer, first(stmt), dtypes.lanes(value.dtype), text)


def _reduce(b: Body, stmt: Store, value: Binary, reduction: Call) -> None:
    """What the items of a subgroup do together; memory that they share is written by the first."""
    k, part = b.kernel, reduction.args[0]
    if part.dtype == dtypes.INDEX and k.types.index != "long":
        raise NeedsLong  # the sum may, where no part does
    total, kind = Var(k.writer.names.fresh("all"), part.dtype), k.types.scalar(part.dtype)
    k.variables[total] = total.name
    function = k.helpers.subgroup(_OPERATIONS[reduction.name], kind, dtypes.is_float(part.dtype))
    k.writer.line(f"const {kind} {total.name} = {function}({bare(k.scalar(part))});")
    update = replace(stmt, value=replace(value, b=total))
    if k.space(stmt.buffer) == "private":
        _store(b, update)
    else:
        with k.writer.braces(b.first_item):
            _store(b, update)


# ---------------------------------------------------------------- loops


def _for(b: Body, stmt: For) -> None:
    if stmt.kind == "thread_binding" and not is_serial(stmt):
        _bound(b, stmt)
    elif stmt.kind == "unrolled" and stmt.extent == const(1):
        statement(b, stmt.body)
    else:
        _loop(b, stmt)


def _loop(b: Body, stmt: For) -> None:
    k, extent = b.kernel, stmt.extent
    limit = k.scalar(extent)
    if k.writer.changes(extent):  # the extent counts as it is when the loop begins
        (limit,) = k.writer.before([limit], [k.types.scalar(extent.dtype)])
    name = k.variables[stmt.var] = k.writer.names.fresh(stmt.var.name)
    facts = _range(k, stmt.var, extent)
    if stmt.kind == "unrolled" or (PRAGMA_UNROLL, 1) in stmt.annotations:
        k.writer.line("#pragma unroll")
    with k.knowing(facts), k.writer.braces(f"for ({k.types.index} {name} = 0; {name} < {limit}; ++{name})"):
        statement(b, stmt.body)


def _range(k: Kernel, var: Var, extent: Expr) -> Facts:
    facts = k.facts.looping(var, extent)
    return facts if isinstance(extent, Const) else facts.assuming(var < extent)


def _bound(b: Body, stmt: For) -> None:
    k, (where, axis) = b.kernel, place_of(stmt)
    name = k.variables[stmt.var] = k.writer.names.fresh(stmt.var.name)
    function = "get_group_id" if where == "blockIdx" else "get_local_id"
    value = f"({k.types.index}){function}({AXES.index(axis)})"
    if where == "blockIdx" and b.group:
        value = _along(k, axis, b.work.groups, b.group)
    around = b.first_item
    if stmt.reduces:
        b.first_item = f"if ({name} == 0)"
    with k.knowing(_range(k, stmt.var, stmt.extent)), k.writer.braces(""):
        k.writer.line(f"const {k.types.index} {name} = {value};")
        if (GUARDED, 1) in stmt.annotations:
            with k.writer.braces(f"if ({name} < {k.extent(as_extent(stmt.extent))})"):
                statement(b, stmt.body)
        else:
            statement(b, stmt.body)
    b.first_item = around


def _along(k: Kernel, axis: str, groups: Mapping[str, Extent], number: str) -> str:
    """The text of the position along `axis` of the work-group `number`, counted over all groups with x innermost."""
    before = product([groups.get(a, 1) for a in AXES[: AXES.index(axis)]])
    behind = any(groups.get(a, 1) != 1 for a in AXES[AXES.index(axis) + 1 :])
    text = number if before == 1 else f"{number} / {k.extent(before)}"
    return f"{text} % {k.extent(groups[axis])}" if behind else text


# ---------------------------------------------------------------- conditions and variables


def _if(b: Body, stmt: If) -> None:
    k, cond, then = b.kernel, stmt.cond, stmt.then
    if cond in b.when:
        with k.knowing(k.facts.assuming(cond)):
            statement(b, then)
        return
    if dtypes.lanes(cond.dtype) > 1:
        if not isinstance(then, Store) or stmt.orelse is not None:
            raise CodegenError(f"a condition of lanes is one of a single store before code generation: {cond!r}")
        with k.writer.braces(""):
            store_masked(k, cond, then)
        return
    if isinstance(then, Store) and isinstance(then.value, Shuffle) and isinstance(then.value.vectors[0], Var):
        test = bare(k.scalar(cond))  # a lane that is held is stored in one line
        write(k, then.buffer, then.indices[0], k.scalar(then.value), f"if ({test}) ")
        return
    head = f"if ({bare(k.scalar(cond))})"  # before the condition counts as known
    with k.knowing(k.facts.assuming(cond)), k.writer.braces(head):
        statement(b, then)
    if stmt.orelse is not None:
        with k.knowing(k.facts.assuming(cond, False)), k.writer.braces("else"):
            statement(b, stmt.orelse)


def _let(b: Body, stmt: Let) -> None:
    """A constant; it needs no block of its own where nothing but stores are in its body."""
    if _only_stores(stmt.body):
        _bind(b, stmt)
    else:
        with b.kernel.writer.braces(""):
            _bind(b, stmt)


def _only_stores(stmt: Stmt) -> bool:
    while isinstance(stmt, Let):
        stmt = stmt.body
    return all(isinstance(item, Store) for item in (stmt.stmts if isinstance(stmt, Seq) else (stmt,)))


def _bind(b: Body, stmt: Let) -> None:
    k, var = b.kernel, stmt.var
    of_size = b.sizes.get(stmt.value.buffer.name) if isinstance(stmt.value, Load) else None
    text, is_scalar = of_size or read_in_place(k, stmt.value) or k.vector(stmt.value), dtypes.lanes(var.dtype) == 1
    name = k.variables[var] = k.writer.names.fresh(var.name)
    kind = k.types.scalar(var.dtype) if is_scalar else k.types.vector(var.dtype, dtypes.lanes(var.dtype))
    k.writer.line(f"const {kind} {name} = {bare(text)};")
    with k.knowing(k.facts.binding(var, stmt.value) if is_scalar else k.facts):
        statement(b, stmt.body)


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
