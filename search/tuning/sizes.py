"""At which sizes a program of many shapes is measured: drawn from its ranges, the likely numbers as often as is said.

Draws are those of a low-discrepancy sequence, the same for the same ranges, so that two searches are judged alike.
Source: M. Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018 (the R sequence).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UsageError, did_you_mean
from ...ir.ranges import preconditions, valued
from ...ir.size_ranges import Range, ranges_of
from ...ir.statements import LONGEST
from ...ir.stmt import PrimFunc
from ...numerals import real, whole

Likely = Mapping[str, Mapping[int, float]]
"""For a size the numbers that are more likely than others, and how likely each is."""

FAR = 8  # times the least number of a range, behind which a draw does not stand for it, a choice
TRIES = 64  # draws for each one that the program takes, a choice


@dataclass(frozen=True, eq=False)
class Point:
    """The values of a program's sizes, and which share of all draws they are; each is equal to itself alone."""

    values: Mapping[str, int]
    weight: float = 1.0

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values.items())


def told(values: Mapping[str, int | Range], names: Mapping[str, str]) -> str:
    """Values and ranges of sizes, by the `names` that the user knows these by: ``m=1,n=2..128``."""
    shown = {name: value.low if isinstance(value, Range) and value.count == 1 else value
             for name, value in values.items()}  # fmt: skip
    return ",".join(f"{names.get(name, name)}={value}" for name, value in shown.items())


def likely_of(text: str) -> dict[str, dict[int, float]]:
    """``m=1:0.5,128:0.3`` as numbers with their shares.  Raises UsageError."""
    name, equals, rest = text.partition("=")
    found: dict[int, float] = {}
    for item in rest.split(","):
        said, _, of_all = item.partition(":")
        number, share = whole(said), real(of_all)
        if number is None or share is None:
            equals = ""
            break
        found[number] = share
    if not equals or not name.strip() or any(not 0 < share <= 1 for share in found.values()):
        raise UsageError(f"--likely takes NAME=NUMBER:SHARE,... as in m=1:0.5,128:0.3, but got {text!r}")
    return {name.strip(): found}


def checked_ranges(func: PrimFunc, likely: Likely, names: Mapping[str, str]) -> dict[str, Range]:
    """The ranges of the program's sizes by name; `names` are those that the user knows them by, where these differ.

    Raises UsageError for one without an end, and for what `likely` says of no size, or of a number out of its range.
    """
    found = {var.name: numbers for var, numbers in ranges_of(func).items()}
    for name, numbers in found.items():
        if numbers.high >= LONGEST:
            raise UsageError(f"nothing says how large `{name}` may be; state it at the top of `{func.name}`, as in "
                             f"T.assume({name} <= 512)")  # fmt: skip
    known = {names.get(name, name): numbers for name, numbers in found.items()}
    for name, shares in likely.items():
        if name not in known:
            raise UsageError(f"--likely names {name!r}, which is no size of `{func.name}`{did_you_mean(name, known)}; "
                             f"there are {', '.join(known)}")  # fmt: skip
        for number, share in shares.items():
            if not 0 < share <= 1:
                raise UsageError(f"--likely says {name}={number} with the share {share:g}, which is not above 0 and "
                                 f"at most 1")  # fmt: skip
            if number not in known[name]:
                raise UsageError(f"--likely says {name}={number}, but the range is {known[name]}")
        if sum(shares.values()) > 1.0 + 1e-9:
            raise UsageError(f"the shares of --likely {name} add up to {sum(shares.values()):g}, more than 1")
    return found


def drawn(func: PrimFunc, ranges: Mapping[str, Range], likely: Likely, count: int, skip: int = 0) -> list[Point]:
    """Points that the program takes, `count` of them with their weights; equal ones come as one.

    `skip` leaves out so many draws at the beginning, those of another call.
    """
    found: Counter[tuple[int, ...]] = Counter()
    for number, values in enumerate(_sequence(ranges, likely)):
        if number >= skip and takes(func, dict(zip(ranges, values, strict=True))):
            found[values] += 1
        if found.total() == count or number > TRIES * (count + skip):
            break
    return [Point(dict(zip(ranges, values, strict=True)), times / found.total()) for values, times in found.items()]


def with_small(func: PrimFunc, ranges: Mapping[str, Range], likely: Likely, points: Sequence[Point]) -> list[Point]:
    """The points, and for each size of which nothing likely is said its least number and one between that and theirs.

    Below the least draw of a long range much differs that is the same above: what is packed for one row, say, or who
    waits for whom.  They share the weight of that draw, and stand where it does for the other sizes.
    """
    found = list(points)
    for name, numbers in ranges.items():
        least = min(points, key=lambda point: point.values[name])
        low, high = max(numbers.low, 1), least.values[name]
        if name in likely or high < FAR * low:
            continue
        values = dict.fromkeys((low, round((low * high) ** 0.5 / numbers.step) * numbers.step))
        given = [{**least.values, name: value} for value in values if value in numbers]
        small = [point for point in given if takes(func, point)]
        share = least.weight / (len(small) + 1)
        found = [Point(p.values, share) if p is least else p for p in found] + [Point(p, share) for p in small]
    return found


def takes(func: PrimFunc, values: Mapping[str, int]) -> bool:
    """Whether these values meet what the program assumes."""
    known = {var: values[var.name] for var in func.integers}
    return all(valued(cond, known) for cond in preconditions(func))


def _sequence(ranges: Mapping[str, Range], likely: Likely) -> Iterator[tuple[int, ...]]:
    golden = 2.0
    for _ in range(40):  # the root of x^(d+1) = x + 1
        golden = (1 + golden) ** (1 / (len(ranges) + 1))
    number = 0
    while True:
        shares = [(0.5 + number / golden ** (place + 1)) % 1.0 for place in range(len(ranges))]
        yield tuple(
            _number(share, numbers, likely.get(name, {}))
            for share, (name, numbers) in zip(shares, ranges.items(), strict=True)
        )
        number += 1


def _number(share: float, numbers: Range, likely: Mapping[int, float]) -> int:
    """The number below which this share of all draws lies: the likely ones first, and then the range."""
    for number, own in likely.items():
        if share < own:
            return number
        share -= own
    rest = max(1.0 - sum(likely.values()), 1e-9)
    return numbers.low + numbers.step * min(int(share / rest * numbers.count), numbers.count - 1)
