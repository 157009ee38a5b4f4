"""The thread pool of a process, for parallel loops of generated code.

Written as LLVM text on pthread mutexes and conditions, so that it needs no compiler and no OpenMP
runtime.  ``stridesmith_parallel(task, record, total, chunk, threads)`` calls
``task(record, begin, end)`` for ranges that partition ``[0, total)``, on up to `threads` threads of
which the caller is one, and returns when all are done.  Ranges of `chunk` iterations (0: a
sixteenth of a thread's share) are handed out by an atomic counter.

Workers persist.  Between jobs they spin for `SPINS_BEFORE_SLEEP` pauses, some tenths of a millisecond up to two, then
sleep on a condition: after a sleep of 20 ms a worker was seen to miss the first milliseconds of the next call.
A call from inside a task, or while another thread's job runs, executes its range by itself.

A job is published by one atomic word: the number of the job, shifted left by 16, plus how many
workers take part.  A worker that takes part acknowledges every job, and the next job is published
only when all have; the others only compare the word.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from functools import lru_cache

from ...ir.target import Target
from .compile import LoadedObject, compile_object, provide_symbol

SYMBOL = "stridesmith_parallel"
MAX_THREADS = 4096
SPINS_BEFORE_SLEEP = 40_000
STACK_BYTES = 16 << 20

_TEXT = r"""
@mutex = internal global [16 x i64] zeroinitializer, align 64
@wake = internal global [16 x i64] zeroinitializer, align 64
@word = internal global [8 x i64] zeroinitializer, align 64
@next = internal global [8 x i64] zeroinitializer, align 64
@pending = internal global [8 x i64] zeroinitializer, align 64
@sleepers = internal global [8 x i64] zeroinitializer, align 64
@busy = internal global [8 x i64] zeroinitializer, align 64
@task = internal global ptr null, align 64
@record = internal global ptr null
@total = internal global i64 0
@chunk = internal global i64 0
@workers = internal global i64 0

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @sched_yield()
{PAUSE_DECLARATION}

define void @pool_reset() nounwind {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @wake, ptr null)
  store atomic i64 0, ptr @word seq_cst, align 8
  store atomic i64 0, ptr @pending seq_cst, align 8
  store atomic i64 0, ptr @sleepers seq_cst, align 8
  store i64 0, ptr @workers
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret void
}

define internal void @take_ranges() nounwind {
entry:
  %task = load ptr, ptr @task
  %record = load ptr, ptr @record
  %total = load i64, ptr @total
  %chunk = load i64, ptr @chunk
  br label %loop
loop:
  %begin = atomicrmw add ptr @next, i64 %chunk monotonic
  %more = icmp slt i64 %begin, %total
  br i1 %more, label %run, label %done
run:
  %reach = add i64 %begin, %chunk
  %inside = icmp slt i64 %reach, %total
  %end = select i1 %inside, i64 %reach, i64 %total
  call void %task(ptr %record, i64 %begin, i64 %end)
  br label %loop
done:
  ret void
}

define internal i64 @await_change(i64 %seen) nounwind {
entry:
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  %w = load atomic i64, ptr @word acquire, align 8
  %same = icmp eq i64 %w, %seen
  br i1 %same, label %again, label %changed
again:
  {PAUSE}
  %n1 = add i64 %n, 1
  %spinning = icmp slt i64 %n1, {SPINS}
  br i1 %spinning, label %spin, label %sleep
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %s = atomicrmw add ptr @sleepers, i64 1 seq_cst
  br label %check
check:
  %w2 = load atomic i64, ptr @word seq_cst, align 8
  %same2 = icmp eq i64 %w2, %seen
  br i1 %same2, label %wait, label %awake
wait:
  %r = call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %check
awake:
  %d = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret i64 %w2
changed:
  ret i64 %w
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %slot = load i64, ptr %argument
  %number = lshr i64 %slot, 48
  %start = and i64 %slot, 281474976710655
  br label %loop
loop:
  %seen = phi i64 [ %start, %entry ], [ %word, %idle ], [ %word, %work ]
  %word = call i64 @await_change(i64 %seen)
  %count = and i64 %word, 65535
  %mine = icmp ult i64 %number, %count
  br i1 %mine, label %work, label %idle
work:
  call void @take_ranges()
  %left = atomicrmw sub ptr @pending, i64 1 acq_rel
  br label %loop
idle:
  br label %loop
}

@slots = internal global [{MAX_THREADS} x i64] zeroinitializer, align 64

