"""Candidates as the search sees them: a sketch and one alternative per decision, by their Optuna names.

`SearchSpace` is the part of a space that a search may walk on.  It knows the parameter of every decision, what
the user's pins leave of it, and draws possible candidates at random; every sampler stands on it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...numerals import count

if TYPE_CHECKING:
    from ...space.design.sketch import Sketch
    from ...space.design.space import Space
    from ..records.record import Record

SKETCH = "sketch"
RUN = "run"  # the user attribute of a trial from elsewhere: the run and stage in which it was measured
ENUMERATE = 4096  # a sketch with at most this many candidates is listed, not sampled
FEW = 16  # random candidates among which one is new, unless most are known

Population = NDArray[np.int64]
Key = tuple[int, ...]  # sketch number, then the alternatives: hashable and exact


@dataclass(frozen=True)
class Candidate:
    """What `Study.ask` hands out: the trial's number, the sketch's number and one alternative per decision."""

    trial: int
    sketch: int
    choice: tuple[int, ...]

    @property
    def key(self) -> Key:
        return (self.sketch, *self.choice)


class SearchSpace:
    """The sketches and alternatives that a search may use, after pins.

    A pin `DECISION=VALUE` names a decision by its full parameter name or by a tail of it that starts after a
    slash, and a value by its label, or as ``#N`` by its position from 0; `sketch=NAME` pins the sketch.  A sketch that
    lacks a pinned decision or its value is left out.  Raises ValueError when nothing is left.
    """

    def __init__(self, space: Space, pins: Mapping[str, str] | None = None) -> None:
        self.space = space
        self.sketches: tuple[Sketch, ...] = tuple(space.sketches)
        self.names = tuple(parameter_names(sketch) for sketch in self.sketches)
        self.numbers = {sketch.name: number for number, sketch in enumerate(self.sketches)}
        self.allowed: list[tuple[NDArray[np.int64], ...]] = []
        self._stock: dict[int, Population] = {}
        able = tuple(n for n in range(len(self.sketches)) if self._allow(n, dict(pins or {})))
        if not able:
            raise ValueError(self._nothing_left(dict(pins or {})))
        self.open = tuple(n for n in able if not pins or len(self.draw(np.random.default_rng(0), n, 1)))
        self._stock.clear()  # what was drawn to try the pins is not for the search
        if not self.open:
            text = ", ".join(f"{pin}={value}" for pin, value in (pins or {}).items())
            raise ValueError(f"no possible candidate was found with all of the pins {text}: leave one out")

    def keep_open(self, numbers: Collection[int]) -> None:
        """Search these sketches alone, of those that are open."""
        self.open = tuple(number for number in self.open if number in numbers)

    def limits(self, number: int) -> list[tuple[int, int]]:
        """Lowest and highest alternative of each decision of a sketch; equal where it is pinned."""
        return [(int(values[0]), int(values[-1])) for values in self.allowed[number]]

    def params(self, key: Key) -> dict[str, int]:
        """The Optuna parameters of a candidate."""
        return {SKETCH: key[0]} | dict(zip(self.names[key[0]], key[1:], strict=True))

    def key(self, params: Mapping[str, Any]) -> Key | None:
        """The candidate of a trial's parameters; None when they are not a whole candidate of this space."""
        number = params.get(SKETCH)
        if not isinstance(number, int) or not 0 <= number < len(self.sketches):
            return None
        choice = [params.get(name) for name in self.names[number]]
        return self.checked(number, choice)

    def stored(self, record: Record) -> Key | None:
        """The candidate of a record of this program; None for one of another space version or an unknown sketch."""
        number = self.numbers.get(record.sketch)
        if number is None or record.space_version != self.space.version:
            return None
        return self.checked(number, record.choice)

    def checked(self, number: int, choice: Sequence[Any]) -> Key | None:
        """The key of a choice, None when its length or an index does not fit the sketch."""
        decisions = self.sketches[number].decisions
        if len(choice) != len(decisions):
            return None
        if not all(isinstance(c, int) and 0 <= c < len(d.labels) for c, d in zip(choice, decisions, strict=True)):
            return None
        return (number, *choice)

    def possible(self, key: Key) -> bool:
        """True when pins and the sketch's mask let the candidate through."""
        row = np.asarray([key[1:]], np.int64).reshape(1, -1)
        return key[0] in self.open and bool(self.keep(key[0], row)[0])

    def keep(self, number: int, population: Population) -> NDArray[np.bool_]:
        """A mask of the candidates (N, D) of a sketch that pins and rules allow."""
        good = np.asarray(self.sketches[number].mask(population), bool).copy()
        for decision, values in enumerate(self.allowed[number]):
            if len(values) < len(self.sketches[number].decisions[decision].labels):
                good &= population[:, decision] == values[0]
        return good

    @property
    def total(self) -> int:
        """Candidates of all sketches that are open, before their masks."""
        return sum(map(self.size, self.open))

    def size(self, number: int) -> int:
        """Candidates of a sketch after pins, before its mask."""
        size = 1
        for values in self.allowed[number]:
            size *= len(values)
        return size

    def draw(self, rng: np.random.Generator, number: int, count: int) -> Population:
        """Up to `count` possible candidates of a sketch, uniformly; all of them, once each, of a small sketch."""
        if self.size(number) <= ENUMERATE:
            everything = self._everything(number)
            return everything[rng.permutation(len(everything))[:count]]
        stock = self._stock.get(number, np.zeros((0, len(self.allowed[number])), np.int64))
        for _ in range(20):
            if len(stock) >= count:
                break
            rows = self.sketches[number].draw_some(rng, count - len(stock), self.allowed[number])
            if not len(rows):
                break
            stock = np.concatenate([stock, rows])
        self._stock[number] = stock[count:]
        return stock[:count]

    def fresh(self, rng: np.random.Generator, seen: Iterable[Key]) -> Key | None:
        """A possible candidate that is not among `seen`, or None when none was found."""
        known = set(seen)
        for number in rng.permutation(self.open).tolist():
            for size in (FEW, ENUMERATE):
                for row in self.draw(rng, number, size).tolist():
                    if (number, *row) not in known:
                        return (number, *row)
        return None

    def _everything(self, number: int) -> Population:
        values = self.allowed[number]
        if not values:
            rows = np.zeros((1, 0), np.int64)
        else:
            rows = np.stack([g.ravel() for g in np.meshgrid(*values, indexing="ij")], axis=1)
        return rows[self.keep(number, rows)]

    def _allow(self, number: int, pins: dict[str, str]) -> bool:
        sketch = self.sketches[number]
        allowed = [np.arange(len(d.labels), dtype=np.int64) for d in sketch.decisions]
        usable = True
        for pin, value in pins.items():
            if pin == SKETCH:
                usable &= value in (sketch.name, f"#{number}")
                continue
            matched = [d for d, name in enumerate(self.names[number]) if name == pin or name.endswith(f"/{pin}")]
            chosen = {d: alternative(sketch.decisions[d].labels, value) for d in matched}
            usable &= bool(chosen) and None not in chosen.values()
            allowed = [np.asarray([chosen[d]]) if chosen.get(d) is not None else a for d, a in enumerate(allowed)]
        self.allowed.append(tuple(allowed))
        return usable

    def _nothing_left(self, pins: dict[str, str]) -> str:
        """The sentence that names the pin which no sketch can follow, with the nearest names or values."""
        if not self.sketches:
            return "the space has no sketch: nothing can be searched"
        for pin, value in pins.items():
            labels: dict[str, None] = {}
            for sketch, names in zip(self.sketches, self.names, strict=True):
                for decision, name in zip(sketch.decisions, names, strict=True):
                    if name == pin or name.endswith(f"/{pin}"):
                        labels.update(dict.fromkeys(decision.labels))
            if pin == SKETCH:
                labels = dict.fromkeys(sketch.name for sketch in self.sketches)
            if not labels:
                known = sorted({name.rsplit("/", 1)[-1] for names in self.names for name in names} | {SKETCH})
                near = difflib.get_close_matches(pin.rsplit("/", 1)[-1], known, 3) or known
                return f"the pin `{pin}={value}` names no decision of this space; near it: {', '.join(near)}"
            if alternative(list(labels), value) is None:
                return f"the pin `{pin}={value}` names no alternative; there are: {', '.join(labels)}"
        text = ", ".join(f"{pin}={value}" for pin, value in pins.items())
        return f"no sketch can follow all of the pins {text}: leave one out"


def parameter_names(sketch: Sketch) -> tuple[str, ...]:
    """The Optuna names `<sketch>/<block>/<decision>` of a sketch's decisions."""
    start = f"{sketch.name}/"
    return tuple(d.name if d.name.startswith(start) else start + d.name for d in sketch.decisions)


def alternative(labels: Sequence[str], value: str) -> int | None:
    """The position of a value given as a label, or as ``#`` and the position; None where there is no such one."""
    if value in labels:
        return list(labels).index(value)
    number = count(value[1:]) if value.startswith("#") else None
    return number if number is not None and number < len(labels) else None
