"""Operators that move elements and compute nothing: each is an index map from the result to its input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, affine, element, literal
from .site import Builder, Built, Site, letters


def moved(
    site: Site, name: str, index: Sequence[str], where: str = "", value: str = "0", extra: int | None = None
) -> Built:
    """``y[i] = x[index]``, or `value` where the condition `where` is not empty and does not hold.

    `index` has a text for each dimension of x, over ``vi, vj, ...``, the iterators of the result.  `value` may read
    the input `extra` as ``fill``.
    """
    result = site.result()
    program = Program(name, plain(site.dtype()))
    program.inputs([("x", site.shape()), *([("fill", site.shape(extra))] if extra is not None else [])])
    program.output("y", result.shape)
    names = letters(len(result.shape))
    text = element("x", index)
    if where:
        text = f"T.if_then_else({where}, {text}, {value})"
    axes = [(a, e, "S") for a, e in zip(names, result.shape, strict=True)]
    program.add(name, axes, f"{element('y', [f'v{a}' for a in names])} = {text}")
    return [site.operator(program.text(), [0, *([extra] if extra is not None else [])])]


def point(rank: int) -> list[str]:
    """The iterators of a result of `rank` dimensions."""
    return [f"v{a}" for a in letters(rank)]


def _transpose(site: Site) -> Built:
    rank = len(site.shape())
    order = site.attribute("perm", list(range(rank))[::-1])
    names = point(rank)
    index = [""] * rank
    for at, source in enumerate(order):
        index[source] = names[at]
    return moved(site, "transpose", index)


def reshaped(source: Sequence[int], target: Sequence[int]) -> list[str]:
    """Indices of x, of shape `source`, for the element ``vi, vj, ...`` of the same elements in shape `target`.

    Dimensions are taken in groups of equal size, so that what stays a dimension keeps its plain index.
    """
    names, index = point(len(target)), ["0"] * len(source)
    left = [at for at, extent in enumerate(source) if extent > 1]
    right = [at for at, extent in enumerate(target) if extent > 1]
    while left:
        dims, parts = [left.pop(0)], [right.pop(0)]
        a, b = source[dims[0]], target[parts[0]]
        while a != b:
            if a < b:
                dims.append(left.pop(0))
                a *= source[dims[-1]]
            else:
                parts.append(right.pop(0))
                b *= target[parts[-1]]
        _group(index, dims, source, [names[at] for at in parts], [target[at] for at in parts])
    return index


def _group(
    index: list[str], dims: list[int], source: Sequence[int], names: Sequence[str], extents: Sequence[int]
) -> None:
    """Fill `index` for dimensions that together have the elements of some dimensions of the target."""
    flat, steps = [], 1
    for name, extent in reversed(list(zip(names, extents, strict=True))):
        flat.append(affine(name, steps))
        steps *= extent
    text = " + ".join(reversed(flat))
    whole = f"({text})" if len(flat) > 1 and len(dims) > 1 else text
    below = 1
    for at in reversed(dims):
        part = f"{whole} // {below}" if below > 1 else whole
        index[at] = f"{part} % {source[at]}" if at != dims[0] else part
        below *= source[at]


def _reshape(site: Site) -> Built:
    if math.prod(site.shape()) != math.prod(site.result().shape):
        return None
    return moved(site, "reshape", reshaped(site.shape(), site.result().shape))


def _concat(site: Site) -> Built:
    """A block for each input, which writes its part of the result."""
    result = site.result()
    axis = site.axis(rank=len(result.shape))
    program = Program("concat", plain(result.dtype))
    program.inputs([(f"x{at}", site.shape(at)) for at in range(site.count)])
    program.output("y", result.shape)
    start = 0
    for at in range(site.count):
        shape = site.shape(at)
        names = [f"{a}{at}" for a in letters(len(shape))]
        source = [f"v{a}" for a in names]
        target = [*source]
        target[axis] = affine(source[axis], 1, shift=-start)
        axes = [(a, e, "S") for a, e in zip(names, shape, strict=True)]
        program.add(f"part{at}", axes, f"{element('y', target)} = {element(f'x{at}', source)}")
        start += shape[axis]
    return [site.operator(program.text(), range(site.count))]


def _split(site: Site) -> Built:
    """A slice for each result that something reads."""
    shape, axis = site.shape(), site.axis()
    count = len(site.node.outputs)
    sizes = site.integers(1, "split") or _equal_parts(shape[axis], site.attribute("num_outputs", count))
    if site.is_open(1) or len(sizes) < count:
        return None
    built = []
    for at in range(count):
        if not site.wants(at):
            continue
        program = Program("slice", plain(site.dtype()))
        program.inputs([("x", shape)])
        program.output("y", site.result(at).shape)
        names = point(len(shape))
        start = sum(sizes[:at])
        source = [affine(v, 1, shift=-start) if k == axis else v for k, v in enumerate(names)]
        axes = [(v[1:], e, "S") for v, e in zip(names, site.result(at).shape, strict=True)]
        program.add("slice", axes, f"{element('y', names)} = {element('x', source)}")
        built.append(site.operator(program.text(), [0], at))
    return [*built]


def _equal_parts(extent: int, count: int) -> list[int]:
    """The sizes of `count` parts of an extent: all alike, but for the last ones where that does not divide."""
    size = -(-extent // count)
    return [max(0, min(size, extent - at * size)) for at in range(count)]


def sliced(site: Site) -> list[tuple[int, int]] | None:
    """The first element that a Slice takes along each dimension, and its step; None where they are computed."""
    shape = site.shape()
    starts, ends = site.integers(1, "starts"), site.integers(2, "ends")
    if starts is None or ends is None or site.is_open(3) or site.is_open(4):
        return None
    axes = site.integers(3, "axes") or list(range(len(starts)))
    steps = site.integers(4) or [1] * len(starts)
    found = [(0, 1)] * len(shape)
    for at, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = at % len(shape)
        first, _, _ = slice(start, None if step < 0 and end < -shape[axis] else end, step).indices(shape[axis])
        found[axis] = max(first, 0), step  # backwards, a start in front of the first element is this one
    return found


def _slice(site: Site) -> Built:
    shape, found = site.shape(), sliced(site)
    if found is None or len(site.result().shape) != len(shape):
        return None
    index = [
        v if (first, step) == (0, 1) else affine(v, step, shift=-first) if step > 0 else f"{first} - {affine(v, -step)}"
        for v, (first, step) in zip(point(len(shape)), found, strict=True)
    ]
    return moved(site, "slice", index)


def _pad(site: Site) -> Built:
    """A border of a constant, of the edge, mirrored at the edge, or wrapped round what negative amounts leave."""
    shape, result = site.shape(), site.result().shape
    pads, axes, mode = site.integers(1, "pads"), site.integers(3), site.attribute("mode", "constant")
    if pads is None or site.is_open(3):
        return None
    dims = list(range(len(shape))) if axes is None else [at % len(shape) for at in axes]
    front, end = [0] * len(shape), [0] * len(shape)
    for at, before, after in zip(dims, pads[: len(dims)], pads[len(dims) :], strict=True):
        front[at], end[at] = before, after
    index = [affine(v, 1, shift=p) for v, p in zip(point(len(shape)), front, strict=True)]
    if mode == "constant":
        return _pad_constant(site, index, front)
    changed = [at for at in range(len(shape)) if shape[at] != result[at] or front[at]]
    for at in changed:
        last, i = shape[at] - 1, index[at]
        if mode == "edge":
            index[at] = f"T.min(T.max({i}, 0), {last})"
        elif mode == "wrap":
            cut, kept = max(0, -front[at]), shape[at] + min(0, front[at]) + min(0, end[at])
            if kept < 1:
                return None
            index[at] = affine(f"({affine(point(len(shape))[at], 1, shift=max(0, front[at]))}) % {kept}", 1, shift=-cut)
        elif front[at] > last or result[at] - shape[at] - front[at] > last or last < 1:
            return None
        else:
            away = f"T.max({i}, {front[at]} - {point(len(shape))[at]})"
            index[at] = f"T.min({away}, {2 * last} - {away})"
    return moved(site, "pad", index)


def _pad_constant(site: Site, index: list[str], front: Sequence[int]) -> Built:
    given, extra = site.constant(2), 2 if site.is_open(2) else None
    number = site.attribute("value", 0.0) if given is None else given.reshape(-1)[0].item()
    if extra is not None:
        value = element("fill", ["0"] * len(site.shape(extra)))
    elif site.dtype() == "bool":
        value = f"T.bool({bool(number)})"
    else:
        value = literal(number if "float" in site.dtype() else int(number), site.dtype())
    inside = [
        f"{p} <= {v} and {v} < {p + e}"
        for v, p, e, whole in zip(point(len(index)), front, site.shape(), site.result().shape, strict=True)
        if p or whole != e
    ]
    return moved(site, "pad", index, " and ".join(inside), value, extra)


def _tile(site: Site) -> Built:
    index = [
        v if e == whole else "0" if e == 1 else f"{v} % {e}"
        for v, e, whole in zip(point(len(site.shape())), site.shape(), site.result().shape, strict=True)
    ]
    return moved(site, "tile", index)


def _depth_to_space(site: Site) -> Built:
    """``y[n, c, h b + i, w b + j] = x[n, (i, j, c), h, w]``, or with channels first: ``(c, i, j)``."""
    n, c, h, w = point(4)
    size, channels = site.attribute("blocksize", 1), site.result().shape[1]
    row, column = f"{h} % {size}", f"{w} % {size}"
    if site.attribute("mode", "DCR") == "DCR":
        channel = f"({row} * {size} + {column}) * {channels} + {c}"
    else:
        channel = f"{c} * {size * size} + {row} * {size} + {column}"
    return moved(site, "depth_to_space", [n, channel.replace(row, f"({row})").replace(column, f"({column})"),
                                          f"{h} // {size}", f"{w} // {size}"])  # fmt: skip


def _space_to_depth(site: Site) -> Built:
    """``y[n, (i, j, c), h, w] = x[n, c, h b + i, w b + j]``, or with channels first: ``(c, i, j)``."""
    n, c, h, w = point(4)
    size, channels = site.attribute("blocksize", 1), site.shape()[1]
    channel, row, column = f"{c} % {channels}", f"{c} // {size * channels}", f"{c} // {channels} % {size}"
    if site.attribute("mode", "DCR") == "CRD":
        channel, row, column = f"{c} // {size * size}", f"{c} // {size} % {size}", f"{c} % {size}"
    return moved(site, "space_to_depth", [n, channel, f"{h} * {size} + {row}", f"{w} * {size} + {column}"])


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "Transpose"): _transpose,
    ("", "Reshape"): _reshape,
    ("", "Flatten"): _reshape,
    ("", "Squeeze"): _reshape,
    ("", "Unsqueeze"): _reshape,
    ("", "Concat"): _concat,
    ("", "Split"): _split,
    ("", "Slice"): _slice,
    ("", "Pad"): _pad,
    ("", "Tile"): _tile,
    ("", "DepthToSpace"): _depth_to_space,
    ("", "SpaceToDepth"): _space_to_depth,
}
