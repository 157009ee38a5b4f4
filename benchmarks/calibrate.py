"""Kernels and latencies that the weights of the estimate are fitted to (see `cost_model.fit`).

    python benchmarks/calibrate.py build --target avx512 --each 60 --seconds 600 --processes 2
    python benchmarks/calibrate.py time  --target avx512 --seconds 240
    python benchmarks/calibrate.py pack  --target avx512

    python benchmarks/calibrate.py build --target opencl --each 24 --seconds 3000 --processes 2
    python benchmarks/calibrate.py time  --target opencl --seconds 500 [--round 2]
    python benchmarks/calibrate.py pack  --target opencl

Shapes are those of `calibration.toml`, none of which is in a suite.  ``build`` draws candidates of each design space
(some uniformly, some that the present weights like, some mutations of the best, which are the best measured ones
where there are any), and keeps their objects under ``--work``; ``time`` runs each of them in turns with one of its
shape, and wants the machine for itself (the least of several rounds counts); ``pack`` writes what a fit needs to
``calibration/TARGET.npz``, with ``--add`` beside other shapes that it has.  The first two end when their time is over
and continue where they were; a kernel is neither verified nor guarded, which is the business of `candidates.py`.
Each shape has a process of its own, which notes in ``SHAPE.tried`` what it is about to build or to run: one that
crashes, or hangs for `ALARM_SECONDS`, ends that process, and the next one leaves it out.

Targets: ``avx512`` and ``avx2`` are this CPU with that instruction set; ``avx512-bytes`` the same for the shapes
of bytes, whose convolutions have the epilogue of quantised networks (`byte_programs.py`), and ``avx512-bfloat16`` for
convolutions and products in bfloat16; ``opencl`` is the first
OpenCL device, or the one of ``--device``, and ``opencl-warps`` one that runs work-items in step, a GPU.  What PoCL
compiles travels with the kernel, so that timing compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from byte_programs import requantised
from numpy.typing import NDArray

from stridesmith.backends.cores import settler
from stridesmith.backends.devices import discover
from stridesmith.backends.executable import Bound
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.backends.timing import LONG_SECONDS, MIN_SAMPLE_SECONDS, calls_for, warm_up
from stridesmith.configs.load import config
from stridesmith.configs.load import target as described
from stridesmith.configs.schema import Entry
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.target import Target
from stridesmith.search.tasks.interface import interface_of
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

HERE = Path(__file__).resolve().parent
SHAPES = HERE / "calibration.toml"
ISA = {
    "avx512": "cpu-avx512", "avx2": "cpu-avx2", "avx512-bytes": "cpu-avx512", "avx512-bfloat16": "cpu-avx512",
}  # fmt: skip
OF_BYTES = "-bytes"  # at the end of a target's name: the shapes are those of bytes
OF_BFLOAT16 = "-bfloat16"  # convolutions and products of float32 shapes, in bfloat16
SHARES = {"drawn": 0.4, "liked": 0.35, "mutated": 0.25}
POOL = 400  # candidates of each sketch, of which the estimate likes some
PARENTS = 12
LIKED = 0.2  # of the pool, of which the first ones are taken more often
CONTROLS = 4  # that are timed first, and the best of which takes turns with all others
TURNS = 4
ENDLESS_SECONDS = 0.5
SLOW = 8.0  # times the control, beyond which two turns are enough
BUSY = 1.3  # times what is known of the control
ATTEMPTS = 4
PAUSE_SECONDS = 0.2
IDLE_SECONDS, IDLE_TICKS = 0.1, 2
PATIENCE_SECONDS = 5.0
ALARM_SECONDS = 60  # for building a kernel, or for timing it
LIVES = 10  # processes of a shape that may be ended by what they build or run
BYTES = ("int8", "uint8")
SUMS = ("conv2d", "conv2d_bias_act", "depthwise_conv2d", "matmul", "matmul_bias_act")  # of products, as networks have
Candidate = tuple[int, tuple[int, ...]]  # number of the sketch, and its choices
Line = dict[str, Any]


def target_of(options: argparse.Namespace) -> Target:
    """This machine as a target of the named class."""
    return as_class(options.target) if options.target in ISA else discover(options.device)


def as_class(name: str) -> Target:
    """This machine's CPU with the instruction set of a class."""
    host, wanted = discover("cpu"), described(ISA[name])
    if host.isa == wanted.isa:
        return host
    return replace(
        host, isa=wanted.isa, cpu=wanted.cpu, features=wanted.features,
        vector_bits=wanted.vector_bits, registers=wanted.registers,
    )  # fmt: skip


