"""Random calls of the thread pool that count every iteration, beside processes that take cores and give them back.

The task computes for a while, in machine code, and adds one to the counter of each of its iterations.  After each call
all counters of its iterations must be one: less is a lost range, more one that ran twice, and one that ran after its
call had ended is found in a later call, whose counters it adds to.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from stridesmith.backends.llvm import pool
from stridesmith.backends.llvm.compile import LoadedObject, compile_object
from stridesmith.ir.target import Target

MOST = 1000
"""Iterations of a call."""

TASK = f"""
declare void @{pool.SYMBOL}(ptr, ptr, i64, i64, i64)

define void @count(ptr %record, i64 %begin, i64 %end) nounwind {{
entry:
  %scratch = alloca i64
  %counts = load ptr, ptr %record
  %place = getelementptr i64, ptr %record, i64 1
  %work = load i64, ptr %place
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %done ]
  br label %spin
spin:
  %n = phi i64 [ 0, %loop ], [ %n1, %spin ]
  %n1 = add i64 %n, 1
  store volatile i64 %n1, ptr %scratch
  %busy = icmp slt i64 %n1, %work
  br i1 %busy, label %spin, label %done
done:
  %counter = getelementptr i64, ptr %counts, i64 %i
  %old = atomicrmw add ptr %counter, i64 1 monotonic
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}}

; A task that calls the pool: each of its iterations counts ten of the inner ones.
define void @nested(ptr %record, i64 %begin, i64 %end) nounwind {{
entry:
  %inner = alloca [2 x i64], align 8
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %counts = load ptr, ptr %record
  %first = mul i64 %i, 10
  %part = getelementptr i64, ptr %counts, i64 %first
  store ptr %part, ptr %inner
  %place = getelementptr i64, ptr %inner, i64 1
  store i64 0, ptr %place
  call void @{pool.SYMBOL}(ptr @count, ptr %inner, i64 10, i64 1, i64 2)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""


class Tasks:
    """The two tasks, compiled."""

    def __init__(self) -> None:
        pool.ensure_pool()
        self.code = LoadedObject(compile_object(TASK, Target()))
        self.count, self.nested = self.code.address("count"), self.code.address("nested")


def calls(tasks: Tasks, count: int, seed: int) -> int:
    """Make `count` random calls and look at their counters; the number of iterations.  Raises AssertionError."""
    rng = random.Random(seed)
    counts = np.zeros(MOST, np.int64)
    record = np.zeros(2, np.int64)
    record[0] = counts.ctypes.data
    place = record.ctypes.data
    iterations = 0
    for number in range(count):
        total = rng.choice((1, 2, 3, 7, 20, 64, MOST))
        threads, chunk = rng.randint(1, 6), rng.choice((0, 0, 1, 2, 5, 2 * MOST))
        record[1] = rng.choice((0, 0, 0, 100, 20_000)) if total <= 20 else 0  # the last: longer than a return
        if number % 16 == 7:
            total = min(total, MOST // 10)
            pool.run_parallel(tasks.nested, place, total, threads, chunk)
            total *= 10
        else:
            pool.run_parallel(tasks.count, place, total, threads, chunk)
        iterations += total
        if not (counts[:total] == 1).all():
            wrong = np.flatnonzero(counts[:total] != 1)
            raise AssertionError(
                f"call {number} of seed {seed}, {total} iterations on {threads} threads in chunks of {chunk}: "
                f"iteration {wrong[0]} ran {counts[wrong[0]]} times, and {len(wrong)} in all not once"
            )
        counts[:total] = 0
        if number % 512 == 0:
            assert not counts.any(), "a range ran in a call that had no such iterations"
            time.sleep(rng.choice((0, 1e-4, 2e-3)))  # short of what a worker waits before it sleeps, and beyond
    return iterations


def stress(count: int, callers: int, seed: int, spinners: bool = True) -> int:
    """`calls` from several threads at once, with spinners coming and going; the number of iterations of all."""
    tasks, results, errors = Tasks(), [0] * callers, []

    def run(number: int) -> None:
        try:
            results[number] = calls(tasks, count // callers, seed + number)
        except AssertionError as error:
            errors.append(error)

    with coming_and_going(seed, 3 if spinners else 0):
        threads = [threading.Thread(target=run, args=(n,)) for n in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return sum(results)


@contextmanager
def coming_and_going(seed: int, most: int) -> Iterator[None]:
    """Up to `most` processes that compute, each stopped and continued at random."""
    rng = random.Random(seed)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(most)]
    ended = threading.Event()

    def conduct() -> None:
        while not ended.wait(rng.uniform(0.002, 0.1)):
            for spinner in spinners:
                spinner.send_signal(rng.choice((signal.SIGSTOP, signal.SIGCONT)))

    conductor = threading.Thread(target=conduct)
    conductor.start()
    try:
        yield
    finally:
        ended.set()
        conductor.join()
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
