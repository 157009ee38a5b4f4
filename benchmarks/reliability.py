"""What holds when something goes wrong: a row for each kind of fault, with what was done, how often, and what came.

    python benchmarks/reliability.py [--repeat 20] [--only worker_dies,disk_full] [--long]

Faults of workers and of poor machines are put in here; rows that are programs of their own (`faults.py`,
`databases.py`, `network.py`, `foreign.py`, `device_faults.py`, ...) run those, and rows that tests hold run them.  With
``--long`` also what takes most of an hour: every fault of processes, a hundred killed drivers, networks and devices.
Some rows need root (file systems of their own, networks), one PostgreSQL from Debian's package; what cannot be put in
here is named in its row.  It is an error where a promise is not kept.  Linux only.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyopencl
from driving import Drive

from stridesmith.backends.devices import discover
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers.bench import Bench, Limits
from stridesmith.search.workers.process import WorkerProcess
from stridesmith.search.workers.protocol import Build, Built, Failed, Measure, Measured, Race, Raced, SelfTest
from stridesmith.space.workloads import workload

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
DEADLINE = 0.5  # of a call that never returns
CONVOLUTION = ("--workload", "conv2d", "--shape", "ci=32,h=28,w=28,co=32")

Figure = tuple[str, bool]
"""What a row tells, and whether the promise was kept."""


@dataclass(frozen=True)
class Asked:
    repeat: int
    long: bool


# ---------------------------------------------------------------- workers


def worker_dies(asked: Asked) -> Iterator[Figure]:
    """Signals and exits in a worker: named as what they are, and the next request is answered."""
    ways = {
        "segfault": ("crash:SIGSEGV", {"what": "segfault"}),
        "illegal instruction": ("crash:SIGILL", {"what": "signal", "signal": "SIGILL"}),
        "division by zero": ("crash:SIGFPE", {"what": "signal", "signal": "SIGFPE"}),
        "abort of a compiler": ("crash:SIGABRT", {"what": "signal", "signal": "SIGABRT"}),
        "exit": ("crash:exit3", {"what": "exit", "code": 3}),
    }
    for name, (status, fields) in ways.items():
        kept, again = 0, []
        with WorkerProcess() as worker:
            for _ in range(asked.repeat):
                reply = worker.request(SelfTest(**fields), 20)
                began = time.monotonic()
                answered = not isinstance(worker.request(SelfTest(what="ping"), 20), Failed)
                again.append(time.monotonic() - began)
                kept += isinstance(reply, Failed) and reply.status == status and answered
        yield f"{name}: {kept} of {asked.repeat}, the next worker after {p95(again):.2f} s (p95)", kept == asked.repeat


def never_ends(asked: Asked) -> Iterator[Figure]:
    """Calls and generated kernels that never return, with SIGTERM blocked and children started."""
    with tempfile.TemporaryDirectory() as folder:
        file, late, left = Path(folder) / "pid", [], 0
        with WorkerProcess() as worker:
            for _ in range(asked.repeat):
                worker.request(SelfTest(what="ping"), 20)
                began = time.monotonic()
                reply = worker.request(SelfTest(what="hang_with_child", pid_file=str(file)), 2 * DEADLINE)
                late.append(time.monotonic() - began - 2 * DEADLINE)
                assert isinstance(reply, Failed) and reply.status == "run_timeout", reply
                left += not wait_gone(int(file.read_text()))
    yield (
        (
            f"a call that holds all locks: {asked.repeat} killed, {p95(late):.2f} s beyond the deadline (p95), "
            f"{left} processes left"
        ),
        p95(late) < 1 and not left,
    )
    late = []
    with Bench() as bench:
        endless = build("endless", bench)
        for _ in range(asked.repeat):
            bench.measure(measure(build("", bench)))
            began = time.monotonic()
            reply = bench.measure(measure(endless, deadline=DEADLINE))
            late.append(time.monotonic() - began - DEADLINE)
            assert isinstance(reply, Failed) and reply.status == "run_timeout", reply
    yield f"an endless kernel: {asked.repeat} killed, {p95(late):.2f} s beyond the deadline (p95)", p95(late) < 1
    unrolled = """
@T.prim_func
def main(x: T.Buffer((1000000,), "float32")):
    for i in T.unroll(1000000):
        x[i] = x[i] * x[i] + T.float32(1)
