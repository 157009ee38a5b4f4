"""How long a look-up takes in a large database: the best record of a program on a device.

    python benchmarks/lookups.py --db /tmp/large.db --records 1000000
    python benchmarks/lookups.py --db postgresql://tuner@localhost/large --records 10000000

The records are made by the database itself from one real record, for a thousand programs and ten devices; the file or
database must be empty or one that this command has filled.  Printed are the median and the slowest of a thousand
look-ups of `Database.best` for programs drawn by chance, and how the database finds the records of one.  It is an error
where it looks at all records for that, or sorts those of a program, and where some look-ups find another record than a
scan of all does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from stridesmith.ir.target import Target
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record

PROGRAMS, DEVICES, LOOKUPS, SCANNED = 1000, 10, 1000, 5
TARGET = Target(kind="cpu", name="Made-up CPU", vendor="None", isa="avx2", threads=4)
SERIES = {
    "postgresql": "SELECT n FROM generate_series({first}, {last}) AS s(n)",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s",
}
IDS = {"postgresql": "lpad(to_hex(n), 16, '0')", "sqlite": "printf('%016x', n)"}
NUMBERED = "SELECT id, row_number() OVER (ORDER BY id) - 1 AS number FROM {table}"  # ids may have gaps
STEP = 250_000
SLOW_STEPS = ("SCAN", "USE TEMP", "Seq Scan on records", "->  Seq Scan on records", "Sort", "->  Sort")


def program(number: int) -> str:
    return f"@T.prim_func\ndef main():\n    T.evaluate({number})"


def device(number: int) -> Target:
    return replace(TARGET, threads=number + 1)


def record(work: int, machine: int) -> Record:
    """A record as a search makes it, with a trace of forty steps."""
    trace = [["split", {"loop": f"i{n}", "factors": [4, None]}] for n in range(40)]
    return Record(
        script=program(work), workload=f"program{work}", interface={"a": "fixed"}, target=device(machine).to_json(),
        trace=trace, choice=[1] * 24, samples=[1e-5] * 9, latency_us=10.0, verified=True, stage="race",
    )  # fmt: skip


def fill(database: Database, count: int) -> None:
    """Real records for every program and device, and made ones up to `count`."""
    have = database.size
    if not have:
        for start in range(0, PROGRAMS, 100):
            database.put_records([record(w, m) for w in range(start, start + 100) for m in range(DEVICES)])
        have = database.size
    engine: Any = database._engine
    kind = engine.dialect.name
    with engine.begin() as connection:
        template = connection.execute(sa.text("SELECT payload, target FROM records LIMIT 1")).one()
    for first in range(have, count, STEP):
        series = SERIES[kind].format(first=first, last=min(first + STEP, count) - 1)
        statement = (
            "INSERT INTO records (id, workload_id, device_id, interface, status, stage, verified, latency_us, trial, "
            f"sketch, created, target, payload) SELECT {IDS[kind]}, works.id, machines.id, 'a=fixed', 'ok', 'trial', "
            f"true, 10.0 + n % 9973, 1, 's0', n, :target, :payload FROM ({series}) AS numbers "
            f"JOIN ({NUMBERED.format(table='workloads')}) AS works ON works.number = n % {PROGRAMS} "
            f"JOIN ({NUMBERED.format(table='devices')}) AS machines ON machines.number = (n / {PROGRAMS}) % {DEVICES}"
        )
        with engine.begin() as connection:
            connection.execute(sa.text(statement), {"target": template.target, "payload": template.payload})
        print(f"{min(first + STEP, count)} records", file=sys.stderr, flush=True)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))


def plan(database: Database) -> list[str]:
    """How the database says that it answers a look-up: the statement of `Database.best` itself, explained."""
    asked: list[tuple[str, Any]] = []
    engine: Any = database._engine

    def hear(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "JOIN" in statement:
            asked.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", hear)
    database.best(program(1), device(1), {"a": "fixed"})
    sa.event.remove(engine, "before_cursor_execute", hear)
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{explain} {asked[0][0]}", asked[0][1]).all()
    return [str(row[-1]).strip() for row in rows]


def differences(database: Database, count: int, chance: random.Random) -> int:
    """How many of so many look-ups find another record than a scan of all records does, which no index helps."""
    engine: Any = database._engine
    scan = sa.text(
        "SELECT r.id FROM records r WHERE r.workload_id + 0 = (SELECT id FROM workloads WHERE script = :script) "
        "AND r.device_id + 0 = (SELECT id FROM devices WHERE key = :key) AND r.status = 'ok' AND r.verified "
        "ORDER BY r.stage, r.latency_us, r.id LIMIT 1"
    )
    wrong = 0
    for _ in range(count):
        work, machine = program(chance.randrange(PROGRAMS)), device(chance.randrange(DEVICES))
        found = database.best(work, machine, {"a": "fixed"})
        with engine.connect() as connection:
            slow = connection.execute(scan, {"script": work, "key": machine.key}).scalar_one()
        wrong += found is None or found.id != slow
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    asked = parser.parse_args()
    with Database(asked.db) as database:
        fill(database, asked.records)
        chance, times = random.Random(0), []
        for _ in range(LOOKUPS):
            work, machine = chance.randrange(PROGRAMS), chance.randrange(DEVICES)
            began = time.perf_counter()
            found = database.best(program(work), device(machine), {"a": "fixed"})
            times.append(time.perf_counter() - began)
            assert found is not None and found.stage == "race"
        name = database.name.partition("@")[2] or database.name
        median, slowest = statistics.median(times) * 1e3, max(times) * 1e3
        print(f"{database.size} records in {name}: median {median:.2f} ms, slowest {slowest:.1f} ms of {LOOKUPS}")
        steps, wrong = plan(database), differences(database, SCANNED, chance)
        print("\n".join(f"    {step}" for step in steps))
        scans = [step for step in steps if step.startswith(SLOW_STEPS)]
        print(f"{wrong} of {SCANNED} look-ups differ from a scan; {len(scans)} steps look at all records, or sort them")
    return int(bool(wrong or scans))


if __name__ == "__main__":
    sys.exit(main())
