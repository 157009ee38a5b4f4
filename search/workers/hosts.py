"""Hosts that run modules of ours as processes of their own: this one, and those of a Ray cluster.

Such a process gets one line of text on its stdin, which stays open: it is to end when that closes, which happens when
whoever has started it is gone.  What it prints are lines of text.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from .protocol import Failed
from .ray_calls import RayCalls, RayLost

NEWS_SECONDS = 0.5
"""How long a host elsewhere waits for lines before it says that there are none."""
SILENT_SECONDS, START_SECONDS = 30.0, 90.0
"""After which a host elsewhere that says nothing counts as lost: links come back before, actors are up before."""
LINES = 500
"""Lines in one answer."""
RAYS_OWN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables of Ray's that a process needs to join a cluster; the others are about the worker that starts it."""


@dataclass(frozen=True)
class News:
    """Lines that a process has printed, `code` once it has ended, `problem` where it failed or its host was lost."""

    lines: list[str] = field(default_factory=list)
    code: int | None = None
    problem: str = ""

    @property
    def is_over(self) -> bool:
        return self.code is not None or bool(self.problem)


class Host(Protocol):
    """Runs one process at a time."""

    def start(self, module: str, request: str) -> None:
        """Begin to run a module of ours, with a line on its stdin."""

    def news(self) -> News:
        """What has come since it was asked last; returns at once."""

    def end(self) -> None:
        """Ask the process to end (SIGTERM); `news` tells when it has."""

    def close(self) -> None:
        """Kill the process if it runs."""


class HostProcess:
    """The process on the host on which this object is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._words = [""]

    def start(self, module: str, request: str) -> None:
        """Begin to run a module of ours, with a line on its stdin."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or name in RAYS_OWN}
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path and os.pathsep not in path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=env, start_new_session=True,
        )  # fmt: skip
        self._lines, self._words = queue.SimpleQueue(), [""]
        for target, kept in ((_read, self._lines), (_listen, self._words)):
            threading.Thread(target=target, args=(self._process, kept), daemon=True).start()
        assert self._process.stdin is not None
        self._process.stdin.write(request.replace("\n", " ") + "\n")
        self._process.stdin.flush()

    def news(self, seconds: float = 0.0) -> News:
        """What has come since it was asked last; waits at most so long for the first line."""
        lines: list[str] = []
        try:
            line = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
            while line is not None and len(lines) < LINES:
                lines.append(line)
                line = self._lines.get_nowait()
        except queue.Empty:
            return News(lines)
        if line is not None:
            return News([*lines, line])
        assert self._process is not None
        code = self._process.wait()
        return News(lines, code, f"its process ended with {code}: {self._words[0]}" if code else "")

    def news_text(self) -> str:
        """`news`, as it goes through Ray."""
        found = self.news(NEWS_SECONDS)
        return json.dumps([found.lines, found.code, found.problem])

    def end(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        """Kill the process if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
    lines.put(None)


def _listen(process: subprocess.Popen[str], words: list[str]) -> None:
    """Keep the last line of stderr."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            words[0] = line.strip()[:500] or words[0]


class RayHost:
    """A `HostProcess` in an actor on a node of a cluster; what Ray cannot do any more is a problem in `news`."""

    def __init__(self, calls: RayCalls, node: str) -> None:
        self._calls, self._node = calls, node
        self._handle: Any = None
        self._answer: Any = None
        self._asked, self._patience = 0.0, START_SECONDS
        self._problem = ""

    def start(self, module: str, request: str) -> None:
        """Begin to run a module of ours, with a line on its stdin."""
        try:
            self._handle = self._calls.call(_actor, self._calls.ray, self._node)
            self._calls.send(self._handle.start.remote, module, request)
            self._ask()
        except RayLost as error:
            self._problem = f"Ray was lost ({error})"

    def news(self) -> News:
        """What has come since it was asked last."""
        if self._problem:
            return News(problem=self._problem)
        try:
            done, _ = self._calls.call(self._calls.ray.wait, [self._answer], timeout=0)
            if not done:
                is_silent = time.monotonic() - self._asked > self._patience
                return News(problem=f"it said nothing for {self._patience:g} s" if is_silent else "")
            reply = self._calls.reply(self._answer)
            if isinstance(reply, Failed):
                return News(problem=reply.message)
            self._patience = SILENT_SECONDS
            self._ask()
        except RayLost as error:
            return News(problem=f"Ray was lost ({error})")
        return News(*json.loads(reply))

    def _ask(self) -> None:
        self._answer, self._asked = self._calls.call(self._handle.news_text.remote), time.monotonic()

    def end(self) -> None:
        """Ask the process to end."""
        if self._handle is not None:
            self._calls.send(self._handle.end.remote)

    def close(self) -> None:
        """End the actor, and with it the process, whose stdin closes."""
        if self._handle is not None:
            self._calls.send(self._calls.ray.kill, self._handle)


def _actor(ray: Any, node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    return ray.remote(HostProcess).options(num_cpus=0, max_restarts=0, scheduling_strategy=place).remote()