"""
    late, named = [], 0
    with Bench(Limits(build=2 * DEADLINE)) as bench:
        bench.build(Build(script=workload("matmul", m=4, n=4, k=4).func.script(), target=discover("cpu", threads=1)))
        for _ in range(max(1, asked.repeat // 4)):
            began = time.monotonic()
            reply = bench.build(Build(script=unrolled, target=discover("cpu", threads=1)))
            late.append(time.monotonic() - began - 2 * DEADLINE)
            named += isinstance(reply, Failed) and reply.status in ("build_timeout", "refused", "build_error")
    yield (
        (f"a loop unrolled 10^6-fold: {named} of {len(late)} are failed builds, {p95(late):.2f} s beyond the deadline"),
        named == len(late) and p95(late) < 1,
    )


def memory(asked: Asked) -> Iterator[Figure]:
    """A worker that takes all memory it may have: told as such, and the driver does not grow."""
    before, named = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    with WorkerProcess(memory_bytes=600 << 20) as worker:
        for _ in range(asked.repeat):
            reply = worker.request(SelfTest(what="oom"), 30)
            named += isinstance(reply, Failed) and reply.status == "oom"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield f"{named} of {asked.repeat} told as `oom`, the driver grew by {grown:.0f} MiB", named == asked.repeat


def build(fault: str, bench: Bench) -> Built:
    """A small product for this CPU, with a fault in its code."""
    script = workload("matmul", m=13, n=11, k=7).func.script()
    built = bench.build(Build(script=script, target=discover("cpu", threads=1), fault=fault or None))
    assert isinstance(built, Built), built
    return built


def measure(built: Built, **fields: Any) -> Measure:
    work = name_of(workload("matmul", m=13, n=11, k=7))
    return Measure(kernel=built.kernel, work=work, seed=1, repeat_ms=5, **fields)


def wait_gone(pid: int) -> bool:
    """Whether a process ends within three seconds."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def p95(values: list[float]) -> float:
    return float(np.quantile(values, 0.95))


# ---------------------------------------------------------------- poor machines


@dataclass(frozen=True)
class Machine:
    """What a machine lacks: shell commands in a namespace of mounts, and how the command ends there.

    ``$F`` is a folder on the disk, ``$T`` the command, ``$I`` the file by which PoCL's wheel is found.  The run ends
    with `code` (-1: 0, or what a full disk ends with), and says `words`.
    """

    lacks: str
    before: str
    command: str
    code: int = 0
    words: str = ""


TUNE = "$T --workload matmul --shape m=61,n=67,k=71 --target"
NO_PROGRAMS = "mount -t tmpfs -o noexec tmpfs /tmp; export TMPDIR=/tmp"
READ_ONLY_HOME = "mkdir -p $F/h; mount -t tmpfs -o ro tmpfs $F/h; export HOME=$F/h"
MACHINES = (
    Machine("room in /dev/shm (1 MiB)", "mount -t tmpfs -o size=1m tmpfs /dev/shm",
            f"{TUNE} cpu --trials 24 --db $F/a.db", 0, "best kernel"),
    Machine("a /tmp from which programs may run", NO_PROGRAMS, f"{TUNE} cpu --trials 8 --db $F/a.db", 0, "best kernel"),
    Machine("the same, for OpenCL", NO_PROGRAMS, f"{TUNE} opencl --trials 4 --db $F/a.db", 0, "best kernel"),
    Machine("any place from which they may", f"{NO_PROGRAMS} XDG_CACHE_HOME=/tmp",
            f"{TUNE} opencl --trials 4 --db $F/a.db", 3, "set TMPDIR"),
    Machine("a home that can be written, with --db", READ_ONLY_HOME, f"{TUNE} cpu --trials 8 --db $F/a.db", 0,
            "best kernel"),
    Machine("the same, without --db", READ_ONLY_HOME, f"{TUNE} cpu --trials 8", 74, "--db"),
    Machine("an OpenCL driver", "mkdir -p $F/none; export OCL_ICD_VENDORS=$F/none; mount --bind /dev/null $I",
            f"{TUNE} opencl --trials 4 --db $F/a.db", 4, "OpenCL"),
    Machine("a disk with room for more than 300 kB", "mkdir -p $F/d; mount -t tmpfs -o size=300k tmpfs $F/d",
            f"{TUNE} cpu --trials 128 --db $F/d/a.db", -1),
    Machine("a disk with room for a log", f"{TUNE} cpu --trials 2 --db $F/a.db", "$T export /dev/full --db $F/a.db", 74,
            "/dev/full"),
)  # fmt: skip


