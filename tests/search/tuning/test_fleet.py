"""A run for each device: which host makes it, what is told of it, and what becomes of it when its host is lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridesmith.commands import fleet as command
from stridesmith.commands.options import SearchOptions
from stridesmith.commands.output import Output
from stridesmith.configs import Entry
from stridesmith.errors import (
    DeviceLost,
    DeviceMissing,
    InternalError,
    Interrupted,
    NoSchedule,
    StorageError,
    StridesmithError,
    TemporaryError,
    UsageError,
)
from stridesmith.ir.target import Target
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.recording import RecordedSketch, Recording, load, save
from stridesmith.search.tasks.task import Roof
from stridesmith.search.tuning import fleet as module
from stridesmith.search.tuning import member as member_module
from stridesmith.search.tuning.fleet import Fleet, Outcome, Place
from stridesmith.search.tuning.settings import TuneSettings, settings
from stridesmith.search.workers.cluster import Node, node_here
from stridesmith.search.workers.hosts import HostProcess, News, RayHost
from stridesmith.search.workers.protocol import Failed
from stridesmith.search.workers.ray_calls import RayLost
from stridesmith.space.design.decision import Decision
from stridesmith.space.workloads import workload

SHAPE = {"m": 12, "n": 20, "k": 8}
TARGET = Target(kind="cpu", name="Test CPU", vendor="Test", isa="avx2", threads=1, vector_bits=256)
HERE = Node("here", 2, True, id="0", devices={"cpu": "A"}, folder="f")
NEAR = Node("near", 8, id="1", devices={"cpu": "B"}, folder="f")
QUIET = Node("quiet", 0, id="2", devices={"cpu": "B"}, folder="f")


def recorded(path: Path, untuned_us: float) -> str:
    """A small device that measures in no time, as a target's text; its name follows from `untuned_us`."""
    work = workload("matmul", **SHAPE)
    rows = np.array(list(itertools.product(range(8), range(8))), np.int64)
    decisions = tuple(Decision(name, "tile", tuple(map(str, range(8))), tuple(range(8))) for name in ("a", "b"))
    sketch = RecordedSketch(
        "only", None, TARGET, (), recorded=decisions, rows=rows, latencies=10.0 + rows.sum(axis=1),  # type: ignore[arg-type]
        statuses=("ok",) * len(rows), features=("a",), table=rows[:, :1].astype(np.float32),
    )  # fmt: skip
    interface = dict(interface_of(work))
    save(Recording("matmul", SHAPE, "float32", interface, TARGET, untuned_us, Roof(100.0, 1e10), (sketch,)), path)
    return f"recorded:{path}"


def matmul(**options: Any) -> TuneSettings:
    return settings(workload="matmul", params=SHAPE, sampler="random", mirror=False, **options)


# ---------------------------------------------------------------- which host


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        ([NEAR, HERE], {"A": "here", "B": "near"}),
        ([NEAR, HERE, QUIET], {"A": "here", "B": "quiet"}),
        ([replace(NEAR, devices={"cpu": "A"}), HERE], {"A": "here"}),
        ([replace(NEAR, address="b"), replace(NEAR, address="a")], {"B": "a"}),
        ([replace(HERE, devices={"opencl:0": "X", "opencl:1": "Y", "opencl:2": "X"})], {"X": "here", "Y": "here"}),
    ],
)
def test_each_device_is_measured_once(nodes: list[Node], chosen: dict[str, str]) -> None:
    """Here if it is here, else where fewest cores build."""
    assert {place.device: place.node.address for place in Fleet("cpu", nodes).places} == chosen


def test_hosts_that_do_not_share_a_file_need_a_server(tmp_path: Path) -> None:
    """A file is one database only for hosts that have the same folder there."""
    told: list[Any] = []
    for other in (replace(NEAR, folder="g"), replace(NEAR, folder="")):
        with pytest.raises(UsageError, match="postgresql://"):
            Fleet("cpu", [HERE, other]).tune([matmul(db=str(tmp_path / "x.db"))], lambda *found: told.append(found))
    assert not told


