"""What becomes of random candidates: how many are masked, refused, built, and verified?

    python benchmarks/candidates.py --count 5000 --targets cpu,opencl --processes 3 --out candidates.jsonl

Candidates are drawn uniformly over the decisions of every workload of the suites, without a model, at the
suites' own extents and at extents that no tile divides: each parameter above 13 goes to the nearest prime.
``--league 7 --operators 60`` draws from the first 60 operators of that seed of the league instead (see
``league_draw.py``): grouped, transposed, scanned, gathered and broadcast ones that no suite has.
What the mask excludes is counted by the rule that excludes it and drawn again.  Each candidate is built and
verified in a disposable worker process as tuning does it, twice, with different poison (see
`backends.verification`); a worker serves until a candidate crashes it or gives wrong results.  Nothing is timed,
so the host's lock is left alone: measure nothing meanwhile.

The file has a line for each candidate; a run continues where the last one ended, and ``--shard 0/2`` takes
one part of two, for several machines.  Exit code 1 if a candidate that was built failed, or fewer than 95
of 100 were built.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from league_draw import draw

from stridesmith.backends.devices import discover
from stridesmith.configs.load import suite, suites
from stridesmith.configs.schema import Entry
from stridesmith.search.records.status import FAILURES, tells_nothing
from stridesmith.search.tasks.interface import Interface, interface_of
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers.process import WorkerProcess
from stridesmith.search.workers.protocol import Build, Failed, Job, Prepare, Reply, Verify
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.workloads import Workload, workload

EXTENTS = ("suite", "prime")
LEAGUE = "league "
BUILT = 0.95
AT_ONCE = 5
SMALLEST = 13
SECONDS: dict[type[Job[Any]], float] = {Build: 60.0, Prepare: 300.0, Verify: 120.0}
MACHINES_FAULT = ("build_timeout", "run_timeout", *filter(tells_nothing, FAILURES))
R = TypeVar("R", bound=Reply)
NOT_BUILT = ("masked", "refused", "build_error", "build_timeout")
Line = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A workload of a suite, at its own extents or at primes, or an operator of the league by number, on a target."""

    suite: str
    name: str
    extents: str
    target: str


@dataclass(frozen=True)
class Portion:
    """Some of the candidates of a place, by number."""

    place: Place
    numbers: tuple[int, ...]


def portions(arguments: argparse.Namespace, done: set[tuple[Any, ...]]) -> Iterator[Portion]:
    """What is left to do, a few candidates of every place in turn, so that a part of a run is a fair sample."""
    shard, shards = map(int, arguments.shard.split("/"))
    if arguments.league is None:
        names = [(name, e.name, x) for name in arguments.suites.split(",") for e in suite(name).entries
                 for x in arguments.extents.split(",")]  # fmt: skip
    else:
        names = [(f"{LEAGUE}{arguments.league}", str(n), "suite") for n in range(arguments.operators)]
    places = [Place(*name, target) for name in names for target in arguments.targets.split(",")]
    each, rest = divmod(arguments.count, len(places))
    for start in range(0, each + 1, AT_ONCE):
        for position, place in enumerate(places):
            stop = min(start + AT_ONCE, each + (position < rest))
            left = [n for n in range(start, stop) if (*asdict(place).values(), arguments.seed, n) not in done]
            if left and position % shards == shard:
                yield Portion(place, tuple(left))


def work_at(place: Place) -> tuple[Workload, Interface]:
    """The workload of a place, and its interface."""
    if place.suite.startswith(LEAGUE):
        operator = draw(int(place.suite.removeprefix(LEAGUE)), int(place.name))
        inputs = {name: "constant" if name in operator.constants else "fixed" for name in operator.work.inputs}
        return operator.work, interface_of(operator.work, inputs)
    entry: Entry = suite(place.suite).only(place.name).entries[0]
    params = dict(entry.work.params)
    if place.extents == "prime":
        params = {k: nearest_prime(v) if isinstance(v, int) and v > SMALLEST else v for k, v in params.items()}
    work = workload(entry.work.name, **params)
    return work, interface_of(work, entry.interface)


