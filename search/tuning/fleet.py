"""Runs on every device of a kind: of this host, and with an address of the hosts of a Ray cluster.

```
nodes      this host, or the nodes of the cluster, with the devices that they say they have
places     each device once: here if it is here, else where fewest cores build
runs       a process on each host makes them for its devices, one after the other; hosts do so beside each other
```

Each run is one of `tuner`, on the host whose device it measures; on a cluster all nodes build for all runs.  Where a
host is lost, its runs that have not ended begin again on another one that has the device, if there is any.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...errors import DeviceMissing, TemporaryError, UsageError
from ..workers.cluster import Node, node_here, nodes_of
from ..workers.hosts import Host, HostProcess, News, RayHost
from ..workers.ray_calls import RayCalls, RayLost
from ..workers.ray_session import RaySession
from .interruption import error_of, heard, uninterrupted
from .settings import TuneSettings

MEMBER = f"{__package__}.member"
KINDS = ("cpu", "opencl")
LOOK_SECONDS = 0.1
END_SECONDS = 5.0
UNFINISHED = "its process ended before all runs were made"


@dataclass(frozen=True)
class Place:
    """A device by its key, and the node on which `selector` chooses it."""

    node: Node
    selector: str
    device: str


@dataclass(frozen=True)
class Outcome:
    """How the run for the entry of this number ended on a device: its last event, ``done`` or ``error``."""

    entry: int
    place: Place
    last: Mapping[str, Any]

    @property
    def is_found(self) -> bool:
        return bool(self.last["event"] == "done")


Emit = Callable[[Place, int, Mapping[str, Any]], None]
"""Hears of each event, with its place and the number of the entry."""


@dataclass
class Fleet:
    """Nodes whose devices can be tuned for; `calls` and `address` are None where there is no cluster.

    `notes` say which nodes are left out, and why.
    """

    kind: str
    nodes: list[Node]
    calls: RayCalls | None = None
    address: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def places(self) -> list[Place]:
        """Each device once, at the best of the nodes that have it."""
        found: dict[str, Place] = {}
        for place in self._all_places():
            found.setdefault(place.device, place)
        return list(found.values())

    def _all_places(self) -> list[Place]:
        """Of all nodes: this host first, then those where fewest cores build, since building disturbs measuring."""
        nodes = sorted(self.nodes, key=lambda node: (not node.is_here, node.cores, node.address))
        return [Place(node, *pair) for node in nodes for pair in node.devices.items()]

    def tune(self, asked: Sequence[TuneSettings], emit: Emit) -> list[Outcome]:
        """Make a run for each of `asked` on each device, and hear of its events.

        Raises UsageError where hosts do not share the database, and Interrupted after Ctrl-C, when the best so far of
        each run is kept.
        """
        self._check_database(asked)
        hosts: dict[str, list[Place]] = {}
        for place in self.places:
            hosts.setdefault(place.node.address, []).append(place)
        works = [_Work(self._host(places[0].node), places, list(range(len(asked)))) for places in hosts.values()]
        outcomes: list[Outcome] = []
        tried: set[str] = set()

        def take(work: _Work, news: News) -> None:
            for entry, place, event in work.events(news):
                emit(place, entry, event)
                if event["event"] in ("done", "error"):
                    outcomes.append(Outcome(entry, place, event))

        try:
            with heard():
                for work in works:
                    work.begin(self._requests(asked, work))
                while running := [work for work in works if not work.is_over]:
                    for work in running:
                        news = work.host.news()
                        take(work, news)
                        if work.is_over and work.left(outcomes):
                            tried.add(work.places[0].node.address)
                            works += self._elsewhere(asked, work, news.problem or UNFINISHED, tried, outcomes, emit)
                    time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt as interrupt:
            with uninterrupted():
                _end(works, take)
            best = sum(outcome.is_found for outcome in outcomes)
            raise error_of(interrupt)(f"interrupted; {best} results are recorded, and each run's best so far") from None
        finally:
            with uninterrupted():
                for work in works:
                    work.host.close()
        return sorted(outcomes, key=lambda outcome: outcome.entry)

    def _host(self, node: Node) -> Host:
        return HostProcess() if node.is_here or self.calls is None else RayHost(self.calls, node.id)

    def _requests(self, asked: Sequence[TuneSettings], work: _Work) -> str:
        """The settings of the runs of a host, in the order of `_Work.plan`."""
        runs = []
        for entry, place in work.plan:
            options = {"target": place.selector, "address": self.address, "start": None, "db": _full(asked[entry].db)}
            runs.append(asked[entry].model_copy(update=options).model_dump(mode="json"))
        return json.dumps(runs)

    def _elsewhere(
        self, asked: Sequence[TuneSettings], lost: _Work, problem: str, tried: set[str], outcomes: list[Outcome],
        emit: Emit,
    ) -> list[_Work]:  # fmt: skip
        """Begin again what a host that is lost leaves undone, where its devices are as well."""
        begun = []
        for place, left in lost.left(outcomes):
            others = [p for p in self._all_places() if p.device == place.device and p.node.address not in tried]
            where = f"; {others[0].node.address} goes on with its {place.device}" if others else ""
            note = {"event": "note", "message": f"{place.node.address} is lost: {problem}{where}"}
            emit(place, left[0], note)
            if others:
                work = _Work(self._host(others[0].node), [others[0]], left)
                work.begin(self._requests(asked, work))
                begun.append(work)
            else:
                told = {"event": "error", "code": 75, "kind": "temporary", "message": f"the host is lost: {problem}"}
                outcomes += [Outcome(entry, place, told) for entry in left]
        return begun

    def _check_database(self, asked: Sequence[TuneSettings]) -> None:
        """A file can take the records of several hosts only if it is the same file for all of them."""
        from ..records.database import default_path
        from ..records.engine import locate

        nodes = {place.node.address for place in self.places}
        folders = {place.node.folder for place in self.places}
        for url in {settings.db or default_path() for settings in asked}:
            path = locate(url)[1]
            if path is not None and len(nodes) > 1 and (len(folders) > 1 or "" in folders):
                raise UsageError(
                    f"the hosts of a cluster cannot share the file {path}: give a server's database, as in "
                    f"--db postgresql://host/name"
                )


@dataclass
class _Work:
    """A host's runs: every entry for its first device, then for the next; a run's number is its place in `plan`."""

    host: Host
    places: list[Place]
    entries: list[int]
    is_over: bool = False

    @property
    def plan(self) -> list[tuple[int, Place]]:
        return [(entry, place) for place in self.places for entry in self.entries]

    def begin(self, request: str) -> None:
        self.host.start(MEMBER, request)

    def left(self, outcomes: Sequence[Outcome]) -> list[tuple[Place, list[int]]]:
        """The entries without an outcome, of each place that has some."""
        ended = {(outcome.entry, outcome.place.device) for outcome in outcomes}
        left = [(p, [entry for entry in self.entries if (entry, p.device) not in ended]) for p in self.places]
        return [(place, entries) for place, entries in left if entries]

    def events(self, news: News) -> Iterator[tuple[int, Place, Mapping[str, Any]]]:
        """What the process has told."""
        self.is_over = news.is_over
        for line in news.lines:
            told = json.loads(line)
            yield *self.plan[told["run"]], told["event"]


def _end(works: Sequence[_Work], take: Callable[[_Work, News], None]) -> None:
    """Let all runs end with the best so far, and hear what that is."""
    deadline = time.monotonic() + END_SECONDS
    for work in works:
        if not work.is_over:
            work.host.end()
    while time.monotonic() < deadline and any(not work.is_over for work in works):
        for work in works:
            if not work.is_over:
                take(work, work.host.news())
        time.sleep(LOOK_SECONDS)


def _full(db: str | None) -> str:
    """A database's text that means the same to a process in another folder."""
    from ..records.database import default_path
    from ..records.engine import locate

    text = db or default_path()
    path = locate(text)[1]
    return text if path is None else str(path)


