"""A design space with some alternatives left out: for ablations, and for users who know better.

::

    restricted(space, lambda decision, value: decision.kind != "boundary" or value == BRANCH)

keeps of every decision the alternatives that the rule lets through, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .decision import Decision
from .space import Space, fingerprint

Keep = Callable[[Decision, Any], bool]


def restricted(space: Space, keep: Keep) -> Space:
    """The sketches of `space` with the alternatives whose value `keep(decision, value)` accepts.

    A sketch in which some decision has none left is dropped.  The version of the result
    says what was left out, so that stored choices of one space are never read as those of
    another.
    """
    sketches = []
    for sketch in space.sketches:
        parts = tuple(
            replace(part, decisions=tuple(_filtered(decision, keep) for decision in part.decisions))
            for part in sketch.parts
        )
        if all(len(decision) for part in parts for decision in part.decisions):
            sketches.append(replace(sketch, parts=parts))
    return replace(space, sketches=tuple(sketches), version=fingerprint(sketches))


def _filtered(decision: Decision, keep: Keep) -> Decision:
    kept = [number for number, value in enumerate(decision.values) if keep(decision, value)]
    return replace(
        decision,
        labels=tuple(decision.labels[k] for k in kept),
        values=tuple(decision.values[k] for k in kept),
        table={name: tuple(column[k] for k in kept) for name, column in decision.table.items()},
        weights=tuple(decision.weights[k] for k in kept) if decision.weights else (),
    )
