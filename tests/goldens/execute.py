"""What a program computes on logical data, under poison in everything that holds none.

Arguments are integers, exact in any order, laid out as the function's layouts say.  Padding
holds its pad value; where there is none it is poisoned, once with NaN (or a pattern of
bits) and once with a large finite number, and the logical results must agree.  The
functions of a module run in order and share buffers by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import arguments_of, pack, padding, unpack
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import Module, PrimFunc

Array = NDArray[Any]
POISONS = (np.nan, 1e6)


def same_results(first: PrimFunc | Module, second: PrimFunc | Module) -> None:
    """Raises AssertionError unless both compute the same from the same logical inputs."""
    for poison in POISONS:
        one, other = logical_results(first, poison), logical_results(second, poison)
        assert one.keys() <= other.keys(), "a program that is split may write more, but never less"
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array, err_msg=f"`{name}` differs:\n{second.script()}")


def logical_results(program: PrimFunc | Module, poison: float = np.nan) -> dict[str, Array]:
    """The logical arrays that the program writes, by parameter."""
    functions = program.functions if isinstance(program, Module) else (program,)
    memory: dict[str, Array] = {}
    results: dict[str, Array] = {}
    for func in functions:
        arguments = arguments_of(func)
        for argument in arguments:
            if argument.name not in memory:
                memory[argument.name] = _physical(argument, poison)
        kept = {a.name: memory[a.name].copy() for a in arguments}
        interpret(func, *(memory[a.name] for a in arguments))
        _check_arguments(arguments, memory, kept)
        results.update({a.name: unpack(a, memory[a.name]).copy() for a in arguments if a.is_output})
    return results


def _physical(argument: Argument, poison: float) -> Array:
    dtype = np.dtype(argument.dtype)
    filled = np.empty(argument.physical_shape, dtype)
    filled[...] = poison if dtype.kind == "f" else (0x5B if np.isnan(poison) else 0x3A)
    if argument.is_output:
        return filled
    rng = np.random.default_rng(sum(argument.name.encode()))
    logical = rng.integers(-4, 5, argument.logical_shape).astype(dtype)
    return pack(argument, logical, filled)


def _check_arguments(arguments: tuple[Argument, ...], memory: Mapping[str, Array], kept: Mapping[str, Array]) -> None:
    """Inputs stay as they are, and the padding of outputs holds what is promised."""
    for argument in arguments:
        after = memory[argument.name]
        if not argument.is_output:
            np.testing.assert_array_equal(after, kept[argument.name])
        elif argument.pads and argument.pad_value != "undef":
            wanted = kept[argument.name] if not argument.pad_value else pack(argument, unpack(argument, after), after)
            np.testing.assert_array_equal(padding(argument, after), padding(argument, wanted))