def test_this_host_says_what_it_has(tmp_path: Path) -> None:
    """Its devices by the texts that choose them, and an identity of the folder that other folders do not have."""
    here, other = node_here("cpu", 3, str(tmp_path)), node_here("opencl", None, "/no/such/folder")
    assert list(here.devices) == ["cpu"] and here.is_here and not here.problem
    assert here.devices["cpu"].endswith("threads=3"), "records of other numbers of threads stand apart"
    assert here.folder and here.folder != node_here("cpu", None, "/").folder and other.folder == ""
    assert all(name.startswith("opencl") for name in other.devices)


def test_a_fleet_without_devices_says_so() -> None:
    """With the reason of each node that is left out."""
    with pytest.raises(DeviceMissing, match="no device of the kind `opencl`: node near is left out: it is old"):
        module._usable(Fleet("opencl", [replace(NEAR, problem="it is old")]))
    found = module._usable(Fleet("cpu", [HERE, replace(NEAR, problem="it is old")]))
    assert [place.device for place in found.places] == ["A"] and "it is old" in found.notes[0]


# ---------------------------------------------------------------- processes on hosts


def test_two_devices_of_a_host_are_tuned_one_after_the_other(tmp_path: Path) -> None:
    """By a process of their own; every event comes with its device and entry, and the records stand apart."""
    targets = [recorded(tmp_path / f"{n}.space", 100.0 + n) for n in (1, 2)]
    keys = [load(tmp_path / f"{n}.space").target.key for n in (1, 2)]
    nodes = [replace(HERE, devices=dict(zip(targets, keys, strict=True)))]
    told: list[tuple[str, int, str]] = []

    def hear(place: Place, entry: int, event: Mapping[str, Any]) -> None:
        told.append((place.device, entry, event["event"]))

    db = str(tmp_path / "x.db")
    outcomes = Fleet("cpu", nodes).tune([matmul(trials=3, db=db), matmul(trials=2, seed=1, db=db)], hear)
    order = [(device, entry) for device, entry, name in told if name == "done"]
    assert order == [(device, entry) for device in keys for entry in (0, 1)]
    assert [told.count((device, 0, "trial")) for device in keys] == [3, 3]
    assert all(outcome.is_found for outcome in outcomes) and len(outcomes) == 4
    with Database(db) as database:
        assert {record.device.key for record in database.every()} == set(keys)


def test_a_run_that_fails_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    """What is wrong with one entry is its outcome."""
    target = recorded(tmp_path / "x.space", 100.0)
    nodes = [replace(HERE, devices={target: load(tmp_path / "x.space").target.key})]
    wrong = settings(workload="matmul", params={"m": 3}, trials=2, db=str(tmp_path / "x.db"))
    outcomes = Fleet("cpu", nodes).tune([wrong, matmul(trials=2, db=str(tmp_path / "x.db"))], lambda *_: None)
    assert [outcome.is_found for outcome in outcomes] == [False, True]
    assert outcomes[0].last["code"] == 2 and "leave out --workload" in outcomes[0].last["message"]


def request(tmp_path: Path, **options: Any) -> str:
    target = recorded(tmp_path / "x.space", 100.0)
    return json.dumps([matmul(target=target, db=str(tmp_path / "x.db"), **options).model_dump(mode="json")])


def events(host: HostProcess, until: str, seconds: float = 60.0) -> tuple[list[dict[str, Any]], News]:
    """What a process tells until an event of this name, or until it ends."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        news = host.news(1.0)
        found += [json.loads(line)["event"] for line in news.lines]
        if news.is_over or any(event["event"] == until for event in found):
            return found, news
    raise TimeoutError(found)


def test_the_process_ends_with_the_best_so_far(tmp_path: Path) -> None:
    """It tells the best, and an error with the code of SIGTERM as its last event; no other run begins."""
    host = HostProcess()
    both = json.loads(request(tmp_path, trials=1_000_000)) * 2
    host.start(module.MEMBER, json.dumps(both))
    try:
        events(host, "trial")
        host.end()
        found, news = events(host, "no such event")
    finally:
        host.close()
    assert news.is_over and news.code == 0
    assert [event["event"] for event in found][-2:] == ["done", "error"] and found[-1]["code"] == 143
    assert sum(event["event"] == "error" for event in found) == 1


def test_the_process_ends_when_its_driver_is_gone(tmp_path: Path) -> None:
    """Its stdin closes then; what was told is stored."""
    code = (
        "import sys, time; from stridesmith.search.workers.hosts import HostProcess;"
        "host = HostProcess(); host.start(sys.argv[1], sys.argv[2]);"
        "[print(line, flush=True) for _ in iter(int, 1) for line in host.news(1.0).lines]"
    )
    asked = request(tmp_path, trials=1_000_000)
    driver = subprocess.Popen([sys.executable, "-c", code, module.MEMBER, asked], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    told = [json.loads(next(driver.stdout))["event"] for _ in range(12)]
    member = next(pid for pid, line in pids().items() if f"-m {module.MEMBER}" in line)
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 20
    while member in pids() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert member not in pids()
    records = {event["record"] for event in told if event["event"] == "trial"}
    with Database(str(tmp_path / "x.db")) as database:
        assert records and records <= {record.id for record in database.every()}


def pids() -> dict[int, str]:
    """The live processes of this test, with their commands."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {pid: text for pid, text in found.items() if text}


