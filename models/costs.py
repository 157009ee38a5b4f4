"""What a network costs by the layouts of its tensors, from what is known of each kind of operator.

Costs are asked for by kind and combination of layouts (`kinds.py`), so that what is equal is priced and measured once,
and looked up in tables whose shape never changes while a network is tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf

import numpy as np

from ..ir.layout.layout import Dim, Layout
from ..ir.target import Target
from .agreement import Agreement, Costs, OperatorCosts, Prefers, agree
from .elimination import Table
from .kinds import Combination, Kind, copy_kind, kind_of, tensors_of
from .network import Network, Node, Operator
from .tasks import weights_of
from .views import sharing_of

Alternatives = Mapping[str, tuple[Layout, ...]]
"""By tensor, the first as ONNX has it."""
Form = tuple[Dim, ...]
"""The physical dimensions of a layout, without halos: what lies together."""
Price = Callable[[Kind, Combination], float]
"""Microseconds of a combination, infinite where it is not to be had."""


@dataclass(frozen=True, eq=False)
class Grid:
    """All combinations of a kind whose tensors have these alternatives; those that do not fit are left out."""

    kind: Kind
    alternatives: tuple[tuple[Layout, ...], ...]

    @cached_property
    def combinations(self) -> tuple[tuple[tuple[int, ...], Combination], ...]:
        """Places in the table with what stands there."""
        found = []
        for place in product(*(range(len(some)) for some in self.alternatives)):
            layouts = tuple(some[k] for some, k in zip(self.alternatives, place, strict=True))
            if self.kind.fits(layouts):
                chosen = tuple(k for k, some in zip(place, self.alternatives, strict=True) if _has_choice(some))
                found.append((chosen, layouts))
        return tuple(found)

    @cached_property
    def idle(self) -> frozenset[Combination]:
        """The combinations in which there is nothing to do."""
        return frozenset(layouts for _, layouts in self.combinations if self.kind.is_idle(layouts))

    def uniform(self, form: Form) -> Combination:
        """Every tensor in the form, without halo, as ONNX has it where it cannot lie so."""
        found = []
        for some in self.alternatives:
            same = (layout for layout in some if layout.dims == form and not layout.has_halo)
            found.append(next(same, some[0]))
        return tuple(found)

    def table(self, price: Price) -> Table:
        """The costs, an axis for each tensor that has a choice: an array has room for no more than 64."""
        table = np.full([len(some) for some in self.alternatives if _has_choice(some)], inf)
        for place, layouts in self.combinations:
            table[place] = 0.0 if layouts in self.idle else price(self.kind, layouts)
        return table


class CostTables:
    """The costs of a network, made of those of its kinds."""

    def __init__(self, network: Network, alternatives: Alternatives, target: Target) -> None:
        self.network, self.alternatives = network, alternatives
        self._idle = sharing_of(network, target).idle
        self._weights = weights_of(network, target)
        self._grids: dict[tuple[object, ...], Grid] = {}
        self._operators: list[tuple[Node, tuple[str, ...], tuple[str, ...], Grid | None]] = []
        for node in network.nodes:
            reads, writes = tensors_of(network, node)
            if reads or writes:
                self._operators.append((node, reads, writes, self._grid(node, (*reads, *writes))))
        self._copies: dict[str, Grid | None] = {
            name: self._copy_grid(name) for name in network.tensors if name not in network.constants
        }

    def _grid(self, node: Node, names: tuple[str, ...]) -> Grid | None:
        """The grid that operators of one kind share where their tensors have the same alternatives."""
        if not isinstance(node, Operator):
            return None
        kind = kind_of(self.network, node, self._weights, node.name in self._idle)
        some = tuple(self.alternatives[name] for name in names)
        return self._grids.setdefault((kind, some), Grid(kind, some))

    def _copy_grid(self, name: str) -> Grid | None:
        some = self.alternatives[name]
        if len(some) < 2:
            return None
        kind = copy_kind(self.network.tensors[name], self._weights.nbytes)
        return self._grids.setdefault((kind, some), Grid(kind, (some, some)))

    @cached_property
    def grids(self) -> Mapping[Kind, Grid]:
        """The kinds of operators, with one of their grids."""
        return {grid.kind: grid for *_, grid in reversed(self._operators) if grid is not None}

    def under_rule(self, prefers: Prefers) -> Agreement:
        """The tensors as a rule has them, with the fewest copies."""
        return agree(self.costs(lambda *_: 1.0), prefers)

    @property
    def as_given(self) -> Agreement:
        """Everything as ONNX has it."""
        read = {(node.name, name): 0 for node, reads, _, _ in self._operators for name in reads}
        return Agreement(inf, dict.fromkeys(self._copies, 0), read, ())

    def costs(self, price: Price) -> Costs:
        """The costs of all operators and copies."""
        tables = {grid: grid.table(price) for grid in self._grids.values()}
        operators = []
        for node, *sides, grid in self._operators:
            reads, writes = (tuple(name for name in side if _has_choice(self.alternatives[name])) for side in sides)
            table = np.zeros([len(self.alternatives[name]) for name in (*reads, *writes)])
            operators.append(OperatorCosts(node.name, reads, writes, table if grid is None else tables[grid]))
        copies = {}
        for name, copy in self._copies.items():
            copies[name] = np.zeros((1, 1)) if copy is None else _without_diagonal(tables[copy])
        outside = frozenset({*self.network.inputs, *self.network.outputs} & copies.keys())
        return Costs(tuple(operators), copies, outside)

    def chosen(self, agreement: Agreement) -> Iterator[tuple[Kind, Combination]]:
        """The kind and the layouts of each operator and copy under an agreement; none where it found nothing.

        What only moves elements and has nothing to do is left out.
        """
        if not agreement.written:
            return
        for node, reads, writes, grid in self._operators:
            if grid is not None:
                places = [agreement.read.get((node.name, name), 0) for name in reads]
                places += [agreement.written[name] for name in writes]
                combination = tuple(some[k] for some, k in zip(grid.alternatives, places, strict=True))
                if combination not in grid.idle:
                    yield grid.kind, combination
        for copy in agreement.copies:
            found = self._copies[copy.tensor]
            assert found is not None
            yield found.kind, (found.alternatives[0][copy.source], found.alternatives[0][copy.target])


def _has_choice(some: Sequence[Layout]) -> bool:
    """Whether a tensor with these alternatives has a choice."""
    return len(some) > 1


def _without_diagonal(table: Table) -> Table:
    """A tensor that stays as it is costs no copy."""
    found = table.copy()
    np.fill_diagonal(found, 0.0)
    return found
