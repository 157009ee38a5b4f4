"""The estimate of time that a formula makes of derived columns: what guides the search before anything is measured.

It is only meant to order candidates.  Cycles per multiply-add of the inner tile are those of issue and loads, as a
root of the sum of their squares, since neither hides behind the other where both fill the processor, or latency where
that is more; bytes that a cache cannot hold are paid at the next one's bandwidth; wasted points, idle
threads, branches and spills multiply; copies are paid by the element, and each time that threads meet by all of
them.  How much each of these counts is in `weights`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..space.design.layouts import STRIDED
from .tiling import ONE, Vector, log2
from .weights import Weights

COLUMNS = (
    "accumulators", "body", "reduce_trips", "steps", "spill", "panels", "access:out", "lanes_used",
    "loads:broadcast", "loads:contiguous", "loads:shifted", "loads:paired", "loads:strided", "loads:inlined",
    "widened", "traffic:l1", "traffic:l2", "traffic:l3", "conflicts", "collisions", "copied:plain", "copied:squares",
    "copied:scattered", "copied:far", "waste", "tails", "branches", "inner_branches", "tested", "scalar", "odd",
    "lanewise", "idle", "meets", "emulated:image", "emulated:local", "computed:inlined", "computed:staged",
    "converted",
)  # fmt: skip
"""The columns that the estimate follows from; `products` as well, where a multiply-add is one of several products, and
`latency`, how many times as long it waits for the one before."""


def estimate(columns: Mapping[str, Vector], lanes: float, weights: Weights) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain, (N,) or (1,).

    `lanes` is the width of a vector register in elements.
    """
    w = weights
    trips = np.exp2(columns["reduce_trips"] + columns["steps"])
    # Panels are added up as vectors, and scattered when all of them are there.
    summed = columns["panels"] > 0
    scattered = np.where(columns["access:out"] == STRIDED, w.store_scattered, np.where(summed, 0.0, 1.0))
    stores = (np.where(summed, 1.0 + w.store_sum, 0.0) + scattered * np.exp2(-columns["panels"])) / trips
    compute = (_cycles(columns, trips, w) + stores) / (lanes * columns["lanes_used"] * columns.get("products", ONE))
    compute = compute * np.exp2(_octaves(columns, w))
    compute = compute * (1.0 + w.odd * columns["odd"] + w.lanewise * columns["lanewise"])
    for cache, rate in (("l1", w.l1_rate), ("l2", w.l2_rate), ("l3", w.l3_rate)):
        compute = compute + np.exp2(columns[f"traffic:{cache}"]) / rate
    compute = compute * np.exp2(w.octaves_conflict * (columns["conflicts"] + columns["collisions"]))
    copies = (
        ("plain", w.copy_plain), ("squares", w.copy_squares), ("scattered", w.copy_scattered), ("far", w.copy_far),
    )  # fmt: skip
    for kind, cost in copies:
        compute = compute + np.exp2(columns[f"copied:{kind}"]) * cost
    compute = compute + columns["computed:staged"] * w.multiply_add  # an operation takes as long as that
    imitated = columns["emulated:image"] * np.float32(w.octaves_image)
    imitated = imitated + columns["emulated:local"] * np.float32(w.octaves_local)
    meeting = w.meet * np.exp2(columns["meets"])
    return np.asarray(log2(compute * np.exp2(columns["idle"]) + meeting) + imitated, np.float32)


def _cycles(columns: Mapping[str, Vector], trips: Vector, w: Weights) -> Vector:
    """Cycles of a vector multiply-add in the inner tile."""
    waiting = w.chain * columns.get("latency", ONE)
    chained = np.where(trips > 1, waiting, 1.0) / np.exp2(columns["accumulators"])
    loads = (
        ("broadcast", w.load_broadcast), ("contiguous", w.load_contiguous), ("shifted", w.load_shifted),
        ("paired", w.load_paired), ("strided", w.load_strided), ("inlined", w.load_inlined),
    )  # fmt: skip
    loading = sum(columns[f"loads:{kind}"] * cost for kind, cost in loads)
    # Half a vector: where the machine splits whole ones in two, it takes half the time, but one waits as long for it.
    narrowed = columns["lanes_used"] ** -np.log2(w.narrow)
    multiplying = w.multiply_add * (1.0 + columns["computed:inlined"]) + w.widened * columns["widened"]
    multiplying = multiplying + w.converted * columns["converted"]
    cycles = np.maximum(np.hypot(multiplying, loading) * narrowed, chained) + w.turn / np.exp2(columns["body"])
    found: Vector = cycles + w.spill * (columns["spill"] > 0) + w.spill_more * columns["spill"]
    return found


def _octaves(columns: Mapping[str, Vector], w: Weights) -> Vector:
    """Powers of two that the shape of the code and its edges multiply the time with."""
    length = w.octaves_body * np.maximum(columns["body"] - w.long_body, 0)
    branches = columns["branches"] * w.octaves_branch + columns["inner_branches"] * w.octaves_inner_branch
    tests = branches + w.octaves_tested * columns["tested"]
    edges = w.octaves_tail * columns["tails"] + tests + w.octaves_scalar * columns["scalar"]
    found: Vector = columns["waste"] + edges + length
    return found
