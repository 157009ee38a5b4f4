"""Programs that bring an argument into a kernel's layout, and back: for callers that have no Python.

::

    pack_program      physical[index_map(i)] = logical[i], and every other element of `physical` is the pad value
    unpack_program    logical[i] = physical[index_map(i)]

They are schedules like any other, so that they are proven and compiled as kernels are.  In this process NumPy does the
same by one scatter (`backends.data`), for any layout and without a compiler.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from ...space.schedule import Schedule, ScheduleError
from ...space.tree import leaf_blocks

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...ir.target import Target


def pack_program(argument: Argument, target: Target) -> PrimFunc:
    """A program that copies the logical array of an argument to the memory that the kernel takes.

    Padding that may hold anything, or that is never touched, is zero.
    """
    layout, name = argument.layout, argument.name
    schedule = Schedule(_copy(argument, f"pack_{name}", f"{name}_logical", name))
    if layout.is_in_place:
        return _shared(schedule, target)
    pad = (layout.pad_value if layout.promises else 0) if layout.pads else None
    layout = replace(layout, pad_value=pad)
    try:
        schedule.transform_layout("copy", ("write", 0), layout, rewrite_loops=True)
    except ScheduleError:  # a pad value that reads other elements is written after them
        schedule.transform_layout("copy", ("write", 0), layout)
    return _shared(schedule, target)


def unpack_program(argument: Argument, target: Target) -> PrimFunc:
    """A program that copies the memory that a kernel has written to the logical array."""
    name = argument.name
    schedule = Schedule(_copy(argument, f"unpack_{name}", name, f"{name}_logical"))
    if not argument.layout.is_in_place:
        schedule.transform_layout("copy", ("read", 0), replace(argument.layout, pad_value=None))
    return _shared(schedule, target)


def _copy(argument: Argument, name: str, source: str, result: str) -> PrimFunc:
    """``result[i] = source[i]`` over the logical shape."""
    shape = argument.logical_shape
    axes = range(len(shape))
    kind = f'T.Buffer(({", ".join(map(str, shape))},), "{argument.dtype}")'
    loops, places = (", ".join(f"{letter}{axis}" for axis in axes) for letter in "iv")
    func = parse(
        f"@T.prim_func\ndef {name}({source}: {kind}, {result}: {kind}):\n"
        f"    for {loops} in T.grid({', '.join(map(str, shape))}):\n"
        f'        with T.block("copy"):\n'
        f'            {places} = T.axis.remap("{"S" * len(shape)}", [{loops}])\n'
        f"            {result}[{places}] = {source}[{places}]\n"
    )
    assert isinstance(func, PrimFunc)
    return func


def _shared(schedule: Schedule, target: Target) -> PrimFunc:
    """The rows of each nest, its loops but the innermost, by all threads or work-groups."""
    for block in leaf_blocks(schedule.func.body):
        loops = schedule.get_loops(block.name)
        rows = schedule.fuse(*loops[:-1]) if len(loops) > 2 else loops[0]
        if target.kind == "cpu":
            schedule.parallel(rows)
        else:
            schedule.bind(rows, "blockIdx.x")
    return schedule.func
