"""What a technique is: one way of scheduling an anchor, in four parts.

- `opens`: the decisions that an anchor leaves to the search, and before that `prepares`, steps that leave nothing to
  decide and bring the program into a form that can be scheduled (the names of constant parameters are given, since
  what is done to those costs nothing when the kernel runs);
- `excludes`: rules, each a name and the candidates of a population that it lets through;
- `applies`: its steps on the schedule of one candidate, by phase;
- `columns`: the numbers by which the cost model knows its decisions.

`techniques.TECHNIQUES` is the table of all; nothing else names one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ....ir.target import Target
from ...schedule import Schedule
from ..candidates import Bools, Candidates, Columns
from ..decision import Collector
from ..plan import Plan
from ..structure import Site

MAX_SCRATCH = 3 << 18
"""Bytes of a buffer that a thread computes for itself: a quarter below what it may have, since layouts round up."""

GROUP_SCRATCH = 3 << 16
"""The same for what the items of an OpenCL work-group compute for themselves, together: drivers for CPUs keep it on a
stack, and allow kernels that need 128 KiB for an item no groups of several."""


def most_scratch(target: Target) -> int:
    """Bytes of a buffer that a thread of a CPU computes for itself, or an OpenCL work-group: its items together."""
    return GROUP_SCRATCH if target.kind == "opencl" else MAX_SCRATCH


Verdicts = Iterator[tuple[str, Bools]]


class Phase(IntEnum):
    """The steps of scheduling one candidate, in order."""

    STAGE = 0
    """inputs get their layouts: parameters, caches and producers"""
    CUT = 1
    """reductions are cut in parts that are summed apart"""
    FUSE = 2
    """axes are fused"""
    TILE = 3
    """every axis is split"""
    GROUP = 4
    """outer loops are split for the items of a work-group"""
    ORDER = 5
    """loops are brought into the order ``outer.. | reduce.. | rows.. | vectors | lanes``"""
    ACCUMULATE = 6
    """the result gets a register tile (``local``), with the epilogue, a copy or a sum as its way out"""
    EDGES = 7
    """the initialisation is separated, and each ragged edge settled"""
    SHARE = 8
    """outer loops are shared between threads"""
    VECTORIZE = 9
    """the tile is unrolled and vectorized"""
    LOAD = 10
    """the items of a work-group load together what they share"""
    PLACE = 11
    """staged inputs are placed and scheduled"""
    FINISH = 12
    """what runs after all panels of a reduction is placed"""


def _unchanged(schedule: Schedule, constants: frozenset[str]) -> Schedule:
    return schedule


def _opens_nothing(site: Site, out: Collector) -> None:
    """Leave nothing to decide."""


def _excludes_nothing(candidates: Candidates) -> Verdicts:
    return iter(())


@dataclass(frozen=True)
class Technique:
    """One way of scheduling; `decides` are the sorts of its decisions, as `Open.of` and `Candidates` know them."""

    decides: tuple[str, ...] = ()
    prepares: Callable[[Schedule, frozenset[str]], Schedule] = _unchanged
    opens: Callable[[Site, Collector], None] = _opens_nothing
    excludes: Callable[[Candidates], Verdicts] = _excludes_nothing
    applies: Mapping[Phase, Callable[[Plan], None]] = field(default_factory=dict)
    shown: Callable[[Candidates], Columns] | None = None

    def columns(self, candidates: Candidates) -> Columns:
        """The columns of its decisions' tables, or what it shows instead: decisions without effect as if not made."""
        return candidates.columns(*self.decides) if self.shown is None else self.shown(candidates)
