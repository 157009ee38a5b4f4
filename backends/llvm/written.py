"""Arrays as a parallel program has just left them, as LLVM text: what makes the caches look as they do in a network.

::

    void written(ptr record, i64 threads)      each thread writes its part of every buffer, with what is there

The record has the number of buffers, and then the address and the lines of 64 bytes of each.  A thread gets one part of
equal size, in the order of the addresses, so that its part is in its caches, and in no other's.
"""

from __future__ import annotations

from functools import lru_cache

from ...ir.target import Target
from .compile import LoadedObject, compile_object
from .pool import ensure_pool

LINE_BYTES = 64  # of a cache, on x86 and most AArch64
TEXT = """
declare void @stridesmith_parallel(ptr, ptr, i64, i64, i64)

define void @written(ptr %record, i64 %threads) nounwind {
  %mine = alloca [2 x i64], align 16
  %at = ptrtoint ptr %record to i64
  store i64 %at, ptr %mine, align 8
  %second = getelementptr i64, ptr %mine, i64 1
  store i64 %threads, ptr %second, align 8
  call void @stridesmith_parallel(ptr @part, ptr %mine, i64 %threads, i64 1, i64 %threads)
  ret void
}

define internal void @part(ptr %mine, i64 %begin, i64 %end) nounwind {
entry:
  %record = load ptr, ptr %mine, align 8
  %second = getelementptr i64, ptr %mine, i64 1
  %parts = load i64, ptr %second, align 8
  %count = load i64, ptr %record, align 8
  br label %buffers
buffers:
  %b = phi i64 [ 0, %entry ], [ %b.next, %written ]
  %some = icmp slt i64 %b, %count
  br i1 %some, label %buffer, label %done
buffer:
  %word = mul i64 %b, 2
  %word.address = add i64 %word, 1
  %word.lines = add i64 %word, 2
  %address.at = getelementptr i64, ptr %record, i64 %word.address
  %address = load ptr, ptr %address.at, align 8
  %lines.at = getelementptr i64, ptr %record, i64 %word.lines
  %lines = load i64, ptr %lines.at, align 8
  %first.of = mul i64 %lines, %begin
  %first = sdiv i64 %first.of, %parts
  %last.of = mul i64 %lines, %end
  %last = sdiv i64 %last.of, %parts
  br label %loop
loop:
  %l = phi i64 [ %first, %buffer ], [ %l.next, %line ]
  %more = icmp slt i64 %l, %last
  br i1 %more, label %line, label %written
line:
  %place = getelementptr [8 x i64], ptr %address, i64 %l
  %value = load volatile i64, ptr %place, align 8
  store volatile i64 %value, ptr %place, align 8
  %l.next = add i64 %l, 1
  br label %loop
written:
  %b.next = add i64 %b, 1
  br label %buffers
done:
  ret void
}
"""


@lru_cache(maxsize=1)
def written_code() -> LoadedObject:
    """The compiled module, once in a process."""
    ensure_pool()
    return LoadedObject(compile_object(TEXT, Target()))
