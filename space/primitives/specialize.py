"""One program for all shapes, scheduled in several ways: the extents of a call choose among them.

Source: `Func.specialize` of Halide, whose condition here is one that extents are in ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...ir.expr import Binary, Buffer, Expr, Var, all_of, const
from ...ir.extents import widened
from ...ir.node import transform
from ...ir.passes.renaming import copied
from ...ir.ranges import fixed
from ...ir.statements import LONGEST
from ...ir.stmt import Assume, Block, If, Module, PrimFunc, Seq, Stmt, fresh, names, seq
from ..errors import ScheduleError
from ..primitive import PRIMITIVES, Result, find_primitive, primitive

Ranges = Mapping[str, Sequence[int]]


@primitive
def specialize(func: PrimFunc, cases: Sequence[Sequence[Any]]) -> Result:
    """``S`` -> ``if c1: S1, else if c2: S2, ..., else: Sn``, where each Sk is S after steps of its own.

    `cases` are pairs ``[ranges, steps]``: integers of the function with the least and the largest value that each of
    them has in this case, ``{"m": [1, 16]}``, and instructions as a trace holds them.  The first case whose ranges hold
    runs.  What its ranges say is known to its steps, as an assumption at the top; where they leave one value to each
    integer, the steps are those of the program of this shape.

    Conditions: (1) the extents of the function are expressions; (2) every case is a pair of ranges over integers of
    the function, and of a list of instructions; (3) the last one has no ranges, so that some case always runs; (4) no
    step draws a decision, and all cases give the parameters the same layouts; (5) each step is accepted.
    """
    if not func.stated:
        raise ScheduleError("(1) the extents of `{name}` are numbers: it has one case", name=func.name)
    found = [_checked(func, case) for case in cases]
    if not found or found[-1][0]:
        raise ScheduleError("(3) the last case must have no ranges, as in [{{}}, steps], so that some case always runs")
    top = func.body.body.stmts if isinstance(func.body.body, Seq) else (func.body.body,)
    known = [s for s in top if isinstance(s, Assume)]
    made = [_scheduled(func, ranges, steps, number) for number, (ranges, steps) in enumerate(found, 1)]
    last, taken = made[-1], names(func)
    bodies: list[Stmt] = []
    for number, one in enumerate(made, 1):
        if (one.layouts, one.attrs) != (last.layouts, last.attrs):
            raise ScheduleError("(4) case {number} gives the parameters of `{name}` other layouts than the last one",
                                number=number, name=func.name)  # fmt: skip
        bodies.append(copied(_body(one, last, fresh("case", taken)), taken))
    result = bodies.pop()
    for (ranges, _), body in zip(reversed(found[:-1]), reversed(bodies), strict=True):
        result = If(all_of(_conditions(func, ranges)), body, result)
    root = replace(func.body, allocs=(), body=seq([*known, result]))
    return replace(last, body=root), None


def _checked(func: PrimFunc, case: Sequence[Any]) -> tuple[Ranges, list[Any]]:
    """The ranges and the steps of a case."""
    known = {v.name for v in func.integers}
    if len(case) != 2 or not isinstance(case[0], dict) or not isinstance(case[1], list):
        raise ScheduleError("(2) a case is [ranges, steps], but got {case!r}", case=case)
    for name, ends in case[0].items():
        if name not in known:
            raise ScheduleError("(2) `{func}` has no integer `{name}`; there are {known}",
                                func=func.name, name=name, known=", ".join(sorted(known)))  # fmt: skip
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) is int for end in ends)
                and 0 <= ends[0] <= ends[1] <= LONGEST):  # fmt: skip
            raise ScheduleError("(2) the range of `{name}` is [least, largest], but got {ends!r}", name=name, ends=ends)
    return case[0], case[1]


def within(func: PrimFunc, ranges: Ranges) -> PrimFunc:
    """The function for integers in ranges, by name the least and the largest value, which it assumes at the top."""
    return func.with_body(replace(func.body, body=seq([*map(Assume, _conditions(func, ranges)), func.body.body])))


def _conditions(func: PrimFunc, ranges: Ranges) -> list[Expr]:
    """What holds of the integers that have ranges."""
    found: list[Expr] = []
    for var in func.integers:
        if var.name in ranges:
            low, high = ranges[var.name]
            found += [Binary("<=", const(low), widened(var)), Binary("<=", widened(var), const(high))]
    return found


def _scheduled(func: PrimFunc, ranges: Ranges, steps: Sequence[Any], number: int) -> PrimFunc:
    """The function of one case: that of its shape where there is only one, else with its ranges assumed."""
    values = {v: ranges[v.name][0] for v in func.integers if v.name in ranges and len(set(ranges[v.name])) == 1}
    if len(values) == len(func.integers):
        given = fixed(func, values)
    else:
        given = within(func, ranges)
    try:
        return _replayed(given, steps)
    except ScheduleError as error:
        raise ScheduleError("(5) case {number}: {error}", number=number, error=error) from None


def _body(made: PrimFunc, last: PrimFunc, name: str) -> Block:
    """The body of a case over the parameters that the last one has, without what is assumed of integers."""
    own = dict(zip(made.params, last.params, strict=True))
    body = transform(made.body, partial(_parameter, own))
    assert isinstance(body, Block)
    inside = body.body.stmts if isinstance(body.body, Seq) else (body.body,)
    return replace(body, name=name, body=seq([s for s in inside if not isinstance(s, Assume)]))


def _parameter(own: Mapping[Buffer | Var, Buffer | Var], node: object) -> object:
    """The parameter of the function for that of a program of one shape."""
    return own.get(node, node) if isinstance(node, Buffer | Var) else node


def _replayed(func: PrimFunc, steps: Sequence[Any]) -> PrimFunc:
    module = Module((func,))
    for step in steps:
        if not isinstance(step, list) or len(step) != 2 or not isinstance(step[1], dict):
            raise ScheduleError("(4) an instruction of a case is [name, arguments], but got {step!r}", step=step)
        name, arguments = step
        if name not in PRIMITIVES or PRIMITIVES[name].draw is not None:
            raise ScheduleError("(4) `{name}` is no primitive that a case may have", name=name)
        module, _, _ = find_primitive(name).apply_in(module, func.name, arguments)
    return module[func.name]
