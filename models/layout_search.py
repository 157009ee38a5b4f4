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
learned, and would go from one whole to the next.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING

from ..ir import dtypes
from .agreement import Agreement, Prefers, agree
from .chosen import Chosen
from .costs import Alternatives, CostTables, Form, Price
from .kinds import Combination, Kind
from .layouts import TensorLayout
from .prediction import BYTES_PER_US, FILLED_PER_US, PER_NEST_US, predicted_us

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.tasks.task import Task
    from ..search.tuning.scheduler import Scheduler, Share
    from .network import Network

HOPE = 0.35
"""The share of a latency that more turns may gain: half of it after one, a third after two, and so on."""
UNTRIED, UNSEEN = 0.85, 1.15
"""What an untried combination takes of what similar ones do: as can be hoped, and as must be feared."""
CARRIED = 0.93
"""What reading a border from a halo is hoped to leave of a latency."""
MIXED = 1.03
"""What a kernel between different layouts takes, of the mean of those that keep to one."""
FIRST_GAIN = 0.3
"""What a first turn gains over the kernel that the estimate likes best."""
ALL_FIRST = 3.3
"""What it counts as where a whole is to be measured to its end: more than any other turn is expected to gain."""
STORED_TURNS = 4.0
"""How many turns the database's best of a task counts as."""
EXPLORING = 0.6
"""The share of the seconds in which what was never measured is hoped for."""
HEAVY = 6
"""Kinds of operators with most work, of which the estimate is asked what to begin with."""
ESTIMATING = 0.04
"""The share of the seconds that may go to estimates."""


@dataclass(eq=False)
class Known:
    """What is known of a combination: its task, once it has been made, the task's share, and the estimate."""

    task: Task | None = None
    share: Share | None = None
    estimate_us: float | None = None


