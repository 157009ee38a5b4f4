"""Every suite on OpenCL drivers, beside our own code generator's kernels and CLBlast, taking turns.

    python benchmarks/opencl.py --suite ragged --seconds 60 --drivers pocl,intel --out FOLDER

Each workload is tuned from an empty database, and without programs that earlier runs have compiled, with equal seconds
for the CPU (LLVM) and for each driver, which is a device of the same CPU.  Then all kernels take turns, each in a
process of its own that is stopped (SIGSTOP) while another is timed; arguments stay on the device, and a call counts
until it is complete, launch included.  The ratio of a driver is the median over the rounds of what the LLVM kernel took
over what the driver's took: 1 is as fast.  CLBlast (`peer_clblast.py`), where it is installed, joins products of
matrices on the first of the drivers, with the parameters that its own tuners found there if ``--tune-clblast`` has made
the file, which takes an hour.  Results go to ``FOLDER/opencl.jsonl``, a line each; a run that was interrupted goes on,
and ``--table`` tells what the folder has.  With ``--shuffle SEED`` the rows come in an order of chance, so that those
of an interrupted run are a fair sample.

    python benchmarks/opencl.py --seconds 24 --drivers nvidia --jobs 12 --no-llvm --out FOLDER

For a GPU, whose measurements take turns by themselves and are not disturbed by builds: with ``--jobs`` so many rows are
tuned at a time before any is raced, and with ``--no-llvm`` none is tuned for the CPU, so that only CLBlast is raced.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peer_clblast import PARAMETERS, tuned
from peers import SUITES, cases
from racing import NO_RACE, Case, add_race_options, geometric_mean, race, read, tune

from stridesmith.backends.host import host_cpu

LLVM = "stridesmith:kernel"


def tuned_row(case: Case, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What tuning a workload told, for the CPU (``stridesmith``) and for each driver."""
    found = {} if arguments.no_llvm else {"stridesmith": tune(case, arguments.seconds, arguments.out)}
    for name in arguments.drivers:
        target, version = f"opencl:{name}", f"opencl-{name}"
        found[target] = tune(case, arguments.seconds, arguments.out, version=version, target=target)
    return found


