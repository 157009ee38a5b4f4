"""Is `stridesmith compare` fooled by noise, and does it find a real change?

    python benchmarks/comparing.py                      equal and changed pairs of simulated races
    python benchmarks/comparing.py --real DB --races 21 the same kernel raced again and again on this machine
    python benchmarks/comparing.py --turns DB --pairs 200  the same kernel twice in turns, as `compare --race` does

A simulated race has what was seen in real ones: a level of its own for each run (memory, clock), a slow drift, tails
that are heavy on one side, and spikes of a busy machine.  Each pair has as many tasks as `--tasks` says; one alarm in
any of them is an alarm of the pair.  A changed pair has one task that takes 5 % longer.

`--real` races the best record of a database against the same kernel built anew, each race in a process of its own and
with the device's peak measured beside it, as at the end of a run, and compares all pairs of races, 210 of 21 races:
none should be an alarm, and a change of 5 % should be found where one of the two is made so much slower.  How much
medians differ beyond what the samples of a race tell is `report.compare.SPREAD`, and `DISTURBED` on a host that delays
some of the samples (`tests/report/disturbed_races.json` has races on one that was busy).  A host that changes its
speed from race to race is seen by its bandwidth: a row tells of the pairs whose bandwidths are as near to each other as
those of a quiet machine.

`--turns` does what `stridesmith compare --race` does to two records with the best record of a database, raced against
itself: the kernel is loaded eight times in each process, with buffers of its own each time, and four pairs of these
take turns.  Each comparison has one pair from each of seven processes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from stridesmith.report.compare import BANDWIDTH_NOISE, SPREAD, Source, compare
from stridesmith.report.interval import ratio, ratio_in_turns
from stridesmith.search.calling import side_by_side
from stridesmith.search.calling.side_by_side import Turns
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.records.run_facts import RunFacts
from stridesmith.search.tasks.task import Roof, Task, stored_work
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.protocol import Build, Built, Compiled, Measured, Raced
from stridesmith.search.workers.protocol import Race as RaceJob

LEVEL, NOISE, DRIFT, SPIKES = 0.005, 0.012, 0.004, 0.06
TARGET = {"kind": "cpu", "name": "Simulated CPU", "isa": "avx2", "threads": 2}


def race(rng: np.random.Generator, latency_us: float, samples: int) -> list[float]:
    """Seconds of one race."""
    level = rng.normal(0, LEVEL)
    drift = np.cumsum(rng.normal(0, DRIFT / math.sqrt(samples), samples))
    noise = np.abs(rng.standard_t(3, samples)) * NOISE
    spikes = np.where(rng.random(samples) < SPIKES, rng.exponential(0.4, samples), 0.0)
    return [float(s) for s in latency_us * 1e-6 * np.exp(level + drift + noise + spikes)]


def source(name: str, races: Sequence[list[float]], limits: Roof | None = None) -> Source:
    """A database with a raced record for each task, of one run that measured the device's limits."""
    from stridesmith.report.compare import best_of

    facts = RunFacts(name=name)
    if limits is not None:
        facts = RunFacts(name=name, peak_gflops=limits.peak_gflops, bandwidth=limits.bandwidth)
    return Source(name, best_of([
        Record(
            script=f"def task{number}(): pass", target=dict(TARGET), trace=[], status="ok", samples=samples,
            latency_us=statistics.median(samples) * 1e6, verified=True, stage="race", run=name,
        )
        for number, samples in enumerate(races)
    ]), {name: facts})  # fmt: skip


def pair(rng: np.random.Generator, tasks: int, samples: int, change: float) -> tuple[bool, bool]:
    """Whether any equal task raised an alarm, and whether the changed one (the first) was found and is slower."""
    latencies = np.exp(rng.uniform(math.log(20), math.log(5000), tasks))
    a = source("a", [race(rng, us, samples) for us in latencies])
    slower = latencies * np.array([1 + change, *[1.0] * (tasks - 1)])
    found = compare(a, source("b", [race(rng, us, samples) for us in slower]))
    verdicts = {task.a.script: task.verdict for task in found.tasks}
    alarms = [script for script, verdict in verdicts.items() if verdict in ("faster", "slower")]
    first = "def task0(): pass"
    equal = [script for script in alarms if script != first or not change]
    return bool(equal), verdicts[first] == "slower"


def simulated(pairs: int, tasks: int, samples: int, change: float, seed: int = 0) -> tuple[float, float]:
    """The share of equal pairs with an alarm, and of changed ones in which the change was found."""
    rng = np.random.default_rng(seed)
    alarms = [pair(rng, tasks, samples, 0.0)[0] for _ in range(pairs)]
    found = [pair(rng, tasks, samples, change)[1] for _ in range(pairs)]
    return statistics.fmean(alarms), statistics.fmean(found)


def fastest(db: str) -> tuple[Task, Compiled]:
    """The task of the fastest record of a database, and its kernel built anew."""
    with Database(db, read_only=True) as database:
        record = min(database.winners(), key=lambda r: r.latency_us or 0.0)
    print(record.title)
    task = Task(stored_work(record.workload, record.params, record.script), record.device, dict(record.interface))
    with Bench() as bench:
        built = bench.build(Build(script=task.script, target=task.target, trace=record.trace))
    assert isinstance(built, Built), built
    return task, built.kernel


