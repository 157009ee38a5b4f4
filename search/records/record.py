"""A record: one candidate's concrete trace, what was measured, where, and how it was verified.

A record is the unit that the database keeps, that logs carry as one line of JSON,
and that replay starts from.  Everything read from outside passes through these
models: sizes are bounded, numbers are finite and not negative, texts hold no
control characters, unknown fields are refused, and nothing is ever evaluated.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import time
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from ...backends.host_load import MUCH_BUSY
from ...errors import BadRecord
from ...figures import latency
from ...ir.markup import table
from ...ir.target import Target
from ...space.interface import Who
from ..tasks.interface import LONGEST_NAME, MOST_ARGUMENTS
from .status import FAILURES, KINDS, OK, failure_kind, is_status

SCHEMA = 1  # of a record; a change of what fields mean is another one
MAX_LINE = 4 * 2**20  # characters, a choice
MAX_DEPTH = 40  # of lists in lists, a choice
MOST_VERSIONS = 60  # a choice
LISTS = ("features", "versions", "image_types")  # facts of a target that are lists of words
LONGEST_FACT, LONGEST_LIST, LONGEST_KEY = 200, 20_000, 500  # characters of a target's facts, and of its key
LONGEST_SHOWN, MOST_SHOWN = 200_000, 6  # characters of a program that a title is looked for in, and buffers in a title
ORIGIN = "origin"  # among a record's versions: the id of the record of another device whose trace it has
OWN = "yours"  # the run and the sketch of a schedule that a user has written
IMPORTED = "imported"  # the same: what brought a record that a stranger measured

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of characters (surrogates), which no database stores."""

Name = Annotated[str, StringConstraints(max_length=200)]
Text = Annotated[str, StringConstraints(max_length=2000)]
Sketch = Annotated[str, StringConstraints(max_length=20_000)]
"""A sketch's name says the structure of each of a program's anchors, of which there may be dozens."""
Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]
Parameter = Annotated[int, Field(ge=-(2**62), le=2**62)] | Annotated[str, StringConstraints(max_length=100)]


def _identifier(text: str) -> str:
    """The name of an argument, in any script that the language allows, or several with dots between them."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError("is no name of an argument")
    return text


Identifier = Annotated[str, StringConstraints(max_length=LONGEST_NAME), AfterValidator(_identifier)]


def script_hash(script: str) -> str:
    """What a program text is found by; the full text decides."""
    return hashlib.sha256(script.encode()).hexdigest()


def _fresh_id() -> str:
    return uuid.uuid4().hex[:16]


class Foretold(BaseModel):
    """What the cost model said of a candidate before it was measured: larger is faster.

    `score` is the base-2 logarithm of its throughput up to a constant that all of its `batch` share; `model` says
    whether the ranker had learned from measurements, or knew the estimate alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: Literal["estimate", "learned"]
    batch: Annotated[int, Field(ge=0, lt=2**31)]
    score: Annotated[float, Field(gt=-1e6, lt=1e6, allow_inf_nan=False)]


