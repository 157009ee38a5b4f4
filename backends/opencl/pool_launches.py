"""Launches of kernels whose work-groups the threads of stridesmith's pool share, each thread with a queue of its own.

A program's work-groups are numbered, and the pool hands out ranges of them as it does with iterations of a parallel
loop (`backends.llvm.pool`).  For a range ``[begin, end)`` a thread takes a queue that no other one uses, launches so
many work-groups there with the offset `begin`, and waits, which with these queues means that it has run them itself:

    task(record, begin, end):   slot = a free one
                                clEnqueueNDRangeKernel(slot.queue, slot.kernel, begin, (end - begin) * local)
                                clFinish(slot.queue)

How long ranges are is chosen by the time of the launch before, `AIM_NS` of work, one for each thread at most: each
costs 1.5 to 3 us, and long kernels have many, so that a thread that lost its core holds up the others for a part of
the work.

All launches have an offset along z, which no kernel reads.  PoCL compiles a kernel anew, as a second form, for launches
without any.  Memory is shared with the host and between threads byte by byte (fine-grained SVM).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from ...ir.target import Target
from ..launch import OFFSETS, Launch
from ..llvm.compile import LoadedObject, compile_object, provide_symbol
from ..llvm.pool import SYMBOL, ensure_pool
from ..llvm.pool_text import NOW
from ..memory import placed, room_for
from .calling_thread import queue_in_caller
from .failures import error_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL_GRID = (1 << 16) - 2
"""Work-items by axis up to which PoCL shares one compilation between grids of different sizes."""
AIM_NS = 50_000
"""How long a range takes, about."""

RECORD = np.dtype([
    ("groups", np.int64), ("range", np.int64), ("threads", np.int64), ("most", np.int64), ("error", np.int64),
    ("slots", np.int64), ("local", np.int64, 3), ("rest", np.int64, 7),
])  # fmt: skip
SLOT = np.dtype([("busy", np.int64), ("queue", np.int64), ("kernel", np.int64), ("rest", np.int64, (5,))])
"""A queue and its kernel, and whether a thread uses them: a cache line for each, which threads write in turns."""

TEXT = r"""
%Record = type { i64, i64, i64, i64, i64, i64, [3 x i64], [7 x i64] }
%Slot = type { i64, ptr, ptr, [5 x i64] }

declare void @{POOL}(ptr, ptr, i64, i64, i64)
declare i32 @clEnqueueNDRangeKernel(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr, ptr)
declare i32 @clFinish(ptr)
declare i32 @sched_yield()

define internal void @task(ptr %record, i64 %begin, i64 %end) nounwind {
entry:
  %offset = alloca [3 x i64], align 8
  %global = alloca [3 x i64], align 8
  %offset.y = getelementptr i64, ptr %offset, i64 1
  %offset.z = getelementptr i64, ptr %offset, i64 2
  store i64 1, ptr %offset.z
  %local = getelementptr %Record, ptr %record, i64 0, i32 6
  call void @llvm.memcpy.p0.p0.i64(ptr %global, ptr %local, i64 24, i1 false)
  %items = load i64, ptr %local
  %most.p = getelementptr %Record, ptr %record, i64 0, i32 3
  %most = load i64, ptr %most.p
  %slots.p = getelementptr %Record, ptr %record, i64 0, i32 5
  %slots = load i64, ptr %slots.p
  %first = getelementptr %Record, ptr %record, i64 1
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %following, %next ], [ 0, %full ]
  %slot = getelementptr %Slot, ptr %first, i64 %number
  %taken = cmpxchg ptr %slot, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %taken, 1
  br i1 %free, label %found, label %next
next:
  %following = add i64 %number, 1
  %behind = icmp sge i64 %following, %slots
  br i1 %behind, label %full, label %look
full:
  %yielded = call i32 @sched_yield()
  br label %look
found:
  %queue.p = getelementptr %Slot, ptr %slot, i64 0, i32 1
  %queue = load ptr, ptr %queue.p
  %kernel.p = getelementptr %Slot, ptr %slot, i64 0, i32 2
  %kernel = load ptr, ptr %kernel.p
  br label %part
part:
  %at = phi i64 [ %begin, %found ], [ %to, %part ]
  %left = sub i64 %end, %at
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %most)
  %to = add i64 %at, %count
  %at.x = urem i64 %at, {OFFSETS}
  %at.y = udiv i64 %at, {OFFSETS}
  store i64 %at.x, ptr %offset
  store i64 %at.y, ptr %offset.y
  %global.x = mul i64 %count, %items
  store i64 %global.x, ptr %global
  %launched = call i32 @clEnqueueNDRangeKernel(ptr %queue, ptr %kernel, i32 3, ptr %offset, ptr %global, ptr %local,
                                               i32 0, ptr null, ptr null)
  %well = icmp eq i32 %launched, 0
  %more = icmp slt i64 %to, %end
  %again = and i1 %well, %more
  br i1 %again, label %part, label %wait
wait:
  %waited = call i32 @clFinish(ptr %queue)
  store atomic i64 0, ptr %slot release, align 8
  %failed = select i1 %well, i32 %waited, i32 %launched
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %tell, label %done
tell:
  %code = sext i32 %failed to i64
  %error = getelementptr %Record, ptr %record, i64 0, i32 4
  store atomic i64 %code, ptr %error monotonic, align 8
  br label %done
done:
  ret void
}

