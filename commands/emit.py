"""`stridesmith emit`: a tuned kernel or model as files that need neither Python nor this package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadRecord, UsageError
from ..invocation import COMMAND
from ..search.tasks.device import Device
from .lookup import interface_asked, reading, record_of
from .options import RecordOptions, one_work, refuse_of_models
from .output import Output

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..models.run.model import Model
    from ..search.calling.kernel import Kernel


@dataclass(frozen=True)
class EmitOptions(RecordOptions):
    """What is written: in which `format`, for which other CPU, and whether a script is left `as_written`."""

    format: str = "so"
    isa: str | None = None
    as_written: bool = False


def run(where: str, options: EmitOptions, output: Output) -> int:
    """Write the kernel of a record, of a script as it is written, or a model, in the format that was asked for.

    Raises NoRecord, BadRecord, ToolMissing, and UsageError for what does not go together.
    """
    from .. import configs
    from ..backends.export.formats import place_of

    named, isa = options.isa, None
    if named is not None:  # a mistake in it need not wait for a record
        isa = configs.target(named if named in configs.targets() else f"cpu-{named}")
    kernel, target, called = _found(options, output)
    if isa is not None and target.kind != "cpu":
        raise UsageError(f"--isa is for kernels of the CPU, but this one is for {target.kind}")
    path, described = place_of(where, options.format, called), isa and replace(isa, threads=target.threads)
    for written in kernel.export(path, options.format, target=described):
        output.line(str(written))
    return 0


def _found(options: EmitOptions, output: Output) -> tuple[Kernel | Model, Target, str]:
    """What leaves, the target that it was made for, and the name of its function where the path gives none."""
    if options.model:
        from .models import compiled_model

        model = compiled_model(options, output, as_written=options.as_written)
        return model, model.target, Path(options.model).stem
    refuse_of_models(options)
    return _as_written(options) if options.as_written else _recorded(options, output)


def _recorded(options: EmitOptions, output: Output) -> tuple[Kernel, Target, str]:
    from ..search.calling.kernel import from_record

    with reading(options.db, output) as database:
        record = record_of(options, database)
    if not record.ok:
        raise BadRecord(f"record {record.id} is a failed candidate ({record.status}): there is no kernel to emit")
    if not record.verified:
        raise BadRecord(
            f"record {record.id} was not verified on this machine's behalf, "
            f"which `{COMMAND} replay --record {record.id}` does"
        )
    return from_record(record), record.device, record.workload or "kernel"


def _as_written(options: EmitOptions) -> tuple[Kernel, Target, str]:
    """The program of `--script` with no other schedule than its own."""
    from ..search.calling.kernel import build

    if not options.script:
        raise UsageError("--as-written goes with --script FILE.py, whose program it takes as it is")
    entry, target = one_work(options), Device.here(options.target, options.threads)
    func = entry.work.func
    return build(func, target, interface_asked(options, entry), given=func), target, entry.work.name
