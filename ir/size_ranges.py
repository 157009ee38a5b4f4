"""Which numbers the integers of a program may be, where extents are expressions over them."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from .arith.intervals import nothing_known
from .arith.simplifier import simplifier_for
from .context import start
from .expr import TRUE, Binary, Const, Expr, Var
from .extents import widened
from .ranges import preconditions
from .stmt import PrimFunc


@dataclass(frozen=True)
class Range:
    """Multiples of `step` from `low` to `high`, of which both are such."""

    low: int
    high: int
    step: int = 1

    @property
    def ends(self) -> tuple[int, ...]:
        """The least number and the largest one."""
        return tuple(dict.fromkeys((self.low, self.high)))

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return (self.high - self.low) // self.step + 1

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high and number % self.step == 0

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f":{self.step}" if self.step > 1 else "")


def ranges_of(func: PrimFunc) -> dict[Var, Range]:
    """The range of each integer of the function: numbers outside are refused in a call, and some inside may be, too.

    A range without an end that is stated ends where extents do, at `statements.LONGEST`.
    """
    facts, known = start(func).facts, preconditions(func)
    found: dict[Var, Range] = {}
    for var in func.integers:
        low, high = facts.interval(widened(var))
        step = lcm(1, *(divisor for cond in known if (divisor := _divisor(cond, var)) is not None))
        found[var] = Range(-(-low // step) * step, high // step * step, step)
    return found


def tell_all(func: PrimFunc) -> bool:
    """Whether every call with numbers of these ranges is taken: no other condition, as of two numbers, is assumed."""
    facts = nothing_known().with_bounds({var: (r.low, r.high) for var, r in ranges_of(func).items()})
    taken = simplifier_for(facts)
    return all(
        taken.expr(cond) == TRUE or any(_divisor(cond, var) is not None for var in func.integers)
        for cond in preconditions(func)
    )


def _divisor(cond: Expr, var: Var) -> int | None:
    """The number of which a condition says that it divides the variable."""
    if not (isinstance(cond, Binary) and cond.op == "==" and isinstance(cond.b, Const) and cond.b.value == 0):
        return None
    rest = cond.a
    if isinstance(rest, Binary) and rest.op == "%" and isinstance(rest.b, Const) and widened(rest.a) == widened(var):
        return int(rest.b.value)
    return None
