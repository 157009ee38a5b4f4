"""What `import stridesmith` offers on top of the packages: calls that take a workload or a program and a target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import UsageError, did_you_mean
from ..records.record import Record
from ..tasks.task import device_of
from ..tuning.settings import TuneSettings, settings
from .kernel import Kernel, build, load
from .replay import Replayed

if TYPE_CHECKING:
    from ...backends.lower import Lowered
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ...space.design.rules import Rule
    from ...space.design.space import Space
    from ...space.workloads import Workload

__all__ = ["Kernel", "build", "load", "lower", "replay", "tune"]


def tune(
    work: Workload | PrimFunc | str,
    target: str | Target = "cpu",
    *,
    emit: Callable[[dict[str, Any]], None] | None = None,
    generate: Callable[[PrimFunc, Target, Mapping[str, str]], Space] | None = None,
    rules: Sequence[Rule] | None = None,
    **options: Any,
) -> Record:
    """Find a fast kernel for `work` and return its record.

    `work` is a workload, a program, or the name of a workload; `target` a device or its text.  `options` are the
    fields of `search.tuning.settings.TuneSettings`, such as ``trials``, ``seconds``,
    ``db``, ``interface`` and ``seed``; ``emit`` gets every JSON event.  ``generate`` replaces
    the generator of the design space, `stridesmith.generate`; ``rules`` are what that one
    makes sketches with, by default `stridesmith.RULES`.
    """
    options.setdefault("start", time.monotonic())
    from ...space.design.space import generate as from_rules
    from ..tuning.tuner import tune as run

    if rules is not None:
        if generate is not None:
            raise UsageError("tune() takes rules for its own generator, or another generator, but not both")
        generate = partial(from_rules, rules=rules)

    unknown = [name for name in options if name not in TuneSettings.model_fields]
    if unknown:
        hint = did_you_mean(unknown[0], TuneSettings.model_fields)
        raise UsageError(f"tune() has no option {unknown[0]!r}{hint}")
    if "interface" in options and isinstance(options["interface"], Mapping):
        options["interface"] = dict(options["interface"])
    return run(settings(**_program(work, options), target=target, **options), emit, generate=generate)


def _program(work: Workload | PrimFunc | str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that name the program."""
    from ...ir.stmt import PrimFunc

    if isinstance(work, str):
        return {"workload": work}
    if isinstance(work, PrimFunc):
        return {"script": work.script()}
    if work.params and "dtype" not in options:
        return {"workload": work.name, "params": dict(work.shape), "dtype": work.dtype}
    if work.params:
        raise UsageError(f"the workload has dtype {work.dtype} already; leave `dtype` out")
    return {"script": work.script}


def replay(record: Record | str, db: str | None = None, *, any_device: bool = False) -> Replayed:
    """Rebuild a record (or the one of this id) in a new process, verify it with fresh data, measure it again."""
    from ..records.database import Database
    from .replay import replay as run

    if isinstance(record, Record) and db is None:
        return run(record, any_device=any_device)
    with Database(db) as database:
        found = database.get(record) if isinstance(record, str) else record
        return run(found, database, any_device=any_device)


def lower(func: PrimFunc, target: str | Target = "cpu", *, strict: bool = False) -> Lowered:
    """`func` as the code generators see it: loops, flat buffers, no blocks; `strict` as in `build`."""
    from ...backends.lower import lower as run

    return run(func, device_of(target), strict)
