"""`stridesmith record-space`: measure part of a design space into a file that replays as a device."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..figures import latency
from ..files import refuse_other
from ..invocation import COMMAND
from ..search.tasks.command_line import Options
from ..search.tasks.device import names_recording
from .lookup import task_of
from .options import likely, one_work, pins
from .output import Output


@dataclass(frozen=True)
class SpaceOptions(Options):
    """Which part of a space is recorded."""

    size: int = 2000
    sketches: int = 2
    seed: int = 0
    pin: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    seconds: float | None = None


def run(path: Path, options: SpaceOptions, output: Output) -> int:
    """Measure, and say how far it is; 0 also where the seconds were over first."""
    from ..search.tuning.record_space import Wanted, record_space
    from ..search.workers.executor import RayExecutor

    entry = one_work(options)
    if not entry.work.params:
        raise UsageError("a space is recorded of a workload of the library, with --workload")
    if names_recording(options.target):
        raise UsageError(f"{options.target} is recorded already; a space is recorded on a device, as --target cpu")
    task = task_of(options, entry)
    began = time.monotonic()

    def tell(text: str) -> None:
        output.event({"event": "note", "message": text})
        output.line(f"{time.monotonic() - began:6.1f} s  {text}")

    refuse_other(path, "a recorded space", b"rows.0.npy")
    executor = RayExecutor("local", task.target.cores, first_here=True)  # and no Ray is asked for: one host measures
    try:
        wanted = Wanted(options.size, options.sketches, options.seed, pins(options.pin), likely(options.likely))
        found = record_space(task, path, executor, wanted, options.seconds, tell)
    finally:
        executor.close()
    if found is None:
        tell(f"the time is over; the same command goes on from {path}.part")
        return 0
    output.event({"event": "recorded", "file": str(path), "candidates": found.size, "best_us": found.best_us})
    output.line(
        f"{path}: {found.size} candidates of {task.work}, the best {latency(found.best_us)}, untuned "
        f"{latency(found.untuned_us)}; search it with `{COMMAND} --target recorded:{path}`"
    )
    return 0
