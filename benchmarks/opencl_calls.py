"""What a call of an empty kernel costs on the OpenCL devices of this machine, by its work-groups.

    python benchmarks/opencl_calls.py [--drivers pocl,intel]

``waited`` is the median of single calls, each waited for as a kernel's call is, ``in a row`` that of one among forty.
PoCL has a row for the calling thread, too, which takes programs of one work-group (`backends/opencl/serial_device.py`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import pyopencl as cl

from stridesmith.backends.opencl.devices import find_device
from stridesmith.backends.opencl.serial_device import twin
from stridesmith.backends.opencl.wait import wait

ROUNDS, CALLS = 40, 40
GROUPS = (1, 2, 16, 256, 1024)
SOURCE = "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void empty(__global float* a) {}"


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
        first = find_device(driver)
        for device in filter(None, (first, twin(first))):
            for groups in GROUPS:
                waited, row = costs(device, groups)
                print(f"| {driver}: {device.name} | {groups} | {waited:.1f} | {row:.1f} |")


if __name__ == "__main__":
    main()
