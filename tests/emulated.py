"""Kernels for AArch64 on a machine of another kind: linked into a program of their own, which qemu runs.

Needs Debian's package ``qemu-user`` and ``pip install ziglang``, which brings the C compiler and library.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridesmith import configs
from stridesmith.backends.executable import Bound, Memory, numpy_dtype
from stridesmith.backends.llvm.compile import LinkedModule
from stridesmith.backends.lower import Lowered
from stridesmith.backends.render.llvm_module import entry_name, generate
from stridesmith.ir.target import Target

EMULATOR = "qemu-aarch64"
TRIPLE = "aarch64-unknown-linux-gnu"
GUARD = 256

DRIVER = """
#include <stdio.h>
#include <stdlib.h>

void ENTRY(void **args, long threads);
void stridesmith_parallel(void (*task)(void *, long, long), void *record, long total, long chunk, long threads) {
    long step = chunk > 0 ? chunk : (total + threads - 1) / threads;
    for (long begin = 0; begin < total; begin += step)
        task(record, begin, begin + step < total ? begin + step : total);
}

/* Arguments: the file of all buffers, the bytes of a guard, then the bytes of each buffer. */
int main(int count, char **words) {
    long guard = atol(words[2]), total = guard;
    for (int n = 3; n < count; n++) total += (atol(words[n]) + 63) / 64 * 64 + guard;
    char *memory = aligned_alloc(64, (total + 63) / 64 * 64);
    void *args[256];
    FILE *file = fopen(words[1], "r+b");
    if (!file || fread(memory, 1, total, file) != (size_t)total) return 2;
    long at = guard;
    for (int n = 3; n < count; n++) { args[n - 3] = memory + at; at += (atol(words[n]) + 63) / 64 * 64 + guard; }
    ENTRY(args, 2);
    rewind(file);
    return fwrite(memory, 1, total, file) == (size_t)total && !fclose(file) ? 0 : 3;
}
"""
"""Every buffer begins at a cache line, between two guards; parallel loops run in chunks, one after the other."""


def is_here() -> bool:
    """Whether this machine can link and run programs for AArch64."""
    return shutil.which(EMULATOR) is not None and importlib.util.find_spec("ziglang") is not None


def target(*features: str, cpu: str = "generic") -> Target:
    """An AArch64 processor with these features besides NEON, on two threads."""
    known = configs.target("cpu-neon")
    return replace(known, features=",".join(["+neon", *(f"+{f}" for f in features)]), cpu=cpu, threads=2)


class Emulated(Bound):
    """A program for AArch64 with memory of its own; `folder` holds its files."""

    def __init__(self, lowered: Lowered, machine: Target, folder: Path) -> None:
        buffers = (*lowered.params, *lowered.workspaces)
        self.names = tuple(b.name for b in buffers)
        self._memories = [Memory(b.name, b.shape, b.dtype, b.scope) for b in buffers]
        self._file, self._program = folder / "memory", folder / "program"
        self._starts: list[int] = []
        total = GUARD
        for memory in self._memories:
            self._starts.append(total)
            total += -(-memory.nbytes // 64) * 64 + GUARD
        self._bytes = np.zeros(total, np.uint8)
        self._pattern = b"\0"
        entry = entry_name(lowered.name)
        module = LinkedModule([generate(lowered, machine)], [entry], machine, TRIPLE)
        (folder / "kernel.o").write_bytes(module.object())
        (folder / "driver.c").write_text(DRIVER)
        self._compile(folder, entry)

    def _compile(self, folder: Path, entry: str) -> None:
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static", "-O1"]
        command += [f"-DENTRY={entry}", "-o", str(self._program), str(folder / "driver.c"), str(folder / "kernel.o")]
        subprocess.run(command, check=True, capture_output=True)

    def write(self, index: int, data: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._bytes[self._starts[index] : self._starts[index] + raw.size] = raw

    def read(self, index: int) -> NDArray[Any]:
        memory, start = self._memories[index], self._starts[index]
        raw = self._bytes[start : start + memory.nbytes].copy()
        return raw.view(numpy_dtype(memory.dtype)).reshape(memory.shape)

    def _guards(self) -> list[NDArray[np.uint8]]:
        ends = [0, *(s + m.nbytes for s, m in zip(self._starts, self._memories, strict=True))]
        return [self._bytes[end:start] for end, start in zip(ends, [*self._starts, len(self._bytes)], strict=True)]

    def poison_guards(self, pattern: bytes) -> None:
        self._pattern = pattern
        for guard in self._guards():
            guard[:] = np.resize(np.frombuffer(pattern, np.uint8), guard.size)

    def guards_intact(self) -> bool:
        pattern = np.frombuffer(self._pattern, np.uint8)
        return all(np.array_equal(g, np.resize(pattern, g.size)) for g in self._guards())

    def run(self) -> None:
        self._file.write_bytes(self._bytes.tobytes())
        sizes = [str(memory.nbytes) for memory in self._memories]
        command = [EMULATOR, "-cpu", "max", str(self._program), str(self._file), str(GUARD), *sizes]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        self._bytes = np.frombuffer(self._file.read_bytes(), np.uint8).copy()

    def time(self, calls: int) -> float:
        for _ in range(calls):
            self.run()
        return 1.0


@lru_cache(maxsize=8)
def operators() -> dict[str, tuple[str, dict[str, Any]]]:
    """Small operators of the kinds that the suites have: their workload and its parameters."""
    return {
        "matmul": ("matmul", {"m": 7, "n": 20, "k": 22}),
        "matmul int8": ("matmul", {"m": 7, "n": 20, "k": 22, "dtype": "int8"}),
        "matmul float16": ("matmul", {"m": 7, "n": 20, "k": 22, "dtype": "float16"}),
        "matmul bias act": ("matmul_bias_act", {"m": 5, "n": 18, "k": 12}),
        "conv2d": ("conv2d", {"ci": 5, "h": 7, "w": 7, "co": 12, "k": 3, "pad": 1}),
        "conv2d int8": ("conv2d", {"ci": 8, "h": 7, "w": 7, "co": 12, "k": 3, "pad": 1, "dtype": "int8"}),
        "conv2d nhwc": ("conv2d", {"ci": 4, "h": 9, "w": 9, "co": 8, "k": 3, "stride": 2, "pad": 1, "layout": "nhwc"}),
        "depthwise": ("depthwise_conv2d", {"c": 10, "h": 7, "w": 7, "k": 3, "pad": 1}),
        "max pool": ("max_pool2d", {"c": 6, "h": 9, "w": 9, "k": 3, "stride": 2, "pad": 1}),
        "softmax": ("softmax", {"rows": 5, "cols": 37}),
        "layernorm": ("layernorm", {"rows": 6, "cols": 33}),
        "column sums": ("col_sum", {"rows": 13, "cols": 21}),
        "elements": ("add_act", {"rows": 7, "cols": 21}),
    }
