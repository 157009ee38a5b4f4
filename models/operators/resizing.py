"""Interpolation: each result is a weighted sum of a few places of the input, one dimension after the other.

Which places with which weights follows from ONNX's text, in exact fractions, since a place may lie just where it is
rounded.  They are then written as arithmetic, if they are of the form

    nearest:  ``y[i] = x[(a i + b) // c]``                           kept inside of x
    linear:   ``y[i] = x[p] (1 - f) + x[p + 1] f``    with ``p = (a i + b) // c``, ``f = (a i + b) % c / c``

(never ``x[p] + (x[p + 1] - x[p]) f``, in which infinite neighbours, and the lowest numbers, have no difference), and
else looked up in tables of places and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.dtypes import int_range, is_float, is_int
from ...space.workloads.precision import Precision, plain, precision
from ...space.workloads.text import Program, affine, element, literal
from ..network import Operator
from .movement import point
from .site import Builder, Built, Site

Floats = NDArray[np.float64]
Scale: TypeAlias = "np.float32 | np.float64"
ROUNDING: Mapping[str, Callable[[Fraction], int]] = {
    "floor": math.floor, "ceil": math.ceil, "round_prefer_floor": lambda x: math.ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: math.floor(x + Fraction(1, 2)),
}  # fmt: skip
WIDEST = 1 << 13
"""The longest dimension whose weights are made here."""
FINEST = 1 << 20
"""The largest divisor of factors that follow from sizes."""


@dataclass(frozen=True)
class Line:
    """``(a i + b) // c`` and the rest of the division."""

    a: int
    b: int
    c: int

    def places(self, count: int) -> NDArray[np.int64]:
        """The quotients for i from 0."""
        return (self.a * np.arange(count, dtype=np.int64) + self.b) // self.c

    def rest(self, count: int) -> Floats:
        """What the division leaves, as a part of `c`."""
        return (self.a * np.arange(count, dtype=np.int64) + self.b) % self.c / self.c

    def text(self, index: str) -> str:
        """The numerator as script text."""
        return affine(index, self.a, shift=-self.b)

    def place(self, index: str, size: int, count: int, more: int = 0) -> str:
        """The place `more` after the quotient, kept inside of `size`, as script text."""
        text = f"({self.text(index)}) // {self.c}" if self.c > 1 else self.text(index)
        found = self.places(count) + more
        text = affine(text, 1, shift=-more)
        text = f"T.max({text}, 0)" if found.min() < 0 else text
        return f"T.min({text}, {size - 1})" if found.max() >= size else text


def _lines(size: int, count: int, scale: float) -> Iterator[Line]:
    """Coordinates as the usual modes have them: asymmetric, of half pixels, with aligned corners."""
    for step in {Fraction(1 / scale).limit_denominator(4096), Fraction(size, count)}:
        p, q = step.numerator, step.denominator
        yield Line(p, 0, q)
        yield Line(2 * p, p - q, 2 * q)
    if count > 1:
        yield Line(size - 1, 0, count - 1)


