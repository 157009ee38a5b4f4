"""Candidates for an OpenCL device that is this machine's CPU are tried as native code first.

A driver's compiler takes a second for a candidate, our own code generator a tenth of that.  On the same cores the same
schedule takes about the same time with both.  So a part of a run goes to the program's candidates on the CPU, of a
space that shares most of its decisions with the device's.  The fastest are the first that the driver gets (`transfer`).
What the pilot measures are records of the CPU, so that a later run for either device begins with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...backends.devices import processor_of
from ...errors import TemporaryError
from ...figures import latency
from ..candidates.search_space import SearchSpace
from . import events
from .budget import Budget
from .loop import Loop
from .run import Results, Run

if TYPE_CHECKING:
    from ...space.design.space import Space
    from ..records.record import Record
    from .events import Event
    from .study import Study

TRIALS = 48
"""Candidates of a pilot, at most."""
SHARE_OF_TRIALS, SHARE_OF_SECONDS = 0.4, 0.2
"""So many for each trial that the device may have, in so much of the seconds that a run has left when it begins."""
FEWEST, SHORTEST = 4, 2.0
"""Trials and seconds without which none is begun."""


def pilot(run: Run, space: Callable[[Run], Space], study: Callable[[Run, Space], Study]) -> list[Record]:
    """Spend a part of a run on native code, if its device is this machine's CPU; the candidates that hold.

    As many as are stored already are not tried again.  They are no trials of the device, and come beside those.
    `space` makes the design space of a run's program, and `study` what searches it.
    """
    settings, clock = run.settings, run.clock
    cpu = processor_of(run.task.target)
    trials = min(TRIALS, int(SHARE_OF_TRIALS * (settings.trial_limit or TRIALS / SHARE_OF_TRIALS)))
    seconds = None if settings.seconds is None else SHARE_OF_SECONDS * (settings.seconds - clock.seconds)
    if cpu is None or settings.pins or trials < FEWEST or (seconds is not None and seconds < SHORTEST):
        return []
    until = None if seconds is None else clock.seconds + seconds
    asked: dict[str, object] = {"target": cpu, "seconds": None, "stop_at": None, "mirror": False, "faults": {}}
    own = Run(
        settings.model_copy(update=asked), replace(run.task, target=cpu), run.database, run.executor, clock,
        Results(run.results.writer), lambda event: _pass_on(run, event),
    )  # fmt: skip
    run.send(events.Phase(phase="trying candidates as native code of the CPU"))
    found = space(own)
    trials -= _stored(own, found)
    if not found.sketches or trials < FEWEST:
        return []
    own = replace(own, settings=own.settings.model_copy(update={"trials": trials}))
    try:
        Loop(own, study(own, found), builders_schedule=True, budget=Budget(own, until)).play_rounds()
    finally:
        run.results.pilots = own.results.closed
    if own.results.best_us is not None:
        best = f"the fastest of {own.results.closed} takes {latency(own.results.best_us)} there"
        run.note(f"candidates were tried as native code of the CPU first; {best}")
    return list(own.results.valid.values())


def _stored(run: Run, space: Space) -> int:
    """How many candidates of a space have been measured, as far as the database tells."""
    if not run.settings.resume or not space.sketches:
        return 0
    try:
        records = run.database.top(run.task.script, run.task.target, run.task.interface, TRIALS, raced_first=False)
    except TemporaryError:
        return 0
    search_space = SearchSpace(space)
    return len({key for record in records if (key := search_space.stored(record)) is not None})


def _pass_on(run: Run, event: Event) -> None:
    """What the user hears of a pilot."""
    if isinstance(event, events.Note):
        run.note(f"native code of the CPU: {event.message}")
    elif isinstance(event, events.Phase):
        run.send(events.Phase(phase=f"native code of the CPU: {event.phase}"))
