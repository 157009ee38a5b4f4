"""A hundred records from elsewhere, half of them bad: is each bad one refused with its reason, and in what time?

    python benchmarks/foreign.py [--records 100] [--seed 0]

The good ones are schedules that the design space has for the program, the bad ones (in turns):

    wrong           its kernel computes something else: the last loop runs one time fewer
    crash           its kernel stores to where no memory is
    endless         its kernel does not return
    out of bounds   a layout that leaves the buffer that it says it fills
    no schedule     instructions for a loop that there is not, factors that do not multiply, an unknown primitive
    interface       a layout of an argument that the caller wants to stay as it is
    slow            a schedule that is slower than the program as it was written

All claim a nanosecond, and all come by `stridesmith import`.  Kernels that are wrong, crash or do not return are made
so by a fault that is put into their code here (`backends/faults.py`): no legal trace makes such ones.  Each record is
then replayed (`stridesmith replay --any-device`), which proves, verifies and races it.  Printed is a row for each kind,
and at the end what the best record is; 1 where a bad one was trusted or a reason is missing.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.search.calling.replay import replay
from stridesmith.search.records.database import Database
from stridesmith.search.records.log import read_log, write_log
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.protocol import Build, Ping
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

FAULTS = {"wrong": "drop_tail", "crash": "null_store", "endless": "endless"}
WORK = workload("matmul", m=61, n=67, k=71)
OTHER = replace(discover("cpu"), name="Another CPU", vendor="Another")
KINDS = (*FAULTS, "out of bounds", "no schedule", "interface", "slow")


def cached(index_map: str, shape: list[int], times: int = 1) -> list[Any]:
    """Copies of `b`, each of the one before; the last one in another layout."""
    steps: list[Any] = []
    for number in range(times):
        steps.append(["cache_read", {"block": "matmul", "read_buffer_index": 1, "storage_scope": "global"}])
        steps.append(["transform_layout", {
            "block": "b" + "_global" * (number + 1), "buffer": ["write", 0], "index_map": index_map,
            "pad_value": "undef", "physical_shape": shape, "rewrite_loops": False,
        }])  # fmt: skip
    return steps


def bad_trace(kind: str, number: int) -> list[Any]:
    """A trace of this kind; no two are the same."""
    if kind == "out of bounds":
        return cached("lambda d0, d1: [d0, d1]", [70 - number % 8, 67])
    if kind == "no schedule":
        traces: list[list[Any]] = [
            ["split", {"loop": f"nowhere{number}", "factors": [4, None]}],
            ["split", {"loop": "i", "factors": [3, 2 + number % 16]}],
            ["__import__", {"name": f"os{number}"}],
        ]
        return [traces[number % len(traces)]]
    if kind == "interface":
        return [["transform_layout", {"block": "matmul", "buffer": ["read", number % 2],
                                      "index_map": f"lambda d0, d1: [d1, d0 + {number}]"}]]  # fmt: skip
    return cached("lambda d0, d1: [d0, d1]", [71, 4096 + 1024 * (number % 4)], times=4)


class FaultyBench(Bench):
    """Puts the fault that is given for a trace into its code."""

    def __init__(self, faults: dict[str, str]) -> None:
        super().__init__()
        self.faults = faults

    def build(self, job: Any) -> Any:
        if isinstance(job, Build) and (fault := self.faults.get(str(job.trace))):
            job = replace(job, fault=fault)
        return super().build(job)


@dataclass
class Row:
    """What became of the records of one kind; a reason is empty where one was trusted."""

    tried: int = 0
    trusted: int = 0
    seconds: list[float] = field(default_factory=list)
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds, faults = stranger(Path(folder) / "stranger.jsonl", asked.records, asked.seed)
        return trial(Path(folder), kinds, faults)


def stranger(log: Path, count: int, seed: int) -> tuple[dict[str, str], dict[str, str]]:
    """Write a log; gives the kind of each record by id, and the faults of kernels by trace."""
    task = Task(WORK, OTHER, interface_of(WORK))
    sketches = generate(WORK.func, discover("cpu"), task.interface).sketches
    rng = np.random.default_rng(seed)
    kinds: dict[str, str] = {}
    faults: dict[str, str] = {}
    records: list[Record] = []
    for number in range(count):
        sketch = sketches[number // 2 % len(sketches)]
        kind = "good" if number % 2 == 0 else KINDS[number // 2 % len(KINDS)]
        trace = sketch.trace(sketch.draw(rng, 1)[0].tolist()).to_json()
        if kind in FAULTS:
            faults[str(trace)] = FAULTS[kind]
        elif kind != "good":
            trace = bad_trace(kind, number // 2)
        records.append(
            Record(script=task.script, workload=WORK.name, params=dict(WORK.params), dtype=WORK.dtype,
                   interface=task.interface, target=OTHER.to_json(), trace=trace, samples=[1e-9] * 3,
                   latency_us=1e-3, verified=True, stage="race")
        )  # fmt: skip
        kinds[records[-1].id] = kind
    write_log(records, log)
    return kinds, faults


def trial(folder: Path, kinds: dict[str, str], faults: dict[str, str]) -> int:
    """Import the log, replay each record, and print what became of them."""
    rows = {kind: Row() for kind in ("good", *KINDS)}
    with Database(folder / "tuned.db") as database, FaultyBench(faults) as bench:
        bench.run(Ping())  # the process is there, as a second look-up finds it
        database.merge([item for item in read_log(folder / "stranger.jsonl") if isinstance(item, Record)], "stranger")
        for id_, kind in kinds.items():
            row, began = rows[kind], time.monotonic()
            try:
                found = replay(database.get(id_), database, any_device=True, bench=bench)
                assert found.tried is not None
                reason = found.tried.verdicts[0].reason
            except StridesmithError as error:
                reason = str(error)
            row.seconds.append(time.monotonic() - began)
            row.tried += 1
            row.trusted += not reason
            row.reasons[reason.replace(id_, "ID")] += 1
        stored = database.records(WORK, discover("cpu"))
        unstored = len(set(kinds) - {record.origin for record in stored})
        best = database.best(WORK, discover("cpu"))
    print("| kind | tried | trusted | refused, with a reason | seconds, median and longest | a reason |")
    print("|---|---:|---:|---:|---:|---|")
    for kind, row in rows.items():
        refused = sum(count for reason, count in row.reasons.items() if reason)
        reason = next((text for text in row.reasons if text), "")
        times = f"{statistics.median(row.seconds):.2f}, {max(row.seconds):.2f}" if row.seconds else ""
        print(f"| {kind} | {row.tried} | {row.trusted} | {refused} | {times} | {reason[:110]} |")
    whose = kinds.get(best.origin, "untuned") if best else "none"
    print(f"\nThe best is {whose}, at {best.latency_us if best else 0:.1f} us; "
          f"{unstored} of {len(kinds)} outcomes were not stored.")  # fmt: skip
    bad = sum(rows[kind].trusted for kind in KINDS)
    return 1 if bad or unstored or whose not in ("good", "untuned") else 0


if __name__ == "__main__":
    sys.exit(main())
