"""A private local Ray, or a place in a running cluster.

A private Ray has no dashboard, reports no usage, keeps its files in a folder
that is removed, carries its own authentication token, and ends with us, however
we end.  A cluster is joined by address and left running.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import logging
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from ...errors import StridesmithError, TemporaryError, ToolMissing
from . import guardian, host_lock, scratch
from .ray_address import CHECK_SECONDS, answering_mode, check_address
from .threads import DaemonThread, cannot_end

START_ATTEMPTS = 3  # of a private Ray: another process may take its ports
SERVICES = ("start_monitor", "start_api_server", "start_log_monitor")
OBJECT_STORE_BYTES = 80 * 1024 * 1024  # about the least that Ray takes (75 MiB): jobs are texts
JOIN_SECONDS = 30.0  # a cluster
START_SECONDS = 120.0  # a private Ray, on a host that is busy
PATIENCE_SECONDS = 20.0  # of these, in which nothing is measured, so that Ray's start disturbs no measurement
END_SECONDS = 2.0  # a private Ray
RAY_THREADS = "ray_"  # how the names of the threads begin that `ray.init` starts in a driver
CORE = ("raylet", "gcs_server")  # the processes without which a Ray of ours is none
PATIENT = "1000000"  # seconds; a driver that has lost the GCS for a minute is ended by Ray, whatever else it does
AUTH_TOKEN = secrets.token_hex(32)  # Ray reads the token once in a process, so every private Ray of ours shares it


class RaySession:
    """Starts in the background at `begin`; `ray` is Ray's module once it is ready.

    `address` is ``HOST:PORT`` or ``auto``; None takes ``RAY_ADDRESS`` if that is
    set, and a private Ray with `cpus` cores otherwise.  A Ray that this process
    has already started is used as it is.
    """

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        self.named_by = "`--address`" if address else "RAY_ADDRESS"
        if self.address == "local":
            self.address = None
        if self.address is not None:
            check_address(self.address)
        self.cpus = cpus or usable_cores()
        self.private = False
        self.patience = math.inf  # seconds, beyond which the start of a private one is not worth waiting for
        self._guardian: subprocess.Popen[bytes] | None = None
        self._token = secrets.token_hex(16)
        self._folder = ""
        self._owner: int | None = None
        self._is_closing = False
        self._began = 0.0
        self._started: Future[Any] | None = None
        self._quiet = contextlib.ExitStack()  # holds off measurements on this host while a private one starts
        self._is_beside = False

    def begin(self) -> None:
        """Start Ray, or join the cluster, if that has not begun."""
        if self._started is None:
            self._began = time.monotonic()
            self._started = DaemonThread("stridesmith-ray").submit(self._start)

    @property
    def is_ready(self) -> bool:
        """Whether Ray is there; raises TemporaryError where it will not be: it failed, or did not answer in time."""
        if self._started is None:
            return False
        if self._started.done():
            self._started.result()
            return True
        if time.monotonic() - self._began > (START_SECONDS if self.address is None else CHECK_SECONDS + JOIN_SECONDS):
            if self.address is None:
                raise TemporaryError(f"the local Ray did not start within {START_SECONDS:.0f} s")
            raise TemporaryError(
                f"the Ray cluster at {self.address} did not answer in time; try again, or leave out {self.named_by} to "
                f"use this machine alone"
            )
        return False

    @property
    def is_slow(self) -> bool:
        """Whether a private Ray that has begun to start takes longer than is worth waiting for."""
        waited = time.monotonic() - self._began
        return self.address is None and self._started is not None and waited > min(self.patience, PATIENCE_SECONDS)

    def start_beside(self) -> None:
        """Let measurements on this host go on while a private Ray goes on starting."""
        self._is_beside = True
        self._quiet.close()

    @property
    def ray(self) -> Any:
        """The ray module, initialised."""
        assert self._started is not None
        return self._started.result()

    @property
    def what(self) -> str:
        """What is waited for until Ray's workers are there."""
        return f"waiting for the Ray cluster at {self.address}" if self.address else "waiting for Ray to start"

    @property
    def core(self) -> list[int]:
        """The processes that a private Ray cannot do without, on systems that tell."""
        return [pid for pid in guardian.members(self._token) if guardian.name_of(pid) in CORE] if self.private else []

    def close(self, *, is_lost: bool = False) -> None:
        """End a private Ray with all its processes; leave a cluster as it is.  Bounded, whatever Ray does."""
        self._is_closing = True
        if self._started is None:
            return
        wait([self._started], END_SECONDS / 2)
        if not self._started.done():
            _let_go(sys.modules.get("ray"))
            self.abandon()  # its guardian stays: Ray may start more until it is told, or this process ends
        self._started.add_done_callback(lambda started: self._end(started, is_lost))  # at once, if it is done

    def _end(self, started: Future[Any], is_lost: bool) -> None:
        if started.exception() is None and (self.private or self.address):
            ended = DaemonThread("stridesmith-ray-end").submit(self.ray.shutdown)
            if not is_lost:
                wait([ended], END_SECONDS)
            if not ended.done():
                _let_go(self.ray)
        self._dismiss_guardian()

    def abandon(self) -> None:
        """End what is left of a private Ray that is lost, so that nobody waits for it."""
        if self.private:
            guardian.end_session(self._token, self._folder)

    def _start(self) -> Any:
        """Ray's module, initialised.  Raises TemporaryError, whatever keeps a private one from starting."""
        try:
            return self._initialised()
        except StridesmithError:
            raise
        except (Exception, SystemExit) as error:  # parts were killed, a file system is full, half is installed
            failed = "the local Ray did not start" if self.address is None else f"could not join {self.address}"
            raise TemporaryError(f"{failed}: {_first_sentence(error)}") from None

    def _initialised(self) -> Any:
        # A private Ray starts when nothing is measured; a cluster is joined while others may want to measure here.
        quiet: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.address:
            quiet = host_lock.shared()
        with quiet, _environment(), _keeping_sigterm():
            if self.address and (mode := answering_mode(self.address, self.named_by)):
                os.environ["RAY_AUTH_MODE"] = mode
            ray = self._imported()
            if ray.is_initialized():
                self.address = None
                return ray
            _silence(ray)
            if self._is_closing:
                raise TemporaryError("the run was over before Ray was there")
            if self.address:
                self._join(ray, self.address)
            else:
                self._start_private(ray)
        return ray

    def _imported(self) -> Any:
        """The module of Ray.  Raises ToolMissing where a cluster needs it, TemporaryError where a run can do without.

        A package for another interpreter, or half of one, fails in whatever way.
        """
        # In a notebook it says while it is imported that packages for its own widgets are missing.
        logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
        try:
            import ray

            return ray
        except Exception as error:
            reason = f"the package `ray` cannot be imported ({_first_sentence(error)})"
            if self.address is None:
                raise TemporaryError(reason) from None
            raise ToolMissing(
                f"{reason}, which joins the cluster at {self.address}; install it anew (pip install --force-reinstall "
                f"ray), or leave out {self.named_by} to use this machine alone"
            ) from None

    def _join(self, ray: Any, address: str) -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (Exception, SystemExit) as error:  # what Ray raises for a node that does not answer has no class
            raise TemporaryError(
                f"could not join the Ray cluster at {address}: {error}; see that `ray status` finds it, or leave out "
                f"{self.named_by} to use this machine alone"
            ) from None

    def _start_private(self, ray: Any) -> None:
        self.private = True
        self._guard()
        os.environ.setdefault("RAY_AUTH_TOKEN", AUTH_TOKEN)
        os.environ[guardian.VARIABLE] = self._token
        for attempts_left in reversed(range(START_ATTEMPTS)):
            try:
                with self._quiet, _without_services():
                    if not self._is_beside:
                        self._quiet.enter_context(host_lock.shared())
                    ray.init(
                        address="local", num_cpus=self.cpus, include_dashboard=False, log_to_driver=False,
                        logging_level="ERROR", object_store_memory=OBJECT_STORE_BYTES, _temp_dir=self._folder,
                    )  # fmt: skip
                return
            except (Exception, SystemExit):
                # On a machine that is very busy Ray's own waiting for its head process can run out.
                with contextlib.suppress(Exception, SystemExit):
                    ray.shutdown()
                if not attempts_left or self._is_closing:
                    raise

    def _guard(self) -> None:
        """Make its folder, and start the process that ends it with us."""
        guardian.sweep(_short_folder())
        self._folder = tempfile.mkdtemp(prefix=guardian.PREFIX, dir=_short_folder())
        self._owner = guardian.own(self._folder, self._token)
        self._guardian = subprocess.Popen(
            [sys.executable, "-P", "-m", "stridesmith.search.workers.guardian", self._token, self._folder],
            stdin=subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONPATH": guardian.import_path()},
        )  # fmt: skip

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
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def sweep() -> None:
    """Remove what dead runs have left, of which some may have been ending while this one began."""
    guardian.sweep(_short_folder())
    scratch.sweep()


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
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", PATIENT)
    try:
        yield
    finally:
        for name in set(ours()) - set(before):
            del os.environ[name]
        os.environ.update(before)


