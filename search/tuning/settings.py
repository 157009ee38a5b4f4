"""What a tuning run is asked for, validated before anything is started."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    model_validator,
)

from ...errors import UsageError
from ...ir.target import Target
from ...numerals import as_real, as_whole
from ...space.interface import Who
from ..tasks.device import Device
from ..tasks.interface import interface_of
from ..tasks.task import Task, check_tunable, script_work

DEFAULT_TRIALS = 256  # where nothing else ends a run, a choice
FAULTS_VARIABLE = "STRIDESMITH_FAULTS"


def _faults() -> dict[int, str]:
    """Faults to inject, from the environment: ``3:null_store,7:drop_tail+fake_latency``."""
    text = os.environ.get(FAULTS_VARIABLE, "")
    found: dict[int, str] = {}
    for item in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*([0-9]{1,6}):([a-z_+]+)\s*", item)
        if match is None:
            raise UsageError(f"{FAULTS_VARIABLE} holds {item!r}, but an item reads TRIAL:FAULT, as in 3:null_store")
        found[int(match[1])] = match[2]
    return found


def _whole(value: Any) -> int:
    """A whole number of Python's or NumPy's.  Raises ValueError for others, and for a text or a truth value."""
    if (number := as_whole(value)) is None:
        raise ValueError("Input should be a whole number, and no text or truth value")
    return number


def _real(value: Any) -> float:
    """A number of Python's or NumPy's.  Raises ValueError as `_whole` does."""
    if (number := as_real(value)) is None:
        raise ValueError("Input should be a number, and no text or truth value")
    return number


Whole = Annotated[int, BeforeValidator(_whole)]
Real = Annotated[float, BeforeValidator(_real)]


class TuneSettings(BaseModel):
    """The options of `tune`; times are seconds, `stop_at` a fraction of the roofline.

    Exactly one of `workload` (a name of the library, with `params`) and `script`
    (program text; `script_name` chooses among several functions) says what is
    tuned.  `interface` is one word for all arguments, or a word for each that it
    names.  `trials` None means the default, or no limit where `seconds` or
    `stop_at` is given.  `builders` is how many processes compile in all, by
    default one for each core.  `start` is the `time.monotonic()` value that the
    clock counts from.  `mirror` keeps a copy of the study for Optuna's tools
    beside the database, `trace` is a file for the run's trace.  `faults` are put
    into the candidates of those trial numbers, for testing what guards against
    them.  `likely` are numbers of a size that is a range, each with its share of all calls; the others share the rest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: str | None = None
    params: dict[str, int | str] = Field(default_factory=dict)
    script: str | None = None
    script_name: str | None = None
    dtype: str = "float32"
    target: StrictStr | Target = "cpu"
    interface: Who | dict[str, Who] = Field(default_factory=dict)
    trials: Annotated[Whole, Field(ge=1, le=10_000_000)] | None = None
    seconds: Annotated[Real, Field(gt=0, allow_inf_nan=False)] | None = None
    stop_at: Annotated[Real, Field(gt=0, le=1)] | None = None
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0
    sampler: str = "stridesmith"
    pins: dict[str, str] = Field(default_factory=dict)
    likely: dict[str, dict[Whole, Real]] = Field(default_factory=dict)
    threads: Annotated[Whole, Field(ge=1, le=4096)] | None = None
    address: str | None = None
    builders: Annotated[Whole, Field(ge=1, le=65536)] | None = None
    db: str | None = None
    resume: StrictBool = True
    mirror: StrictBool = True
    trace: str | None = None
    batch: Annotated[Whole, Field(ge=1, le=1024)] = 16
    finalists: Annotated[Whole, Field(ge=1, le=64)] = 4
    race_seconds: Annotated[Real, Field(gt=0, le=600)] = 1.0
    start: Real | None = None
    faults: dict[int, str] = Field(default_factory=_faults)

    @model_validator(mode="after")
    def _one_program(self) -> TuneSettings:
        if (self.workload is None) == (self.script is None):
            raise ValueError("give either a workload or a script")
        return self

    @property
    def trial_limit(self) -> int | None:
        """How many candidates may be sent to a builder, None for no limit."""
        if self.trials is None and self.seconds is None and self.stop_at is None:
            return DEFAULT_TRIALS
        return self.trials


def settings(**options: Any) -> TuneSettings:
    """Validated settings, or a UsageError that names each wrong option."""
    try:
        return TuneSettings(**options)
    except ValidationError as error:
        deepest: dict[str, Any] = {}  # of a value that none of several types takes, what is said of its innermost part
        for each in error.errors(include_url=False):
            option = str(each["loc"][0]) if each["loc"] else str(each["msg"])
            if option not in deepest or len(each["loc"]) > len(deepest[option]["loc"]):
                deepest[option] = each
        raise UsageError("; ".join(_complaint(each) for each in deepest.values())) from None


def _complaint(error: Any) -> str:
    option = str(error["loc"][0]) if error["loc"] else ""
    message = str(error["msg"]).removeprefix("Value error, ")
    if option == "likely":
        message = 'likely numbers of a size are given with their shares of all calls, as in {"m": {1: 0.5, 128: 0.3}}'
    return f"{option}={error['input']!r}: {message}" if option else message


def resolve(settings: TuneSettings) -> Task:
    """The task that `settings` describe.  Raises UsageError and DeviceMissing (exit codes 2 and 4)."""
    from ...space.workloads import workload

    if settings.script is not None:
        work = script_work(settings.script, settings.script_name)
        check_tunable(work.func)
    else:
        work = workload(str(settings.workload), **{**settings.params, "dtype": settings.dtype})
    target = Device.named(settings.target, settings.threads).target
    return Task(work, target, interface_of(work, settings.interface))