def row_of(case: Case, tuned: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Race what was found for a workload."""
    done = {name: (sys.executable, told["db"]) for name, told in tuned.items() if told["event"] == "done"}
    first = next(iter(tuned))
    others = {name: place for name, place in done.items() if name != first}
    timed = race(case, tuned[first], arguments, others, first) if first in done else NO_RACE
    told = {name: told_of(found) for name, found in tuned.items()}
    own = timed["rounds"].get(LLVM, [])
    ratios = {
        name: statistics.median(base / value for base, value in zip(own, values, strict=False))
        for name, values in timed["rounds"].items()
        if own and name != LLVM
    }
    return {
        "key": case.key, "suite": case.suite, "name": case.name, "layout": case.layout, "flops": case.flops,
        "cpu": host_cpu().cpu, "asked": {"seconds": arguments.seconds}, "tune": told, "ratios": ratios,
        "times": timed["times"], "rounds": timed["rounds"], "missing": timed["missing"], "busy": timed["busy"],
    }  # fmt: skip


def told_of(found: dict[str, Any]) -> dict[str, Any]:
    """What a run told of itself."""
    names = ("event", "message", "latency_us", "gflops", "peak_gflops", "trials", "failed", "seconds", "verified")
    return {name: found.get(name) for name in names}


def table(rows: list[dict[str, Any]], drivers: list[str]) -> str:
    """A line for each workload, and below what all have in common."""
    kernels = {name: f"opencl:{name}:kernel" for name in drivers}
    lines = ["| workload | layout | LLVM, us | " + " | ".join(f"{n}, us | ratio" for n in drivers) + " | of CLBlast |",
             "|---|---|---:|" + "---:|---:|" * len(drivers) + "---:|"]  # fmt: skip
    against: list[float] = []
    for row in rows:
        cells = [f"{row['times'].get(LLVM, [math.nan])[0]:.1f}"]
        for name in drivers:
            cells.append(f"{row['times'].get(kernels[name], [math.nan])[0]:.1f}")
            cells.append(f"{row['ratios'].get(kernels[name], math.nan):.2f}")
        best = against_clblast(row, drivers[0])
        cells.append(f"{best:.1f}" if best else "-")
        against += [best] if best else []
        lines.append(f"| {row['suite']} {row['name']} | {row['layout'] or '-'} | " + " | ".join(cells) + " |")
    for name in drivers:
        ratios = [row["ratios"][kernels[name]] for row in rows if kernels[name] in row["ratios"]]
        failed = sum(sum((row["tune"].get(f"opencl:{name}", {}).get("failed") or {}).values()) for row in rows)
        lines.append(
            f"\n{name}: {geometric_mean(ratios):.2f} of LLVM, the geometric mean of {len(ratios)} of {len(rows)} rows; "
            f"least {min(ratios, default=math.nan):.2f}; {failed} candidates failed."
        )
    if against:
        lines.append(f"\nAgainst CLBlast: {geometric_mean(against):.1f}, least {min(against):.1f}.")
    return "\n".join(lines)


def against_clblast(row: dict[str, Any], driver: str) -> float | None:
    """How many times as long as ours CLBlast's best form took on this driver."""
    ours = row["rounds"].get(f"opencl:{driver}:kernel")
    theirs = [values for form, values in row["rounds"].items() if form.startswith(f"clblast:{driver}:")]
    return min((statistics.median(b / a for a, b in zip(ours, values, strict=False)) for values in theirs if ours),
               default=None)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("--only", help="one workload of the suites")
    parser.add_argument("--layout", default="nchw,nhwc")
    parser.add_argument("--seconds", type=float, default=60, help="of tuning for each target, from process start")
    parser.add_argument("--drivers", type=lambda text: text.split(","), default=["pocl", "intel"])
    parser.add_argument("--jobs", type=int, default=1, help="rows that are tuned at a time")
    parser.add_argument("--no-llvm", action="store_true", help="tune for the drivers alone")
    parser.add_argument("--tune-clblast", action="store_true", help="let CLBlast's tuners look for its parameters")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="take the rows in an order of chance")
    parser.add_argument("--table", action="store_true", help="tell what the folder has")
    add_race_options(parser)
    parser.add_argument("--out", type=Path, default=Path("opencl"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cache = tempfile.TemporaryDirectory()  # which goes with the last reference
    os.environ["XDG_CACHE_HOME"] = cache.name
    parameters = arguments.out / f"clblast-{arguments.drivers[0]}.json"
    if arguments.tune_clblast:
        tuned(arguments.drivers[0], parameters)
    if parameters.exists():
        os.environ[PARAMETERS] = str(parameters)
    arguments.peers = [f"clblast:{arguments.drivers[0]}"]
    log = arguments.out / "opencl.jsonl"
    rows = {row["key"]: row for row in read(log)}
    every = list(cases(arguments.suite.split(","), arguments.layout.split(","), [host_cpu().threads], arguments.only))
    todo: list[Case] = []
    for case in every if arguments.shuffle is None else random.Random(arguments.shuffle).sample(every, len(every)):
        if arguments.table or rows.get(case.key, {}).get("asked") == {"seconds": arguments.seconds}:
            continue
        todo.append(case)
    step = max(1, len(todo)) if arguments.jobs > 1 else 1  # nothing is tuned while kernels race
    for start in range(0, len(todo), step):
        some = todo[start : start + step]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            told = list(pool.map(tuned_row, some, [arguments] * len(some)))
        for case, found in zip(some, told, strict=True):
            rows[case.key] = row_of(case, found, arguments)
            with log.open("a") as file:
                file.write(json.dumps(rows[case.key]) + "\n")
            print(case.key, {name: round(ratio, 2) for name, ratio in rows[case.key]["ratios"].items()},
                  rows[case.key]["missing"] or "", flush=True)  # fmt: skip
    print(table(list(rows.values()), arguments.drivers))
    problems = [r for r in rows.values() if any(told["event"] != "done" for told in r["tune"].values())]
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
