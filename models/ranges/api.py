"""From a model file and ranges to one callable: what `ss.compile` with ranges is made of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import ModelProblem, UsageError, did_you_mean
from ...ir.expr import Extent, Var
from ...ir.size_ranges import Range
from ...space.workloads.sizes import range_of
from ..api import needing_onnx
from ..inputs import Given, check_shapes, check_values
from ..network import Network
from . import stored
from .extents import expression, extent_at, sizes_in
from .kernels import kernels_of, tasks_of
from .model import RangedModel
from .network import RangedNetwork
from .reading import ranged

if TYPE_CHECKING:
    from ...ir.target import Target

Shapes: TypeAlias = Mapping[str, Sequence[int | str]]


class AsWritten(UserWarning):
    """An operator of a network of free sizes for which there is no schedule of all sizes."""


@dataclass(frozen=True)
class FreeSizes:
    """What is said of a model of free sizes.

    `ranges` are the numbers that each size may be, as ``(1, 512)`` or ``(32, 960, 32)``; `shapes` has the extents of
    inputs, numbers, names of sizes and expressions over these as ``"n*32"``, of those alone that the file does not tell
    so; `values` as in `Given`.
    """

    ranges: Mapping[str, Any]
    shapes: Shapes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for what is not given by name, and for shapes that are none."""
        if not isinstance(self.ranges, Mapping):
            raise UsageError(
                f"`ranges` has the numbers that each size may be, by name, as in {{'n': (1, 64)}}, but got "
                f"{self.ranges!r}"
            )
        check_shapes(self.shapes)
        check_values(self.values)

    def numbers(self) -> dict[str, Range]:
        """The ranges.  Raises UsageError for what is none."""
        found: dict[str, Range] = {}
        for name, value in self.ranges.items():
            numbers = range_of(value, name)
            if numbers is None:
                raise UsageError(
                    f"the range of a size is (least, largest) or (least, largest, step), but {name} is {value!r}"
                )
            if numbers.low < 1:
                raise UsageError(f"an extent is at least 1, but the range of {name} is {numbers}")
            found[name] = numbers
        return found


def network_of(source: Any, target: Target, sizes: FreeSizes) -> RangedNetwork:
    """The network of free sizes in a model's file, its bytes or itself.

    Raises UsageError for what is wrong with what is said of sizes, ModelProblem for what is not one network for all.
    """
    if isinstance(source, Network):
        raise UsageError("a Network has one shape: free sizes are for the file of a model, its bytes or a ModelProto")
    if target.kind != "cpu":
        raise UsageError(f"networks of free sizes run on CPUs, not on {target.name}")
    ranges = sizes.numbers()
    with needing_onnx():
        from ..onnx import reader
    model = reader(source)
    shapes = _shapes(sizes, model.shapes, ranges)

    def at(point: Mapping[str, int]) -> Network:
        numbers = {name: tuple(extent_at(extent, point) for extent in extents) for name, extents in shapes.items()}
        return model.read(Given(numbers, sizes.values))

    def largest() -> Network:
        return at({name: numbers.high for name, numbers in ranges.items()})

    if (whole := model.whole()) is None:
        return ranged(at, shapes, ranges, target)
    asked = stored.question(stored.model_digest(whole, sizes.values), shapes, ranges, target)
    found = stored.kept(asked, ranges, largest)
    if found is None:
        found = ranged(at, shapes, ranges, target)
        stored.keep(asked, found)
    return found


def _shapes(
    sizes: FreeSizes, told: Mapping[str, tuple[int | str, ...] | None], ranges: Mapping[str, Range]
) -> dict[str, tuple[Extent, ...]]:
    """The extents of all inputs that have no value: numbers, sizes, and expressions over them."""
    for name in sizes.shapes:
        if name not in told:
            raise ModelProblem(f"the model has no input `{name}`{did_you_mean(name, told)}; it has {', '.join(told)}")
    found: dict[str, tuple[Extent, ...]] = {}
    for name, extents in told.items():
        if name in sizes.values:
            continue
        given = sizes.shapes.get(name, extents)
        if given is None:
            raise UsageError(f"the model does not say how many dimensions `{name}` has; give its extents in `inputs`")
        found[name] = tuple(_extent(name, extent, ranges) for extent in given)
    used = {size for extents in found.values() for extent in extents for size in sizes_in(extent)}
    for name in ranges:
        if name not in used:
            raise UsageError(f"no input has the extent {name}; name it in `inputs`, as in {{'x': (1, {name!r})}}")
    return found


def _extent(name: str, extent: int | str, ranges: Mapping[str, Range]) -> Extent:
    """An extent of the input `name`.  Raises UsageError where it has a size without a range."""
    if not isinstance(extent, str):
        return int(extent)
    made = None if extent in ranges else expression(extent)
    unknown = [size for size in (sizes_in(made) if made is not None else (extent,)) if size not in ranges]
    if unknown:
        how = f"give it a number in `inputs`, or a range, as in ranges={{{unknown[0] or 'n'!r}: (1, 64)}}"
        raise UsageError(f"`{name}` has the extent {extent or '?'}, of which nothing is known: {how}")
    return Var(extent) if made is None else made


def compiled(network: RangedNetwork, target: Target, db: str | None = None) -> RangedModel:
    """A network of free sizes with the best kernels that the database has for its operators.

    Warns of operators that run as they are written.
    """
    from ...search.records.reading import reading
    from ...search.workers.spread import AllCores

    with reading(db) as database, AllCores() as build:
        made = RangedModel(network, kernels_of(tasks_of(network, target), database, build), target)
    for name, why in made.notices.items():
        warnings.warn(f"`{name}` runs as it is written: {why}", AsWritten, stacklevel=2)
    return made
