"""Ensembles of trees: what the leaves hold that a row comes to is added up, or compared.

Trees of few leaves are computed by masks (`leaf_masks`).  Down others every row walks::

    leaf[i, t]  =  first[leaf] + compare(x[i, feature[leaf]], split[leaf])     for each level, from the root of tree t
    y[i, c]     =  sum over t of value[leaf[i, t], c]

A leaf is its own first and its split NaN, so that a walk stays there; children stand side by side.  Numbers of nodes
and of features are kept inside of their tables, so that an access is in bounds whatever these hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, affine, literal
from .graph import OWN_DOMAIN
from .leaf_masks import BITS, SPREADING, Masks, masks_of, words_of
from .site import Builder, Built, Site

COMBINED = {"sum": (0.0, "{a} + {b}"), "min": (math.inf, "T.min({a}, {b})"), "max": (-math.inf, "T.max({a}, {b})")}
"""How the values of leaves become one: from what, and by what."""
MANY_ROWS = 8
"""Rows from which on vectors run along them."""
MOST_COMPARISONS = {True: 40, False: 3}
"""Comparisons by which masks take as long as a step of a walk, for many rows, and for few."""
COMPARISONS = ("{x} <= {s}", "{x} > {s}", "{x} == {s}", "({x} < {s} or {x} > {s})")
"""By which a walk goes to the second child; none holds for what is no number."""


def _trees(site: Site) -> Built:
    """``Trees(x, feature, split, first, roots, value, kind)``; a kind is the number of one of `COMPARISONS`."""
    kinds = [int(kind) for kind in site.attribute("kinds", [0])]
    tables = [site.constant(at) for at in range(1, 7 if len(kinds) > 1 else 6)]
    if all(table is not None for table in tables):
        feature, split, first, roots, value, *kind = (np.asarray(table) for table in tables)
        words, depth, is_wide = words_of(first, roots), int(site.attribute("depth", 1)), site.shape()[0] >= MANY_ROWS
        most = MOST_COMPARISONS[is_wide] * depth
        if words * BITS // 2 <= most:
            masks = masks_of((feature, split, first, roots, value), kind[0] if kind else None, kinds, words)
            if masks.comparisons <= most:
                return _by_masks(site, masks)
    return _walked(site, kinds)


def _walked(site: Site, kinds: Sequence[int]) -> Built:
    """Each row walks down each tree, a step of all of them after the other."""
    (rows, columns), (nodes, targets), (trees,) = site.shape(0), site.shape(5), site.shape(4)
    dtype = site.dtype(5)
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


def _by_masks(site: Site, masks: Masks) -> Built:
    """Every comparison of a tree rules out leaves, and the first one that is left is a row's (`leaf_masks`)."""
    (rows, columns), (trees, held, targets) = site.shape(0), masks.value.shape
    dtype, words = str(masks.value.dtype), masks.words
    program = Program("trees", plain(dtype))
    program.inputs([("x", (rows, columns))], site.dtype(0))
    given: list[int | str] = [0]
    for number, group in enumerate(masks.groups):
        shape = group.feature.shape
        program.inputs([(f"feature{number}", shape)], "int32")
        program.inputs([(f"split{number}", shape)], site.dtype(0))
        program.inputs([(f"bits{number}", shape)], "int32")
        given += [site.new_constant(table) for table in (group.feature, group.split, group.bits)]
    program.inputs([("value", masks.value.shape)], dtype)
    given.append(site.new_constant(masks.value))
    program.output("y", (rows, targets), dtype)
    turned = program.alloc("turned", (columns, rows), site.dtype(0))
    program.add("turn", [("f", columns, "S"), ("i", rows, "S")], f"{turned}[vf, vi] = x[vi, vf]")
    for number, group in enumerate(masks.groups):
        word = program.alloc(f"word{number}", (trees * words, rows), "int32")
        w, i, n = (f"v{axis}{number}" for axis in "win")
        feature = _inside(f"feature{number}[{w}, {n}]", columns)
        is_right = COMPARISONS[group.kind].format(x=f"{turned}[{feature}, {i}]", s=f"split{number}[{w}, {n}]")
        bits = f"T.Select({is_right}, bits{number}[{w}, {n}], T.int32(-1))"
        loops = [
            (f"w{number}", trees * words, "S"), (f"i{number}", rows, "S"), (f"n{number}", group.feature.shape[1], "R"),
        ]  # fmt: skip
        update = f"{word}[{w}, {i}] = T.bitwise_and({word}[{w}, {i}], {bits})"
        program.add(f"compare{number}", loops, update, f"{word}[{w}, {i}] = T.int32(-1)")
    leaf = program.alloc("leaf", (trees, rows), "int32")
    program.add("leaf", [("t", trees, "S"), ("j", rows, "S")], f"{leaf}[vt, vj] = {_lowest(masks)}")
    start, combine = COMBINED[str(site.attribute("how", "sum"))]
    value = f"value[vt0, {_inside(f'{leaf}[vt0, vj0]', held)}, vc0]"
    program.add(
        "values", [("j0", rows, "S"), ("c0", targets, "S"), ("t0", trees, "R")],
        f"y[vj0, vc0] = {combine.format(a='y[vj0, vc0]', b=value)}", f"y[vj0, vc0] = {literal(start, dtype)}",
    )  # fmt: skip
    return [site.operator(program.text(), given)]


def _lowest(masks: Masks) -> str:
    """The expression of the index of a leaf's value: the leaf is the lowest bit of a tree's words."""
    found = []
    for word in range(masks.words):
        parts = [f"word{number}[{affine('vt', masks.words, shift=-word)}, vj]" for number in range(len(masks.groups))]
        found.append(reduce(lambda a, b: f"T.bitwise_and({a}, {b})", parts))
    chosen, first = found[-1], f"T.int32({BITS * (masks.words - 1)})"
    for word in reversed(range(masks.words - 1)):
        has_leaf = f"{found[word]} != T.int32(0)"
        chosen = f"T.Select({has_leaf}, {found[word]}, {chosen})"
        first = f"T.Select({has_leaf}, T.int32({BITS * word}), {first})"
    bit = f"T.bitwise_and({chosen}, T.int32(0) - {chosen})"
    half = f"{bit} * T.int32({SPREADING}) // T.int32({1 << 27}) + T.int32(16)"
    return half if masks.words == 1 else f"{half} + {first}"


def _inside(place: str, extent: int) -> str:
    return f"T.min(T.max({place}, T.int32(0)), T.int32({extent - 1}))"


BUILDERS: Mapping[tuple[str, str], Builder] = {(OWN_DOMAIN, "Trees"): _trees}
