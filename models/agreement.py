"""Which layout each tensor has between the operators that share it: the cheapest whole, exactly.

Each tensor has alternatives (`alternatives.alternatives`), each operator a cost for each combination of the layouts of
what it reads and writes, measured or predicted, and each pair of layouts of a tensor the cost of a copy.  What is
chosen is the layout in which each tensor is written, the copies that are made of it, and the one of these that each
operator reads; the sum of the costs of operators and copies is least.  A copy serves all its readers.

    written(t) -- copies(t) -- read(t, consumer)      costs: operator over its read and written, copies over theirs
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from .elimination import LIMIT, Factor, Table, solve


@dataclass(frozen=True)
class OperatorCosts:
    """Microseconds of an operator for each combination of layouts: an axis for each tensor read, then each written."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    table: Table


@dataclass(frozen=True)
class Costs:
    """What a network costs by layouts, which are numbered for each tensor; number 0 is how ONNX has it.

    `copies` has, for each tensor, the microseconds from one layout to another; what comes into the network and what
    leaves it, `outside`, is in layout 0.
    """

    operators: tuple[OperatorCosts, ...]
    copies: Mapping[str, Table]
    outside: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Copy:
    """A tensor is copied from one of its layouts to another."""

    tensor: str
    source: int
    target: int


@dataclass(frozen=True)
class Agreement:
    """The layouts that cost least: `written` by tensor, `read` by operator and tensor, and the copies between them."""

    cost: float
    written: Mapping[str, int]
    read: Mapping[tuple[str, str], int]
    copies: tuple[Copy, ...]

    def combination(self, operator: OperatorCosts) -> tuple[int, ...]:
        """The entry of an operator's costs."""
        reads = (self.read[operator.name, t] for t in operator.reads)
        return (*reads, *(self.written[t] for t in operator.writes))


Prefers = Mapping[str, Collection[int]]
"""The layouts in which a tensor is to be written if it can be."""
AVOIDED = 1e9
"""Microseconds that another layout than the preferred counts as."""


def agree(costs: Costs, prefers: Prefers | None = None, limit: int = LIMIT) -> Agreement:
    """The cheapest layouts; their cost is infinite where no layouts go together.

    With `prefers`, each tensor that it names is written in one of those layouts wherever it can be: what a rule for all
    would choose, to compare with.
    """
    factors = _factors(costs)
    for tensor, some in (prefers or {}).items():
        others = np.where(np.isin(np.arange(len(costs.copies[tensor])), list(some)), 0.0, AVOIDED)
        factors.append(Factor((_written(tensor),), others))
    cost, values = solve(factors, limit)
    if not values:
        return Agreement(inf, {}, {}, ())
    written = {t: values[_written(t)] for t in costs.copies}
    cost -= AVOIDED * sum(written[t] not in some for t, some in (prefers or {}).items())
    read = {(o.name, t): values[_read(o.name, t)] for o in costs.operators for t in o.reads}
    wanted = {(t, layout) for (_, t), layout in read.items()} | {(t, 0) for t in costs.outside}
    copies = tuple(Copy(t, written[t], layout) for t, layout in sorted(wanted) if layout != written[t])
    return Agreement(cost, written, read, copies)


# ---------------------------------------------------------------- as factors


def _written(tensor: str) -> str:
    return f"written {tensor}"


def _read(operator: str, tensor: str) -> str:
    return f"read {tensor} by {operator}"


def _factors(costs: Costs) -> list[Factor]:
    """The problem: first a factor for each operator, in order, then those of the copies."""
    found = []
    readers: dict[str, list[str]] = {t: [] for t in costs.copies}
    for operator in costs.operators:
        reads = [_read(operator.name, t) for t in operator.reads]
        found.append(Factor((*reads, *(_written(t) for t in operator.writes)), operator.table))
        for tensor, variable in zip(operator.reads, reads, strict=True):
            readers[tensor].append(variable)
    return [*found, *(f for tensor in costs.copies for f in _copies(costs, tensor, readers[tensor]))]


def _copies(costs: Costs, tensor: str, readers: Sequence[str]) -> Iterator[Factor]:
    """What the copies of a tensor cost; of several readers, by the set of layouts in which the tensor exists."""
    table, written = costs.copies[tensor], _written(tensor)
    plain = np.where(np.arange(len(table)) == 0, 0.0, inf)
    made = written in {_written(t) for o in costs.operators for t in o.writes}
    if not made:
        yield Factor((written,), plain)
    leaves = tensor in costs.outside and made
    if len(readers) + leaves == 1:
        yield Factor((written, readers[0]), table) if readers else Factor((written,), table[:, 0])
    elif len(readers) + leaves > 1:
        sets = np.arange(1, 1 << len(table))
        has = (sets[:, None] >> np.arange(len(table)) & 1).astype(bool)
        has = has[has.sum(axis=1) <= len(readers) + leaves]
        total = np.where(has, table[:, None, :], 0.0).sum(axis=-1)
        yield Factor((written, f"sets {tensor}"), np.where(has.T, total, inf))
        for reader in readers:
            yield Factor((f"sets {tensor}", reader), np.where(has, 0.0, inf))
        if leaves:
            yield Factor((f"sets {tensor}",), np.where(has[:, 0], 0.0, inf))
