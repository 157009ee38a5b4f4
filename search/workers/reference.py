"""The right results of a user's program.

A small program is interpreted.  A large one runs in float64, nest by nest: sums of
products by NumPy, all else untransformed as scalar code.  Both are first checked by
the interpreter on a part of the program: fewer iterations of the loops around its
last statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from ...backends.data import Array, arguments_of, pack, unpack
from ...backends.devices import discover
from ...backends.kernel import compile_lowered, load_artifact
from ...backends.lower import lower
from ...backends.samples import Arrays, Reference, extents_of, input_buffers, statements
from ...ir import dtypes
from ...ir.caches import cached
from ...ir.expr import Buffer, Const, Var, as_int, const, variables
from ...ir.interpreter.interpret import interpret
from ...ir.node import rebuild, walk
from ...ir.numbers import BITS, from_storage, numbers_of, numpy_dtype, to_storage
from ...ir.stmt import Block, For, PrimFunc, Seq, Stmt, Store, read_buffers, stores, written_buffers
from ...space.workloads import from_func
from ...space.workloads.retype import with_floats
from .contractions import contraction_of

INTERPRETED_STATEMENTS = 2_000_000  # a choice
STEP_STATEMENTS = 500
"""Statements that the interpreter runs at once in the time in which it takes one step of a recurrence."""
CHECKED_STATEMENTS = 3_000_000  # a choice: some 0.2 s
TOLERANCE = 1e-9  # relative, of float64


@cached(2)
def reference_of(func: PrimFunc) -> Reference:
    """Outputs by name from inputs by name, both logical; in float64, or in the program's types for inputs of these."""
    if _effort(func) <= INTERPRETED_STATEMENTS:
        found = from_func(func).reference
    else:
        wide = fast_reference(func)
        check_reference(func, wide)
        found = _in_types_given(func, wide)
    found = _between_layouts(func, found) if func.layouts else found
    types = {b.name: b.dtype for b in func.buffers}
    if BITS.keys().isdisjoint(types.values()):
        return found
    return lambda arrays: found({name: numbers_of(types[name], a) for name, a in arrays.items()})


def _in_types_given(func: PrimFunc, wide: Reference) -> Reference:
    """`wide`, and the program in its own types where all floats are given in these."""
    narrow = [b for b in input_buffers(func) if dtypes.is_float(b.dtype) and b.dtype != "float64"]
    floats = {b.name: numpy_dtype(b.dtype) for b in narrow}
    made: list[Reference] = []

    def reference(arrays: Arrays) -> dict[str, Array]:
        if not floats or any(arrays[name].dtype != dtype for name, dtype in floats.items()):
            return wide(arrays)
        if not made:
            made.append(_as_written(func))
        return made[0](arrays)

    return reference


def _between_layouts(func: PrimFunc, physical: Reference) -> Reference:
    """A reference for logical arrays, made of one for arrays in the layouts that the parameters have."""
    arguments = {argument.name: argument for argument in arguments_of(func)}

    def reference(arrays: Arrays) -> dict[str, Array]:
        packed = {n: pack(replace(arguments[n], dtype=str(a.dtype)), a) for n, a in arrays.items()}
        return {name: unpack(arguments[name], found) for name, found in physical(packed).items()}

    return reference


def _effort(func: PrimFunc) -> int:
    """How long the interpreter takes, in statements run at once: opaque iterators are gone through in steps."""
    extents = extents_of(func)
    steps = 0
    for block in (n for n in walk(func) if isinstance(n, Block)):
        stepped = {v for item in block.iters if item.kind == "opaque" for v in variables(item.binding)}
        steps += prod(extents[v] for v in stepped if v in extents) if stepped else 0
    return statements(func) + STEP_STATEMENTS * steps


