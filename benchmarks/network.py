"""Three nodes in network namespaces: links that are slow or cut, nodes that come late, are lost, or are other machines.

    python benchmarks/network.py [--only slow,cut] [--seconds 60] [--db postgresql://..]      # as root, on Linux

Each node is a namespace of this machine with one link to a switch, which this command plays: it forwards their frames
late, or not at all.  Addresses are 10.77.0.x, and exist in these namespaces alone; all of them are removed at the end.
Every scenario starts a Ray cluster of its own (`ray start`), and tunes a small product on it from one of the nodes.

    none            nothing happens
    slow            every link takes 50 ms, and 1 MB a second
    cut_10s         the link of a builder's node is cut for ten seconds
    cut             the same, for good
    driver_cut_10s  the link between the driver's node and the head is cut for ten seconds
    late            a node joins while the run goes on
    head_killed     the node with head and driver is killed; the same command goes on at another node, with a new head
    other_device    a node has another CPU, as /proc/cpuinfo tells it; both tune into one database
    devices         the same, by one command: --devices all

A row says with which exit code the run ended, how long after a fault the next trial was told, what each node built, how
many announced trials are not stored, how many records are told twice or of a device that the run does not have, and
what was not as promised.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driving import Drive, line

from stridesmith.search.records.database import Database
from stridesmith.search.workers import guardian
from stridesmith.search.workers.local_pool import NODE

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
FRAME_BYTES = 65536
PORT = "6379"
START_SECONDS = 120.0
LATE_SECONDS = 25.0
AFTER_TRIALS = 6
FAKE_CPU = "vendor_id\t: Another\nmodel name\t: Another CPU of a made-up model\n"


@dataclass
class Link:
    """The switch's side of a node's link: `delay` in seconds, `rate` in bytes a second (0: as fast as it goes)."""

    tap: int
    delay: float = 0.0
    rate: float = 0.0
    is_up: bool = True
    free_at: float = 0.0


class Switch:
    """Forwards frames between links; its thread ends at `close`."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self._at: dict[bytes, str] = {}
        self._coming: list[tuple[float, int, str, bytes]] = []
        self._is_open = True
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def plug(self, node: str, device: str) -> None:
        """A new device, which the caller moves into the namespace of the node."""
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
        self.links[node] = Link(tap)

    def close(self) -> None:
        self._is_open = False
        self._thread.join(5)
        while self.links:
            os.close(self.links.popitem()[1].tap)

    def _forward(self) -> None:
        number = 0
        while self._is_open:
            links = dict(self.links)
            now = time.monotonic()
            wait = min(0.05, max(0.0, self._coming[0][0] - now)) if self._coming else 0.05
            ready = select.select([link.tap for link in links.values()], [], [], wait)[0]
            now = time.monotonic()
            for name, link in links.items():
                if link.tap not in ready:
                    continue
                for _ in range(64):
                    try:
                        frame = os.read(link.tap, FRAME_BYTES)
                    except OSError:  # nothing more, or the device is down
                        break
                    number += 1
                    self._take(number, name, frame, now)
            while self._coming and self._coming[0][0] <= now:
                _, _, target, frame = heapq.heappop(self._coming)
                link = self.links[target]  # which may be newer than those that were asked above
                if link.is_up:
                    with contextlib.suppress(OSError):
                        os.write(link.tap, frame)

    def _take(self, number: int, source: str, frame: bytes, now: float) -> None:
        """Learn where a sender is, and plan when a frame comes to whom it is for."""
        self._at[frame[6:12]] = source
        link = self.links[source]
        if not link.is_up:
            return
        known = self._at.get(frame[:6])
        for target in [known] if known is not None else [name for name in self.links if name != source]:
            other = self.links[target]
            start = max(now, link.free_at)
            rate = min((r for r in (link.rate, other.rate) if r), default=0.0)
            link.free_at = start + (len(frame) / rate if rate else 0.0)
            heapq.heappush(self._coming, (link.free_at + link.delay + other.delay, number, target, frame))