def entries_of(options: argparse.Namespace) -> tuple[Entry, ...]:
    """The shapes for a target: those of bytes, each as networks have it, or all others, of which bfloat16 has sums."""
    entries = config(SHAPES).entries
    if options.target.endswith(OF_BYTES):
        return tuple(replace(e, work=requantised(e.work)) for e in entries if e.work.dtype in BYTES)
    floats = tuple(entry for entry in entries if entry.work.dtype not in BYTES)
    if options.target.endswith(OF_BFLOAT16):
        summed = (entry for entry in floats if entry.work.name in SUMS)
        return tuple(replace(e, work=workload(e.work.name, **e.work.shape, dtype="bfloat16")) for e in summed)
    return floats


class Shape:
    """One shape's design space on a target, from which candidates are taken."""

    def __init__(self, entry: Entry, target: Target, seed: int) -> None:
        self.rng = np.random.default_rng([seed, *entry.name.encode()])
        space = generate(entry.work.func, target, interface_of(entry.work, entry.interface))
        self.sketches = [s for s in space.sketches if s.parts]
        self.features = FeatureMap(self.sketches, target)
        self.pool = sorted(
            ((float(score), (number, tuple(map(int, row)))) for number, sketch in enumerate(self.sketches)
             for row, score in self._scored(number, sketch)),
        )  # fmt: skip

    def _scored(self, number: int, sketch: Sketch) -> Iterator[tuple[NDArray[np.int64], float]]:
        rows = sketch.draw(self.rng, POOL)
        yield from zip(rows, self.features.estimate(number, rows).tolist(), strict=True)

    def take(self, origin: str, best: list[Candidate]) -> Candidate | None:
        """A candidate of the named origin; `best` are measured ones, best first."""
        if origin == "mutated":
            parents = best[:PARENTS] or [candidate for _, candidate in self.pool[:PARENTS]]
            return self._mutated(parents[int(self.rng.integers(len(parents)))])
        if origin == "liked":
            span = max(1.0, LIKED * len(self.pool))
            return self.pool[min(int(np.exp(self.rng.uniform(0, np.log(span)))), len(self.pool)) - 1][1]
        numbers = sorted({number for _, (number, _) in self.pool})
        number = numbers[int(self.rng.integers(len(numbers)))]
        rows = self.sketches[number].draw(self.rng, 1)
        return (number, tuple(map(int, rows[0]))) if len(rows) else None

    def _mutated(self, parent: Candidate) -> Candidate | None:
        """The parent with one to three other choices, if the mask lets it through."""
        number, choice = parent
        sketch, row = self.sketches[number], list(choice)
        for _ in range(int(self.rng.integers(1, 4))):
            position = int(self.rng.integers(len(row)))
            row[position] = int(self.rng.integers(len(sketch.decisions[position])))
        return (number, tuple(row)) if sketch.mask(np.array([row]))[0] else None

    def columns(self, candidate: Candidate) -> list[Line]:
        """What the estimate reads of each block."""
        number, choice = candidate
        return [
            {"points": points, "columns": {name: float(values[0]) for name, values in columns.items()}}
            for points, columns in self.features.blocks(number, np.array([choice]))
        ]


def build(name: str, options: argparse.Namespace, deadline: float) -> None:
    """Build more kernels of a shape, until there are ``--each``."""
    path, target = options.work / options.target / name, target_of(options)
    known, tried = read(path.with_suffix(".kernels")), read(path.with_suffix(".tried"))
    (entry,) = (e for e in entries_of(options) if e.name == name)
    shape = Shape(entry, target, options.seed + len(known))
    seen = {(line["sketch"], tuple(line["choice"])) for line in (*known, *tried)}
    codes = {line["artifact"]["code"] for line in known}
    best = measured(known, read(path.with_suffix(".times")))
    for _ in range(4 * options.each if shape.pool else 0):
        if len(known) >= options.each or time.time() > deadline:
            break
        origin = str(shape.rng.choice(list(SHARES), p=list(SHARES.values())))
        candidate = shape.take(origin, best)
        if candidate is None or candidate in seen:
            continue
        seen.add(candidate)
        attempt(path.with_suffix(".tried"), {"sketch": candidate[0], "choice": candidate[1]})
        try:
            func = shape.sketches[candidate[0]].schedule(candidate[1]).func
            artifact = compile_lowered(lower(func, target), target)
        except Exception as error:
            print(f"{name}: not built: {str(error)[:120]}", file=sys.stderr)
            continue
        if artifact["code"] in codes:
            continue
        codes.add(artifact["code"])
        known.append({"sketch": candidate[0], "choice": candidate[1], "origin": origin,
                      "blocks": shape.columns(candidate), "artifact": artifact})  # fmt: skip
        append(path.with_suffix(".kernels"), known[-1])


def attempt(path: Path, line: Line) -> None:
    """Note what may crash or hang, and give it `ALARM_SECONDS`, after which this process is ended."""
    append(path, line)
    signal.alarm(ALARM_SECONDS)


