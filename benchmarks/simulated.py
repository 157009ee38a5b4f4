"""A cluster that is simulated: the real tuner, executor and pools, with a Ray, workers and a time that are made up.

    python benchmarks/simulated.py faults  [--workers 256] [--trials 1500] [--seeds 3] [--space FILE]
    python benchmarks/simulated.py scaling [--candidates 2000] [--cores 8]

Time passes only while something is waited for, so that an hour of a cluster takes seconds.  Candidates come from a
recorded space (`stridesmith record-space`; without one, from a made-up one), and take to build what is drawn from
`build_times.json`: those of real candidates, as `building.py --times` has measured them.

`faults` draws for each worker what will become of it: it dies in a job, with its node, freezes for good or for a
while, is slow, never starts, or lies (a reply that is garbled, or one to another question).  A tenth of the nodes are
lost, another tenth join late.  Looked at is whether the run ends in its time, whether each trial that was told is
stored as it was told, and once, whether no job was given out more than three times, and whether the winner is as fast
as it claims.

`scaling` gives a thousand builds to one, two and three nodes; the driver's own time, which does not get shorter with
more nodes, is real and counts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from stridesmith.ir import deadline
from stridesmith.ir.target import Target
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.recording import load
from stridesmith.search.tasks.task import Roof, Task
from stridesmith.search.tuning import budget, clock, loop, mirror, tuner
from stridesmith.search.tuning.record_space import Wanted, record_space
from stridesmith.search.tuning.settings import settings
from stridesmith.search.workers import actor_pool, executor, ray_calls
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import (
    Build,
    Built,
    Compiled,
    Failed,
    Job,
    Measured,
    MeasureRoof,
    Reply,
    Roofed,
    SelfTest,
    Tested,
    job_of,
    to_text,
)
from stridesmith.search.workers.recorded import RecordedExecutor
from stridesmith.search.workers.versions import versions_here
from stridesmith.space.workloads import workload

TIMES = Path(__file__).with_name("build_times.json")
HERE = "node0"
GIVEN_AT_MOST = 3
FATES = {"sound": 0.66, "dies": 0.1, "freezes": 0.06, "pauses": 0.05, "slow": 0.05, "never starts": 0.03, "lies": 0.05}
NODE_LIFE_SECONDS = 600.0  # of the nodes that are lost: a tenth of them
SLOW = 20.0
LIES = ("no JSON", '{"reply": "Tested", "pid": 1}', '{"reply": "Built"}', "")


class Time:
    """What stands for the module `time`: `skipped` seconds were waited for, and with `real` others really passed."""

    def __init__(self, real: bool = False) -> None:
        self.skipped, self._real, self._began = time.monotonic(), real, time.monotonic()

    def monotonic(self) -> float:
        return self.skipped + (time.monotonic() - self._began if self._real else 0.0)

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds

    def until(self, moment: float) -> None:
        self.skipped += max(0.0, moment - self.monotonic())

    time = staticmethod(time.time)


@dataclass(eq=False)
class SimTask:
    """What a call of an actor will give, and when; an exception where the actor is lost."""

    at: float
    value: str | Exception


@dataclass(eq=False)
class Node:
    """A node that offers so many cores between two moments."""

    name: str
    cores: int
    since: float = -math.inf
    until: float = math.inf


@dataclass
class World:
    """Nodes, and what their workers do; `answer` is what a sound one replies to a job, `seconds` how long it takes."""

    time: Time
    nodes: list[Node]
    answer: Callable[[Job[Any]], Reply]
    seconds: Callable[[Job[Any]], float]
    fates: Mapping[str, float] = field(default_factory=lambda: {"sound": 1.0})
    seed: int = 0
    given: collections.Counter[str] = field(default_factory=collections.Counter)
    own: int = 0  # jobs that the driver's process did itself
    had: collections.Counter[str] = field(default_factory=collections.Counter)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def fate(self, node: str) -> str:
        """What will become of the next actor there."""
        shares = np.array(list(self.fates.values()))
        return str(self.rng.choice(list(self.fates), p=shares / shares.sum()))

    def start(self, _: object, node: str, *__: object) -> Handle:
        (found,) = [n for n in self.nodes if n.name == node]
        fate = self.fate(node)
        self.had[fate] += 1
        return Handle(self, found, fate)


class Handle:
    """An actor; its fate was drawn, and comes at the moment `turn`."""

    def __init__(self, world: World, node: Node, fate: str) -> None:
        self.world, self.node, self.fate = world, node, fate
        now, rng = world.time.monotonic(), world.rng
        self.turn = now + float(rng.exponential(60.0))
        self.dies = min(node.until, self.turn if fate == "dies" else math.inf)
        starts = math.inf if fate == "never starts" else float(rng.uniform(1.0, 6.0))
        hello = f"{node.name} 0 {json.dumps(versions_here())}"
        self.hello = _Method(lambda: self._task(starts, hello))
        self.sign = _Method(lambda: self._task(0.001, "alive"))
        self.prepare = _Method(lambda text: self._task(1.0, "null"))
        self.close = _Method(lambda: self._task(0.1, "null"))
        self.build = self.measure = _Method(self._do)

    def _do(self, text: str) -> SimTask:
        world, job = self.world, job_of(text)
        world.given[text] += 1
        seconds = world.seconds(job) * (SLOW if self.fate == "slow" else 1.0)
        value = to_text(world.answer(job))
        if self.fate == "lies" and world.rng.random() < 0.5:
            value = str(world.rng.choice(LIES))
        return self._task(seconds, value)

    def _task(self, seconds: float, value: str) -> SimTask:
        now = self.world.time.monotonic()
        end = now + seconds
        if self.fate == "freezes" and end > self.turn:
            end = math.inf
        if self.fate == "pauses" and now <= self.turn < end:
            end += 30.0
        if end > self.dies:
            from ray.exceptions import RayActorError

            return SimTask(max(now, self.dies), RayActorError())
        return SimTask(end, value)


class _Method:
    def __init__(self, function: Callable[..., SimTask]) -> None:
        self.remote = function

    def options(self, **_: object) -> _Method:
        return self


class SimRay:
    """What our code asks of the module `ray`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: HERE)

    def nodes(self) -> list[dict[str, Any]]:
        now = self.world.time.monotonic()
        return [
            {"NodeID": n.name, "Alive": n.since <= now < n.until, "Resources": {"CPU": n.cores}}
            for n in self.world.nodes
        ]

    def wait(self, tasks: list[SimTask], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[SimTask], list[Any]]:
        clock_ = self.world.time
        if timeout and not any(task.at <= clock_.monotonic() for task in tasks):
            clock_.until(min(clock_.monotonic() + timeout, min(task.at for task in tasks)))
        now = clock_.monotonic()
        done = sorted((task for task in tasks if task.at <= now), key=lambda task: task.at)[:num_returns]
        return done, [task for task in tasks if task not in done]

    def get(self, task: SimTask) -> str:
        if isinstance(task.value, Exception):
            raise task.value
        return task.value

    def kill(self, handle: Handle) -> None:
        handle.dies = min(handle.dies, self.world.time.monotonic())


