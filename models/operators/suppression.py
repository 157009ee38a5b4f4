"""Boxes that no better one overlaps too much (non-maximum suppression), one pass for each box that is chosen.

::

    for k:  best[b, c] = max over s of left[b, c, s];    y[b, c, k] = the first s where it stands, -1 for none
            left[b, c, s] = -inf where overlap(s, best) > limit, or s is the best

As often as boxes may be chosen at most, for all images b and classes c at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import indent

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, block, literal
from .graph import OWN_DOMAIN
from .site import Builder, Built, Site


def _suppress(site: Site) -> Built:
    """``Suppress(boxes, scores)`` gives ``[image, class, k]``: the k-th box that is chosen, -1 for none."""
    (images, boxes, _), (_, classes, _), dtype = site.shape(), site.shape(1), site.dtype()
    count, low = site.result().shape[2], literal(-math.inf, site.dtype(1))
    program = Program("suppress", plain(dtype))
    program.inputs([("boxes", (images, boxes, 4))])
    program.inputs([("scores", (images, classes, boxes))], site.dtype(1))
    program.output("y", (images, classes, count), "int64")
    for dim in range(2):  # each in an array of its own, which all passes read in vectors
        for name, end in zip(("low", "high"), _ends(site, dim), strict=True):
            program.alloc(f"{name}{dim}", (images, boxes))
            program.add(
                f"find_{name}{dim}",
                [(f"i{name}{dim}", images, "S"), (f"s{name}{dim}", boxes, "S")],
                f"{name}{dim}[vi{name}{dim}, vs{name}{dim}] = {end.format(i=f'vi{name}{dim}', s=f'vs{name}{dim}')}",
            )
    program.alloc("left", (images, classes, boxes), site.dtype(1))
    score = "scores[vb, vc, vs]"
    kept = f"T.Select({score} > {literal(site.attribute('score', -math.inf), site.dtype(1))}, {score}, {low})"
    program.add("start", _axes("", images, classes, ("s", boxes, "S")), f"left[vb, vc, vs] = {kept}")
    here = f"T.Select(left[vb1, vc1, vs1] == best[vb1, vc1], T.Cast('int32', vs1), T.int32({boxes - 1}))"
    found = f"T.Select(best[vb2, vc2] > {low}, T.Cast('int64', place[vb2, vc2]), T.int64(-1))"
    step = [
        block("best", _axes("0", images, classes, ("s0", boxes, "R")),
              "best[vb0, vc0] = T.max(best[vb0, vc0], left[vb0, vc0, vs0])", f"best[vb0, vc0] = {low}"),
        block("place", _axes("1", images, classes, ("s1", boxes, "R")),
              f"place[vb1, vc1] = T.min(place[vb1, vc1], {here})", f"place[vb1, vc1] = T.int32({boxes - 1})"),
        block("store", _axes("2", images, classes), f"y[vb2, vc2, vk] = {found}"),
        block("drop", _axes("3", images, classes, ("s3", boxes, "S")),
              f"left[vb3, vc3, vs3] = T.Select({_overlaps(site)}, {low}, left[vb3, vc3, vs3])"),
    ]  # fmt: skip
    head = [
        f"    for k in T.grid({count}):",
        '        with T.block("pass"):',
        f"            vk = T.axis.opaque({count}, k)",
        f"            best = T.alloc_buffer(({images}, {classes}), {site.dtype(1)!r})",
        f"            place = T.alloc_buffer(({images}, {classes}), 'int32')",
    ]
    program.nests.append("\n".join([*head, *(indent(text, " " * 8) for text in step)]))
    return [site.operator(program.text(), [0, 1])]


def _axes(suffix: str, images: int, classes: int, *more: tuple[str, int, str]) -> list[tuple[str, int, str]]:
    return [(f"b{suffix}", images, "S"), (f"c{suffix}", classes, "S"), *more]


def _ends(site: Site, dim: int) -> tuple[str, str]:
    """Where box `{s}` of image `{i}` begins and ends along a dimension."""
    first, second = f"boxes[{{i}}, {{s}}, {dim}]", f"boxes[{{i}}, {{s}}, {dim + 2}]"
    if bool(site.attribute("center", 0)):
        half = f"{second} / {literal(2, site.dtype())}"
        return f"{first} - {half}", f"{first} + {half}"
    return f"T.min({first}, {second})", f"T.max({first}, {second})"


def _overlaps(site: Site) -> str:
    """Whether a box is the best one, or overlaps it by a larger share than the limit of what both cover."""
    dtype, boxes = site.dtype(), site.shape()[1]
    best = f"T.min(T.max(place[vb3, vc3], T.int32(0)), T.int32({boxes - 1}))"
    zero, both, own, other = literal(0, dtype), [], [], []
    for dim in range(2):
        (low, high), (least, most) = (
            (f"low{dim}[vb3, {box}]", f"high{dim}[vb3, {box}]") for box in ("vs3", best)
        )  # fmt: skip
        both.append(f"T.max(T.min({high}, {most}) - T.max({low}, {least}), {zero})")
        own.append(f"({high} - {low})")
        other.append(f"({most} - {least})")
    shared = f"{both[0]} * {both[1]}"
    union = f"({own[0]} * {own[1]} + {other[0]} * {other[1]} - {shared})"
    limit = literal(site.attribute("overlap", 0.0), dtype)
    return f"vs3 == {best} or ({shared} > {zero} and {shared} / {union} > {limit})"


BUILDERS: Mapping[tuple[str, str], Builder] = {(OWN_DOMAIN, "Suppress"): _suppress}
