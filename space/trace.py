"""Traces: the list of instructions that were applied, in concrete values.

A trace is JSON: ``[["split", {"loop": "i", "factors": [null, 6]}], ...]``.  Names in
it are handles of the program at that step, and fresh names are deterministic, so a
trace replays on an equal program without anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ir.stmt import PrimFunc
from . import primitives
from .errors import ScheduleError
from .primitive import PRIMITIVES

if TYPE_CHECKING:
    from .schedule import Schedule

MAX_INSTRUCTIONS = 10_000

__all__ = ["Instruction", "Trace", "primitives"]


@dataclass(frozen=True)
class Instruction:
    """One primitive with its arguments as JSON values."""

    name: str
    arguments: dict[str, Any]

    def script(self, schedule: str = "sch") -> str:
        """The call as Python text."""
        primitive = PRIMITIVES[self.name]
        parts: list[str] = []
        for name, parameter in primitive.signature.parameters.items():
            if name not in self.arguments:
                continue
            value = self.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                parts.extend(repr(v) for v in value)
            elif name == "index_map":
                parts.append(f"{name}={value}")
            else:
                parts.append(f"{name}={value!r}")
        return f"{schedule}.{self.name}({', '.join(parts)})"


@dataclass(frozen=True)
class Trace:
    """Instructions in order."""

    instructions: tuple[Instruction, ...] = ()

    def then(self, instruction: Instruction) -> Trace:
        return Trace((*self.instructions, instruction))

    def to_json(self) -> list[list[Any]]:
        return [[i.name, i.arguments] for i in self.instructions]

    @staticmethod
    def from_json(data: Any) -> Trace:
        """The trace that `to_json` gave.

        Raises ScheduleError for anything that is not a list of known primitives with
        arguments of their signature; nothing in it is evaluated.
        """
        if not isinstance(data, list) or len(data) > MAX_INSTRUCTIONS:
            raise ScheduleError("a trace is a list of at most {most} instructions", most=MAX_INSTRUCTIONS)
        return Trace(tuple(_instruction(item) for item in data))

    def replay(self, func: PrimFunc) -> Schedule:
        """Apply every instruction to `func`.  Raises ScheduleError where one does not fit."""
        from .schedule import Schedule

        schedule = Schedule(func)
        for instruction in self.instructions:
            schedule.apply(instruction.name, instruction.arguments)
        return schedule

    def script(self) -> str:
        """The trace as Python text over a schedule ``sch``."""
        return "\n".join(i.script() for i in self.instructions)


def _instruction(item: Any) -> Instruction:
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
        raise ScheduleError("an instruction is [name, arguments], but got {item!r}", item=item)
    name, arguments = item
    primitive = PRIMITIVES.get(name) if isinstance(name, str) else None
    if primitive is None:
        raise ScheduleError("unknown primitive {name!r}", name=name)
    if not isinstance(arguments, dict):
        raise ScheduleError(
            "the arguments of `{name}` are an object, but got {arguments!r}", name=name, arguments=arguments
        )
    unknown = [a for a in arguments if a not in primitive.signature.parameters]
    if unknown:
        raise ScheduleError("`{name}` has no argument {unknown}", name=name, unknown=unknown)
    return Instruction(name, dict(arguments))