class Record(BaseModel):
    """One candidate and what became of it.

    `samples` are seconds per call and `latency_us` their median in microseconds;
    both are present exactly when `status` is "ok".  `trace` is null for the
    untuned program.  `stage` is "race" once the final interleaved race measured
    the record; before, in a "trial", its samples are relative to a kernel of the
    same run with which it took turns, so that they compare with those of that
    run alone.  `busy` is how many processors others kept busy during that race,
    null where nothing is known of it.  `verified` says that this machine compared its results with the
    reference.  `choice` holds decision indices of `sketch` under
    `space_version`; replay reads `trace` alone, a list that is JSON; its text is
    ``ss.Trace.from_json(record.trace).script()``.
    """

    model_config = ConfigDict(extra="forbid", strict=True, validate_assignment=False, frozen=True)

    schema_version: Literal[1] = 1
    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")] = Field(default_factory=_fresh_id)
    script: Annotated[str, StringConstraints(min_length=1, max_length=2**20)]
    workload: Name = ""
    params: dict[Name, Parameter] = Field(default_factory=dict, max_length=64)
    dtype: Name = ""
    interface: dict[Identifier, Who] = Field(default_factory=dict, max_length=MOST_ARGUMENTS)
    target: dict[Name, str | int | bool] = Field(max_length=64)
    trace: Annotated[list[Any], Field(max_length=5000)] | None = None
    sketch: Sketch = ""
    choice: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=1000)] = Field(default_factory=list)
    space_version: Annotated[int, Field(ge=0, lt=2**31)] = 0
    status: str = "ok"
    message: Text = ""
    stage: Literal["trial", "race"] = "trial"
    samples: Annotated[list[Seconds], Field(max_length=10_000)] = Field(default_factory=list)
    latency_us: Annotated[float, Field(gt=0, lt=1e12, allow_inf_nan=False)] | None = None
    max_abs_error: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    verified: bool = False
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    trial: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    run: Name = ""
    foretold: Foretold | None = None
    busy: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)] | None = None
    versions: dict[Name, Name] = Field(default_factory=dict, max_length=64)
    created: Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)] = Field(default_factory=time.time)

    @field_validator("status")
    @classmethod
    def _status(cls, value: str) -> str:
        if not is_status(value):
            raise ValueError(f"must be ok or one of {', '.join(FAILURES)}, optionally with `:detail`")
        return value

    @field_validator("target")
    @classmethod
    def _target(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        target = Target.from_json(value)
        for name, fact in value.items():
            longest = LONGEST_LIST if name in LISTS else LONGEST_FACT
            if isinstance(fact, str) and len(fact) > longest:
                raise ValueError(f"the target fact {name} has {len(fact)} characters, of at most {longest}")
        if len(target.key) > LONGEST_KEY:
            raise ValueError(f"the key of the target has {len(target.key)} characters, of at most {LONGEST_KEY}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.status == "ok") != (self.latency_us is not None and bool(self.samples)):
            raise ValueError("a record has samples and a latency exactly when its status is ok")
        if self.latency_us is not None:
            median = statistics.median(self.samples) * 1e6
            if not math.isclose(median, self.latency_us, rel_tol=1e-3):
                raise ValueError(f"latency_us is {self.latency_us:g}, but the median of the samples is {median:g}")
        for text in (self.workload, self.sketch, self.message, self.dtype, self.run, *self.params, *self.interface):
            _printable(text)
        for value in (*self.params.values(), *self.target.values(), *self.versions.values(), *self.versions):
            if isinstance(value, str):
                _printable(value)
        _printable(self.script)
        if self.trace is not None:
            _plain(self.trace)
        return self

    @property
    def ok(self) -> bool:
        """True when the candidate built, ran and gave the right result."""
        return self.status == OK

    @property
    def failure(self) -> str | None:
        """The kind of failure without its detail, or None."""
        return None if self.ok else failure_kind(self.status)

    @property
    def origin(self) -> str:
        """The id of the record of another device that the trace comes from; empty where it is this one's own."""
        return self.versions.get(ORIGIN, "")

    @property
    def imported(self) -> str:
        """What brought a record that was measured by a stranger; empty for this database's own."""
        return self.versions.get(IMPORTED, "")

    @property
    def workload_key(self) -> str:
        return script_hash(self.script)

    @property
    def device_key(self) -> str:
        return self.device.key

    @property
    def device(self) -> Target:
        """The target that the record was measured on."""
        return Target.from_json(dict(self.target))

    def __repr__(self) -> str:
        """What was scheduled, where, and how fast it is."""
        device, state = self.device, latency(self.latency_us) if self.latency_us is not None else self.status
        where = f"{device.name}, {device.threads} threads" if device.kind == "cpu" else f"{device.kind}: {device.name}"
        return f"<Record {self.id}: {self.title} on {where}: {state}{'' if self.verified else ', not verified here'}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        device, middle = self.device, self.middle_us
        spread = f", half of the samples from {latency(middle[0])} to {latency(middle[1])}" if middle else ""
        rows = [
            ("program", self.title), ("device", f"{device.kind}: {device.name}, {device.threads} threads"),
            ("latency", self.status if self.latency_us is None else f"{latency(self.latency_us)}{spread}"),
            ("verified", "yes" if self.verified else "not here"), ("sketch", self.sketch), ("run", self.run),
            ("versions", ", ".join(f"{name} {text}" for name, text in self.versions.items())),
        ]  # fmt: skip
        return table(f"Record {self.id}", ("", ""), [row for row in rows if row[1]])

    @property
    def title(self) -> str:
        """``conv2d(n=1,...) float32 w=constant``."""
        from ...space.workloads import describe

        shape = {name: value for name, value in self.params.items() if name != "dtype"}
        special = ",".join(f"{name}={kind}" for name, kind in sorted(self.interface.items()) if kind != "fixed")
        told = describe(shape) if shape else ",".join(f"{name}={extents}" for name, extents in self._extents())
        name = f"{self.workload or 'script'}({told})" if told else self.workload
        return " ".join(part for part in (name, self.dtype, special) if part)

    def _extents(self) -> list[tuple[str, str]]:
        """The parameters of a program without a name of the library, each with its extents: ``36x64``."""
        head = self.script.partition("):")[0] if len(self.script) <= LONGEST_SHOWN else ""
        found = re.findall(r"(\w+): T\.Buffer\(\((\d+(?:, \d+)*),?\)", head)
        return [(name, extents.replace(", ", "x")) for name, extents in found][:MOST_SHOWN]

    @property
    def middle_us(self) -> tuple[float, float] | None:
        """Between which latencies the middle half of the samples lie; None where there are fewer than four."""
        if len(self.samples) < 4:
            return None
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low * 1e6, high * 1e6

    def changed(self, **fields: Any) -> Record:
        """This record with `fields` replaced, validated again."""
        return validate(self.model_dump() | fields)

    @property
    def is_drivers(self) -> bool:
        """Whether it is a failure that the driver of an OpenCL device may be to blame for."""
        return self.failure is not None and KINDS[self.failure].of_driver and self.target.get("kind") == "opencl"

    def is_disproved_by(self, failure: str) -> bool:
        """Whether a failure of this kind, met on the record's device, takes its measurement back.

        What another version of the package measured may be refused by this one for not knowing a primitive of it.
        """
        from ...version import __version__

        same = self.versions.get("stridesmith", __version__) == __version__
        return KINDS[failure].disqualifies and (same or failure not in ("refused", "build_error"))

    def failed(self, status: str, message: str) -> Record:
        """This record as a failure."""
        return self.changed(
            status=status,
            message=printable(message),
            samples=[],
            latency_us=None,
            max_abs_error=None,
            busy=None,
            verified=False,
        )

    def measured(
        self, samples: Iterable[float], max_abs_error: float | None, stage: str, busy: float | None = None
    ) -> Record:
        """This record with new, verified samples (seconds per call), while others kept so many processors `busy`."""
        found = list(samples)
        return self.changed(
            status=OK,
            message="",
            samples=found,
            latency_us=statistics.median(found) * 1e6,
            max_abs_error=max_abs_error,
            stage=stage,
            busy=busy,
            verified=True,
        )

    def outlasts(self, later: Record) -> bool:
        """Whether a race's measurement stands although `later`, of the same candidate, is newer.

        It does where that is of a trial, which compares with nothing, and where others kept more processors busy in the
        later race: what is slower then, and which candidate waits least, says nothing of the machine by itself.
        """
        if self.stage != "race" or not (self.ok and self.verified and later.ok):
            return False
        if later.stage != "race":
            return True
        return self.busy is not None and later.busy is not None and later.busy > self.busy + MUCH_BUSY


def marked(record: Record, source: str) -> Record:
    """The record as one that `source` brought: neither verified, nor raced, and without the origin that it tells."""
    told = [item for item in record.versions.items() if item[0] not in (ORIGIN, IMPORTED)][:MOST_VERSIONS]
    source = printable(source, 200) or "a log"
    return record.changed(verified=False, stage="trial", versions={**dict(told), IMPORTED: source})


def printable(text: str, limit: int = 2000) -> str:
    """`text` without control characters and not longer than `limit`, for a record's message."""
    return _CONTROL.sub("?", text)[:limit]


def validate(data: dict[str, Any]) -> Record:
    """The record that `data` describes, or BadRecord with every rule that failed."""
    try:
        return Record.model_validate(data)
    except (ValidationError, RecursionError) as error:
        raise BadRecord(f"not a valid record: {_sentence(error)}") from None


def to_line(record: Record) -> str:
    """The record as one line of JSON, without the newline."""
    return json.dumps(record.model_dump(), separators=(",", ":"), allow_nan=False)


def from_line(line: str) -> Record:
    """The record that `to_line` wrote; anything else is a BadRecord."""
    if len(line) > MAX_LINE:
        raise BadRecord(f"a record is at most {MAX_LINE} characters, but this line has {len(line)}")
    try:
        _check_depth(line)
        data = json.loads(line, parse_constant=_no_constant, parse_int=_small_int)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not a line of JSON: {printable(str(error), 300)}") from None
    if not isinstance(data, dict):
        raise BadRecord(f"a record is a JSON object, but this line is a {type(data).__name__}")
    return validate(data)


def _printable(text: str) -> None:
    if found := _CONTROL.search(text):
        raise ValueError(f"a text holds the control character {found.group()!r}")


def _plain(value: Any, depth: int = 0) -> None:
    """A trace holds lists, objects, texts and finite numbers, nested a little."""
    if depth > MAX_DEPTH:
        raise ValueError(f"a trace is nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for key, item in value.items():
            _plain(key, depth + 1)
            _plain(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _plain(item, depth + 1)
    elif isinstance(value, str):
        if len(value) > 20_000:
            raise ValueError("a text in a trace is longer than 20000 characters")
        _printable(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a trace holds a number that is not finite")
    elif isinstance(value, int) and abs(value) > 2**63:
        raise ValueError("a trace holds an integer of more than 64 bits")
    elif value is not None and not isinstance(value, int | bool):
        raise ValueError(f"a trace holds a {type(value).__name__}")


def _check_depth(line: str) -> None:
    depth = 0
    quoted = False
    for token in re.finditer(r'\\.|["\[\]{}]', line):
        mark = token.group()
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
        elif not quoted and mark in "]}":
            depth -= 1


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number that a record may hold")


def _small_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError("an integer of more than 20 digits")
    return int(text)


def _sentence(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    parts = [f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']}" for e in error.errors(include_input=False)[:4]]
    return printable("; ".join(parts), 800)