def missing(name: str, options: argparse.Namespace) -> int:
    """How many kernels of a shape are not yet built, or not yet timed in this round."""
    path = options.work / options.target / name
    kernels = read(path.with_suffix(".kernels"))
    if options.step == "build":
        return max(0, int(options.each) - len(kernels))
    return len(untimed(len(kernels), read(path.with_suffix(".times")), options.round))


def untimed(kernels: int, times: list[Line], turn: int) -> list[int]:
    """The kernels that are to be timed in a round: those that were not yet, and never ended their process."""
    done, least = {line["kernel"] for line in times if line["round"] == turn}, least_of(times)
    return [number for number in range(kernels) if number not in done and least.get(number, 0.0) < np.inf]


def alone(name: str, options: argparse.Namespace, deadline: float) -> str:
    """Do a step for a shape in a process of its own, in another one where that was ended; what came of it."""
    work, ended = build if options.step == "build" else take_times, 0
    while missing(name, options) and time.time() < deadline and ended < LIVES:
        process = multiprocessing.get_context("spawn").Process(target=work, args=(name, options, deadline))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        ended += 1
    return f"{missing(name, options)} kernels to go" + f", {ended} ended their process" * bool(ended)


def measured(kernels: list[Line], times: list[Line]) -> list[Candidate]:
    """The candidates that were timed, the fastest first."""
    least = least_of(times)
    order = sorted((n for n in least if least[n] < np.inf), key=lambda n: least[n])
    return [(kernels[n]["sketch"], tuple(kernels[n]["choice"])) for n in order]


def least_of(times: list[Line]) -> dict[int, float]:
    """The least microseconds of each kernel, over the rounds: infinity where it ended its process."""
    found: dict[int, float] = {}
    for line in times:
        found[line["kernel"]] = min(float(line["us"]), found.get(line["kernel"], np.inf))
    return found


