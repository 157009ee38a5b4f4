"""The last of several accesses before another, as relations of isl.

Everything here is a dictionary of isl maps by tag: ``elements[e]`` from instances to
elements of one memory, ``times[e]`` from instances to points in time.  With ``w < r`` for
"touches the same element, earlier"::

    sure[r, w]    =  { r -> w :  w < r, and no sure write is between }
    maybe[r, w]   =  { r -> w :  w < r, and no sure write is between }        w may not run

isl's `UnionAccessInfo.compute_flow` answers the first quickly, but forgets reads where an
element is written through a remainder: they come out neither with a source nor without one.
These are found again by lexicographic maxima.  Called inside a `guard.question`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import islpy as isl

Maps = Mapping[str, Any]
Pairs = dict[tuple[str, str], Any]


def sure_writers(reads: Sequence[str], writes: Sequence[str], elements: Maps, times: Maps) -> Pairs:
    """The last of `writes`, all of which run, before each instance of `reads`."""
    if not reads or not writes:
        return {}
    info = isl.UnionAccessInfo.from_sink(_union(elements[r] for r in reads))
    info = info.set_must_source(_union(elements[w] for w in writes))
    flow = info.set_schedule_map(_union(times[e] for e in (*reads, *writes))).compute_flow()
    found: Pairs = {}
    parts: list[Any] = []
    flow.get_must_dependence().reverse().foreach_map(parts.append)
    for part in parts:
        found[part.get_tuple_name(isl.dim_type.in_), part.get_tuple_name(isl.dim_type.out)] = part
    sourceless = flow.get_may_no_source().domain()
    for read in reads:
        everything = elements[read].domain()
        settled = [sourceless.extract_set(everything.get_space())]
        settled += [found[read, w].domain() for w in writes if (read, w) in found]
        lost = reduce(lambda rest, part: rest.subtract(part), settled, everything)
        if not lost.is_empty():
            _find(found, read, lost, writes, elements, times)
    return found


def _find(found: Pairs, read: str, lost: Any, writes: Sequence[str], elements: Maps, times: Maps) -> None:
    """Add the last of `writes` for the instances `lost` of a read, by the latest time of each."""
    earlier = {w: _earlier(elements[read].intersect_domain(lost), times[read], elements[w], times[w]) for w in writes}
    then = [pairs.apply_range(times[w]) for w, pairs in earlier.items() if not pairs.is_empty()]
    if not then:
        return
    latest = reduce(lambda a, b: a.union(b), then).lexmax()
    for write, pairs in earlier.items():
        own = pairs.intersect(latest.apply_range(times[write].reverse()))
        if not own.is_empty():
            found[read, write] = own if (read, write) not in found else found[read, write].union(own)


def possible_writers(reads: Sequence[str], possible: Sequence[str], sure: Pairs, elements: Maps, times: Maps) -> Pairs:
    """The writes of `possible`, which need not run, that come between each read and its last sure write."""
    found: Pairs = {}
    for read in reads:
        last = [pairs.apply_range(times[w]) for (r, w), pairs in sure.items() if r == read]
        for write in possible:
            pairs = _earlier(elements[read], times[read], elements[write], times[write])
            for then in last:
                before = then.apply_range(_later_to_earlier(then)).apply_range(times[write].reverse())
                pairs = pairs.subtract(before)
            if not pairs.is_empty():
                found[read, write] = pairs
    return found


def _earlier(reads: Any, read_times: Any, writes: Any, write_times: Any) -> Any:
    """``{ r -> w : w < r }``."""
    same = reads.apply_range(writes.reverse())
    before = read_times.apply_range(_later_to_earlier(read_times)).apply_range(write_times.reverse())
    return same.intersect(before)


def _later_to_earlier(times: Any) -> Any:
    return isl.Map.lex_gt(times.get_space().range())


def _union(maps: Iterable[Any]) -> Any:
    return reduce(lambda a, b: a.union(b), (isl.UnionMap.from_map(m) for m in maps))
