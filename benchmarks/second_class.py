"""What records of one class of machines are worth for another: a tenth of the trials against all of them.

    python benchmarks/second_class.py --suite resnet50 --trials 60 --out second

The second class is this machine with a narrower instruction set (AVX2 where it has AVX-512), which is a device of its
own: its records are never ranked with those of the first.  Each workload is tuned three times: on this machine as it
is; on the second class from an empty database, with as many trials; and on the second class with a tenth of the trials,
from the database of the first.  The two winners of the second class then take turns in one process.

One line for each workload in ``FOLDER/second_class.jsonl`` (what is there is not done again), and the table of all.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from ablation import Kept, raced
from calibrate import as_class
from racing import read

from stridesmith.backends.devices import discover
from stridesmith.configs.load import suite
from stridesmith.configs.schema import Entry
from stridesmith.ir.target import Target
from stridesmith.search.records.record import Record
from stridesmith.search.tuning.settings import settings
from stridesmith.search.tuning.tuner import tune
from stridesmith.search.workers.executor import RayExecutor

NARROWER = {"avx512": "avx2"}
NEAR = 0.9


def second_class(host: Target) -> Target:
    """This machine with a narrower instruction set."""
    if host.isa not in NARROWER:
        raise SystemExit(f"this machine has {host.isa}, of which no narrower set is described")
    return as_class(NARROWER[host.isa])


def tuned(entry: Entry, target: Target, trials: int, db: Path, workers: RayExecutor) -> Record:
    """The winner of a run."""
    work = entry.work
    options = settings(
        workload=work.name, params=dict(work.shape), dtype=work.dtype, interface=entry.interface, target=target,
        trials=trials, db=str(db), mirror=False,
    )  # fmt: skip
    return tune(options, executor=Kept(workers))


def row_of(entry: Entry, trials: int, folder: Path, workers: RayExecutor) -> dict[str, Any]:
    """All three runs of a workload, and the race."""
    host = discover("cpu")
    second = second_class(host)
    first_db, alone_db, after_db = (folder / f"{entry.name}.{name}.db" for name in ("first", "alone", "after"))
    for db in (first_db, alone_db, after_db):
        db.unlink(missing_ok=True)
    first = tuned(entry, host, trials, first_db, workers)
    alone = tuned(entry, second, trials, alone_db, workers)
    shutil.copy(first_db, after_db)
    after = tuned(entry, second, max(1, trials // 10), after_db, workers)
    alone_us, after_us = raced(entry, {"alone": alone, "after": after}, second).values()
    return {
        "name": entry.name, "trials": trials, "first_us": first.latency_us, "alone_us": alone_us, "after_us": after_us,
        "speed": alone_us / after_us, "is_from_first": bool(after.origin),
    }  # fmt: skip


def told(rows: list[dict[str, Any]], second: Target) -> str:
    """The table, and how many have come near."""
    near = sum(row["speed"] >= NEAR for row in rows)
    lines = [
        "| workload | first class, us | second alone, us | a tenth of the trials, us | of its own speed | schedule |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        origin = "of the first class" if row["is_from_first"] else "found"
        lines.append(f"| {row['name']} | {row['first_us']:.1f} | {row['alone_us']:.1f} | {row['after_us']:.1f} "
                     f"| {row['speed']:.0%} | {origin} |")  # fmt: skip
    lines.append(f"\n{near} of {len(rows)} have at least {NEAR:.0%} of their own speed on {second.key}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default="resnet50")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("second"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    log = asked.out / "second_class.jsonl"
    done = {row["name"] for row in read(log) if row["trials"] == asked.trials}
    with RayExecutor() as workers, log.open("a") as file:
        for entry in suite(asked.suite).entries:
            if entry.name not in done:
                row = row_of(entry, asked.trials, asked.out, workers)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"{row['name']}: {row['speed']:.0%}", flush=True)
    rows = [row for row in read(log) if row["trials"] == asked.trials]
    text = told(rows, second_class(discover("cpu")))
    (asked.out / "second_class.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
