"""Softmax and normalisations, as the workload library writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...ir.dtypes import is_float
from ...space.workloads.precision import plain, precision
from ...space.workloads.rows import LayerNorm, Softmax
from ...space.workloads.text import Program, element, literal
from .movement import point, reshaped
from .site import Builder, Built, Site, letters


def row_of(axis: int | None, rank: int, opset: int) -> tuple[int, ...]:
    """The dimensions that Softmax, LogSoftmax and Hardmax take as one row: `axis`, before version 13 all from it on."""
    first = (-1 if opset >= 13 else 1) if axis is None else axis
    first += rank if first < 0 else 0
    return (first,) if opset >= 13 else tuple(range(first, rank))


def _softmax(logarithm: int) -> Builder:
    def build(site: Site) -> Built:
        shape = site.shape()
        if not is_float(site.dtype()) or not shape:
            return None
        over = row_of(site.attribute("axis", None), len(shape), site.opset)
        made = Softmax(dims=shape, over=over, logarithm=logarithm)
        return [site.operator(made.script(site.dtype()), [0])] if over else None

    return build


def _layer_normalization(site: Site) -> Built:
    shape = site.shape()
    axis = site.axis(default=-1)
    column = shape[axis:]
    if not _is_plain(site) or any(site.wants(at) for at in (1, 2)):
        return None
    if any(site.has(at) and site.shape(at) != column for at in (1, 2)):
        return None
    made = LayerNorm(
        dims=shape,
        over=tuple(range(axis, len(shape))),
        epsilon=site.attribute("epsilon", 1e-5),
        shifts=int(site.has(2)),
    )
    return [site.operator(made.script(site.dtype()), [0, 1, *([2] if site.has(2) else [])])]


def _is_plain(site: Site) -> bool:
    """Whether all inputs are of one float type that programs compute in."""
    types = {site.dtype(at) for at in range(site.count) if site.has(at)}
    return types <= {"float16", "float32", "float64"} and len(types) == 1


def _instance_normalization(site: Site) -> Built:
    shape = site.shape()
    if not _is_plain(site) or len(shape) < 3:
        return None
    made = LayerNorm(dims=shape, over=tuple(range(2, len(shape))), epsilon=site.attribute("epsilon", 1e-5), scaled=(1,))
    return [site.operator(made.script(site.dtype()), [0, 1, 2])]


def _lrn(site: Site) -> Built:
    """``x / (bias + alpha / size * sum of the squares of neighbouring channels) ** beta``."""
    shape = site.shape()
    if not _is_plain(site) or len(shape) < 2:
        return None
    size = site.attribute("size", 1)
    program = Program("lrn", precision(site.dtype()))
    program.inputs([("x", shape)])
    program.output("y", shape)
    program.alloc("squares", shape)
    accumulator = program.precision.accumulator
    names = letters(len(shape))
    point = [f"v{a}0" for a in names]
    seen = f"{point[1]} + vr - {(size - 1) // 2}"
    x = program.load("x", [point[0], seen, *point[2:]])
    inside = f"0 <= {seen} and {seen} < {shape[1]}"
    target = f"squares[{', '.join(point)}]"
    value = f"T.if_then_else({inside}, {x} * {x}, {program.zero()})"
    loops = [(f"{a}0", e, "S") for a, e in zip(names, shape, strict=True)]
    program.add("squares", [*loops, ("r", size, "R")], f"{target} = {target} + {value}", f"{target} = {program.zero()}")
    bias, alpha, beta = (
        literal(site.attribute(name, default), accumulator)
        for name, default in (("bias", 1.0), ("alpha", 0.0001), ("beta", 0.75))
    )
    at = [f"v{a}1" for a in names]
    base = f"{bias} + {alpha} / {literal(size, accumulator)} * squares[{', '.join(at)}]"
    text = program.precision.narrow(f"{program.load('x', at)} / T.pow({base}, {beta})")
    program.add(
        "result", [(f"{a}1", e, "S") for a, e in zip(names, shape, strict=True)], f"y[{', '.join(at)}] = {text}"
    )
    return [site.operator(program.text(), [0])]


def _lp_normalization(site: Site) -> Built:
    """``x / norm``, with the norm along one dimension; 0 where that is 0."""
    shape, p = site.shape(), site.attribute("p", 2)
    if not _is_plain(site) or p not in (1, 2):
        return None
    axis = site.axis(default=-1)
    rows = Softmax(dims=shape, over=(axis,))
    program = Program("lp_norm", precision(site.dtype()))
    program.inputs([("x", shape)])
    program.output("y", shape)
    x = program.precision.widen(rows.at("x", "0"))
    power = f"{x} * {x}" if p == 2 else f"T.abs({x})"
    rows.reduction(program, "total", "s", 0, f"{rows.part('s', '0')} + {power}", "0")
    norm = f"T.sqrt({rows.part('s', '1')})" if p == 2 else rows.part("s", "1")
    zero, one = program.zero(), literal(1, program.precision.accumulator)
    share = f"{program.precision.widen(rows.at('x', '1'))} / T.Select({norm} == {zero}, {one}, {norm})"
    rows.map(program, "share", f"{rows.at('y', '1')} = {program.precision.narrow(share)}", "1")
    return [site.operator(program.text(), [0])]


def _group_normalization(site: Site) -> Built:
    """Each group of channels to mean 0 and variance 1; factors are by channel, before version 21 by group."""
    shape, groups = site.shape(), int(site.attribute("num_groups", 1))
    if not _is_plain(site) or len(shape) < 3 or shape[1] % groups:
        return None
    parts = (shape[0], groups, shape[1] // groups, *shape[2:])
    factors = parts[1:2] if site.opset < 21 else parts[1:3]
    if any(site.shape(at) != (math.prod(factors),) for at in (1, 2)):
        return None
    scaled = tuple(range(1, 1 + len(factors)))
    made = LayerNorm(
        dims=parts, over=tuple(range(2, len(parts))), epsilon=site.attribute("epsilon", 1e-5), scaled=scaled
    )
    given = [(0, parts), (1, factors), (2, factors)]
    views = [(at, site.new_tensor(target, site.dtype()), target) for at, target in given]
    y = site.new_tensor(parts, site.dtype())
    return [
        *(site.operator(_reshape(site, site.shape(at), target), [at], view) for at, view, target in views),
        site.operator(made.script(site.dtype()), [view for _, view, _ in views], y),
        site.operator(_reshape(site, parts, shape), [y]),
    ]


def _reshape(site: Site, source: tuple[int, ...], target: tuple[int, ...]) -> str:
    """The program that gives elements in another shape."""
    program = Program("reshape", plain(site.dtype()))
    program.inputs([("x", source)])
    program.output("y", target)
    axes = [(v[1:], e, "S") for v, e in zip(point(len(target)), target, strict=True)]
    program.add("reshape", axes, f"{element('y', point(len(target)))} = {element('x', reshaped(source, target))}")
    return program.text()


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "Softmax"): _softmax(0),
    ("", "LogSoftmax"): _softmax(1),
    ("", "LayerNormalization"): _layer_normalization,
    ("", "InstanceNormalization"): _instance_normalization,
    ("", "GroupNormalization"): _group_normalization,
    ("", "LRN"): _lrn,
    ("", "LpNormalization"): _lp_normalization,
}
