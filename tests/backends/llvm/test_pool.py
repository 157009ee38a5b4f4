"""The thread pool: every iteration once, on as many threads as asked, from any caller, cheaply."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from stridesmith.backends.llvm import pool

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def ranges(total, threads, chunk=0):
    """The ranges that a job was cut into, and the threads that ran them."""
    seen = []
    task = TASK(lambda record, begin, end: seen.append((begin, end, threading.get_ident())))
    pool.run_parallel(address(task), 0, total, threads, chunk)
    return sorted(seen)


@pytest.mark.parametrize("total", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_ranges_partition_the_iterations(total, threads):
    """Every iteration is in exactly one range, whatever the number of threads."""
    parts = ranges(total, threads)
    assert [p[0] for p in parts] == [0, *(p[1] for p in parts[:-1])] and parts[-1][1] == total
    assert len({p[2] for p in parts}) <= threads


def test_nothing_to_do():
    """No iterations, no call."""
    assert ranges(0, 4) == [] and ranges(-3, 4) == []


def test_one_thread_runs_on_the_caller_in_one_range():
    """With one thread there is no hand-over."""
    assert ranges(1000, 1) == [(0, 1000, threading.get_ident())]


def test_a_chunk_sets_the_size_of_ranges():
    """All ranges but the last have the size that was asked for."""
    assert [b - a for a, b, _ in ranges(23, 2, 5)] == [5, 5, 5, 5, 3]


def test_several_threads_work_at_once():
    """Four iterations that wait for each other finish only if four threads run them."""
    barrier = threading.Barrier(4, timeout=20)
    waited = []
    task = TASK(lambda record, begin, end: waited.append(barrier.wait()))
    pool.run_parallel(address(task), 0, 4, 4, 1)
    assert sorted(waited) == [0, 1, 2, 3]


def test_nested_and_concurrent_calls_finish():
    """A call inside of a task, and calls from several threads at once, each run all of their iterations."""
    counts = np.zeros(8, np.int64)

    def inner(record, begin, end):
        counts[record - 1] += end - begin

    inner_task = TASK(inner)

    def outer(record, begin, end):
        for _ in range(begin, end):
            pool.run_parallel(address(inner_task), record, 10, 2, 1)

    outer_task = TASK(outer)
    callers = [threading.Thread(target=pool.run_parallel, args=(address(outer_task), n + 1, 5, 3)) for n in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert counts.tolist() == [50] * 8


def test_sleeping_workers_wake_up():
    """After a pause long enough for the workers to sleep, the next job finds them; sizes may change between jobs."""
    for threads in (2, 4, 3, 2, 4):
        time.sleep(0.02)
        barrier = threading.Barrier(threads, timeout=20)
        task = TASK(lambda record, begin, end, b=barrier: b.wait() and None)
        pool.run_parallel(address(task), 0, threads, threads, 1)


def test_dispatch_is_cheap():
    """A job with nothing in it costs microseconds where the cores are free; the bound leaves room for noise."""
    if os.getloadavg()[0] > 0.6 * (os.cpu_count() or 1):
        pytest.skip("threads wait for cores here, not for each other")
    pool.ensure_pool()
    nothing = address(ctypes.CDLL(None).getpid)  # ignores its arguments
    best = np.inf
    for _ in range(200):
        start = time.perf_counter_ns()
        for _ in range(20):
            pool.run_parallel(nothing, 0, 2, 2, 1)
        best = min(best, (time.perf_counter_ns() - start) / 20)
    assert best < 100_000


def test_idle_threads_cost_nothing():
    """A short while after the last job the workers use no processor time."""
    ranges(64, 4)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.01


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a way to give all threads one core")
def test_the_caller_waits_for_no_worker():
    """Where the workers have no core but the caller's, calls take about as long as on one thread."""
    script = """if True:
        import os, statistics, time
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import ctypes
        from pool_stress import Tasks
        from stridesmith.backends.llvm import pool
        import numpy as np
        tasks, counts = Tasks(), np.zeros(16, np.int64)
        record = np.array([counts.ctypes.data, 5000], np.int64)
        def median(threads):
            times = []
            for _ in range(300):
                start = time.perf_counter()
                pool.run_parallel(tasks.count, record.ctypes.data, 16, threads)
                times.append(time.perf_counter() - start)
            return statistics.median(times)
        one, four = median(1), median(4)
        assert four < 3 * one + 200e-6, (one, four)
    """
    assert python(script) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="stops processes by signals")
def test_the_pool_of_other_systems_sleeps_and_wakes_as_well():
    """Without futexes threads sleep on a mutex and a condition; every iteration runs once there, too."""
    script = """if True:
        import platform
        from stridesmith.backends.llvm import pool
        text = pool.pool_text("Darwin", platform.machine())
        assert "syscall" not in text and "pthread_cond_wait" in text
        pool.pool_text = lambda: text
        from pool_stress import stress
        stress(5000, 3, seed=1)
    """
    assert python(script) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="stops processes by signals")
@pytest.mark.parametrize(
    "wrong",
    [
        {"%last = add i64 %first, %count": "%last = add i64 %first, 1"},
        {"call void @join()": "", "add i64 %fewer, %entering": "add i64 %fewer, 0", "call void @leave()": ""},
    ],
    ids=["ranges cut short", "no join"],
)
def test_random_calls_find_a_pool_that_is_wrong(wrong):
    """Where ranges are cut short, or the caller does not wait for workers, some counter is not one."""
    script = f"""if True:
        from stridesmith.backends.llvm import pool
        text = pool.pool_text()
        for old, new in {wrong!r}.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        pool.pool_text = lambda: text
        from pool_stress import stress
        for seed in range(30):
            stress(20_000, 1, seed)
    """
    status, complaint = python(script)
    assert status != 0 and "not once" in complaint


def python(script):
    """Exit status and complaints of a Python that finds what the tests share."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(command, timeout=60, capture_output=True, text=True, env=environment)
    return result.returncode, result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_pool_of_its_own():
    """A child that was forked after the pool had started can use it and end; so can a process at its exit."""
    script = """if True:
        import ctypes, os, sys, threading
        from stridesmith.backends.llvm import pool
        task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        def job():
            barrier = threading.Barrier(2, timeout=20)
            f = task(lambda record, begin, end: barrier.wait() and None)
            pool.run_parallel(ctypes.cast(f, ctypes.c_void_p).value, 0, 2, 2, 1)
        job()
        child = os.fork()
        job()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert python(script) == (0, "")
