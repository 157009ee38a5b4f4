"""The database as users see it: what they add to it, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ToolMissing
from ...figures import latency
from ...ir.markup import table
from ..records import database as records
from ..records.record import Record
from ..tasks.interface import interface_key
from . import own

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.schedule import Schedule

MOST_SHOWN = 50


class Database(records.Database):
    __doc__ = records.Database.__doc__

    def add(
        self,
        schedule: Schedule,
        target: str | Target = "cpu",
        *,
        interface: str | Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> Record:
        """Record a schedule of your own: it is proven, verified with fresh data, and raced against the best there is.

        Its `run` and `sketch` are ``yours``.  `ss.load` and all commands find it where it has won, and later searches
        have it in their final race.  The `interface` is as in tuning: arguments whose layout the schedule changes have
        to be ``free`` or ``constant``.  Raises UsageError for a schedule that the interface refuses, StorageError for a
        database that is only read, WrongResult for a schedule whose result differs from the program's; such a one is
        stored as a failure, and never counts.
        """
        self._refuse_read_only()
        return own.add(self, schedule, own.task_of(schedule, target, interface, threads))

    def rows(self) -> list[dict[str, Any]]:
        """The best record of each program, device and interface, as plain data."""
        return [
            {
                "record": record.id, "workload": record.workload, "program": record.title, "dtype": record.dtype,
                "interface": interface_key(dict(record.interface)), "device": record.device_key,
                "latency_us": record.latency_us, "low_us": (record.middle_us or (None, None))[0],
                "high_us": (record.middle_us or (None, None))[1], "verified": record.verified,
                "sketch": record.sketch, "run": record.run, "created": record.created,
            }
            for record in self.winners()
        ]  # fmt: skip

    def to_pandas(self) -> Any:
        """`rows` as a DataFrame.  Raises ToolMissing where pandas is not installed."""
        return frame(self.rows())

    def __repr__(self) -> str:
        """The database's name and its number of records."""
        return f"<Database {self.name}: {'closed' if self.is_closed else f'{self.size} records'}>"

    def _repr_html_(self) -> str | None:
        if self.is_closed:
            return None
        found = self.winners()
        shown = [
            (record.id, record.title, record.device.name, latency(record.latency_us), record.sketch)
            for record in found[:MOST_SHOWN]
        ]
        more = f", of which {MOST_SHOWN} are shown" if len(found) > MOST_SHOWN else ""
        title = f"{self.name}: {self.size} records, the best of {len(found)} tasks{more}"
        return table(title, ("record", "program", "device", "latency", "sketch"), shown)


def frame(rows: list[dict[str, Any]]) -> Any:
    """Rows of plain data as a DataFrame.  Raises ToolMissing where pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise ToolMissing("tables as DataFrames need the package `pandas`: `pip install pandas` installs it") from None
    return pandas.DataFrame(rows)
