"""The order of the loops outside the register tile, and of the reductions inside them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import factorial

from ..candidates import Candidates, Columns
from ..decision import Collector
from ..plan import Plan, one
from ..structure import Site
from .technique import Phase, Technique

MAX_ORDERS = 6
"""Orders of the outer loops."""


def _opens(site: Site, out: Collector) -> None:
    """Open the order of the outer loops, all or some of many; reductions in rotations of the canonical order."""
    _add(site, out, 0, "order", orders(site.wide))
    loops = [a for a in site.anchor.reduce if site.anchor.axes[a].extent > 1]
    _add(site, out, 1, "order:reduce", _rotations(loops))


def orders(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """All orders of some axes; of more than `MAX_ORDERS` so many, rotations first and then the reverse of these."""
    if factorial(len(axes)) <= MAX_ORDERS:
        return list(permutations(axes))
    rotations = _rotations(axes)
    return [*rotations, *(order[::-1] for order in rotations)][:MAX_ORDERS]


def _rotations(axes: Sequence[int]) -> list[tuple[int, ...]]:
    return [(*axes[k:], *axes[:k]) for k in range(len(axes))]


def _add(site: Site, out: Collector, at: int, name: str, found: Sequence[tuple[int, ...]]) -> None:
    if len(found) < 2:
        return
    axes = site.anchor.axes
    labels = [">".join(axes[a].name for a in order) for order in found]
    table = {f"order:{axes[a].name}": [order.index(a) for order in found] for a in sorted(found[0])}
    out.add("order", at, name, "order", found, labels, table)


def _order(plan: Plan) -> None:
    """``outer.. | reduce.. | rows.. | vectors | lanes``, where panels and items run inside the shared loops.

    The items of a subgroup, which are in the place of lanes, are right inside of the outer loops.
    """
    outer, vec = plan.outer_of, plan.structure.vec
    plan.single = [plan.loops[a] for a in plan.anchor.spatial if a not in plan.part.outer_axes and a != vec]
    place = plan.chosen.position
    inner = [a for a in outer if a not in place]
    ordered = [outer[a] for a in [*sorted((a for a in outer if a in place), key=lambda a: one(place[a])), *inner]]
    plan.shared = shared = min(one(plan.chosen.shared), len(ordered))
    panels, items = [plan.panel_loop] if plan.panel_loop else [], list(plan.items.values())
    inside = [*panels, *items] if one(plan.chosen.any_in_local_memory) else [*items, *panels]
    plan.outer = [*plan.single, *ordered[:shared], *inside, *ordered[shared:], *plan.block_loops]
    team = [plan.team] if plan.team else []
    plan.sch.reorder(
        *plan.outer, *team, *plan.reduce_outer, *plan.reduce_inner, *plan.rows, *plan.vectors, *plan.lanes
    )  # fmt: skip


def _shown(c: Candidates) -> Columns:
    """The places of loops as they are after rows have been fused."""
    found = c.columns("order")
    if c.pair is not None and "parallel" in c.part.tables:
        names = {f"order:{c.axes[a].name}": place.astype("float32") for a, place in c.position.items()}
        found |= {name: place for name, place in names.items() if name in found}
    return found


ORDERS = Technique(("order",), opens=_opens, applies={Phase.ORDER: _order}, shown=_shown)
