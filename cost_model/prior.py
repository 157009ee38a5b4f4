"""A hand-written estimate of time from derived columns: what guides the search before anything is measured.

It is only meant to order candidates.  Cycles per multiply-add of the inner tile are the largest of issue,
loads and latency; bytes that a cache cannot hold are paid at the next one's bandwidth; wasted points, idle
threads, branches and spills multiply; copies are paid by the element.
"""

from __future__ import annotations

import numpy as np

from ..space.design.layouts import STRIDED
from .tiling import Columns, Vector, log2

FMA_LATENCY, PORTS = 3.5, 2.0
LOAD_COST = {  # cycles
    "broadcast": 0.52, "contiguous": 0.81, "shifted": 0.77, "paired": 1.7, "strided": 1.2, "inlined": 1.1,
}  # fmt: skip
BYTES_PER_CYCLE = {"l1": 207.0, "l2": 30.0, "l3": 5.1}  # what lies behind the named cache delivers
TURN_COST = 1.5  # cycles for each turn of the unrolled body
SPILL_COST = (0.2, 0.28)  # cycles per multiply-add: where registers do not suffice, and more for twice as many
SCATTER_COST = 5.0  # elements stored one by one, against a vector of them
SUM_COST = 1.8  # more for a store that adds a panel to the result
COPY_COST = {"plain": 0.72, "scattered": 3.0, "far": 0.7}  # cycles per copied element; far ones cost more
CONFLICT_COST = 0.072  # powers of two for each that runs exceed what a cache holds side by side
SCALAR_COST = 0.48  # powers of two when the ragged edge of the vector axis is tested
ODD_COST = 2.5  # more for a point that peeling leaves to a part of a vector
LANE_COST = 0.36  # more for a point of a vector that a test cuts, which is computed lane by lane
BRANCH_COST = {"branches": 0.28, "inner_branches": 0.14}  # powers of two per other ragged axis tested in the tile
TESTED_COST = 0.29  # powers of two where lanes of inlined values are chosen by a test
TAIL_COST = 0.16  # share of a rounded tail's points that its own code costs
EMULATED_COST = {"image": 2.4, "local": 0.4}  # powers of two per input in memory that a CPU device only imitates
LONG_BODY, BODY_COST = 7.5, 0.18  # powers of two, beyond which each costs: instruction cache, and time to build


def estimate(columns: Columns, lanes: float) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain, (N,) or (1,).

    `lanes` is the width of a vector register in elements.
    """
    accumulators, body = np.exp2(columns["accumulators"]), np.exp2(columns["body"])
    trips = np.exp2(columns["reduce_trips"] + columns["steps"])
    chained = np.where(trips > 1, FMA_LATENCY, 1.0) / accumulators
    loading = sum(columns[f"loads:{kind}"] * cost for kind, cost in LOAD_COST.items())
    cycles = np.maximum(np.maximum(1 / PORTS, loading), chained) + TURN_COST / body
    cycles = cycles + SPILL_COST[0] * (columns["spill"] > 0) + SPILL_COST[1] * columns["spill"]
    # Panels are added up as vectors, and scattered when all of them are there.
    summed = columns["panels"] > 0
    scattered = np.where(columns["access:out"] == STRIDED, SCATTER_COST, np.where(summed, 0.0, 1.0))
    stores = (np.where(summed, 1.0 + SUM_COST, 0.0) + scattered * np.exp2(-columns["panels"])) / trips
    length = BODY_COST * np.maximum(columns["body"] - LONG_BODY, 0)
    tests = sum(columns[kind] * cost for kind, cost in BRANCH_COST.items()) + TESTED_COST * columns["tested"]
    edges = TAIL_COST * columns["tails"] + tests + SCALAR_COST * columns["scalar"]
    compute = (cycles + stores) / (lanes * columns["lanes_used"]) * np.exp2(columns["waste"] + edges + length)
    compute = compute * (1.0 + ODD_COST * columns["odd"] + LANE_COST * columns["lanewise"])
    for cache, rate in BYTES_PER_CYCLE.items():
        compute = compute + np.exp2(columns[f"traffic:{cache}"]) / rate
    compute = compute * np.exp2(CONFLICT_COST * (columns["conflicts"] + columns["collisions"]))
    for kind, cost in COPY_COST.items():
        compute = compute + np.exp2(columns[f"copied:{kind}"]) * cost
    imitation = sum(columns[f"emulated:{kind}"] * np.float32(cost) for kind, cost in EMULATED_COST.items())
    return np.asarray(log2(compute) + columns["idle"] + imitation, np.float32)
