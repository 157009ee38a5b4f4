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
from .rules import ScriptedSketch
from .sketch import Sketch
from .space import Space, fingerprint

Keep = Callable[[Decision, Any], bool]


def restricted(space: Space, keep: Keep) -> Space:
    """The sketches of `space` with the alternatives whose value `keep(decision, value)` accepts.

    A sketch in which some decision has none left is dropped.  The version of the result
    says what was left out, so that stored choices of one space are never read as those of
    another.
    """
    found = (_narrowed(sketch, keep) for sketch in space.sketches)
    sketches = tuple(sketch for sketch in found if all(len(decision) for decision in sketch.decisions))
    return replace(space, sketches=sketches, version=fingerprint(sketches))


def _narrowed(sketch: Sketch, keep: Keep) -> Sketch:
    """The sketch with what is kept of its decisions: those of its anchors, or the choices of a script."""
    if isinstance(sketch, ScriptedSketch):
        return replace(sketch, choices=tuple(_filtered(choice, keep) for choice in sketch.choices))
    parts = (replace(part, decisions=tuple(_filtered(d, keep) for d in part.decisions)) for part in sketch.parts)
    return replace(sketch, parts=tuple(parts))


def _filtered(decision: Decision, keep: Keep) -> Decision:
    kept = [number for number, value in enumerate(decision.values) if keep(decision, value)]
    return replace(
        decision,
        labels=tuple(decision.labels[k] for k in kept),
        values=tuple(decision.values[k] for k in kept),
        table={name: tuple(column[k] for k in kept) for name, column in decision.table.items()},
        weights=tuple(decision.weights[k] for k in kept) if decision.weights else (),
    )
