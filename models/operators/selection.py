"""Operators that choose elements by their size: TopK and Hardmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import indent

from ...ir.dtypes import is_float, is_int
from ...space.workloads.precision import plain
from ...space.workloads.text import Program, block, element, literal
from ..network import Operator
from .normalisations import row_of
from .site import Builder, Built, Site, letters, program

MOST_COMPARED = 1 << 26
"""Comparisons that K passes over all elements may take: more are left to an implementation that sorts."""


def _top_k(site: Site) -> Built:
    """The K largest or smallest elements along a dimension, and where they stand; of equal ones the first first.

    One pass finds the best of those that come after the one that the pass before has found, and where it is.
    """
    shape, dtype = site.shape(), site.dtype()
    if not (is_float(dtype) or is_int(dtype)) or not shape:
        return None
    axis = site.axis(default=-1)
    extent, count = shape[axis], site.result().shape[axis]
    if math.prod(shape) * count > MOST_COMPARED or count > extent:
        return None
    is_largest = bool(site.attribute("largest", 1))
    lowest, highest = (literal(sign * math.inf, dtype) for sign in ((-1, 1) if is_largest else (1, -1)))
    better, pick = ("<", "max") if is_largest else (">", "min")
    rows = [e for at, e in enumerate(shape) if at != axis] or [1]
    names = letters(len(rows))
    made = Program("topk", plain(dtype))
    made.inputs([("x", shape)])
    results = [("y", dtype), ("places", "int64")]
    wanted = [(name, kind, site.node.outputs[at]) for at, (name, kind) in enumerate(results) if site.wants(at)]
    for name, kind, _ in wanted:
        made.output(name, site.result().shape, kind)
    made.alloc("last", tuple(rows))
    made.alloc("last_place", tuple(rows), "int32")

    def point(suffix: str) -> list[str]:
        return [f"v{a}{suffix}" for a in names]

    def row(suffix: str) -> list[tuple[str, int, str]]:
        return [(f"{a}{suffix}", e, "S") for a, e in zip(names, rows, strict=True)]

    def whole(suffix: str, index: str) -> list[str]:
        at = point(suffix) if len(shape) > 1 else []
        return [*at[:axis], index, *at[axis:]]

    def after(suffix: str) -> str:
        x, last = element("x", whole(suffix, f"vn{suffix}")), element("last", point(suffix))
        behind = f"T.Cast('int32', vn{suffix}) > {element('last_place', point(suffix))}"
        return f"{x} {better} {last} or ({x} == {last} and {behind})"

    made.add("first", row("_f"), f"{element('last', point('_f'))} = {highest}")
    made.add("first_place", row("_g"), f"{element('last_place', point('_g'))} = T.int32(-1)")
    best, place = element("best", point("_b")), element("place", point("_p"))
    value = f"T.Select({after('_b')}, {element('x', whole('_b', 'vn_b'))}, {lowest})"
    found = f"({after('_p')}) and {element('x', whole('_p', 'vn_p'))} == {element('best', point('_p'))}"
    where = f"T.Select({found}, T.Cast('int32', vn_p), T.int32({extent - 1}))"
    step = [
        block("best", [*row("_b"), ("n_b", extent, "R")], f"{best} = T.{pick}({best}, {value})", f"{best} = {lowest}"),
        block("place", [*row("_p"), ("n_p", extent, "R")], f"{place} = T.min({place}, {where})",
              f"{place} = T.int32({extent - 1})"),
        block("remember", row("_r"), f"{element('last', point('_r'))} = {element('best', point('_r'))}"),
        block("remember_place", row("_s"), f"{element('last_place', point('_s'))} = {element('place', point('_s'))}"),
    ]  # fmt: skip
    sources = {"y": lambda at: element("best", at), "places": lambda at: f"T.Cast('int64', {element('place', at)})"}
    for name, _, _ in wanted:
        text = f"{element(name, whole(f'_{name}', 'vk'))} = {sources[name](point(f'_{name}'))}"
        step.append(block(f"store_{name}", row(f"_{name}"), text))
    head = [
        f"    for k in T.grid({count}):",
        '        with T.block("pass"):',
        f"            vk = T.axis.opaque({count}, k)",
        f"            best = T.alloc_buffer({tuple(rows)}, {dtype!r})",
        f"            place = T.alloc_buffer({tuple(rows)}, 'int32')",
    ]
    made.nests.append("\n".join([*head, *(indent(text, " " * 8) for text in step)]))
    called = site.node.name or site.node.outputs[0]
    outputs = tuple(tensor for _, _, tensor in wanted)
    return [Operator(called, program(made.text()), (site.node.inputs[0],), outputs)]


def _hardmax(site: Site) -> Built:
    """1 where the first of the largest elements of a row stands, 0 elsewhere."""
    shape, dtype = site.shape(), site.dtype()
    if not is_float(dtype) or not shape:
        return None
    over = row_of(site.attribute("axis", None), len(shape), site.opset)
    kept = [at for at in range(len(shape)) if at not in over]
    made = Program("hardmax", plain(dtype))
    made.inputs([("x", shape)])
    made.output("y", shape)
    made.alloc("m", tuple(shape[at] for at in kept))
    made.alloc("place", tuple(shape[at] for at in kept), "int32")
    names, count = letters(len(shape)), math.prod(shape[at] for at in over)

    def axes(suffix: str, inner: str) -> list[tuple[str, int, str]]:
        spatial = [(f"{names[at]}{suffix}", shape[at], "S") for at in kept]
        return spatial + [(f"{names[at]}{suffix}", shape[at], inner) for at in over]

    def of(buffer: str, suffix: str, dims: list[int]) -> str:
        return element(buffer, [f"v{names[at]}{suffix}" for at in dims])

    def number(suffix: str) -> str:
        text = "0"
        for at in over:
            text = f"({text}) * {shape[at]} + v{names[at]}{suffix}" if text != "0" else f"v{names[at]}{suffix}"
        return f"T.Cast('int32', {text})"

    every, lowest = list(range(len(shape))), literal(-math.inf, dtype)
    m, place = of("m", "0", kept), of("place", "1", kept)
    made.add("largest", axes("0", "R"), f"{m} = T.max({m}, {of('x', '0', every)})", f"{m} = {lowest}")
    here = f"T.Select({of('x', '1', every)} == {of('m', '1', kept)}, {number('1')}, T.int32({count}))"
    made.add("place", axes("1", "R"), f"{place} = T.min({place}, {here})", f"{place} = T.int32({count})")
    is_it = f"{number('2')} == {of('place', '2', kept)}"
    text = f"{of('y', '2', every)} = T.Select({is_it}, {literal(1, dtype)}, {literal(0, dtype)})"
    made.add("choose", axes("2", "S"), text)
    return [site.operator(made.text(), [0])]


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "TopK"): _top_k, ("", "Hardmax"): _hardmax}