def _rounded(line: Line) -> Iterator[Line]:
    """The line rounded down, up, to the nearest and half down, to the nearest and half up."""
    a, b, c = line.a, line.b, line.c
    for numerator, offset, whole in (
        (a, b, c),
        (a, b + c - 1, c),
        (2 * a, 2 * b + c - 1, 2 * c),
        (2 * a, 2 * b + c, 2 * c),
    ):
        shared = math.gcd(numerator, offset, whole)
        yield Line(numerator // shared, offset // shared, whole // shared)


def _nearest_line(picks: NDArray[np.int64], size: int, scale: float) -> Line | None:
    """A line whose quotients, kept inside, are `picks`."""
    for line in _lines(size, len(picks), scale):
        for candidate in _rounded(line):
            if np.array_equal(np.clip(candidate.places(len(picks)), 0, size - 1), picks):
                return candidate
    return None


def _linear_line(weights: Floats, scale: float) -> Line | None:
    """A line between whose neighbouring places `weights`, a column for each result, interpolate."""
    size, count = weights.shape
    for line in _lines(size, count, scale):
        found, rest, columns = np.zeros_like(weights), line.rest(count), np.arange(count)
        np.add.at(found, (np.clip(line.places(count), 0, size - 1), columns), 1 - rest)
        np.add.at(found, (np.clip(line.places(count) + 1, 0, size - 1), columns), rest)
        if np.allclose(found, weights, atol=1e-6):
            return line
    return None


def _matrix(site: Site, at: int, scale: Scale, region: tuple[float, float] | None) -> Floats | None:
    """``[places, results]``: what each place of a dimension weighs in each result; None for what is not known here."""
    size, count = site.shape()[at], site.result().shape[at]
    is_old = site.node.op == "Upsample" or site.opset <= 10  # which say no more than the scale
    mode = {"bilinear": "linear"}.get(site.attribute("mode", "nearest"), site.attribute("mode", "nearest"))
    way = "asymmetric" if is_old else site.attribute("coordinate_transformation_mode", "half_pixel")
    factor = Fraction(float(scale)).limit_denominator(FINEST) if scale.dtype == np.float64 else Fraction(float(scale))
    places = _places(way, size, count, factor, region or (0.0, 1.0))
    if places is None or max(size, count) > WIDEST or (way == "tf_half_pixel_for_nn" and mode != "nearest"):
        return None
    if way == "tf_crop_and_resize":  # what lies outside has a value of its own
        places = [min(max(x, Fraction(0)), Fraction(size - 1)) for x in places]
    if mode == "nearest":
        old_rounding = "ceil" if site.node.op == "Resize" and scale < 1 else "floor"
        rounding = ROUNDING.get(old_rounding if is_old else site.attribute("nearest_mode", "round_prefer_floor"))
        if rounding is None:
            return None
        found: Floats = np.eye(size)[:, np.clip([rounding(x) for x in places], 0, size - 1)]
    elif mode in ("linear", "cubic"):
        filtered = min(factor, Fraction(1)) if site.attribute("antialias", 0) else Fraction(1)
        cubic = site.attribute("cubic_coeff_a", -0.75) if mode == "cubic" else None
        weights = _weights(places, size, filtered, cubic, bool(site.attribute("exclude_outside", 0)))
        if weights is None:
            return None
        found = weights
    else:
        return None
    return found


def _places(
    way: str, size: int, count: int, scale: Fraction, region: tuple[float, float]
) -> list[Fraction] | None:  # fmt: skip
    """``x_original`` of each result, as ONNX defines it for a mode; the lengths in there are whole numbers."""
    half, results = Fraction(1, 2), range(count)
    if way in ("align_corners", "tf_crop_and_resize"):
        start, end = (Fraction(edge) if way == "tf_crop_and_resize" else Fraction(k) for k, edge in enumerate(region))
        if count == 1:
            return [half * (start + end) * (size - 1) if way == "tf_crop_and_resize" else Fraction(0)]
        return [start * (size - 1) + i * (end - start) * (size - 1) / (count - 1) for i in results]
    if way == "pytorch_half_pixel" and count == 1:
        return [Fraction(0)]
    shift = Fraction(size, 2) * (1 - count / (scale * size)) if way == "half_pixel_symmetric" else Fraction(0)
    if way in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        return [shift + (i + half) / scale - half for i in results]
    if way == "tf_half_pixel_for_nn":
        return [(i + half) / scale for i in results]
    return [i / scale for i in results] if way == "asymmetric" else None


def _weights(
    places: Sequence[Fraction], size: int, scale: Fraction, cubic: float | None, excludes: bool
) -> Floats | None:  # fmt: skip
    """The weights of neighbours by their distance times `scale`, those outside counted for the edge or not at all."""
    found = np.zeros((size, len(places)))
    reach = (1 if cubic is None else 2) / scale
    for result, x in enumerate(places):
        near = np.arange(math.ceil(x - reach), math.floor(x + reach) + 1)
        distance = np.abs([float((int(place) - x) * scale) for place in near])
        weights = 1 - distance if cubic is None else _cubic(distance, cubic)
        if excludes:
            weights = np.where((near >= 0) & (near < size), weights, 0)
        if excludes or scale < 1:
            if not weights.sum():
                return None
            weights = weights / weights.sum()
        np.add.at(found[:, result], np.clip(near, 0, size - 1), weights)
    return found


def _cubic(distance: Floats, a: float) -> Floats:
    """The kernel of a cubic convolution of reach 2."""
    inner = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, inner, outer)


def _scales(site: Site) -> dict[int, Scale] | None:
    """The factor of each dimension that changes; None where it is not known.

    Those that the node gives are float32; those that follow from sizes are as exact as numbers are, since
    ``1 / float32(1 / 3)`` is less than 3, and rounds down to 2.
    """
    shape, result = site.shape(), site.result().shape
    sizes_at, scales_at = (3, 2) if site.opset > 10 else (9, 1)
    dims = [at % len(shape) for at in site.attribute("axes", range(len(shape)))]
    if site.is_open(scales_at) or site.is_open(sizes_at) or site.is_open(1):
        return None
    given = site.constant(scales_at)
    if given is not None and given.size:
        factors: list[Scale] = [np.float32(f) for f in given.reshape(-1)]
    elif "scales" in site.node.values:
        factors = [np.float32(f) for f in site.attribute("scales", [])]
    else:
        sizes = site.integers(sizes_at) or []
        factors = [np.float64(wanted / shape[at]) for at, wanted in zip(dims, sizes, strict=True)]
        policy = site.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(factors)
    if len(factors) != len(dims):
        return None
    mode = site.attribute("coordinate_transformation_mode", "half_pixel")
    crops = mode == "tf_crop_and_resize"
    return {at: f for at, f in zip(dims, factors, strict=True) if f != 1 or shape[at] != result[at] or crops}


