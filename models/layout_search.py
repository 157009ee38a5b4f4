"""Which layouts are worth measuring: what the solver would choose if hopes came true, until measurements say otherwise.

First all operators are tuned under one rule for all tensors, that which the estimate likes best for the operators with
most work: as ONNX has them, channels last, or in blocks.  From then on, between turns:

```
cost      measured: the best so far, less what more candidates may gain
          not measured: what similar combinations take, by the estimate, less a share for hope
solve     the cheapest whole by these costs; its operators and copies are what seconds go to
```

A whole that only seems cheap becomes dearer with each turn, and another one takes its place; one that is cheap stays,
and gets the seconds.  That is optimism in the face of uncertainty (Lai and Robbins): what is worth knowing is what the
hopeful choice contains.  In every other turn, and after a part of the seconds in each, what was not measured counts as
dearer than what resembles it, and the whole that is cheapest then is measured to its end: hopes change with what is
learned, and would go from one whole to the next.  The hope for an operator's other layouts falls with each of them that
is tried; where the hopeful whole would save little, its first turns count for no more than that, and towards the end
only what was tried goes on.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf, prod
from typing import TYPE_CHECKING

from ..ir import dtypes
from ..ir.deadline import OutOfTime, until
from ..ir.layout.layout import Layout
from ..search.candidates import relatives
from .agreement import Agreement, Prefers, agree
from .alternatives import is_slot
from .chosen import Chosen
from .costs import Alternatives, CostTables, Form, Price
from .kinds import Combination, Kind
from .prediction import BYTES_PER_US, FILLED_PER_US, PER_NEST_US, predicted_us

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.tasks.task import Task
    from ..search.tuning.scheduler import Scheduler
    from ..search.tuning.share import Share
    from .network import Network

HOPE = 0.35
"""The share of a latency that more turns may gain: half of it after one, a third after two, and so on."""
UNTRIED, UNSEEN = 0.85, 1.15
"""What an untried combination takes of what similar ones do: as can be hoped, and as must be feared."""
CARRIED = 0.93
"""What reading a border from a halo is hoped to leave of a latency."""
MIXED = 1.03
"""What a kernel between different layouts takes, of the mean of those that keep to one."""
UNKNOWN_US = 1e6
"""What an operator counts as of which nothing is known in the layouts that it starts with: as much in all layouts, but
for what keeps it in those."""
FAILED_US = 1e8
"""What it counts as where no candidate was valid, nor the program as it is written: any other layouts are better."""
FIRST_GAIN = 0.3
"""What a first turn gains over the kernel that the estimate likes best."""
ALL_FIRST = 3.3
"""What it counts as where a whole is to be measured to its end: more than any other turn is expected to gain."""
STORED_TURNS = 4.0
"""How many turns the database's best of a task counts as."""
EXPLORING = 0.6
"""The share of the seconds in which what was never measured is hoped for."""
HEAVY = 8
"""Kinds of operators that stand for all work, of which the estimate is asked what to begin with."""
ESTIMATING, ESTIMATES = 0.04, 4
"""The share of the seconds that may go to estimates, and how many of them may follow each other: builders wait."""
LATE = 0.75
"""The share of the seconds after which no combination is tried that never was."""
SMALL_SAVING = 0.05
"""What a hopeful whole must save of the best one to be measured as fast as can be."""


@dataclass(eq=False)
class Known:
    """What is known of a combination: its task, once it has been made, the task's share, and the estimate."""

    task: Task | None = None
    share: Share | None = None
    estimate_us: float | None = None


