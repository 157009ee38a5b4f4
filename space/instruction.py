"""Instructions: one primitive with its arguments, in concrete values, as traces hold them in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from . import primitives
from .arguments import check_json
from .errors import ScheduleError
from .primitive import PRIMITIVES, find_primitive
from .trace_text import call_text

__all__ = ["Instruction", "primitives"]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and not iskeyword(value)


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
        if not isinstance(results, (list, tuple)) or not all(map(_is_name, results)):
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
