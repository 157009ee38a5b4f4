"""The schedule of a program of many shapes that the estimate likes best, where nothing was measured.

The estimate knows programs of one shape.  What it likes best at some sizes is taken over to all of them (`general`),
each schedule for the sizes around that for which it was made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...errors import ProgramError
from ...ir.ranges import fixed
from ...ir.size_ranges import Range, ranges_of
from ...ir.stmt import Layouts, PrimFunc
from ...ir.target import Target
from ...space.cases import SPECIALIZE, cases_of
from ...space.design.space import generate
from ...space.errors import ScheduleError
from ...space.interface import PACKED_AHEAD
from ...space.primitives.specialize import within
from ...space.schedule import Trace
from .estimated import favourites
from .general import LEAST, first_with, general

Steps: TypeAlias = "list[Any]"
Box: TypeAlias = "dict[str, list[int]]"

SHARES = (0.5, 0.08)
"""Where in the ranges the estimate is asked, a choice: the first schedule is for all sizes, others for smaller ones."""

DIVISORS = (2, 3, 5, 7)
"""What divides a number by chance, and tiles and vectors then: none of them divides the sizes at which it is asked."""
NEAR = 16
"""How many numbers away from a share these are looked for."""

SKETCHES = 4
"""Sketches whose best candidates are tried at a size, a choice: most take the first."""


@dataclass(frozen=True)
class Estimated:
    """The steps for all sizes; without any, or with sizes for which the program stays as it is, `notice` says why."""

    steps: Steps | None
    notice: str = ""


def estimated_steps(
    func: PrimFunc, target: Target, interface: Mapping[str, str], accept: Callable[[PrimFunc], object]
) -> Estimated:
    """The schedule of all sizes that the estimate likes best at some of them, of those that `accept` takes.

    That raises ProgramError for a program that cannot be lowered: then the schedule of all sizes is taken, without
    others for small ones, or else each is looked at alone, and the next sketch is asked where it is not taken.  What is
    proven from some size on alone has another schedule below that, or the program as it is written.
    """
    found = _estimated(func, target, interface, lambda _: None)
    if found.steps is None:
        return found
    for steps in (found.steps, *rest_of(found.steps)):
        with contextlib.suppress(ProgramError):
            accept(_scheduled(func, steps))
            return replace(found, steps=steps)
    return _estimated(func, target, interface, accept)


def rest_of(steps: Steps) -> list[Steps]:
    """Of variants that are not lowered together, the schedule of all sizes alone, where there is one.

    What is known of the sizes of a variant is not known of what lowering looks at in all of them.
    """
    cases = cases_of(steps)
    return [rest for _, rest in cases[-1:] if rest and len(cases) > 1]


def typical(numbers: Range, share: float) -> int:
    """The number next to a share of a range that has no other divisors than all of them have, as far as there is one.

    Of 1 to 512 the middle is 256, where vectors along the size and tiles of any power of two are whole; at nearly all
    others they are cut.
    """
    middle = int(share * (numbers.count - 1))
    near = range(max(0, middle - NEAR), min(numbers.count, middle + NEAR + 1))
    odd = [k for k in near if all((numbers.low // numbers.step + k) % divisor for divisor in DIVISORS)]
    return numbers.low + min(odd, key=lambda k: (abs(k - middle), k), default=middle) * numbers.step


def _estimated(
    func: PrimFunc, target: Target, interface: Mapping[str, str], accept: Callable[[PrimFunc], object]
) -> Estimated:
    """As `estimated_steps`, with schedules that `accept` takes each alone."""
    ranges = {v.name: numbers for v, numbers in ranges_of(func).items()}
    everywhere: PrimFunc | None = None
    steps: Steps = []
    cases: list[tuple[Box, Steps, PrimFunc]] = []
    refused: list[str] = []

    def ask(point: Mapping[str, int], boxes: Sequence[Box]) -> None:
        nonlocal everywhere, steps
        own, before = fixed(func, {v: point[v.name] for v in func.integers}), len(refused)
        for liked in _liked(own, target, interface):
            if everywhere is not None and _packed(_scheduled(own, liked), interface) != _packed(everywhere, interface):
                return
            for box in boxes:
                try:
                    made = general(liked, own, within(func, box) if box else func, target)
                    if made.trace.to_json() != steps:
                        accept(made.func)
                except ProgramError as error:
                    refused.append(f"with {', '.join(f'{name} = {size}' for name, size in point.items())}: {error}")
                    continue
                if not box:
                    everywhere, steps = made.func, made.trace.to_json()
                else:
                    cases.insert(0, (box, made.trace.to_json(), made.func))
                return
        if len(refused) == before:
            refused.append("its design space has no candidate")

    for share in SHARES:
        point = {name: typical(r, share) for name, r in ranges.items()}
        small = {name: [numbers.low, 2 * point[name]] for name, numbers in ranges.items()}
        ask(point, [{}, *_from(func, ranges, point)] if everywhere is None else [small])
    if everywhere is None:
        least = {name: numbers.low for name, numbers in ranges.items()}
        ask(least, [{}, *_below(ranges, [box for box, _, _ in cases])])
    rest = everywhere or func  # variants of one kernel take its arguments in the same layouts
    alike = [(box, own) for box, own, made in cases
             if (made.layouts, made.attrs) == (rest.layouts, rest.attrs) and own != steps]  # fmt: skip
    below = [name for name, numbers in ranges.items() if all(box[name][0] > numbers.low for box, _ in alike)]
    notice = ""
    if everywhere is None and (below or len(ranges) > 1):
        where = f"where {' or '.join(below)} is small: " if alike and below else ""
        notice = where + (refused[0] if refused else "its schedules want other layouts of weights")
    if not alike:
        return Estimated(steps if everywhere else None, notice)
    return Estimated([[SPECIALIZE, {"cases": [*map(list, alike), [{}, steps]]}]], notice)


def _scheduled(func: PrimFunc, steps: Steps) -> PrimFunc:
    return Trace.from_json(steps).replay(func).func


def _packed(func: PrimFunc, interface: Mapping[str, str]) -> Layouts:
    """How arrays that are packed ahead lie, which is the same for all variants of a kernel."""
    return tuple((name, layout) for name, layout in func.layouts if interface.get(name) in PACKED_AHEAD)


def _liked(func: PrimFunc, target: Target, interface: Mapping[str, str]) -> Iterator[Steps]:
    """The steps of what the estimate likes best for a program of one shape, one of each sketch, the best first."""
    space = generate(func, target, interface)
    for best in favourites(space)[:SKETCHES]:
        with contextlib.suppress(ScheduleError):
            yield space.sketches[best.sketch].schedule(best.row).trace.to_json()


def _from(func: PrimFunc, ranges: Mapping[str, Range], point: Mapping[str, int]) -> Iterator[Box]:
    """The ranges without the numbers for which some extent is small, as far as the point is inside."""
    for least in LEAST:
        low = {name: number for name in ranges if (number := first_with(func, ranges, name, least)) is not None}
        if all(name in low and low[name] <= point[name] for name in ranges):
            yield {name: [low[name], numbers.high] for name, numbers in ranges.items()}


def _below(ranges: Mapping[str, Range], boxes: list[Box]) -> Iterator[Box]:
    """The numbers below those for which there are schedules, of a single size."""
    if len(ranges) == 1 and boxes:
        ((name, numbers),) = ranges.items()
        first = min(box[name][0] for box in boxes)
        if first > numbers.low:
            yield {name: [numbers.low, first - 1]}
