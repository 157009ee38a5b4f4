"""`ss.tune` and `ss.compile`: searches from Python, with every parameter by name and with a display.

What they do is in `search.calling.api`, `models.api` and `models.tuning`, which show nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..errors import UsageError, named
from ..numerals import seed_of, time_limit, truth
from .live import watching
from .progress import State

if TYPE_CHECKING:
    from ..ir.script.programs import Program
    from ..ir.stmt import PrimFunc
    from ..ir.target import Target
    from ..models.api import Source
    from ..models.inputs import Shapes
    from ..models.ranges.api import Shapes as FreeShapes
    from ..models.ranges.model import RangedModel
    from ..models.run.model import Model
    from ..search.records.record import Record
    from ..space.design.rules import Rule
    from ..space.design.space import Space
    from ..space.interface import Who
    from ..space.schedule import Schedule

Emit = Callable[[dict[str, Any]], None]


@named
def tune(
    work: Program,
    target: str | Target = "cpu",
    *,
    trials: int | None = None,
    seconds: float | None = None,
    stop_at: float | None = None,
    db: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    dtype: str | None = None,
    interface: Who | Mapping[str, Who] | None = None,
    threads: int | None = None,
    pins: Mapping[str, str] | None = None,
    likely: Mapping[str, Mapping[int, float]] | None = None,
    schedules: Sequence[Schedule] = (),
    resume: bool = True,
    seed: int = 0,
    sampler: str | None = None,
    address: str | None = None,
    trace: str | None = None,
    emit: Emit | None = None,
    rules: Sequence[Rule] | None = None,
    generate: Callable[[PrimFunc, Target, Mapping[str, str]], Space] | None = None,
    builders: int | None = None,
    batch: int | None = None,
    finalists: int | None = None,
    race_seconds: float | None = None,
    mirror: bool | None = None,
    start: float | None = None,
) -> Record:
    """Find a fast kernel for `work` and return its record.

    `work` is a workload or its name, a program, its text or its file, or a record, whose interface is the default then;
    `target` a device or its text.  The first limit that is reached ends the search: so many `trials`, `seconds`, or a
    share of the roofline, `stop_at`; without any, 256 trials.  What is found is kept in `db`, by default that of the
    environment or of the user's data folder, and later searches begin with it, unless `resume` is false.

    `progress` shows how it goes: always, never, or if None in a notebook, as a chart, and on a terminal, on stderr.
    `dtype` is for a workload that is given by its name.  `interface` says who may choose each argument's layout
    (``fixed``, ``constant``, ``streamed``, ``free``), `pins` fixes decisions by name, `schedules` are your own, which
    are verified and raced first and take part in the final race.  `likely` are the numbers of a range, as m=(1, 512),
    that calls have more often than others, with their shares: ``{"m": {1: 0.5}}``.  `threads` are those of a CPU's
    kernel, `address` is of a Ray cluster, `trace` a file for https://ui.perfetto.dev, and `emit` gets every JSON event.

    `rules` are what the design space is made with, by default `stridesmith.RULES`; `generate` is another generator of
    it.  `sampler` is ``stridesmith`` or one of Optuna's.  `builders` is how many processes compile in all, `batch` how
    many candidates are chosen at once, `finalists` how many race at the end, each for `race_seconds`; `mirror` keeps a
    copy of the study for Optuna's tools, and `start` is the `time.monotonic()` from which the seconds count.
    """
    from ..search.calling.api import tune as run
    from ..search.tuning.settings import DEFAULT_TRIALS

    begun = time.monotonic() if start is None else start
    named = {
        "trials": trials, "seconds": seconds, "stop_at": stop_at, "db": db, "dtype": dtype, "interface": interface,
        "threads": threads, "pins": dict(pins) if isinstance(pins, Mapping) else pins, "sampler": sampler,
        "address": address, "trace": trace, "builders": builders, "batch": batch, "finalists": finalists,
        "race_seconds": race_seconds, "mirror": mirror, "likely": likely,
    }  # fmt: skip
    options = {name: value for name, value in named.items() if value is not None}
    has_limit = not (trials is None and seconds is None and stop_at is None)
    state = State("", limit_trials=trials if has_limit else DEFAULT_TRIALS, limit_seconds=seconds, started=begun)
    state.title = f"tuning {_shown(work)} for {getattr(target, 'kind', target)}"
    with watching(progress, state, emit) as told:
        return run(
            work, target, emit=told, generate=generate, rules=rules, schedules=schedules, start=begun, resume=resume,
            seed=seed, **options,
        )  # fmt: skip


def _shown(work: object) -> str:
    """A few words for a program."""
    if isinstance(work, str | os.PathLike):
        text = os.fspath(work)
        return text if "\n" not in text else "a script"
    return str(getattr(work, "title", None) or getattr(work, "name", None) or type(work).__name__)


@overload
def compile(
    source: Source,
    target: str | Target = "cpu",
    *,
    seconds: float | None = None,
    inputs: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    ranges: None = None,
    db: str | None = None,
    progress: bool | None = None,
    threads: int | None = None,
    seed: int = 0,
    address: str | None = None,
    winograd: bool = True,
    precision: str = "float32",
    fallback: str = "reference",
    emit: Emit | None = None,
) -> Model: ...


@overload
def compile(
    source: Source,
    target: str | Target = "cpu",
    *,
    ranges: Mapping[str, Any],
    inputs: FreeShapes | None = None,
    values: Mapping[str, Any] | None = None,
    db: str | None = None,
    threads: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    emit: Emit | None = None,
) -> RangedModel: ...


@named
def compile(
    source: Source,
    target: str | Target = "cpu",
    *,
    seconds: float | None = None,
    inputs: Any = None,
    values: Mapping[str, Any] | None = None,
    ranges: Mapping[str, Any] | None = None,
    db: str | None = None,
    progress: bool | None = None,
    threads: int | None = None,
    seed: int = 0,
    address: str | None = None,
    winograd: bool = True,
    precision: str = "float32",
    fallback: str = "reference",
    emit: Emit | None = None,
) -> Model | RangedModel:
    """The model of an ONNX file or a network: ``y = model(x)``.

    With `seconds` its operators are tuned, and this returns by then; what is found is kept in the database.  Without,
    or with 0, the best kernels that the database has are used, and what the estimate likes best for operators that it
    has none of; what has been compiled once is read from the user's cache then.  `progress` is as in `tune`.
    `inputs` gives shapes to the inputs of a file, by name, where the file leaves them open; an input to which `values`
    gives a value is that constant, and no input of the model, such as a sample rate that chooses a branch.  Without
    `winograd` no convolution is computed with fewer multiplications than it has; a database keeps both forms of a
    model apart, and with it the form that was measured to be the faster one is used.
    `precision` is the type of weights, and of what operators hand on to each other, ``bfloat16`` or ``float16`` where
    that may be; sums stay in float32 (`models.precision`).
    What has no program here runs by the reference implementation of ONNX, or, where `fallback` says ``onnxruntime``, by
    ONNX Runtime as far as that knows it (`models.fallback`).

    With `ranges`, extents of inputs are free: ``inputs={"ids": (1, "s")}, ranges={"s": (1, 512)}``, or a range alone
    where the file has that name.  What comes back takes arrays of all sizes in the ranges, and compiles nothing then.
    """
    from ..search.tasks.device import Device

    begun, limit, seed, winograd = time.monotonic(), time_limit(seconds), seed_of(seed), truth("winograd", winograd)
    if ranges is not None:
        from ..models.ranges import api, tuning

        if (precision, fallback) != ("float32", "reference"):
            raise UsageError("a model of free sizes is compiled in float32, with programs for all of its operators")
        if address is not None or not winograd:
            raise UsageError("`address` and `winograd` are no options of a model of free sizes; leave them out")
        device = Device.here(target, threads)
        free = api.network_of(source, device, api.FreeSizes(ranges, inputs or {}, values or {}))
        if limit:
            state = State(f"tuning {_shown(source)} for {target}", limit_seconds=limit, started=begun)
            with watching(progress, state, emit) as told:
                tuning.tune_network(free, device, limit, db=db, seed=seed, emit=told)
        return api.compiled(free, device, db)
    from ..models.api import Reading, compiled, read_as
    from ..models.inputs import Given
    from ..models.tuning import tune_network

    how = Reading(Given(inputs or {}, values or {}), winograd, precision, fallback)
    device = Device.here(target, threads)
    if not limit:
        return compiled(read_as(source, device, how, db), device, db)
    from .models import ModelState

    state = ModelState(f"tuning {_shown(source)} for {target}", limit_seconds=limit, started=begun)
    with watching(progress, state, emit) as told:
        network = read_as(source, device, how, db, tuning=True)
        return tune_network(network, device, limit, db=db, seed=seed, address=address, start=begun, emit=told).model
