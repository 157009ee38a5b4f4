"""What a run says about itself: the events that begin and end it, and its place in Optuna's storage."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from .records import script_hash
from .settings import TuneSettings
from .task import Task

if TYPE_CHECKING:
    from .database import Database


def mirror_place(database: Database) -> str:
    """Where a database's Optuna studies live: the journal ``NAME.optuna.log`` beside a SQLite file, else its server."""
    if database.path is not None:
        return str(database.path.with_suffix(".optuna.log"))
    return database.url.render_as_string(hide_password=False)


def mirror_name(task: Task) -> str:
    """The Optuna study of a task: its workload and device, made unique by its key."""
    key = script_hash(f"{task.script}|{task.target.key}|{sorted(task.interface.items())}")[:8]
    return f"{task.work.name}-{task.target.kind}-{key}"


def start_event(settings: TuneSettings, task: Task, database: Database) -> dict[str, Any]:
    return {
        "event": "start",
        **task.identity(),
        "flops": task.work.flops,
        "limit_trials": settings.trial_limit,
        "limit_seconds": settings.seconds,
        "stop_at": settings.stop_at,
        "sampler": settings.sampler,
        "seed": settings.seed,
        "db": database.name,
    }


def versions(task: Task) -> dict[str, str]:
    from .. import __version__

    own = {"stridesmith": __version__, "python": platform.python_version(), "kernel": platform.release()}
    return {name: text[:200] for name, text in {**own, "target": task.target.versions}.items()}
