"""What is known of a model's inputs before it is read: shapes that its file leaves open, and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import UsageError
from ..ir.numbers import masked
from ..numerals import as_whole

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
        """Raise UsageError for shapes that are no sequences of whole numbers, and for what is not given by name."""
        check_shapes(self.shapes)
        for name, shape in self.shapes.items():
            if named := [extent for extent in shape if isinstance(extent, str)]:
                raise UsageError(
                    f"the shape of an input is its extents, as in {{{name!r}: (1, 3)}}, but got {shape!r}; "
                    f"`{named[0]}` needs a range, as in ranges={{{named[0]!r}: (1, 64)}}"
                )
        check_values(self.values)

    @staticmethod
    def of(given: Given | Shapes | None) -> Given:
        """What is given, where shapes may stand alone."""
        if isinstance(given, Given):
            return given
        shapes = given or {}
        check_shapes(shapes)
        return Given({name: tuple(shape) for name, shape in shapes.items()})


def check_shapes(shapes: Mapping[str, Sequence[int | str]]) -> None:
    """Raise UsageError for what is no shapes by the names of inputs, of whole numbers and names of sizes."""
    if not isinstance(shapes, Mapping):
        raise UsageError(f"`inputs` has the shapes of inputs by name, as in {{'x': (1, 3)}}, but got {_short(shapes)}")
    for name, shape in shapes.items():
        is_shape = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
        if not is_shape or any(as_whole(extent) is None and not isinstance(extent, str) for extent in shape):
            raise UsageError(
                f"the shape of an input is its extents, as in {{{name!r}: (1, 3)}}, but got {_short(shape)}"
            )


def check_values(values: Mapping[str, Any]) -> None:
    """Raise UsageError for what is no values by the names of inputs, and for an array whose mask would be lost."""
    if not isinstance(values, Mapping):
        raise UsageError(f"`values` has the values of inputs by name, as in {{'sr': 16000}}, but got {_short(values)}")
    for name, value in values.items():
        if told := masked(name, value):
            raise UsageError(told)


def _short(value: object) -> str:
    """A value of any kind, in few words."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"something of type {type(value).__name__}"
