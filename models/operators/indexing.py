"""Operators that take elements from places that other tensors name.

Places that are known and evenly spaced are a slice.  Others are looked up: they count from the end where they are
negative, and are kept inside of the dimension, so that an access is in bounds whatever the places are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelProblem
from ...ir.dtypes import is_float, is_int
from ...space.workloads.precision import plain
from ...space.workloads.text import Program, affine, element, literal
from .movement import moved, point
from .site import Builder, Built, Site


def _gather(site: Site) -> Built:
    """``y[a, i, b] = x[a, place[i], b]``, with a dimension of y for each of `place`."""
    shape, places = site.shape(), site.constant(1)
    axis = site.axis()
    names = point(len(site.result().shape))
    own = names[axis : axis + len(site.shape(1))]
    before, after = names[:axis], names[axis + len(own) :]
    if places is not None:
        known: NDArray[np.int64] = places.astype(np.int64)
        _refuse_outside(site, known, shape[axis])
        at = _evenly(np.where(known < 0, known + shape[axis], known), own)
        if at:
            return moved(site, "gather", [*before, at, *after])
    return looked_up(site, "gather", [*before, place_of(own, shape[axis]), *after])


def _evenly(places: NDArray[np.int64], own: Sequence[str]) -> str:
    """The places as ``first + step * i`` over the iterators of their own dimensions; empty if they are not so."""
    if places.size == 1:
        return str(int(places.reshape(-1)[0]))
    if places.ndim != 1:
        return ""
    steps = np.unique(np.diff(places))
    return affine(own[0], int(steps[0]), shift=-int(places[0])) if len(steps) == 1 and steps[0] > 0 else ""


def _refuse_outside(site: Site, places: NDArray[np.int64], extent: int) -> None:
    """Raise ModelProblem for a place that no element has, which ONNX calls an error."""
    outside = places[(places < -extent) | (places >= extent)]
    if outside.size:
        raise ModelProblem(
            f"the node {site.node} is not valid: it takes the element {outside[0]} of a dimension that has {extent}"
        )


def place_of(at: Sequence[str], extent: int) -> str:
    """An element of the input 1 as a place of a dimension."""
    place = f"T.Cast('int64', {element('places', at)})"
    place = f"{place} + T.Select({place} < T.int64(0), T.int64({extent}), T.int64(0))"
    return f"T.min(T.max({place}, T.int64(0)), T.int64({extent - 1}))"


def looked_up(site: Site, name: str, index: Sequence[str]) -> Built:
    """``y[i] = x[index]``, where `index` may read ``places``, the input 1."""
    result = site.result().shape
    program = Program(name, plain(site.dtype()))
    program.inputs([("x", site.shape())])
    program.inputs([("places", site.shape(1))], site.dtype(1))
    program.output("y", result)
    names = point(len(result))
    axes = [(v[1:], e, "S") for v, e in zip(names, result, strict=True)]
    program.add(name, axes, f"{element('y', names)} = {element('x', index)}")
    return [site.operator(program.text(), [0, 1])]


def _gather_elements(site: Site) -> Built:
    """``y[a, i, b] = x[a, place[a, i, b], b]``."""
    axis, names, places = site.axis(), point(len(site.shape())), site.constant(1)
    if places is not None:
        _refuse_outside(site, places.astype(np.int64), site.shape()[axis])
    index = [*names]
    index[axis] = place_of(names, site.shape()[axis])
    return looked_up(site, "gather_elements", index)


def _gather_nd(site: Site) -> Built:
    """``y[b, i, c] = x[b, place[b, i, 0], place[b, i, 1], ..., c]``."""
    places, batch = site.shape(1), site.attribute("batch_dims", 0)
    names = point(len(site.result().shape))
    own, rest = names[: len(places) - 1], names[len(places) - 1 :]
    taken = [place_of([*own, str(k)], site.shape()[batch + k]) for k in range(places[-1])]
    return looked_up(site, "gather_nd", [*names[:batch], *taken, *rest])


def _reverse_sequence(site: Site) -> Built:
    """``y[t, b] = x[length[b] - 1 - t, b]`` for the first elements of each sequence, and ``x[t, b]`` for the others."""
    shape, time, batch = site.shape(), site.axis("time_axis", 0), site.axis("batch_axis", 1)
    index = point(len(shape))
    here, length = f"T.Cast('int64', {index[time]})", f"T.Cast('int64', {element('places', [index[batch]])})"
    place = f"T.Select({here} < {length}, {length} - T.int64(1) - {here}, {here})"
    index[time] = f"T.min(T.max({place}, T.int64(0)), T.int64({shape[time] - 1}))"
    return looked_up(site, "reverse_sequence", index)


def _one_hot(site: Site) -> Built:
    """``y[a, d, b]`` is the second value where ``x[a, b]`` is d, counted from the end where it is negative."""
    result, dtype = site.result().shape, site.dtype()
    if not (is_int(dtype) or is_float(dtype)) or site.dtype(2) == "bool":
        return None
    axis = site.axis(default=-1, rank=len(result))
    names = point(len(result))
    program = Program("one_hot", plain(dtype))
    program.inputs([("x", site.shape())])
    program.inputs([("values", (2,))], site.dtype(2))
    program.output("y", result, site.dtype(2))
    depth = f"T.int64({result[axis]})"
    raw = f"T.Cast('int64', {element('x', [*names[:axis], *names[axis + 1 :]])})"
    is_it = f"{raw} + T.Select({raw} < T.int64(0), {depth}, T.int64(0)) == T.Cast('int64', {names[axis]})"
    axes = [(v[1:], e, "S") for v, e in zip(names, result, strict=True)]
    program.add("one_hot", axes, f"{element('y', names)} = T.Select({is_it}, values[1], values[0])")
    return [site.operator(program.text(), [0, 2])]


def _trilu(site: Site) -> Built:
    """One side of the diagonal `k`, 0 on the other."""
    offset = site.integers(1)
    if site.is_open(1):
        return None
    k, names = (offset or [0])[0], point(len(site.shape()))
    row, column = affine(names[-2], 1, shift=-k), names[-1]
    kept = f"{row} <= {column}" if site.attribute("upper", 1) else f"{column} <= {row}"
    zero = "T.bool(False)" if site.dtype() == "bool" else literal(0, site.dtype())
    return moved(site, "trilu", names, kept, zero)


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "Gather"): _gather,
    ("", "GatherElements"): _gather_elements,
    ("", "GatherND"): _gather_nd,
    ("", "OneHot"): _one_hot,
    ("", "ReverseSequence"): _reverse_sequence,
    ("", "Trilu"): _trilu,
}
