"""Tuning a network: its tasks share the seconds and the workers of one run, and its operators agree on layouts.

```
tune      the tasks of the network under one rule for its tensors, and of what `LayoutSearch` would like to know
build     the whole that is cheapest by what was measured, and those under one rule for all tensors
race      these wholes take turns; the fastest is kept in the database
```
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..backends import host_load
from ..errors import DeviceLost, Interrupted, NoSchedule, StorageError, StridesmithError, TemporaryError
from ..figures import latency
from ..ir.deadline import OutOfTime, look, until
from ..ir.layout.layout import label_of
from ..ir.markup import table
from .alternatives import MOST, alternatives, whole_rows
from .chosen import Chosen, in_layouts, keep, kept
from .layout_search import LayoutSearch
from .run.kernels import Kernel, kernels_of
from .run.model import Model
from .tasks import tasks_of

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.records.database import Database
    from ..search.tuning.clock import Clock
    from ..search.tuning.events import Emit, Event
    from ..search.tuning.scheduler import Scheduler
    from ..search.workers.executor import Executor
    from .agreement import Prefers
    from .costs import Alternatives
    from .network import Network

CHOOSING = 0.1
"""The share of what is left then for what layouts there are, and which to begin with."""
LEAST_EACH = 1.5
"""Seconds for each task without which layouts are chosen by the estimate alone, and operators get all of them."""
MAKING, MAKING_EACH = 0.3, 0.02
"""Seconds that a whole takes from its kernels to its first call, in all and for each operator, on an idle machine."""
PLACING = 0.3
"""The share of what is left then for kernels that write over their inputs, and for what they take beside others."""
RACING = 0.08
"""The share of the seconds that are for building and racing whole models."""
LEAST_RACING, MOST_RACING = 2.0, 45.0
LARGEST_RACING = 0.3
"""The largest share that they get of a short run, which must tune something first."""
WHOLES = 4
"""Wholes that race."""
TURN_SECONDS, TURNS = 0.1, 7
CLEARLY = 0.99
"""What a whole must take of the time of the agreed one to be kept instead."""


@dataclass(frozen=True)
class Tuned:
    """What a run has found: the model, what the sum of its kernels foretells for a call, and what it cost.

    `wholes` are the microseconds of the whole models that raced, by the rule that made them.
    """

    model: Model
    predicted_us: float | None
    trials: int
    seconds: float
    stopped_by: str
    db: str
    wholes: Mapping[str, float]

    def __repr__(self) -> str:
        """How fast the model should be, and what that has cost: two lines."""
        foretold = "" if self.predicted_us is None else f": {latency(self.predicted_us)} foretold for a call"
        return f"<Tuned {self.model.network.name}{foretold};\n {self.cost}>"

    @property
    def cost(self) -> str:
        """``412 candidates in 60 s, stopped by seconds, in DATABASE``."""
        return f"{self.trials} candidates in {self.seconds:.0f} s, stopped by {self.stopped_by}, in {self.db}"

    def _repr_html_(self) -> str:
        wholes = ", ".join(f"{name} {latency(us)}" for name, us in self.wholes.items())
        foretold = "" if self.predicted_us is None else f"{latency(self.predicted_us)} for a call"
        rows = [("foretold", foretold), ("whole models that raced", wholes), ("cost", self.cost)]
        return table(f"{self.model.network.name}, tuned", ("", ""), [row for row in rows if row[1]])


def tune_network(
    network: Network,
    target: Target,
    seconds: float,
    *,
    db: str | None = None,
    seed: int = 0,
    address: str | None = None,
    start: float | None = None,
    emit: Emit | None = None,
    executor: Executor | None = None,
    layouts: Alternatives | None = None,
    prefers: Prefers | None = None,
    trace: str | None = None,
) -> Tuned:
    """Tune the tasks of a network for so many seconds and compile it with the best kernels that there are then.

    `executor` builds and measures, by default on Ray; `start` is the `time.monotonic()` value that the seconds count
    from.  What is found is stored at once, so that a run that is cut short, which raises Interrupted or DeviceLost, can
    be continued, and its model be compiled.  `layouts` are those that tensors may have, by default `alternatives` on
    CPUs, and `prefers` is a rule for them, by default none; what is agreed on is kept in the database.  `trace` is a
    file for the run's trace.
    """
    from ..search.records.database import Database
    from ..search.tuning.clock import Clock, crowding
    from ..search.tuning.events import Note, Phase
    from ..search.tuning.interruption import error_of, heard, uninterrupted
    from ..search.tuning.scheduler import Scheduler, Terms
    from ..search.tuning.trace import check_writable, traced
    from ..search.workers.executor import RayExecutor
    from ..search.workers.timeline import Timeline

    if trace is not None:
        check_writable(trace)
    load = host_load.look() if executor is None and target.execution.runs_on_the_host else None
    executor = executor or RayExecutor(address, target.cores, first_here=True)
    executor.timeline = timeline = None if trace is None else Timeline()
    clock = Clock(start, seconds)
    try:
        with heard(), contextlib.closing(Database(db)) as database:
            earlier = kept(network, target, database)
            for note in host_load.notes(load, target.threads if target.kind == "cpu" else 1):
                _tell(emit, Note(message=note))
            _tell(emit, Phase(phase="choosing layouts"))
            guide = _guide(network, target, layouts, prefers, earlier, clock)
            racing = racing_seconds(seconds) if guide.has_choices else 0.0
            making = (MAKING + MAKING_EACH * len(network.nodes)) * crowding()
            ending = racing + min(making, LARGEST_RACING * seconds)
            scheduler = Scheduler(guide.first_tasks(), database, executor, clock, Terms(seed, emit, ending), guide)
            tracing = traced(trace, network.name, timeline, clock, emit)
            with tracing, _best_kept(guide, scheduler, earlier, database):
                stopped_by = scheduler.play() if scheduler.shares else "exhausted"
                wholes = _wholes(guide, earlier)
                _tell(emit, Phase(phase=f"compiling {'the model' if len(wholes) == 1 else 'whole models'}"))
                built = _built(network, wholes, target, database, executor, clock)
                if earlier is None:  # what follows may be interrupted; an earlier choice stays until it loses a race
                    _keep_layouts(guide, earlier, database)
            models = _models(network, wholes, built, target, clock)
            _tell(emit, Phase(phase="racing whole models" if len(models) > 1 else "measuring the model"))
            times = _race(models, clock) if len(models) > 1 else {}
            winner = _winner(list(models), times)
            keep(wholes[winner], network, target, database)
            name = database.name
    except KeyboardInterrupt as error:
        raise error_of(error)("interrupted; what was measured so far is stored") from None
    finally:
        with uninterrupted():
            executor.close()
    found = models[winner]
    return Tuned(found, _predicted_us(found), scheduler.trials, clock.seconds, stopped_by, name, times)


def _tell(emit: Emit | None, event: Event) -> None:
    if emit is not None:
        emit(event.to_json())


def _guide(
    network: Network, target: Target, layouts: Alternatives | None, prefers: Prefers | None, earlier: Chosen | None,
    clock: Clock,
) -> LayoutSearch:  # fmt: skip
    """What chooses layouts; where there is too little time to measure several, one order for all by the estimate."""
    left = clock.left
    with until(clock.deadline(CHOOSING)):
        is_short = left is not None and left < LEAST_EACH * len(tasks_of(network, target)) and earlier is None
        if layouts is None:
            layouts = alternatives(network, target, MOST if target.kind == "cpu" else 1)
            layouts = {name: whole_rows(some) for name, some in layouts.items()} if is_short else layouts
        return LayoutSearch(network, layouts, target, prefers, earlier, is_short)


# ---------------------------------------------------------------- whole models


@contextlib.contextmanager
def _best_kept(guide: LayoutSearch, scheduler: Scheduler, earlier: Chosen | None, database: Database) -> Iterator[None]:
    """Keep the cheapest layouts of what was measured if a run is cut short, so that its records are found by them.

    If some operator has no kernel yet, the layouts in which the others were measured stay, unless there was a choice.
    """
    from ..search.tuning.interruption import error_of, uninterrupted

    try:
        yield
    except (KeyboardInterrupt, StridesmithError) as error:
        with uninterrupted():
            us = guide.predicted_us(scheduler)
            if us is not None or (earlier is None and guide.knows_something):
                _keep_layouts(guide, earlier, database)
        known = "" if us is None else f"; its best kernels so far are expected to take {latency(us)} together"
        if isinstance(error, KeyboardInterrupt):
            raise error_of(error)(f"interrupted while whole models were built{known}") from None
        if isinstance(error, Interrupted | DeviceLost):
            raise type(error)(f"{error}{known}") from None
        raise


def _keep_layouts(guide: LayoutSearch, earlier: Chosen | None, database: Database) -> None:
    from ..search.records.writer import PUT_SECONDS

    chosen = Chosen.of(guide.alternatives, guide.best())
    if earlier is None or (chosen.written, chosen.read) != (earlier.written, earlier.read):
        with contextlib.suppress(TemporaryError, StorageError):  # the run ends with an error that matters more
            keep(chosen, guide.network, guide.target, database, PUT_SECONDS)


def racing_seconds(seconds: float) -> float:
    """How many of the seconds of a run are for building and racing whole models."""
    return min(max(RACING * seconds, LEAST_RACING), MOST_RACING, LARGEST_RACING * seconds)


def _wholes(guide: LayoutSearch, earlier: Chosen | None) -> dict[str, Chosen]:
    """What may run, each once: what is agreed on first, then what was kept before, which is not to be lost to something
    slower, then what rules for all tensors make of what was measured.
    """
    if guide.prefers is not None:
        return {"agreed": Chosen.of(guide.alternatives, guide.whole())}
    uniform = {f"all {label_of(form)}": agreement for form, agreement in guide.uniform()}
    ordered = sorted(uniform, key=lambda rule: uniform[rule].cost)
    rules = {"as given": guide.tables.as_given, **{rule: uniform[rule] for rule in ordered}}
    found = {"agreed": guide.whole()} | {rule: whole for rule, whole in rules.items() if guide.is_measured(whole)}
    wholes = {rule: Chosen.of(guide.alternatives, agreement) for rule, agreement in found.items()}
    if earlier is not None:
        wholes = {"agreed": wholes["agreed"], "kept before": earlier, **wholes}
    distinct: dict[str, Chosen] = {}
    for rule, chosen in wholes.items():
        if chosen not in distinct.values():
            distinct[rule] = chosen
    return dict(list(distinct.items())[:WHOLES])


def _built(
    network: Network, wholes: Mapping[str, Chosen], target: Target, database: Database, executor: Executor, clock: Clock
) -> dict[str, tuple[Network, dict[str, Kernel]]]:
    """Networks with their kernels, each task compiled once: the first one, and others while there is time to race them.

    Raises NoSchedule where the first one could not be compiled in time.
    """
    known: dict[tuple[str, ...], Kernel] = {}
    found: dict[str, tuple[Network, dict[str, Kernel]]] = {}
    executor.until = clock.deadline()
    for rule, chosen in wholes.items():
        began = time.monotonic()
        made = in_layouts(network, chosen)
        tasks = tasks_of(made, target)
        news = [item for item in tasks if item.task.key not in known]
        try:
            with until(clock.deadline(0.5)):
                kernels = kernels_of(news, database, executor.build)
        except OutOfTime:
            if found:
                break
            raise NoSchedule(
                f"the {clock.limit:g} s were over before each of the {len(tasks)} programs of `{network.name}` had a "
                f"kernel; what was found is in {database.name}, and a longer run goes on from there"
            ) from None
        known |= {item.task.key: kernels[item.operators[0].name] for item in news}
        found[rule] = made, {node.name: known[item.task.key] for item in tasks for node in item.operators}
        if not _has_time(clock, 3 * (time.monotonic() - began) + _race_seconds(1 + len(found))):
            break
    return found


def _models(
    network: Network, wholes: dict[str, Chosen], built: Mapping[str, tuple[Network, dict[str, Kernel]]],
    target: Target, clock: Clock,
) -> dict[str, Model]:  # fmt: skip
    """Models of the whole networks: the first one, and others while there is time for a race.

    What is found of operators that are faster with memory of their own goes into `wholes`.
    """
    models: dict[str, Model] = {}
    for rule, (made, kernels) in built.items():
        began = time.monotonic()
        with until(clock.deadline(PLACING)):
            models[rule] = Model(made, kernels, target)
        if _has_time(clock, time.monotonic() - began + _race_seconds(2)):
            with contextlib.suppress(OutOfTime), until(clock.deadline(PLACING)):
                wholes[rule], models[rule] = _apart_where_faster(network, wholes[rule], models[rule])
        if not _has_time(clock, time.monotonic() - began + _race_seconds(1 + len(models))):
            break
    return models


def _race_seconds(models: int) -> float:
    return TURNS * TURN_SECONDS * models


def _has_time(clock: Clock, seconds: float) -> bool:
    left = clock.left
    return left is None or left > seconds


def _race(models: Mapping[str, Model], clock: Clock) -> dict[str, float]:
    """Microseconds of each model, which take turns, alone on this host; none where there was no time for two turns."""
    from ..search.workers import host_lock

    samples: dict[str, list[float]] = {rule: [] for rule in models}
    with contextlib.suppress(OutOfTime), until(clock.deadline()), host_lock.exclusive():
        for turn in range(TURNS):
            for rule in _rotated(list(models), turn):
                look()
                samples[rule].append(statistics.median(models[rule].measure(seconds=TURN_SECONDS)))
    if min(map(len, samples.values())) < 2:
        return {}
    return {rule: statistics.median(found) * 1e6 for rule, found in samples.items()}


def _winner(rules: Sequence[str], times: Mapping[str, float]) -> str:
    """The fastest where it clearly is, else the first of the rules, which is what was agreed on."""
    fastest = min(times, key=times.__getitem__, default=rules[0])
    return fastest if fastest != rules[0] and times[fastest] < CLEARLY * times[rules[0]] else rules[0]


def _apart_where_faster(network: Network, chosen: Chosen, model: Model) -> tuple[Chosen, Model]:
    """The model with operators whose results have memory of their own where that is faster than taking an input's."""
    from ..search.workers import host_lock

    over = frozenset(name for name, call in model.plan.calls.items() if call.artifact is not _code(model, name))
    if not over:
        return chosen, model

    def whole(apart: frozenset[str]) -> tuple[Chosen, Model]:
        made = replace(chosen, apart=apart)
        return made, Model(in_layouts(network, made), model.kernels, model.target)

    _, other = whole(over | chosen.apart)
    with host_lock.exclusive():
        mine, theirs = model.profile(), other.profile()
    slower = frozenset(name for name in over if theirs[name] < CLEARLY * mine[name])
    return whole(slower | chosen.apart) if slower else (chosen, model)


def _code(model: Model, operator: str) -> object:
    """The code of an operator's kernel as it was tuned."""
    return model.kernels[operator].compiled.artifact


def _rotated(rules: Sequence[str], turn: int) -> list[str]:
    return [*rules[turn % len(rules) :], *rules[: turn % len(rules)]]


def _predicted_us(model: Model) -> float | None:
    """The sum of what the kernels of a model took when they were tuned."""
    found = [k.record.latency_us if k.record else None for k in model.kernels.values()]
    known = [us for us in found if us is not None]
    return sum(known) if len(known) == len(found) else None
