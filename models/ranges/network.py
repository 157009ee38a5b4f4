"""A network of free sizes: its parameters with their ranges, and every shape an expression over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.expr import Extent
from ...ir.size_ranges import Range
from ...ir.stmt import PrimFunc
from ..network import Array
from .fitting import values_at

Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class RangedTensor:
    """What passes between operators, its extents numbers and expressions over the parameters of the network."""

    name: str
    extents: Shape
    dtype: str


@dataclass(frozen=True)
class RangedOperator:
    """A program of all shapes and the tensors that it is called with, as `network.Operator` has them.

    One that only says where a result lies, which is where its only input does, has no program.  Where the program
    takes several axes of its tensors as one, `shapes` are the extents of its parameters.
    """

    name: str
    func: PrimFunc | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class RangedNetwork:
    """Tensors, constants among them, and operators in an order in which they can run, for all sizes in `ranges`."""

    name: str
    ranges: Mapping[str, Range]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, RangedTensor]
    constants: Mapping[str, Array] = field(repr=False)
    nodes: tuple[RangedOperator, ...]

    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a tensor where the parameters have these values."""
        return valued(self.tensors[name].extents, sizes)


def valued(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Extents where the parameters of a network have these values."""
    columns = {size: np.asarray(value, np.int64) for size, value in sizes.items()}
    return tuple(int(values_at(extent, columns)) for extent in shape)