; Run a launch; the driver's error, or 0.
define internal i64 @launch(ptr %record) nounwind {
entry:
  %groups = load i64, ptr %record
  %range.p = getelementptr %Record, ptr %record, i64 0, i32 1
  %threads.p = getelementptr %Record, ptr %record, i64 0, i32 2
  %error.p = getelementptr %Record, ptr %record, i64 0, i32 4
  %range = load i64, ptr %range.p
  %threads = load i64, ptr %threads.p
  %shared = icmp sgt i64 %threads, 1
  br i1 %shared, label %share, label %alone
alone:
  call void @task(ptr %record, i64 0, i64 %groups)
  br label %done
share:
  %start = call i64 @now()
  call void @{POOL}(ptr @task, ptr %record, i64 %groups, i64 %range, i64 %threads)
  %end = call i64 @now()
  %ns = sub i64 %end, %start
  %work = mul i64 %ns, %threads
  %positive = call i64 @llvm.smax.i64(i64 %work, i64 1)
  %aim = mul i64 %groups, {AIM_NS}
  %wanted = sdiv i64 %aim, %positive
  %rounded = add i64 %groups, %threads
  %up = sub i64 %rounded, 1
  %part = sdiv i64 %up, %threads
  %below = call i64 @llvm.smin.i64(i64 %wanted, i64 %part)
  %next = call i64 @llvm.smax.i64(i64 %below, i64 1)
  store i64 %next, ptr %range.p
  br label %done
done:
  %error = load atomic i64, ptr %error.p monotonic, align 8
  store i64 0, ptr %error.p
  ret i64 %error
}

; Run launches one after the other, so many times, up to the first error.
define i64 @opencl_on_pool(ptr %records, i64 %bytes, i64 %count, i64 %calls) nounwind {
entry:
  br label %call
call:
  %c = phi i64 [ 0, %entry ], [ %c1, %called ]
  %some = icmp slt i64 %c, %calls
  br i1 %some, label %one, label %done
one:
  %n = phi i64 [ 0, %call ], [ %n1, %ran ]
  %another = icmp slt i64 %n, %count
  br i1 %another, label %run, label %called
run:
  %distance = mul i64 %n, %bytes
  %record = getelementptr i8, ptr %records, i64 %distance
  %error = call i64 @launch(ptr %record)
  %bad = icmp ne i64 %error, 0
  br i1 %bad, label %failed, label %ran
ran:
  %n1 = add i64 %n, 1
  br label %one
called:
  %c1 = add i64 %c, 1
  br label %call
failed:
  ret i64 %error
done:
  ret i64 0
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


class Shared(NamedTuple):
    """A launch of a program's kernel over `shared_memory`, in the order of the kernel's arguments."""

    program: Any
    launch: Launch
    arguments: Sequence[NDArray[np.uint8]]


class PoolLaunches:
    """Launches in order, which `run` makes on so many threads of the pool at most."""

    def __init__(self, context: Any, threads: int, launches: Sequence[Shared]) -> None:
        self._held = context, launches  # the records have addresses of what these hold
        self._queues = [queue_in_caller(context) for _ in range(threads)]
        self._kernels = [[_kernel(shared) for _ in self._queues] for shared in launches]
        line, words = SLOT.itemsize, len(self._queues)
        kind = np.dtype([("record", RECORD), ("slots", SLOT, (words,))])
        memory = np.zeros(max(1, len(launches)) * kind.itemsize + line, np.uint8)
        begin = -memory.ctypes.data % line
        self._records = memory[begin : begin + len(launches) * kind.itemsize].view(kind)
        self._begin, self._bytes, self._count = self._records.ctypes.data, kind.itemsize, len(launches)
        for row, (shared, kernels) in enumerate(zip(launches, self._kernels, strict=True)):
            self._describe(self._records[row], shared.launch, kernels)
        self._run = _runner()

    def _describe(self, row: Any, launch: Launch, kernels: Sequence[Any]) -> None:
        record, slots = row["record"], row["slots"]
        threads = min(launch.threads or len(kernels), launch.groups, len(kernels))
        record["groups"], record["threads"] = launch.groups, threads
        record["range"] = -(-launch.groups // threads)
        record["most"] = max(1, SMALL_GRID // launch.local_size[0])
        record["slots"], record["local"] = len(kernels), launch.local_size
        slots["queue"] = [queue.int_ptr for queue in self._queues]
        slots["kernel"] = [kernel.int_ptr for kernel in kernels]

    def run(self, first: int = 0, last: int | None = None, calls: int = 1) -> None:
        """Make the launches from number `first` to before `last`, by default all, so many times.

        Raises what a driver's error means (`failures.error_of`).
        """
        end = self._count if last is None else last
        if error := self._run(self._begin + first * self._bytes, self._bytes, end - first, calls):
            raise error_of(error)


def shared_memory(context: Any, nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes that the host and a context's device read and write at once, placed by `backends.memory`."""
    block = placed(cl.fsvm_empty(context, (room_for(nbytes),), np.uint8), nbytes)
    block[:] = 0
    return block


def _kernel(shared: Shared) -> Any:
    kernel = cl.Kernel(shared.program, shared.launch.kernel)
    kernel.set_args(*(cl.SVM(argument) for argument in shared.arguments), *map(np.int64, shared.launch.values))
    return kernel


@lru_cache(maxsize=1)
def _runner() -> Any:
    """``opencl_on_pool(records, bytes of one, number, calls)``; the interpreter lock is released during its calls."""
    ensure_pool()
    library = ctypes.CDLL(cl._cl.__file__)  # is linked with the loader
    for name in ("clEnqueueNDRangeKernel", "clFinish"):
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address is not None
        provide_symbol(name, address)
    text = NOW + TEXT
    for word, value in (("CLOCK_MONOTONIC", 1), ("POOL", SYMBOL), ("AIM_NS", AIM_NS), ("OFFSETS", OFFSETS)):
        text = text.replace("{" + word + "}", str(value))
    loaded = LoadedObject(compile_object(text, Target()))
    address = loaded.address("opencl_on_pool")
    loaded.keep_forever()
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)
