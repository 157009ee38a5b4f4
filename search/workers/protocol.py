"""Jobs and replies: what a driver asks of a worker and what it gets, as values with one JSON form each.

==============  ==========  ====================================================================
job             reply       what it does
==============  ==========  ====================================================================
`Ping`          `Alive`     nothing
`Derive`        `Done`      derive a program's design space, which later builds find then
`Build`         `Built`     schedule a candidate, lower and compile it
`Prepare`       `Done`      compute the reference results of a workload and seed, and keep them
`Verify`        `Verified`  compare a kernel's results with the reference
`Measure`       `Measured`  verify a kernel, then time it
`Race`          `Raced`     verify several kernels, then time them in turns, between two peaks
`MeasureRoof`   `Roofed`    measure the device's peak and bandwidth
`CheckDevice`   `Done`      run a small program, to see whether the device answers
`Diagnose`      `Explained` texts of a candidate, from schedule to assembly, and facts about it
`SelfTest`      `Tested`    misbehave on request, to test what guards against it
==============  ==========  ====================================================================

Every job can have `Failed` for an answer instead: what goes wrong with a candidate is a value.

The JSON form of a value is an object with its fields; that of a job or reply has ``"job"`` or ``"reply"`` with the
name of its class beside them.  What is read is checked against the annotations: an unknown or missing field, a value of
another type and a number that is not finite raise `ProtocolError`, which names the place.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_typeddict

from ...backends.artifact import Argument, Artifact, InNetwork
from ...errors import BadRecord, StridesmithError
from ...ir.target import Target
from ..records.status import failure_kind, is_status
from ..tasks.task import ProgramName, Roof

Trace = list[Any]
"""A schedule's instructions as `space.schedule.Trace` writes them; only that module looks inside."""

TICK = "tick"
"""The line that a worker sends between a job and its reply to show that it goes on."""


class ProtocolError(StridesmithError, ValueError):
    """A text that is no job or no reply."""


# --- replies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a worker answers."""


@dataclass(frozen=True, kw_only=True)
class Failed(Reply):
    """A job that failed: its status as in `records.status`, and a sentence.

    A build that failed after its candidate had been scheduled has the `trace`.
    """

    status: str
    message: str = ""
    trace: Trace | None = None

    @property
    def kind(self) -> str:
        """The status without its detail."""
        return failure_kind(self.status)


@dataclass(frozen=True, kw_only=True)
class Done(Reply):
    """There is nothing to tell."""


@dataclass(frozen=True, kw_only=True)
class Alive(Reply):
    """The process that answers."""

    pid: int


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel, and how its arguments lie in memory.

    Of one for many shapes it is said of those whose extents are numbers, until it is taken for one, of which `sizes`
    are what only extents give.
    """

    artifact: Artifact
    layouts: tuple[Argument, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Built(Reply):
    """A compiled candidate; `code_hash` is equal for equal code, `trace` is there where the job had none.

    Where it is the program as written, though an estimate was asked for, `notice` says why.
    """

    kernel: Compiled
    code_hash: str
    trace: Trace | None = None
    notice: str = ""


@dataclass(frozen=True, kw_only=True)
class Verified(Reply):
    """The kernel's results were right; `max_abs_error` is None where it is not finite."""

    max_abs_error: float | None


@dataclass(frozen=True, kw_only=True)
class Measured(Reply):
    """Seconds of a call, several times; `max_abs_error` as in `Verified`.

    With a control, what they would be had the control taken the latency that is known of it.
    """

    samples: tuple[float, ...]
    max_abs_error: float | None


@dataclass(frozen=True, kw_only=True)
class Raced(Reply):
    """Results in the order of the entries, and the device's limits (the better peak of before and after) if asked.

    `busy` is how many of the host's processors others kept busy while kernels that run on them took turns; None where
    that is not known.
    """

    results: tuple[Measured | Failed, ...]
    roof: Roof | None
    busy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Roofed(Reply):
    """The device's limits."""

    roof: Roof


