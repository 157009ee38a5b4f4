"""What an operator of the workload library is: parameters, a program and an independent reference.

An operator is a frozen dataclass whose fields are its parameters.  It says how
its program reads (`script`), what it computes (`compute`, in NumPy and without
any of our lowering), and which shapes are impossible (`check`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import product
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import ShapeError, UnknownParameter, did_you_mean
from ...ir.size_ranges import Range
from ...numerals import count
from .precision import Precision, precision
from .sizes import Size, range_of

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]
Value: TypeAlias = int | str

FLOATS = ("float32", "float64", "float16", "bfloat16")
DTYPES = (
    *FLOATS, "int32", "int64", "int8", "uint8", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
LARGEST_EXTENT = 2**31 - 1
LARGEST_BUFFER = 2**36


@dataclass(frozen=True)
class Parameter:
    """One row of a workload's table; `also` are the names for one direction alone, as ``stride_h``."""

    name: str
    default: Value
    meaning: str
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = LARGEST_EXTENT


def param(
    default: Value, meaning: str, *, choices: tuple[str, ...] = (), least: int = 1, most: int = LARGEST_EXTENT
) -> Any:
    """A dataclass field that is a parameter."""
    return field(default=default, metadata={"meaning": meaning, "choices": choices, "least": least, "most": most})


def hidden(default: Any, meaning: str) -> Any:
    """A dataclass field that generators of programs set, and that no table of parameters shows."""
    return field(default=default, metadata={"meaning": meaning, "choices": (), "least": 0, "most": 0})


def flag(default: int, meaning: str) -> Any:
    """A dataclass field that is 0 or 1."""
    return param(default, meaning, least=0, most=1)