class LayoutSearch:
    """A guide for the scheduler of a network's tasks (`search.tuning.scheduler.Guide`).

    With `prefers` it starts as that rule has the tensors, and keeps to it; `is_short` says that there is no time to
    measure another rule than the one that it starts with.  What is stored of `earlier`, a choice of an earlier run, is
    known from the start.
    """

    def __init__(
        self,
        network: Network,
        alternatives: Alternatives,
        target: Target,
        prefers: Prefers | None = None,
        earlier: Chosen | None = None,
        is_short: bool = False,
    ) -> None:
        self.network, self.alternatives, self.target = network, alternatives, target
        self.tables = CostTables(network, alternatives, target)
        self.earlier = None if earlier is None else earlier.among(alternatives, self.tables.as_given)
        self._known: dict[tuple[Kind, Combination], Known] = {}
        self._shares: dict[tuple[str, ...], Share] = {}
        self._estimating, self._revisions = 0.0, 0
        start = self._likely_start(is_short) if prefers is None else (self.tables.under_rule(prefers), prefers)
        self.start, rule = start
        self.prefers = rule if is_short else prefers
        self.base = dict(self.tables.chosen(self.start))

    @property
    def has_choices(self) -> bool:
        """Whether a whole may lie otherwise than in the one way that a rule has all tensors."""
        return self.prefers is None and any(len(some) > 1 for some in self.alternatives.values())

    def first_tasks(self) -> list[tuple[Task, int]]:
        """The tasks of the network as it starts, with how often each is called."""
        return [(self._task(*at), n) for at, n in Counter(self.tables.chosen(self.start)).items()]

    # --- for the scheduler ------------------------------------------------------------------------

    def revise(self, scheduler: Scheduler) -> None:
        """Weights by the whole that is cheapest as far as can be hoped; at the end by the cheapest that is known."""
        self._look_up(scheduler)
        gain, share_of_limit = FIRST_GAIN, scheduler.clock.seconds / scheduler.limit
        self._revisions += 1
        if scheduler.is_ending:
            found = self.best()
        elif share_of_limit < EXPLORING and self._revisions % 2:
            found = self._hoped(scheduler)
            gain = self._first_gain(found)
        elif share_of_limit > LATE and scheduler.is_whole:
            found = agree(self.tables.costs(self._price(inf, HOPE)), self.prefers)
        else:
            found = agree(self.tables.costs(self._price(UNSEEN, HOPE)), self.prefers)
            gain = ALL_FIRST
        price, needed = self._price(1.0), Counter[int]()
        for at in self.tables.chosen(found):
            share = self._share(*at, scheduler)
            share.hoped_us = gain * price(*at)
            needed[share.number] += 1
        if needed:
            for share in scheduler.shares:
                share.weight = needed[share.number]

    def predicted_us(self, scheduler: Scheduler) -> float | None:
        """The cheapest whole of what was measured."""
        self._look_up(scheduler)
        cost = self._best_measured(self.prefers).cost
        return None if cost == inf else cost

    @property
    def knows_something(self) -> bool:
        """Whether any task has a kernel."""
        return any(share.best_us is not None for share in self._shares.values())

    # --- wholes -----------------------------------------------------------------------------------

    def best(self, prefers: Prefers | None = None) -> Agreement:
        """The cheapest whole of what was measured; of what is likely where no whole was measured under the rule."""
        prefers = prefers or self.prefers
        measured = self._best_measured(prefers)
        return measured if measured.written else agree(self.tables.costs(self._price(UNSEEN)), prefers)

    def whole(self) -> Agreement:
        """The cheapest whole of what was measured; without any the one that the search began with, whose programs are
        compiled first of all."""
        best = self.best()
        return best if self.is_measured(best) else self.start

    def _best_measured(self, prefers: Prefers | None) -> Agreement:
        """The cheapest whole of which everything was measured; of infinite cost where there is none."""
        return agree(self.tables.costs(self._measured), prefers)

    def uniform(self) -> Iterator[tuple[Form, Agreement]]:
        """The cheapest of what was measured under one rule for all tensors, for each form that there is."""
        for form, prefers in self._rules():
            yield form, self.best(prefers)

    def is_measured(self, agreement: Agreement) -> bool:
        """Whether every combination that it runs was measured."""
        return all(self._measured(*at) < inf for at in self.tables.chosen(agreement))

    def _rules(self) -> Iterator[tuple[Form, Prefers]]:
        """Each form of a layout, with the alternatives of every tensor that have it; ONNX's layout without any."""
        forms = dict.fromkeys(layout.dims for some in self.alternatives.values() for layout in some if len(some) > 1)
        for form in forms:
            yield (
                form,
                {
                    name: [k for k, layout in enumerate(some) if layout.dims == form] or [0]
                    for name, some in self.alternatives.items()
                    if len(some) > 1
                },
            )

    def _likely_start(self, is_short: bool) -> tuple[Agreement, Prefers]:
        """The rule for all tensors under which the operators with most work take least, as the estimate has it.

        Those that stand for all work (`standing_for`) are estimated by a deadline (`ir.deadline`), and what brings
        elements from one order to another in all operators.  A short run looks at the form alone that most bytes may
        have, and at few operators.
        """
        as_given = self.tables.as_given
        rules: list[Prefers] = [{name: [0] for name, some in self.alternatives.items() if len(some) > 1}]
        rules += [prefers for form, prefers in self._rules() if not is_short or form == self._widest]
        wholes = [as_given, *map(self.tables.under_rule, rules[1:])]
        counts = Counter(self.tables.chosen(as_given))
        work = {kind: n * self._task(kind, layouts).work.flops for (kind, layouts), n in counts.items()}
        totals = [self._moved_us(whole) for whole in wholes]
        with contextlib.suppress(OutOfTime):
            for kind, times in standing_for(work, HEAVY // (1 + is_short)) if len(rules) > 1 else ():
                chosen = (Counter(at for at in self.tables.chosen(whole) if at[0] == kind) for whole in wholes)
                costs = [sum(n * self._estimated_us(*at) for at, n in found.items()) for found in chosen]
                totals = [total + times * cost for total, cost in zip(totals, costs, strict=True)]
        least = min(range(len(rules)), key=totals.__getitem__)
        return wholes[least], rules[least]

    @property
    def _widest(self) -> Form:
        """The form other than ONNX's that tensors of most bytes may have."""
        nbytes = Counter[Form]()
        for name, some in self.alternatives.items():
            for form in {layout.dims for layout in some[1:] if not layout.has_halo}:
                nbytes[form] += self.network.tensors[name].nbytes
        return max(nbytes, key=nbytes.__getitem__, default=())

    def _moved_us(self, whole: Agreement) -> float:
        """What copies take, and operators between orders: the smaller part of what they have is moved to the other one.

        What comes into the network and leaves it is not counted, which lies as ONNX has it under every rule.
        """
        found = 0.0
        for copy in whole.copies:
            found += PER_NEST_US + self.network.tensors[copy.tensor].nbytes / BYTES_PER_US
        outside = {*self.network.inputs, *self.network.outputs, *self.network.constants}
        for node in self.network.nodes:
            nbytes = Counter[Form]()
            for name in {*node.inputs, *node.outputs} & self.alternatives.keys() - outside:
                number = whole.read.get((node.name, name), whole.written[name])
                layout = self.alternatives[name][number]
                nbytes[() if layout.is_plain else layout.dims] += self.network.tensors[name].nbytes
            if len(nbytes) > 1:
                found += (nbytes.total() - max(nbytes.values())) / BYTES_PER_US
        return found

    def _hoped(self, scheduler: Scheduler) -> Agreement:
        """The cheapest whole by hopeful costs; what takes most of it is estimated first, while there is time."""
        left = ESTIMATES
        while True:
            found = agree(self.tables.costs(self._price(UNTRIED, HOPE)), self.prefers)
            price, counts = self._price(1.0), Counter(self.tables.chosen(found))
            news = sorted(filter(self._lacks_estimate, counts), key=lambda at: -counts[at] * price(*at))
            if not news:
                return found
            for at in news:
                if not left or self._estimating > ESTIMATING * scheduler.limit:
                    return found
                began = time.monotonic()
                rest = ESTIMATING * scheduler.limit - self._estimating
                try:
                    if self._share(*at, scheduler).best_us is None:
                        with until(began + rest):
                            self._estimate(*at)
                        left -= 1
                except OutOfTime:
                    return found
                finally:
                    self._estimating += time.monotonic() - began

    def _first_gain(self, hoped: Agreement) -> float:
        """The share of what it takes that a first turn of each untried combination is hoped to gain.

        Where the hopeful whole saves little beside the best of what was tried, no more than that.
        """
        tried = agree(self.tables.costs(self._price(inf, HOPE)), self.prefers).cost
        price, counts = self._price(1.0), Counter(self.tables.chosen(hoped))
        untried = sum(n * price(*at) for at, n in counts.items() if self._measured(*at) == inf)
        if tried == inf or tried - hoped.cost > SMALL_SAVING * tried or not untried:
            return FIRST_GAIN
        return min(FIRST_GAIN, max(tried - hoped.cost, 0.0) / untried)

    # --- what is known ----------------------------------------------------------------------------

    def _at(self, kind: Kind, layouts: Combination) -> Known:
        return self._known.setdefault((kind, layouts), Known())

    def _task(self, kind: Kind, layouts: Combination) -> Task:
        known = self._at(kind, layouts)
        if known.task is None:
            known.task = kind.task(layouts, self.target)
        return known.task

    def _lacks_estimate(self, at: tuple[Kind, Combination]) -> bool:
        """Whether a combination that was never tried could be estimated; copies cannot."""
        known, (kind, _) = self._at(*at), at
        tried = known.share is not None and not known.share.is_untried
        return not tried and known.estimate_us is None and kind in self.base and kind in self.tables.grids

    def _share(self, kind: Kind, layouts: Combination, scheduler: Scheduler) -> Share:
        """The share of a combination, which other combinations may have, too, where they are one program."""
        known, task = self._at(kind, layouts), self._task(kind, layouts)
        if known.share is None:
            if task.key not in self._shares:
                self._shares[task.key] = scheduler.add(task, 0)
            known.share = self._shares[task.key]
        return known.share

    def _look_up(self, scheduler: Scheduler) -> None:
        """Find the shares of the tasks that the scheduler began with, and add those of an earlier choice."""
        if not self._shares:
            self._shares = {share.run.task.key: share for share in scheduler.shares}
            for known in self._known.values():
                if known.task is not None:
                    known.share = self._shares.get(known.task.key)
            for at in () if self.earlier is None else self.tables.chosen(self.earlier):
                self._share(*at, scheduler)

    def _estimate(self, kind: Kind, layouts: Combination) -> None:
        """Ask the cost model about a combination, and about the one that the kind started with."""
        if kind not in self.base or kind not in self.tables.grids:
            return  # a copy
        for combination in (layouts, self.base[kind]):
            self._estimated_us(kind, combination)

    def _estimated_us(self, kind: Kind, layouts: Combination) -> float:
        """What the cost model says of a combination, asked once; room that is nobody's changes nothing."""
        layouts = tuple(layout.without_halo if is_slot(layout) else layout for layout in layouts)
        known, task = self._at(kind, layouts), self._task(kind, layouts)
        if known.estimate_us is None:
            known.estimate_us = predicted_us(task.work.func, tuple(task.interface.items()), self.target)
        return known.estimate_us

    # --- costs ------------------------------------------------------------------------------------

    def _measured(self, kind: Kind, layouts: Combination) -> float:
        """The best so far; infinite for what was not measured."""
        known = self._known.get((kind, layouts))
        us = None if known is None or known.share is None else known.share.trial_us
        return inf if us is None else us

    def _price(self, untried: float, hope: float = 0.0) -> Price:
        """What was measured, less what `hope` says of more turns; of what was not, a share of what seems likely."""
        guesses: dict[tuple[Kind, Combination], float] = {}
        others = Counter(
            kind for (kind, layouts), known in self._known.items()
            if known.share is not None and not known.share.is_untried and layouts != self.base.get(kind)
        )  # fmt: skip
        carried = CARRIED if untried < 1.0 else 1.0

        def tried(kind: Kind, layouts: Combination) -> float | None:
            known = self._known.get((kind, layouts))
            share = None if known is None else known.share
            if share is None or share.is_untried or (share.best_us is None and share.is_playing):
                return None
            if share.best_us is None:
                return FAILED_US
            turns = STORED_TURNS if share.known_us is not None and share.loop is None else share.turns + share.stored
            return share.best_us * (1.0 if share.is_exhausted else 1.0 - hope / (1.0 + turns))

        def likely(kind: Kind, layouts: Combination) -> float:
            found = tried(kind, layouts)
            if found is not None:
                return min(found, UNKNOWN_US)
            if (kind, layouts) not in guesses:
                guesses[kind, layouts] = self._guess(kind, layouts, likely, carried)
            return guesses[kind, layouts]

        def price(kind: Kind, layouts: Combination) -> float:
            found = tried(kind, layouts)
            if found is not None:
                return found
            hoped = untried if untried >= 1.0 else 1.0 - (1.0 - untried) / (1.0 + others[kind])  # less after each try
            return hoped * likely(kind, layouts)

        return price

    def _guess(self, kind: Kind, layouts: Combination, price: Price, carried: float) -> float:
        """The time that a combination may take, guessed from combinations that resemble it."""
        if kind not in self.tables.grids:
            return PER_NEST_US + sum(_nbytes(kind, k, layout) for k, layout in enumerate(layouts)) / BYTES_PER_US
        grid, base = self.tables.grids[kind], self.base.get(kind)
        if base is None or layouts == base:
            return UNKNOWN_US
        bare = tuple(layout.without_halo for layout in layouts)
        if bare != layouts:
            halos = sum(layout.has_halo and layout.promises for layout in layouts[: kind.reads])
            filled = sum(
                _nbytes(kind, k, layout) - _nbytes(kind, k, bare[k])
                for k, layout in enumerate(layouts)
                if k >= kind.reads and layout.promises
            )
            return price(kind, bare) * carried**halos + filled / FILLED_PER_US
        near = [one for one in map(grid.uniform, (layout.dims for layout in layouts)) if one != layouts]
        if all(one == base for one in near):  # the same for all tensors
            return price(kind, base) * self._relative_estimate(kind, layouts)
        return MIXED * sum(price(kind, one) for one in near) / len(near)

    def _relative_estimate(self, kind: Kind, layouts: Combination) -> float:
        """The estimated time of a kind in these layouts, as a share of that in the layouts it started with."""
        mine, base = self._at(kind, layouts).estimate_us, self._at(kind, self.base[kind]).estimate_us
        return 1.0 if mine is None or base is None else mine / base


def standing_for(work: Mapping[Kind, float], most: int) -> list[tuple[Kind, float]]:
    """At most so many kinds that stand for all of them, each with the times of its own work that it stands for.

    Kinds whose programs differ in whole numbers alone, such as extents, are a family.  A family has kinds by its share
    of the work (the method of D'Hondt), and these are in the middle of parts of equal work, from large to small: what a
    layout is worth depends on extents.
    """
    families: dict[str, list[Kind]] = {}
    for kind, amount in work.items():
        if amount:
            families.setdefault(relatives.form(kind.key[0]), []).append(kind)
    totals = {name: sum(work[kind] for kind in kinds) for name, kinds in families.items()}
    seats = Counter[str]()
    open_ones = set(families)
    while open_ones and seats.total() < most:
        name = max(sorted(open_ones), key=lambda name: totals[name] / (1 + seats[name]))
        seats[name] += 1
        if seats[name] == len(families[name]):
            open_ones.remove(name)
    found: dict[Kind, float] = {}
    for name, count in seats.items():
        kinds = sorted(families[name], key=lambda kind: -work[kind])
        if count == len(kinds):
            found |= dict.fromkeys(kinds, 1.0)
            continue
        ends, part = list(accumulate(work[kind] for kind in kinds)), totals[name] / count
        for number in range(count):
            middle = kinds[bisect(ends, part * (number + 0.5))]
            found[middle] = found.get(middle, 0.0) + part / work[middle]
    return sorted(found.items(), key=lambda item: -item[1] * work[item[0]])


def _nbytes(kind: Kind, slot: int, layout: Layout) -> int:
    """Bytes of a tensor of a kind in a layout."""
    return prod(layout.physical_shape) * dtypes.nbytes(kind.func.buffers[kind.slots.index(slot)].dtype)
