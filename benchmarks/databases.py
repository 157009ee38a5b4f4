"""What a database keeps: of drivers that are killed, of files that are damaged, of many writers whose server crashes.

    python benchmarks/databases.py killed [--times 100]
    python benchmarks/databases.py damaged [--more 500]
    python benchmarks/databases.py writers --db postgresql://... --restart 'pg_ctl -D ... -m immediate restart' \\
        [--minutes 10]

`killed` kills real runs into one database at random instants, each the next one's start, and counts announced trials
that are missing, processes and folders that are left, and candidates that were measured twice.  `damaged` damages one
database in 56 ways that are written down here, and with random bytes as often as `--more` says; it counts records
that read otherwise than they were stored, and records that are missing although no page of theirs was touched.
`writers` lets eight processes write into an empty database of a server that a command restarts twice meanwhile.
It is an error where anything is lost, wrong or left.  Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driving import CLEAN_SECONDS, Drive
from lookups import record

from stridesmith.errors import StorageError
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.workers import guardian

MATMUL = ("--workload", "matmul", "--shape", "m=61,n=67,k=71")
EARLIEST, LATEST = 0.3, 14.0  # seconds from a run's start to its end; Ray's workers come after about seven
WRITERS, RESTARTS = 8, 2
RECORDS, PROGRAMS, DEVICES = 120, 6, 2
PAGE, MAGIC, LEAF = 4096, 16, 13


# ---------------------------------------------------------------- killed drivers


def killed(times: int) -> int:
    """SIGKILL at random instants; 1 where anything is lost or left."""
    folder, rng = Path(tempfile.mkdtemp(prefix="killed-", dir="/tmp")), random.Random(0)
    place = folder / "tuned.db"
    told: set[str] = set()
    sessions: list[tuple[str, str]] = []
    slowest, with_ray = 0.0, 0
    for number in range(times):
        drive = Drive(folder, (*MATMUL, "--seed", str(number), "--seconds", "120", "--db", str(place)))
        time.sleep(rng.uniform(EARLIEST, LATEST))
        with contextlib.suppress(LookupError):
            token, ray_folder, _ = drive.session()
            sessions.append((token, ray_folder))
        os.kill(drive.process.pid, signal.SIGKILL)
        drive.end(10)
        told |= drive.told()
        began = time.monotonic()
        if sessions:
            with_ray += bool(guardian.members(*sessions[-1]))
            while guardian.members(*sessions[-1]) and time.monotonic() < began + CLEAN_SECONDS:
                time.sleep(0.02)
            slowest = max(slowest, time.monotonic() - began)
    last = Drive(folder, (*MATMUL, "--trials", "2", "--db", str(place)))
    last.end(120)
    left = sum(len(guardian.members(*session)) for session in sessions)
    names = [p.name for p in folder.iterdir() if p.name.startswith(("stridesmith-", "ss-ray-")) or ".spool" in p.name]
    names += [p for _, ray_folder in sessions for p in (ray_folder, ray_folder + guardian.OWNER) if os.path.exists(p)]
    with Database(str(place), read_only=True) as database:
        stored = list(database.every())
    lost = told - {found.id for found in stored}
    again = Counter((found.sketch, tuple(found.choice)) for found in stored if found.stage == "trial")
    twice = sum(count - 1 for count in again.values())
    print(
        f"{times} runs killed, {with_ray} of them with processes of Ray's; {len(told)} trials announced, {len(lost)} "
        f"lost, {twice} of {len(stored)} measured again; {left} processes left, gone after {slowest:.1f} s at most; "
        f"left in the folder: {', '.join(names) or 'nothing'}; the next run ended with {last.process.returncode}"
    )
    shutil.rmtree(folder, ignore_errors=True)
    return int(bool(lost or left or names or last.process.returncode))


# ---------------------------------------------------------------- damaged files


@dataclass
class Damage:
    """A file and its log as they are found, and which bytes of the file are not as they were."""

    name: str
    data: bytearray
    log: bytearray | None = None
    touched: Callable[[int], bool] = lambda at: False


def made_up(number: int) -> Record:
    """Records that differ in all that a search varies."""
    us = 10.0 + number / 7
    plain = record(number % PROGRAMS, number % DEVICES)
    trace = [*(plain.trace or []), ["note", {"number": number}]]
    return plain.changed(latency_us=us, samples=[us * 1e-6] * 9, trace=trace, choice=[number] * 24)


def kinds(data: bytes, log: bytes) -> Iterator[Damage]:
    """Fifty-six damages."""
    rng = random.Random(1)
    pages = len(data) // PAGE
    for share in range(16):
        end = len(data) * share // 16 + share
        yield Damage(f"cut after {end} bytes", bytearray(data[:end]), touched=lambda at, end=end: at >= end)
    for what, count in (("random", 16), ("zero", 8)):
        for n in range(count):
            start = (n * pages // count + n % 2) * PAGE
            changed = bytearray(data)
            changed[start : start + PAGE] = rng.randbytes(PAGE) if what == "random" else bytes(PAGE)
            if start == 0:  # without its magic it is anybody's file
                changed[:MAGIC] = data[:MAGIC]
            yield Damage(f"a page of {what} bytes at {start}", changed, touched=_between(start, start + PAGE))
    for at in (16, 18, 20, 24, 28, 44, 56, 101):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        yield Damage(f"byte {at} of the header inverted", changed, touched=_between(0, PAGE))
    for share in range(4):
        end = len(log) * (share + 1) // 5 + share
        yield Damage(f"the log cut after {end} bytes", bytearray(data), bytearray(log[:end]))
        broken = bytearray(log)
        broken[end : end + 64] = rng.randbytes(64)
        yield Damage(f"64 random bytes in the log at {end}", bytearray(data), broken)


def at_random(data: bytes, count: int) -> Iterator[Damage]:
    """So many damages of up to 64 random bytes each."""
    for seed in range(count):
        rng = random.Random(1000 + seed)
        places = {rng.randrange(len(data)) for _ in range(2 ** (seed % 7))}
        changed = bytearray(data)
        for at in places:
            changed[at] = rng.randrange(256)
        yield Damage(f"{len(places)} random bytes, seed {seed}", changed,
                     touched=lambda at, pages=frozenset(p // PAGE for p in places): at // PAGE in pages)  # fmt: skip


def _between(start: int, end: int) -> Callable[[int], bool]:
    return lambda at: start <= at < end


def homes(data: bytes, records: list[Record]) -> dict[str, list[int]]:
    """Where the pages begin on which a record, its program and its device stand."""

    def leaves(text: str) -> list[int]:
        starts = range(0, len(data), PAGE)
        return [s for s in starts if data[s + (100 if s == 0 else 0)] == LEAF and text.encode() in data[s : s + PAGE]]

    shared = {text: leaves(text) for r in records for text in (r.workload_key, r.device_key)}
    return {r.id: [*leaves(r.id), *shared[r.workload_key], *shared[r.device_key]] for r in records}


def damaged(more: int) -> int:
    """Each damage; 1 where something was lost, or taken for what it is not."""
    folder = Path(tempfile.mkdtemp(prefix="damaged-", dir="/tmp"))
    records = [made_up(number) for number in range(RECORDS)]
    first, later = records[: RECORDS * 3 // 4], records[RECORDS * 3 // 4 :]
    with Database(str(folder / "early.db")) as database:
        database.put_records(first)
    early = (folder / "early.db").read_bytes()
    with Database(str(folder / "early.db")) as database:
        database.put_records(later)
        log = (folder / "early.db-wal").read_bytes()  # the file as it was, and in its log what came later
    whole = (folder / "early.db").read_bytes()
    known, where = {r.id: r for r in records}, homes(whole, records)
    totals: Counter[str] = Counter()
    for damage in (*kinds(whole, log), *at_random(whole, more)):
        totals.update(found := outcome(folder / "damaged.db", damage, known, where, early, first))
        bad = [f"{found[name]} {name}" for name in ("lost", "wrong", "errors") if found[name]]
        if bad:
            print(f"{damage.name}: {', '.join(bad)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{totals['tried']} damaged databases: {totals['errors']} ended in an error, {totals['refused']} were refused "
        f"and left as they were, {totals['kept']} were kept beside a new one; of {totals['sound']} records on untouched"
        f" pages {totals['lost']} were lost; of {totals['read']} records that were read {totals['wrong']} were not what"
        f" was stored, {totals['noticed']} were left out for their checksum"
    )
    return int(bool(totals["errors"] or totals["lost"] or totals["wrong"]))


def outcome(
    path: Path, damage: Damage, known: dict[str, Record], where: dict[str, list[int]], early: bytes, first: list[Record]
) -> Counter[str]:
    """What a writer finds in a damaged file: counts of what was read, lost and wrong."""
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    sound = {
        name for name, pages in where.items() if not any(damage.touched(p + at) for p in pages for at in range(PAGE))
    }
    data = bytes(damage.data)
    if damage.log is not None:
        data, sound = early, {r.id for r in first}
        Path(f"{path}-wal").write_bytes(damage.log)
    path.write_bytes(data)
    count = Counter(tried=1)
    try:
        with Database(str(path)) as database:
            found = list(database.every())
            database.put_record(made_up(RECORDS))
            count["noticed"] = sum("checksum" in note for note in database.notes)
    except StorageError as error:
        print(f"{damage.name}: {error}", file=sys.stderr)
        untouched = path.read_bytes() == data and "left untouched" in str(error)
        return count + Counter(refused=int(untouched), errors=int(not untouched))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return count + Counter(errors=1)
    count["kept"] = int(any("damaged-" in other.name for other in path.parent.iterdir()))
    count["read"], count["sound"] = len(found), len(sound)
    count["wrong"] = sum(known.get(r.id) != r for r in found)
    count["lost"] = len(sound - {r.id for r in found})
    return count


# ---------------------------------------------------------------- many writers


def write(place: str, minutes: float, number: int) -> None:
    """Records into a database until the time is over, each announced once it is stored."""
    end = time.monotonic() + 60 * minutes
    with Database(place) as database:
        for trial in itertools.count():
            if time.monotonic() >= end:
                return
            print(database.put_record(record(number, number % DEVICES).changed(trial=trial)), flush=True)


def writers(place: str, restart: str, minutes: float) -> int:
    """Eight of them, and a server that is restarted twice; 1 where anything is lost or double."""
    with Database(place) as database:
        assert database.size == 0, "the database must be empty"
    command = [sys.executable, __file__, "write", "--db", place, "--minutes", str(minutes), "--number"]
    processes = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(WRITERS)]
    told: list[str] = []

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        told.extend(line.strip() for line in process.stdout)

    threads = [threading.Thread(target=listen, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    for _ in range(RESTARTS):
        time.sleep(60 * minutes / (RESTARTS + 1))
        subprocess.run(shlex.split(restart), check=True, stdout=subprocess.DEVNULL)
        print(f"restarted after {len(told)} records", flush=True)
    for thread in threads:
        thread.join()
    codes = [process.wait() for process in processes]
    with Database(place) as database:
        found = list(database.every())
    stored = {each.id for each in found}
    lost, unknown = set(told) - stored, stored - set(told)
    double = len(found) - len({(each.workload, each.trial) for each in found})  # each writer counts its own
    print(
        f"{WRITERS} writers, {minutes:g} minutes, {RESTARTS} restarts: {len(told)} records announced, {len(lost)} "
        f"lost, {double} double, {len(unknown)} stored and not announced; exit codes {sorted(set(codes))}"
    )
    return int(bool(lost or double or any(codes)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("killed", "damaged", "writers", "write"))
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--more", type=int, default=500)
    parser.add_argument("--db", default="")
    parser.add_argument("--restart", default="true", help="a command that restarts the server as a crash does")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what == "write":
        write(asked.db, asked.minutes, asked.number)
        return 0
    if asked.what == "writers":
        return writers(asked.db, asked.restart, asked.minutes)
    return killed(asked.times) if asked.what == "killed" else damaged(asked.more)


if __name__ == "__main__":
    sys.exit(main())