def test_a_signal_that_is_lost_while_results_are_stored_ends_the_process_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other run begins, though the one under way ended as if nothing had come."""
    made: list[TuneSettings] = []
    lost = threading.Event()
    request = json.dumps([{"workload": "matmul"}] * 3)
    reader, writer = os.pipe()
    os.write(writer, request.encode() + b"\n")

    def tune(options: TuneSettings, tell: Any) -> None:
        made.append(options)
        os.close(writer)
        assert lost.wait(30)

    monkeypatch.setattr(member_module.os, "kill", lambda *_: lost.set())
    monkeypatch.setattr("stridesmith.search.tuning.tuner.tune", tune)
    monkeypatch.setattr(member_module, "claim_stdout", lambda: None)
    with open(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        member_module.main()
    assert len(made) == 1


def test_a_process_that_fails_gives_its_last_line() -> None:
    """A module that is not there, say, on a host where another version is installed."""
    host = HostProcess()
    host.start("stridesmith.no_such_module", "[]")
    _, news = events(host, "no such event")
    host.close()
    assert news.code == 1 and "no_such_module" in news.problem


def test_ctrl_c_ends_the_runs_of_all_hosts(tmp_path: Path) -> None:
    """With the best so far of each, and the error of the signal."""
    target = recorded(tmp_path / "x.space", 100.0)
    nodes = [replace(HERE, devices={target: load(tmp_path / "x.space").target.key})]
    told: list[str] = []

    def hear(_: Place, entry: int, event: Mapping[str, Any]) -> None:
        told.append(event["event"])
        if told.count("trial") == 1 and event["event"] == "trial":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="1 results are recorded"):
        Fleet("cpu", nodes).tune([matmul(trials=1_000_000, db=str(tmp_path / "x.db"))], hear)
    assert told[-2:] == ["done", "error"]


# ---------------------------------------------------------------- hosts that are lost


class Scripted:
    """A host that says what it was told to say, then for ever nothing; `asked` are the requests that it got."""

    def __init__(self, *news: News) -> None:
        self.left = list(news)
        self.asked: list[Any] = []
        self.is_closed = False

    def start(self, module: str, request: str) -> None:
        self.asked.append(json.loads(request))

    def news(self) -> News:
        return self.left.pop(0) if self.left else News()

    def end(self) -> None:
        self.left.append(News(code=0))

    def close(self) -> None:
        self.is_closed = True


def line(run: int, **event: Any) -> str:
    return json.dumps({"run": run, "event": event})


def scripted(monkeypatch: pytest.MonkeyPatch, hosts: Mapping[str, Scripted]) -> None:
    monkeypatch.setattr(Fleet, "host", lambda self, node: hosts[node.address])


DONE = {"event": "done", "latency_us": 1.0, "record": "r"}


def test_runs_of_a_lost_host_begin_again_where_their_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have ended stay; a device that no other host has ends in an error that may pass."""
    quiet = replace(QUIET, devices={"cpu": "B", "cpu2": "C"})
    lost = Scripted(News([line(0, **DONE)]), News([line(1, event="trial")], problem="it is gone"))
    taking = Scripted(News([line(0, **DONE)], 0))
    scripted(monkeypatch, {"quiet": lost, "near": taking})
    notes: list[str] = []

    def hear(place: Place, entry: int, event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            notes.append(event["message"])

    asked = [matmul(seed=1, db="sqlite://"), matmul(seed=2, db="sqlite://")]
    outcomes = Fleet("cpu", [quiet, NEAR]).tune(asked, hear)
    assert [(run["seed"], run["target"]) for run in lost.asked[0]] == [(1, "cpu"), (2, "cpu"), (1, "cpu2"), (2, "cpu2")]
    assert [(run["seed"], run["target"]) for run in taking.asked[0]] == [(2, "cpu")]
    assert {(o.entry, o.place.device): o.is_found for o in outcomes} == {
        (0, "B"): True, (1, "B"): True, (0, "C"): False, (1, "C"): False,
    }  # fmt: skip
    assert {o.last["code"] for o in outcomes if not o.is_found} == {75}
    assert len(notes) == 2 and "near goes on with its B" in notes[0] and "it is gone" in notes[1]
    assert lost.is_closed and taking.is_closed


def test_runs_that_somebody_ends_on_a_host_are_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were they told to have a result or not; the errors of other runs stay with them."""
    cut = line(1, event="error", kind="terminate", code=143, message="interrupted")
    wrong = line(0, event="error", kind="usage", code=2, message="no such pin")
    ended = Scripted(News([wrong, line(1, **DONE), cut], 0))
    taking = Scripted(News([line(0, **DONE)], 0))
    scripted(monkeypatch, {"quiet": ended, "near": taking})
    asked = [matmul(seed=1, db="sqlite://"), matmul(seed=2, db="sqlite://")]
    outcomes = Fleet("cpu", [QUIET, NEAR]).tune(asked, lambda *_: None)
    assert [run["seed"] for run in taking.asked[0]] == [2]
    assert [outcome.last.get("code") for outcome in outcomes] == [2, None] and ended.is_closed


def test_runs_of_a_lost_host_go_where_the_same_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be there and be another file."""
    here, far = replace(HERE, devices={"cpu": "B"}), replace(NEAR, folder="g")
    scripted(monkeypatch, {"here": Scripted(News(problem="it broke")), "near": Scripted(), "quiet": Scripted()})
    (outcome,) = Fleet("cpu", [here, far]).tune([matmul(db=str(tmp_path / "x.db"))], lambda *_: None)
    assert outcome.place.node == here and outcome.last["message"] == "the host is lost: it broke"


def test_cores_that_build_are_shared_among_the_hosts_that_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first to ask has all of them for its whole run."""
    hosts = {"here": Scripted(News([line(0, **DONE)], 0)), "near": Scripted(News([line(0, **DONE)], 0))}
    scripted(monkeypatch, hosts)
    made = Fleet("cpu", [HERE, NEAR], calls=Calls(), address="10.0.0.1:6379")  # type: ignore[arg-type]
    made.tune([matmul(db="sqlite://")], lambda *_: None)
    asked = [host.asked[0][0] for host in hosts.values()]
    assert [(run["builders"], run["address"]) for run in asked] == [(5, "10.0.0.1:6379")] * 2


def test_a_device_that_all_of_its_hosts_lose_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host is tried once."""
    scripted(monkeypatch, {name: Scripted(News(problem=f"{name} broke")) for name in ("quiet", "near")})
    told: list[str] = []

    def hear(_: Place, entry: int, event: Mapping[str, Any]) -> None:
        told.append(event["event"])

    outcomes = Fleet("cpu", [QUIET, NEAR]).tune([matmul(db="sqlite://")], hear)
    assert [outcome.last["message"] for outcome in outcomes] == ["the host is lost: near broke"]
    assert told == ["note", "note", "error"]


class Calls:
    """Ray, of which an actor's answer is `reply`: None while there is none."""

    def __init__(self) -> None:
        self.ray = self
        self.replies: list[Any] = []

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    def send(self, function: Any, *arguments: Any) -> None:
        function(*arguments)

    def wait(self, tasks: Any, timeout: float) -> tuple[list[Any], list[Any]]:
        return (tasks, []) if self.replies and self.replies[0] is not None else ([], tasks)

    def reply(self, task: Any) -> Any:
        found = self.replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_a_host_of_ray_is_lost_with_its_actor_with_ray_or_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a problem with words, and never an exception."""
    monkeypatch.setattr("stridesmith.search.workers.hosts._actor", lambda ray, node: Actor())
    cases: list[tuple[Any, str]] = [
        (Failed(status="infrastructure", message="a Ray actor was lost"), "a Ray actor was lost"),
        (RayLost("it did not answer"), "Ray was lost"),
    ]
    for reply, words in cases:
        calls = Calls()
        host = RayHost(calls, "1")  # type: ignore[arg-type]
        host.start("m", "[]")
        calls.replies = [None]
        assert host.news() == News()
        calls.replies = [json.dumps([["a"], None, ""]), reply]
        assert host.news() == News(["a"])
        assert words in host.news().problem
    calls = Calls()
    host = RayHost(calls, "1")  # type: ignore[arg-type]
    host.start("m", "[]")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 89.0)
    assert not host.news().problem
    monkeypatch.setattr(time, "monotonic", lambda: now + 91.0)
    assert "said nothing for 90 s" in host.news().problem


class Method:
    def remote(self, *_: Any) -> object:
        return object()


class Actor:
    start = news_text = end = Method()


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "opencl:0"}, "without a device"),
        ({"target": "cpu", "model": "x.onnx"}, "--model"),
        ({"target": "cpu", "trace": "x.json"}, "--trace"),
    ],
)
def test_what_is_of_one_device_is_refused(options: dict[str, Any], words: str) -> None:
    """In words, before anything is started."""
    with pytest.raises(UsageError, match=words):
        command.run(SearchOptions(workload="matmul", **options), Output("plain"), 0.0)


@pytest.mark.parametrize("given", [None, 1])
def test_devices_are_looked_for_with_the_threads_of_the_list(
    given: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU with another number of threads is another device; an option goes before the list."""
    path = tmp_path / "list.toml"
    path.write_text('[tune]\nthreads = 3\n[[matmul]]\nname = "one"\nm = 13\n')
    asked: list[int | None] = []

    @contextlib.contextmanager
    def found(kind: str, address: object, db: object, threads: int | None = None) -> Iterator[Fleet]:
        asked.append(threads)
        yield Fleet(kind, [HERE])

    monkeypatch.setattr(module, "fleet", found)
    options = SearchOptions(config=str(path), target="cpu", dry_run=True, resume=True, threads=given)
    assert command.run(options, Output("plain"), 0.0) == 0
    assert asked == [given or 3]


def test_lists_of_different_threads_are_refused() -> None:
    """One number of threads for each device."""
    with pytest.raises(UsageError, match="ask for 3 and all; give --threads"):
        command._threads([matmul(threads=3), matmul()])


def test_the_display_names_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    """A line when one has got better, and a table at the end; an error where a run found nothing."""
    work = workload("matmul", **SHAPE)
    entries, places = [Entry("product", work, {})], [Place(HERE, "cpu", "A"), Place(NEAR, "cpu", "B")]
    with command.FleetProgress(Output("plain"), entries, places, time.monotonic()) as progress:
        for place in places:
            progress(place, 0, {"event": "start", "limit_trials": 4, "limit_seconds": None, "flops": 2000})
            progress(place, 0, {"event": "trial", "trials": 1, "best_us": 2.0, "status": "ok"})
            progress(place, 0, {"event": "note", "message": "quite so"})
    text = capsys.readouterr().out
    assert "A  product  1/4 trials  best 2.000 us" in text and "B  product" in text and "note: A: quite so" in text
    found = Outcome(0, places[0], DONE)
    command._overview([found], entries, Output("plain"))
    assert "1.000 us" in capsys.readouterr().out
    for error in (NoSchedule, TemporaryError, UsageError, DeviceLost, StorageError, InternalError):
        lost = Outcome(0, places[1], error("it failed").event())
        with pytest.raises(StridesmithError, match=r"1 of 2 runs have no result.*product on B: it failed") as raised:
            command._overview([found, lost], entries, Output("plain"))
        assert (raised.value.exit_code, raised.value.kind) == (error.exit_code, error.kind)
