"""Operators that put elements down at places that other tensors name.

A copy of the first input is written over, or added to, update by update; places count from the end where they are
negative, and are kept inside of the dimension, so that an access is in bounds whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.dtypes import is_bool
from ...space.workloads.text import AxisText, Program, element
from .indexing import place_of
from .movement import point
from .site import Builder, Built, Site, letters, rounding

COMBINED = {"none": "{u}", "add": "{y} + {u}", "mul": "{y} * {u}", "max": "T.max({y}, {u})", "min": "T.min({y}, {u})"}
"""What becomes of an element y where an update u is put down, by the attribute `reduction`."""


def _scattered(site: Site, loops: Sequence[AxisText], target: Sequence[str], update: Sequence[str]) -> Built:
    """``y = x``, and then ``y[target] = combined(y[target], u[update])`` in the order of the loops."""
    dtype, how = site.dtype(), site.attribute("reduction", "none")
    if is_bool(dtype) and how != "none":
        return None
    types, shape = rounding(dtype), site.result().shape
    program = Program("scatter", types)
    program.inputs([("x", shape)])
    program.inputs([("places", site.shape(1))], site.dtype(1))
    program.inputs([("updates", site.shape(2))])
    program.output("y", shape)
    names = [f"{a}0" for a in letters(len(shape))]
    at = [f"v{a}" for a in names]
    copied = [(a, e, "S") for a, e in zip(names, shape, strict=True)]
    program.add("copy", copied, f"{element('y', at)} = {element('x', at)}")
    into, given = element("y", target), element("updates", update)
    text = given
    if how != "none":
        text = types.narrow(COMBINED[how].format(y=types.widen(into), u=types.widen(given)))
    program.add("scatter", loops, f"{into} = {text}")
    return [site.operator(program.text(), [0, 1, 2])]


def _scatter_elements(site: Site) -> Built:
    """``y[a, place[a, i, b], b] = u[a, i, b]``."""
    shape, axis = site.shape(1), site.axis()
    if not shape:
        return None
    names = point(len(shape))
    target = [*names]
    target[axis] = place_of(names, site.shape()[axis])
    loops = [(v[1:], e, "O" if at == axis else "S") for at, (v, e) in enumerate(zip(names, shape, strict=True))]
    return _scattered(site, loops, target, names)


def _scatter_nd(site: Site) -> Built:
    """``y[place[i, 0], place[i, 1], ..., c] = u[i, c]``."""
    places, shape = site.shape(1), site.shape(2)
    names = point(len(shape))
    own, rest = names[: len(places) - 1], names[len(places) - 1 :]
    taken = [place_of([*own, str(k)], site.shape()[k]) for k in range(places[-1])]
    loops = [(v[1:], e, "O" if at < len(own) else "S") for at, (v, e) in enumerate(zip(names, shape, strict=True))]
    return _scattered(site, loops, [*taken, *rest], names)


def _tensor_scatter(site: Site) -> Built:
    """A cache with updates from a place on that each of its first dimension has; ``circular`` goes on at its start."""
    shape, updates, axis = site.shape(), site.shape(1), site.axis(default=-2)
    names = point(len(updates))
    program = Program("tensor_scatter", rounding(site.dtype()))
    program.inputs([("x", shape), ("updates", updates)])
    first = "T.int64(0)"
    if site.has(2):
        program.inputs([("places", site.shape(2))], site.dtype(2))
        first = f"T.Cast('int64', {element('places', names[:1])})"
    program.output("y", shape)
    own = [f"{a}0" for a in letters(len(shape))]
    at = [f"v{a}" for a in own]
    copied = [(a, e, "S") for a, e in zip(own, shape, strict=True)]
    program.add("copy", copied, f"{element('y', at)} = {element('x', at)}")
    place = f"{first} + {names[axis]}"
    place = f"({place}) % {shape[axis]}" if site.attribute("mode", "linear") == "circular" else place
    target = [*names]
    target[axis] = f"T.min(T.max({place}, T.int64(0)), T.int64({shape[axis] - 1}))"
    loops = [(v[1:], e, "O" if k == axis else "S") for k, (v, e) in enumerate(zip(names, updates, strict=True))]
    program.add("scatter", loops, f"{element('y', target)} = {element('updates', names)}")
    return [site.operator(program.text(), [0, 1, *([2] if site.has(2) else [])])]


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "Scatter"): _scatter_elements,
    ("", "ScatterElements"): _scatter_elements,
    ("", "ScatterND"): _scatter_nd,
    ("", "TensorScatter"): _tensor_scatter,
}
