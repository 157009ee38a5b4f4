"""The thread pool of a process, for parallel loops of generated code.

``stridesmith_parallel(task, record, total, chunk, threads)`` calls ``task(record, begin, end)`` for
ranges that partition ``[0, total)``, on up to `threads` threads of which the caller is one, and
returns when all are done.  A call from inside a task, or while another thread's job runs, executes
its range by itself.

The caller waits for ranges that a worker has taken, never for a worker: one that the system has not
scheduled finds the job closed, and the caller has done its part.  All of a job that several threads
change is one word,

    number of the job (37 bits) | caller sleeps (1) | units not yet taken (16) | workers inside (10)

and every step is one atomic operation on it: a unit is taken by a compare-and-swap, which fails for
whoever has seen an earlier job.  docs/pool.md has the protocol, and tests/backends/llvm/pool_model.py
tries all of its interleavings.

Written as LLVM text, so that it needs no compiler and no OpenMP runtime: on pthreads, and on futexes
where the system is Linux.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from functools import lru_cache

from ...forks import held_at_forks
from ...ir.target import Target
from .compile import LoadedObject, compile_object, provide_symbol
from .pool_system import CONDITION, CORES, FUTEX, NO_CORES
from .pool_text import TEXT

SYMBOL = "stridesmith_parallel"
MAX_THREADS = 1024  # that the pool has room for, a choice
STACK_BYTES = 16 << 20  # of a worker: four times what generated code may take (`render.llvm.MAX_STACK_BYTES`)
IDLE_NS = 500_000
"""How long a worker without a job looks for the next one before it sleeps."""
BRIEF_NS = 50_000
"""The same for a worker that has just lost its core to another thread for a while."""
JOIN_NS = 50_000
"""How long a caller looks whether the last ranges are done before it sleeps, and leaves its core to their workers."""
TURN_NS = 1_200_000
"""How long a worker computes before it offers its core to others, holding no range.

Less than the slice that Linux gives a thread where several want a core (1.4 ms on two processors, 2.8 on eight): a
worker that uses up its slice is taken from the core in the middle of a range, and the caller waits for it for the slice
of another thread.
"""
AWAY_NS = 100_000
"""A thread whose clock leaps so far between two looks had lost its core."""
POLLS = 32
"""Looks at the word between two of the clock."""
PARTS = 32
SHARE = 2
"""A range has a `SHARE`-th of what is left for each thread, and of all at least a `PARTS`-th."""

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}

_INSIDE_BITS, _UNITS_BITS = 10, 16


def pool_text(system: str = platform.system(), machine: str = platform.machine()) -> str:
    """The module text of the pool for an operating system and a processor."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())
    declaration, pause = _PAUSE.get(machine, ("", "fence seq_cst"))
    futex = _FUTEX_CALL.get(machine) if system == "Linux" else None
    inside, asleep = (1 << _INSIDE_BITS) - 1, 1 << (_INSIDE_BITS + _UNITS_BITS)
    values = {
        "PAUSE_DECLARATION": declaration, "PAUSE": pause, "SYMBOL": SYMBOL, "STACK_BYTES": STACK_BYTES,
        "MAX_THREADS": MAX_THREADS, "FUTEX": futex, "POLLS": POLLS, "PARTS": PARTS,
        "IDLE_NS": IDLE_NS, "BRIEF_NS": BRIEF_NS, "JOIN_NS": JOIN_NS, "AWAY_NS": AWAY_NS, "TURN_NS": TURN_NS,
        "SHARE": SHARE,
        "DETACHED": 2 if system == "Darwin" else 1,  # PTHREAD_CREATE_DETACHED
        "CLOCK_MONOTONIC": 6 if system == "Darwin" else 1,
        "INSIDE": inside, "UNITS": ((1 << _UNITS_BITS) - 1) << _INSIDE_BITS, "UNITS_SHIFT": _INSIDE_BITS,
        "MOST_UNITS": (1 << _UNITS_BITS) - 1,
        "ASLEEP": asleep, "ASLEEP_OR_INSIDE": asleep | inside, "ASLEEP_AND_ONE": asleep | 1,
        "JOB_SHIFT": _INSIDE_BITS + _UNITS_BITS + 1,
    }  # fmt: skip
    text = TEXT + (CONDITION if futex is None else FUTEX) + (CORES if system == "Linux" else NO_CORES)
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


_lock = held_at_forks(threading.RLock())


def ensure_pool() -> None:
    """Compile the pool, once in a process, and let generated code find it."""
    with _lock:
        _load()


@lru_cache(maxsize=1)
def _load() -> int:
    loaded = LoadedObject(compile_object(pool_text(), Target()))
    reset = loaded.function("pool_reset")
    address = loaded.address(SYMBOL)
    loaded.keep_forever()
    reset()
    # A child has the memory of the pool but not its threads.
    os.register_at_fork(after_in_child=reset)
    provide_symbol(SYMBOL, address)
    return address


def run_parallel(task: int, record: int, total: int, threads: int, chunk: int = 0) -> None:
    """Call the task at address `task`; what a parallel loop of generated code does."""
    ensure_pool()
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    ctypes.CFUNCTYPE(None, *kinds)(_load())(task, record, total, chunk, threads)
