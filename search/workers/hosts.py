"""Hosts that run modules of ours as processes of their own: this one, and those of a Ray cluster.

Such a process gets one line of text on its stdin, which stays open: it is to end when that closes, which also happens
when whoever has started it is gone.  What it prints are lines of text.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import guardian
from .actors import on_node
from .protocol import Failed
from .ray_calls import RayCalls, RayLost

NEWS_SECONDS = 0.5
"""How long a host elsewhere waits for lines before it says that there are none."""
SILENT_SECONDS, START_SECONDS = 30.0, 90.0
"""After which a host elsewhere that says nothing counts as lost: links come back before, actors are up before."""
LINES = 500
"""Lines in one answer."""
WORDS_SECONDS = 1.0
"""How long the last line of a process that has failed are waited for."""
TO_JOIN = ("RAY_AUTH_", "RAY_USE_TLS", "RAY_TLS_", "RAY_JOB_CONFIG_JSON_ENV_VAR")
"""How Ray's variables begin that a process needs to join a cluster; others are about the process that starts it."""


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
    """Runs one process."""

    def start(self, module: str, request: str) -> None:
        """Begin to run a module of ours, with a line on its stdin."""

    def news(self) -> News:
        """What has come since it was asked last; returns at once."""

    def end(self) -> None:
        """Ask the process to end, by closing its stdin; `news` tells when it has."""

    def close(self) -> None:
        """The process is to be gone, if it runs, and nothing more is heard of it."""


class HostProcess:
    """A `Host`: the one on which this object is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._words = [""]
        self._listener: threading.Thread | None = None

    def start(self, module: str, request: str) -> None:
        env = {
            name: value for name, value in os.environ.items()
            if not name.startswith("RAY_") or name.startswith(TO_JOIN)
        }  # fmt: skip
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            env={**env, "PYTHONPATH": guardian.import_path()},
        )  # fmt: skip
        _in_background(_write, process, request)
        _in_background(_read, process, self._lines)
        self._listener = _in_background(_listen, process, self._words)

    def news(self, seconds: float = 0.0) -> News:
        """What has come since it was asked last; waits at most so long for the first line."""
        if self._process is None:
            return News(problem="its process could not be started")
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
        code = self._process.wait()
        if code and self._listener is not None:
            self._listener.join(WORDS_SECONDS)
        return News(lines, code, f"its process ended with {code}: {self._words[0]}" if code else "")

    def news_text(self) -> str:
        """`news`, as it goes through Ray."""
        found = self.news(NEWS_SECONDS)
        return json.dumps([found.lines, found.code, found.problem])

    def end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # what was not written yet is lost, and not wanted
                self._process.stdin.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.end()


def _in_background(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _write(process: subprocess.Popen[str], request: str) -> None:
    """The request, which may be longer than a pipe takes before the process reads it."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # the process has ended, which `news` tells
        process.stdin.write(request.replace("\n", " ") + "\n")
        process.stdin.flush()


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
    """A `Host`: a `HostProcess` in an actor on a node of a cluster; what Ray cannot do any more is a problem."""

    def __init__(self, calls: RayCalls, node: str) -> None:
        self._calls, self._node = calls, node
        self._handle: Any = None
        self._answer: Any = None
        self._asked, self._patience = 0.0, START_SECONDS
        self._problem = ""

    def start(self, module: str, request: str) -> None:
        try:
            self._handle = self._calls.call(_actor, self._calls.ray, self._node)
            self._calls.send(self._handle.start.remote, module, request)
        except RayLost as error:
            self._problem = f"Ray was lost ({error})"
        self._ask()

    def news(self) -> News:
        if self._problem:
            return News(problem=self._problem)
        try:
            done, _ = self._calls.call(self._calls.ray.wait, [self._answer], timeout=0)
            if not done:
                is_silent = time.monotonic() - self._asked > self._patience
                return News(problem=f"it said nothing for {self._patience:g} s" if is_silent else "")
            reply = self._calls.reply(self._answer)
        except RayLost as error:
            return News(problem=f"Ray was lost ({error})")
        if isinstance(reply, Failed):
            return News(problem=reply.message)
        self._patience = SILENT_SECONDS
        self._ask()
        return News(*json.loads(reply))

    def _ask(self) -> None:
        """Ask for what comes next; what goes wrong is told then."""
        if not self._problem:
            try:
                self._answer, self._asked = self._calls.call(self._handle.news_text.remote), time.monotonic()
            except RayLost as error:
                self._problem = f"Ray was lost ({error})"

    def end(self) -> None:
        if self._handle is not None:
            self._calls.send(self._handle.end.remote)

    def close(self) -> None:
        if self._handle is not None:
            self._calls.send(self._calls.ray.kill, self._handle)


def _actor(ray: Any, node: str) -> Any:
    return ray.remote(HostProcess).options(num_cpus=0, max_restarts=0, scheduling_strategy=on_node(node)).remote()