def poor_machines(asked: Asked) -> Iterator[Figure]:
    """Each of `MACHINES`: it runs, or ends with its exit code and says exactly what to set."""
    if os.getuid() != 0:
        yield "not put in: mounts need root", True
        return
    for machine in MACHINES:
        folder = tempfile.mkdtemp(prefix="poor-", dir="/var/tmp")
        driver = next(Path(pyopencl.__path__[0]).rglob("pocl.icd"), "/dev/null")
        start = f"set -e; F={folder}; I={driver}; T='{sys.executable} -m stridesmith'"
        script = f"{start}; {machine.before}; cd $F; {machine.command}"
        done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=300)
        shutil.rmtree(folder, ignore_errors=True)
        codes = (0, 74, 75) if machine.code < 0 else (machine.code,)
        kept = done.returncode in codes and (machine.words in done.stdout + done.stderr or machine.code < 0)
        last = (done.stderr.strip().splitlines() or [""])[-1]
        ends = f"exit {done.returncode}" + (f", «{last[:160]}»" if done.returncode else "")
        yield f"without {machine.lacks}: {ends}", kept and "Traceback" not in done.stderr


# ---------------------------------------------------------------- a busy machine


def noisy_neighbour(asked: Asked) -> Iterator[Figure]:
    """Spinners on every processor during half of the trials: what the winner loses, and whether ranks stay."""
    folder = Path(tempfile.mkdtemp(prefix="noisy-", dir="/tmp"))
    places = {name: str(folder / f"{name}.db") for name in ("quiet", "noisy")}
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        for name, place in places.items():
            drive = Drive(folder, (*CONVOLUTION, "--trials", "48", "--seed", "1", "--db", place))
            if name == "noisy":
                drive.until(24)
                spinners += [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                             for _ in range(os.cpu_count() or 1)]  # fmt: skip
            assert drive.end(300) is not None and drive.process.returncode == 0, drive.errors
        for spinner in spinners:
            spinner.kill()
        yield regret(places)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
        shutil.rmtree(folder, ignore_errors=True)


def regret(places: dict[str, str]) -> Figure:
    """Race both winners on the quiet machine, and measure what was measured among spinners once more."""
    target, best, measured = discover("cpu"), {}, []
    for name, place in places.items():
        with Database(place, read_only=True) as database:
            (best[name],) = database.winners()
            measured = sorted((r for r in database.every() if r.stage == "trial" and r.ok), key=lambda r: r.trial)
    work = workload("conv2d", ci=32, h=28, w=28, co=32)
    job = name_of(work)
    with Bench() as bench:
        kernels = [bench.build(Build(script=r.script, target=target, trace=r.trace)) for r in best.values()]
        assert all(isinstance(built, Built) for built in kernels), kernels
        raced = bench.measure(Race(kernels=tuple(b.kernel for b in kernels), work=job, seed=5, seconds=3))  # type: ignore[union-attr]
        assert isinstance(raced, Raced), raced
        quiet, noisy = (float(np.median(r.samples)) for r in raced.results)  # type: ignore[union-attr]
        again, then = [], []
        for record in measured[24:]:
            built = bench.build(Build(script=record.script, target=target, trace=record.trace))
            reply = bench.measure(Measure(kernel=built.kernel, work=job, seed=1))  # type: ignore[union-attr]
            if isinstance(reply, Measured):
                again.append(float(np.median(reply.samples)))
                then.append(record.latency_us)
    ranks = [np.argsort(np.argsort(values)) for values in (again, then)]
    correlation = float(np.corrcoef(*ranks)[0, 1])  # type: ignore[call-overload]
    lost = noisy / quiet - 1
    return (
        f"the winner is {lost:+.1%} slower than that of a quiet run; rank correlation of what was measured beside "
        f"spinners with a quiet machine {correlation:.2f}"
    ), lost < 0.1


# ---------------------------------------------------------------- programs and tests of their own


def command(*words: str, long: bool = False) -> Callable[[Asked], Iterator[Figure]]:
    """A row that another benchmark shows; ``{repeat}`` is how often."""

    def show(asked: Asked) -> Iterator[Figure]:
        text = " ".join(words).format(repeat=asked.repeat)
        if long and not asked.long:
            yield f"`{text}` (with --long)", True
            return
        done = subprocess.run([sys.executable, str(HERE / words[0]), *text.split()[1:]], capture_output=True, text=True)
        lines = [line for line in done.stdout.strip().splitlines() if not re.match(r"\|[-:| ]*\|$|\| fault", line)]
        tables = [line for line in lines if line.startswith("|")]
        for line in tables or lines[-1:] or [done.stderr.strip()[-300:]]:
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            yield (f"{cells[0]}: {' '.join(filter(None, cells[1:]))}" if tables else line), True
        if done.returncode:
            yield f"`{text}` ended with {done.returncode}", False

    return show


