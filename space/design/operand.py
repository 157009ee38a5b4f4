"""What an anchor goes along and what it touches: its axes and its operands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...ir.expr import Buffer

Terms = tuple[tuple[int, int], ...]
"""An index as a sum of axes: ``((axis number, coefficient), ...)``."""


@dataclass(frozen=True)
class Axis:
    """An iterator of an anchor: `name` is canonical (``s0``, ``r1``), `var` the program's own."""

    name: str
    extent: int
    kind: str
    var: str


@dataclass(frozen=True)
class Operand:
    """A buffer that an anchor touches, seen along the anchor's axes.

    `dims` has, for each dimension, ``((axis number, coefficient), ...)``, with the constant
    in `offsets`; a dimension that is not linear in the axes makes the whole `dims` empty (see `is_linear`).
    `source` says who may change its layout: ``constant``, ``fixed``, ``free`` (parameters),
    ``stage`` (a producer's buffer), ``output``, or ``other``, such as a buffer that is read at several points.
    `tested` are the dimensions along which a producer chooses its value by a condition, as padding does; `padded` says
    that a parameter's own layout has padding, of which a copy is not known to be data.  `is_streamed` says that
    no call finds a constant in the second cache.  `inlined` is what is read in its place where the producer is inlined:
    the producer's largest input, None where it has none or reads it otherwise than linearly in the axes.  `operations`
    are those that the producer makes an element of that input's with.
    """

    name: str
    buffer: Buffer
    dims: tuple[Terms, ...]
    offsets: tuple[int, ...]
    source: str
    producer: str = ""
    tested: tuple[int, ...] = ()
    padded: bool = False
    is_streamed: bool = False
    inlined: Operand | None = None
    operations: int = 0
    along: int | None = None

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.shape

    @property
    def is_output(self) -> bool:
        return self.source == "output"

    @property
    def is_packed_by_caller(self) -> bool:
        """Whether the caller brings it in the layout that the search chooses: the kernel itself moves nothing."""
        return self.source in ("constant", "free")

    @property
    def is_linear(self) -> bool:
        """Whether `dims` tells all indices; of a buffer without dimensions there are none."""
        return len(self.dims) == len(self.shape)

    def plain_dim(self, axis: int) -> int | None:
        """The dimension whose index is this axis itself, if there is one."""
        for dim, (terms, offset) in enumerate(zip(self.dims, self.offsets, strict=True)):
            if terms == ((axis, 1),) and offset == 0:
                return dim
        return None

    def own_dim(self, axis: int) -> int | None:
        """The dimension whose index is this axis plus a constant; None without one."""
        return next((dim for dim, terms in enumerate(self.dims) if terms == ((axis, 1),)), None)

    @property
    def source_dim(self) -> int:
        """The dimension along which the operand's producer, or a copy, reads neighbours in memory; -1 for none."""
        if self.inlined is None or not self.inlined.dims[-1]:
            return len(self.dims) - 1
        along = {axis for axis, _ in self.inlined.dims[-1]}
        return next((dim for dim, terms in enumerate(self.dims) if along & {axis for axis, _ in terms}), -1)

    @cached_property
    def _axes(self) -> frozenset[int]:
        return frozenset(axis for terms in self.dims for axis, _ in terms)

    def uses(self, axis: int) -> bool:
        """Whether an index depends on the axis; an access that is not linear may."""
        return axis in self._axes or not self.is_linear

    def stride(self, axis: int) -> int:
        """The distance in elements of neighbours along an axis, in the row-major layout."""
        total = 0
        for terms, step in zip(self.dims, self.buffer.strides, strict=True) if self.dims else ():
            total += sum(c * step for a, c in terms if a == axis)
        return total
