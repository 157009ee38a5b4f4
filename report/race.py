"""A race of what computes the same, in turns, with intervals that noise does not fool.

Each entry has several races, in memory of its own each time: where buffers come to lie moves a time as much as many a
schedule does, and shows as a difference between races alone (`interval.ratio_in_turns`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..backends.host_load import look, too_many
from ..backends.timing import interleave
from ..errors import UsageError
from ..figures import latency
from ..ir.markup import table
from ..search.calling.collection import frame
from ..search.calling.kernel import Kernel, build, from_record
from ..search.calling.timed import checked_seconds
from ..search.records.record import Record
from ..search.workers import host_lock
from .compare import ALPHA, SIDE_BY_SIDE, SMALL
from .interval import Ratio, ratio_in_turns

if TYPE_CHECKING:
    from ..backends.host_load import Load
    from ..ir.script.programs import Program
    from ..ir.target import Target

    Entry: TypeAlias = Kernel | Program | Callable[..., Any]

RACES, ROUNDS = 7, 20
MUCH_WAITED = 1.3  # wall time by processor time, a choice


class _Timed(Protocol):
    def time(self, calls: int) -> float: ...


@dataclass(frozen=True)
class Result:
    """One entry: microseconds of a call, the middle half of its samples, and its time as a multiple of the first's.

    The true multiple lies between `low` and `high`; `verdict` is ``faster``, ``slower``, ``the same`` or ``unclear``,
    and ``-`` of the first one.
    """

    name: str
    latency_us: float
    low_us: float
    high_us: float
    ratio: float
    low: float
    high: float
    verdict: str


class Results(tuple[Result, ...]):
    """The entries of a race in the order in which they were given; a table where it is shown."""

    notes: tuple[str, ...] = ()

    def __getitem__(self, name: Any) -> Any:
        """An entry by its name, or by its number."""
        if not isinstance(name, str):
            return super().__getitem__(name)
        found = {result.name: result for result in self}
        if name not in found:
            raise KeyError(f"no entry {name!r}; there are {', '.join(found)}")
        return found[name]

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """What the table shows."""
        return [
            (each.name, latency(each.latency_us), f"{latency(each.low_us)} to {latency(each.high_us)}",
             f"{each.ratio:.3f}x ({each.low:.3f} to {each.high:.3f})" if at else "1", each.verdict)
            for at, each in enumerate(self)
        ]  # fmt: skip

    @property
    def headings(self) -> tuple[str, str, str, str, str]:
        """The headings of the table."""
        return "", "latency", "middle half of the samples", f"time, of {self[0].name}'s (99 %)", "it is"

    def __repr__(self) -> str:
        """A table of plain text."""
        lines = [self.headings, *self.rows()]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*shown, *self.notes])

    def _repr_html_(self) -> str:
        return table("", self.headings, self.rows(), self.notes)

    def to_pandas(self) -> Any:
        """The entries as a DataFrame.  Raises ToolMissing where pandas is not installed."""
        return frame([vars(each) for each in self])


def race(
    entries: Mapping[str, Entry],
    *inputs: Any,
    target: str | Target = "cpu",
    interface: Mapping[str, str] | None = None,
    seconds: float = 10.0,
) -> Results:
    """Let kernels, schedules, records, programs and functions take turns for about so many seconds.

    `entries` are by name; the first is what the others are compared with.  A schedule, program or record is built
    for `target`, a schedule with `interface` (free where it changes a layout, if None).  A function of another library
    is called with `inputs` as they are, without any if there are none; kernels run on them too, packed before, and on
    random numbers without any.  Times of kernels are of calls back to back with Python excluded, those of functions
    include it.  Nothing is compared but time: what is built from one program computes the same, as it is proven.
    The result's `notes` say what stood in the way: a busy machine, functions that waited for processors.
    Raises UsageError for fewer than two entries, and TypeError for what is none.
    """
    if not isinstance(entries, Mapping) or len(entries) < 2:
        raise UsageError('race() takes two entries or more by name, as in ss.race({"mine": schedule, "tuned": record})')
    if strange := [name for name in entries if not isinstance(name, str)]:
        raise UsageError(f"the entries of a race have texts as their names, but one is {strange[0]!r}")
    checked_seconds(seconds)
    made = {name: _made(name, entry, target, interface) for name, entry in entries.items()}
    shapes = {
        name: ", ".join(f"{a.dtype}{list(a.logical_shape)}" for a in kernel.signature)
        for name, kernel in made.items() if isinstance(kernel, Kernel)
    }  # fmt: skip
    if len(set(shapes.values())) > 1:
        told = "; ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UsageError(f"the entries of a race compute the same, but take and give other things: {told}")
    samples: list[list[list[float]]] = []
    waited: dict[str, list[float]] = {name: [] for name, each in made.items() if not isinstance(each, Kernel)}
    load = look()
    with host_lock.exclusive():
        for _ in range(RACES):
            runners, probes = list[_Timed](), list[float]()
            for name, each in made.items():
                try:
                    runners.append(each.bound(*inputs) if isinstance(each, Kernel) else _Call(each, inputs))
                    probes.append(runners[-1].time(1))
                except Exception as error:
                    error.add_note(f"The entry {name!r} of the race raised this.")
                    raise
            samples.append(interleave(runners, probes, ROUNDS, seconds / RACES))
            for name, runner in zip(made, runners, strict=True):
                if isinstance(runner, _Call):
                    waited[name].append(runner.waited)
    results = Results(_results(list(made), samples))
    most = max((each.threads for each in made.values() if isinstance(each, Kernel)), default=1)
    results.notes = tuple(notes_of(load, {name: statistics.median(each) for name, each in waited.items()}, most))
    return results


def notes_of(load: Load | None, waited: Mapping[str, float], threads: int = 1) -> Iterator[str]:
    """A sentence for a busy machine, for more threads than cores, and for each function that waited for processors."""
    if load is not None and load.caveat:
        yield load.caveat
    if told := too_many(threads):
        yield told
    for name, times in waited.items():
        if times > MUCH_WAITED:
            yield (
                f"the wall time of {name!r} is {times:.1f} times its processor time: it waited for processors; try one "
                f"thread, e.g. OPENBLAS_NUM_THREADS=1"
            )


def _made(name: str, entry: Any, target: str | Target, interface: Mapping[str, str] | None) -> Any:
    """A kernel, or a function that is called as it is.  Raises TypeError for what is neither."""
    from ..ir.stmt import Module, PrimFunc
    from ..space.schedule import Schedule
    from ..space.workloads import Workload

    if isinstance(entry, Kernel):
        return entry
    if isinstance(entry, Record):
        return from_record(entry)
    if isinstance(entry, Schedule | Module | PrimFunc | Workload | str):
        return build(entry, target, interface)
    if callable(entry):
        return entry
    raise TypeError(
        f"an entry of a race is a kernel, a schedule, a record, a program or a function, but {name!r} is "
        f"something of type {type(entry).__name__}"
    )


class _Call:
    """A function of another library, timed with what Python takes."""

    def __init__(self, call: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self._call, self._inputs = call, inputs
        self._wall = self._computed = 0.0

    @property
    def waited(self) -> float:
        """Wall time as a multiple of the processor time of all threads; 1 where nothing was measured."""
        return self._wall / self._computed if self._computed else 1.0

    def time(self, calls: int) -> float:
        computed = time.process_time()
        start = time.perf_counter()
        for _ in range(calls):
            self._call(*self._inputs)
        seconds = time.perf_counter() - start
        self._computed += time.process_time() - computed
        self._wall += seconds
        return seconds / calls


def _results(names: Sequence[str], samples: Sequence[Sequence[Sequence[float]]]) -> Iterator[Result]:
    """Each entry beside the first, the level of all intervals together being that of `compare`."""
    alpha = ALPHA / max(1, len(names) - 1)
    for at, name in enumerate(names):
        mine = [race[at] for race in samples]
        every = [value for each in mine for value in each]
        quartiles = statistics.quantiles(every, n=4, method="inclusive") if len(every) > 1 else every * 3
        found = Ratio(1.0, 0.0, float("inf"))
        if at:
            found = ratio_in_turns([(race[0], race[at]) for race in samples], SIDE_BY_SIDE)
        low, high = found.bounds(alpha)
        if low > 1.0 or high < 1.0:
            verdict = "slower" if low > 1.0 else "faster"
        else:
            verdict = "the same" if low > 1 / (1 + SMALL) and high < 1 + SMALL else "unclear"
        quarter, middle, three = (1e6 * value for value in (quartiles[0], statistics.median(every), quartiles[2]))
        yield Result(name, middle, quarter, three, found.value, low, high, verdict if at else "-")