def _silence(ray: Any) -> None:
    """Keep Ray from printing to our stdout, between lines of JSON, what it has to say of workers that died."""
    _silence_threads()
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


@functools.cache
def _silence_threads() -> None:
    """Ray's threads do not print how they failed when its processes are gone: a note tells that Ray is lost."""
    others = threading.excepthook

    def tell(failed: threading.ExceptHookArgs) -> None:
        if failed.thread is None or not failed.thread.name.startswith(RAY_THREADS):
            others(failed)

    threading.excepthook = tell


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


def _first_sentence(error: BaseException) -> str:
    """How an error begins, or the name of its class where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].split(". ")[0][:300] if lines else type(error).__name__


def _let_go(ray: Any) -> None:
    """Ray's own end at the exit of the interpreter would wait for what is lost."""
    cannot_end.set()
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if (function := getattr(worker, "shutdown", None)) is not None:
        atexit.unregister(function)


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Take back the handler by which Ray prints stacks on SIGTERM and ends the process, in whatever thread it starts.

    Python's `signal` may be called in the main thread alone, so the C library is asked.
    """
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), ctypes.create_string_buffer(512)
    known = library.sigaction(signal.SIGTERM, None, before) == 0
    try:
        yield
    finally:
        if known:
            library.sigaction(signal.SIGTERM, before, None)


def _short_folder() -> str:
    """Where Ray's sockets go: their full paths may have at most 107 characters."""
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 24 or not Path("/tmp").is_dir() else "/tmp"