@contextmanager
def fleet(kind: str, address: str | None, db: str | None) -> Iterator[Fleet]:
    """The devices of a kind, of this host or of the cluster at `address`, which is left at the end.

    Raises DeviceMissing where there are none, and what joining a cluster raises.
    """
    folder = os.path.dirname(_full(db)) or "/"
    session = RaySession(address) if address or os.environ.get("RAY_ADDRESS") else None
    if session is None or session.address is None:
        yield _usable(Fleet(kind, [node_here(kind, folder)]))
        return
    session.begin()
    lost = False
    try:
        while not session.is_ready:
            time.sleep(LOOK_SECONDS)
        ray = session.ray
        calls = RayCalls(ray)
        nodes = nodes_of(calls, kind, folder)
        at = str(calls.call(lambda: ray.get_runtime_context().gcs_address))
        made = _usable(Fleet(kind, nodes, calls, at))
        yield made
        lost = bool(calls.lost)
    except RayLost as error:
        lost = True
        raise TemporaryError(f"the Ray cluster at {address} was lost: {error}") from None
    finally:
        session.close(is_lost=lost)


def _usable(fleet: Fleet) -> Fleet:
    """The fleet without nodes on which nothing can be run."""
    fleet.notes += [f"node {node.address} is left out: {node.problem}" for node in fleet.nodes if node.problem]
    fleet.nodes = [node for node in fleet.nodes if not node.problem]
    if not fleet.places:
        raise DeviceMissing(f"there is no device of the kind `{fleet.kind}`{': ' if fleet.notes else ''}"
                            + "; ".join(fleet.notes))  # fmt: skip
    return fleet