@dataclass(frozen=True, kw_only=True)
class Explained(Reply):
    """The scheduled `program` in script form, and `facts` as `backends.diagnosis.explain` gives them."""

    program: str
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tested(Reply):
    """What a self test that returns has seen of its process."""

    pid: int
    echo: str = ""
    modules: tuple[str, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


# --- jobs -------------------------------------------------------------------------------------------------------

R_co = TypeVar("R_co", bound=Reply, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Job(Generic[R_co]):
    """What a worker is asked to do; its `deadline` in seconds goes before those of `bench.Limits`."""

    timeout: ClassVar[str] = "run_timeout"
    """The status of a job that was not done in time."""

    deadline: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ping(Job[Alive]):
    """Show that the process lives."""


@dataclass(frozen=True, kw_only=True)
class Derive(Job[Done]):
    """Derive and keep the design space of a program on a target for an interface, and load what builds need."""

    script: str
    target: Target
    interface: dict[str, str]


@dataclass(frozen=True)
class Choice:
    """A candidate of the program's design space for `interface`: a sketch, and an alternative for each decision."""

    sketch: str
    indices: tuple[int, ...]
    interface: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Build(Job[Built]):
    """Schedule, lower and compile a candidate: a `choice`, a `trace`, or what the estimate likes best in the space for
    the interface `estimated`; without any of them, and where that space is empty, the program as written.
    What the estimate likes in the space of `like`, a program of the same form, is where the search for that begins.
    `over` are the numbers of two parameters that become one: an input, and the output that is written over it.

    `fault` is a mistake to put into its code (see `backends.faults`).
    """

    timeout: ClassVar[str] = "build_timeout"

    script: str
    target: Target
    choice: Choice | None = None
    trace: Trace | None = None
    estimated: dict[str, str] | None = None
    like: str | None = None
    over: tuple[int, int] | None = None
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prepare(Job[Done]):
    """Open a device, and compute and keep the reference results of a program and seed.

    Of the first sample alone if `first` says so.
    """

    timeout: ClassVar[str] = "no_reference"

    work: ProgramName
    seed: int
    first: bool = False
    target: Target | None = None


@dataclass(frozen=True, kw_only=True)
class Verify(Job[Verified]):
    """Verify a kernel on the data of a program and seed."""

    kernel: Compiled
    work: ProgramName
    seed: int


@dataclass(frozen=True)
class Control:
    """A kernel that candidates take turns with, and its latency in microseconds."""

    kernel: Compiled
    latency_us: float


@dataclass(frozen=True, kw_only=True)
class Measure(Job[Measured]):
    """Verify a kernel, then time it for about `repeat_ms`.

    A kernel far slower than `best_us` runs on the first sample alone; the others take turns with the `control`.  Calls
    that are timed are `called` as in a network, or back to back.  The `fault` ``fake_latency`` claims a nanosecond.
    """

    kernel: Compiled
    work: ProgramName
    seed: int
    called: InNetwork | None = None
    repeat_ms: float = 60.0
    best_us: float | None = None
    control: Control | None = None
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Race(Job[Raced]):
    """Verify kernels and time them in turns for at least `rounds` and at most `seconds`.

    `first` verifies them on the first sample of the seed alone, the exact one where there is one, which does for
    kernels that other data has verified.  Calls are as in `Measure`.  With `roof` the device's limits are measured
    beside them; the peak is that of multiply-adds of `dtype`.
    """

    kernels: tuple[Compiled, ...]
    work: ProgramName
    seed: int
    called: InNetwork | None = None
    dtype: str = "float32"
    rounds: int = 20
    seconds: float = 5.0
    roof: bool = True
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasureRoof(Job[Roofed]):
    """Measure the peak for a dtype, and the bandwidth; and the peaks of other dtypes that are asked `also`."""

    target: Target
    dtype: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckDevice(Job[Done]):
    """Build and run a small program on a device."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Diagnose(Job[Explained]):
    """Lower a trace (None for the program as written) and explain it; only where `compiled` is code made."""

    timeout: ClassVar[str] = "build_timeout"

    script: str
    target: Target
    trace: Trace | None
    compiled: bool = True


@dataclass(frozen=True, kw_only=True)
class SelfTest(Job[Tested]):
    """Do `what` (see `selftest.ACTIONS`), after some ticks; the other fields are what these actions take."""

    what: str
    echo: str = ""
    seconds: float = 0.0
    signal: str = ""
    code: int = 0
    pid_file: str = ""
    ticks: int = 0
    tick_seconds: float = 0.0


Question = Prepare | Verify | Measure | Race
"""Jobs that need the reference results of a program and seed."""

JOBS: dict[str, type[Job[Any]]] = {
    kind.__name__: kind
    for kind in (Ping, Derive, Build, Prepare, Verify, Measure, Race, MeasureRoof, CheckDevice, Diagnose, SelfTest)
}
REPLIES: dict[str, type[Reply]] = {
    kind.__name__: kind for kind in (Failed, Done, Alive, Built, Verified, Measured, Raced, Roofed, Explained, Tested)
}


# --- JSON -------------------------------------------------------------------------------------------------------


def to_text(value: Job[Reply] | Reply | ProgramName) -> str:
    """A job or reply as one line of JSON."""
    return json.dumps(_encoded(value), allow_nan=False)


def job_of(text: str | bytes) -> Job[Reply]:
    """The job of a line.  Raises ProtocolError."""
    return cast("Job[Reply]", _tagged("job", JOBS, _parsed(text), ""))


def reply_of(job: Job[R_co], text: str | bytes) -> R_co | Failed:
    """The reply of a line to `job`.  Raises ProtocolError."""
    reply = _tagged("reply", REPLIES, _parsed(text), "")
    expected = get_args(type(job).__orig_bases__[0])[0]  # type: ignore[attr-defined]
    if not isinstance(reply, expected | Failed):
        raise ProtocolError(f"a {type(reply).__name__} is no reply to a {type(job).__name__}")
    return cast("R_co | Failed", reply)


def _parsed(text: str | bytes) -> object:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number of ours")

    try:
        found: object = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no line of JSON: {str(error)[:200] or type(error).__name__}") from None
    return found


def _encoded(value: Any) -> Any:
    if isinstance(value, Argument):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {**given, "layout": value.layout.to_json()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _encoded(getattr(value, f.name)) for f in dataclasses.fields(value)}
        tag = "job" if isinstance(value, Job) else "reply" if isinstance(value, Reply) else None
        return {tag: type(value).__name__, **fields} if tag else fields
    if isinstance(value, tuple | list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        return {key: _encoded(item) for key, item in value.items()}
    return value


def _tagged(tag: str, kinds: Mapping[str, type], data: object, place: str) -> object:
    """The job or reply whose class `data` names."""
    name = data.get(tag) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(name, str) or name not in kinds:
        raise ProtocolError(f"{place or 'the line'} holds an unknown {tag} {name!r}; there are {', '.join(kinds)}")
    return _object(kinds[name], {key: item for key, item in data.items() if key != tag}, place or name)


class _AsLayout:
    """`Layout` in annotations: NumPy comes with it, which processes that only hand jobs on do without."""


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, localns={"Layout": _AsLayout})
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def _object(kind: type, data: object, place: str) -> Any:
    """A dataclass or typed dict from its fields."""
    hints = _hints(kind)
    if not isinstance(data, dict):
        raise ProtocolError(f"{place}: a {kind.__name__} is an object, but got {_shown(data)}")
    if unknown := [str(key) for key in data if key not in hints]:
        raise ProtocolError(f"{place} has no field {', '.join(map(repr, unknown[:3]))}; there are {', '.join(hints)}")
    found = {name: _decoded(hints[name], item, f"{place}.{name}") for name, item in data.items()}
    required = set(hints) if _is_typeddict(kind) else _required(kind)
    if missing := sorted(required - set(found)):
        raise ProtocolError(f"{place} lacks {', '.join(missing)}")
    if kind is Failed and (found["status"] == "ok" or not is_status(found["status"])):
        raise ProtocolError(f"{place}.status: {found['status']!r} is no failure")
    return kind(**found)


@functools.cache
def _required(kind: type) -> frozenset[str]:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return frozenset(f.name for f in fields if f.default is missing and f.default_factory is missing)


def _decoded(hint: Any, data: object, place: str) -> Any:
    """`data` as a value of the annotated type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return data
    if origin in (Union, types.UnionType):
        return _one_of(arguments, data, place)
    if origin in (tuple, list) and isinstance(data, list):
        items = [_decoded(arguments[0], item, f"{place}[{n}]") for n, item in enumerate(data)]
        return tuple(items) if origin is tuple else items
    if origin is dict and isinstance(data, dict):
        return {str(key): _decoded(arguments[1], item, f"{place}.{key}") for key, item in data.items()}
    if origin is None and issubclass(hint, Reply):
        found = _tagged("reply", REPLIES, data, place)
        if isinstance(found, hint):
            return found
        raise ProtocolError(f"{place}: a {type(found).__name__} is no {hint.__name__}")
    if hint is _AsLayout:
        from ...ir.layout.layout import Layout

        try:
            return Layout.from_json(data)
        except BadRecord as error:
            raise ProtocolError(f"{place} is {error}") from None
    if dataclasses.is_dataclass(hint) or _is_typeddict(hint):
        return _object(cast("type", hint), data, place)
    if hint is float and isinstance(data, int | float) and not isinstance(data, bool):
        if math.isfinite(number := _as_float(data)):
            return number
        raise ProtocolError(f"{place} must be finite, but got {_shown(data)}")
    if type(data) is hint:
        return data
    raise ProtocolError(f"{place} must be {getattr(hint, '__name__', hint)}, but got {_shown(data)}")


def _as_float(data: float) -> float:
    try:
        return float(data)
    except OverflowError:
        return math.inf


def _one_of(hints: Sequence[Any], data: object, place: str) -> Any:
    if data is None and type(None) in hints:
        return None
    problems = []
    for hint in hints:
        try:
            return _decoded(hint, data, place)
        except ProtocolError as error:
            problems.append(str(error))
    raise ProtocolError(problems[0])


def _shown(data: object) -> str:
    return repr(data)[:80]
