"""Ensembles of trees: every row walks down every tree, and what its leaves hold is added up, or compared.

::

    leaf[i, t]  =  first[leaf] + compare(x[i, feature[leaf]], split[leaf])     for each level, from the root of tree t
    y[i, c]     =  sum over t of value[leaf[i, t], c]

A leaf is its own first and its split NaN, so that a walk stays there; children stand side by side.  Numbers of nodes
and of features are kept inside of their tables, so that an access is in bounds whatever these hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, literal
from .graph import OWN_DOMAIN
from .site import Builder, Built, Site

COMBINED = {"sum": (0.0, "{a} + {b}"), "min": (math.inf, "T.min({a}, {b})"), "max": (-math.inf, "T.max({a}, {b})")}
"""How the values of leaves become one: from what, and by what."""
COMPARISONS = ("{x} <= {s}", "{x} > {s}", "{x} == {s}", "({x} < {s} or {x} > {s})")
"""By which a walk goes to the second child; none holds for what is no number."""


def _trees(site: Site) -> Built:
    """``Trees(x, feature, split, first, roots, value, kind)``; a kind is the number of one of `COMPARISONS`."""
    (rows, columns), (nodes, targets), (trees,) = site.shape(0), site.shape(5), site.shape(4)
    kinds, dtype = [int(kind) for kind in site.attribute("kinds", [0])], site.dtype(5)
    program = Program("trees", plain(dtype))
    program.inputs([("x", (rows, columns))], site.dtype(0))
    program.inputs([("feature", (nodes,))], "int32")
    program.inputs([("split", (nodes,))], site.dtype(2))
    program.inputs([("first", (nodes,)), ("roots", (trees,))], "int32")
    program.inputs([("value", (nodes, targets))], dtype)
    if len(kinds) > 1:
        program.inputs([("kind", (nodes,))], "int32")
    program.output("y", (rows, targets), dtype)
    leaf = program.alloc("leaf", (rows, trees), "int32")
    at = _inside(f"{leaf}[vi, vt]", nodes)
    x, split = f"x[vi, {_inside(f'feature[{at}]', columns)}]", f"split[{at}]"
    is_second = COMPARISONS[kinds[-1]].format(x=x, s=split)
    for kind in reversed(kinds[:-1]):
        is_second = f"T.Select(kind[{at}] == T.int32({kind}), {COMPARISONS[kind].format(x=x, s=split)}, {is_second})"
    step = f"{leaf}[vi, vt] = first[{at}] + T.Select({is_second}, T.int32(1), T.int32(0))"
    loops = [("i", rows, "S"), ("t", trees, "S"), ("d", int(site.attribute("depth", 1)), "R")]
    program.add("walk", loops, step, f"{leaf}[vi, vt] = roots[vt]")
    start, combine = COMBINED[str(site.attribute("how", "sum"))]
    value = f"value[{_inside(f'{leaf}[vi0, vt0]', nodes)}, vc0]"
    program.add(
        "values", [("i0", rows, "S"), ("c0", targets, "S"), ("t0", trees, "R")],
        f"y[vi0, vc0] = {combine.format(a='y[vi0, vc0]', b=value)}", f"y[vi0, vc0] = {literal(start, dtype)}",
    )  # fmt: skip
    return [site.operator(program.text(), range(7 if len(kinds) > 1 else 6))]


def _inside(place: str, extent: int) -> str:
    return f"T.min(T.max({place}, T.int32(0)), T.int32({extent - 1}))"


BUILDERS: Mapping[tuple[str, str], Builder] = {(OWN_DOMAIN, "Trees"): _trees}
