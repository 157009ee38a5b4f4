"""How close the code generator comes to the CPU's peak on a register tile, and what it costs to compile.

    python benchmarks/tile.py [ROWS COLUMNS DEPTH]

The program is written down in lowered form: ``C = A @ B`` with B packed in panels of COLUMNS, four
by four tiles of ROWS x COLUMNS that stay in registers over DEPTH, so that everything lies in the
first and second level caches.  One thread.  Prints the times of the three stages of compilation
(best of ten), the kernel's GFLOP/s (best and median of thirty batches), the peak measured before and
after, and the stack accesses of the whole kernel, each of which is a register that was spilled.  What
lies between best and median is taken by others: it is what any kernel loses on this machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from stridesmith.backends import cpu, peak
from stridesmith.backends.host import host_cpu
from stridesmith.backends.kernel import load_artifact
from stridesmith.backends.llvm import compile as llvm_compile
from stridesmith.backends.render import llvm_module

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from cpu_programs import matmul_tile


def compile_times(program, target):
    """Milliseconds of text generation, optimisation and code generation."""
    best = [np.inf] * 3
    for _ in range(10):
        marks = [time.perf_counter()]
        text = llvm_module.generate(program, target)
        marks.append(time.perf_counter())
        module = llvm_compile.optimised(text, target)
        marks.append(time.perf_counter())
        llvm_compile.machine(target).emit_object(module)
        marks.append(time.perf_counter())
        best = [min(b, (y - x) * 1e3) for b, x, y in zip(best, marks[:-1], marks[1:], strict=True)]
    return best


def main(rows: int, columns: int, depth: int) -> None:
    target = replace(host_cpu(), threads=1)
    program = matmul_tile(rows, columns, depth, target.vector_lanes("float32"), kind="serial")
    stages = compile_times(program, target)
    bound = load_artifact(cpu.compile_cpu(program, target)).bind()
    rng = np.random.default_rng(0)
    for index in (0, 1):
        bound.write(index, rng.standard_normal(bound.read(index).size).astype(np.float32))
    flops = 2 * 16 * rows * columns * depth
    before = peak.measure_peak(target)
    calls = max(1, int(2e8 / flops))
    rates = sorted(flops / bound.time(calls) * 1e-9 for _ in range(30))
    top = max(before, peak.measure_peak(target))
    spills = cpu.assembly(program, target).count("(%rsp)")
    print(f"{target.name} {target.isa}: tile {rows} x {columns} x {depth}")
    print("compile: text {:.1f} ms, passes {:.1f} ms, code {:.1f} ms".format(*stages))
    best, median = rates[-1], statistics.median(rates)
    print(
        f"kernel {best:.1f} GFLOP/s at best, {median:.1f} in the median, peak {top:.1f} GFLOP/s: "
        f"{best / top:.1%}, {median / top:.1%}; {spills} stack accesses"
    )


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:]]
    main(*(sizes or [6, 16, 256]))
