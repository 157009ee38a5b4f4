"""Faults of OpenCL devices and drivers, each put into a real run so many times: what the run did then, as a table.

    python benchmarks/device_faults.py [--repeat 20] [--only build_hangs,device_gone] [--trials 8]

A layer below the OpenCL loader (`opencl_faults.c`, compiled here with ``cc`` or ziglang) lets one call fail, hang or
crash in some process of the run: a later one in each repetition, so that it meets builds, verification, timing and the
final race.  Every run tunes a small product into a database of its own.  A row says how often the run kept its promise:
it ended in its time with the right exit code, only the trial that was hit failed, and as it should; every trial that it
announced is stored after the next run, without a fault, has gone on; no process and no folder is left.  Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driving import CLEAN_SECONDS, Drive, all_kept

SOURCE = Path(__file__).resolve().parent / "opencl_faults.c"
SHAPE = ("--workload", "matmul", "--shape", "m=37,n=41,k=43", "--target", "opencl")
RUN_SECONDS = 240.0  # of a run, on a machine that has other work; deadlines of builds and calls are in it
GROWTH = 1.35  # by which the call that fails comes later in each repetition
MISSING = 4


@dataclass(frozen=True)
class Fault:
    """A kind of `opencl_faults.c`, and how a run that meets it ends.

    Calls from `first` on fail, `count` of them.  `failure` is the kind of failure of the one trial that is hit, if any
    is: none where another attempt helps, or where the untuned program, the control or the race was hit.
    """

    kind: str
    first: int = 0
    count: int = 1
    failure: str = ""
    code: int = 0


FAULTS: dict[str, Fault] = {
    "none": Fault("none"),
    "build_hangs": Fault("build_hangs", 1, failure="timeout"),  # the process that measures builds what it loads
    "build_crashes": Fault("build_crashes", 1, failure="crash"),
    "build_aborts": Fault("build_aborts", 1, failure="crash"),
    "call_crashes": Fault("launch_crashes", 2, failure="crash"),
    "call_hangs": Fault("finish_hangs", 2, failure="timeout"),
    "out_of_resources": Fault("out_of_resources", 2, failure="oom"),
    "no_memory": Fault("no_memory", 2, count=2, failure="oom"),
    "device_lost_once": Fault("device_lost", 2),
    "device_gone": Fault("device_gone", 2, count=1 << 40, code=MISSING),
    "device_vanishes": Fault("no_device", code=MISSING),
}
LAST_BUILD = 8  # calls of clBuildProgram that a run surely makes


def compiled(folder: Path) -> Path:
    """The layer as a shared library.  Raises RuntimeError where no C compiler is there."""
    library = folder / "libopencl_faults.so"
    options = ["-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    problems = []
    for compiler in (["cc"], [sys.executable, "-m", "ziglang", "cc"]):
        with contextlib.suppress(FileNotFoundError):
            done = subprocess.run([*compiler, *options], capture_output=True, text=True)
            if done.returncode == 0:
                return library
            problems.append(done.stderr)
    raise RuntimeError(f"neither `cc` nor ziglang compiles {SOURCE.name}: {' '.join(problems)[-500:]}")


def variables(library: Path, fault: Fault, number: int, folder: Path) -> dict[str, str]:
    """What lets a process and its children meet a fault in the repetition of that number."""
    first = fault.first + number % LAST_BUILD if "build" in fault.kind else int(fault.first * GROWTH**number)
    return {
        "OPENCL_LAYERS": str(library),
        "OPENCL_FAULT": f"{fault.kind}:{first}:{fault.count}:{folder / 'calls'}",
    }


def try_once(fault: Fault, number: int, library: Path, trials: int) -> tuple[float | None, str]:
    """Seconds that the run took, None for a hang; and what was not as promised, empty if all was."""
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    options = (*SHAPE, "--trials", str(trials), "--seed", str(number), "--db", str(folder / "tuned.db"))
    places = {"XDG_CACHE_HOME": str(folder / "cache")}  # where compiled programs are kept
    met = places | variables(library, fault, number, folder)
    drives = []
    try:
        if fault.kind == "no_device":
            drives.append(Drive(folder, options, places))
            drives[-1].end(RUN_SECONDS)
        drives.append(drive := Drive(folder, options, met))
        took = drive.end(RUN_SECONDS)
        problems = list(_problems(drive, fault, took))
        more = (*options[:7], str(trials + 2), *options[8:])
        drives.append(after := Drive(folder, more, places))
        after.end(RUN_SECONDS)
        if after.process.returncode != 0:
            problems.append(f"the next run failed: {after.errors[-300:]}")
        problems += _left(folder, set[str]().union(*(each.told() for each in drives)))
    finally:
        for each in drives:
            each.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return took, "; ".join(problems)


def _problems(drive: Drive, fault: Fault, took: float | None) -> Iterator[str]:
    if took is None:
        yield "hung"
        return
    last = drive.last()
    if drive.process.returncode != fault.code:
        yield f"exit code {drive.process.returncode}: {(drive.errors or str(last))[-300:]}"
    if last.get("event") != ("error" if fault.code else "done"):
        yield f"the last event is {last.get('event')}"
    failed = Counter(event["status"] for _, event in drive.events if event["event"] == "trial")
    failed -= Counter(ok=failed["ok"])
    allowed = fault.failure if fault.code == 0 else "infrastructure"
    unexpected = [status for status in failed if not allowed or allowed not in status]
    if unexpected or (fault.code == 0 and failed.total() > 1):
        yield f"failed trials: {dict(failed)}"
    if fault.code and not ("same command" in last.get("message", "") or "there are" in last.get("message", "")
                           or "install a driver" in last.get("message", "")):  # fmt: skip
        yield f"it does not say what to do: {last.get('message')}"
    if drive.noise or "Traceback" in drive.errors:
        yield f"there is more on the screen: {(drive.noise + drive.errors)[:200]!r}"


def _left(folder: Path, told: set[str]) -> Iterator[str]:
    """What is lost, and what is left of processes and folders."""
    with contextlib.closing(sqlite3.connect(folder / "tuned.db")) as connection:
        stored = {row[0] for row in connection.execute("SELECT id FROM records")}
    if lost := told - stored:
        yield f"{len(lost)} of {len(told)} announced records lost"
    deadline = time.monotonic() + CLEAN_SECONDS
    while time.monotonic() < deadline and (processes(folder) or list(folder.glob("stridesmith-*"))):
        time.sleep(0.1)
    if found := processes(folder):
        yield f"{len(found)} processes left"
    if names := [path.name for path in folder.glob("stridesmith-*")]:
        yield f"left: {', '.join(names)}"


def processes(folder: Path) -> list[int]:
    """Processes whose folder for temporary files is this one or in it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"TMPDIR={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
    return found


def main() -> int:
    """Print a row for each fault; 1 where a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1, help="runs for each fault")
    parser.add_argument("--only", default=",".join(FAULTS), help="names of faults, separated by commas")
    parser.add_argument("--trials", type=int, default=8, help="the candidates of each run")
    asked = parser.parse_args()
    print("| fault | kept / tried | seconds of the run, median and longest | what went wrong |\n|---|---:|---:|---|")
    failed = False
    with tempfile.TemporaryDirectory(prefix="device-faults-") as name:
        library = compiled(Path(name))
        for fault in asked.only.split(","):
            found = [try_once(FAULTS[fault], number, library, asked.trials) for number in range(asked.repeat)]
            failed |= not all_kept(fault, found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