def races_of(db: str, races: int, seconds: float) -> Iterator[tuple[list[float], Roof]]:
    """The samples of the fastest record of a database, raced in as many processes, and the device's limits in each."""
    task, kernel = fastest(db)
    for number in range(races):
        with Bench() as bench:
            job = RaceJob(kernels=(kernel,) * 2, work=task.name, seed=number, called=task.called, seconds=seconds)
            reply = bench.measure(job)
            assert isinstance(reply, Raced) and reply.roof is not None, reply
            samples, roof = list(reply.results[0].samples), reply.roof  # type: ignore[union-attr]
            limits = f"{roof.peak_gflops:.1f} GFLOP/s, {roof.bandwidth * 1e-9:.1f} GB/s"
            print(f"race {number + 1}: {statistics.median(samples) * 1e6:.2f} us; the device has {limits}", flush=True)
            yield samples, roof


def real(db: str, races: int, seconds: float, change: float) -> None:
    """Race one kernel again and again, and compare all pairs, as they are and with one of the two made slower."""
    pairs = list(itertools.combinations(races_of(db, races, seconds), 2))
    print("| pairs | log ratios | samples tell | beside them | alarms | slower found | faster found |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    equal = [(a, b) for a, b in pairs if abs(math.log(a[1].bandwidth / b[1].bandwidth)) <= BANDWIDTH_NOISE]
    for name, chosen in (("all", pairs), ("of one state of the host", equal)):
        if not chosen:
            continue
        apart = [ratio(a, b, 0.0) for (a, _), (b, _) in chosen]
        seen = statistics.fmean(math.log(each.value) ** 2 for each in apart)
        told = statistics.fmean(each.error**2 for each in apart)
        verdicts = [
            [
                compare(source("a", [a], one), source("b", [[factor * s for s in b]], two)).tasks[0].verdict
                for (a, one), (b, two) in chosen
            ]
            for factor in (1.0, 1 + change, 1 - change)
        ]
        alarms = sum(verdict in ("faster", "slower") for verdict in verdicts[0])
        slower, faster = verdicts[1].count("slower"), verdicts[2].count("faster")
        print(
            f"| {name}: {len(chosen)} | {math.sqrt(seen):.2%} | {math.sqrt(told):.2%} | "
            f"{math.sqrt(max(0.0, seen - told)):.2%} (compare takes {SPREAD:.2%}) | {alarms} | {slower} | {faster} |"
        )


COPIES = 8
"""Kernels in one process, of which two are a pair."""


def turns_of(db: str, processes: int) -> Iterator[list[Turns]]:
    """The fastest record of a database against itself, pair by pair, in one process after the other."""
    task, kernel = fastest(db)
    for number in range(processes):
        with Bench() as bench:
            job = RaceJob(
                kernels=(kernel,) * COPIES, work=task.name, seed=number, called=task.called,
                seconds=COPIES / 2 * side_by_side.SECONDS, roof=False, first=True,
            )  # fmt: skip
            reply = bench.measure(job)
        assert isinstance(reply, Raced), reply
        samples = []
        for result in reply.results:
            assert isinstance(result, Measured), result
            samples.append(result.samples)
        yield list(zip(samples[::2], samples[1::2], strict=True))


def in_turns(db: str, pairs: int, change: float) -> None:
    """Compare a kernel with itself, as it is and with one of the two made slower, by races of seven processes."""
    each = side_by_side.RACES
    found: list[list[Turns]] = []
    waiting: list[list[Turns]] = []
    for number, turns in enumerate(turns_of(db, each * math.ceil(pairs / (COPIES // 2)))):
        waiting.append(turns)
        if len(waiting) == each:
            found += [[turns[k] for turns in waiting] for k in range(COPIES // 2)]
            waiting = []
            print(f"{len(found)} of {pairs} pairs, {number + 1} processes", flush=True)
    one, two = source("a", [[1e-4]]), source("b", [[1e-4]])
    (key,) = one.best
    verdicts = [
        [
            compare(one, two, races={key: [(a, [factor * s for s in b]) for a, b in races]}).tasks[0].verdict
            for races in found
        ]
        for factor in (1.0, 1 + change, 1 - change)
    ]
    alarms = sum(verdict in ("faster", "slower") for verdict in verdicts[0])
    apart = [ratio_in_turns(races, 0.0) for races in found]
    seen = statistics.pstdev(math.log(each.value) for each in apart)
    print("| pairs | log ratios | alarms | slower found | faster found |\n|---:|---:|---:|---:|---:|")
    print(f"| {len(found)} | {seen:.2%} | {alarms} | {verdicts[1].count('slower')} | {verdicts[2].count('faster')} |")


def main() -> None:
    """Print a table, or what real races differ by."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--change", type=float, default=0.05)
    parser.add_argument("--real", metavar="DB")
    parser.add_argument("--turns", metavar="DB")
    parser.add_argument("--races", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.turns:
        in_turns(arguments.turns, arguments.pairs, arguments.change)
        return
    if arguments.real:
        real(arguments.real, arguments.races, arguments.seconds, arguments.change)
        return
    print("tasks  samples  false alarms  found")
    for tasks, samples in ((1, 20), (1, 50), (1, 400), (10, 50), (50, 50)):
        alarms, found = simulated(arguments.pairs, tasks, samples, arguments.change)
        print(f"{tasks:5}  {samples:7}  {alarms:12.1%}  {found:5.1%}")


if __name__ == "__main__":
    main()
