"""A private local Ray, or a place in a running cluster.

A private Ray has no dashboard, reports no usage, keeps its files in a folder
that is removed, carries its own authentication token, and ends with us, however
we end.  A cluster is joined by address and left running.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...errors import TemporaryError
from . import guardian, host_lock
from .threads import daemon_thread

START_ATTEMPTS = 3
SERVICES = ("start_monitor", "start_api_server", "start_log_monitor")
OBJECT_STORE_BYTES = 80 * 1024 * 1024
CONNECT_SECONDS = 10.0
AUTH_TOKEN = secrets.token_hex(32)  # Ray reads the token once in a process, so every private Ray of ours shares it


class RaySession:
    """Starts in the background when made; `ready` waits for it and gives the ray module.

    `address` is ``HOST:PORT`` or ``auto``; None takes ``RAY_ADDRESS`` if that is
    set, and a private Ray with `cpus` cores otherwise.  A Ray that this process
    has already started is used as it is.
    """

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        if self.address == "local":
            self.address = None
        self.cpus = cpus or usable_cores()
        self.private = False
        self._guardian: subprocess.Popen[bytes] | None = None
        self._token = secrets.token_hex(16)
        self._folder = ""
        self._started: Future[Any] = daemon_thread("stridesmith-ray").submit(self._start)

    @property
    def is_ready(self) -> bool:
        """Whether `ready` would answer at once."""
        return self._started.done()

    def ready(self) -> Any:
        """The ray module, initialised.  Raises TemporaryError when a cluster does not answer."""
        return self._started.result()

    def close(self) -> None:
        """End a private Ray with all its processes; leave a cluster as it is."""
        with contextlib.suppress(BaseException):
            ray = self._started.result()
            if self.private or self.address:
                ray.shutdown()
        self._dismiss_guardian()

    def _start(self) -> Any:
        if self.address:
            _check_reachable(self.address)
        with _environment():
            if self.address and "RAY_AUTH_MODE" not in os.environ and _has_token() and _demands_token(self.address):
                os.environ["RAY_AUTH_MODE"] = "token"
            import ray

            if ray.is_initialized():
                self.address = None
            elif self.address:
                self._join(ray, self.address)
            else:
                self._start_private(ray)
        return ray

    def _join(self, ray: Any, address: str) -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError) as error:
            raise TemporaryError(f"could not join the Ray cluster at {address}: {error}") from None

    def _start_private(self, ray: Any) -> None:
        self.private = True
        self._folder = tempfile.mkdtemp(prefix="ss-ray-", dir=_short_folder())
        self._guardian = subprocess.Popen(
            [sys.executable, "-P", "-m", "stridesmith.search.workers.guardian", self._token, self._folder],
            stdin=subprocess.PIPE, start_new_session=True, env=_guardian_environment(),
        )  # fmt: skip
        os.environ.setdefault("RAY_AUTH_TOKEN", AUTH_TOKEN)
        os.environ[guardian.VARIABLE] = self._token
        for attempts_left in reversed(range(START_ATTEMPTS)):
            try:
                with host_lock.shared(), _without_services():
                    ray.init(
                        address="local", num_cpus=self.cpus, include_dashboard=False, log_to_driver=False,
                        logging_level="ERROR", object_store_memory=OBJECT_STORE_BYTES, _temp_dir=self._folder,
                    )  # fmt: skip
                return
            except (RuntimeError, ConnectionError, TimeoutError) as error:
                # On a machine that is very busy Ray's own waiting for its head process can run out.
                ray.shutdown()
                if not attempts_left:
                    reason = str(error).split(". ")[0]
                    raise TemporaryError(
                        f"the local Ray did not start: {reason}; try again when the machine is less busy"
                    ) from None

    def _dismiss_guardian(self) -> None:
        keeper, self._guardian = self._guardian, None
        if keeper is None:
            return
        guardian.end_session(self._token, self._folder)
        keeper.kill()
        keeper.wait()
        assert keeper.stdin is not None
        keeper.stdin.close()
        guardian.remove_folder(self._folder)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Turn usage statistics off, and take back what Ray and we put into the environment meanwhile.

    Only variables of Ray's and ours are touched: other threads may set theirs.
    """

    def ours() -> dict[str, str]:
        named = ("PYTHONBREAKPOINT", guardian.VARIABLE)
        return {k: v for k, v in os.environ.items() if k.startswith("RAY_") or k in named}

    before = ours()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        yield
    finally:
        for name in set(ours()) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _without_services() -> Iterator[None]:
    """A Ray that starts neither autoscaler nor dashboard server nor log monitor, which actors do not need.

    `ray.init` has no option for it; with them it takes twice as long, and so does its end.  A version of Ray
    that lacks these methods starts what it likes.
    """
    from ray._private.node import Node

    methods = {name: getattr(Node, name) for name in SERVICES if hasattr(Node, name)}
    for name in methods:
        setattr(Node, name, lambda *args, **options: None)
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(Node, name, method)


def _has_token() -> bool:
    """Whether the user has a token for Ray clusters, in any of the places where Ray looks."""
    named = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").exists()


def _demands_token(address: str) -> bool:
    """Whether the cluster refuses those without a token.

    A head that finds a token demands it, but Ray's clients send it only when told
    to, and one that does cannot work with a cluster without; Ray reads the mode when
    it is imported, so another process asks.
    """
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", address]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    try:
        return subprocess.run(command, env=env, capture_output=True, timeout=CONNECT_SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return False


def _guardian_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _short_folder() -> str:
    """Where Ray's sockets go: their full paths may have at most 107 characters."""
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 24 or not Path("/tmp").is_dir() else "/tmp"


def _check_reachable(address: str) -> None:
    """Raise TemporaryError at once where Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise TemporaryError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            f"or leave out `--address` and RAY_ADDRESS to use this machine alone"
        ) from None
