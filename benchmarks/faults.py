"""Faults of processes, each put into a real run so many times: what the run did then, as a table with figures.

    python benchmarks/faults.py [--repeat 20] [--only raylet_killed,sigterm] [--seconds 30]

A fault comes once Ray's workers measure; one that ends in `_early` while the first batch is measured, before Ray, and
one that ends in `_starting` while Ray starts.  One that begins with `no_` keeps Ray from starting at all.
Every run tunes a small product into a database of its own.  A row says how often the run kept its promise: it ended in
its time with the right exit code, every trial that it announced is stored after the next run has begun, and no process
and no folder is left.  Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driving import AFTER_TRIALS, CLEAN_SECONDS, STARTED_SECONDS, Drive, all_kept, line

from stridesmith.search.workers import guardian

LATE, LATE_SECONDS = 0.1, 1.0  # of its time, or seconds, whichever are more, that a run may take beyond it
END_SECONDS = 5.0  # after a signal
STARTING_SECONDS = 4.0  # that Ray takes to start
ASKED_SECONDS = 20.0  # until it is started, once there are results
RESTART_SECONDS = 40.0  # until it is tried again, after a process of its was killed
IN_ITS_STEAD = "this process builds and measures by itself"


# ---------------------------------------------------------------- faults

Injection = Callable[[Drive], None]


def to_named(title: str, number: signal.Signals) -> Injection:
    """A signal to the processes of Ray's with this name."""

    def inject(drive: Drive) -> None:
        found = drive.members(title)
        assert found, f"no process {title}"
        for pid in found:
            os.kill(pid, number)

    return inject


def to_measuring_actor(drive: Drive) -> None:
    """Stop the actor whose worker measures: the one that holds the host's lock while a kernel is timed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for pid in drive.members("ray::BenchActor"):
            if ".measure" in line(pid):
                os.kill(pid, signal.SIGSTOP)
                return
    raise LookupError("no actor was seen to measure")


def to_driver(number: signal.Signals) -> Injection:
    """A signal to the run itself."""
    return lambda drive: os.kill(drive.process.pid, number)


def to_ray_and_driver(title: str) -> Injection:
    """Stop the processes of Ray's with this name, and interrupt the run at once."""

    def inject(drive: Drive) -> None:
        to_named(title, signal.SIGSTOP)(drive)
        os.kill(drive.process.pid, signal.SIGINT)

    return inject


def to_driver_and_guardian(drive: Drive) -> None:
    """SIGKILL to both at once."""
    _, _, keeper = drive.session()
    os.kill(keeper, signal.SIGKILL)
    os.kill(drive.process.pid, signal.SIGKILL)


