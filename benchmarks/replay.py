"""How long a trace takes to replay: candidates of one space, with the proofs of others warm.

    python benchmarks/replay.py [--workload conv2d] [--instructions 40] [--traces 8] [--rounds 10] [--profile]

Traces of random candidates, the nearest to the asked number of instructions first, are replayed in turn.
`proofs warm` is the fastest replay in which every primitive is applied anew, with the proofs of earlier replays at
hand; `remembered` the fastest in which the applications themselves are remembered.  Times are CPU time of the
process, so that a busy machine changes little; `calls` counts Python function calls of the former, which does not
depend on the machine.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable

import numpy as np

from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.space.design.space import Space, generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.primitive import forget
from stridesmith.space.schedule import Trace
from stridesmith.space.workloads import workload

TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)


def traces_of(space: Space, instructions: int, count: int) -> list[Trace]:
    """Traces of random candidates whose length is nearest to `instructions`."""
    rng = np.random.default_rng(0)
    search_space = SearchSpace(space)
    found: list[Trace] = []
    for number in search_space.open:
        for row in search_space.draw(rng, number, 4 * count):
            try:
                found.append(space.sketches[number].trace([int(c) for c in row]))
            except ScheduleError:
                continue
            if len(found) >= 8 * count:
                break
    return sorted(found, key=lambda t: abs(len(t) - instructions))[:count]


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of CPU time."""
    began = time.process_time()
    action()
    return (time.process_time() - began) * 1e3


def anew(trace: Trace, func: PrimFunc) -> None:
    """Replay without remembered applications."""
    forget()
    trace.replay(func)


def profiled(trace: Trace, func: PrimFunc) -> pstats.Stats:
    """Where the time of a replay with warm proofs goes."""
    profile = cProfile.Profile()
    profile.runcall(anew, trace, func)
    return pstats.Stats(profile)


def main() -> None:
    """Print a line for each trace and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="conv2d")
    parser.add_argument("--instructions", type=int, default=40)
    parser.add_argument("--traces", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true", help="print where the time of a warm replay goes")
    options = parser.parse_args()

    work = workload(options.workload)
    space = generate(work.func, TARGET, dict.fromkeys(work.constants, "constant"))
    traces = traces_of(space, options.instructions, options.traces)
    rows = []
    for trace in traces:
        warm = min(timed(lambda trace=trace: anew(trace, work.func)) for _ in range(options.rounds))
        again = min(timed(lambda trace=trace: trace.replay(work.func)) for _ in range(options.rounds))
        rows.append((warm, again, profiled(trace, work.func).total_calls))
        print(f"{len(trace):3d} instructions: proofs warm {warm:6.1f} ms, remembered {again:5.1f} ms, "
              f"{rows[-1][2]:,} calls")  # fmt: skip
    warm, again, calls = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"median of {len(rows)}: proofs warm {warm:.1f} ms, remembered {again:.1f} ms, {calls:,.0f} calls")
    if options.profile:
        profiled(traces[0], work.func).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
