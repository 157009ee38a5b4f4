"""The schedule: a program, and the trace of what was done to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..ir.stmt import Module, PrimFunc
from . import primitives
from .errors import ScheduleError
from .primitive import PRIMITIVES
from .trace import Instruction, Trace
from .tree import find_block, leaf_blocks, loops_above, rename_duplicates

__all__ = ["Schedule", "ScheduleError", "primitives"]


class Schedule:
    """Applies primitives to a function and records them.

    Every primitive of `space.primitives` is a method with the primitive's signature
    and documentation.  Blocks, loops and buffers are given and returned by name.
    A refused primitive raises `ScheduleError` and changes nothing.
    """

    def __init__(self, func: PrimFunc | Module) -> None:
        if isinstance(func, Module):
            if len(func.functions) != 1:
                raise ScheduleError(
                    "a schedule takes one function, but the module has {count}", count=len(func.functions)
                )
            func = func.functions[0]
        self.func = rename_duplicates(func)
        self.trace = Trace()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            raise AttributeError(f"there is no primitive `{name}`; there are {', '.join(sorted(PRIMITIVES))}")

        @functools.wraps(primitive.rewrite)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.apply(name, primitive.bind(*args, **kwargs))

        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *PRIMITIVES]

    def apply(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Apply the primitive `name` with arguments as JSON values, and record it."""
        self.func, result = PRIMITIVES[name].apply(self.func, arguments)
        self.trace = self.trace.then(Instruction(name, dict(arguments)))
        return tuple(result) if isinstance(result, list) else result

    @property
    def mod(self) -> dict[str, PrimFunc]:
        """The function under the name ``main`` and its own, as TensorIR's schedules give it."""
        return {"main": self.func, self.func.name: self.func}

    def get_block(self, name: str) -> str:
        """The block's handle, its name.  Raises ScheduleError if there is none."""
        return find_block(self.func, name).name

    get_sblock = get_block

    def get_loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first."""
        return [loop.var.name for loop in loops_above(self.func, find_block(self.func, block))]

    def get_blocks(self) -> list[str]:
        """The innermost blocks in program order."""
        return [b.name for b in leaf_blocks(self.func.body)]

    def show(self) -> None:
        """Print the program."""
        print(self.func.script())
