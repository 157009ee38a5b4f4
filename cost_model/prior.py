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
LOAD_COST = {"broadcast": 0.65, "contiguous": 0.4, "strided": 0.95, "inlined": 0.8}  # cycles
BYTES_PER_CYCLE = {"l1": 64.0, "l2": 24.0, "l3": 4.5}  # what lies behind the named cache delivers
SPILL_COST = 0.8  # cycles per multiply-add when twice the registers would be needed
SCATTER_COST = 9.0  # elements stored one by one, against a vector of them
COPY_COST = {"plain": 0.7, "scattered": 6.0}  # cycles per copied element
CONFLICT_COST = 0.05  # powers of two for each that runs exceed what a cache holds side by side
SCALAR_COST = 0.7  # powers of two when the ragged edge of the vector axis is tested
ODD_COST = 0.6  # a point in a peeled tail of an odd number of lanes, against one in whole vectors
BRANCH_COST = 0.3  # powers of two per other ragged axis that is tested in the tile
TAIL_COST = 0.2  # share of a rounded tail's points that its own code costs
LONG_BODY, BODY_COST = 7.0, 0.15  # powers of two, beyond which each costs: instruction cache, and time to build


def estimate(columns: Columns, lanes: float) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain, (N,) or (1,).

    `lanes` is the width of a vector register in elements.
    """
    accumulators, body = np.exp2(columns["accumulators"]), np.exp2(columns["body"])
    trips = np.exp2(columns["reduce_trips"] + columns["steps"])
    chained = np.where(trips > 1, FMA_LATENCY, 1.0) / accumulators
    loading = sum(columns[f"loads:{kind}"] * cost for kind, cost in LOAD_COST.items())
    cycles = np.maximum(np.maximum(1 / PORTS, loading), chained) + 1.0 / body + SPILL_COST * columns["spill"]
    stores = np.where(columns["access:out"] == STRIDED, SCATTER_COST, 1.0) / trips
    length = BODY_COST * np.maximum(columns["body"] - LONG_BODY, 0)
    edges = TAIL_COST * columns["tails"] + BRANCH_COST * columns["branches"] + SCALAR_COST * columns["scalar"]
    compute = (cycles + stores) / (lanes * columns["lanes_used"]) * np.exp2(columns["waste"] + edges + length)
    compute = compute * (1.0 + ODD_COST * columns["odd"])
    for cache, rate in BYTES_PER_CYCLE.items():
        compute = compute + np.exp2(columns[f"traffic:{cache}"]) / rate
    compute = compute * np.exp2(CONFLICT_COST * columns["conflicts"])
    for kind, cost in COPY_COST.items():
        compute = compute + np.exp2(columns[f"copied:{kind}"]) * cost
    return log2(compute) + columns["idle"]
