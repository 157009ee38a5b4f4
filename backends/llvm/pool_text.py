"""The thread pool as LLVM text; see pool.py for what it does, and docs/pool.md for the protocol.

Names in braces are filled in by `pool.pool_text`.
"""

from __future__ import annotations

NOW = r"""
declare i32 @clock_gettime(i32, ptr)

; Nanoseconds of the clock.
define internal i64 @now() nounwind {
  %time = alloca [2 x i64], align 8
  %e = call i32 @clock_gettime(i32 {CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %rest
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %nanoseconds
  ret i64 %ns
}
"""

TEXT = (
    NOW
    + r"""
@word = internal global [16 x i64] zeroinitializer, align 128
@busy = internal global [16 x i64] zeroinitializer, align 128
@slots = internal global [{MAX_THREADS} x [16 x i64]] zeroinitializer, align 128

; What the job is.  Written while the word has no units; who reads it may believe it after a
; compare-and-swap that takes a unit, which shows that the job was open all the while.
@task = internal global ptr null, align 128
@record = internal global ptr null
@total = internal global i64 0    ; iterations
@units = internal global i64 0    ; at most 65535
@unit = internal global i64 0     ; iterations of a unit
@share = internal global i64 0    ; a range is 1/share of the units that are left, and one unit at least
@helpers = internal global i64 0  ; workers with a lower number may take part
@workers = internal global i64 0  ; that were started

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @sched_yield()
{PAUSE_DECLARATION}

define void @pool_reset() nounwind {
entry:
  call void @reset_sleep()
  store atomic i64 0, ptr @word seq_cst, align 8
  store i64 0, ptr @workers
  store atomic i64 0, ptr @busy seq_cst, align 8
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
  %slot = getelementptr [16 x i64], ptr @slots, i64 %n
  store atomic i32 0, ptr %slot seq_cst, align 4
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, {MAX_THREADS}
  br i1 %more, label %loop, label %done
done:
  ret void
}

; Whether the word in %w has units for the worker %number; the caller is worker -1.
define internal i1 @is_open(i64 %w, i64 %number) alwaysinline nounwind {
  %left = and i64 %w, {UNITS}
  %some = icmp ne i64 %left, 0
  %helpers = load atomic i64, ptr @helpers monotonic, align 8
  %invited = icmp slt i64 %number, %helpers
  %open = and i1 %some, %invited
  ret i1 %open
}

; Take ranges and run them until there are none, or the turn is over that began at %turn; whether there was one.
; A worker (%inside 1) counts as inside from its first range on; the caller has no turn.
define internal i1 @take_ranges(i64 %number, i64 %inside, ptr %turn) nounwind {
entry:
  br label %look
look:
  %entering = phi i64 [ %inside, %entry ], [ %entering, %take ], [ 0, %run ], [ 0, %tired ]
  %w = load atomic i64, ptr @word acquire, align 8
  %open = call i1 @is_open(i64 %w, i64 %number)
  br i1 %open, label %take, label %closed
take:
  %field = and i64 %w, {UNITS}
  %left = lshr i64 %field, {UNITS_SHIFT}
  %task = load atomic ptr, ptr @task monotonic, align 8
  %record = load atomic ptr, ptr @record monotonic, align 8
  %total = load atomic i64, ptr @total monotonic, align 8
  %units = load atomic i64, ptr @units monotonic, align 8
  %unit = load atomic i64, ptr @unit monotonic, align 8
  %share = load atomic i64, ptr @share monotonic, align 8
  %part = udiv i64 %left, %share
  %count = call i64 @llvm.umax.i64(i64 %part, i64 1)
  %taken = shl i64 %count, {UNITS_SHIFT}
  %fewer = sub i64 %w, %taken
  %new = add i64 %fewer, %entering
  %pair = cmpxchg ptr @word, i64 %w, i64 %new acq_rel acquire
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  %first = sub i64 %units, %left
  %last = add i64 %first, %count
  %begin = mul i64 %first, %unit
  %reach = mul i64 %last, %unit
  %end = call i64 @llvm.smin.i64(i64 %reach, i64 %total)
  call void %task(ptr %record, i64 %begin, i64 %end)
  %caller = icmp eq i64 %inside, 0
  br i1 %caller, label %look, label %tired
tired:
  %over = call i1 @is_over(ptr %turn)
  br i1 %over, label %some, label %look
closed:
  %none = icmp eq i64 %entering, %inside
  br i1 %none, label %out, label %some
out:
  ret i1 false
some:
  ret i1 true
}

; Leave a job: its ranges are done.  The last worker wakes a caller that sleeps.
define internal void @leave() nounwind {
entry:
  %old = atomicrmw sub ptr @word, i64 1 acq_rel
  %low = and i64 %old, {ASLEEP_OR_INSIDE}
  %last = icmp eq i64 %low, {ASLEEP_AND_ONE}
  br i1 %last, label %ring, label %out
ring:
  call void @wake(ptr @word)
  br label %out
out:
  ret void
}

; Whether the turn is over that began at %turn.
define internal i1 @is_over(ptr %turn) nounwind {
  %now = call i64 @now()
  %began = load i64, ptr %turn
  %spent = sub i64 %now, %began
  %over = icmp sgt i64 %spent, {TURN_NS}
  ret i1 %over
}

; Look for a job until the time is over; between turns yield to whom the core is of use.
define internal i1 @look_for_job(i64 %number, ptr %turn) nounwind {
entry:
  %start = call i64 @now()
  %patience = add i64 %start, {IDLE_NS}
  br label %round
round:
  %until = phi i64 [ %patience, %entry ], [ %until1, %still ]
  %over = call i1 @is_over(ptr %turn)
  br i1 %over, label %yield, label %begin
yield:
  %y = call i32 @sched_yield()
  %rested = call i64 @now()
  store i64 %rested, ptr %turn
  br label %begin
begin:
  %before = call i64 @now()
  br label %poll
poll:
  %n = phi i64 [ 0, %begin ], [ %n1, %pause ]
  %w = load atomic i64, ptr @word acquire, align 8
  %open = call i1 @is_open(i64 %w, i64 %number)
  br i1 %open, label %found, label %pause
pause:
  {PAUSE}
  %n1 = add i64 %n, 1
  %again = icmp slt i64 %n1, {POLLS}
  br i1 %again, label %poll, label %read
read:
  %after = call i64 @now()
  %step = sub i64 %after, %before
  %away = icmp sgt i64 %step, {AWAY_NS}
  br i1 %away, label %back, label %still
back:
  store i64 %after, ptr %turn
  %brief = add i64 %after, {BRIEF_NS}
  br label %still
still:
  %until1 = phi i64 [ %until, %read ], [ %brief, %back ]
  %patient = icmp slt i64 %after, %until1
  br i1 %patient, label %round, label %none
none:
  ret i1 false
found:
  ret i1 true
}

define internal ptr @worker(ptr %slot) nounwind {
entry:
  %turn = alloca i64, align 8
  %began = call i64 @now()
  store i64 %began, ptr %turn
  %here = ptrtoint ptr %slot to i64
  %offset = sub i64 %here, ptrtoint (ptr @slots to i64)
  %number = udiv i64 %offset, 128
  br label %work
work:
  %some = call i1 @take_ranges(i64 %number, i64 1, ptr %turn)
  br i1 %some, label %done, label %idle
done:
  call void @leave()
  br label %idle
idle:
  call void @leave_callers_core()
  %found = call i1 @look_for_job(i64 %number, ptr %turn)
  br i1 %found, label %work, label %lie_down
lie_down:
  ; A caller publishes a job, then looks at the slot; a worker marks the slot, then looks for a job.
  store atomic i32 1, ptr %slot seq_cst, align 4
  %w = load atomic i64, ptr @word seq_cst, align 8
  %open = call i1 @is_open(i64 %w, i64 %number)
  br i1 %open, label %get_up, label %check
check:
  %mark = load atomic i32, ptr %slot acquire, align 4
  %marked = icmp eq i32 %mark, 1
  br i1 %marked, label %sleep, label %awake
sleep:
  call void @sleep_while(ptr %slot, i32 1)
  br label %check
get_up:
  store atomic i32 0, ptr %slot seq_cst, align 4
  br label %awake
awake:
  %fresh = call i64 @now()
  store i64 %fresh, ptr %turn
  br label %work
}

; Wake the workers below %count that sleep.
define internal void @wake_workers(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %slot = getelementptr [16 x i64], ptr @slots, i64 %n
  %mark = load atomic i32, ptr %slot seq_cst, align 4
  %asleep = icmp eq i32 %mark, 1
  br i1 %asleep, label %claim, label %next
claim:
  %old = atomicrmw xchg ptr %slot, i32 0 seq_cst
  %mine = icmp eq i32 %old, 1
  br i1 %mine, label %ring, label %next
ring:
  call void @wake(ptr %slot)
  br label %next
next:
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal i64 @ensure_workers(i64 %wanted) noinline nounwind {
entry:
  %thread = alloca i64, align 8
  %attributes = alloca [16 x i64], align 64
  %i = call i32 @pthread_attr_init(ptr %attributes)
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {STACK_BYTES})
  %d = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 {DETACHED})
  br label %loop
loop:
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %done, label %create
create:
  %slot = getelementptr [16 x i64], ptr @slots, i64 %have
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

; Wait until no worker is inside: for a while awake, then asleep.
define internal void @join() nounwind {
entry:
  %w0 = load atomic i64, ptr @word acquire, align 8
  %inside0 = and i64 %w0, {INSIDE}
  %alone0 = icmp eq i64 %inside0, 0
  br i1 %alone0, label %done, label %begin
begin:
  %start = call i64 @now()
  br label %poll
poll:
  %n = phi i64 [ 0, %begin ], [ %n1, %pause ], [ 0, %read ]
  %w1 = load atomic i64, ptr @word acquire, align 8
  %inside1 = and i64 %w1, {INSIDE}
  %alone1 = icmp eq i64 %inside1, 0
  br i1 %alone1, label %done, label %pause
pause:
  {PAUSE}
  %n1 = add i64 %n, 1
  %again = icmp slt i64 %n1, {POLLS}
  br i1 %again, label %poll, label %read
read:
  %after = call i64 @now()
  %spent = sub i64 %after, %start
  %patient = icmp slt i64 %spent, {JOIN_NS}
  br i1 %patient, label %poll, label %lie_down
lie_down:
  %old = atomicrmw or ptr @word, i64 {ASLEEP} acq_rel
  br label %check
check:
  %w2 = load atomic i64, ptr @word acquire, align 8
  %inside2 = and i64 %w2, {INSIDE}
  %alone2 = icmp eq i64 %inside2, 0
  br i1 %alone2, label %done, label %sleep
sleep:
  %low = trunc i64 %w2 to i32
  call void @sleep_while(ptr @word, i32 %low)
  br label %check
done:
  ret void
}

define void @{SYMBOL}(ptr %task, ptr %record, i64 %total, i64 %chunk, i64 %threads) nounwind {
entry:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %several, label %out
several:
  %useful = call i64 @llvm.smin.i64(i64 %total, i64 %threads)
  %used = call i64 @llvm.smin.i64(i64 %useful, i64 {MAX_THREADS})
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
  br i1 %enough, label %cut, label %grow
grow:
  %grown = call i64 @ensure_workers(i64 %wanted)
  br label %cut
cut:
  %there = phi i64 [ %have, %prepare ], [ %grown, %grow ]
  %helpers = call i64 @llvm.smin.i64(i64 %there, i64 %wanted)
  %nobody = icmp eq i64 %helpers, 0
  br i1 %nobody, label %give_up, label %describe
give_up:
  store atomic i64 0, ptr @busy release, align 8
  br label %serial
describe:
  %given = icmp sgt i64 %chunk, 0
  %most = add i64 %total, {MOST_UNITS}
  %ceiled = sub i64 %most, 1
  %least = udiv i64 %ceiled, {MOST_UNITS}
  %parts = mul i64 %used, {PARTS}
  %portion = udiv i64 %total, %parts
  %within = call i64 @llvm.smin.i64(i64 %chunk, i64 %total)
  %wished = select i1 %given, i64 %within, i64 %portion
  %unit = call i64 @llvm.umax.i64(i64 %wished, i64 %least)
  %up = add i64 %total, %unit
  %up1 = sub i64 %up, 1
  %units = udiv i64 %up1, %unit
  %guided = mul i64 %used, {SHARE}
  %share = select i1 %given, i64 65536, i64 %guided
  store atomic ptr %task, ptr @task monotonic, align 8
  store atomic ptr %record, ptr @record monotonic, align 8
  store atomic i64 %total, ptr @total monotonic, align 8
  store atomic i64 %units, ptr @units monotonic, align 8
  store atomic i64 %unit, ptr @unit monotonic, align 8
  store atomic i64 %share, ptr @share monotonic, align 8
  store atomic i64 %helpers, ptr @helpers monotonic, align 8
  %old = load atomic i64, ptr @word monotonic, align 8
  %job = lshr i64 %old, {JOB_SHIFT}
  %next = add i64 %job, 1
  %high = shl i64 %next, {JOB_SHIFT}
  %field = shl i64 %units, {UNITS_SHIFT}
  %new = or i64 %high, %field
  store atomic i64 %new, ptr @word seq_cst, align 8
  call void @note_callers_core()
  call void @wake_workers(i64 %helpers)
  %t = call i1 @take_ranges(i64 -1, i64 0, ptr null)
  call void @join()
  store atomic i64 0, ptr @busy release, align 8
  br label %out
out:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""
)
