"""The kernels of a network of free sizes, searched one program after the other: `search.tuning.ranged` for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import NoSchedule
from ...ir.size_ranges import ranges_of
from ...search.tuning.ranged import tune
from ...search.tuning.settings import settings
from .kernels import RangedTask, tasks_of
from .network import RangedNetwork

if TYPE_CHECKING:
    from ...ir.target import Target

LEAST = 4.0
"""Seconds below which a search for one program finds nothing, a choice."""


def tune_network(
    network: RangedNetwork,
    target: Target,
    seconds: float,
    db: str | None = None,
    seed: int = 0,
    emit: Callable[[dict[str, Any]], None] | None = None,
) -> int:
    """Search for a kernel of each program for about so many seconds in all, the most work first; how many were found.

    Seconds go to programs by their operations in the middle of the ranges, and how often they are called.
    """
    end = time.monotonic() + seconds
    weighted = sorted(((_work(item), item) for item in tasks_of(network, target)), key=lambda pair: -pair[0])
    left, found = sum(work for work, _ in weighted), 0
    for work, item in weighted:
        share = (end - time.monotonic()) * work / max(left, 1.0)
        left -= work
        if end - time.monotonic() < LEAST:
            break
        asked = settings(
            script=item.task.script, interface=dict(item.task.interface), target=target, db=db, seed=seed,
            seconds=max(share, LEAST),
        )  # fmt: skip
        try:
            tune(asked, emit)
            found += 1
        except NoSchedule:
            continue
    return found


def _work(item: RangedTask) -> float:
    """Operations of all calls of a program in the middle of its ranges, of one without any its elements."""
    func = item.task.work.func
    if not func.stated:
        work = item.task.work
    else:
        middle = {v.name: (r.low + r.high) // 2 // r.step * r.step for v, r in ranges_of(func).items()}
        work = item.task.work.at(middle)
    elements = sum(buffer.size for buffer in work.func.buffers)
    return float(max(work.flops, elements)) * len(item.operators)
