"""Recorded spaces: a design space of a few thousand candidates, all measured once, in a file.

``--target recorded:FILE`` replays one as a device: nothing is built, a candidate takes what it took when it was
recorded, or fails as it did.  So strategies of the search, faults and clusters are tried in milliseconds and without
noise, also where the device is not.  The file holds all that a search asks of a space (decisions, which candidates
there are, their features), so that it stays what it was while rules and features change.

```
about        JSON: workload, params, dtype, interface, target, untuned_us, roof, sketches, and sizes of ranges
rows.I       (N, D) alternatives of the candidates of sketch I
us.I         (N,) latencies in microseconds, NaN for a failure
at.I         (N, P) of a program of ranges what they were at each size, of which `us` is the geometric mean
status.I     (N,) positions in the sketch's list of statuses
levels.I     the numbers that features take, column after column;  codes.I  (F, N) which of them
```
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...files import at_home
from ...invocation import COMMAND
from ...ir.target import Target
from ...space.design.decision import Decision
from ...space.design.sketch import Sketch
from ...space.design.space import Space, fingerprint
from .task import RECORDED, RECORDED_DEVICE, Roof

if TYPE_CHECKING:
    from ...space.workloads import Workload
    from .task import Task

FORMAT, FORMAT_OF_RANGES = 1, 2
LARGEST = 1 << 20  # candidates, and bytes of `about`: more is no recording of ours
MOST_BYTES = 1 << 28  # of all arrays, unpacked
OK = "ok"
DAMAGE = (
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, zipfile.BadZipFile, lzma.LZMAError,
    RuntimeError, MemoryError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True)
class RecordedSketch(Sketch):
    """A sketch whose candidates are `rows` (N, D) and no others; `table` (N, F) has their features by `features`.

    `latencies` (N,) are microseconds, NaN where `statuses` tell of a failure; `times` (N, P) are those at each size of
    ranges.
    """

    recorded: tuple[Decision, ...] = ()
    rows: NDArray[np.int64] = field(repr=False, compare=False, default_factory=lambda: np.zeros((0, 0), np.int64))
    latencies: NDArray[np.float64] = field(repr=False, compare=False, default_factory=lambda: np.zeros(0))
    statuses: tuple[str, ...] = field(repr=False, compare=False, default=())
    features: tuple[str, ...] = field(repr=False, compare=False, default=())
    table: NDArray[np.float32] = field(
        repr=False, compare=False, default_factory=lambda: np.zeros((0, 0), np.float32)
    )  # fmt: skip

    times: NDArray[np.float64] = field(repr=False, compare=False, default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions in which recorded candidates differ."""
        return self.recorded

    @cached_property
    def _codes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows as single numbers, sorted, and the positions from which they come."""
        codes = self._code(self.rows)
        order = np.argsort(codes, kind="stable")
        return codes[order], order

    def _code(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes = [len(d) for d in self.decisions]
        weights = np.cumprod([1, *sizes[:-1]], dtype=np.int64) if sizes else np.zeros(0, np.int64)
        return np.asarray(rows @ weights, np.int64) if sizes else np.zeros(len(rows), np.int64)

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of candidates in the recording, -1 for those that are not there."""
        codes, order = self._codes
        wanted = self._code(rows)
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[at] == wanted, order[at], -1)

    def mask(self, choices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for recorded candidates."""
        return np.asarray(self.positions(choices) >= 0)

    def draw_some(
        self, rng: np.random.Generator, count: int, allowed: Sequence[NDArray[np.int64]] | None = None
    ) -> NDArray[np.int64]:
        """Up to `count` recorded candidates, uniformly, of the alternatives that are `allowed`."""
        rows = self.rows
        for decision, values in enumerate(allowed or ()):
            rows = rows[np.isin(rows[:, decision], values)]
        return rows[rng.integers(len(rows), size=count)] if len(rows) else rows

    def columns(self, population: NDArray[np.int64]) -> Mapping[str, NDArray[np.float32]]:
        """The features as they were when the space was recorded."""
        at = self.positions(population)
        found = np.where((at >= 0)[:, None], self.table[at], np.float32(np.nan))
        return {name: found[:, column] for column, name in enumerate(self.features)}

    def result(self, choice: Sequence[int]) -> tuple[float, str]:
        """Microseconds and status of a candidate; KeyError where it was not recorded."""
        at = self._position(choice)
        return float(self.latencies[at]), self.statuses[at]

    def at_sizes(self, choice: Sequence[int]) -> list[float]:
        """Microseconds of a candidate of ranges at each size; KeyError where it was not recorded."""
        return [float(us) for us in self.times[self._position(choice)]]

    def _position(self, choice: Sequence[int]) -> int:
        at = int(self.positions(np.asarray([choice], np.int64))[0])
        if at < 0:
            raise KeyError(tuple(choice))
        return at


@dataclass(frozen=True)
class Recording:
    """A task with its recorded space; `target` is the device with a name of its own, whose records stand apart.

    `sizes` are those at which a program of ranges was measured, by name, each with its weight.
    """

    workload: str
    params: dict[str, int | str]
    dtype: str
    interface: dict[str, str]
    target: Target
    untuned_us: float
    roof: Roof
    sketches: tuple[RecordedSketch, ...]
    sizes: tuple[tuple[dict[str, int], float], ...] = ()

    @cached_property
    def work(self) -> Workload:
        """The program."""
        from ...space.workloads import workload

        return workload(self.workload, **self.params)

    @cached_property
    def space(self) -> Space:
        """What a search walks on."""
        pairs = tuple(sorted(self.interface.items()))
        return Space(self.work.func, self.target, pairs, self.sketches, fingerprint(self.sketches))

    @property
    def size(self) -> int:
        """How many candidates were recorded."""
        return sum(len(sketch.rows) for sketch in self.sketches)

    @property
    def best_us(self) -> float:
        """The fastest of all."""
        return float(min(np.nanmin(sketch.latencies) for sketch in self.sketches))

    def check(self, task: Task) -> None:
        """Raise UsageError unless this is a recording of the task."""
        if (task.script, dict(task.interface)) != (self.work.script, self.interface):
            raise UsageError(
                f"the recording is of {self.work} with {self.interface}, not of {task.work} with "
                f"{dict(task.interface)}; leave out --workload to search what was recorded"
            )


def of_target(text: str) -> Recording:
    """The recording that ``recorded:FILE`` names.  Raises UsageError."""
    path = at_home(text.removeprefix(RECORDED))
    if not path.is_file() and path.exists():
        raise UsageError(f"a recorded space is a file, `{RECORDED}FILE`, but {path} is none")
    try:
        return _loaded(str(path.absolute()), path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"cannot read the recorded space {path}: {error.strerror or error}") from None


@functools.lru_cache(8)
def _loaded(path: str, _: int) -> Recording:
    return load(Path(path))


def save(recording: Recording, path: Path) -> None:
    """Write a file that `load` reads; whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    described = []
    for number, sketch in enumerate(recording.sketches):
        names = sorted(set(sketch.statuses))
        # The distinct numbers of each column, and their positions as codes (F, N): both compress well.
        found = [np.unique(column, return_inverse=True) for column in sketch.table.T]
        levels = [level.astype(np.float32) for level, _ in found]
        none = np.zeros((0, len(sketch.table)), np.uint16)
        codes = np.stack([code for _, code in found]).astype(np.uint16) if found else none
        arrays |= {
            f"rows.{number}": sketch.rows.astype(np.uint8).T,
            f"us.{number}": sketch.latencies.astype(np.float32),
            f"status.{number}": np.asarray([names.index(s) for s in sketch.statuses], np.uint8),
            f"levels.{number}": np.concatenate(levels) if levels else np.zeros(0, np.float32),
            f"codes.{number}": codes,
            **({f"at.{number}": sketch.times.astype(np.float32)} if recording.sizes else {}),
        }
        decisions = [{"name": d.name, "kind": d.kind, "labels": list(d.labels)} for d in sketch.decisions]
        described.append(
            {"name": sketch.name, "decisions": decisions, "statuses": names, "features": list(sketch.features),
             "levels": [len(level) for level in levels]}
        )  # fmt: skip
    about = {
        "format": FORMAT_OF_RANGES if recording.sizes else FORMAT, "workload": recording.workload,
        "params": recording.params, "dtype": recording.dtype,
        "interface": recording.interface, "target": recording.target.to_json(), "untuned_us": recording.untuned_us,
        "roof": [recording.roof.peak_gflops, recording.roof.bandwidth], "sketches": described,
        **({"sizes": recording.sizes} if recording.sizes else {}),
    }  # fmt: skip
    arrays["about"] = np.frombuffer(json.dumps(about, allow_nan=False).encode(), np.uint8)
    partial = path.with_name(path.name + ".new")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_LZMA) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
    os.replace(partial, path)