def _region(site: Site, at: int) -> tuple[float, float] | None:
    """The part of a dimension that is cropped before, as fractions."""
    value = site.constant(1) if site.opset > 10 else None
    if value is None or not value.size or site.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return None
    dims = [d % len(site.shape()) for d in site.attribute("axes", range(len(site.shape())))]
    place = dims.index(at)
    return float(value[place]), float(value[place + len(dims)])


def _resize(site: Site) -> Built:
    scales = _scales(site)
    if scales is None or site.dtype() == "bfloat16":
        return None
    masks = {at: inside for at in scales if not (inside := _inside(site, at)).all()}
    into: int | str = site.new_tensor(site.result().shape, site.dtype()) if masks else 0
    built = _interpolated(site, scales, into)
    return built if built is None or isinstance(into, int) else [*built, _extrapolated(site, into, masks)]


def _inside(site: Site, at: int) -> NDArray[np.uint8]:
    """1 for each result along a dimension whose place lies in the input, where others have a value of their own."""
    size, count = site.shape()[at], site.result().shape[at]
    if site.opset <= 10 or site.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return np.ones(count, np.uint8)
    places = _places("tf_crop_and_resize", size, count, Fraction(1), _region(site, at) or (0.0, 1.0)) or []
    return np.array([0 <= x <= size - 1 for x in places], np.uint8)


def _extrapolated(site: Site, source: str, masks: Mapping[int, NDArray[np.uint8]]) -> Operator:
    """What was interpolated, where all places lie in the input, and else `extrapolation_value`."""
    shape, dtype, names = site.result().shape, site.dtype(), point(len(site.shape()))
    program = Program("extrapolate", plain(dtype))
    program.inputs([("x", shape)])
    for at, mask in masks.items():
        program.inputs([(f"inside{at}", mask.shape)], "uint8")
    program.output("y", shape)
    inside = " and ".join(f"inside{at}[{names[at]}] == T.uint8(1)" for at in masks)
    number = site.attribute("extrapolation_value", 0.0)
    other = literal(number if is_float(dtype) else int(number), dtype)
    axes = [(v[1:], e, "S") for v, e in zip(names, shape, strict=True)]
    program.add("extrapolate", axes, f"{element('y', names)} = T.Select({inside}, {element('x', names)}, {other})")
    return site.operator(program.text(), [source, *map(site.new_constant, masks.values())])


def _interpolated(site: Site, scales: Mapping[int, Scale], into: int | str) -> Built:
    """The elements beside each place with their weights, from the input alone."""
    weights: dict[int, Floats] = {}
    for at, scale in scales.items():
        found = _matrix(site, at, scale, _region(site, at))
        if found is None:
            return None
        weights[at] = found
    if all(np.array_equal(np.sort(matrix, axis=0)[-1], np.ones(matrix.shape[1])) for matrix in weights.values()):
        lines = {at: _nearest_line(m.argmax(axis=0), len(m), float(scales[at])) for at, m in weights.items()}
        if all(line is not None for line in lines.values()):
            return _picked(site, {at: line for at, line in lines.items() if line is not None}, into)
    return _summed(site, weights, scales, into) if is_float(site.dtype()) or is_int(site.dtype()) else None


def _picked(site: Site, lines: Mapping[int, Line], into: int | str) -> Built:
    """The nearest place in every dimension."""
    shape, result = site.shape(), site.result().shape
    program = Program("resize", plain(site.dtype()))
    program.inputs([("x", shape)])
    program.output("y", result)
    names = point(len(result))
    source = [*names]
    for at, line in lines.items():
        source[at] = line.place(names[at], shape[at], result[at])
    axes = [(v[1:], e, "S") for v, e in zip(names, result, strict=True)]
    program.add("resize", axes, f"{element('y', names)} = {element('x', source)}")
    return [site.operator(program.text(), [0], into)]


