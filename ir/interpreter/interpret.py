"""The definition of the language: what a program computes, and what it must not do.

The interpreter follows the serial meaning of a program on NumPy arrays, keeps a
state for every element (`memory`), and raises `InterpreterError` on

1. an index outside of its dimension, negative ones included,
2. reading an element that was never written,
3. reading or writing padding that holds nothing,
4. a condition, index, extent or assumption that depends on an undef value,
5. an assumption that does not hold,
6. an iterator that leaves its range,
7. an integer division by zero,
8. arguments that do not fit the parameters, or overlap where one is written,
9. a view that is longer than the memory that it names,
10. an assertion that does not hold, and
11. a call of a function, instruction or library that is not known here, unless a function is given for it.

The init of a block runs before each instance whose reduce iterators are all 0.
Loops of every kind run in order.  An array of bfloat16 or float8 is passed as one of
its bits, uint16 or uint8, one of int4 or uint4 as int8 or uint8; or each as one of the
type that the package ml_dtypes gives to NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import dtypes
from ..expr import Buffer, Const, Var
from ..layout.layout import Layout
from ..numbers import boundary_dtype, held_shape, is_passed_as, masked, numpy_dtype
from ..ranges import WrongSizes, fixed, values_of
from ..script.programs import Program, func_of
from ..stmt import PrimFunc, written_buffers
from .hazards import views
from .memory import (
    DEFINED,
    UNDEF,
    UNINITIALISED,
    InterpreterError,
    Memory,
    Storage,
)
from .nest import Value, root
from .opaque import Given
from .pads import pad_contents
from .run import Machine

__all__ = ["InterpreterError", "interpret"]


def interpret(func: Program, *arrays: Any, strict_state: bool = True, calls: Given | None = None) -> None:
    """Run `func` on its parameters, in order; outputs are written in place.

    Arrays have the parameters' physical shapes and dtypes, scalars are numbers.
    Outputs (parameters that are stored to) hold nothing on entry, and so does every
    allocation.  With ``strict_state=False``, which suits lowered programs, outputs
    hold what the caller put there and allocations are undef.  Elements that end undef
    hold an arbitrary value.  `calls` are functions, by name, for calls of what is not known here: each takes the arrays
    of the regions that a call reads and of those that it writes, in which it leaves its results.
    """
    if not isinstance(func, PrimFunc):
        func = func_of(func, "interpret")
    execute(func, *arrays, strict_state=strict_state, calls=calls)


def execute(func: PrimFunc, *arrays: Any, strict_state: bool = True, calls: Given | None = None) -> dict[str, Memory]:
    """`interpret`, with the memory of each buffer parameter afterwards, which tells the state of its elements."""
    if len(arrays) != len(func.params):
        raise InterpreterError(f"`{func.name}` takes {len(func.params)} arguments, but got {len(arrays)}")
    if func.stated:
        func = _of_fixed_shapes(func, arrays)
    written = {buffer.memory for buffer in written_buffers(func)}  # through whatever view
    memory: dict[str, Memory] = {}
    nest, aliases = root(), views(func.body)
    copies: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for param, given in zip(func.params, arrays, strict=True):
        if isinstance(param, Var):
            nest.values[param] = _scalar(param, given)
            continue
        array = _checked(param, given, param.name in written)
        flat = np.ascontiguousarray(array)
        if param.name in written and not np.shares_memory(flat, array):
            copies.append((array, flat))
        empty = strict_state and param.name in written
        state = UNINITIALISED if empty else DEFINED
        memory[param.name] = Memory(param, Storage((param, *aliases.get(param.name, ())), flat, state))
    _refuse_overlap(func, arrays, written)
    for name, layout in func.layouts:
        _mark_padding(func, name, layout, memory)
    with np.errstate(all="ignore"):
        Machine(memory, func.body, UNINITIALISED if strict_state else UNDEF, calls).run(nest, func.body)
    for array, flat in copies:
        array[...] = flat
    return memory


def _of_fixed_shapes(func: PrimFunc, arrays: Sequence[Any]) -> PrimFunc:
    """The function with the extents that the arrays have and the numbers that the scalars are."""
    pairs = list(zip(func.params, arrays, strict=True))
    scalars = {p.name: int(_scalar(p, a)[0]) for p, a in pairs if isinstance(p, Var) and dtypes.is_int(p.dtype)}
    shapes = {p.name: np.shape(a)[: p.rank] for p, a in pairs if isinstance(p, Buffer)}
    try:
        return fixed(func, values_of(func, shapes, scalars))
    except WrongSizes as error:
        raise InterpreterError(str(error)) from None


def _scalar(param: Var, given: Any) -> Value:
    if np.ndim(given) != 0 or isinstance(given, str):
        raise InterpreterError(f"`{param.name}` is a scalar of type {param.dtype}, but got {type(given).__name__}")
    if dtypes.is_int(param.dtype):
        low, high = dtypes.int_range(param.dtype)
        if given != int(given) or not low <= int(given) <= high:
            raise InterpreterError(f"`{param.name}` = {given} does not fit the type {param.dtype}")
    if param.dtype == dtypes.INDEX:
        return int(given), None
    return numpy_dtype(param.dtype).type(given), None


def _checked(param: Buffer, given: Any, written: bool) -> NDArray[Any]:
    if isinstance(given, np.generic) and not written:  # what NumPy makes of arrays without dimensions
        given = np.asarray(given)
    if not isinstance(given, np.ndarray):
        raise InterpreterError(f"`{param.name}` must be a NumPy array, but got {type(given).__name__}")
    if told := masked(param.name, given):
        raise InterpreterError(told)
    shape = (*param.shape, *held_shape(param.dtype))
    if given.shape != shape:
        raise InterpreterError(f"`{param.name}` has shape {shape}, but the array has {given.shape}")
    wanted = boundary_dtype(param.dtype)
    array: NDArray[Any] = given.view(wanted) if is_passed_as(param.dtype, given.dtype) else given
    if array.dtype != wanted:
        same = wanted == dtypes.element(param.dtype)
        expected = param.dtype if same else f"{param.dtype}, passed as {wanted}"
        raise InterpreterError(f"`{param.name}` has dtype {expected}, but the array has {given.dtype}")
    if written and not array.flags.writeable:
        raise InterpreterError(f"`{param.name}` is an output, but the array is read-only")
    return array


def _refuse_overlap(func: PrimFunc, arrays: tuple[Any, ...], written: set[str]) -> None:
    pairs = [(p.name, a) for p, a in zip(func.params, arrays, strict=True) if isinstance(p, Buffer)]
    for number, (name, array) in enumerate(pairs):
        for other, second in pairs[number + 1 :]:
            if (name in written or other in written) and np.may_share_memory(array, second):
                raise InterpreterError(f"the arrays `{name}` and `{other}` overlap, and one of them is written")


def _mark_padding(func: PrimFunc, name: str, layout: Layout, memory: dict[str, Memory]) -> None:
    """Elements of a parameter without a logical one: forbidden, undef, or of the promised value."""
    target = memory.get(name)
    if target is None:
        raise InterpreterError(f"a layout names `{name}`, which is no buffer parameter of `{func.name}`")
    buffer = next(b for b in func.buffers if b.name == name)
    padding = np.ones(target.count, np.bool_)
    padding[layout.positions] = False
    pad_value = layout.pad(buffer)
    if isinstance(pad_value.single, Const):
        return
    _, states = pad_contents(pad_value, buffer, target.data, padding)
    kept = states != DEFINED
    target.state[np.flatnonzero(padding)[kept]] = states[kept].reshape(-1, *(1,) * (target.state.ndim - 1))
