"""Runs on every device of a kind: of this host, and with an address of the hosts of a Ray cluster.

```
nodes      this host, or the nodes of the cluster, with the devices that they say they have
places     each device once: here if it is here, else where fewest cores build
runs       a process on each host makes them for its devices, one after the other; hosts do so beside each other
```

Each run is one of `tuner`, on the host whose device it measures; the cores of a cluster that build are shared among the
hosts that measure.  Where a host is lost, its runs that have not ended begin again on another one that has the device,
if there is any.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import DeviceMissing, Interrupted, TemporaryError, UsageError
from ..records.place import default_path
from ..workers.cluster import Node, node_here, nodes_of
from ..workers.hosts import Host, HostProcess, News, RayHost
from ..workers.ray_calls import RayCalls, RayLost
from ..workers.ray_session import RaySession
from .interruption import ENDING, error_of, heard, uninterrupted
from .settings import TuneSettings

MEMBER = f"{__package__}.member"
KINDS = ("cpu", "opencl")
LOOK_SECONDS = 0.1  # between two looks
END_SECONDS = 5.0  # for a member that was asked to end
CUT_SHORT = (Interrupted.kind, *(error.kind for error in ENDING.values()))
UNFINISHED = "its process ended before all runs were made"


@dataclass(frozen=True)
class Place:
    """A device by its key, and the node on which `selector` chooses it."""

    node: Node
    selector: str
    device: str


@dataclass(frozen=True)
class Outcome:
    """How an entry's run, by its number, ended on a device: the event ``done``, or ``error`` where there is none."""

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
        for place in self.all_places:
            found.setdefault(place.device, place)
        return list(found.values())

    @property
    def all_places(self) -> list[Place]:
        """Of all nodes: this host first, then those where fewest cores build, since building disturbs measuring."""
        nodes = sorted(self.nodes, key=lambda node: (not node.is_here, node.cores, node.address))
        return [Place(node, *pair) for node in nodes for pair in node.devices.items()]

    def tune(self, asked: Sequence[TuneSettings], emit: Emit) -> list[Outcome]:
        """Make a run for each of `asked` on each device, and hear of its events.

        Raises UsageError where hosts do not share the database, and Interrupted after Ctrl-C, when the best so far of
        each run is kept.
        """
        runs = _Runs(self, asked, emit)
        runs.check_database()
        try:
            with heard():
                runs.begin()
                while runs.look():
                    time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt as interrupt:
            with uninterrupted():
                runs.end()
            found = sum(outcome.is_found for outcome in runs.outcomes.values())
            raise error_of(interrupt)(f"interrupted; {found} results are recorded, each run's best so far included"
                                      ) from None  # fmt: skip
        finally:
            with uninterrupted():
                for work in runs.works:
                    work.host.close()
        return sorted(runs.outcomes.values(), key=lambda outcome: outcome.entry)

    def host(self, node: Node) -> Host:
        """What makes runs on a node."""
        return HostProcess() if node.is_here or self.calls is None else RayHost(self.calls, node.id)


@dataclass
class _Work:
    """A host's runs: every entry for its first device, then for the next; a run's number is its place in `plan`."""

    host: Host
    places: list[Place]
    entries: list[int]
    is_over: bool = False

    @property
    def node(self) -> Node:
        return self.places[0].node

    @property
    def plan(self) -> list[tuple[int, Place]]:
        return [(entry, place) for place in self.places for entry in self.entries]


