"""What a call of an empty kernel costs on the OpenCL devices of this machine, by its work-groups.

    python benchmarks/opencl_calls.py [--drivers pocl,intel]

``waited`` is the median of single calls, each waited for as a kernel's call is, ``in a row`` that of one among forty.
A device of the CPU has rows for stridesmith's threads, too, on which kernels run (`backends/opencl/pool_launches.py`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyopencl as cl

from stridesmith.backends.host import host_cpu
from stridesmith.backends.launch import Launch
from stridesmith.backends.opencl.calling_thread import device_in_caller
from stridesmith.backends.opencl.devices import find_device
from stridesmith.backends.opencl.pool_launches import PoolLaunches, Shared, shared_memory
from stridesmith.backends.opencl.wait import wait

ROUNDS, CALLS = 40, 40
GROUPS = (1, 2, 16, 256, 1024)
SOURCE = "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void empty(__global float* a) {}"


def costs_on_pool(device: Any, groups: int) -> tuple[float, float]:
    """The same as `costs` of a kernel whose work-groups the threads of the pool share."""
    context = cl.Context([device])
    launch = Launch("empty", (groups, 1, 1), (1, 1, 1), (0,))
    shared = Shared(cl.Program(context, SOURCE).build(), launch, [shared_memory(context, 4096)])
    launches, waited, rows = PoolLaunches(context, host_cpu().threads, [shared]), [], []
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            start = time.perf_counter()
            launches.run()
            waited.append(time.perf_counter() - start)
        start = time.perf_counter()
        launches.run(calls=CALLS)
        rows.append((time.perf_counter() - start) / CALLS)
    return statistics.median(waited) * 1e6, statistics.median(rows) * 1e6


def costs(device: Any, groups: int) -> tuple[float, float]:
    """Microseconds of a call that is waited for, and of one of many in a row."""
    context = cl.Context([device])
    queue, kernel = cl.CommandQueue(context), cl.Kernel(cl.Program(context, SOURCE).build(), "empty")
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
    kernel.set_args(memory)
    waited, rows = [], []
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            start = time.perf_counter()
            wait(queue, cl.enqueue_nd_range_kernel(queue, kernel, (groups,), (1,)), device.platform.name)
            waited.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(CALLS):
            cl.enqueue_nd_range_kernel(queue, kernel, (groups,), (1,))
        queue.finish()
        rows.append((time.perf_counter() - start) / CALLS)
    return statistics.median(waited) * 1e6, statistics.median(rows) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drivers", default="pocl")
    drivers = parser.parse_args().drivers.split(",")
    print("| device | work-groups | waited, us | in a row, us |\n|---|---:|---:|---:|")
    for driver in drivers:
        device = find_device(driver)
        kinds: list[tuple[str, Callable[[int], tuple[float, float]]]] = [(device.name, partial(costs, device))]
        if (calling := device_in_caller(device)) is not None:
            kinds.append(("stridesmith's threads", partial(costs_on_pool, calling)))
        for name, measured in kinds:
            for groups in GROUPS:
                waited, row = measured(groups)
                print(f"| {driver}: {name} | {groups} | {waited:.1f} | {row:.1f} |")


if __name__ == "__main__":
    main()
