"""A kernel as a library: its function, and those that pack and unpack what it does not take as the caller has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...backends.artifact import Argument
from ...backends.export.library import Function, Library, single
from ...backends.export.names import function_name, parameter_names
from ...backends.lower import lower
from ...ir.layout.layout import Layout
from ...ir.size_ranges import ranges_of
from ...space.interface import PACKED_AHEAD
from .packing import pack_program, unpack_program

if TYPE_CHECKING:
    from ...backends.data import Array
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target


class Arguments(NamedTuple):
    """The arguments of a kernel, who chooses the layout of each, and constants that are packed already."""

    signature: Sequence[Argument]
    interface: Mapping[str, str]
    packed: Mapping[str, Array]


def library_of(
    func: PrimFunc, target: Target, name: str, arguments: Arguments, *, strict: bool = False, about: str = ""
) -> Library:
    """The library `name` of the scheduled program `func`; it holds the constants that are packed already.

    Arguments that the interface calls constant are packed by ``NAME_pack_ARGUMENT``; so are free ones, whose results
    ``NAME_unpack_ARGUMENT`` brings back.  These functions are there whether this schedule has moved an argument or not,
    and copy what it has left in its place: what a caller links does not depend on what a search has found.  Extents
    that each call decides are parameters behind the others; their arrays lie as the caller has them.
    """
    name = function_name(name)
    results = ", ".join(f"`{a.name}`" for a in arguments.signature if a.is_output)
    held = {argument: argument for argument in arguments.packed}
    counted = [Argument(size.name, Layout.plain(()), size.dtype, is_scalar=True) for size in func.sizes]
    signature = [*arguments.signature, *counted]
    main = single(name, f"Compute {results}", signature, lower(func, target, strict), held)
    if func.stated:
        sizes = {size.name: numbers for size, numbers in ranges_of(func).items()}
        open_ones = {b.name: b.extents for b in func.buffers if not b.is_fixed}
        main = replace(main, sizes=sizes, counted=tuple(size.name for size in func.sizes), extents=open_ones)
    moved = [
        a for a in main.parameters
        if not a.is_scalar and a.logical_shape and a.name not in main.extents
        and (arguments.interface[a.name] != "fixed" or not a.layout.is_in_place)
    ]  # fmt: skip
    constant = [a.name for a in moved if arguments.interface[a.name] in PACKED_AHEAD and not a.layout.is_in_place]
    called = parameter_names(main.parameters)
    packers = {argument: f"{name}_pack_{called[argument]}" for argument in constant}
    return Library(
        name,
        target,
        (replace(main, packers=packers), *(_mover(a, name, called[a.name], target) for a in moved)),
        {argument: array.tobytes() for argument, array in arguments.packed.items()},
        about or func.name,
        {"stridesmith": func.script(), "tvm": func.script(dialect="tvm")},
    )


def _mover(argument: Argument, library: str, called: str, target: Target) -> Function:
    """The function that brings an input into the kernel's layout, or an output out of it; C has it as `called`."""
    logical = replace(argument, name="logical", layout=Layout.plain(argument.logical_shape))
    physical = replace(logical if argument.layout.is_in_place else argument, name="packed")
    if argument.is_output:
        program = lower(unpack_program(argument, target), target)
        pair = (replace(physical, is_output=False), logical)
        name, summary = "unpack", f"Bring `{argument.name}` of {library} into its logical layout"
    else:
        program = lower(pack_program(argument, target), target)
        pair = (logical, replace(physical, is_output=True))
        name, summary = "pack", f"Bring `{argument.name}` into the layout that {library} takes"
    return single(f"{library}_{name}_{called}", summary, pair, program)
