"""A hand-written estimate of time from derived columns: what guides the search before anything is measured.

It is only meant to order candidates.  Cycles per multiply-add of the inner tile are the largest of issue,
loads and latency; bytes that a cache cannot hold are paid at the next one's bandwidth; wasted points, idle
threads, branches and spills multiply; copies are paid by the element.
"""

from __future__ import annotations

import numpy as np

from .geometry import STRIDED
from .tiling import Columns, Vector, log2

FMA_LATENCY, PORTS = 4.0, 2.0
BYTES_PER_CYCLE = {"l1": 24.0, "l2": 12.0, "l3": 4.0}  # what lies behind the named cache delivers
SPILL_COST = 3.0  # cycles per multiply-add when twice the registers would be needed
SCATTER_COST = 4.0  # elements stored one by one, against a vector of them
COPY_COST = 1.5  # cycles per copied element
BRANCH_COST = 0.7  # powers of two per ragged axis that is tested in the tile
TAIL_COST = 0.8  # share of a rounded tail's points that its own code costs


def estimate(columns: Columns, lanes: float) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain, (N,) or (1,).

    `lanes` is the width of a vector register in elements.
    """
    accumulators, body = np.exp2(columns["accumulators"]), np.exp2(columns["body"])
    trips = np.exp2(columns["reduce_trips"] + columns["steps"])
    chained = np.where(trips > 1, FMA_LATENCY, 1.0) / accumulators
    issue = np.maximum(1 / PORTS, columns["loads_per_fma"] / PORTS)
    cycles = np.maximum(issue, chained) + 1.0 / body + SPILL_COST * columns["spill"]
    stores = np.where(columns["access:out"] == STRIDED, SCATTER_COST, 1.0) / trips
    width = np.where(columns["scalar"] > 0, 1.0, lanes * columns["lanes_used"])
    compute = (cycles + stores) / width
    compute = compute * np.exp2(columns["waste"] + TAIL_COST * columns["tails"] + BRANCH_COST * columns["branches"])
    for cache, rate in BYTES_PER_CYCLE.items():
        compute = compute + np.exp2(columns[f"traffic:{cache}"]) / rate
    return log2(compute + COPY_COST * np.exp2(columns["copied"])) + columns["idle"]
