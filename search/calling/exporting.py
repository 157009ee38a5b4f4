"""A kernel as a library: its function, and those that pack and unpack what it does not take as the caller has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...backends.export.library import Function, Library, c_name, single
from ...backends.lower import lower
from .packing import pack_program, unpack_program

if TYPE_CHECKING:
    from ...backends.data import Argument, Array
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target


def library_of(
    func: PrimFunc,
    target: Target,
    name: str,
    signature: Sequence[Argument],
    interface: Mapping[str, str],
    packed: Mapping[str, Array],
    strict: bool = False,
    about: str = "",
) -> Library:
    """The library `name` of the scheduled program `func`; it holds the constants that are `packed` already.

    Arguments that `interface` calls constant are packed by ``NAME_pack_ARGUMENT``; so are free ones, whose results
    ``NAME_unpack_ARGUMENT`` brings back.
    """
    name = c_name(name)
    held = {argument: f"{argument}" for argument in packed}
    summary = f"Compute {', '.join(f'`{a.name}`' for a in signature if a.is_output)}"
    main = single(name, summary, signature, lower(func, target, strict), held)
    moved = [a for a in main.parameters if not a.is_scalar and not a.is_in_place]
    packers = {a.name: f"{name}_pack_{c_name(a.name)}" for a in moved if not a.is_output}
    functions = [replace(main, packers=packers)]
    for argument in moved:
        functions.append(_mover(argument, name, interface[argument.name], target))
    return Library(
        name,
        target,
        tuple(functions),
        {held[argument]: array.tobytes() for argument, array in packed.items()},
        about or func.name,
        {"stridesmith": func.script(), "tvm": func.script(dialect="tvm")},
    )


def _mover(argument: Argument, library: str, who: str, target: Target) -> Function:
    """The function that brings an input into the kernel's layout, or an output out of it."""
    logical = replace(argument, name="logical", physical_shape=argument.logical_shape, index_map="", pad_value="")
    physical = replace(argument, name="packed")
    if argument.is_output:
        program = lower(unpack_program(argument, target), target)
        pair = [replace(physical, is_output=False), replace(logical, is_output=True)]
        return single(f"{library}_unpack_{c_name(argument.name)}", f"Bring `{argument.name}` into its logical layout", pair, program)
    program = lower(pack_program(argument, target), target)
    once = ", once for all calls that use it" if who == "constant" else ""
    pair = [replace(logical, is_output=False), replace(physical, is_output=True)]
    summary = f"Bring `{argument.name}` into the layout that {library} takes{once}"
    return single(f"{library}_pack_{c_name(argument.name)}", summary, pair, program)
