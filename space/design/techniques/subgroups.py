"""Reductions in subgroups: items of a device in the place of lanes, on devices whose subgroups have a given size.

    y[s] = sum_j e(s, j)   ->   p[s, v] = sum_k e(s, (k V + v) N + l)    by item l of N, in its registers,
                                q[s] = sum_v p[s, v]                     by each item, where V > 1,
                                y[s] = sum_l q[s]                        by all items, as one function

Items that are neighbours read neighbours, which a device loads together, and no item waits for another.  The steps are
those of `factored`, with the loop over ``l`` right inside of the outer loops, where lanes would be innermost.  Rows of
a work-group lie along ``y``, each a subgroup (`work_groups`); the first item takes the result out.
"""

from __future__ import annotations

from ..candidates import Candidates
from ..decision import Collector
from ..plan import Plan
from ..structure import Site, reductions_in_subgroups
from .technique import Phase, Technique, Verdicts


def _opens(site: Site, out: Collector) -> None:
    """Off or on, as the structure has it: a decision by whose name sketches are chosen or left out.

    In a chunk of rows, which one item has, it is off.
    """
    if reductions_in_subgroups(site.anchor, site.target) or (site.chunks and site.target.subgroup_sizes):
        on = site.structure.subgroup
        out.add("subgroup", 0, "subgroup", "vector", (on,), ("on" if on else "off",), {"subgroup": (int(on),)})


def _excludes(c: Candidates) -> Verdicts:
    if c.structure.subgroup:
        yield "subgroups of a work-group", c.items * c.lane <= c.target.max_work_group


def _bind(plan: Plan) -> None:
    """Give the parts to the items of a subgroup, and the way out to the first of them."""
    if plan.team:
        sch = plan.sch
        sch.bind(plan.team, "subgroup")
        around = sch.get_loops(plan.copy)
        inside = around[around.index(plan.outer[-1]) + 1 :]
        sch.bind(sch.add_unit_loop(inside[0] if inside else plan.copy), "threadIdx.x")


SUBGROUPS = Technique(("subgroup",), opens=_opens, excludes=_excludes, applies={Phase.LOAD: _bind})
