"""The tables of the database of records, and how they are made and filled.

```
meta       key | value                        the schema's version
workloads  id | hash | collision | name | params | script     canonical programs
devices    id | key | target                                  Target.key and its facts
records    id | workload_id | device_id | interface | ... | payload | checksum
choices    network | device_id | payload                      layouts of whole networks
runs       name | created | payload           what a run tells beside its records
```

A hash finds and full text decides: two programs of one hash are two rows with
different `collision` numbers.  The checksum of a record is that of `rows`; one of
the first version has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from .record import LONGEST_KEY

VERSION = "2"
"""Of the tables.  The first version, which is read and brought up to this one, had no checksums."""
VERSIONS = ("1", VERSION)
MIGRATE_SECONDS = 2.0  # that a lock on the tables is waited for, a choice
SCHEMA_LOCK = 7_406_113  # an advisory lock of PostgreSQL: one process at a time makes tables

TABLES = sa.MetaData()
META = sa.Table(
    "meta", TABLES, sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)
WORKLOADS = sa.Table(
    "workloads",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("collision", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("params", sa.Text, nullable=False),
    sa.Column("script", sa.Text, nullable=False),
    sa.UniqueConstraint("hash", "collision"),
)
DEVICES = sa.Table(
    "devices",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(LONGEST_KEY), nullable=False, unique=True),
    sa.Column("target", sa.Text, nullable=False),
)
RECORDS = sa.Table(
    "records",
    TABLES,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("workload_id", sa.ForeignKey("workloads.id"), nullable=False),
    sa.Column("device_id", sa.ForeignKey("devices.id"), nullable=False),
    sa.Column("interface", sa.Text, nullable=False),
    sa.Column("status", sa.String(40), nullable=False),
    sa.Column("stage", sa.String(8), nullable=False),
    sa.Column("verified", sa.Boolean, nullable=False),
    sa.Column("latency_us", sa.Float),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("sketch", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("checksum", sa.String(8)),
    sa.Index("records_by_rank", "workload_id", "device_id", "status", "stage", "latency_us", "id"),
)
CHOICES = sa.Table(
    "choices",
    TABLES,
    sa.Column("network", sa.String(64), primary_key=True),
    sa.Column("device_id", sa.ForeignKey("devices.id"), primary_key=True),
    sa.Column("payload", sa.Text, nullable=False),
)
RUNS = sa.Table(
    "runs",
    TABLES,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
)


def ddl() -> str:
    """The SQL of an empty database, schema version included."""
    from sqlalchemy.dialects import sqlite

    dialect = sqlite.dialect()
    parts = [str(CreateTable(table).compile(dialect=dialect)) for table in TABLES.sorted_tables]
    parts += [str(CreateIndex(i).compile(dialect=dialect)) for t in TABLES.sorted_tables for i in t.indexes]
    return ";".join([*parts, f"INSERT INTO meta VALUES ('schema', '{VERSION}');"])


def widths() -> dict[str, tuple[int, ...]]:
    """How many columns a row of each table may have: those of earlier versions have fewer."""
    found = {table.name: (len(table.c),) for table in TABLES.sorted_tables}
    return found | {RECORDS.name: (len(RECORDS.c), len(RECORDS.c) - 1)}


def version_of(connection: sa.Connection) -> str | None:
    """The version of a database's tables."""
    value = connection.execute(sa.select(META.c.value).where(META.c.key == "schema")).scalar()
    return None if value is None else str(value)


def migrate(connection: sa.Connection) -> None:
    """Bring the tables to `VERSION`, inside a transaction; who knows the first version alone refuses them then.

    It would change records and leave their checksums as they are.
    """
    lock_schema(connection)
    if connection.dialect.name == "postgresql":  # others wait behind who waits for a table
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{int(1000 * MIGRATE_SECONDS)}ms'"))
    if version_of(connection) == VERSION:
        return
    TABLES.create_all(connection, checkfirst=True)
    connection.execute(sa.text(f"ALTER TABLE {RECORDS.name} ADD COLUMN {RECORDS.c.checksum.name} VARCHAR(8)"))
    connection.execute(META.update().where(META.c.key == "schema").values(value=VERSION))


def lock_schema(connection: sa.Connection) -> None:
    """Let one process at a time make tables, until its transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SCHEMA_LOCK)))


def insert_if_new(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> None:
    """Insert, unless another writer was first."""
    connection.execute(_insert(connection, table, values).on_conflict_do_nothing())


def insert_or_replace(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> None:
    """Insert, in the place of a row of the same primary key."""
    key = [column.name for column in table.primary_key]
    others = {name: value for name, value in values.items() if name not in key}
    connection.execute(_insert(connection, table, values).on_conflict_do_update(index_elements=key, set_=others))


def _insert(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> Any:
    insert: Callable[[sa.Table], Any]
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert
    return insert(table).values(**values)