class Net:
    """Namespaces on one switch, with a Ray node in each that was started; all ends at `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.switch = folder, Switch()
        self.tag = f"{os.getpid():x}"[-6:]
        self.token = f"network-{self.tag}-{time.monotonic_ns():x}"
        self.nodes: list[str] = []
        self.fake: set[str] = set()

    def add(self, *, fake_cpu: bool = False) -> str:
        """A new node without Ray."""
        number = len(self.nodes) + 1
        name, device = f"ss{self.tag}n{number}", f"ss{self.tag}t{number}"
        self.switch.plug(name, device)
        self.nodes.append(name)
        if fake_cpu:
            self.fake.add(name)
        _ip("netns", "add", name)
        _ip("link", "set", device, "netns", name)
        for command in (("link", "set", "lo", "up"), ("addr", "add", f"{self.address(name)}/24", "dev", device),
                        ("link", "set", device, "up"), ("route", "add", "default", "dev", device)):  # fmt: skip
            _ip("-n", name, *command)  # Ray learns its own address by a way to the world, which leads nowhere here
        return name

    def address(self, name: str) -> str:
        return f"10.77.0.{self.nodes.index(name) + 1}"

    def link(self, name: str) -> Link:
        return self.switch.links[name]

    def prefix(self, name: str) -> tuple[str, ...]:
        """What runs a command on a node, the node's /proc/cpuinfo included."""
        inside = ("ip", "netns", "exec", name)
        if name not in self.fake:
            return inside
        told = self.folder / "cpuinfo"
        told.write_text(FAKE_CPU)
        return (*inside, "sh", "-c", f'mount --bind {told} /proc/cpuinfo && exec "$@"', "sh")

    def start_ray(self, name: str, head: str | None = None, cores: int = 1) -> None:
        """The head's Ray, or one that joins it.  A node has the head's folder, since all are one machine."""
        own = ["--head", "--port", PORT, "--include-dashboard=false", "--temp-dir", str(self.folder / f"ray-{name}")]
        join = ["--address", f"{self.address(head or name)}:{PORT}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", str(cores),
                   "--object-store-memory", str(80 << 20), "--node-ip-address", self.address(name)]  # fmt: skip
        subprocess.run([*self.prefix(name), *command, *(own if head is None else join)], env=self.environment(),
                       check=True, capture_output=True, timeout=START_SECONDS)  # fmt: skip

    def environment(self) -> dict[str, str]:
        told = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", guardian.VARIABLE: self.token}
        return {**os.environ, **told}

    def pids(self, name: str) -> list[int]:
        """Of all that runs on a node."""
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
        return list(map(int, found.stdout.split()))

    def has_actor(self, name: str) -> bool:
        return any("ray::BenchActor" in line(pid) for pid in self.pids(name))

    def kill(self, name: str) -> None:
        """SIGKILL to all that runs on a node."""
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def close(self) -> None:
        guardian.end_session(self.token)
        while self.nodes:
            name = self.nodes.pop()
            self.kill(name)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.switch.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


# ---------------------------------------------------------------- scenarios


