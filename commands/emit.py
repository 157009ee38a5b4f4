"""`tune emit`: a tuned kernel or model as files that need neither Python nor this package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadRecord, UsageError
from .lookup import reading, record_of, target_of
from .options import one_work, refuse_of_models
from .output import Output

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..models.run.model import Model
    from ..search.calling.kernel import Kernel


def run(where: str, options: dict[str, Any], output: Output) -> int:
    """Write the kernel of a record, of a script as it is written, or a model, in the format that was asked for.

    Raises NoRecord, BadRecord, ToolMissing, and UsageError for what does not go together.
    """
    from ..backends.export.formats import place_of

    kernel, target, called = _found(options, output)
    path, described = place_of(where, options["format"], called), _described(options.get("isa"), target)
    for written in kernel.export(path, options["format"], target=described):
        output.line(str(written))
    return 0


def _found(options: dict[str, Any], output: Output) -> tuple[Kernel | Model, Target, str]:
    """What leaves, the target that it was made for, and the name of its function where the path gives none."""
    if options.get("model"):
        from .models import compiled_model

        model = compiled_model(options, output)
        return model, model.target, Path(options["model"]).stem
    refuse_of_models(options)
    return _as_written(options) if options.get("as_written") else _recorded(options, output)


def _recorded(options: dict[str, Any], output: Output) -> tuple[Kernel, Target, str]:
    from ..search.calling.kernel import from_record

    with reading(options.get("db"), output) as database:
        record = record_of(options, database)
    if not record.ok:
        raise BadRecord(f"record {record.id} is a failed candidate ({record.status}): there is no kernel to emit")
    if not record.verified:
        raise BadRecord(
            f"record {record.id} was not verified on this machine's behalf, "
            f"which `tune replay --record {record.id}` does"
        )
    return from_record(record), record.device, record.workload or "kernel"


def _as_written(options: dict[str, Any]) -> tuple[Kernel, Target, str]:
    """The program of `--script` with no other schedule than its own."""
    from ..search.calling.kernel import build
    from ..search.tasks.interface import interface_of

    if not options.get("script"):
        raise UsageError("--as-written goes with --script FILE.py, whose program it takes as it is")
    entry, target = one_work(options), target_of(options)
    asked = interface_of(entry.work, entry.interface, options.get("interface"))
    return build(entry.work.func, target, asked, given=entry.work.func), target, entry.work.name


def _described(name: str | None, target: Target) -> Target | None:
    """The CPU of `--isa`, with the threads that the kernel was tuned for."""
    from .. import configs

    if name is None:
        return None
    if target.kind != "cpu":
        raise UsageError(f"--isa is for kernels of the CPU, but this one is for {target.kind}")
    return replace(configs.target(name if name in configs.targets() else f"cpu-{name}"), threads=target.threads)
