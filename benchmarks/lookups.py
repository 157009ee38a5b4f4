"""How long a look-up takes in a large database: the best record of a program on a device.

    python benchmarks/lookups.py --db /tmp/large.db --records 1000000
    python benchmarks/lookups.py --db postgresql://tuner@localhost/large --records 10000000

The records are made by the database itself from one real record, for a thousand programs and ten devices; the file or
database must be empty or one that this command has filled.  Printed are the median and the slowest of a thousand
look-ups of `Database.best` for programs drawn by chance.
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

PROGRAMS, DEVICES, LOOKUPS = 1000, 10, 1000
TARGET = Target(kind="cpu", name="Made-up CPU", vendor="None", isa="avx2", threads=4)
SERIES = {
    "postgresql": "SELECT n FROM generate_series({first}, {last}) AS s(n)",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s",
}
IDS = {"postgresql": "lpad(to_hex(n), 16, '0')", "sqlite": "printf('%016x', n)"}
STEP = 250_000


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
        works = connection.execute(sa.text("SELECT min(id) FROM workloads")).scalar_one()
        machines = connection.execute(sa.text("SELECT min(id) FROM devices")).scalar_one()
    for first in range(have, count, STEP):
        series = SERIES[kind].format(first=first, last=min(first + STEP, count) - 1)
        statement = (
            "INSERT INTO records (id, workload_id, device_id, interface, status, stage, verified, latency_us, trial, "
            f"sketch, created, target, payload) SELECT {IDS[kind]}, {works} + n % {PROGRAMS}, "
            f"{machines} + (n / {PROGRAMS}) % {DEVICES}, 'a=fixed', 'ok', 'trial', true, 10.0 + n % 9973, 1, 's0', n, "
            f":target, :payload FROM ({series}) AS numbers"
        )
        with engine.begin() as connection:
            connection.execute(sa.text(statement), {"target": template.target, "payload": template.payload})
        print(f"{min(first + STEP, count)} records", file=sys.stderr, flush=True)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
