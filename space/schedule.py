"""The schedule: a program, and the trace of what was done to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from ..ir.stmt import Block, For, Module, PrimFunc
from . import primitives
from .arguments import chosen, resolve
from .composite import WRAPPERS, call
from .errors import ScheduleError
from .handles import child_blocks, consumers_of, find_block_or_loop, output_blocks, producers_of
from .primitive import PRIMITIVES, Primitive, find_primitive
from .trace import Instruction, Trace
from .tree import find_block, leaf_blocks, loops_above, rename_duplicates

__all__ = ["Schedule", "ScheduleError", "primitives"]


class Schedule:
    """Applies primitives to a function and records them.

    Every primitive of `space.primitives` is a method with the primitive's signature
    and documentation.  Blocks, loops and buffers are given and returned by name.
    A refused primitive raises `ScheduleError` and changes nothing.  Of a module, primitives
    act on one function, ``main`` or the first, until `work_on` names another; functions share
    a buffer where their parameters have one name, and its layout changes in all of them.  Primitives that
    draw a decision (``sample_...``) draw from `seed`, and the trace keeps what they drew.
    """

    def __init__(self, func: PrimFunc | Module, *, seed: int = 0) -> None:
        functions = func.functions if isinstance(func, Module) else (func,)
        if not functions:
            raise ScheduleError("a schedule needs a function, but the module has none")
        self.module = Module(tuple(map(rename_duplicates, functions)))
        found = [f.name for f in functions]
        self.current = "main" if "main" in found else found[0]
        self.trace = Trace()
        self._random = Random(seed)
        self._drawn: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in WRAPPERS:
            return functools.wraps(WRAPPERS[name])(functools.partial(call, self, name))
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            raise AttributeError(f"there is no primitive `{name}`; there are {', '.join(sorted(PRIMITIVES))}")

        @functools.wraps(primitive.rewrite)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.apply(name, primitive.bind_to(self.func, *args, **kwargs))

        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *PRIMITIVES, *WRAPPERS]

    def apply(self, name: str, arguments: Mapping[str, Any], results: Sequence[str] = ()) -> Any:
        """Apply the primitive `name` with arguments as JSON values, and record it.

        `results` are the names for what it draws; without them they are chosen.
        """
        primitive = find_primitive(name)
        values = {key: resolve(value, self._drawn) for key, value in arguments.items()}
        if primitive.draw is not None:
            return self._draw(primitive, arguments, values, results)
        self.module, self.current, result = primitive.apply_in(self.module, self.current, values)
        self.trace = self.trace.then(Instruction(name, dict(arguments)))
        return tuple(result) if isinstance(result, list) else result

    def _draw(
        self, primitive: Primitive, arguments: Mapping[str, Any], values: Mapping[str, Any], results: Sequence[str]
    ) -> Any:
        """Apply a primitive that draws, and give what it drew names that later instructions can use."""
        decided = primitive.decided(self.func, values, self._random)
        _, result = primitive.apply(self.func, decided)
        several = isinstance(result, list)
        values_drawn = result if several else [result]
        names = tuple(results) or tuple(f"v{len(self._drawn) + k}" for k in range(len(values_drawn)))
        if len(names) != len(values_drawn) or any(n in self._drawn for n in names):
            raise ScheduleError(
                "{count} values are drawn, but the names are {names}, which must be as many and not used before",
                count=len(values_drawn), names=list(names),
            ).at(primitive.name, dict(values))  # fmt: skip
        self._drawn = {**self._drawn, **dict(zip(names, values_drawn, strict=True))}
        self.trace = self.trace.then(
            Instruction(primitive.name, {**arguments, "decision": decided["decision"]}, names)
        )
        found = tuple(map(chosen, values_drawn, names))
        return found if several else found[0]

    def copy(self, seed: int | None = None) -> Schedule:
        """A schedule of its own in the same state; with `seed` it goes on to draw from that."""
        other = Schedule(self.module)
        other.module, other.current, other.trace = self.module, self.current, self.trace
        other._drawn = self._drawn
        other._random.setstate(self._random.getstate()) if seed is None else other._random.seed(seed)
        return other

    def seed(self, seed: int) -> None:
        """Draw from `seed` from here on."""
        self._random.seed(seed)

    def fork_seed(self) -> int:
        """A seed for another schedule, drawn from this one's."""
        return self._random.randrange(2**31)

    # ------------------------------------------------------------ what there is

    @property
    def func(self) -> PrimFunc:
        """The function that is worked on."""
        return self.module[self.current]

    @property
    def mod(self) -> dict[str, PrimFunc]:
        """The functions by name; the one that is worked on is ``main``, too, where none has this name."""
        return {"main": self.func, **{f.name: f for f in self.module.functions}}

    def get(self, name: str) -> Block | For:
        """The block or loop of this name as it is in the program.  Raises ScheduleError if there is none."""
        return find_block_or_loop(self.func, name)

    def get_block(self, name: str, func_name: str | None = None) -> str:
        """The block's handle, its name.  Raises ScheduleError if there is none, or `func_name` is not worked on."""
        if func_name not in (None, self.current) and self.mod.get(str(func_name)) is not self.func:
            raise ScheduleError("function `{asked}` is not the one that is worked on, `{current}`",
                                hint="call work_on first", asked=func_name, current=self.current)  # fmt: skip
        return find_block(self.func, name).name

    get_sblock = get_block

    def get_loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first, up to the block around it."""
        return [loop.var.name for loop in loops_above(self.func, find_block(self.func, block))]

    def get_blocks(self) -> list[str]:
        """The innermost blocks in program order."""
        return [b.name for b in leaf_blocks(self.func.body)]

    def get_child_blocks(self, block_or_loop: str) -> list[str]:
        """The outermost blocks inside a block or below a loop, in program order."""
        return child_blocks(self.func, block_or_loop)

    get_child_sblocks = get_child_blocks

    def get_producers(self, block: str) -> list[str]:
        """The blocks of the same scope that write what `block` reads, in program order."""
        return producers_of(self.func, block)

    def get_consumers(self, block: str) -> list[str]:
        """The blocks of the same scope that read what `block` writes, in program order."""
        return consumers_of(self.func, block)

    def get_output_blocks(self, scope_block: str = "root") -> list[str]:
        """The blocks of a scope that write something that was not allocated in it, in program order."""
        return output_blocks(self.func, scope_block)

    def show(self) -> None:
        """Print the program, and below it, as comments, the trace that led to it."""
        print((self.module if len(self.module.functions) > 1 else self.func).script())
        for line in self.trace.script().splitlines():
            print(f"# {line}")