def _summed(site: Site, weights: Mapping[int, Floats], given: Mapping[int, Scale], target: int | str) -> Built:
    """A resize as weighted sums along one dimension after the other, those first that grow least.

    Sums of integers are floats, of which the fraction is cut off at the end.
    """
    scales, dtype = {at: float(scale) for at, scale in given.items()}, site.dtype()
    order = sorted(weights, key=lambda at: (scales[at], -at))
    wide = "float32" if dtype in ("int8", "uint8") else "float64"
    program = Program("resize", precision(dtype) if is_float(dtype) else Precision(dtype, wide, dtype))
    program.inputs([("x", site.shape())])
    passed: list[int | str] = [0]
    lines = {at: _linear_line(weights[at], scales[at]) for at in order}
    tables = {at: _tables(weights[at]) for at, line in lines.items() if line is None}
    for at, (places, factors) in tables.items():
        program.inputs([(f"places{at}", places.shape)], "int64")
        program.inputs([(f"weights{at}", factors.shape)], program.precision.accumulator)
        passed += [site.new_constant(places), site.new_constant(factors.astype(program.precision.accumulator))]
    program.output("y", site.result().shape)
    shape, source = list(site.shape()), "x"
    for number, at in enumerate(order):
        shape[at] = site.result().shape[at]
        is_last = number == len(order) - 1 and not (program.precision.is_mixed and at in tables)
        into = "y" if is_last else program.alloc(f"t{number}", tuple(shape))
        how = lines[at] or tables[at][0].shape[1]
        _along(program, source, into, tuple(shape), at, number, site.shape()[at], how)
        source = into
    if source != "y":
        axes = list(zip([v[1:] for v in point(len(shape))], shape, strict=True))
        program.stages("y", source, axes, [a for a, _ in axes], [("store", _held(program.precision, "{v}"))])
    return [site.operator(program.text(), passed, target)]


def _held(types: Precision, value: str) -> str:
    """A sum between the ends of the result's type, where these are integers, which neighbours overshoot."""
    if not is_int(types.result):
        return value
    low, high = (literal(end, types.accumulator) for end in int_range(types.result))
    return f"T.min(T.max({value}, {low}), {high})"


def _along(
    program: Program, source: str, into: str, shape: tuple[int, ...], at: int, number: int, size: int, how: Line | int
) -> None:  # fmt: skip
    """Add the block that interpolates along dimension `at`, of extent `size` in the source.

    It does so on a line, or by tables of so many places for each result.
    """
    count, types = shape[at], program.precision
    names = [f"{v}{number}" for v in point(len(shape))]
    axes = [(v[1:], e, "S") for v, e in zip(names, shape, strict=True)]
    target = element(into, names)

    def load(place: str) -> str:
        text = element(source, [*names[:at], place, *names[at + 1 :]])
        return types.widen(text) if source == "x" else text

    if isinstance(how, int):
        place = f"T.min(T.max(places{at}[{names[at]}, vt], T.int64(0)), T.int64({size - 1}))"
        update = f"{target} = {target} + {load(place)} * weights{at}[{names[at]}, vt]"
        program.add(f"along{at}", [*axes, ("t", how, "R")], update, f"{target} = {program.zero()}")
        return
    over = f"({how.text(names[at])}) % {how.c}"
    part = f"T.Cast({types.accumulator!r}, {over}) * {literal(1 / how.c, types.accumulator)}"
    first, second = (load(how.place(names[at], size, count, more)) for more in (0, 1))
    # A call of `fma`, since compilers make of the plain sum what the difference of the neighbours stands in.
    one = literal(1, types.accumulator)
    text = f"T.fma({second}, {part}, {first} * ({one} - {part}))" if how.c > 1 else first
    if how.c > 1 and not how.rest(count).all():  # 0 times an infinite neighbour is no number
        text = f"T.Select({over} == 0, {first}, {text})"
    text = types.narrow(_held(types, text)) if into == "y" else text
    program.add(f"along{at}", axes, f"{target} = {text}")


def _tables(weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The indices [result, tap] of the elements that each result is a sum of, and their weights.

    A result of fewer elements has the heaviest one several times, with parts of its weight: an element of weight 0
    would make the result NaN where it is infinite.
    """
    taps = max(1, int((weights != 0).sum(axis=0).max()))
    order = np.argsort(-np.abs(weights), axis=0, kind="stable")[:taps]
    places, factors = order.T.copy(), np.take_along_axis(weights, order, axis=0).T.copy()
    for place, factor in zip(places, factors, strict=True):
        for tap in np.flatnonzero(factor == 0) if factor[0] else ():
            factor[0] /= 2
            place[tap], factor[tap] = place[0], factor[0]
    return np.ascontiguousarray(places), np.ascontiguousarray(factors)


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "Resize"): _resize, ("", "Upsample"): _resize}
