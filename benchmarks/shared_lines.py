"""What a store costs into a cache line that another thread writes: the number in `cost_model.geometry.LINE_MEETINGS`.

    python benchmarks/shared_lines.py [--threads 2] [--rows 512]

Rows of one cache line each are written column by column.  Where threads share the columns, each line has as many
writers as there are threads, and goes back and forth between them; where they share the rows, it has one.  The
difference of the two times, over the stores, is what a store costs more, all threads together.  Medians of turns.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import stridesmith as ss
from stridesmith import T

COLUMNS = 16  # of float32, 64 bytes
TURNS = 15


def program(rows: int) -> ss.PrimFunc:
    """``y[r, c] = x[r, c] + 1``."""

    @ss.prim_func
    def added(x: T.Buffer((rows, COLUMNS), "float32"), y: T.Buffer((rows, COLUMNS), "float32")):  # type: ignore[no-untyped-def]
        for c, r in T.grid(COLUMNS, rows):
            with T.block("added"):
                vc, vr = T.axis.remap("SS", [c, r])
                y[vr, vc] = x[vr, vc] + T.float32(1)

    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=512)
    asked = parser.parse_args()
    kernels = {}
    for shared in ("c", "r"):
        sch = ss.Schedule(program(asked.rows))
        if shared == "r":
            outer, inner = sch.split("r", [asked.threads, None])
            sch.reorder(outer, "c", inner)
        else:
            outer, _ = sch.split("c", [asked.threads, None])
        sch.parallel(outer)
        kernels[shared] = ss.build(sch, ss.Target("cpu", threads=asked.threads))
    x = np.ones((asked.rows, COLUMNS), np.float32)
    times: dict[str, list[float]] = {shared: [] for shared in kernels}
    for _ in range(TURNS):
        for shared, kernel in kernels.items():
            times[shared].append(kernel.time(x, seconds=0.1).latency_us)
    torn, whole = (statistics.median(times[shared]) for shared in ("c", "r"))
    stores = asked.rows * COLUMNS
    print(
        f"columns shared {torn:.1f} us, rows shared {whole:.1f} us: {1e3 * (torn - whole) / stores:.1f} ns a store more"
    )


if __name__ == "__main__":
    main()
