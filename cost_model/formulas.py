"""The formulas of the estimate: that of tiles, of CPUs, and that of devices that run work-items in step."""

from __future__ import annotations

from collections.abc import Mapping

from . import prior, warps
from .tiling import Vector
from .weights import AnyWeights, WarpWeights, Weights

COLUMNS: dict[type[AnyWeights], tuple[str, ...]] = {Weights: prior.COLUMNS, WarpWeights: warps.COLUMNS}
"""The columns that each formula reads, by its weights."""


def estimate(columns: Mapping[str, Vector], lanes: float, units: float, weights: AnyWeights) -> Vector:
    """Base-2 logarithm of the estimated cycles per point by the formula of the weights, (N,) or (1,).

    `lanes` is the width of a vector register in elements, `units` the number of compute units.
    """
    if isinstance(weights, WarpWeights):
        return warps.estimate(columns, units, weights)
    return prior.estimate(columns, lanes, weights)
