"""What one call of each primitive costs on conv2d, proofs included.

    python benchmarks/proofs.py [CANDIDATES] [REPEATS]

Draws candidates of the CPU design space of conv2d (ci=64, 28x28, co=96, 3x3), replays their
traces instruction by instruction, and prints for each primitive how often it was called and
the median and 90th percentile over calls:

    cold   the first call after every memory of proofs and simplifications was cleared
    warm   the best of REPEATS further calls on the same program

The last row is over all calls.  Times are milliseconds of this process alone.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict

import numpy as np

from stridesmith.ir.caches import clear_caches
from stridesmith.ir.target import Target
from stridesmith.space.design.space import generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Trace
from stridesmith.space.workloads import workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)


def traces(count: int) -> list[Trace]:
    """Traces of random candidates that schedule."""
    work = workload("conv2d", ci=64, h=28, w=28, co=96, k=3)
    space = generate(work.func, CPU, dict.fromkeys(work.constants, "constant"))
    rng = np.random.default_rng(1)
    found: list[Trace] = []
    while len(found) < count:
        sketch = space.sketches[int(rng.integers(len(space.sketches)))]
        drawn = np.stack([rng.integers(0, len(d), 64) for d in sketch.decisions], axis=1)
        for row in drawn[sketch.mask(drawn)][:1]:
            try:
                found.append(sketch.trace([int(c) for c in row]))
            except ScheduleError:
                continue
    return found


def fresh_copy(func):
    """An equal program that shares no node with `func`, so that nothing is remembered on its nodes."""
    import pickle

    return pickle.loads(pickle.dumps(func))


def measure(trace: Trace, repeats: int, cold: dict[str, list[float]], warm: dict[str, list[float]]) -> None:
    """Time every instruction of a trace at its place."""
    func = workload("conv2d", ci=64, h=28, w=28, co=96, k=3).func
    for instruction in trace.instructions:
        primitive = PRIMITIVES[instruction.name]
        copy = fresh_copy(func)
        clear_caches()
        gc.collect()
        start = time.perf_counter()
        primitive.apply(copy, instruction.arguments)
        cold[instruction.name].append(1e3 * (time.perf_counter() - start))
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            result = primitive.apply(func, instruction.arguments)
            best = min(best, 1e3 * (time.perf_counter() - start))
        warm[instruction.name].append(best)
        func = result[0]


def main() -> None:
    count, repeats = (int(a) for a in (sys.argv[1:] + ["6", "5"][len(sys.argv) - 1 :]))
    cold: dict[str, list[float]] = defaultdict(list)
    warm: dict[str, list[float]] = defaultdict(list)
    for trace in traces(count):
        measure(trace, repeats, cold, warm)
    print(f"{'primitive':40s} {'calls':>6s} {'cold ms':>9s} {'90%':>9s} {'warm ms':>9s} {'90%':>9s}")
    for name in sorted(cold):
        print(_row(name, cold[name], warm[name]))
    print(_row("all", [t for v in cold.values() for t in v], [t for v in warm.values() for t in v]))


def _row(name: str, cold: list[float], warm: list[float]) -> str:
    figures = (np.median(cold), np.percentile(cold, 90), np.median(warm), np.percentile(warm, 90))
    return f"{name:40s} {len(cold):6d} " + " ".join(f"{f:9.2f}" for f in figures)


if __name__ == "__main__":
    main()
