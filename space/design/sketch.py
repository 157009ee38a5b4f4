"""Sketches: the structure of a schedule with its decisions open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir import dtypes
from ...ir.collection import uncollected
from ...ir.stmt import Block, PrimFunc, read_buffers
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule, Trace
from ..tree import block_stores, leaf_blocks, loops_above
from .apply import draw, feasible, schedule_anchor, verdicts, whole_rows
from .decision import Decision
from .nests import steps_of
from .operand import Axis, Operand
from .stages import schedule_stage
from .structure import Open
from .techniques.chunks import is_last_shorter, merge_chunks
from .techniques.threads import limit

BEGUN, LEAST = 8, 1024
"""Rows that are begun at once for each one that is wanted, and at least: of the programs of networks about one in eight
is possible."""
ROUNDS = 40
FEW_BYTES = 1 << 16
"""What one thread fills in less time than it takes to wake others."""


@dataclass(frozen=True)
class Sketch:
    """A structure for every anchor of a program, and all their decisions in one list.

    A candidate is one alternative for each decision, as numbers in the order of
    `decisions`; a population is an array of shape (candidates, decisions).  Every candidate starts from `start`,
    a schedule of `func` with the steps that leave nothing to decide.  Its loops over the `chunks` of all anchors, if
    there are any, become one in the end (see `techniques.chunks`).
    """

    name: str
    func: PrimFunc = field(repr=False)
    target: Target = field(repr=False)
    parts: tuple[Open, ...] = field(repr=False)
    start: Schedule | None = field(repr=False, compare=False, default=None)
    chunks: tuple[str, ...] = ()

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions of all anchors, in program order."""
        return tuple(d for part in self.parts for d in part.decisions)

    @property
    def main(self) -> Open:
        """The anchor with the largest iteration domain: the one that features describe in depth."""
        return max(self.parts, key=lambda p: _volume(p.anchor.axes))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.main.anchor.axes

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.main.anchor.operands

    def mask(self, choices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for the candidates that no rule excludes; `choices` has shape (candidates, decisions)."""
        ok = np.ones(len(choices), dtype=bool)
        start = 0
        for part in self.parts:
            stop = start + len(part.decisions)
            ok &= feasible(part, choices[:, start:stop], self.target)
            start = stop
        return ok

    def exclusions(self, choices: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """For each rule of the mask, True for the candidates that it excludes."""
        found: dict[str, NDArray[np.bool_]] = {}
        start = 0
        for part in self.parts:
            stop = start + len(part.decisions)
            for rule, passed in verdicts(part, choices[:, start:stop], self.target):
                found[rule] = found.get(rule, np.zeros(len(choices), dtype=bool)) | ~passed
            start = stop
        return found

    def draw(
        self, rng: np.random.Generator, count: int, allowed: Sequence[NDArray[np.int64]] | None = None
    ) -> NDArray[np.int64]:
        """Up to `count` candidates that no rule excludes, as often as their weights say; `allowed` are the alternatives
        of each decision.
        """
        return self.draw_some(rng, count, allowed)[:count]

    def draw_some(
        self, rng: np.random.Generator, count: int, allowed: Sequence[NDArray[np.int64]] | None = None
    ) -> NDArray[np.int64]:
        """`draw`, with what was found beyond `count`: how many of the rows that are begun are excluded is chance.

        The rules judge each anchor by itself, so that its decisions are drawn by themselves.
        """
        values = [np.arange(len(d), dtype=np.int64) for d in self.decisions] if allowed is None else list(allowed)
        for number, item in enumerate(self.decisions):
            if item.weights:
                values[number] = np.repeat(values[number], np.asarray(item.weights)[values[number]])
        if not self.parts:
            return _drawn(values, count, partial(self._draw_whole, rng=rng))
        found, start = [], 0
        for part in self.parts:
            stop = start + len(part.decisions)
            found.append(_drawn(values[start:stop], count, partial(draw, part, rng=rng, target=self.target)))
            start = stop
        return np.concatenate([rows[: min(map(len, found))] for rows in found], axis=1)

    def _draw_whole(
        self, values: Sequence[NDArray[np.int64]], rng: np.random.Generator, count: int
    ) -> NDArray[np.int64]:
        rows = whole_rows(values, rng, count)
        return rows[self.mask(rows)]

    @uncollected
    def schedule(self, choice: Sequence[int]) -> Schedule:
        """The schedule of one candidate.  Raises ScheduleError where a primitive refuses."""
        self.check_length(choice)
        sch = self.start.copy() if self.start is not None else Schedule(self.func)
        start = 0
        for part in self.parts:
            stop = start + len(part.decisions)
            schedule_anchor(sch, part, [int(c) for c in choice[start:stop]], self.target)
            start = stop
        _schedule_rest(sch, self.target)
        if self.chunks:
            peel = self.start is not None and is_last_shorter(self.start, self.chunks)
            merge_chunks(sch, self.chunks, self.target, peel)
            for number in self.parts[0].of("threads").values():
                count = int(self.parts[0].decisions[number].values[choice[number]])
                if count < self.target.threads:
                    limit(sch, count)
        return sch

    def check_length(self, choice: Sequence[int]) -> None:
        """Raise ScheduleError unless there is a choice for each decision."""
        if len(choice) != len(self.decisions):
            raise ScheduleError("a candidate of `{name}` has {want} choices, but got {got}",
                                name=self.name, want=len(self.decisions), got=len(choice))  # fmt: skip

    def trace(self, choice: Sequence[int]) -> Trace:
        """The candidate's concrete instructions.  Raises ScheduleError where a primitive refuses."""
        return self.schedule(choice).trace

    def labels(self, choice: Sequence[int]) -> dict[str, str]:
        """What was chosen, by the name of the decision."""
        return {d.name: d.labels[int(c)] for d, c in zip(self.decisions, choice, strict=True)}

    def columns(self, population: NDArray[np.int64]) -> Mapping[str, NDArray[np.float32]]:
        """The numbers by which candidates of a sketch without anchors are ranked: those of its decisions' tables."""
        return {
            name: np.asarray(values, np.float32)[population[:, position]]
            for position, item in enumerate(self.decisions)
            for name, values in item.table.items()
        }

    def describe(self) -> dict[str, Any]:
        """The sketch as data: decisions by kind, and what its canonical names stand for."""
        kinds: dict[str, int] = {}
        size = 1
        for item in self.decisions:
            kinds[item.kind] = kinds.get(item.kind, 0) + 1
            size *= len(item)
        return {
            "name": self.name,
            "size": size,
            "kinds": kinds,
            "decisions": [{"name": d.name, "kind": d.kind, "labels": list(d.labels)} for d in self.decisions],
            "axes": {f"{p.anchor.name}/{a.name}": [a.var, a.extent] for p in self.parts for a in p.anchor.axes},
            "operands": {f"{p.anchor.name}/{o.name}": o.buffer.name for p in self.parts for o in p.anchor.operands},
        }


def _drawn(
    values: Sequence[NDArray[np.int64]], count: int, attempt: Callable[..., NDArray[np.int64]]
) -> NDArray[np.int64]:
    """`count` possible rows or some more, if so many are found.

    `attempt` begins a number of rows of `values`, and gives those that are possible.
    """
    found = np.zeros((0, len(values)), np.int64)
    for _ in range(ROUNDS if values else 0):
        found = np.concatenate([found, attempt(values=values, count=max(LEAST, BEGUN * count))])
        if len(found) >= count:
            break
    return found if values else np.zeros((min(count, 1), 0), np.int64)


def _volume(axes: Sequence[Axis]) -> int:
    total = 1
    for axis in axes:
        total *= axis.extent
    return total


def _schedule_rest(sch: Schedule, target: Target) -> None:
    """Blocks that no anchor took along still run on all threads: producers that feed several, and the like.

    Those in the steps of a recurrence do not, nor small ones beside these: threads would wait more than they work.
    """
    inside = {block.name for step in steps_of(sch.func) for block in leaf_blocks(step.body)}
    for block in leaf_blocks(sch.func.body):
        above = loops_above(sch.func, block)
        plain = above and all(loop.kind == "serial" for loop in above)
        if plain and not block.reduce and block.init is None and not block.name.endswith("_assume"):
            little = block.name in inside or (bool(inside) and _is_little(block)) or _fills_little(block, target)
            try:
                schedule_stage(sch, block.name, target, shared=not little)
            except ScheduleError:
                continue


def _fills_little(block: Block, target: Target) -> bool:
    """Whether a block only writes numbers, and so few, as those of a halo, that waking threads would take longer."""
    return target.kind == "cpu" and not read_buffers(block.body) and _is_little(block)


def _is_little(block: Block) -> bool:
    """Whether one thread stores a block's bytes in less time than other threads need to wake up."""
    stores = block_stores(block)
    points = prod(item.extent for item in block.iters)
    return bool(stores) and points * dtypes.nbytes(stores[0].buffer.dtype) <= FEW_BYTES
