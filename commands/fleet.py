"""`stridesmith --devices all`: a run for each device of this host or of a cluster, shown together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError, of_kind
from ..figures import latency, number, percent
from .options import SearchOptions, all_work
from .output import Output
from .progress import PLAIN_SECONDS, State, clock
from .tune import settings_of

if TYPE_CHECKING:
    from rich.table import Table

    from ..configs import Entry
    from ..search.tuning.fleet import Fleet, Outcome, Place
    from ..search.tuning.settings import TuneSettings


def run(options: SearchOptions, output: Output, started: float) -> int:
    """Tune all that the options name for each device; `started` is when the process began (`time.monotonic`).

    Returns 0.  Raises the errors of the exit codes; where some runs found nothing, those of the others are recorded.
    """
    from ..search.tuning.fleet import KINDS, fleet

    kind = options.target
    if kind not in KINDS:
        raise UsageError(f"--devices all takes --target {' or '.join(KINDS)}, without a device, but got {kind!r}")
    for name, given in (("model", options.model), ("trace", options.trace)):
        if given:
            raise UsageError(f"--devices does not go with --{name}, which is for one device's run")
    entries = all_work(options)
    asked = [settings_of(options, entry, None) for entry in entries]
    threads = _threads(asked)
    output.line("stridesmith: looking for devices")
    with fleet(kind, options.address, options.db, threads) as found:
        _tell(found, output)
        if options.dry_run:
            return 0
        with FleetProgress(output, entries, found.places, started) as progress:
            outcomes = found.tune(asked, progress)
    _overview(outcomes, entries, output)
    return 0


def _threads(asked: Sequence[TuneSettings]) -> int | None:
    """How many threads of a CPU the runs use, which is a part of what their device is."""
    found = {settings.threads for settings in asked}
    if len(found) > 1:
        told = " and ".join(sorted("all" if threads is None else str(threads) for threads in found))
        raise UsageError(f"--devices takes runs of one number of threads, but the lists ask for {told}; give --threads")
    return found.pop()


def _tell(fleet: Fleet, output: Output) -> None:
    """Tell where each device is measured, and what is left out."""
    places = fleet.places
    output.event({
        "event": "devices", "kind": fleet.kind,
        "devices": [{"device_key": p.device, "host": p.node.address, "target": p.selector} for p in places],
    })  # fmt: skip
    for note in fleet.notes:
        output.event({"event": "note", "message": note})
        output.prose(f"note: {note}")
    output.table("devices", ("device", "measured on", "as"), [(p.device, p.node.address, p.selector) for p in places])


def _overview(outcomes: Sequence[Outcome], entries: Sequence[Entry], output: Output) -> None:
    """What came of each run.  Raises the error of the first run that has found nothing."""
    rows: list[tuple[object, ...]] = []
    for outcome in outcomes:
        last, name, device = outcome.last, entries[outcome.entry].name, outcome.place.device
        if outcome.is_found:
            speed = number(last.get("gflops")), percent(last.get("peak_fraction"))
            rows.append((name, device, latency(last["latency_us"]), *speed, last["record"]))
        else:
            rows.append((name, device, "-", "", "", last["message"]))
    output.line()
    output.table("all of them", ("name", "device", "latency", "GFLOP/s", "of peak", "record"), rows)
    failed = [outcome for outcome in outcomes if not outcome.is_found]
    if not failed:
        return
    first = failed[0]
    raise of_kind(first.last["kind"])(
        f"{len(failed)} of {len(outcomes)} runs have no result, those of the others are recorded; the first one: "
        f"{entries[first.entry].name} on {first.place.device}: {first.last['message']}"
    )


class FleetProgress(AbstractContextManager["FleetProgress"]):
    """Shows the runs of all devices: a row for each in a terminal, else a line when one has got better.

    In JSON the events themselves are the display, each with its host and the key of its device.
    """

    def __init__(self, output: Output, entries: Sequence[Entry], places: Sequence[Place], started: float) -> None:
        self.output, self.entries = output, entries
        self.states = {place.device: State() for place in places}
        self.hosts = {place.device: place.node.address for place in places}
        self.names = dict.fromkeys(self.states, "")
        self._live: AbstractContextManager[object] = nullcontext()
        self._began = started
        self._told: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> Self:
        if self.output.format == "rich" and self.output.console.is_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table, console=self.output.console, refresh_per_second=4, transient=True
            )
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)

    def __call__(self, place: Place, entry: int, event: Mapping[str, Any]) -> None:
        """Take one event of a run."""
        told = {**event, "host": place.node.address, "device_key": place.device}
        self.output.event(told)
        if event["event"] == "start":
            self.states[place.device] = State(limit_trials=event["limit_trials"], limit_seconds=event["limit_seconds"])
        state = self.states[place.device]
        state.take(told)
        self.hosts[place.device], self.names[place.device] = place.node.address, self.entries[entry].name
        if event["event"] in ("note", "error"):
            self.output.prose(f"{event['event']}: {place.device}: {event['message']}")
        elif isinstance(self._live, nullcontext) and event["event"] != "start":
            self._plain(place.device, event["event"] == "done")

    def _plain(self, device: str, is_done: bool) -> None:
        state, now = self.states[device], time.monotonic()
        at, shown = self._told.get(device, (0.0, ""))
        text = f"{device}  {self.names[device]}  {state.count()}  best {state.best()}"
        if text != shown and (is_done or now - at >= PLAIN_SECONDS):
            self._told[device] = now, text
            self.output.line(f"{clock(now - self._began)}  {text}{'  (done)' if is_done else ''}")

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=clock(time.monotonic() - self._began),
                      title_justify="left")  # fmt: skip
        for column in ("device", "measured on", "workload", "trials", "best", "failed"):
            table.add_column(column, overflow="fold")
        for device, state in self.states.items():
            cells = (device, self.hosts[device], self.names[device], state.count(), state.best(), state.failures())
            table.add_row(*map(Text, cells))
        return table
