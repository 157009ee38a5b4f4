"""Traces: the list of instructions that were applied, in concrete values.

A trace is JSON: ``[["split", {"loop": "i", "factors": [null, 6]}], ...]``.  Names in
it are handles of the program at that step, and fresh names are deterministic, so a
trace replays on an equal program without anything else.

An instruction that draws a decision has it as an argument, and a third item: the
names of what it drew.  Where later instructions used that, their arguments say
``{"ref": "v0"}``, so that another decision reaches them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from ..ir.stmt import PrimFunc
from . import primitives
from .arguments import check_json, encode, refs
from .errors import ScheduleError
from .primitive import PRIMITIVES, find_primitive
from .trace_text import call_text, calls_of

if TYPE_CHECKING:
    from .schedule import Schedule

MAX_INSTRUCTIONS = 10_000
MAX_DRAWS = 64

__all__ = ["Instruction", "Trace", "primitives"]


@dataclass(frozen=True)
class Instruction:
    """One primitive with its arguments as JSON values, and the names of what it drew."""

    name: str
    arguments: dict[str, Any]
    results: tuple[str, ...] = ()

    @staticmethod
    def checked(name: Any, arguments: Any, results: Any = ()) -> Instruction:
        """The instruction, from values of any origin.  Raises ScheduleError; nothing in them is evaluated."""
        primitive = find_primitive(name)
        if not isinstance(arguments, dict):
            raise ScheduleError("the arguments of `{name}` are an object, but got {got}",
                                name=name, got=type(arguments).__name__)  # fmt: skip
        check_json(arguments)
        primitive.check(arguments)
        if not isinstance(results, (list, tuple)) or not all(isinstance(r, str) and r.isidentifier() for r in results):
            raise ScheduleError("the results of `{name}` are names, but got {results!r}", name=name, results=results)
        if bool(results) != (primitive.draw is not None):
            verb = "draws" if primitive.draw else "never draws"
            raise ScheduleError("`{name}` {verb} values that have names", name=name, verb=verb)
        return Instruction(name, dict(arguments), tuple(results))

    @property
    def draws(self) -> bool:
        """Whether the instruction has a decision."""
        return PRIMITIVES[self.name].draw is not None

    def script(self, schedule: str = "sch") -> str:
        """The call as Python text."""
        return call_text(schedule, PRIMITIVES[self.name], self.arguments, self.results)


@dataclass(frozen=True)
class Trace:
    """Instructions in order."""

    instructions: tuple[Instruction, ...] = ()

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def then(self, instruction: Instruction) -> Trace:
        return Trace((*self.instructions, instruction))

    # ------------------------------------------------------------ forms

    def to_json(self) -> list[list[Any]]:
        return [[i.name, i.arguments, *([list(i.results)] if i.results else [])] for i in self.instructions]

    @staticmethod
    def from_json(data: Any) -> Trace:
        """The trace that `to_json` gave.

        Raises ScheduleError for anything that is not a list of known primitives with
        arguments of their signature; nothing in it is evaluated.
        """
        if not isinstance(data, list) or len(data) > MAX_INSTRUCTIONS:
            raise ScheduleError("a trace is a list of at most {most} instructions", most=MAX_INSTRUCTIONS)
        found = []
        for number, item in enumerate(data, 1):
            place = f"instruction {number} of {len(data)}"
            if not isinstance(item, (list, tuple)) or len(item) not in (2, 3):
                raise ScheduleError("an instruction is [name, arguments], but got {item!r}",
                                    item=_Short(item)).within(place)  # fmt: skip
            try:
                found.append(Instruction.checked(*item))
            except ScheduleError as error:
                raise error.within(place) from None
        return Trace(tuple(found))

    def script(self) -> str:
        """The trace as Python text over a schedule ``sch``."""
        return "\n".join(i.script() for i in self.instructions)

    @staticmethod
    def from_script(text: str) -> Trace:
        """The trace that `script` gave, read through `ast` and never run.

        Raises ScheduleError, with the line, for anything but calls of primitives with literal arguments.
        """
        found: list[Instruction] = []
        drawn: set[str] = set()
        for line, results, name, positional, named in calls_of(text, drawn):
            try:
                arguments = find_primitive(name).bind(*positional, **named)
                found.append(Instruction.checked(name, arguments, results))
            except ScheduleError as error:
                raise error.within(f"line {line}") from None
            drawn.update(results)
        return Trace(tuple(found))

    # ------------------------------------------------------------ replay

    def replay(self, func: PrimFunc, *, seed: int = 0) -> Schedule:
        """Apply every instruction to `func`; decisions that are missing are drawn from `seed`.

        Raises ScheduleError where one does not fit: which instruction, which condition, what was expected.
        """
        from .schedule import Schedule

        schedule = Schedule(func, seed=seed)
        for number, instruction in enumerate(self.instructions, 1):
            try:
                schedule.apply(instruction.name, instruction.arguments, instruction.results)
            except ScheduleError as error:
                raise error.within(f"instruction {number} of {len(self)}") from None
        return schedule

    def simplified(self, func: PrimFunc | None = None) -> Trace:
        """The trace without dead instructions.

        An instruction is dead if nobody uses what it drew and it does not change the
        program: without `func` only what draws is known to, with it each one is tried.
        """
        kept: list[Instruction] = []
        used: set[str] = set()
        active = self._active(func)
        for instruction, acts in zip(reversed(self.instructions), reversed(active), strict=True):
            if acts or used.intersection(instruction.results):
                kept.append(instruction)
                used |= refs(instruction.arguments)
        return Trace(tuple(reversed(kept)))

    def _active(self, func: PrimFunc | None) -> list[bool]:
        """For each instruction whether it changes the program."""
        if func is None:
            return [not i.draws for i in self.instructions]
        from .schedule import Schedule

        schedule = Schedule(func)
        found = []
        for instruction in self.instructions:
            before = schedule.func
            schedule.apply(instruction.name, instruction.arguments, instruction.results)
            found.append(schedule.func != before)
        return found

    # ------------------------------------------------------------ decisions

    @property
    def decisions(self) -> dict[int, Any]:
        """The decision of each instruction that draws, by its number from 0."""
        return {n: i.arguments.get("decision") for n, i in enumerate(self.instructions) if i.draws}

    def with_decisions(self, decisions: Mapping[int, Any]) -> Trace:
        """The trace with other decisions; None leaves one to be drawn.  Raises ScheduleError for a wrong number."""
        wrong = [n for n in decisions if n not in self.decisions]
        if wrong:
            raise ScheduleError("instruction {number} has no decision; those that have are {known}",
                                number=wrong[0], known=list(self.decisions))  # fmt: skip
        parts = [
            replace(i, arguments={**i.arguments, "decision": encode(decisions[n])}) if n in decisions else i
            for n, i in enumerate(self.instructions)
        ]
        return Trace(tuple(parts))

    def mutated(self, func: PrimFunc, seed: int) -> Trace:
        """The trace with one decision, chosen by `seed`, drawn again until it is another and the trace fits `func`.

        Raises ScheduleError where no such decision was found.
        """
        random = Random(seed)
        order = list(self.decisions)
        random.shuffle(order)
        for number in order:
            for _ in range(MAX_DRAWS):
                attempt = self.with_decisions({number: None})
                try:
                    result = attempt.replay(func, seed=random.randrange(2**32)).trace
                except ScheduleError:
                    continue
                if result.decisions[number] != self.decisions[number]:
                    return result
        raise ScheduleError("no decision of the trace has another value that fits the program")


class _Short:
    """A value of any origin, cut to a readable length."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)[:80]
