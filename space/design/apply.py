"""The techniques at work on one anchor: its decisions, the candidates that can be built, and how one is scheduled.

All rules about candidates are arithmetic on the numbers of decisions; no program is rewritten for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import prod

import numpy as np

from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ..schedule import Schedule
from .candidates import Bools, Candidates, Columns, Ints
from .decision import Collector
from .plan import Plan
from .program import Anchor
from .stages import loop_of
from .structure import Open, Site, Structure
from .techniques import TECHNIQUES
from .techniques.technique import Phase, Technique

FEW = 3
"""Where fewer than one in so many candidates is left, only those are judged further: what is known of all is lost."""
COPIES = 32
"""How many candidates that are drawn may have what they all begin with in common."""


def prepared(schedule: Schedule, constants: frozenset[str], without: Collection[Technique] = ()) -> Schedule:
    """The schedule with every step of the techniques, but those of some, that leaves nothing to decide."""
    for technique in TECHNIQUES:
        if technique not in without:
            schedule = technique.prepares(schedule, constants)
    return schedule


def open_decisions(
    func: PrimFunc, anchor: Anchor, structure: Structure, target: Target, prefix: str, chunks: int = 0
) -> Open:
    """Every decision of an anchor in a structure, named under `prefix`; in one of several `chunks` none is shared."""
    out, site = Collector(prefix), Site(func, anchor, structure, target, chunks)
    for technique in TECHNIQUES:
        technique.opens(site, out)
    return Open(anchor, structure, tuple(out.decisions), out.numbers, chunks)


def verdicts(part: Open, choices: Ints, target: Target) -> Iterator[tuple[str, Bools]]:
    """Every rule's name, and the candidates that it lets through."""
    candidates = Candidates(part, choices, target)
    for technique in TECHNIQUES:
        for rule, passed in technique.excludes(candidates):
            yield rule, np.broadcast_to(passed, len(choices))


def feasible(part: Open, choices: Ints, target: Target) -> Bools:
    """True where no rule excludes the candidate."""
    found: Bools = np.zeros(len(choices), dtype=bool)
    numbered = np.column_stack([choices, np.arange(len(choices))])
    found[_left(part, numbered, target, lambda rows, _: rows)[:, -1]] = True
    return found


def draw(part: Open, values: Sequence[Ints], rng: np.random.Generator, count: int, target: Target) -> Ints:
    """Candidates that no rule excludes, (N, D), of `count` that are begun; each as likely as another.

    Decision `d` takes each of `values[d]` as often as another.  Where the techniques so far have left few candidates,
    each of those goes on as several, for which the decisions that no rule has read are drawn anew: what has been judged
    does not depend on them, so that each candidate is as likely as if whole ones were drawn and judged, of which a few
    in a thousand would be left on a GPU.  They come in an order of chance.
    """
    copies = COPIES

    def several(rows: Ints, read: set[int]) -> Ints:
        nonlocal copies
        unread = [d for d in range(len(values)) if d not in read]
        different = prod(len(part.decisions[d]) for d in unread)
        times = max(1, min(copies, count // len(rows), different // FEW))
        rows, copies = np.repeat(rows, times, axis=0), copies // times
        if times > 1:
            for d in unread:
                rows[:, d] = values[d][rng.integers(len(values[d]), size=len(rows))]
        return rows

    return rng.permutation(_left(part, whole_rows(values, rng, count), target, several))


def whole_rows(values: Sequence[Ints], rng: np.random.Generator, count: int) -> Ints:
    """`count` random rows, one alternative for each of the D decisions, uniform over `values[d]`; shape (count, D).

    A decision's alternatives are neighbours in memory, since rules look at decisions.
    """
    return np.stack([v[rng.integers(len(v), size=count)] for v in values]).T


def _left(part: Open, rows: Ints, target: Target, thinned: Callable[[Ints, set[int]], Ints]) -> Ints:
    """The rows that no rule excludes; what stands behind the decisions in a row stays with it.

    Each technique judges what those before it have left.  Where that is few, `thinned`, given those rows and which
    decisions have been read, says with which rows to go on: those, or others that differ in what has not been read.
    """
    candidates, ok = Candidates(part, rows, target), np.ones(len(rows), dtype=bool)
    for technique in TECHNIQUES:
        for _, passed in technique.excludes(candidates):
            ok &= passed
        if FEW * np.count_nonzero(ok) >= len(rows):
            continue
        if not ok.any():
            return rows[ok]
        rows, read = thinned(rows[ok], candidates.read), candidates.read
        candidates, ok = Candidates(part, rows, target), np.ones(len(rows), dtype=bool)
        candidates.read |= read
    return rows[ok]


def columns(candidates: Candidates) -> Columns:
    """The numbers by which the cost model knows the decisions of candidates."""
    return {name: values for technique in TECHNIQUES for name, values in technique.columns(candidates).items()}


def schedule_anchor(sch: Schedule, part: Open, choice: Sequence[int], target: Target) -> None:
    """Apply one anchor's decisions.  Raises ScheduleError where a primitive refuses."""
    plan = Plan(sch, Candidates(part, np.asarray([choice], np.int64), target), part.anchor.block, part.anchor.epilogue)
    plan.loops = {number: loop_of(sch, plan.block, axis) for number, axis in enumerate(part.anchor.axes)}
    for phase in Phase:
        for technique in TECHNIQUES:
            if phase in technique.applies:
                technique.applies[phase](plan)
