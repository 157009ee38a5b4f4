"""Tensors that lie inside of others, so that operators which only move elements have nothing to do.

::

    y = concat(a, b)      a and b are computed where their parts of y are
    a, b = split(x)       a and b are read where they lie in x
    y = reshape(x)        both are one

An operator is such a view if its program is proven to put every element down at one distance, by input, from where it
was read (`moves`), and if the memory of the tensors may be one:

1. what becomes part of a result (`a`) is read whole, is part of nothing else, and belongs to the network: a constant
   or an array of the caller stays where it is;
2. it writes no other bytes than its own: it has no padding, or its operator touches none;
3. what is read inside of another tensor (`a` of `x`) is no result of the network, whose place the caller gives;
4. padding that must hold a number is nobody's part.

No kernel writes over a tensor that is part of another one or has parts (`in_place`), so that an element stays what it
is for as long as anything that shares its memory is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ..backends.kernel import BACKENDS
from ..ir.affine.sets import Domain, implies
from ..ir.arith.simplify import simplify
from ..ir.caches import cached
from ..ir.dataflow.accesses import Access
from ..ir.dataflow.instances import Statement, instances
from ..ir.expr import Const, Expr, Load, as_int, binary, const, substitute
from ..ir.stmt import PrimFunc, Store
from ..ir.target import Target
from .edges import EdgeLayout, arguments_of, layouts_of, lendable
from .network import Network, Operator


@dataclass(frozen=True)
class Move:
    """``result[p] = source[p + distance]`` for `count` elements; `source` and `result` are numbers of parameters."""

    source: int
    result: int
    distance: int
    count: int


@cached(1024)
def moves(func: PrimFunc) -> tuple[Move, ...]:
    """What a program moves, if that is all that it does and each statement at one distance; else nothing."""
    found = [_move(func, statement) for statement in instances(func).statements]
    return tuple(move for move in found if move is not None) if None not in found else ()


def _move(func: PrimFunc, statement: Statement) -> Move | None:
    stmt, write, reads = statement.stmt, statement.write, statement.reads
    if not isinstance(stmt, Store) or not isinstance(stmt.value, Load) or write is None or len(reads) != 1:
        return None
    extents = [extent for _, extent in statement.dims if isinstance(extent, int)]
    source, result = reads[0].buffer, write.buffer
    alike = not (reads[0].whole or write.whole) and source.dtype == result.dtype
    if not alike or not {source, result} <= {*func.params}:
        return None
    if statement.conditions or len(extents) < len(statement.dims):
        return None
    distance = simplify(_flat(reads[0]) - _flat(write), statement.bounds)
    first = simplify(substitute(distance, {v: const(0, v.dtype) for v in statement.variables}))
    if not isinstance(first, Const):
        return None
    if not isinstance(distance, Const) and not implies(Domain(statement.dims), binary("==", distance, first)):
        return None
    return Move(func.params.index(source), func.params.index(result), as_int(first), prod(extents))


def _flat(access: Access) -> Expr:
    """The number of an element in its buffer."""
    flat: Expr = const(0)
    for index, stride in zip(access.indices, access.buffer.strides, strict=True):
        flat = flat + index * stride
    return flat


@dataclass(frozen=True)
class Sharing:
    """What shares memory in a network.

    `layouts` has every tensor that a program touches, `lent` those of them that lie where the caller has them.
    `inside` says of a tensor in whose memory it lies, and how many bytes behind its beginning; `idle` are the
    operators that have nothing left to do.
    """

    layouts: Mapping[str, EdgeLayout]
    lent: Sequence[str] = ()
    inside: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()

    def root(self, name: str) -> tuple[str, int]:
        """The tensor that is part of no other one, and the bytes from its beginning to that of `name`."""
        offset = 0
        while name in self.inside:
            name, more = self.inside[name]
            offset += more
        return name, offset

    @property
    def shared(self) -> frozenset[str]:
        """The tensors that lie inside of others, and those inside of which others lie."""
        return frozenset({*self.inside, *(name for name, _ in self.inside.values())})


def sharing_of(network: Network, target: Target) -> Sharing:
    """What shares memory when the network runs on a target.  Raises UsageError where operators disagree on layouts."""
    layouts = layouts_of(network)
    inside: dict[str, tuple[str, int]] = {}
    if target.kind == "cpu":
        parts = _Parts(network, Sharing(layouts, lendable(network, layouts), inside), 1)
    else:  # devices ask for buffers that begin at certain multiples
        parts = _Parts(network, Sharing(layouts, (), inside), BACKENDS[target.kind]().alignment)
    idle: set[str] = set()
    for node in network.nodes:
        if isinstance(node, Operator) and (links := parts.links(node)):
            inside.update(links)
            idle.add(node.name)
    return replace(parts.sharing, idle=frozenset(idle))


class _Parts:
    """Finds tensors of operators that only move elements which may lie inside of other tensors."""

    def __init__(self, network: Network, sharing: Sharing, granule: int) -> None:
        self.network, self.sharing, self.granule = network, sharing, granule

    def links(self, node: Operator) -> dict[str, tuple[str, int]]:
        """Tensors inside of others, with their places, for which the operator need not run; empty if it must."""
        found = moves(node.func)
        if not found or len(node.outputs) != 1 or any(name in self.network.constants for name in node.inputs):
            return {}
        if any(move.source >= len(node.inputs) for move in found):  # from one part of the result to another
            return {}
        (result,) = node.outputs
        counts: dict[tuple[str, int], int] = {}
        lying = self._layout(result)
        size = lying.nbytes // max(1, prod(lying.layout.physical_shape))
        for move in found:
            place = node.inputs[move.source], move.distance * size
            counts[place] = counts.get(place, 0) + move.count
        distances = dict(counts.keys())
        if len(distances) < len(counts):
            return {}
        if len(distances) == 1 and (link := self._inside(result, *distances.popitem())):
            return link
        return self._gathered(result, {name: (-distance, counts[name, distance]) for name, distance in counts})

    def _inside(self, result: str, source: str, distance: int) -> dict[str, tuple[str, int]]:
        """A result that is read where it lies in the only tensor that the operator reads."""
        lying = self._layout(result)
        if result in self.sharing.lent or lying.initialised or lying.layout.promises:
            return {}
        fits = self._fits(distance, lying, self._layout(source))
        return {result: (source, distance)} if fits else {}

    def _gathered(self, result: str, parts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[str, int]]:
        """Tensors that are computed where the result has them: all that the operator reads, each of them whole."""
        links: dict[str, tuple[str, int]] = {}
        for name, (offset, count) in parts.items():
            owner, before = self.sharing.root(name)
            lying = self._layout(owner)
            whole = count == self._size(name) and (before, lying.nbytes) == (0, self._layout(name).nbytes)
            if not whole or owner in (*links, self.sharing.root(result)[0]) or not self._may_lie_elsewhere(owner):
                return {}
            if not self._fits(offset, lying, self._layout(result)):
                return {}
            links[owner] = result, offset
        return links if sum(count for _, count in parts.values()) == self._size(result) else {}

    def _may_lie_elsewhere(self, name: str) -> bool:
        """Conditions 1 and 2 of a tensor that is part of no other one."""
        lying = self._layout(name)
        if name in self.sharing.lent or lying.initialised:
            return False
        maker = self.network.producer.get(name)
        if not lying.layout.pads:
            return True
        return isinstance(maker, Operator) and dict(arguments_of(maker))[name].layout.pad_value is None

    def _fits(self, offset: int, part: EdgeLayout, whole: EdgeLayout) -> bool:
        """Whether what may be touched of the part is inside of the whole, and begins where tensors can."""
        return 0 <= offset <= whole.nbytes - part.reach and offset % self.granule == 0

    def _layout(self, name: str) -> EdgeLayout:
        return self.sharing.layouts[name]

    def _size(self, name: str) -> int:
        return prod(self.network.tensors[name].shape)
