"""The thread pool on a quiet machine and beside a process that takes one of the cores.

    python benchmarks/pool.py [--against PYTHON] [--peer-python PYTHON] [--seconds 60]
    python benchmarks/pool.py --stress [--calls 1000000]

Kernels of 50 us to 5 ms (a register tile over packed panels, as in tile.py) run on one thread and on all, in turns with
an installation of stridesmith under another Python (``--against``, for before and after) and with ONNX Runtime on the
same product, whose right side both have packed.  Rounds with a spinner on one core, a pinned process that only
computes, alternate with quiet ones; each library is a process of its own, stopped (SIGSTOP) while another is timed.
Prints the median, the mean and the 95th percentile of single calls over all rounds, and the ratios of medians and of
means: beside a spinner calls are fast or slow, and the median tells little of how much is done in a second.  The cost
of an empty region comes first, from a loop in machine code, and that of an empty kernel from Python.

``--stress`` instead makes so many calls with random numbers of threads, iterations and chunks from one thread and from
three, beside spinners that come and go, and counts each iteration.  Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
IS_WIDE = "avx512f" in Path("/proc/cpuinfo").read_text()
TILE = (14, 32, 256) if IS_WIDE else (6, 16, 256)  # rows, columns, depth of a tile that the vector registers hold
TILES = (
    [(2, 12), (4, 24), (8, 32), (16, 64), (32, 80)] if IS_WIDE
    else [(4, 28), (8, 56), (16, 75), (32, 150), (64, 187)]
)  # fmt: skip
"""Of a product, by rows and columns: 50 us to 5 ms."""
WARM_SECONDS = 5e-3
TURN_SECONDS = 0.06
STUCK_SECONDS = 3600
SPIN = "while True: pass"
SCRIPT = """
@T.prim_func
def one(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
    for i in T.parallel(2):
        B[i] = A[i]
"""
CPUS = len(os.sched_getaffinity(0))

# ------------------------------------------------------------------- one library behind a pipe


def kernel_forms(threads: int) -> dict[str, Callable[[], float]]:
    """Our kernels by name, each a call that returns its seconds, on one thread and on `threads`."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from dataclasses import replace

    from cpu_programs import matmul_tile

    from stridesmith.backends import cpu
    from stridesmith.backends.host import host_cpu
    from stridesmith.backends.kernel import load_artifact

    forms: dict[str, Callable[[], float]] = {}
    host = host_cpu()
    for tiles in TILES:
        for count in (1, threads):
            target = replace(host, threads=count)
            program = matmul_tile(*TILE, target.vector_lanes("float32"), tiles)
            bound = load_artifact(cpu.compile_cpu(program, target)).bind()
            for index in (0, 1):
                bound.write(index, np.ones(bound.read(index).size, np.float32))
            forms[f"{tiles} {count}"] = lambda bound=bound: bound.time(1)
    for count in (1, threads):
        forms[f"region {count}"] = empty_region(count)
        forms[f"kernel {count}"] = empty_kernel(count)
    return forms


def empty_region(threads: int) -> Callable[[], float]:
    """Seconds of a parallel region with two iterations that do nothing, called in machine code."""
    from stridesmith.backends.llvm import compile as llvm_compile
    from stridesmith.backends.llvm.pool import SYMBOL, ensure_pool
    from stridesmith.ir.target import Target

    text = f"""
declare void @{SYMBOL}(ptr, ptr, i64, i64, i64)
define internal void @nothing(ptr %record, i64 %begin, i64 %end) noinline nounwind {{
  ret void
}}
define void @regions(i64 %count, i64 %threads) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
  call void @{SYMBOL}(ptr @nothing, ptr null, i64 2, i64 1, i64 %threads)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
    ensure_pool()
    loaded = llvm_compile.LoadedObject(llvm_compile.compile_object(text, Target()))
    function = loaded.function("regions", ctypes.c_int64, ctypes.c_int64)

    def run(keep: Any = loaded) -> float:
        start = time.perf_counter()
        function(100, threads)
        return (time.perf_counter() - start) / 100

    return run


def empty_kernel(threads: int) -> Callable[[], float]:
    """Seconds of a kernel of two iterations that do nearly nothing, called from Python as a user does."""
    from dataclasses import replace

    import stridesmith as ss
    from stridesmith.backends.host import host_cpu

    kernel = ss.build(ss.parse(SCRIPT), replace(host_cpu(), threads=threads))
    array, out = np.ones(2, np.float32), np.empty(2, np.float32)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(100):
            kernel(array, out=out)
        return (time.perf_counter() - start) / 100

    return run


def serve(threads: int) -> None:
    """Answer ``{"form", "seconds"}`` a line with the seconds of single calls, after some that warm up."""
    forms = kernel_forms(threads)
    print(json.dumps({"forms": list(forms)}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps({"samples": timed(forms[job["form"]], job["seconds"])}), flush=True)


def timed(call: Callable[[], float], seconds: float) -> list[float]:
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        call()
    end, samples = time.perf_counter() + seconds, []  # type: ignore[var-annotated]
    while len(samples) < 3 or time.perf_counter() < end:
        samples.append(call())
    return samples


class Library:
    """A process that times one library, stopped except while it answers."""

    def __init__(self, command: list[str]) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)

    def ask(self, question: dict[str, Any] | None) -> dict[str, Any]:
        """One question, or None to hear what it says at its start."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        if question is not None:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            raise SystemExit(f"{' '.join(self.process.args)} ended")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Ours(Library):
    """stridesmith as it is installed under a Python."""

    def __init__(self, python: str) -> None:
        super().__init__([python, str(Path(__file__).resolve()), "--serve"])
        self.ask(None)

    def samples(self, form: str, seconds: float) -> list[float]:
        return self.ask({"form": form, "seconds": seconds})["samples"]


class Onnxruntime:
    """The same products by ONNX Runtime, a session in a process of its own for each."""

    def __init__(self, python: str, threads: int) -> None:
        self.sessions: dict[str, Library] = {}
        rows, columns, depth = TILE
        for tiles in TILES:
            shapes = [rows * tiles[0], depth, columns * tiles[1]]
            buffers = {"a": shapes[:2], "b": shapes[1:], "c": [shapes[0], shapes[2]]}
            library = Library([python, str(HERE / "peer_process.py"), "onnxruntime", str(threads)])
            job = {"op": "prepare", "workload": "matmul", "params": {}, "buffers": buffers, "constants": ["b"]}
            problem = library.ask(job).get("error")
            if problem:
                raise SystemExit(f"ONNX Runtime: {problem}")
            self.sessions[f"{tiles} {threads}"] = library

    def samples(self, form: str, seconds: float) -> list[float]:
        return self.sessions[form].ask({"op": "time", "form": "session", "seconds": seconds})["samples"]

    def close(self) -> None:
        for library in self.sessions.values():
            library.close()


# ------------------------------------------------------------------- rounds


@contextmanager
def spinner(core: int) -> Iterator[None]:
    """A process that computes on one core all the while."""
    process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", SPIN])
    time.sleep(0.15)
    try:
        yield
    finally:
        process.kill()
        process.wait()


Samples = dict[tuple[str, str, bool], list[float]]


def rounds(libraries: dict[str, Any], seconds: float) -> Samples:
    """Samples by library, form and whether a core was taken, in turns for about `seconds`."""
    found: Samples = {}
    cores = sorted(os.sched_getaffinity(0))
    end, turn = time.monotonic() + seconds, 0
    entries = [(name, f"{tiles} {n}") for tiles in TILES for n in (1, CPUS) for name in libraries]
    entries = [(name, form) for name, form in entries if name != "onnxruntime" or form.endswith(f" {CPUS}")]

    def measure(occupied: bool) -> None:
        for name, form in entries:
            found.setdefault((name, form, occupied), []).extend(libraries[name].samples(form, TURN_SECONDS))

    while turn < 2 or time.monotonic() < end:
        measure(False)
        with spinner(cores[turn % len(cores)]):
            measure(True)
        turn += 1
    return found


def table(found: Samples, names: list[str]) -> None:
    """A line for each kernel and load: times, then ratios of medians and of means."""
    print(f"us of a call: median / mean / 95th percentile; threads: {CPUS}")
    for occupied in (False, True):
        print("a core is taken:" if occupied else "quiet:")
        for tiles in TILES:
            cells, median, mean = [], {}, {}
            for name, count in ((name, count) for name in names for count in (1, CPUS)):
                samples = found.get((name, f"{tiles} {count}", occupied))
                if samples:
                    key = f"{name}/{count}"
                    median[key], mean[key] = statistics.median(samples), statistics.fmean(samples)
                    figures = (median[key], mean[key], float(np.percentile(samples, 95)))
                    cells.append(f"{key} " + " / ".join(f"{1e6 * value:.0f}" for value in figures))
            ours = f"ours/{CPUS}"
            ratios = [f"ours to one thread {median[ours] / median['ours/1']:.2f}, {mean[ours] / mean['ours/1']:.2f}"]
            for name in (f"{name}/{CPUS}" for name in names if name != "ours"):
                ratios.append(f"{name} to ours {median[name] / median[ours]:.2f}, {mean[name] / mean[ours]:.2f}")
            print(f"  {'; '.join(cells)}\n      {'; '.join(ratios)}")


def dispatch(libraries: dict[str, Any]) -> None:
    """What calls cost that do nothing, the best of five medians each, in turns."""
    forms = {"region": "an empty region", "kernel": "an empty kernel, called from Python"}
    names = [name for name in libraries if name != "onnxruntime"]
    for (form, what), count in ((item, count) for item in forms.items() for count in (1, CPUS)):
        best = dict.fromkeys(names, float("inf"))
        for name in names * 5:
            samples = libraries[name].samples(f"{form} {count}", 0.05)
            best[name] = min(best[name], statistics.median(samples))
        print(f"{what}, threads {count}: " + ", ".join(f"{name} {1e9 * best[name]:.0f} ns" for name in names))


def compare(arguments: argparse.Namespace) -> None:
    libraries: dict[str, Any] = {"ours": Ours(sys.executable)}
    if arguments.against:
        libraries["before"] = Ours(arguments.against)
    if not arguments.no_peer:
        libraries["onnxruntime"] = Onnxruntime(arguments.peer_python, CPUS)
    try:
        dispatch(libraries)
        table(rounds(libraries, arguments.seconds), list(libraries))
    finally:
        for library in libraries.values():
            library.close()


def stressed(calls: int, seed: int) -> None:
    """So many random calls, half of them from one thread and half from three."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from pool_stress import stress

    start = time.monotonic()
    iterations = stress(calls // 2, 1, seed) + stress(calls // 2, 3, seed + 1)
    print(f"{calls} calls, {iterations} iterations, each run once, in {time.monotonic() - start:.0f} s; seed {seed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="the Python of another installation of stridesmith")
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has onnxruntime and onnx")
    parser.add_argument("--no-peer", action="store_true", help="leave ONNX Runtime out")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--stress", action="store_true", help="count the iterations of random calls under random load")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(CPUS)
    elif arguments.stress:
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        stressed(arguments.calls, arguments.seed)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