def locked_and_killed(drive: Drive) -> None:
    """Lock the database, let the run tell some trials, and kill it."""
    connection = sqlite3.connect(drive.folder / "tuned.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    before = len(drive.told())
    deadline = time.monotonic() + 15
    while len(drive.told()) < before + 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(drive.told()) > before, "nothing was told while the database was locked"
    os.kill(drive.process.pid, signal.SIGKILL)
    drive.process.wait()
    connection.close()


def to_starting(title: str) -> Injection:
    """Kill every process of Ray's with this name as it appears, as long as the run tries to start its own."""

    def inject(drive: Drive) -> None:
        killed, end = set[int](), time.monotonic() + ASKED_SECONDS
        while drive.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(LookupError):
                for pid in set(drive.members(title)) - killed:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    end = time.monotonic() + RESTART_SECONDS
            time.sleep(0.01)
        assert killed, f"no {title} was started"

    return inject


def in_shell(text: str) -> tuple[str, ...]:
    """A command that runs another one, its arguments, in a mount namespace of its own after what `text` does there."""
    return ("unshare", "--mount", "sh", "-c", f'{text} && exec "$@"', "sh")


LITTLE_MEMORY = r"MemTotal: 98304 kB\nMemFree: 49152 kB\nMemAvailable: 49152 kB\n" + "".join(
    rf"{name}: 0 kB\n" for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive")
)


def without_ray(folder: Path) -> dict[str, str]:
    """Variables with which the package `ray` cannot be imported."""
    (folder / "broken" / "ray").mkdir(parents=True)
    (folder / "broken" / "ray" / "__init__.py").write_text("raise ImportError('built for another interpreter')")
    return {"PYTHONPATH": f"{folder / 'broken'}:{os.environ.get('PYTHONPATH', '')}"}


@dataclass(frozen=True)
class Fault:
    """What is done to a run, with what exit code it ends, and in how many seconds from then (None: in its own time).

    `when` is "early", before Ray is started, "starting", or empty: once Ray's workers measure; with "never" something
    keeps Ray from starting.  `prefix` is a command that runs it, and `variables` gives what is set for it.
    """

    inject: Injection
    code: int
    seconds: float | None = None
    when: str = ""
    prefix: tuple[str, ...] = ()
    variables: Callable[[Path], dict[str, str]] = lambda folder: {}


FAULTS: dict[str, Fault] = {
    "none": Fault(lambda drive: None, 0),
    "raylet_killed": Fault(to_named("raylet", signal.SIGKILL), 0),
    "raylet_stopped": Fault(to_named("raylet", signal.SIGSTOP), 0),
    "gcs_killed": Fault(to_named("gcs_server", signal.SIGKILL), 0),
    "gcs_stopped": Fault(to_named("gcs_server", signal.SIGSTOP), 0),
    "actors_killed": Fault(to_named("ray::BenchActor", signal.SIGKILL), 0),
    "actors_stopped": Fault(to_named("ray::BenchActor", signal.SIGSTOP), 0),
    "measuring_actor_stopped": Fault(to_measuring_actor, 0),
    "sigint": Fault(to_driver(signal.SIGINT), 130, END_SECONDS),
    "raylet_stopped_sigint": Fault(to_ray_and_driver("raylet"), 130, END_SECONDS),
    "gcs_stopped_sigint": Fault(to_ray_and_driver("gcs_server"), 130, END_SECONDS),
    "actors_stopped_sigint": Fault(to_ray_and_driver("ray::BenchActor"), 130, END_SECONDS),
    "sigterm": Fault(to_driver(signal.SIGTERM), 143, END_SECONDS),
    "sighup": Fault(to_driver(signal.SIGHUP), 129, END_SECONDS),
    "driver_killed": Fault(to_driver(signal.SIGKILL), -9, END_SECONDS),
    "driver_and_guardian_killed": Fault(to_driver_and_guardian, -9, END_SECONDS),
    "locked_and_killed": Fault(locked_and_killed, -9, END_SECONDS),
    "sigint_early": Fault(to_driver(signal.SIGINT), 130, END_SECONDS, "early"),
    "sigterm_early": Fault(to_driver(signal.SIGTERM), 143, END_SECONDS, "early"),
    "driver_killed_early": Fault(to_driver(signal.SIGKILL), -9, END_SECONDS, "early"),
    "sigint_starting": Fault(to_driver(signal.SIGINT), 130, END_SECONDS, "starting"),
    "sigterm_starting": Fault(to_driver(signal.SIGTERM), 143, END_SECONDS, "starting"),
    "driver_killed_starting": Fault(to_driver(signal.SIGKILL), -9, END_SECONDS, "starting"),
    "no_raylet": Fault(to_starting("raylet"), 0, when="never"),
    "no_gcs": Fault(to_starting("gcs_server"), 0, when="never"),
    "no_shared_memory": Fault(
        lambda drive: None, 0, when="never", prefix=in_shell("mount -t tmpfs -o size=64k,nr_inodes=4 none /dev/shm")
    ),
    "no_ports": Fault(lambda drive: None, 0, when="never", prefix=("unshare", "--net")),
    "no_memory": Fault(
        lambda drive: None, 0, when="never",
        prefix=in_shell(f"printf '{LITTLE_MEMORY}' > /dev/shm/memory && mount --bind /dev/shm/memory /proc/meminfo"),
    ),
    "no_package": Fault(lambda drive: None, 0, when="never", variables=without_ray),
}  # fmt: skip


def try_once(fault: Fault, seconds: float) -> tuple[float | None, str]:
    """Seconds from the fault to the end, None for a hang; and what was not as promised, empty if all was."""
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    limit = seconds if fault.seconds is None else STARTED_SECONDS  # what ends the run itself may come late
    options = ("--workload", "matmul", "--shape", "m=61,n=67,k=71", "--seconds", str(limit), "--db",
               str(folder / "tuned.db"))  # fmt: skip
    drive = Drive(folder, options, fault.variables(folder), fault.prefix)
    token = ray_folder = ""
    try:
        drive.until(AFTER_TRIALS)
        if fault.when == "starting":
            token, ray_folder, _ = drive.until_guardian()
            time.sleep(random.uniform(0.0, STARTING_SECONDS))
        elif not fault.when:
            drive.until_ray()
            token, ray_folder, _ = drive.session()
        fault.inject(drive)
        now = time.monotonic()  # on a busy machine this may be late
        late = max(LATE * seconds, LATE_SECONDS)
        left = max(drive.began + seconds + late - now, late) if fault.seconds is None else fault.seconds
        took = drive.end(left + 10)
        problems = list(_problems(drive, fault, took, left))
        problems += _after(drive, token, ray_folder)
    except (AssertionError, LookupError, TimeoutError) as error:
        return 0.0, f"not put in: {error}"
    finally:
        drive.process.kill()
        guardian.end_session(token, ray_folder) if token else None
        shutil.rmtree(folder, ignore_errors=True)
        if ray_folder:
            guardian.remove_folder(ray_folder)
    return took, "; ".join(problems)


def _problems(drive: Drive, fault: Fault, took: float | None, left: float) -> Iterator[str]:
    if took is None:
        yield "hung"
    elif took > left:
        yield f"ended {took - left:.1f} s late"
    if took is not None and drive.process.returncode != fault.code:
        yield f"exit code {drive.process.returncode}: {drive.errors[-300:]}"
    last = drive.last()
    if fault.code >= 0 and last.get("event") != ("error" if fault.code else "done"):
        yield f"the last event is {last.get('event')}"
    if fault.code > 0 and not any(event["event"] == "done" for _, event in drive.events):
        yield "no best so far"
    said = sum(IN_ITS_STEAD in str(event.get("message")) for _, event in drive.events)
    if said > 1 or (fault.when == "never" and not said):
        yield f"it says {said} times that it goes on without Ray"
    if drive.noise or "Traceback" in drive.errors or "***" in drive.errors:
        yield f"there is more on the screen: {(drive.noise + drive.errors)[:200]!r}"


def _after(drive: Drive, token: str, ray_folder: str) -> list[str]:
    """What is wrong once another run, of two trials, has followed."""
    follower = Drive(drive.folder, (*drive.options[:4], "--trials", "2", *drive.options[6:]))
    follower.end(120)
    problems = [] if follower.process.returncode == 0 else [f"the next run failed: {follower.errors[-300:]}"]
    with sqlite3.connect(drive.folder / "tuned.db") as connection:
        stored = {row[0] for row in connection.execute("SELECT id FROM records")}
    if lost := drive.told() - stored:
        problems.append(f"{len(lost)} of {len(drive.told())} announced records lost")
    deadline = time.monotonic() + CLEAN_SECONDS
    while time.monotonic() < deadline and (_members(token, ray_folder) or _folders(drive, ray_folder)):
        time.sleep(0.1)
    if left := _members(token, ray_folder):
        problems.append(f"{len(left)} processes left")
    if folders := _folders(drive, ray_folder):
        problems.append(f"left: {', '.join(folders)}")
    return problems


def _members(token: str, ray_folder: str) -> list[int]:
    """Processes of its Ray; none where it had none yet."""
    return guardian.members(token, ray_folder) if token else []


def _folders(drive: Drive, ray_folder: str) -> list[str]:
    """Folders of ours that are left."""
    found = [p.name for p in drive.folder.iterdir() if p.name.startswith(("stridesmith-", "ss-ray-"))]
    found += [p.name for p in drive.folder.iterdir() if ".spool" in p.name or "damaged-" in p.name]
    of_ray = (ray_folder, ray_folder + guardian.OWNER) if ray_folder else ()
    return found + [p for p in of_ray if os.path.exists(p)]


# ---------------------------------------------------------------- addresses


def try_address(kind: str) -> tuple[float | None, str]:
    """The same for ``--address``, of which nothing may be waited for longer than 15 seconds."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        if kind == "no_ray":
            threading.Thread(target=_answer_nonsense, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        address = {"hello": "hello", "ray_scheme": "ray://127.0.0.1:10001", "nobody": "127.0.0.1:9"}.get(
            kind, f"127.0.0.1:{port}"
        )
        folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
        drive = Drive(folder, ("--workload", "matmul", "--address", address, "--db", str(folder / "tuned.db")))
        took = drive.end(60)
        shutil.rmtree(folder, ignore_errors=True)
    code = 2 if kind in ("hello", "ray_scheme") else 75
    late = took is None or time.monotonic() - drive.began > 15
    wrong = drive.process.returncode != code or drive.last().get("code") != code
    return took, "hung, or took longer than 15 s" * late or f"exit {drive.process.returncode}: {drive.errors}" * wrong


def _answer_nonsense(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            connection.close()


ADDRESSES = ("no_ray", "silent", "nobody", "hello", "ray_scheme")


def main() -> int:
    """Print a row for each fault; 1 where a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", "--times", type=int, default=1, help="runs for each fault")
    parser.add_argument("--only", default="", help="names of faults, separated by commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="the time limit of each run")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts behind it ignore this one
    trials: dict[str, Callable[[], tuple[float | None, str]]] = {
        name: (lambda fault=fault: try_once(fault, asked.seconds)) for name, fault in FAULTS.items()
    }
    trials |= {f"address_{kind}": (lambda kind=kind: try_address(kind)) for kind in ADDRESSES}
    names = asked.only.split(",") if asked.only else list(trials)
    print("| fault | kept / tried | seconds to the end, median and longest | what went wrong |\n|---|---:|---:|---|")
    failed = False
    for name in names:
        found = [trials[name]() for _ in range(asked.repeat)]
        failed |= not all_kept(name, found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
