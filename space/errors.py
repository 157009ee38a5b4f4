"""What a primitive says when it cannot do what it was asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ProgramError


class ScheduleError(ProgramError):
    """A refused primitive.

    The search raises thousands of these and people read one, so the sentence is
    put together only when it is read: what was asked, which numbered condition
    failed, the values, and what to try.
    """

    def __init__(self, condition: str, hint: str = "", **values: Any) -> None:
        super().__init__()
        self.condition = condition
        self.hint = hint
        self.values = values
        self.primitive = ""
        self.arguments: dict[str, Any] = {}
        self.place = ""

    def at(self, primitive: str, arguments: dict[str, Any]) -> ScheduleError:
        """The same refusal with the call that met it."""
        self.primitive, self.arguments = primitive, arguments
        return self

    def within(self, place: str) -> ScheduleError:
        """The same refusal with where in a trace the call stands."""
        self.place = place
        return self

    def __str__(self) -> str:
        reason = self.condition.format(**self.values) if self.values else self.condition
        call = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items() if v is not None)
        asked = f"{self.primitive}({call}): " if self.primitive else ""
        asked = f"{self.place}: {asked}" if self.place else asked
        return f"{asked}{reason}" + (f"; {self.hint}" if self.hint else "")


class Reasons:
    """Several refusals in one sentence, put together when somebody reads it."""

    def __init__(self, reasons: Iterable[object]) -> None:
        self.reasons = tuple(reasons)

    def __format__(self, spec: str) -> str:
        return "; ".join(str(r) for r in self.reasons)
