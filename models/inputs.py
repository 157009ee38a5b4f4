"""What is known of a model's inputs before it is read: shapes that its file leaves open, and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, TypeAlias

from ..errors import UsageError

Shapes: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Given:
    """Shapes and values of inputs by name; an input that has a value is a constant, and no input of the network.

    A number among `either` is the value of an input of one element, and of another one the extent of its one dimension.
    """

    shapes: Shapes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    either: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for a shape that is no sequence of whole numbers."""
        for name, shape in self.shapes.items():
            if isinstance(shape, str) or not all(isinstance(extent, SupportsIndex) for extent in shape):
                named = [extent for extent in shape if isinstance(extent, str) and not isinstance(shape, str)]
                more = f"; `{named[0]}` needs a range, as in ranges={{{named[0]!r}: (1, 64)}}" if named else ""
                raise UsageError(
                    f"the shape of an input is its extents, as in {{{name!r}: (1, 3)}}, but got {shape!r}{more}"
                )

    @staticmethod
    def of(given: Given | Shapes | None) -> Given:
        """What is given, where shapes may stand alone."""
        if isinstance(given, Given):
            return given
        return Given({name: tuple(shape) for name, shape in (given or {}).items()})