define internal i64 @ensure_workers(i64 %wanted) noinline nounwind {
entry:
  %thread = alloca i64, align 8
  %attributes = alloca [16 x i64], align 64
  %word = load atomic i64, ptr @word monotonic, align 8
  %start = and i64 %word, 281474976710655
  %i = call i32 @pthread_attr_init(ptr %attributes)
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {STACK_BYTES})
  %d = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 {DETACHED})
  br label %loop
loop:
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %done, label %create
create:
  %slot = getelementptr i64, ptr @slots, i64 %have
  %high = shl i64 %have, 48
  %value = or i64 %high, %start
  store i64 %value, ptr %slot
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %count, label %done
count:
  %more = add i64 %have, 1
  store i64 %more, ptr @workers
  br label %loop
done:
  %x = call i32 @pthread_attr_destroy(ptr %attributes)
  %result = load i64, ptr @workers
  ret i64 %result
}

define void @{SYMBOL}(ptr %task, ptr %record, i64 %total, i64 %chunk, i64 %threads) nounwind {
entry:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %several, label %out
several:
  %fewer = icmp slt i64 %total, %threads
  %useful = select i1 %fewer, i64 %total, i64 %threads
  %low = icmp slt i64 %useful, {MAX_THREADS}
  %used = select i1 %low, i64 %useful, i64 {MAX_THREADS}
  %alone = icmp sle i64 %used, 1
  br i1 %alone, label %serial, label %claim
claim:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %claimed = extractvalue { i64, i1 } %pair, 1
  br i1 %claimed, label %prepare, label %serial
serial:
  call void %task(ptr %record, i64 0, i64 %total)
  br label %out
prepare:
  %wanted = sub i64 %used, 1
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %publish, label %grow
grow:
  %grown = call i64 @ensure_workers(i64 %wanted)
  br label %publish
publish:
  %there = phi i64 [ %have, %prepare ], [ %grown, %grow ]
  %scarce = icmp slt i64 %there, %wanted
  %helpers = select i1 %scarce, i64 %there, i64 %wanted
  %given = icmp sgt i64 %chunk, 0
  %parts = mul i64 %used, 16
  %share = udiv i64 %total, %parts
  %tiny = icmp slt i64 %share, 1
  %auto = select i1 %tiny, i64 1, i64 %share
  %step = select i1 %given, i64 %chunk, i64 %auto
  store ptr %task, ptr @task
  store ptr %record, ptr @record
  store i64 %total, ptr @total
  store i64 %step, ptr @chunk
  store atomic i64 0, ptr @next monotonic, align 8
  store atomic i64 %helpers, ptr @pending monotonic, align 8
  %old = load atomic i64, ptr @word monotonic, align 8
  %job = lshr i64 %old, 16
  %job1 = add i64 %job, 1
  %job2 = and i64 %job1, 4294967295
  %high = shl i64 %job2, 16
  %new = or i64 %high, %helpers
  store atomic i64 %new, ptr @word seq_cst, align 8
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %nobody = icmp eq i64 %asleep, 0
  br i1 %nobody, label %work, label %ring
ring:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @wake)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %work
work:
  call void @take_ranges()
  br label %join
join:
  %n = phi i64 [ 0, %work ], [ %n1, %pause ], [ %n, %yield ]
  %p = load atomic i64, ptr @pending acquire, align 8
  %finished = icmp eq i64 %p, 0
  br i1 %finished, label %release, label %wait
wait:
  %patient = icmp slt i64 %n, {SPINS}
  br i1 %patient, label %pause, label %yield
pause:
  {PAUSE}
  %n1 = add i64 %n, 1
  br label %join
yield:
  %y = call i32 @sched_yield()
  br label %join
release:
  store atomic i64 0, ptr @busy release, align 8
  br label %out
out:
  ret void
}
"""

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pool_text() -> str:
    """The module text of the pool for this machine."""
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    declaration, pause = _PAUSE.get(machine, ("", "fence seq_cst"))
    detached = 2 if platform.system() == "Darwin" else 1  # PTHREAD_CREATE_DETACHED
    values = {
        "PAUSE_DECLARATION": declaration, "PAUSE": pause, "SPINS": SPINS_BEFORE_SLEEP, "SYMBOL": SYMBOL,
        "MAX_THREADS": MAX_THREADS, "STACK_BYTES": STACK_BYTES, "DETACHED": detached,
    }  # fmt: skip
    text = _TEXT
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


_lock = threading.Lock()


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