def tests(*selection: str) -> Callable[[Asked], Iterator[Figure]]:
    """A row that tests hold: how many passed."""

    def show(asked: Asked) -> Iterator[Figure]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            chosen = [str(TESTS / word) if (TESTS / word).exists() else word for word in selection]
            options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
            done = subprocess.run([sys.executable, "-m", "pytest", *options, *chosen], capture_output=True, text=True,
                                  cwd=TESTS.parent)  # fmt: skip
            suite = ElementTree.parse(report).getroot()[0].attrib if report.exists() else {}
        count, bad = int(suite.get("tests", 0)), int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left_out = int(suite.get("skipped", 0))
        yield (
            f"{count - bad - left_out} of {count - left_out} tests" + f", {left_out} skipped" * bool(left_out),
            (done.returncode == 0 and count > left_out),
        )

    return show


def of(*parts: Callable[[Asked], Iterator[Figure]]) -> Callable[[Asked], Iterator[Figure]]:
    """A row of several."""
    return lambda asked: (figure for part in parts for figure in part(asked))


NO_RAY = "address_no_ray,address_nobody,address_hello,address_ray_scheme"
ROWS: dict[str, tuple[str, Callable[[Asked], Iterator[Figure]]]] = {
    "worker_dies": (
        "kernel segfault, illegal instruction, division by zero; compiler abort",
        of(worker_dies, tests("faults/test_generated_code.py")),
    ),
    "never_ends": ("endless kernel, endless compile", never_ends),
    "memory": ("memory exhaustion", memory),
    "wrong_result": (
        "wrong result", of(tests("faults/test_mutants.py"), command("oclgrind.py", "mutants", long=True)),
    ),
    "device_lost": (
        "device lost",
        of(tests("faults/test_devices.py"), command("device_faults.py", "--repeat {repeat}", "--trials 4", long=True)),
    ),
    "database_away": (
        "database locked, disk full, read-only",
        of(
            tests("search/records/test_spool.py"),
            tests("search/records/test_database.py", "-k", "lock or read or touched"),
        ),
    ),
    "damaged": (
        "torn or corrupt database or log",
        of(command("databases.py", "damaged"), tests("search/records/test_records.py", "-k", "cut or log")),
    ),
    "writers": ("several writers", tests("search/records/test_database.py", "-k", "writer")),
    "driver_killed": ("driver killed", command("databases.py", "killed", "--times 100", long=True)),
    "processes": (
        "Ctrl-C; a worker, an actor, a process of Ray's lost", command("faults.py", "--repeat {repeat}", long=True),
    ),
    "limits": (
        "a limit in seconds", command("limits.py", "--repeat {repeat}", "--busy 2", "--out limits.jsonl", long=True),
    ),
    "addresses": ("addresses of no Ray", command("faults.py", "--repeat {repeat}", f"--only {NO_RAY}")),
    "network": (
        "nodes lost, cut off, late, of other hardware; head lost",
        of(
            command("network.py", "--seconds 80", long=True),
            tests("search/workers/test_ray_calls.py", "-k", "node or silent or lost"),
        ),
    ),
    "simulated": ("256 simulated workers, faults by chance", command("simulated.py", "faults")),
    "noisy": ("noisy neighbour", noisy_neighbour),
    "hostile": (
        "hostile record, log, script, config, ONNX file",
        of(
            tests("search/records/test_records.py", "-k", "hostile or bad or nested"),
            tests("ir/layout/test_index_map.py", "-k", "hostile"),
            tests("models/test_onnx_reading.py"),
            tests("configs", "ir/script", "-k", "refus or error or bad"),
        ),
    ),
    "lying": ("lying record", command("foreign.py")),
    "poor": ("poor machine", poor_machines),
    "versions": ("version skew", tests("search", "-k", "version")),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--only", default="", help="names of rows, separated by commas: " + ", ".join(ROWS))
    parser.add_argument("--long", action="store_true", help="with what takes most of an hour")
    asked = parser.parse_args()
    os.environ["STRIDESMITH_SELFTEST"] = "1"
    names = asked.only.split(",") if asked.only else list(ROWS)
    print("| fault | what was seen | kept |\n|---|---|---|")
    failed = False
    for name in names:
        fault, show = ROWS[name]
        for text, kept in show(Asked(asked.repeat, asked.long)):
            print(f"| {fault} | {text.replace('|', '/')} | {'yes' if kept else '**no**'} |", flush=True)
            fault, failed = "", failed or not kept
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
