"""Decisions: numbered choices among fixed lists, and the numbers by which a population of them is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "layout", "pad_value", "boundary", "tile", "place", "order", "parallel", "vector", "work_group", "memory", "choice",
)  # fmt: skip

BRANCH, PEEL, OVERCOMPUTE, MASK = 0, 1, 2, 3
BOUNDARIES = ("branch", "peel", "overcompute", "mask")
INLINE, ROOT, INNER = 0, 1, 2
PLACES = ("inline", "root", "inner")
NO_PAD, UNDEF, NEUTRAL_PAD = 0, 1, 2
SELDOM = (7, 1)
"""Weights of no and yes where yes is possible and promises little."""


@dataclass(frozen=True)
class Decision:
    """One choice.  `values` are the alternatives, `labels` their names, `table` their numbers.

    `table` has a column of one number per alternative for each quantity that the
    decision sets, e.g. ``tile:s1:reg`` for the extent of axis s1 in the register tile.  `weights` say how many times
    as often an alternative is drawn as one of weight 1; without them all are drawn alike.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    values: tuple[Any, ...] = field(repr=False)
    table: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)
    weights: tuple[int, ...] = field(default=(), repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.labels)


def decision(
    name: str,
    kind: str,
    values: Sequence[Any],
    labels: Sequence[str],
    table: Mapping[str, Sequence[float]],
    weights: Sequence[int] = (),
) -> Decision:
    """A decision whose table has a number for every alternative."""
    assert kind in KINDS and len(values) == len(labels) and len(weights) in (0, len(values))
    columns = {key: tuple(float(v) for v in column) for key, column in table.items()}
    assert all(len(c) == len(values) for c in columns.values())
    return Decision(name, kind, tuple(labels), tuple(values), columns, tuple(weights))


class Collector:
    """Numbers decisions as they are added, each under the same prefix.

    `numbers` says of which axis or operand a decision is: ``numbers["tile"][2]`` is the position in `decisions` of
    the tile of axis 2.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.decisions: list[Decision] = []
        self.numbers: dict[str, dict[int, int]] = {}

    def add(
        self,
        what: str,
        at: int,
        name: str,
        kind: str,
        values: Sequence[Any],
        labels: Sequence[str],
        table: Mapping[str, Sequence[float]],
        weights: Sequence[int] = (),
    ) -> None:
        """Add the decision `what` about the axis or operand number `at` (0 where it is about the whole anchor)."""
        self.numbers.setdefault(what, {})[at] = len(self.decisions)
        self.decisions.append(decision(f"{self.prefix}/{name}", kind, values, labels, table, weights))