class DirectCalls(ray_calls.RayCalls):
    """Calls in this thread: nothing here hangs."""

    def __init__(self, ray: Any, core: Any = ()) -> None:
        self.ray, self.lost = ray, ""

    def call(self, function: Any, *arguments: Any, seconds: float = 0.0, **options: Any) -> Any:
        return function(*arguments, **options)

    def send(self, function: Any, *arguments: Any, seconds: float = 0.0, **options: Any) -> None:
        function(*arguments, **options)


class OwnBench:
    """What stands for the benches of the driver's process, which do the jobs where the cluster has nobody: one."""

    def __init__(self, world: World) -> None:
        self.world, self.node, self.number, self.since, self.ready = world, "this process", 1, 0.0, True
        self.actors: list[Any] = [self]
        self.task: SimTask | None = None
        self.job: int | None = None

    def start_missing(self) -> None:
        """It is there."""

    begin = stop_busy = start_missing

    def may_become_ready(self) -> bool:
        return True

    def idle(self) -> list[Any]:
        return [self] if self.task is None else []

    def give(self, _: object, method: str, number: int, job: Job[Any]) -> None:
        self.world.own += 1
        self.job, self.since = number, self.world.time.monotonic()
        self.task = SimTask(self.since + self.world.seconds(job), to_text(self.world.answer(job)))

    def wait(self, seconds: float) -> list[Any]:
        now = self.world.time.monotonic()
        self.world.time.until(min(now + seconds, self.task.at if self.task else now))
        return [self] if self.task and self.task.at <= self.world.time.monotonic() else []

    def receive(self, _: object) -> str:
        assert self.task is not None
        text, self.task, self.job = str(self.task.value), None, None
        return text

    def close(self, seconds: float = 0.0) -> None:
        """There is nothing to end."""


