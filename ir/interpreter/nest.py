"""Iteration points of the loops around a statement, as arrays.

A `Nest` is a chain of steps, each of which turns the points before it into
more or fewer: a loop multiplies them, a guard keeps some, a let binding gives
each a value.  The points, called lanes, stand in program order, so that the
serial meaning of the program is "lane by lane".  Values are computed when
somebody asks for them, a value that is the same in every lane stays one Python
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import INDEX
from ..expr import Expr, Var
from .memory import Data, Flags

Value = tuple[Data, Flags]
Index = NDArray[np.intp]


def take(value: Value, index: Index | None) -> Value:
    """The lanes `index` of a value; a vector of shape (1, L) is the same in every lane."""
    if index is None:
        return value
    data, undef = value
    return _lanes(data, index), _lanes(undef, index)


def _lanes(part: Any, index: Index) -> Any:
    return part[index] if isinstance(part, np.ndarray) and part.shape[:-1] != (1,) else part


def _typed(counter: Any, var: Var) -> Any:
    """Values of a loop variable in its type."""
    return counter if var.dtype == INDEX else np.asarray(counter).astype(var.dtype)[()]


class Nest:
    """Points of the parent, `rows` of them (None: all, in order), and possibly one variable's value in each."""

    def __init__(self, parent: Nest | None, step: Step | None, rows: Index | None, n: int) -> None:
        self.parent, self.step, self.rows, self.n = parent, step, rows, n
        self.var: Var | None = None
        self.values: dict[Var, Value] = {}
        self.located: dict[Any, Any] = {}

    def get(self, var: Var) -> Value:
        """The value of `var` in every lane."""
        found = self.values.get(var)
        if found is None:
            if self.parent is None:
                raise KeyError(var.name)
            found = self.values[var] = take(self.parent.get(var), self.rows)
        return found

    def knows(self, var: Var) -> bool:
        """Whether `var` has a value here."""
        return var in self.values or (self.parent is not None and self.parent.knows(var))

    def variables(self) -> Iterator[Var]:
        """Loop variables and iterators, outermost first."""
        if self.parent is not None:
            yield from self.parent.variables()
        if self.var is not None:
            yield self.var

    def origin(self, ancestor: Nest) -> Index:
        """The lane of `ancestor` that each lane comes from."""
        if self is ancestor:
            return np.arange(self.n)
        assert self.parent is not None
        above = self.parent.origin(ancestor)
        return above if self.rows is None else above[self.rows]

    def steps(self) -> list[Nest]:
        """This nest and its ancestors, the root first."""
        chain: list[Nest] = []
        nest: Nest | None = self
        while nest is not None:
            chain.append(nest)
            nest = nest.parent
        return chain[::-1]

    # ------------------------------------------------------------ steps

    def pick(self, rows: Index) -> Nest:
        """A nest with the lanes `rows`, in ascending order.  Serial execution goes through them one by one."""
        return Nest(self, Pick(rows), rows, len(rows))

    def keep(self, mask: Data, again: Step) -> Nest:
        """A nest with the lanes where `mask` is true; `again` makes the same step from another parent."""
        if not isinstance(mask, np.ndarray):
            return Nest(self, again, None if mask else np.zeros(0, np.intp), self.n if mask else 0)
        if mask.all():
            return Nest(self, again, None, self.n)
        rows = np.flatnonzero(mask)
        return Nest(self, again, rows, len(rows))

    def bind(self, var: Var, value: Value, again: Step) -> Nest:
        result = Nest(self, again, None, self.n)
        result.var, result.values[var] = var, value
        return result

    def number(self, var: Var) -> Nest:
        """Bind `var` to the number of each lane.  Only a `pick` may follow, since parts would count anew."""
        result = Nest(self, None, None, self.n)
        result.var, result.values[var] = var, (np.arange(self.n), None)
        return result

    def loop(self, var: Var, extent: Data, again: Step, low: int = 0) -> Nest:
        """Each lane becomes ``extent - low`` lanes, `var` counting from `low`; the step knows how to repeat it."""
        if isinstance(extent, np.ndarray):
            counts = np.maximum(extent - low, 0)
            rows = np.repeat(np.arange(self.n), counts)
            starts = np.repeat(np.cumsum(counts) - counts, counts)
            result = Nest(self, again, rows, len(rows))
            result.var, result.values[var] = var, (_typed(np.arange(len(rows)) - starts + low, var), None)
            return result
        count = max(0, int(extent) - low)
        if count == 1:
            return self.bind(var, (_typed(low, var), None), again)
        rows = np.repeat(np.arange(self.n), count)
        result = Nest(self, again, rows, self.n * count)
        result.var, result.values[var] = var, (_typed(np.tile(np.arange(low, low + count), self.n), var), None)
        return result

    # ------------------------------------------------------------ serial execution

    def parts(self, most: int) -> Iterator[Nest]:
        """The same lanes in program order, in several nests of about `most` lanes, at least two nests."""
        chain = self.steps()
        first = max((k for k, nest in enumerate(chain) if isinstance(nest.step, Pick)), default=0)
        number = next(k for k in range(first, len(chain)) if chain[k].n > 1)
        wide = chain[number]
        assert wide.parent is not None and wide.step is not None
        size = min(max(1, wide.n * most // self.n), (wide.n + 1) // 2)
        for low in range(0, wide.n, size):
            part = wide.step.part(wide.parent, low, min(low + size, wide.n))
            for nest in chain[number + 1 :]:
                assert nest.step is not None
                if part.n:
                    part = nest.step(part)
            if part.n:
                yield part


class Step:
    """What made a nest from its parent, to make it again from a part of the parent."""

    def __call__(self, parent: Nest) -> Nest:
        raise NotImplementedError

    def part(self, parent: Nest, low: int, high: int) -> Nest:
        """The lanes from `low` to `high` of the result, for a parent of one lane."""
        raise TypeError(f"{type(self).__name__} does not multiply lanes: no {low} to {high} of {parent.n}")


class Pick(Step):
    def __init__(self, rows: Index) -> None:
        self.rows = rows

    def __call__(self, parent: Nest) -> Nest:
        return parent.pick(self.rows)

    def part(self, parent: Nest, low: int, high: int) -> Nest:
        return parent.pick(self.rows[low:high])


class Guard(Step):
    """Lanes where the condition holds."""

    def __init__(self, holds: Callable[[Nest], Data]) -> None:
        self.holds = holds

    def __call__(self, parent: Nest) -> Nest:
        return parent.keep(self.holds(parent), self)


class Bind(Step):
    def __init__(self, var: Var, value: Expr, evaluate: Callable[[Nest, Expr], Value]) -> None:
        self.var, self.value, self.evaluate = var, value, evaluate

    def __call__(self, parent: Nest) -> Nest:
        return parent.bind(self.var, self.evaluate(parent, self.value), self)


class Loop(Step):
    """``for var in range(low, high)``, or to `extent` where the bounds are not cut."""

    def __init__(self, var: Var, extent: Callable[[Nest], Data], low: int = 0, high: int | None = None) -> None:
        self.var, self.extent, self.low, self.high = var, extent, low, high

    def __call__(self, parent: Nest) -> Nest:
        extent = self.extent(parent) if self.high is None else self.high
        return parent.loop(self.var, extent, self, self.low)

    def part(self, parent: Nest, low: int, high: int) -> Nest:
        return Loop(self.var, self.extent, self.low + low, self.low + high)(parent)


ROOT_LANES = 1


def root() -> Nest:
    """The one lane outside of all loops."""
    return Nest(None, None, None, ROOT_LANES)