@dataclass(frozen=True)
class Operator(ABC):
    """The base of all operators.

    `joint` maps a name that sets several parameters to those, as ``stride`` to
    ``stride_h`` and ``stride_w``; equal values are shown by the one name, except for
    the names in `always_split`.  `order` is the table's; a field that is not in it is
    no parameter.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    constants: ClassVar[tuple[str, ...]] = ()
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    joint: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    always_split: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def script(self, dtype: str) -> str:
        """The program as TVMScript text."""

    @abstractmethod
    def compute(self, arrays: Arrays) -> dict[str, Array]:
        """Outputs by name, from inputs by name, all in the type that the inputs have."""

    @abstractmethod
    def buffers(self) -> dict[str, tuple[int, ...]]:
        """Every parameter buffer's logical shape, inputs first."""

    def precision(self, dtype: str) -> Precision:
        """The element types of the program whose inputs are `dtype`."""
        return precision(dtype)

    def reference(self, arrays: Arrays) -> dict[str, Array]:
        """`compute` with the inputs in the accumulator's type, its outputs in the result's."""
        types = self.precision(next(iter(arrays.values())).dtype.name)
        wide = {name: array.astype(types.accumulator, copy=False) for name, array in arrays.items()}
        return {name: array.astype(types.result, copy=False) for name, array in self.compute(wide).items()}

    def check(self) -> None:  # noqa: B027
        """Raise ShapeError where the parameters do not fit each other."""

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """The table: a row for each parameter, one for all of a group."""
        owner = {part: whole for whole, parts in cls.joint.items() for part in parts}
        rows: dict[str, Parameter] = {}
        for item in fields(cls):
            whole = owner.get(item.name)
            assert item.default is not MISSING
            meta = item.metadata
            rows.setdefault(
                whole or item.name,
                Parameter(
                    whole or item.name, item.default, meta["meaning"], cls.joint[whole] if whole else (),
                    meta["choices"], meta["least"], meta["most"],
                ),
            )  # fmt: skip
        return tuple(rows[name] for name in cls.order)

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> Operator:
        """The operator with `given` over the defaults; one of a group wins over the whole.

        A parameter that is a range is a `Size` in the operator, whose shapes are possible at all ends of its ranges.
        Raises UnknownParameter or ShapeError with what was asked and what to try.
        """
        ranges = {name: numbers for name in given if (numbers := range_of(given[name], name)) is not None}
        if ranges:
            return cls._of_ranges(given, ranges)
        rows = {name: row for row in cls.parameters() for name in (*row.also, row.name)}
        values: dict[str, Value] = {}
        for name in sorted(given, key=lambda n: n not in cls.joint):
            row = rows.get(name)
            if row is None:
                known = ", ".join(r.name for r in cls.parameters())
                raise UnknownParameter(
                    f"`{cls.name}` has no parameter {name!r}{did_you_mean(name, rows)}; it has {known}"
                )
            value = _checked(cls.name, row, name, given[name])
            values.update(dict.fromkeys(cls.joint.get(name, (name,)), value))
        made = cls(**values)
        made.check()
        made._check_sizes()
        return made

    @classmethod
    def _of_ranges(cls, given: Mapping[str, Any], ranges: Mapping[str, Range]) -> Operator:
        """The operator in which sizes stand for some parameters, called like these where the program has other names.

        Names of the program get an underscore.
        """
        corners = [
            cls.resolve({**given, **dict(zip(ranges, ends, strict=True))})
            for ends in product(*(numbers.ends for numbers in ranges.values()))
        ]
        words = set(re.findall(r"\w+", corners[0].script(cls.dtypes[0])))
        sizes = dict[str, Size]()
        for name, numbers in ranges.items():
            if numbers.low < numbers.high:
                free = (name + "_" * count for count in range(len(words) + 1))
                size = Size.of(next(word for word in free if word not in words), numbers)
                sizes.update(dict.fromkeys(cls.joint.get(name, (name,)), size))
        made = replace(corners[0], **sizes)
        extents = {str(extent) for shape in made.buffers().values() for extent in shape}
        for name in ranges:
            asked = {sizes[part].base for part in cls.joint.get(name, (name,)) if part in sizes}
            if not asked <= extents:  # a kernel learns sizes from its arrays
                raise ShapeError(
                    f"`{cls.name}` takes one number for {name}, and no range, since no array has {name} elements along "
                    "an axis: tune for each number by itself"
                )
        return made

    def shape(self) -> dict[str, Value]:
        """Every parameter's value under the names of the table; `resolve` of it gives an equal operator."""
        values: dict[str, Value] = {item.name: _told(getattr(self, item.name)) for item in fields(self)}
        shown: dict[str, Value] = {}
        for row in self.parameters():
            parts = {part: values[part] for part in row.also}
            if row.also and (row.name in self.always_split or len(set(parts.values())) > 1):
                shown.update(parts)
            else:
                shown[row.name] = values[row.also[0] if row.also else row.name]
        return shown

    def _check_sizes(self) -> None:
        for buffer, shape in self.buffers().items():
            elements = 1
            for extent in shape:
                elements *= extent
            if elements > LARGEST_BUFFER:
                raise ShapeError(
                    f"`{self.name}` with {describe(self.shape())} needs a buffer `{buffer}` of shape {shape}, "
                    f"which has more than 2**36 elements; use smaller extents"
                )


_LIKE_A_RANGE = re.compile(r"\d\s*(\.\.|-|:|to)|(\.\.|range\D*)\s*\d")
"""What people write for numbers from one to another."""


def _told(value: Any) -> Any:
    """A value as it is given: a size by its range."""
    return str(value.over[0][1]) if isinstance(value, Size) else value


def _checked(workload: str, row: Parameter, name: str, value: Any) -> Value:
    """`value` for one parameter, from a number, a NumPy integer or text."""
    if row.choices:
        if value not in row.choices:
            raise ShapeError(
                f"`{workload}` takes {name}={'|'.join(row.choices)}, but got {name}={value!r}"
                f"{did_you_mean(str(value), row.choices)}"
            )
        return str(value)
    if isinstance(value, str) and len(value) < 20 and (written := count(value)) is not None:
        value = written
    if isinstance(value, bool) and (row.least, row.most) == (0, 1):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        text = str(value)[:40]
        hint = "; a range is written 1..512, or 32..960:32 for multiples of 32" if _LIKE_A_RANGE.search(text) else ""
        raise ShapeError(f"`{workload}` takes a whole number for {name}, but got {name}={text!r}{hint}")
    number = int(value)
    if not row.least <= number <= row.most:
        shown = number if abs(number) < 10**20 else "a huge number"
        raise ShapeError(f"`{workload}` takes {name} from {row.least} to {row.most}, but got {name}={shown}")
    return number


def describe(shape: Mapping[str, Value]) -> str:
    """``n=1,ci=64,h=56``: the way `--shape` is written."""
    return ",".join(f"{name}={value}" for name, value in shape.items())