@contextlib.contextmanager
def simulated(world: World) -> Iterator[RayExecutor]:
    """An executor in this world, in which everything that tells the time has the world's."""
    session = SimpleNamespace(
        address="simulated:1", cpus=1, ray=SimRay(world), core=[], is_ready=True, what="", private=False,
        begin=lambda: None, close=lambda **_: None, abandon=lambda: None, is_slow=False, patience=None,
    )  # fmt: skip
    with contextlib.ExitStack() as patched:
        for module in (actor_pool, executor, clock, budget, loop, mirror, deadline):
            patched.enter_context(mock.patch.object(module, "time", world.time))
        patched.enter_context(mock.patch.object(actor_pool, "start_actor", world.start))
        patched.enter_context(mock.patch.object(executor, "RaySession", lambda *_: session))
        patched.enter_context(mock.patch.object(executor, "RayCalls", DirectCalls))
        patched.enter_context(mock.patch.object(executor, "LocalPool", lambda *_: OwnBench(world)))
        with RayExecutor("simulated:1") as made:
            yield made


# ---------------------------------------------------------------- faults


def made_up(folder: Path, size: int, seed: int = 0) -> Path:
    """A recorded space of a small product on a device that there is not; some candidates fail."""
    work, path = workload("matmul", m=61, n=67, k=71), folder / "made-up.space"
    target = Target(kind="cpu", name="Made-up CPU", vendor="None", isa="avx2", threads=1, vector_bits=256)
    record_space(Task(work, target, interface_of(work)), path, _Device(seed), Wanted(size), tell=str)  # type: ignore[arg-type]
    return path


class _Device:
    """Latencies by a hash of the choice."""

    def __init__(self, seed: int) -> None:
        self.seed, self.until, self.notes, self.timeline = seed, None, list[str](), None

    def build(self, jobs: Any, done: Any = None) -> list[Any]:
        return [self._built(job) for job in jobs]

    def measure(self, jobs: Any, done: Any = None) -> list[Any]:
        replies = [self._measured(job) for job in jobs]
        for index, reply in enumerate(replies):
            if done is not None:
                done(index, reply)
        return replies

    def _number(self, name: str) -> int:
        return zlib.crc32(f"{self.seed} {name}".encode())

    def _built(self, job: Build) -> Reply:
        name = "untuned" if job.choice is None else f"{job.choice.sketch} {job.choice.indices}"
        if self._number(name) % 17 == 0:
            return Failed(status="build_error", message="made to fail")
        artifact: Any = {"kind": "cpu", "entry": "", "code": name, "target": {}, "params": [], "workspaces": [],
                         "launches": []}  # fmt: skip
        return Built(kernel=Compiled(artifact, ()), code_hash=name)

    def _measured(self, job: Any) -> Reply:
        if isinstance(job, MeasureRoof):
            return Roofed(roof=Roof(100.0, 1e10))
        number = self._number(job.kernel.artifact["code"])
        if number % 23 == 0:
            return Failed(status="wrong", message="made to be wrong")
        return Measured(samples=((10.0 + number % 100_000 / 100) * 1e-6,) * 3, max_abs_error=0.0)