def fast_reference(func: PrimFunc) -> Reference:
    """The nests of a program as NumPy computes them, and the others as they were written, compiled."""
    wide = with_floats(func, "float64")
    root = wide.body.body
    nests = root.stmts if isinstance(root, Seq) else (root,)
    found = [contraction_of(nest) for nest in nests]
    if not any(found) or any(isinstance(n, Buffer) and n.data for n in walk(wide)):  # views share memory by name
        return compiled_reference(func)
    steps: list[Callable[[dict[str, Array]], None]] = []
    for is_numpy, group in groupby(zip(found, nests, strict=True), lambda pair: pair[0] is not None):
        pairs = list(group)
        steps += [c.run for c, _ in pairs if c] if is_numpy else [_compiled([nest for _, nest in pairs])]
    buffers = {b.name: b for nest in nests for b in (*read_buffers(nest), *written_buffers(nest))}
    inputs = {b.name for b in input_buffers(wide)}

    def reference(arrays: Arrays) -> dict[str, Array]:
        memory = {name: np.empty(b.shape, b.dtype) for name, b in buffers.items() if name not in inputs}
        memory |= {name: np.ascontiguousarray(arrays[name], buffers[name].dtype) for name in inputs if name in buffers}
        for step in steps:
            step(memory)
        return {b.name: memory[b.name] for b in wide.buffers if b.name not in inputs}

    return reference


def compiled_reference(func: PrimFunc) -> Reference:
    """The program as it was written, but in float64, compiled for one thread of this machine's CPU."""
    return _as_written(with_floats(func, "float64"))


def _as_written(func: PrimFunc) -> Reference:
    run = _run_of(func)
    inputs = {b.name for b in input_buffers(func)}

    def reference(arrays: Arrays) -> dict[str, Array]:
        memory = {name: np.asarray(array) for name, array in arrays.items() if name in inputs}
        run(memory)
        return {b.name: memory[b.name] for b in func.buffers if b.name not in inputs}

    return reference


def _compiled(nests: Sequence[Stmt]) -> Callable[[dict[str, Array]], None]:
    """A callable that runs unscheduled nests on the arrays of their buffers."""
    touched = {b.name: b for nest in nests for b in (*read_buffers(nest), *written_buffers(nest))}
    return _run_of(PrimFunc("nests", tuple(touched.values()), Block("root", (), Seq(tuple(nests)))))


def _run_of(func: PrimFunc) -> Callable[[dict[str, Array]], None]:
    """A callable that runs a function on arrays by buffer name and replaces the arrays that it writes."""
    target = discover("cpu", threads=1)
    kernel = load_artifact(compile_lowered(lower(func, target), target))
    written = {buffer.name for buffer in written_buffers(func.body)}

    def run(memory: dict[str, Array]) -> None:
        bound = kernel.bind()
        for index, buffer in enumerate(func.buffers):
            if buffer.name in memory:
                given = np.ascontiguousarray(memory[buffer.name], numpy_dtype(buffer.dtype))
                bound.write(index, np.asarray(to_storage(buffer.dtype, given)))
        bound.run()
        for index, buffer in enumerate(func.buffers):
            if buffer.name in written:
                found = bound.read(index).reshape(buffer.shape)
                memory[buffer.name] = np.asarray(from_storage(buffer.dtype, found))

    return run


def check_reference(func: PrimFunc, reference: Reference) -> int:
    """Compare `reference` with the interpreter on a part of `func`; how many elements could be compared.

    None can where the statements before the last are themselves too many.
    Raises ArithmeticError where the two differ.
    """
    whole = with_floats(func, "float64")
    part = shrunken(whole, CHECKED_STATEMENTS)
    if part is None:
        return 0
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.integers(1, 4, b.shape).astype(b.dtype) for b in input_buffers(part)}
    expected = reference(inputs)
    found = _interpreted(part, inputs)
    earlier = {} if part is whole else _stored_twice(part, inputs)
    compared = 0
    for name, value in found.items():
        known = value != earlier.get(name, _blank(value.shape, value.dtype))
        compared += int(known.sum())
        if not np.allclose(value[known], expected[name][known], rtol=TOLERANCE, atol=TOLERANCE):
            raise ArithmeticError(f"compiled without any schedule, `{name}` differs from the interpreter")
    return compared


def _interpreted(func: PrimFunc, inputs: dict[str, Array]) -> dict[str, Array]:
    """What the interpreter leaves in the buffers that are no inputs, with blanks where it stores nothing."""
    memory = {b.name: inputs[b.name].copy() if b.name in inputs else _blank(b.shape, b.dtype) for b in func.buffers}
    interpret(func, *memory.values())
    return {name: array for name, array in memory.items() if name not in inputs}


