"""The copy of a run's study in Optuna's own storage, for its plots and its dashboard, also while the run goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..records.database import Database
    from .run import Run
    from .study import Study

SERVER_SECONDS = 30.0  # how long a run without a limit of seconds goes on for the mirror's sake


def mirror_round(run: Run, study: Study) -> None:
    """Copy the finished trials that are not there yet into a journal, which takes milliseconds and locks no reader."""
    if run.database.path is not None:
        _mirror(run, study)


def mirror_late(run: Run, study: Study) -> None:
    """Mirror to a server, which needs a tenth of a second for a trial: after all else, in the time that is left.

    A later run for the same task adds what is missing then.
    """
    if run.database.path is None:
        limit = run.settings.seconds
        left = SERVER_SECONDS if limit is None else limit - run.clock.seconds
        _mirror(run, study, time.monotonic() + left)


def _mirror(run: Run, study: Study, until: float | None = None) -> None:
    if not run.settings.mirror or (until is not None and time.monotonic() >= until):
        return
    try:
        study.mirror(mirror_place(run.database), run.task.study_name, until)
    except Exception as error:  # a convenience for other tools must not cost the run its result
        run.note(f"the Optuna study was not mirrored: {error}")


def mirror_place(database: Database) -> str:
    """Where a database's Optuna studies live: the journal ``NAME.optuna.log`` beside a SQLite file, else its server."""
    if database.path is not None:
        return str(database.path.with_suffix(".optuna.log"))
    return database.url.render_as_string(hide_password=False)