@dataclass
class Row:
    """What a scenario saw; `recovery` are seconds from the fault to the next trial."""

    code: int | None = None
    recovery: float | None = None
    built: dict[str, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


class Scenario:
    """A cluster of two or three nodes, and a run on it."""

    def __init__(self, net: Net, seconds: float, db: str) -> None:
        self.net, self.seconds, self.db, self.row = net, seconds, db, Row()
        self.drives: list[Drive] = []

    def cluster(self, count: int = 3) -> list[str]:
        """Nodes with Ray, the first one the head, which builds nothing where others do."""
        nodes = [self.net.add() for _ in range(count)]
        self.net.start_ray(nodes[0], cores=0)
        for name in nodes[1:]:
            self.net.start_ray(name, nodes[0])
        return nodes

    def tune(self, node: str, head: str, *others: str) -> Drive:
        """A run from a node, with these other options."""
        options = (
            "--workload",
            "matmul",
            "--shape",
            "m=61,n=67,k=71",
            "--threads",
            "1",
            "--seconds",
            str(self.seconds),
            "--address",
            f"{self.net.address(head)}:{PORT}",
            "--db",
            self.db,
            *others,
        )
        self.drives.append(Drive(self.net.folder, options, prefix=self.net.prefix(node)))  # fmt: skip
        return self.drives[-1]

    def until_spread(self, drive: Drive) -> None:
        """Until there is an actor on each node of the cluster, and trials were told since."""
        drive.until(AFTER_TRIALS)
        while not all(self.net.has_actor(name) for name in self.net.nodes):
            if drive.process.poll() is not None:
                raise TimeoutError("the run had no actors on every node in its time; give it more --seconds")
            time.sleep(0.2)
        drive.until(len(drive.told()) + 2 * AFTER_TRIALS)

    def recovered(self, drive: Drive, since: float) -> None:
        """Wait for a trial that is told after the fault."""
        while drive.process.poll() is None:
            later = [at for at, event in list(drive.events) if event["event"] == "trial" and at > since + 0.5]
            if later:
                self.row.recovery = later[0] - since
                return
            time.sleep(0.05)

    def builders(self) -> int:
        """How many nodes of the cluster have built something."""
        return sum(count > 0 for name, count in self.row.built.items() if name != NODE[:8])

    def finish(self, drive: Drive, late: float = LATE_SECONDS) -> None:
        """Wait for the end of a run that is to end well, in its time."""
        left = max(0.0, drive.began + self.seconds - time.monotonic()) + late
        if drive.end(left) is None:
            self.row.problems.append("hung")
        self.row.code = drive.process.returncode
        last = drive.last()
        if self.row.code != 0 or last.get("event") != "done":
            self.row.problems.append(f"exit {self.row.code}: {drive.errors[-300:]}")
        for name, counts in last.get("nodes", {}).items():
            self.row.built[name[:8]] = self.row.built.get(name[:8], 0) + counts["built"]
        for at, event in drive.events:
            if event["event"] == "note" or "Ray" in str(event.get("phase")):
                said = event.get("message") or event.get("phase")
                print(f"  {at - drive.began:.1f} s: {said}", file=sys.stderr, flush=True)


def none(at: Scenario) -> None:
    head, *_ = at.cluster()
    at.finish(at.tune(head, head))
    if at.builders() < 2:
        at.row.problems.append("not every node built")


def slow(at: Scenario) -> None:
    head, *_ = at.cluster()
    for name in at.net.nodes:
        at.net.link(name).delay, at.net.link(name).rate = 0.05, 1e6
    at.finish(at.tune(head, head))


def cut(seconds: float | None, driver: int = 0, victim: int = 2) -> Callable[[Scenario], None]:
    """The victim's link is cut, for so long, or for good."""

    def act(at: Scenario) -> None:
        nodes = at.cluster()
        drive = at.tune(nodes[driver], nodes[0])
        at.until_spread(drive)
        at.net.link(nodes[victim]).is_up = False
        since = time.monotonic()
        watching = threading.Thread(target=at.recovered, args=(drive, since))
        watching.start()
        if seconds is not None:
            time.sleep(seconds)
            at.net.link(nodes[victim]).is_up = True
        watching.join()
        at.finish(drive)

    return act


def late(at: Scenario) -> None:
    head, *_ = at.cluster(2)
    drive = at.tune(head, head)
    at.until_spread(drive)
    name = at.net.add()
    since = time.monotonic()
    at.net.start_ray(name, head)
    at.row.recovery = time.monotonic() - since
    at.finish(drive)
    if at.builders() < 2:
        at.row.problems.append("the late node built nothing")


def head_killed(at: Scenario) -> None:
    head, second, third = at.cluster()
    drive = at.tune(head, head)
    at.until_spread(drive)
    for name in (head, second, third):  # without its head the Ray of the others is none
        at.net.kill(name)
    since = time.monotonic()
    drive.end(10)
    at.net.start_ray(second, cores=0)
    at.net.start_ray(third, second)
    follower = at.tune(second, second)
    at.recovered(follower, since)
    at.finish(follower)
    notes = " ".join(str(event.get("message")) for _, event in follower.events if event["event"] == "note")
    if "stored measurements feed the model" not in notes:
        at.row.problems.append("it did not go on from what was stored")


def other_device(at: Scenario) -> None:
    head, _ = at.cluster(2)
    other = at.net.add(fake_cpu=True)
    at.net.start_ray(other, head)
    first = at.tune(head, head)
    at.finish(first)
    second = at.tune(other, head)
    at.finish(second)
    winners = {}
    for drive in (first, second):
        done = drive.last()
        winners[done.get("device")] = done.get("record")
    if len(winners) != 2:
        at.row.problems.append(f"two devices have {len(winners)} rankings")


def devices(at: Scenario) -> None:
    head, _ = at.cluster(2)
    other = at.net.add(fake_cpu=True)
    at.net.start_ray(other, head)
    drive = at.tune(head, head, "--devices", "all")
    at.finish(drive)
    done = {event["device_key"]: event for _, event in drive.events if event["event"] == "done"}
    if len(done) != 2 or len({event["host"] for event in done.values()}) != 2:
        at.row.problems.append(f"two devices have {len(done)} results")


SCENARIOS: dict[str, Callable[[Scenario], None]] = {
    "none": none, "slow": slow, "cut_10s": cut(10.0), "cut": cut(None),
    "driver_cut_10s": cut(10.0, driver=1, victim=1), "late": late, "head_killed": head_killed,
    "other_device": other_device, "devices": devices,
}  # fmt: skip


def mixed(drives: list[Drive], stored: dict[str, Any]) -> int:
    """Records whose device is not the one that their run has told when it began."""
    count = 0
    for drive in drives:
        devices: dict[str, str] = {}
        for _, event in drive.events:
            if event["event"] == "start":
                devices[event.get("device_key", "")] = event["device"]
            elif event["event"] == "trial" and event["record"] in stored:
                count += stored[event["record"]].device.name != devices.get(event.get("device_key", ""))
    return count


def play(name: str, seconds: float, db: str | None) -> Row:
    """One scenario in namespaces of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ssnet-", dir="/tmp"))
    net = Net(folder)
    at = Scenario(net, seconds, db or str(folder / "tuned.db"))
    row = at.row
    try:
        SCENARIOS[name](at)
    except (subprocess.SubprocessError, OSError, TimeoutError) as error:
        told = getattr(error, "stderr", None) or b""
        row.problems.append(f"not put in: {error} {told[-300:]!r}")
    finally:
        for drive in at.drives:
            drive.process.kill()
        net.close()
    told = [event["record"] for drive in at.drives for _, event in drive.events if event["event"] == "trial"]
    with contextlib.suppress(Exception), Database(at.db, read_only=True) as database:
        stored = {record.id: record for record in database.every()}
        if lost := set(told) - set(stored):
            row.problems.append(f"{len(lost)} told trials are lost")
        if count := mixed(at.drives, stored):
            row.problems.append(f"{count} records of another device than the run's")
    if twice := [record for record, count in collections.Counter(told).items() if count > 1]:
        row.problems.append(f"{len(twice)} trials were told twice")
    row.told = set(told)
    shutil.rmtree(folder, ignore_errors=True)
    return row


@contextlib.contextmanager
def reaping() -> Iterator[None]:
    """Whoever loses its parent here becomes a child of this process, so that none is left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    yield
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios, separated by commas")
    parser.add_argument("--seconds", type=float, default=80.0, help="the time limit of each run")
    parser.add_argument("--db", help="a database that all nodes reach, by default a file that they share")
    asked = parser.parse_args()
    if os.getuid() != 0 or not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
        print("network namespaces need root, `ip` (iproute2) and /dev/net/tun")
        return 1
    print("| scenario | exit | recovery, s | built by node | trials told | what went wrong |")
    print("|---|---:|---:|---|---:|---|")
    failed = False
    with reaping():
        for name in asked.only.split(","):
            row = play(name, asked.seconds, asked.db)
            recovery = "" if row.recovery is None else f"{row.recovery:.1f}"
            built = ", ".join(f"{name} {count}" for name, count in row.built.items())
            print(f"| {name} | {row.code} | {recovery} | {built} | {len(row.told)} | {'; '.join(row.problems)} |",
                  flush=True)  # fmt: skip
            failed = failed or bool(row.problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
