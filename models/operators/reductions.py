"""Reductions along any dimensions, running sums and products, and where the largest or smallest element stands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.dtypes import is_float, is_int
from ...space.workloads.precision import Precision, plain, precision
from ...space.workloads.text import Program, element, literal
from .site import Builder, Built, Site, letters


@dataclass(frozen=True)
class Reduction:
    """``y = after(combined over the dimensions of each(x))``, from `start`.

    In the texts ``{x}`` is an element, ``{y}`` the result so far, ``{n}`` the number of elements.  What `after` makes
    of integers is computed in float64, and its fraction cut off.
    """

    start: float
    combine: str
    each: str = "{x}"
    after: str = "{y}"


REDUCTIONS: Mapping[str, Reduction] = {
    "sum": Reduction(0, "{y} + {x}"),
    "mean": Reduction(0, "{y} + {x}", after="{y} / {n}"),
    "max": Reduction(-math.inf, "T.max({y}, {x})"),
    "min": Reduction(math.inf, "T.min({y}, {x})"),
    "prod": Reduction(1, "{y} * {x}"),
    "l1": Reduction(0, "{y} + {x}", "T.abs({x})"),
    "l2": Reduction(0, "{y} + {x}", "{x} * {x}", "T.sqrt({y})"),
    "sum_square": Reduction(0, "{y} + {x}", "{x} * {x}"),
    "log_sum": Reduction(0, "{y} + {x}", after="T.log({y})"),
}


def reduced(site: Site, how: str, axes: Sequence[int], found: Reduction | None = None) -> Built:
    """One reduction of the first input over `axes`, to the result's shape, with or without the reduced dimensions.

    It is that of `REDUCTIONS` by the name `how`, or `found`.  Without axes each element is a result of its own.
    """
    found, dtype = found or REDUCTIONS[how], site.dtype()
    if not (is_float(dtype) or is_int(dtype)):
        return None
    types = plain(dtype) if is_int(dtype) or how in ("max", "min") else precision(dtype)
    if is_int(dtype) and found.after != "{y}":
        types = Precision(dtype, "float64", dtype)
    program = Program(f"reduce_{how}", types)
    program.inputs([("x", site.shape())])
    program.output("y", site.result().shape)
    if not axes:
        names, point = _kept(site.shape(), (), True, "0")
        each = found.each.format(x=program.load("x", point))
        text = types.narrow(found.after.format(y=f"({each})", n=literal(1, types.accumulator)))
        program.add("each", names, f"{element('y', point)} = {text}")
        return [site.operator(program.text(), [0])]
    has_stage = types.is_mixed or found.after != "{y}"
    target = program.alloc("total", site.result().shape) if has_stage else "y"
    count = literal(math.prod(site.shape()[at] for at in axes), types.accumulator)
    add_reduction(program, found, site.shape(), axes, "x", target, len(site.result().shape) == len(site.shape()))
    if has_stage:
        names, point = _kept(site.shape(), axes, len(site.result().shape) == len(site.shape()), "1")
        text = types.narrow(found.after.format(y=element(target, point), n=count))
        program.add("result", names, f"{element('y', point)} = {text}")
    return [site.operator(program.text(), [0])]


def add_reduction(
    program: Program, found: Reduction, shape: tuple[int, ...], axes: Sequence[int], source: str, into: str, keeps: bool
) -> None:
    """Add the block that combines `source` over `axes` into a buffer that keeps them, with extent 1, or does not."""
    types = program.precision
    spatial, point = _kept(shape, axes, keeps, "0")
    names = [f"{a}0" for a in letters(len(shape))]
    loops = spatial + [(names[at], shape[at], "R") for at in axes]
    x = program.load(source, [f"v{a}" for a in names]) if source == "x" else element(source, [f"v{a}" for a in names])
    y = element(into, point)
    each = found.each.format(x=x)
    start = literal(found.start, types.accumulator)
    program.add("reduce", loops, f"{y} = {found.combine.format(y=y, x=each)}", f"{y} = {start}")


def _kept(
    shape: tuple[int, ...], axes: Sequence[int], keeps: bool, index: str
) -> tuple[list[tuple[str, int, str]], list[str]]:
    """Loops over what is not reduced, and the result's indices."""
    names = [f"{a}{index}" for a in letters(len(shape))]
    loops = [(names[at], e, "S") for at, e in enumerate(shape) if at not in axes]
    point = [f"v{name}" if at not in axes else "0" for at, name in enumerate(names) if keeps or at not in axes]
    return loops, point