def nearest_prime(number: int) -> int:
    """The prime next to a number, the lower one of two."""
    candidates = sorted(range(2, 2 * number), key=lambda p: (abs(p - number), p))
    return next(p for p in candidates if all(p % q for q in range(2, int(p**0.5) + 1)))


@lru_cache(maxsize=4)
def space_at(place: Place) -> tuple[Workload, Space]:
    """The workload of a place and its design space."""
    work, interface = work_at(place)
    return work, generate(work.func, discover(place.target), interface)


def drawn(space: Space, rng: np.random.Generator, masked: Counter[str]) -> tuple[int, tuple[int, ...]] | None:
    """A random candidate that the mask lets through, of a random sketch; `masked` counts the others by rule.

    Where the mask lets few through they are drawn anchor by anchor, and counts are those of a sample.
    """
    for _ in range(16):
        number = int(rng.integers(len(space.sketches)))
        sketch = space.sketches[number]
        columns = [rng.integers(len(d), size=64) for d in sketch.decisions]
        rows = np.stack(columns, axis=1) if columns else np.zeros((1, 0), np.int64)
        good = np.flatnonzero(sketch.mask(rows))
        before = rows[: good[0]] if len(good) else rows
        left = np.ones(len(before), dtype=bool)
        for rule, excluded in sketch.exclusions(before).items():
            masked[rule] += int((left & excluded).sum())
            left &= ~excluded
        if len(good):
            return number, tuple(int(c) for c in rows[good[0]])
    for _ in range(16):
        number = int(rng.integers(len(space.sketches)))
        rows = space.sketches[number].draw(rng, 1)
        if len(rows):
            return number, tuple(int(c) for c in rows[0])
    return None


class Examiner:
    """Draws, builds and verifies candidates with one worker process that serves many."""

    def __init__(self) -> None:
        self.worker = WorkerProcess()

    def lines(self, portion: Portion, seed: int) -> Iterator[Line]:
        """One line for each candidate of a portion."""
        place = portion.place
        work, space = space_at(place)
        for number in portion.numbers:
            rng = np.random.default_rng([seed, number, zlib.crc32(repr(place).encode())])
            masked: Counter[str] = Counter()
            found = drawn(space, rng, masked)
            line: Line = asdict(place) | {"seed": seed, "number": number, "masked": dict(masked)}
            if found is None:
                yield line | {"status": "masked", "message": "no candidate passes the mask"}
                continue
            sketch = space.sketches[found[0]]
            line |= {"sketch": sketch.name, "choice": found[1]}
            yield line | self.outcome(work, sketch, found[1], place.target)

    def outcome(self, work: Workload, sketch: Sketch, choice: tuple[int, ...], target: str) -> Line:
        """What becomes of one candidate: its status, and the message of a failure."""
        try:
            trace = sketch.trace(choice).to_json()
        except ScheduleError as error:
            return {"status": "refused", "message": str(error)[:500]}
        built = self.asked(Build(script=work.script, target=discover(target), trace=trace))
        if isinstance(built, Failed):
            return told(built)
        prepared = self.asked(Prepare(work=name_of(work), seed=1))
        if isinstance(prepared, Failed):
            return told(prepared)
        return told(self.asked(Verify(kernel=built.kernel, work=name_of(work), seed=1)))

    def asked(self, job: Job[R]) -> R | Failed:
        """The worker's reply; what may be the machine's fault, such as a deadline that passed, is asked twice."""
        for last in (False, True):
            reply = self.worker.request(job, SECONDS[type(job)])
            if last or not (isinstance(reply, Failed) and reply.kind in MACHINES_FAULT):
                break
        return reply


def told(reply: Reply) -> Line:
    failed = isinstance(reply, Failed)
    return {"status": reply.status if failed else "ok", "message": reply.message[:500] if failed else ""}


_examiner: Examiner | None = None


def examine(portion: Portion, seed: int, out: Path) -> int:
    """Append the lines of a portion to the file; how many there were.  Runs in a process of the pool."""
    global _examiner
    _examiner = _examiner or Examiner()
    count = 0
    for line in _examiner.lines(portion, seed):
        with out.open("ab", buffering=0) as file:
            os.write(file.fileno(), json.dumps(line).encode() + b"\n")
        count += 1
    return count