class LayoutSearch:
    """A guide for the scheduler of a network's tasks (`search.tuning.scheduler.Guide`).

    With `prefers` it starts as that rule has the tensors, and keeps to it.  What is stored of `earlier`, a choice of an
    earlier run, is known from the start.
    """

    def __init__(
        self,
        network: Network,
        alternatives: Alternatives,
        target: Target,
        prefers: Prefers | None = None,
        earlier: Chosen | None = None,
    ) -> None:
        self.network, self.alternatives, self.target, self.prefers = network, alternatives, target, prefers
        self.tables = CostTables(network, alternatives, target)
        self.earlier = None if earlier is None else earlier.among(alternatives, self.tables.as_given)
        self._known: dict[tuple[Kind, Combination], Known] = {}
        self._shares: dict[tuple[str, ...], Share] = {}
        self._estimating, self._revisions = 0.0, 0
        self.start = self._likely_start() if prefers is None else self.tables.under_rule(prefers)
        self.base = dict(self.tables.chosen(self.start))

    @property
    def has_choices(self) -> bool:
        """Whether any tensor may lie otherwise than ONNX has it."""
        return any(len(some) > 1 for some in self.alternatives.values())

    def first_tasks(self) -> list[tuple[Task, int]]:
        """The tasks of the network as it starts, with how often each is called."""
        return [(self._task(*at), n) for at, n in Counter(self.tables.chosen(self.start)).items()]

    # --- for the scheduler ------------------------------------------------------------------------

    def revise(self, scheduler: Scheduler) -> None:
        """Weights by the whole that is cheapest as far as can be hoped; at the end by the cheapest that is known."""
        self._look_up(scheduler)
        gain, explores = FIRST_GAIN, scheduler.clock.seconds < EXPLORING * scheduler.limit
        self._revisions += 1
        if scheduler.is_ending:
            found = self.best()
        elif explores and self._revisions % 2:
            found = self._hoped(scheduler)
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

    # --- wholes -----------------------------------------------------------------------------------

    def best(self, prefers: Prefers | None = None) -> Agreement:
        """The cheapest whole of what was measured; of what is likely where no whole was measured under the rule."""
        prefers = prefers or self.prefers
        measured = self._best_measured(prefers)
        return measured if measured.written else agree(self.tables.costs(self._price(UNSEEN)), prefers)

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
        """For each form that there is, the alternatives that have it; a tensor without one lies as ONNX has it."""
        forms = dict.fromkeys(layout.form for some in self.alternatives.values() for layout in some if len(some) > 1)
        for form in forms:
            yield form, {
                name: [k for k, layout in enumerate(some) if layout.form == form] or [0]
                for name, some in self.alternatives.items()
                if len(some) > 1
            }

    def _likely_start(self) -> Agreement:
        """The rule for all tensors under which the operators with most work take least, as the estimate has it."""
        as_given = self.tables.as_given
        wholes = [as_given, *(self.tables.under_rule(prefers) for _, prefers in self._rules())]
        counts = Counter(self.tables.chosen(as_given))
        work = {kind: n * self._task(kind, layouts).work.flops for (kind, layouts), n in counts.items()}
        heavy = sorted(work, key=lambda kind: -work[kind])[:HEAVY]
        if len(wholes) == 1 or not heavy:
            return as_given

        def cost(whole: Agreement) -> float:
            chosen = Counter(at for at in self.tables.chosen(whole) if at[0] in heavy)
            return sum(n * self._estimated_us(*at) for at, n in chosen.items())

        return min(wholes, key=cost)

    def _hoped(self, scheduler: Scheduler) -> Agreement:
        """The cheapest whole by hopeful costs; what it needs is looked up and estimated first, while there is time."""
        while True:
            found = agree(self.tables.costs(self._price(UNTRIED, HOPE)), self.prefers)
            news = [at for at in dict.fromkeys(self.tables.chosen(found)) if self._at(*at).task is None]
            if not news or self._estimating > ESTIMATING * scheduler.limit:
                return found
            began = time.monotonic()
            for at in news:
                if self._share(*at, scheduler).best_us is None:
                    self._estimate(*at)
            self._estimating += time.monotonic() - began

    # --- what is known ----------------------------------------------------------------------------

    def _at(self, kind: Kind, layouts: Combination) -> Known:
        return self._known.setdefault((kind, layouts), Known())

    def _task(self, kind: Kind, layouts: Combination) -> Task:
        known = self._at(kind, layouts)
        if known.task is None:
            known.task = kind.task(layouts, self.target)
        return known.task

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
        """What the cost model says of a combination, asked once."""
        known, task = self._at(kind, layouts), self._task(kind, layouts)
        if known.estimate_us is None:
            known.estimate_us = predicted_us(task.work.func, tuple(task.interface.items()), self.target)
        return known.estimate_us

    # --- costs ------------------------------------------------------------------------------------

    def _measured(self, kind: Kind, layouts: Combination) -> float:
        """The best so far; infinite for what was not measured."""
        known = self._known.get((kind, layouts))
        us = None if known is None or known.share is None else known.share.best_us
        return inf if us is None else us

    def _price(self, untried: float, hope: float = 0.0) -> Price:
        """What was measured, less what `hope` says of more turns; of what was not, a share of what seems likely."""
        guesses: dict[tuple[Kind, Combination], float] = {}
        carried = CARRIED if untried < 1.0 else 1.0

        def tried(kind: Kind, layouts: Combination) -> float | None:
            known = self._known.get((kind, layouts))
            share = None if known is None else known.share
            if share is None or share.is_untried:
                return None
            if share.best_us is None:
                return inf
            turns = STORED_TURNS if share.known_us is not None and share.loop is None else share.turns + share.stored
            return share.best_us * (1.0 if share.is_exhausted else 1.0 - hope / (1.0 + turns))

        def likely(kind: Kind, layouts: Combination) -> float:
            found = tried(kind, layouts)
            if found is not None:
                return found
            if (kind, layouts) not in guesses:
                guesses[kind, layouts] = self._guess(kind, layouts, likely, carried)
            return guesses[kind, layouts]

        def price(kind: Kind, layouts: Combination) -> float:
            found = tried(kind, layouts)
            return untried * likely(kind, layouts) if found is None else found

        return price

    def _guess(self, kind: Kind, layouts: Combination, price: Price, carried: float) -> float:
        """What a combination may take, from those that it resembles; infinite where nothing is known of its kind."""
        if kind not in self.tables.grids:
            return PER_NEST_US + sum(_nbytes(kind, k, layout) for k, layout in enumerate(layouts)) / BYTES_PER_US
        grid, base = self.tables.grids[kind], self.base.get(kind)
        if base is None or layouts == base:
            return inf
        bare = tuple(layout.without_halo for layout in layouts)
        if bare != layouts:
            halos = sum(layout.has_halo for layout in layouts[: kind.reads])
            filled = sum(_nbytes(kind, k, layout) for k, layout in enumerate(layouts) if k >= kind.reads)
            filled -= sum(_nbytes(kind, k, layout) for k, layout in enumerate(bare) if k >= kind.reads)
            return price(kind, bare) * carried**halos + filled / FILLED_PER_US
        near = [one for one in map(grid.uniform, (layout.form for layout in layouts)) if one != layouts]
        if all(one == base for one in near):  # the same for all tensors
            return price(kind, base) * self._relative_estimate(kind, layouts)
        return MIXED * sum(price(kind, one) for one in near) / len(near)

    def _relative_estimate(self, kind: Kind, layouts: Combination) -> float:
        """By the cost model, what a combination takes of what the kind takes as it started."""
        mine, base = self._at(kind, layouts).estimate_us, self._at(kind, self.base[kind]).estimate_us
        return 1.0 if mine is None or base is None else mine / base


def _nbytes(kind: Kind, slot: int, layout: TensorLayout) -> int:
    """Bytes of a tensor of a kind in a layout."""
    return prod(layout.physical_shape) * dtypes.nbytes(kind.func.buffers[kind.slots.index(slot)].dtype)