def _axes(site: Site) -> tuple[int, ...] | None:
    """The reduced dimensions, ascending; None where they are not known."""
    rank = len(site.shape())
    if site.is_open(1):
        return None
    given = site.integers(1, "axes")
    if not given:
        return () if site.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({at % rank for at in given}))


def _reduce(how: str) -> Builder:
    def build(site: Site) -> Built:
        axes = _axes(site)
        return None if axes is None else reduced(site, how, axes)

    return build


def _log_sum_exp(site: Site) -> Built:
    """``log(sum(exp(x - m))) + m`` with m the largest element, or 0 where that is infinite (``inf - inf`` is NaN)."""
    axes, shape, dtype = _axes(site), site.shape(), site.dtype()
    if axes is None or not (is_float(dtype) or is_int(dtype)):
        return None
    if not axes:
        return reduced(site, "sum", ())
    keeps = len(site.result().shape) == len(shape)
    types = precision(dtype) if is_float(dtype) else Precision(dtype, "float64", dtype)
    program = Program("reduce_log_sum_exp", types)
    program.inputs([("x", shape)])
    program.output("y", site.result().shape)
    program.alloc("m", site.result().shape)
    program.alloc("s", site.result().shape)
    peak, total = REDUCTIONS["max"], REDUCTIONS["sum"]
    add_reduction(program, peak, shape, axes, "x", "m", keeps)
    names = [f"{a}1" for a in letters(len(shape))]
    spatial, point = _kept(shape, axes, keeps, "1")
    x, s = program.load("x", [f"v{a}" for a in names]), element("s", point)
    loops = spatial + [(names[at], shape[at], "R") for at in axes]
    term = f"T.exp({x} - {_finite(program, element('m', point))})"
    program.add("total", loops, f"{s} = {total.combine.format(y=s, x=term)}", f"{s} = {program.zero()}")
    spatial, point = _kept(shape, axes, keeps, "2")
    text = f"T.log({element('s', point)}) + {_finite(program, element('m', point))}"
    text = program.precision.narrow(text)
    program.add("result", spatial, f"{element('y', point)} = {text}")
    return [site.operator(program.text(), [0])]


def _finite(program: Program, value: str) -> str:
    """A number in the accumulator's type, or 0 in the place of an infinite one."""
    return f"T.Select(T.abs({value}) == {literal(math.inf, program.precision.accumulator)}, {program.zero()}, {value})"


def _arg(how: str) -> Builder:
    """The first, or last, place of the extreme element: an extreme, and then the extreme of its places.

    Where some element is not a number, it is the place of such a one, as it is in NumPy: these count as a dimension's
    extent further to the front, or to the end, and so win.
    """

    def build(site: Site) -> Built:
        shape, dtype = site.shape(), site.dtype()
        if not (is_float(dtype) or is_int(dtype)) or not shape:
            return None
        axis, keeps, last = site.axis(), bool(site.attribute("keepdims", 1)), site.attribute("select_last_index", 0)
        result, extent = site.result().shape, shape[axis]
        program = Program(f"arg_{how}", plain(dtype))
        program.inputs([("x", shape)])
        program.output("y", result, "int64")
        program.alloc("m", result)
        add_reduction(program, REDUCTIONS[how], shape, [axis], "x", "m", keeps)
        into = program.alloc("place", result, "int64") if is_float(dtype) else "y"
        names = [f"{a}1" for a in letters(len(shape))]
        spatial, point = _kept(shape, [axis], keeps, "1")
        x, m, y = element("x", [f"v{a}" for a in names]), element("m", point), element(into, point)
        other, ahead = (-1, extent) if last else (extent, -extent)
        here = f"T.Cast('int64', v{names[axis]})"
        place = f"T.Select({x} == {m}, {here}, T.int64({other}))"
        if is_float(dtype):
            place = f"T.Select({x} != {x}, {here} + T.int64({ahead}), {place})"
        update = f"{y} = T.{'max' if last else 'min'}({y}, {place})"
        program.add("place", [*spatial, (names[axis], extent, "R")], update, f"{y} = T.int64({other})")
        if is_float(dtype):
            spatial, point = _kept(shape, [axis], keeps, "2")
            program.add("result", spatial, f"{element('y', point)} = {element(into, point)} % T.int64({extent})")
        return [site.operator(program.text(), [0])]

    return build