def read(out: Path) -> list[Line]:
    """The lines of a file, without one that was cut short."""
    texts = out.read_text().split("\n")[:-1] if out.exists() else []
    return [json.loads(text) for text in texts]


def report(lines: list[Line]) -> bool:
    """Print the shares and reasons; whether they are good enough."""
    print(shares(lines))
    print()
    print(masks(lines))
    print()
    for (status, target, message), count in reasons(lines).most_common():
        print(f"{count:4} {status} on {target}: {message}")
    built = [r for r in lines if r["status"] not in NOT_BUILT]
    bad = Counter(r["status"] for r in built if r["status"] != "ok")
    share = len(built) / max(1, len(lines))
    failed = ", ".join(f"{count} {status}" for status, count in bad.items())
    print(
        f"{len(lines)} candidates, {share:.1%} built; of these {bad['wrong']} wrong, all failures: {failed or 'none'}"
    )
    return not bad and share >= BUILT


def shares(lines: list[Line]) -> str:
    """By suite, extents and target: candidates, the masked share of all that were drawn, and the outcomes."""
    rows = ["| suite | extents | target | candidates | masked | refused | not built | failed | verified |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for key in sorted({(r["suite"], r["extents"], r["target"]) for r in lines}):
        mine = [r for r in lines if (r["suite"], r["extents"], r["target"]) == key]
        status = Counter(r["status"] for r in mine)
        masked = sum(sum(r["masked"].values()) for r in mine)
        unbuilt = sum(status[s] for s in NOT_BUILT) - status["refused"]
        failed = len(mine) - status["ok"] - status["refused"] - unbuilt
        figures = (len(mine), f"{masked / (masked + len(mine)):.1%}", status["refused"], unbuilt, failed, status["ok"])
        rows.append(f"| {' | '.join(map(str, (*key, *figures)))} |")
    return "\n".join(rows)


def masks(lines: list[Line]) -> str:
    """For each target the share of all drawn candidates that each rule of the mask was the first to exclude."""
    targets = sorted({r["target"] for r in lines})
    found = {t: Counter[str]() for t in targets}
    for line in lines:
        found[line["target"]].update(line["masked"])
    total = {t: found[t].total() + sum(r["target"] == t for r in lines) for t in targets}
    rules = sorted({rule for counter in found.values() for rule in counter})
    rows = [f"| masked by | {' | '.join(targets)} |", f"|---|{'---:|' * len(targets)}"]
    rows += [f"| {r} | {' | '.join(f'{found[t][r] / max(1, total[t]):.1%}' for t in targets)} |" for r in rules]
    return "\n".join(rows)


def reasons(lines: Iterable[Line]) -> Counter[tuple[str, str, str]]:
    """How often each message of a failure was met, names and numbers left out."""
    plain = ((r, re.sub(r"`[^`]*`|'[^']*'|\d+", "_", r["message"])) for r in lines if r["status"] != "ok")
    return Counter((r["status"], r["target"], message[:200]) for r, message in plain)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--suites", default=",".join(suites()))
    parser.add_argument("--extents", default=",".join(EXTENTS), help="the suites' own, or primes next to them")
    parser.add_argument("--league", type=int, help="a seed of the league to draw operators from, not the suites")
    parser.add_argument("--operators", type=int, default=60, help="how many operators of the league")
    parser.add_argument("--targets", default="cpu,opencl")
    parser.add_argument("--shard", default="0/1", help="which part of how many")
    parser.add_argument("--processes", type=int, default=2, help="how many candidates at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("candidates.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print what the file holds")
    return parser.parse_args()


def main() -> int:
    arguments = options()
    if not arguments.report:
        keys = ("suite", "name", "extents", "target", "seed", "number")
        todo = list(portions(arguments, {tuple(line[k] for k in keys) for line in read(arguments.out)}))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.processes, context) as pool:
            waiting = [pool.submit(examine, portion, arguments.seed, arguments.out) for portion in todo]
            for number, future in enumerate(as_completed(waiting), 1):
                future.result()
                if number % 50 == 0 or number == len(todo):
                    print(f"{number} of {len(todo)} portions", file=sys.stderr, flush=True)
    return 0 if report(read(arguments.out)) else 1


if __name__ == "__main__":
    sys.exit(main())
