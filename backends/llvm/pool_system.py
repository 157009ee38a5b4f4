"""What the thread pool asks of the operating system, as LLVM text: to sleep, to wake, and to leave a core.

``sleep_while(place, value)`` and ``wake(place)`` are Linux's futex, or its likeness on one mutex and one condition,
where a waker may have to wait for a sleeper that has lost its core with the mutex in its hands.  Cores are known on
Linux alone.
"""

from __future__ import annotations

FUTEX = r"""
declare i64 @syscall(i64, ...)

define internal void @reset_sleep() nounwind {
  ret void
}

; Sleep while the number at %place is %value; may return early.
define internal void @sleep_while(ptr %place, i32 %value) nounwind {
  %e = call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr %place, i32 128, i32 %value, ptr null)  ; FUTEX_WAIT_PRIVATE
  ret void
}

; Wake the thread that sleeps at %place.
define internal void @wake(ptr %place) nounwind {
  %e = call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr %place, i32 129, i32 1)  ; FUTEX_WAKE_PRIVATE
  ret void
}
"""

CONDITION = r"""
@mutex = internal global [16 x i64] zeroinitializer, align 64
@changed = internal global [16 x i64] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @reset_sleep() nounwind {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @changed, ptr null)
  ret void
}

; Sleep while the number at %place is %value; may return early.
define internal void @sleep_while(ptr %place, i32 %value) nounwind {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %now = load atomic i32, ptr %place seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %wait, label %out
wait:
  %w = call i32 @pthread_cond_wait(ptr @changed, ptr @mutex)
  br label %out
out:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; Wake the thread that sleeps at %place, and all others, which go to sleep again.
define internal void @wake(ptr %place) nounwind {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @changed)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""

CORES = r"""
@callers_core = internal global [32 x i32] zeroinitializer, align 128

declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @note_callers_core() nounwind {
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr @callers_core monotonic, align 4
  ret void
}

; A worker on the core of its caller can only take turns with it.  The system puts it there while the caller
; sleeps, or the other cores are taken, and leaves it there; so the worker does without this core for a moment.
define internal void @leave_callers_core() nounwind {
entry:
  %set = alloca [16 x i64], align 8
  %core = call i32 @sched_getcpu()
  %callers = load atomic i32, ptr @callers_core monotonic, align 4
  %same = icmp eq i32 %core, %callers
  %known = icmp ult i32 %core, 1024
  %here = and i1 %same, %known
  br i1 %here, label %ask, label %out
ask:
  %bytes = call i32 @sched_getaffinity(i32 0, i64 128, ptr %set)
  %got = icmp sge i32 %bytes, 0
  br i1 %got, label %exclude, label %out
exclude:
  %index = lshr i32 %core, 6
  %place = getelementptr i64, ptr %set, i32 %index
  %all = load i64, ptr %place
  %low = and i32 %core, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %fewer = and i64 %all, %others
  store i64 %fewer, ptr %place
  %moved = call i32 @sched_setaffinity(i32 0, i64 128, ptr %set)
  store i64 %all, ptr %place
  %restored = call i32 @sched_setaffinity(i32 0, i64 128, ptr %set)
  br label %out
out:
  ret void
}
"""

NO_CORES = r"""
define internal void @note_callers_core() nounwind {
  ret void
}

define internal void @leave_callers_core() nounwind {
  ret void
}
"""