def _stored_twice(func: PrimFunc, inputs: dict[str, Array]) -> dict[str, Array]:
    """What the nests before the last one leave in the buffers to which the last one stores, too.

    Where a shortened last nest leaves that as it is, it may be what the rest of it would have stored to.
    """
    before, last = _split_last(func.body.body)
    again = {b.name for b in written_buffers(last)} & {b.name for nest in before for b in written_buffers(nest)}
    if not again:
        return {}
    without = func.with_body(replace(func.body, body=Seq(before)))
    return {name: array for name, array in _interpreted(without, inputs).items() if name in again}


def shrunken(func: PrimFunc, budget: int) -> PrimFunc | None:
    """`func` with fewer iterations of the last nest, as effort at most `budget`; None where that does not suffice.

    Only loops are shortened whose variable is an index of everything that is stored below them, so that what is stored
    at all is stored as before, and nothing beside them reads: spatial ones, and that of a recurrence where it is the
    outermost, whose first steps need nothing of the later ones.  What an outermost loop keeps in buffers of the
    function is read in it alone, so that there only parameters count.
    """
    root = func.body
    before, last = _split_last(root.body)
    while (count := _effort(func)) > budget:
        loops = [n for n in walk(last) if isinstance(n, For) and isinstance(n.extent, Const) and as_int(n.extent) > 1]
        loop = next((n for n in loops if _can_shorten(n, last, func.buffers if n is loops[0] else None)), None)
        if loop is None:
            return None
        extent = as_int(loop.extent)
        shorter = max(1, min(extent - 1, extent * budget // count))
        last = _with_extent(last, loop.var, shorter)
        func = func.with_body(replace(root, body=Seq((*before, last))))
    return func


def _split_last(body: Stmt) -> tuple[tuple[Stmt, ...], Stmt]:
    return (body.stmts[:-1], body.stmts[-1]) if isinstance(body, Seq) else ((), body)


def _can_shorten(loop: For, nest: Stmt, parameters: Sequence[Buffer] | None) -> bool:
    """Whether a loop of the last nest can be shortened; `parameters` are given for the outermost one."""
    stored = {store.buffer for store in stores(loop.body)}
    if parameters is None and not stored.isdisjoint(read_buffers(_without(nest, loop))):
        return False
    counted = stored if parameters is None else stored.intersection(parameters)
    below = [n for n in walk(loop.body) if isinstance(n, Block)]
    if not below:
        return all(loop.var in store.indices for store in stores(loop.body) if store.buffer in counted)
    inner = {id(n) for block in below for n in walk(block.body) if isinstance(n, Block)}
    kinds = ("spatial",) if parameters is None else ("spatial", "opaque")
    return all(_is_index_in(block, loop.var, kinds, counted) for block in below if id(block) not in inner)


def _is_index_in(block: Block, var: Var, kinds: tuple[str, ...], counted: set[Buffer]) -> bool:
    """Whether `var` is one iterator of the block, of one of `kinds`, stored to `counted` at, and has no other part.

    Alone, or in steps whose order is kept in whatever order they are numbered.
    """
    own = [i for i in block.iters if var in variables(i.binding)]
    if len(own) != 1 or own[0].kind not in kinds or (own[0].binding != var and own[0].kind != "opaque"):
        return False
    return all(own[0].var in n.indices for n in walk(block) if isinstance(n, Store) and n.buffer in counted)


def _without(nest: Stmt, loop: For) -> Stmt:
    def visit(node: Any) -> Any:
        return Seq(()) if node is loop else rebuild(node, visit)

    result: Stmt = visit(nest)
    return result


def _with_extent(stmt: Stmt, var: Var, extent: int) -> Stmt:
    def visit(node: Any) -> Any:
        if isinstance(node, For) and node.var == var:
            return replace(node, extent=const(extent))
        return rebuild(node, visit)

    result: Stmt = visit(stmt)
    return result


def _blank(shape: tuple[int, ...], dtype: str | np.dtype[Any]) -> Array:
    """A value that a program of small integers does not give."""
    kind = np.dtype(dtype)
    value = -7.25e77 if kind.kind == "f" else np.iinfo(kind).min if kind.kind == "i" else np.iinfo(kind).max
    return np.full(shape, value, kind)