def load(path: Path) -> Recording:
    """The recording in a file.  Raises UsageError for what is none."""
    try:
        with path.open("rb") as opened:
            if not zipfile.is_zipfile(opened):
                raise ValueError(f"it is no archive of arrays, as `{COMMAND} record-space` writes it")
        with np.load(path, allow_pickle=False) as file:
            if sum(member.file_size for member in file.zip.infolist()) > MOST_BYTES:
                raise ValueError("its arrays are too large")
            raw = file["about"]
            if raw.nbytes > LARGEST:
                raise ValueError("its description is too large")
            about = json.loads(raw.tobytes())
            if about["format"] not in (FORMAT, FORMAT_OF_RANGES):
                raise ValueError(f"its format is {about['format']}, and this stridesmith reads {FORMAT_OF_RANGES}")
            sizes = tuple(
                ({str(name): int(value) for name, value in values.items()}, float(weight))
                for values, weight in about.get("sizes", ())
            )
            digest = hashlib.sha256(raw.tobytes()).hexdigest()[:8]
            target = Target.from_json(about["target"])
            target = replace(target, name=f"{target.name.partition(RECORDED_DEVICE)[0]}{RECORDED_DEVICE}{digest})")
            sketches = tuple(
                _sketch(file, number, found, target, len(sizes)) for number, found in enumerate(about["sketches"])
            )
            peak, bandwidth = map(float, about["roof"])
            return Recording(
                str(about["workload"]), dict(about["params"]), str(about["dtype"]), dict(about["interface"]), target,
                float(about["untuned_us"]), Roof(peak, bandwidth), sketches, sizes,
            )  # fmt: skip
    except DAMAGE as error:
        raise UsageError(f"{path} is no recorded space: {str(error)[:200] or type(error).__name__}") from None


