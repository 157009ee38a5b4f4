"""Traces of kernels of all sizes, read: the cases of `specialize`, each a schedule for some sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Case: TypeAlias = tuple[Mapping[str, Sequence[int]], list[Any]]
"""The least and the largest value of sizes by name, ``{"m": [1, 16]}``, and the instructions for them."""
SPECIALIZE = "specialize"


def cases_of(trace: Sequence[Any]) -> list[Case]:
    """The cases of a trace whose one instruction is `specialize`, in order; of another one all of it for all sizes."""
    if len(trace) != 1 or trace[0][0] != SPECIALIZE:
        return [({}, list(trace))]
    return [(ranges, steps) for ranges, steps in trace[0][1]["cases"]]


def steps_at(trace: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """The instructions that run with these sizes: those of the first case whose ranges hold."""
    return next(
        steps
        for ranges, steps in cases_of(trace)
        if all(low <= sizes[name] <= high for name, (low, high) in ranges.items())
    )
