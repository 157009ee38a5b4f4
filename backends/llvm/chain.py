"""Calls of several compiled functions in one, as LLVM text: what runs a chain of kernels without Python in between.

::

    void run(ptr calls, i64 count, i64 threads)                  calls[k] is (function, argument record)
    void profile(ptr calls, i64 count, i64 threads, ptr stamps)  stamps[k] are nanoseconds before call k; one more after
    void lent(ptr record, i64 threads)                           tells kernels where arguments lie, and runs them all

The record of `lent` has the address and number of the calls, the number of its moves, three words for each move, and
then the arguments' addresses.  A move is a word of the record, what is added to it, and the address where the sum goes.
"""

from __future__ import annotations

import platform
from functools import lru_cache

from ...ir.target import Target
from .compile import LoadedObject, compile_object
from .pool_text import NOW

_LOOP = """
define void @{name}(ptr %calls, i64 %count, i64 %threads{stamps}) nounwind {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{stamp}
  %call = getelementptr [2 x ptr], ptr %calls, i64 %i
  %function = load ptr, ptr %call, align 8
  %place = getelementptr ptr, ptr %call, i64 1
  %record = load ptr, ptr %place, align 8
  call void %function(ptr %record, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{last}
  ret void
}}
"""

_LENT = """
define void @lent(ptr %record, i64 %threads) nounwind {
entry:
  %calls = load ptr, ptr %record
  %count.at = getelementptr i64, ptr %record, i64 1
  %count = load i64, ptr %count.at
  %moves.at = getelementptr i64, ptr %record, i64 2
  %moves = load i64, ptr %moves.at
  %first = getelementptr i64, ptr %record, i64 {LENT_HEAD}
  %some = icmp sgt i64 %moves, 0
  br i1 %some, label %move, label %go
move:
  %i = phi i64 [ 0, %entry ], [ %next, %move ]
  %this = getelementptr [3 x i64], ptr %first, i64 %i
  %word = load i64, ptr %this
  %argument.at = getelementptr i64, ptr %record, i64 %word
  %argument = load i64, ptr %argument.at
  %offset.at = getelementptr i64, ptr %this, i64 1
  %offset = load i64, ptr %offset.at
  %slot.at = getelementptr i64, ptr %this, i64 2
  %slot = load ptr, ptr %slot.at
  %sum = add i64 %argument, %offset
  store i64 %sum, ptr %slot
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %moves
  br i1 %more, label %move, label %go
go:
  call void @run(ptr %calls, i64 %count, i64 %threads)
  ret void
}
"""
LENT_HEAD = 3

_STAMP = """
define internal void @stamp(ptr %stamps, i64 %number) nounwind {
  %ns = call i64 @now()
  %place = getelementptr i64, ptr %stamps, i64 %number
  store i64 %ns, ptr %place, align 8
  ret void
}
"""


def chain_text(system: str = platform.system()) -> str:
    """The module text for an operating system."""
    plain = _LOOP.format(name="run", stamps="", stamp="", last="")
    timed = _LOOP.format(
        name="profile",
        stamps=", ptr %stamps",
        stamp="  call void @stamp(ptr %stamps, i64 %i)",
        last="  call void @stamp(ptr %stamps, i64 %count)",
    )
    lent = _LENT.replace("{LENT_HEAD}", str(LENT_HEAD))
    return plain + timed + lent + _STAMP + NOW.replace("{CLOCK_MONOTONIC}", "6" if system == "Darwin" else "1")


@lru_cache(maxsize=1)
def chain_code() -> LoadedObject:
    """The compiled module, once in a process."""
    return LoadedObject(compile_object(chain_text(), Target()))