LONGEST_RUN = 1024
"""A running sum is a sum for each element, which is worth its square only where it is short; others run in order."""


def _running(name: str, sign: str, start: int) -> Builder:
    """Running sums or products: `sign` stands between elements, and `start` is what changes none."""

    def build(site: Site) -> Built:
        shape, dtype = site.shape(), site.dtype()
        given = site.integers(1)
        if not given or not (is_float(dtype) or is_int(dtype)) or not shape:
            return None
        axis = given[0] % len(shape)
        types = plain(dtype) if is_int(dtype) else precision(dtype)
        program = Program(name, types)
        program.inputs([("x", shape)])
        program.output("y", shape)
        target = program.alloc("total", shape) if types.is_mixed else "y"
        none = literal(start, types.accumulator)
        if shape[axis] > LONGEST_RUN:
            _in_order(site, program, target, axis, sign, none)
        else:
            _each(site, program, target, axis, sign, none)
        if types.is_mixed:
            names = letters(len(shape))
            program.stages("y", target, list(zip(names, shape, strict=True)), names, [("store", "{v}")])
        return [site.operator(program.text(), [0])]

    return build


def _each(site: Site, program: Program, target: str, axis: int, sign: str, none: str) -> None:
    """``y[i] = x[0] + ... + x[i]`` for each i by itself; without the element itself up to ``x[i - 1]``."""
    shape = site.shape()
    names = [f"v{a}" for a in letters(len(shape))]
    upper, lower = ("vr", names[axis]) if not site.attribute("reverse", 0) else (names[axis], "vr")
    order = "<" if site.attribute("exclusive", 0) else "<="
    x = program.load("x", [*names[:axis], "vr", *names[axis + 1 :]])
    y = element(target, names)
    loops = [(a, e, "S") for a, e in zip(letters(len(shape)), shape, strict=True)]
    value = f"T.if_then_else({upper} {order} {lower}, {x}, {none})"
    program.add("run", [*loops, ("r", shape[axis], "R")], f"{y} = {y} {sign} {value}", f"{y} = {none}")


def _in_order(site: Site, program: Program, target: str, axis: int, sign: str, none: str) -> None:
    """``y[i + 1] = y[i] + x[i + 1]`` in the order of i; without the element itself ``y[i + 1] = y[i] + x[i]``."""
    shape = site.shape()
    names, last = letters(len(shape)), shape[axis] - 1
    exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))

    def at(index: str, suffix: str) -> list[str]:
        place = f"{last} - ({index})" if reverse else index
        return [place if k == axis else f"v{a}{suffix}" for k, a in enumerate(names)]

    first = none if exclusive else program.load("x", at("0", "0"))
    rows = [(f"{a}0", e, "S") for k, (a, e) in enumerate(zip(names, shape, strict=True)) if k != axis]
    program.add("first", rows, f"{element(target, at('0', '0'))} = {first}")
    step = f"v{names[axis]}1"
    loops = [(f"{a}1", e - (k == axis), "O" if k == axis else "S")
             for k, (a, e) in enumerate(zip(names, shape, strict=True))]  # fmt: skip
    x = program.load("x", at(step if exclusive else f"{step} + 1", "1"))
    before = element(target, at(step, "1"))
    program.add("run", loops, f"{element(target, at(f'{step} + 1', '1'))} = {before} {sign} {x}")


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "ReduceSum"): _reduce("sum"),
    ("", "ReduceMean"): _reduce("mean"),
    ("", "ReduceMax"): _reduce("max"),
    ("", "ReduceMin"): _reduce("min"),
    ("", "ReduceProd"): _reduce("prod"),
    ("", "ReduceL1"): _reduce("l1"),
    ("", "ReduceL2"): _reduce("l2"),
    ("", "ReduceSumSquare"): _reduce("sum_square"),
    ("", "ReduceLogSum"): _reduce("log_sum"),
    ("", "ReduceLogSumExp"): _log_sum_exp,
    ("", "ArgMax"): _arg("max"),
    ("", "ArgMin"): _arg("min"),
    ("", "CumSum"): _running("cumsum", "+", 0),
    ("", "CumProd"): _running("cumprod", "*", 1),
}