def build_times() -> np.ndarray[Any, Any]:
    """Seconds that real candidates took to build."""
    return np.asarray(json.loads(TIMES.read_text())["seconds"])


def cluster(workers: int, seed: int, cores: int = 8) -> list[Node]:
    """Nodes with so many cores in all, of which some are lost and some come late; the driver's offers none."""
    rng, now = np.random.default_rng([seed, 1]), time.monotonic()
    nodes = [Node(HERE, 0)]
    for number in range(1, -(-workers // cores) + 1):
        chance = rng.random()
        until = now + float(rng.exponential(NODE_LIFE_SECONDS)) if chance < 0.1 else math.inf
        since = now + float(rng.uniform(0, NODE_LIFE_SECONDS)) if chance > 0.9 else -math.inf
        nodes.append(Node(f"node{number}", cores, since, until))
    return nodes


@dataclass(frozen=True)
class Seen:
    """What a run with faults did: simulated and real seconds, and what was not as promised."""

    simulated: float
    real: float
    trials: int
    jobs: int
    repeated: int
    had: dict[str, int]
    problems: list[str]


def run_with_faults(space: Path, workers: int, seed: int, folder: Path, **options: Any) -> Seen:
    """A run of the real tuner on a recorded space, on workers whose fates are drawn."""
    recording, shown = load(space), list[dict[str, Any]]()
    device, times = RecordedExecutor(recording), build_times()
    clock_ = Time()

    def answer(job: Job[Any]) -> Reply:
        return device.build([job])[0] if isinstance(job, Build) else device.measure([job])[0]

    def seconds(job: Job[Any]) -> float:
        return float(world.rng.choice(times)) if isinstance(job, Build) else 0.1

    world = World(clock_, cluster(workers, seed), answer, seconds, FATES, seed)
    database, began, start = folder / f"run{seed}.db", time.monotonic(), clock_.monotonic()
    asked = {"workload": recording.workload, "params": dict(recording.params), "target": f"recorded:{space}",
             "interface": dict(recording.interface), "db": str(database), "mirror": False, "seed": seed,
             "batch": min(1024, 2 * workers), **options}  # fmt: skip
    with simulated(world) as executor_:
        winner = tuner.tune(settings(**asked), shown.append, executor_)
    took = clock_.monotonic() - start
    told = [event for event in shown if event["event"] == "trial"]
    with Database(database, read_only=True) as stored:
        kept = {record.id: record for record in stored.every()}
    problems = list(_problems(told, kept, shown[-1], world))
    true_us = device.recording.untuned_us
    if winner.trace is not None:
        candidate = winner.trace[0][1]
        (sketch,) = [s for s in recording.sketches if s.name == candidate["sketch"]]
        true_us = sketch.result(candidate["choice"])[0]
    if not math.isclose(winner.latency_us or 0.0, true_us, rel_tol=1e-6):
        problems.append(f"the winner claims {winner.latency_us} us and takes {true_us}")
    if (limit := options.get("seconds")) is not None and took > limit + 15.0:
        problems.append(f"it ended {took - limit:.0f} s late")
    given = world.given.values()
    return Seen(took, time.monotonic() - began, len(told), len(given), sum(n > 1 for n in given), dict(world.had),
                problems)  # fmt: skip


def _problems(told: list[dict[str, Any]], kept: Mapping[str, Any], last: dict[str, Any], world: World) -> Iterator[str]:
    ids, numbers = [event["record"] for event in told], [event["trial"] for event in told]
    if last["event"] != "done":
        yield f"the last event is {last['event']}"
    elif last["trials"] != len(told):
        yield f"{last['trials']} trials were counted, and {len(told)} told"
    if len(set(ids)) != len(ids) or len(set(numbers)) != len(numbers):
        yield f"{len(ids) - len(set(ids))} trials were told twice"
    lost = [event for event in told if event["record"] not in kept]
    if lost:
        yield f"{len(lost)} told trials are not stored"
    pairs = [(event, kept[event["record"]]) for event in told if event["record"] in kept]
    other = [r for e, r in pairs if r.stage == "trial" and (r.status, r.latency_us) != (e["status"], e["latency_us"])]
    if other:
        yield f"{len(other)} trials are stored otherwise than told"
    if (most := max(world.given.values(), default=0)) > GIVEN_AT_MOST:
        yield f"a job was given out {most} times"


def faults(asked: argparse.Namespace) -> int:
    failed = False
    print("| seed | trials | jobs, repeated | simulated, real seconds | fates of the actors | what went wrong |")
    print("|---:|---:|---:|---:|---|---|")
    with tempfile.TemporaryDirectory() as name:
        space = asked.space or made_up(Path(name), asked.size)
        for seed in range(asked.seeds):
            seen = run_with_faults(space, asked.workers, seed, Path(name), trials=asked.trials, sampler=asked.sampler)
            fates = ", ".join(f"{fate} {count}" for fate, count in sorted(seen.had.items()))
            print(f"| {seed} | {seen.trials} | {seen.jobs}, {seen.repeated} | {seen.simulated:.0f}, {seen.real:.0f} | "
                  f"{fates} | {'; '.join(seen.problems)} |", flush=True)  # fmt: skip
            failed = failed or bool(seen.problems)
    return int(failed)


# ---------------------------------------------------------------- scaling


def built_a_second(nodes: int, cores: int, candidates: int, seed: int = 0, real: bool = True) -> float:
    """Candidates that so many nodes build in a second, the driver's own time included where it is `real`."""
    clock_, times = Time(real), build_times()
    places = [Node(HERE, 0), *(Node(f"node{number}", cores) for number in range(1, nodes + 1))]
    rng = np.random.default_rng(seed)
    drawn = {str(number): float(rng.choice(times)) for number in range(candidates)}
    world = World(
        clock_, places, lambda job: Tested(pid=1), lambda job: drawn.get(getattr(job, "echo", ""), 0.01), seed=seed
    )
    with simulated(world) as executor_:
        executor_.build([SelfTest(what="ping", echo="first")])
        executor_.wait()
        clock_.sleep(10.0)  # all builders live
        executor_.build([SelfTest(what="ping", echo=f"warm{n}") for n in range(4 * nodes * cores)])
        began = clock_.monotonic()
        executor_.build([SelfTest(what="ping", echo=str(number)) for number in range(candidates)])
        return candidates / (clock_.monotonic() - began)


def scaling(asked: argparse.Namespace) -> int:
    times = build_times()
    print(f"{len(times)} recorded builds: median {np.median(times):.3f} s, longest {times.max():.2f} s; "
          f"{asked.cores} builders on a node\n")  # fmt: skip
    print("| nodes | candidates built a second | against one node |\n|---:|---:|---:|")
    found: list[float] = []
    for nodes in (1, 2, 3):
        found.append(built_a_second(nodes, asked.cores, asked.candidates))
        print(f"| {nodes} | {found[-1]:.1f} | {found[-1] / found[0]:.2f} |", flush=True)
    return int(found[-1] < 2.7 * found[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("faults", "scaling"))
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=3000, help="candidates of the made-up space")
    parser.add_argument("--space", type=Path, help="a recorded space")
    parser.add_argument("--sampler", default="stridesmith")
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=8)
    asked = parser.parse_args()
    return faults(asked) if asked.what == "faults" else scaling(asked)


if __name__ == "__main__":
    sys.exit(main())
