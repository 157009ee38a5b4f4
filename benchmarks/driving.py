"""A real run in a process of its own, which a benchmark of faults drives and watches."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stridesmith.search.workers import guardian

STARTED_SECONDS = 90.0
AFTER_TRIALS = 6
ACTORS = 2
CLEAN_SECONDS = 10.0  # in which what a run has left is to go


@dataclass
class Drive:
    """A run in a process of its own, with the events that it has sent and when; `variables` are set for it."""

    folder: Path
    options: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()  # a command that runs the run
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    noise: str = ""

    def __post_init__(self) -> None:
        command = [*self.prefix, sys.executable, "-m", "stridesmith", *self.options, "--format", "json"]
        self.began = time.monotonic()
        places = {"TMPDIR": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        environment = {**os.environ, **places, **self.variables}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True, start_new_session=True
        )
        self.errors = ""
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._listen)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append((time.monotonic(), json.loads(line)))
            else:
                self.noise += line

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def told(self) -> set[str]:
        """The records of announced trials."""
        return {event["record"] for _, event in self.events if event["event"] == "trial"}

    def last(self) -> dict[str, Any]:
        return self.events[-1][1] if self.events else {}

    def until(self, count: int) -> None:
        """Wait for so many trials."""
        deadline = time.monotonic() + STARTED_SECONDS
        while len(self.told()) < count and self.process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the run did not get under way")
            time.sleep(0.02)

    def until_guardian(self) -> tuple[str, str, int]:
        """Wait until its private Ray is being started: token and folder, and the guardian's process."""
        deadline = time.monotonic() + STARTED_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(LookupError):
                return self.session()
            time.sleep(0.02)
        raise TimeoutError("the run ended before it had a Ray; give it more --seconds")

    def until_ray(self) -> None:
        """Wait until a trial has been told that Ray's workers have measured."""
        deadline = time.monotonic() + STARTED_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(LookupError):
                if len(self.members("ray::BenchActor")) >= ACTORS:
                    self.until(len(self.told()) + AFTER_TRIALS)
                    return
            time.sleep(0.1)
        raise TimeoutError("the run ended, or had no actors of Ray's in time; give it more --seconds")

    def end(self, seconds: float) -> float | None:
        """Seconds from now until the run has ended; None where it had to be killed."""
        start = time.monotonic()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            for thread in self._threads:
                thread.join(10)
        return time.monotonic() - start

    def session(self) -> tuple[str, str, int]:
        """Token and folder of its private Ray, and the guardian's process."""
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            said = words(pid)
            if "stridesmith.search.workers.guardian" in said and parent(pid) == self.process.pid:
                return said[-2], said[-1], pid
        raise LookupError("the run has no guardian")

    def members(self, title: str) -> list[int]:
        """Processes of its Ray whose command begins so, or has that name."""
        token, _, _ = self.session()
        return [p for p in guardian.members(token) if guardian.name_of(p) == title or line(p).startswith(title)]


def words(pid: int) -> list[str]:
    """The command of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []


def line(pid: int) -> str:
    """The same in one text, as `ps` shows it."""
    return " ".join(words(pid))


def parent(pid: int) -> int:
    """The process that it belongs to; 0 where it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def all_kept(name: str, found: Sequence[tuple[float | None, str]]) -> bool:
    """Print the row of a fault, from the seconds of each try, None for a hang, and what was wrong; whether none was."""
    times = sorted(took for took, _ in found if took is not None) or [float("nan")]
    wrong = sorted({problem for _, problem in found if problem})
    kept = sum(not problem for _, problem in found)
    print(f"| {name} | {kept} / {len(found)} | {times[len(times) // 2]:.1f}, {times[-1]:.1f} | {'; '.join(wrong)} |",
          flush=True)  # fmt: skip
    return not wrong
