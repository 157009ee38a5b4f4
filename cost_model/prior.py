"""A hand-written estimate of time from derived columns: what guides the search before anything is measured.

It is only meant to order candidates.  Cycles per multiply-add of the inner tile are the largest of issue,
loads and latency; bytes that a cache cannot hold are paid at the next one's bandwidth; wasted points, idle
threads, branches and spills multiply.
"""

from __future__ import annotations

import numpy as np

from ..ir.target import Target
from .geometry import Columns, Vector, log2

FMA_LATENCY, FMA_PORTS, LOAD_PORTS = 4.0, 2.0, 2.0
BYTES_PER_CYCLE = {"l1": 32.0, "l2": 12.0, "l3": 4.0}  # what the cache behind the named one delivers
BRANCH_COST, SPILL_COST = 0.7, 6.0


def estimate(columns: Columns, target: Target) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain, (N,) or (1,)."""
    accumulators = np.exp2(columns["accumulators"])
    chained = columns["reduce_trips"] > 0
    issue = np.maximum(1 / FMA_PORTS, columns["loads_per_fma"] / LOAD_PORTS)
    latency = np.where(chained, FMA_LATENCY, 1.0) / accumulators
    overhead = 1.0 / np.exp2(np.maximum(columns["body"], 0))
    cycles = np.maximum(issue, latency) + overhead + SPILL_COST * columns["spill"]
    lanes = np.float32(max(1, target.vector_bits // 32)) * columns["lanes_used"]
    store = np.where(columns.get("access:out0", np.ones(1)) == 2.0, 8.0, 1.0) / np.exp2(columns["reduce_trips"])
    compute = cycles / lanes + store / accumulators / lanes
    memory = sum(np.exp2(columns[f"traffic:{cache}"]) / rate for cache, rate in BYTES_PER_CYCLE.items())
    log = log2(compute + np.asarray(memory, np.float32))
    log = log + columns["waste"] + columns["imbalance"] + columns["tails"] + BRANCH_COST * columns["branches"]
    return log.astype(np.float32)