def _sketch(
    file: Mapping[str, NDArray[Any]], number: int, about: Mapping[str, Any], target: Target, sizes: int
) -> RecordedSketch:
    decisions = tuple(
        Decision(str(d["name"]), str(d["kind"]), tuple(map(str, d["labels"])), tuple(range(len(d["labels"]))))
        for d in about["decisions"]
    )
    rows = file[f"rows.{number}"].T.astype(np.int64)
    latencies = file[f"us.{number}"].astype(np.float64)
    status = file[f"status.{number}"]
    codes, levels = file[f"codes.{number}"], file[f"levels.{number}"].astype(np.float32)
    features, counts = tuple(map(str, about["features"])), [int(n) for n in about["levels"]]
    times = file[f"at.{number}"].astype(np.float64) if sizes else np.zeros((len(rows), 0))
    shapes = (rows.shape, latencies.shape, status.shape, codes.shape, sum(counts), times.shape)
    wanted = (
        (len(rows), len(decisions)), (len(rows),), (len(rows),), (len(features), len(rows)), len(levels),
        (len(rows), sizes),
    )  # fmt: skip
    if shapes != wanted or not 0 < len(rows) <= LARGEST or len(counts) != len(features):
        raise ValueError(f"its sketch {number} has arrays that do not fit together")
    if (rows < 0).any() or any((rows[:, d] >= len(item)).any() for d, item in enumerate(decisions)):
        raise ValueError(f"its sketch {number} has candidates with alternatives that there are not")
    starts = np.cumsum([0, *counts[:-1]])
    table = np.stack([levels[start + code] for start, code in zip(starts, codes, strict=True)], axis=1)
    names = [str(name) for name in about["statuses"]]
    statuses = tuple(names[n] for n in status)
    good = np.isfinite(latencies) & (latencies > 0) & (np.isfinite(times) & (times > 0)).all(axis=1)
    if any((text == OK) != bool(held) for text, held in zip(statuses, good, strict=True)):
        raise ValueError(f"its sketch {number} has a latency where its status says otherwise")
    return RecordedSketch(
        str(about["name"]), None, target, (),  # type: ignore[arg-type]  # nothing is scheduled
        recorded=decisions, rows=rows, latencies=latencies, statuses=statuses, features=features, table=table,
        times=times,
    )  # fmt: skip
