"""Axes in normal form: iterators and dimensions in digits, so that every index is linear in plain axes.

A grouped convolution reads ``x[n, co // 8 * 4 + ci]`` and a pixel shuffle ``x[n, c*4 + h % 2 * 2 + w % 2, h // 2]``.
Neither index is linear, but each becomes so in the digits of its iterators, ``co = 8 g + c``:

    y[n, co] += x[n, co // 8 * 4 + ci] * w[co, ci]   ->   y[n, g, c] += x[n, g, ci] * w[g, c, ci]

Iterators and dimensions are *cut* at strides 1 < c1 < c2 < .. < extent, each a divisor of the next:

1. an iterator is cut at c where ``v // c`` or ``v % c`` stands in its block;
2. a dimension is cut where iterators index it as digits, ``g*8 + c``, and gap by gap up to its extent;
3. what indexes a dimension, and what it indexes, is cut alike; a dimension that is also indexed in another way
   (``h + kh``) is not cut, and where the cuts do not divide one another a reason for them is left out.

Iterators that only occur together, ``b*H + i``, are one: they are fused first.  In primitives:
`transform_block_layout` of each block and `transform_layout` of each buffer, by maps that keep the order of elements,
so that also a parameter which the caller fixes stays as it is in memory.  A program whose indices are linear and whose
results have dimensions of their own for their axes is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ....ir.arith.linear import linear_form
from ....ir.expr import Binary, Buffer, Expr, Var, variables
from ....ir.layout.digits import digit
from ....ir.layout.index_map import IndexMap
from ....ir.node import walk
from ....ir.stmt import Block, PrimFunc, Store
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import find_block, has_plain_bindings, leaf_blocks
from ..index_maps import fusing
from ..program import accesses_of, variables_outside_of_indices
from .technique import Technique

Place = tuple[str, str, int]
"""An iterator, ``("iterator", block, number)``, or a dimension, ``("dimension", buffer, number)``."""

Cuts = Mapping[Place, frozenset[int]]


def _in_normal_form(schedule: Schedule, constants: frozenset[str]) -> Schedule:
    """The schedule with iterators fused and cut, and dimensions cut, as far as every primitive allows it."""
    schedule = _with_fused_iterators(schedule)
    indices = _Indices.of(schedule.func)
    cuts = indices.cuts()
    if not cuts:
        return schedule
    cut = schedule.copy()
    try:
        for block in leaf_blocks(schedule.func.body):
            places = [("iterator", block.name, k) for k in range(len(block.iters))]
            if any(cuts.get(place) for place in places):
                cut.transform_block_layout(block.name, _cutting(places, indices.extents, cuts))
        for buffer, block_name in indices.buffers.items():
            places = [("dimension", buffer.name, d) for d in range(len(buffer.shape))]
            if any(cuts.get(place) for place in places):
                cut.transform_layout(block_name, buffer.name, _cutting(places, indices.extents, cuts))
    except ScheduleError:
        return schedule
    return cut


def _cutting(places: Sequence[Place], extents: Mapping[Place, int], cuts: Cuts) -> IndexMap:
    """The index map that writes each place in its digits, the highest first."""
    names = tuple(Var(f"d{k}") for k in range(len(places)))
    digits: list[Expr] = []
    for name, place in zip(names, places, strict=True):
        edges = [1, *sorted(cuts.get(place, ())), extents[place]]
        for low, high in reversed(list(pairwise(edges))):
            rest = name if low == 1 else name // low
            digits.append(rest if high == edges[-1] else rest % (high // low))
    return IndexMap(names, tuple(digits))


# ---------------------------------------------------------------- iterators that are one


def _with_fused_iterators(schedule: Schedule) -> Schedule:
    """The schedule with iterators fused that only occur together, as ``b*H + i``."""
    for name in [block.name for block in leaf_blocks(schedule.func.body)]:
        while (pair := _together(find_block(schedule.func, name))) is not None:
            fused, block = schedule.copy(), find_block(schedule.func, name)
            try:
                fused.transform_block_layout(name, fusing(len(block.iters), *pair, block.iters[pair[1]].extent))
            except ScheduleError:
                break
            schedule = fused
    return schedule


def _together(block: Block) -> tuple[int, int] | None:
    """Two iterators of one kind, high and low digit, of which no index has one without the other."""
    if not has_plain_bindings(block):
        return None
    forms = [linear_form(index)[0] for access in accesses_of(block) for index in access.indices]
    loose = {v for form in forms for atom in form if not isinstance(atom, Var) for v in variables(atom)}
    elsewhere = variables_outside_of_indices(block)
    for high, a in enumerate(block.iters):
        for low, b in enumerate(block.iters):
            if high == low or a.kind != b.kind or {a.var, b.var} & (loose | elsewhere):
                continue
            used = [(form.get(a.var, 0), form.get(b.var, 0)) for form in forms if a.var in form or b.var in form]
            if used and all(y != 0 and x == y * b.extent for x, y in used):
                return high, low
    return None


# ---------------------------------------------------------------- where to cut


@dataclass(frozen=True)
class _Link:
    """Digits that a dimension and an iterator share: from stride `scale` to `end`, and from stride `low` on."""

    dimension: Place
    iterator: Place
    scale: int
    end: int
    low: int = 1


@dataclass
class _Indices:
    """How the iterators of a program index the dimensions of its buffers.

    `needs` are the reasons to cut, places with a stride; `wishes` are dimensions that are read by digits, which are
    cut where that cuts no reduction further.  `rigid` are dimensions that cannot be cut.
    """

    extents: dict[Place, int] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    links: list[_Link] = field(default_factory=list)
    needs: list[tuple[Place, int]] = field(default_factory=list)
    wishes: list[tuple[Place, int]] = field(default_factory=list)
    rigid: set[Place] = field(default_factory=set)
    reducing: set[Place] = field(default_factory=set)

    @staticmethod
    def of(func: PrimFunc) -> _Indices:
        found = _Indices()
        for block in leaf_blocks(func.body):
            found._add(block)
        return found

    def _add(self, block: Block) -> None:
        place_of = {i.var: ("iterator", block.name, k) for k, i in enumerate(block.iters)}
        plain = has_plain_bindings(block)
        for item in block.iters:
            self.extents[place_of[item.var]] = item.extent
            if block.reduce:
                self.reducing.add(place_of[item.var])
        for node in walk(block.body):
            found = digit(node) if isinstance(node, Binary) and node.op in ("//", "%") else None
            if found is not None and plain and found.of in place_of and found.offset == 0:
                place = place_of[found.of]  # type: ignore[index]
                self.needs += [(place, c) for c in (found.low, found.high or 1) if 1 < c < self.extents[place]]
        for access in accesses_of(block):
            self.buffers.setdefault(access.buffer, block.name)
            for d, index in enumerate(access.indices):
                place = ("dimension", access.buffer.name, d)
                self.extents[place] = access.buffer.shape[d]
                self._index(place, index, place_of if plain else {}, isinstance(access, Store))

    def _index(self, place: Place, index: Expr, place_of: Mapping[Var, Place], stored: bool) -> None:
        """One index of one access."""
        terms, offset = linear_form(index)
        if not terms:
            return
        links = _chain(place, _digits_of(terms, place_of, self.extents))
        extent = self.extents[place]
        if links and not stored and not offset and links[-1].end < extent:  # the first elements of a dimension
            links[-1] = replace(links[-1], end=extent - extent % links[-1].scale)
        if not links or offset % links[-1].end or extent % links[-1].end:
            self.rigid.add(place)
            return
        self.links += links
        inner = [(place, link.end) for link in links if 1 < link.end < self.extents[place]]
        (self.needs if stored and len(links) > 1 else self.wishes).extend(inner)

    def cuts(self) -> Cuts:
        """The cuts of every place that has some."""
        taken: list[tuple[Place, int]] = []
        found: Cuts = {}
        for need in sorted(self.needs, key=self._order):
            more = self._closed([*taken, need])
            if more is not None:
                taken, found = [*taken, need], more
        for wish in sorted(self.wishes, key=self._order) if taken else ():
            more = self._closed([*taken, wish])
            if more is not None and all(more.get(place) == found.get(place) for place in self.reducing):
                taken, found = [*taken, wish], more
        return found

    def _order(self, reason: tuple[Place, int]) -> tuple[int, int]:
        """A sort key of reasons that is the same whatever places are called: the extent, then the stride."""
        return self.extents[reason[0]], reason[1]

    def _closed(self, reasons: Iterable[tuple[Place, int]]) -> Cuts | None:
        """The cuts that `reasons` demand, and those that follow; None where some do not divide one another."""
        cuts: defaultdict[Place, set[int]] = defaultdict(set)
        for place, stride in reasons:
            if place in self.rigid:
                return None
            cuts[place].add(stride)
        links = [link for link in self.links if link.dimension not in self.rigid]
        size = -1
        while size != (size := sum(map(len, cuts.values()))):
            for link in links:
                if not self._follow(link, cuts):
                    return None
        for place, strides in cuts.items():
            if any(high % low for low, high in pairwise([1, *sorted(strides), self.extents[place]])):
                return None
        return {place: frozenset(strides) for place, strides in cuts.items() if strides}

    def _follow(self, link: _Link, cuts: defaultdict[Place, set[int]]) -> bool:
        """Cut both ends of a link alike; False where that is not possible."""
        whole, part = cuts[link.dimension], cuts[link.iterator]
        high = link.end // link.scale * link.low
        whole |= {link.scale * stride // link.low for stride in part if link.low < stride < high}
        if whole:
            whole |= {edge for edge in (link.scale, link.end) if 1 < edge < self.extents[link.dimension]}
        inside = {stride for stride in whole if link.scale < stride < link.end}
        part |= {link.low * stride // link.scale for stride in inside}
        return not any(link.low * stride % link.scale for stride in inside)


@dataclass(frozen=True)
class _Term:
    """A digit of an iterator in an index: its stride there, how many values it has, and its stride in the iterator."""

    scale: int
    count: int
    iterator: Place
    low: int


def _digits_of(terms: Mapping[Expr, int], place_of: Mapping[Var, Place], extents: Mapping[Place, int]) -> list[_Term]:
    """The terms of an index as digits of iterators, the lowest first; empty if one is something else."""
    found: list[_Term] = []
    for atom, scale in terms.items():
        one = digit(atom)
        if one is None or not isinstance(one.of, Var) or one.of not in place_of or one.offset or scale < 1:
            return []
        place = place_of[one.of]
        high = extents[place] if one.high is None else one.high
        if extents[place] % high or high % one.low:
            return []
        found.append(_Term(scale, high // one.low, place, one.low))
    return sorted(found, key=lambda term: (term.scale, term.count))


def _chain(place: Place, terms: Sequence[_Term]) -> list[_Link]:
    """The digits as links of a dimension, the lowest first; empty where there is a gap or an overlap between them."""
    links: list[_Link] = []
    end = 1
    for term in terms:
        if term.scale != end:
            return []
        end = term.scale * term.count
        links.append(_Link(place, term.iterator, term.scale, end, term.low))
    return links


DIGITS = Technique(prepares=_in_normal_form)