class _Runs:
    """All runs of a fleet: `outcomes` by entry and device, of those that have ended."""

    def __init__(self, fleet: Fleet, asked: Sequence[TuneSettings], emit: Emit) -> None:
        self.fleet, self.asked, self.emit = fleet, asked, emit
        self.works: list[_Work] = []
        self.outcomes: dict[tuple[int, str], Outcome] = {}
        self.is_ending = False
        self._tried: set[str] = set()
        self._builders: int | None = None

    def check_database(self) -> None:
        """Raise UsageError for a file that is not the same one for all hosts."""
        file = next((path for settings in self.asked if (path := _file(settings.db)) is not None), None)
        nodes = [place.node for place in self.fleet.places]
        if file is not None and not all(_share_files(nodes[0], node) for node in nodes):
            raise UsageError(
                f"the hosts of a cluster cannot share the file {file}: give a server's database, as in "
                f"--db postgresql://host/name"
            )

    def begin(self) -> None:
        """Start a process on each host that has something to measure."""
        hosts: dict[str, list[Place]] = {}
        for place in self.fleet.places:
            hosts.setdefault(place.node.id, []).append(place)
        if self.fleet.calls is not None:
            self._builders = max(1, sum(node.cores for node in self.fleet.nodes) // len(hosts))
        for places in hosts.values():
            self._start(places, list(range(len(self.asked))))

    def look(self) -> bool:
        """Hear what there is to hear; False when all runs have ended."""
        for work in [work for work in self.works if not work.is_over]:
            news = self._hear(work)
            left = self._left(work) if work.is_over else []
            if left:
                work.host.close()
                self._tried.add(work.node.id)
                for place, entries in left:
                    self._elsewhere(place, entries, news.problem or UNFINISHED)
        return not all(work.is_over for work in self.works)

    def end(self) -> None:
        """Let all runs end with the best so far, and hear what that is."""
        self.is_ending = True
        deadline = time.monotonic() + END_SECONDS
        for work in self.works:
            work.host.end()
        while time.monotonic() < deadline and (running := [work for work in self.works if not work.is_over]):
            for work in running:
                self._hear(work)
            time.sleep(LOOK_SECONDS)

    def _start(self, places: list[Place], entries: list[int]) -> None:
        work = _Work(self.fleet.host(places[0].node), places, entries)
        self.works.append(work)
        runs = []
        for entry, place in work.plan:
            settings = self.asked[entry]
            here = {
                "target": place.selector, "address": self.fleet.address, "builders": self._builders, "start": None,
                "db": str(_file(settings.db) or settings.db or default_path()),
            }  # fmt: skip
            runs.append(settings.model_copy(update=here).model_dump(mode="json"))
        work.host.start(MEMBER, json.dumps(runs))

    def _hear(self, work: _Work) -> News:
        news = work.host.news()
        work.is_over = news.is_over
        for line in news.lines:
            told = json.loads(line)
            entry, place = work.plan[told["run"]]
            self._take(entry, place, told["event"])
        return news

    def _take(self, entry: int, place: Place, event: Mapping[str, Any]) -> None:
        self.emit(place, entry, event)
        at = entry, place.device
        if event["event"] == "done":
            self.outcomes[at] = Outcome(entry, place, event)
        elif event["event"] == "error":
            if event["kind"] in CUT_SHORT and not self.is_ending:  # by somebody on that host
                self.outcomes.pop(at, None)
            else:
                self.outcomes.setdefault(at, Outcome(entry, place, event))

    def _left(self, work: _Work) -> list[tuple[Place, list[int]]]:
        """The entries without an outcome, of each place that has some."""
        left = [(p, [entry for entry in work.entries if (entry, p.device) not in self.outcomes]) for p in work.places]
        return [(place, entries) for place, entries in left if entries]

    def _elsewhere(self, lost: Place, entries: list[int], problem: str) -> None:
        """Begin again what a host that is lost leaves undone, where its device is as well."""
        needs_folder = any(_file(self.asked[entry].db) is not None for entry in entries)
        others = [
            place for place in self.fleet.all_places
            if place.device == lost.device and place.node.id not in self._tried
            and (not needs_folder or _share_files(lost.node, place.node))
        ]  # fmt: skip
        where = f"; {others[0].node.address} goes on with its {lost.device}" if others else ""
        message = f"{lost.node.address} is lost: {problem}{where}"
        self.emit(lost, entries[0], {"event": "note", "message": message})
        if others:
            self._start(others[:1], entries)
        else:
            for entry in entries:
                self._take(entry, lost, TemporaryError(f"the host is lost: {problem}").event())


def _share_files(one: Node, other: Node) -> bool:
    """Whether two nodes see the same database folder: one node, or two on one machine."""
    return one.id == other.id or one.folder == other.folder != ""


def _file(db: str | None) -> str | None:
    """The path of a database that is a file, which means the same to a process in another folder."""
    from ..records.engine import locate

    path = locate(db or default_path())[1]
    return None if path is None else str(path)


@contextmanager
def fleet(kind: str, address: str | None, db: str | None, threads: int | None = None) -> Iterator[Fleet]:
    """The devices of a kind, of this host or of the cluster at `address`, which is left at the end.

    `threads` are those that the runs' kernels use of a CPU.  Raises DeviceMissing where there are none, TemporaryError
    where the cluster is lost, and what joining one raises.
    """
    folder = os.path.dirname(_file(db) or "")
    session = RaySession(address)
    here = node_here(kind, threads, folder)
    if session.address is None:
        yield _usable(Fleet(kind, [here]))
        return
    named = session.address
    session.begin()
    lost = False
    try:
        while not session.is_ready:
            time.sleep(LOOK_SECONDS)
        calls = RayCalls(session.ray)
        # Runs for this host are made by children of this process, which have its devices and need nothing of Ray's.
        nodes = [
            replace(node, devices=here.devices, folder=here.folder, problem="") if node.is_here else node
            for node in nodes_of(calls, kind, threads, folder)
        ]
        at = str(calls.call(lambda: session.ray.get_runtime_context().gcs_address))
        yield _usable(Fleet(kind, nodes, calls, at))
        lost = bool(calls.lost)
    except RayLost as error:
        lost = True
        raise TemporaryError(f"the Ray cluster at {named} was lost: {error}") from None
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
