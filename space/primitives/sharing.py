"""Functions of one module that share buffers: layouts that change together, and packing split off.

Functions of a module run in order and share a buffer where their parameters have one name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir.affine.sets import Unknown, box
from ...ir.arith.intervals import negate
from ...ir.expr import Binary, Buffer, Load, Var, binary, free_variables
from ...ir.passes.layouts import change_layout, is_written
from ...ir.passes.promises import constants_left, not_left
from ...ir.passes.relayout import Change, make_change
from ...ir.stmt import (
    Assume,
    Block,
    Module,
    PrimFunc,
    Seq,
    Stmt,
    fresh,
    loops,
    names,
    read_buffers,
    seq,
    written_buffers,
)
from ..errors import ScheduleError
from ..primitive import ModuleResult, module_primitive, shared
from ..tree import rename_duplicates
from .buffers import buffer_of
from .cache import is_name
from .layout import set_axis_separator, transform_layout


def sharing(module: Module, buffer: Buffer) -> tuple[PrimFunc, ...]:
    """The functions with a parameter of this name.  Raises ScheduleError if they declare it differently."""
    found = tuple(f for f in module.functions if any(b.name == buffer.name for b in f.buffers))
    for func in found:
        if buffer not in func.params:
            own = next(b for b in func.buffers if b.name == buffer.name)
            raise ScheduleError(
                "(9) `{func}` declares the shared buffer `{buffer}` as {own!r} in {scope}",
                func=func.name, buffer=buffer.name, own=own, scope=own.scope,
            )  # fmt: skip
    return found


@shared("transform_layout")
def transform_layout_everywhere(
    module: Module,
    current: str,
    block: str,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    physical_shape: Sequence[int] | None = None,
    multiples: Sequence[int] | None = None,
    rewrite_loops: bool = False,
) -> ModuleResult:
    """`transform_layout` of a parameter changes every function that has it, conditions 9 and 10 of `change_shared`."""
    func = module[current]
    old = buffer_of(func, block, buffer)
    if old not in func.params or len(sharing(module, old)) == 1:
        func, result = transform_layout(
            func, block, buffer, index_map, pad_value, physical_shape=physical_shape, multiples=multiples,
            rewrite_loops=rewrite_loops,
        )  # fmt: skip
        return module.with_function(func), current, result
    if rewrite_loops:
        raise ScheduleError("(8) several functions share `{buffer}`; use sequential_buffer_access", buffer=old.name)
    return change_shared(module, make_change(old, index_map, pad_value, physical_shape, multiples)), current, None


@shared("set_axis_separator")
def set_axis_separator_everywhere(
    module: Module, current: str, block: str, buffer: Any, axis_separators: Sequence[int]
) -> ModuleResult:
    """`set_axis_separator` of a parameter changes every function that has it."""
    old = buffer_of(module[current], block, buffer)
    functions = sharing(module, old) if old in module[current].params else (module[current],)
    for func in functions:
        module = module.with_function(set_axis_separator(func, func.body.name, old.name, axis_separators)[0])
    return module, current, None


def change_shared(module: Module, change: Change) -> Module:
    """Every function that has the buffer as parameter with the new layout.

    Writers store the padding, readers assume it: of what another function wrote, (10) the
    last writer before the reader must be proven to leave the pad value there.  The padding
    of an input of the whole module is the caller's.  Raises ScheduleError, and LayoutError
    where one function refuses.
    """
    shared = {f.name for f in sharing(module, change.old)}
    changed = {f.name: change_layout(f, change) for f in module.functions if f.name in shared}
    if change.pads and not change.pad_value.is_none:
        _prove_assumptions([changed[f.name] for f in module.functions if f.name in shared], change)
    return Module(tuple(changed.get(f.name, f) for f in module.functions))


def _prove_assumptions(functions: list[PrimFunc], change: Change) -> None:
    writer: PrimFunc | None = None
    late = next((f for f in functions if is_written(f, change.new)), None)
    for func in functions:
        if is_written(func, change.new):
            writer = func
        elif writer is not None:
            _prove(writer, func, change)
        elif late is not None:
            raise ScheduleError(
                "(10) `{reader}` reads the padding of `{buffer}` before `{writer}` writes it",
                reader=func.name, buffer=change.old.name, writer=late.name,
            )  # fmt: skip


def _prove(writer: PrimFunc, reader: PrimFunc, change: Change) -> None:
    axes = change.pad_value.variables
    whole = box(axes, change.new.shape)
    try:
        for cond, value in change.pad_value.at(axes):
            if value is not None:
                missing = not_left(writer, change.new, axes, whole.where(change.padding(axes)).where(cond), value)
                point = missing.first()
                if point is not None:
                    raise ScheduleError(
                        "(10) `{reader}` would assume the padding of `{buffer}`, but `{writer}` is not proven to "
                        "leave its pad value at {point}",
                        reader=reader.name, buffer=change.old.name, writer=writer.name, point=point,
                    )  # fmt: skip
    except Unknown as error:
        raise ScheduleError(
            "(10) it is not known what `{writer}` leaves in `{buffer}`: {error}",
            writer=writer.name, buffer=change.old.name, error=str(error),
        ) from None  # fmt: skip


# ---------------------------------------------------------------- packing of constants


@module_primitive
def split_packing(module: Module, current: str, buffer: str, func_name: str | None = None) -> ModuleResult:
    """``def f(w, y): B = g(w); S(B, y)`` -> ``def pack(w, B): B = g(w)``, then ``def f(B, y): assume(...); S(B, y)``.

    The statements that fill the allocated `buffer` become a function of their own, which stands
    before the one that is worked on and is called `func_name` (``pack_<buffer>``), so that a
    constant is packed once.  The buffer becomes a parameter, in the place of the inputs that
    only packing needs; what packing is proven to leave in it, constants and undef, is assumed
    there, and nothing else.  Conditions: (1) the root block allocates the buffer; (2) it is
    filled before it is read; (3) what fills it touches nothing else but inputs of the function;
    (4) `func_name` is a name.
    Returns the name of the packing function.
    Source: RFC 0077, "Points of Communication".
    """
    func = module[current]
    if func_name is not None and not is_name(func_name):
        raise ScheduleError("(4) {name!r} is no name of a function", name=func_name)
    packed = next((b for b in func.body.allocs if b.name == buffer), None)
    if packed is None:
        known = ", ".join(b.name for b in func.body.allocs) or "none"
        raise ScheduleError("(1) the root block allocates no `{buffer}`; it allocates {known}", buffer=buffer,
                            known=known)  # fmt: skip
    items = func.body.body.stmts if isinstance(func.body.body, Seq) else (func.body.body,)
    filling = [s for s in items if packed in written_buffers(s)]
    rest = [s for s in items if s not in filling]
    _check_packing(func, packed, items, filling)
    name = fresh(func_name or f"pack_{buffer}", {f.name for f in module.functions})
    sources = [p for p in func.params if isinstance(p, Buffer) and any(p in read_buffers(s) for s in filling)]
    used = {v for s in filling for v in free_variables(s)}
    inputs = [p for p in func.params if p in sources or p in used]
    packing = PrimFunc(name, (*inputs, packed), Block("root", (), seq(filling)))
    packing = replace(packing, layouts=tuple(k for k in func.layouts if k[0] in {b.name for b in sources}))
    left = _without_packing(func, packed, sources, rest)
    left = _with_proven(packing, left, packed)
    functions = [g for f in module.functions for g in ((packing, left) if f is func else (f,))]
    return Module(tuple(map(rename_duplicates, functions))), current, name


@module_primitive
def work_on(module: Module, current: str, func_name: str) -> ModuleResult:  # noqa: ARG001  every rewrite of modules takes it
    """Apply what follows to the function `func_name`.  Condition: (1) the module has it."""
    known = [f.name for f in module.functions]
    if func_name not in known:
        raise ScheduleError("(1) there is no function `{name}`; there are {known}", name=func_name,
                            known=", ".join(known))  # fmt: skip
    return module, func_name, None


def _check_packing(func: PrimFunc, packed: Buffer, items: tuple[Stmt, ...], filling: list[Stmt]) -> None:
    last = max((k for k, s in enumerate(items) if s in filling), default=-1)
    if last < 0:
        raise ScheduleError("(2) nothing writes `{buffer}`", buffer=packed.name)
    for item in items[: last + 1]:
        if item not in filling and packed in read_buffers(item):
            raise ScheduleError("(2) `{buffer}` is read before it is filled", buffer=packed.name)
    for item in filling:
        for other in (*written_buffers(item), *read_buffers(item)):
            if other == packed:
                continue
            if other in written_buffers(item) or other not in func.params or other in written_buffers(func.body):
                raise ScheduleError(
                    "(3) what fills `{buffer}` touches `{other}`, which is no input of the function",
                    buffer=packed.name, other=other.name,
                )  # fmt: skip


def _without_packing(func: PrimFunc, packed: Buffer, sources: list[Buffer], rest: list[Stmt]) -> PrimFunc:
    """The function that takes the packed buffer in the place of what only packing needs."""
    used = {b for s in rest for b in (*read_buffers(s), *written_buffers(s))}
    gone = [b for b in sources if b not in used]
    params: list[Any] = []
    for param in func.params:
        if gone and param == gone[0]:
            params.append(packed)
        elif param not in gone:
            params.append(param)
    if not gone:
        params.insert(max((func.params.index(b) for b in sources), default=-1) + 1, packed)
    body = replace(func.body, allocs=tuple(b for b in func.body.allocs if b != packed), body=seq(rest))
    layouts = tuple(k for k in func.layouts if k[0] not in {b.name for b in gone})
    return replace(func, params=tuple(params), body=body, layouts=layouts)


def _with_proven(packing: PrimFunc, func: PrimFunc, packed: Buffer) -> PrimFunc:
    """`func` beginning with what `packing` is proven to leave in the buffer: constants, and undef."""
    taken = names(func)
    axes = [Var(fresh(f"{packed.name}_ax{d}", taken)) for d in range(packed.rank)]
    whole = box(axes, packed.shape)
    try:
        known = constants_left(packing, packed, axes)
    except Unknown:
        return func
    nests: list[Stmt] = []
    for held, value in known:
        atom = Binary("==", Load(packed, tuple(axes)), value)
        body = Assume(binary("or", negate(held.condition(whole)), atom))
        nests.append(loops(list(zip(axes, packed.shape, strict=True)), body))
    return func.with_body(replace(func.body, body=seq([*nests, func.body.body])))