def bound_of(artifact: Any, rng: np.random.Generator) -> Bound:
    """The kernel on memory of its own that holds numbers in (-1, 1): untouched pages would all be one page of zeros."""
    executable = load_artifact(artifact)
    bound = executable.bind()
    for index, memory in enumerate((*executable.params, *executable.workspaces)):
        noise = rng.uniform(-1, 1, min(memory.nbytes // 2, 1 << 20)).astype(np.float32)
        values = {"float32": noise, "bfloat16": (noise.view(np.uint32) >> 16).astype(np.uint16)}
        given = values.get(memory.dtype, np.ones(1, np.uint8))
        bound.write(index, np.resize(given, memory.nbytes // given.itemsize))
    return bound


class Turn:
    """A kernel that is called when its threads have cores."""

    def __init__(self, bound: Bound, settle: Any) -> None:
        self._bound, self._settle = bound, settle

    def time(self, calls: int) -> float:
        self._settle()
        return self._bound.time(calls)


def take_times(name: str, options: argparse.Namespace, deadline: float) -> None:
    """Time the kernels of a shape in this round."""
    path, rng = options.work / options.target / name, np.random.default_rng(0)
    kernels, times = read(path.with_suffix(".kernels")), path.with_suffix(".times")
    left = untimed(len(kernels), read(times), options.round)
    settle = settler(target_of(options))
    await_idle()

    def begin(number: int) -> Turn:
        """The kernel takes forever until something else is known."""
        attempt(times, {"kernel": number, "round": options.round, "us": np.inf})
        return Turn(bound_of(kernels[number]["artifact"], rng), settle)

    first = [number for number in likely(kernels) if least_of(read(times)).get(number, 0.0) < np.inf]
    turns = [begin(number) for number in first]
    seconds = [least_time(turn) for turn in turns]
    for number, found in zip(first, seconds, strict=True):
        append(times, {"kernel": number, "round": options.round, "us": 1e6 * found})
    known = min(seconds)
    control = turns[seconds.index(known)]
    for number in left:
        if time.time() > deadline:
            break
        microseconds = 1e6 * beside(begin(number), control, known)
        append(times, {"kernel": number, "round": options.round, "us": microseconds, "control": 1e6 * known})


def await_idle() -> None:
    """Return when next to nothing else runs on the machine, after `PATIENCE_SECONDS` in any case."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        before = busy_ticks()
        time.sleep(IDLE_SECONDS)
        if busy_ticks() - before <= IDLE_TICKS:
            return


def busy_ticks() -> int:
    """Hundredths of a second that the machine's processors have been busy, all together; 0 where nobody tells."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    except (OSError, ValueError):
        return 0
    return user + nice + system + sum(rest)


def likely(kernels: list[Line]) -> list[int]:
    """The first kernels, of those that the estimate liked or came from such ones, as far as there are any."""
    return sorted(range(len(kernels)), key=lambda number: bool(kernels[number]["origin"] == "drawn"))[:CONTROLS]


def least_time(turn: Turn) -> float:
    """The least seconds of a call, of several samples."""
    calls = calls_for(warm_up(turn), MIN_SAMPLE_SECONDS)
    return min(turn.time(calls) for _ in range(TURNS))


def beside(turn: Turn, control: Turn, known: float) -> float:
    """Seconds of a kernel, as they would be had the control taken the seconds that are `known` of it all the while.

    The two take turns, and the least that each took counts: what else runs on a machine makes single turns longer.
    While the control takes far longer than is known, the machine is busy, and all is done again after a pause.  What
    takes longer than `ENDLESS_SECONDS` is called no more.
    """
    probe = warm_up(turn)
    if probe > ENDLESS_SECONDS:
        return probe
    mine, yours = calls_for(probe, MIN_SAMPLE_SECONDS), calls_for(known, MIN_SAMPLE_SECONDS)
    for attempt in range(ATTEMPTS):
        found, others = [], []
        for _ in range(TURNS if probe < SLOW * known else 2):
            control.time(yours)
            others.append(control.time(yours))
            found.append(turn.time(mine) if probe > LONG_SECONDS else min(turn.time(mine), turn.time(mine)))
        if min(others) < BUSY * known:
            break
        time.sleep(PAUSE_SECONDS * 2**attempt)
        await_idle()
    return min(found) * known / min(others)


def pack(entries: tuple[Entry, ...], options: argparse.Namespace, target: Target) -> None:
    """Write what a fit needs of all kernels that have a latency."""
    from stridesmith.cost_model.calibration import Calibration, Machine, Timed
    from stridesmith.cost_model.formulas import COLUMNS
    from stridesmith.cost_model.weights import weights_of

    kind = type(weights_of(target))
    rows: list[tuple[int, float, Line]] = []
    timed: list[Timed] = []
    for entry in entries:
        kernels = read(options.work / options.target / f"{entry.name}.kernels")
        for position, microseconds in least_of(read(options.work / options.target / f"{entry.name}.times")).items():
            if microseconds == np.inf:
                continue
            kernel = kernels[position]
            rows += [(len(timed), block["points"], {"products": 1.0, **block["columns"]}) for block in kernel["blocks"]]
            timed.append(Timed(entry.name, microseconds, kernel["origin"]))
    name = f"{target.name}, {target.isa}, {target.threads} threads, {target.versions}"
    machine = Machine(name, float(target.vector_lanes("float32")), float(target.units))
    groups = {entry.name: entry.work.name for entry in entries}
    names = (*COLUMNS[kind], *(("products",) if options.target.startswith("avx512-") else ()))
    found = Calibration.of(machine, groups, timed, rows, names)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.target}.npz"
    if options.add:
        found = Calibration.load(path, kind).with_more(found)
    found.save(path)
    shapes = len(set(found.shape.tolist()))
    print(f"{path}: {len(found.latency)} kernels of {shapes} shapes, {path.stat().st_size / 1e6:.2f} MB")


def read(path: Path) -> list[Line]:
    """The lines of a file, without one that was cut short."""
    return [json.loads(text) for text in path.read_text().split("\n")[:-1]] if path.exists() else []


def append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("build", "time", "pack"))
    parser.add_argument("--target", choices=(*ISA, "opencl", "opencl-warps"), default="avx512")
    parser.add_argument("--device", default="opencl", help="the device of the target opencl")
    parser.add_argument("--seconds", type=float, default=600.0, help="when to end, or to stop building or timing")
    parser.add_argument("--each", type=int, default=60, help="kernels of each shape")
    parser.add_argument("--only", default="", help="names of shapes, with commas")
    parser.add_argument("--processes", type=int, default=2, help="builds at a time")
    parser.add_argument("--round", type=int, default=1, help="a kernel is timed once in each round; the least counts")
    parser.add_argument("--add", action="store_true", help="pack beside what the file has, of other shapes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("calibration-work"), help="where objects and times are kept")
    parser.add_argument("--out", type=Path, default=HERE / "calibration", help="where the packed data goes")
    return parser.parse_args()


def main() -> None:
    options = options_of()
    only = [name for name in options.only.split(",") if name]
    entries = tuple(e for e in entries_of(options) if not only or e.name in only)
    deadline = time.time() + options.seconds
    if options.step == "pack":
        pack(entries, options, target_of(options))
        return
    # What is compiled here does not push the kernels of this machine's user out of PoCL's cache.
    os.environ.setdefault("POCL_CACHE_DIR", str((options.work / "pocl").resolve()))
    with ThreadPoolExecutor(options.processes if options.step == "build" else 1) as pool:
        waiting = {pool.submit(alone, entry.name, options, deadline): entry for entry in entries}
        for future in as_completed(waiting):
            print(f"{waiting[future].name}: {future.result()}", flush=True)


if __name__ == "__main__":
    main()
