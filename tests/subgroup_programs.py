"""Rows that work-items of subgroups reduce, and the device that runs them, for tests."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from stridesmith.backends.executable import numpy_dtype
from stridesmith.errors import DeviceMissing
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import SUBGROUPS, Target
from stridesmith.space.schedule import Schedule


@lru_cache(maxsize=1)
def subgroup_device() -> Target | None:
    """Intel's driver for CPUs, where it is installed and offers subgroups of 16."""
    try:
        from stridesmith.backends.opencl.devices import match_opencl

        target = match_opencl("intel")
    except (ImportError, DeviceMissing):
        return None
    return target if 16 in target.subgroup_sizes else None


needs_subgroups = pytest.mark.skipif(subgroup_device() is None, reason=f"no device of Intel's driver with {SUBGROUPS}")


def reducing(op: str = "+", dtype: str = "float32", rows: int = 5, columns: int = 100) -> PrimFunc:
    """The sum, the least or the greatest of each row."""
    call = "y[vi] + x[vi, vk]" if op == "+" else f"T.{op}(y[vi], x[vi, vk])"
    kind = numpy_dtype(dtype)
    if kind.kind == "f":
        start = {"+": "0", "max": "float('-inf')", "min": "float('inf')"}[op]
    else:
        start = str({"+": 0, "max": np.iinfo(kind).min, "min": np.iinfo(kind).max}[op])
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer(({rows}, {columns}), "{dtype}"), y: T.Buffer(({rows},), "{dtype}")):
    for i, k in T.grid({rows}, {columns}):
        with T.block("row"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.{dtype}({start})
            y[vi] = {call}
""")
    assert isinstance(func, PrimFunc)
    return func


def scheduled(func: PrimFunc, size: int = 16, rows: int = 1) -> Schedule:
    """Each row by the items of a subgroup, and so many rows by a work-group."""
    sch = Schedule(func)
    i, k = sch.get_loops("row")
    outer, items = sch.split(i, [None, rows]) if rows > 1 else (i, "")
    _, lane = sch.split(k, [None, size])
    part = sch.rfactor(lane, -1)
    out = sch.cache_write("row", 0, "local")
    sch.set_scope(part, 0, "local")
    *above, steps, lane = sch.get_loops(part)
    sch.reorder(*above, lane, steps)
    sch.reverse_compute_at("row", lane)
    sch.reverse_compute_at(out, above[-1])
    sch.decompose_reduction(part, steps)
    sch.decompose_reduction("row", lane)
    sch.bind(outer, "blockIdx.x")
    if items:
        sch.bind(items, "threadIdx.y")
    sch.bind(lane, "subgroup")
    sch.bind(sch.add_unit_loop(out), "threadIdx.x")
    return sch
