"""The equations that a procedure applies, stated beside it in the notation of `patterns`.

Where one pattern does not say it all (sums of any length, in any order; intervals),
the rewriting is a procedure, and its laws are the equations that it rests on::

    @law('''
        (k * x + y) // k   ->   x + y // k      if k > 0
    ''')

`LAWS` holds them all, so that a test can check each: that it holds for all integers,
and that the simplifier brings its two sides to one form where the condition is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .patterns import Rule, rules

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Law:
    """An equation and the name of the procedure that applies it."""

    rule: Rule
    procedure: str


LAWS: list[Law] = []


def law(text: str, **choices: tuple[str, ...]) -> Callable[[F], F]:
    """Marks a procedure with its equations over the index type and bool, one a line."""

    def note(procedure: F) -> F:
        LAWS.extend(Law(rule, procedure.__qualname__) for rule in rules("index", text, **choices))
        return procedure

    return note
