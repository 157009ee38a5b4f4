"""Kernels and their latencies, as a fit of the estimate's weights needs them: columns by name, and no programs.

`benchmarks/calibrate.py` collects them.  The file is NumPy's ``.npz``; nothing in it is pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .formulas import COLUMNS
from .tiling import Columns, Vector
from .weights import AnyWeights, Weights

NOTHING = -60.0
"""A power of two that counts as nothing."""
LATER = {
    "meets": NOTHING, "copied:squares": NOTHING, "widened": 0.0, "converted": 0.0, "computed:inlined": 0.0,
    "computed:staged": 0.0,
}  # fmt: skip
"""Columns that older files lack, and what they hold there: kernels are long, had no squares and multiplied floats that
are computed with few operations."""

Row = tuple[int, float, Mapping[str, float]]
"""A block that a kernel schedules: the number of the kernel, its points, and its columns by name."""


class Machine(NamedTuple):
    """Where kernels were timed: `lanes` is the width of its vectors in elements, `units` its compute units."""

    name: str
    lanes: float
    units: float = 1.0


class Timed(NamedTuple):
    """A kernel of a shape: its latency in microseconds, and how the candidate was found."""

    shape: str
    latency: float
    origin: str


@dataclass(frozen=True)
class Calibration:
    """K kernels of S shapes on one machine, and the columns of the R blocks that they schedule.

    `shapes` and `groups` (S) name each shape and its kind of workload; `shape`, `latency` (microseconds) and `origin`
    (how the candidate was found) are per kernel, `kernel` and `points` per block.  `columns` has what the estimate
    reads, (R,) each; `lanes` is the width of the machine's vectors in elements, `units` its compute units.
    """

    machine: str
    lanes: float
    shapes: tuple[str, ...]
    groups: tuple[str, ...]
    shape: NDArray[np.int32]
    latency: Vector
    origin: tuple[str, ...]
    kernel: NDArray[np.int32]
    points: NDArray[np.float64]
    columns: Columns
    units: float = 1.0

    @staticmethod
    def of(
        machine: Machine, groups: Mapping[str, str], kernels: Sequence[Timed], rows: Sequence[Row], names: Sequence[str]
    ) -> Calibration:
        """A calibration from plain values: `groups` has the group of each shape; columns in `names` are kept.

        Raises ValueError for a kernel of another shape.
        """
        shapes = list(groups)
        return Calibration(
            machine.name, machine.lanes, tuple(shapes), tuple(groups.values()),
            np.asarray([shapes.index(kernel.shape) for kernel in kernels], np.int32),
            np.asarray([kernel.latency for kernel in kernels], np.float32), tuple(kernel.origin for kernel in kernels),
            np.asarray([kernel for kernel, _, _ in rows], np.int32), np.asarray([p for _, p, _ in rows], np.float64),
            {name: np.asarray([columns[name] for _, _, columns in rows], np.float32) for name in names},
            machine.units,
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file."""
        np.savez_compressed(
            path, machine=np.array(self.machine), lanes=np.array(self.lanes), units=np.array(self.units),
            shapes=np.array(self.shapes), groups=np.array(self.groups), shape=self.shape, latency=self.latency,
            origin=np.array(self.origin), kernel=self.kernel, points=self.points, names=np.array(list(self.columns)),
            values=np.stack(list(self.columns.values())),
        )  # fmt: skip

    @staticmethod
    def load(path: Path, kind: type[AnyWeights] = Weights) -> Calibration:
        """What `save` wrote.  Raises ValueError where the file lacks a column that the formula of `kind` reads."""
        with np.load(path, allow_pickle=False) as file:
            columns = dict(zip(file["names"].tolist(), file["values"], strict=True))
            for name, value in LATER.items():
                columns.setdefault(name, np.full(len(file["points"]), value, np.float32))
            missing = sorted(set(COLUMNS[kind]) - set(columns))
            if missing:
                raise ValueError(
                    f"{path.name} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}, which the estimate "
                    "reads: collect the kernels again with `benchmarks/calibrate.py`"
                )
            return Calibration(
                str(file["machine"]), float(file["lanes"]), tuple(file["shapes"].tolist()),
                tuple(file["groups"].tolist()), file["shape"], file["latency"], tuple(file["origin"].tolist()),
                file["kernel"], file["points"], columns, float(file["units"]) if "units" in file else 1.0,
            )  # fmt: skip

    def with_more(self, other: Calibration) -> Calibration:
        """The union of both sets of kernels.  Raises ValueError if a shape is in both, or machines differ."""
        mine, theirs = ({data.shapes[n] for n in data.shape.tolist()} for data in (self, other))
        both = sorted(mine & theirs)
        if both or (self.lanes, self.units) != (other.lanes, other.units):
            sizes = [f"{data.lanes:g} lanes and {data.units:g} units" for data in (self, other)]
            what = f"the shape {both[0]} is in both" if both else f"one machine has {sizes[0]}, the other {sizes[1]}"
            raise ValueError(f"data of other shapes on the same machine can be added, but {what}")
        return Calibration(
            self.machine, self.lanes, self.shapes + other.shapes, self.groups + other.groups,
            np.concatenate([self.shape, other.shape + len(self.shapes)]).astype(np.int32),
            np.concatenate([self.latency, other.latency]), self.origin + other.origin,
            np.concatenate([self.kernel, other.kernel + len(self.latency)]).astype(np.int32),
            np.concatenate([self.points, other.points]),
            {name: np.concatenate([values, other.columns[name]]) for name, values in self.columns.items()
             if name in other.columns},
            self.units,
        )  # fmt: skip

    def only(self, shapes: Sequence[int]) -> Calibration:
        """The kernels of these shapes."""
        chosen = np.isin(self.shape, shapes)
        rows = chosen[self.kernel]
        number = np.cumsum(chosen) - 1
        return Calibration(
            self.machine, self.lanes, self.shapes, self.groups, self.shape[chosen], self.latency[chosen],
            tuple(o for o, here in zip(self.origin, chosen, strict=True) if here),
            number[self.kernel[rows]].astype(np.int32), self.points[rows],
            {name: values[rows] for name, values in self.columns.items()}, self.units,
        )  # fmt: skip
