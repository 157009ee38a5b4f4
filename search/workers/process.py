"""A handle of one disposable worker process.

Generated code is compiled and run only behind this handle.  Whatever it does
(crash, hang, exhaust the memory, print to stdout), `WorkerProcess.request`
returns a reply and the next request finds a live worker.

============================  =====================================================
what happened                 reply
============================  =====================================================
the job answered              as the job says
deadline passed               ``build_timeout`` for a build, else ``run_timeout``
                              (`Failed` with this status, as all that follow)
the process died of a signal  ``crash:SIGSEGV`` and so on
the process called exit       ``crash:exit3`` and so on
memory limit, kernel's OOM    ``oom``
the device is lost            ``infrastructure:device``
anything else                 ``infrastructure``: not the candidate's fault
============================  =====================================================
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar

from ..records.status import DEVICE_LOST
from . import guardian
from .protocol import TICK, Failed, Job, Ping, ProtocolError, Reply, reply_of, to_text
from .scratch import new_folder
from .threads import daemon_thread

R = TypeVar("R", bound=Reply)

START_SECONDS = 60.0  # for a worker to come up
EXIT_SECONDS = 2.0  # for a worker that was asked to end
MAX_REPLY_BYTES = 256 * 1024 * 1024  # a choice
RETIRE_AFTER = 1000  # jobs, a choice
RETIRE_STATUSES = ("wrong", "oom", DEVICE_LOST)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OOM_WORDS = ("std::bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")


class _DeadlinePassed(Exception):
    """The worker did not answer in time."""


class _WorkerGone(Exception):
    """The worker closed its end of the pipe."""


class WorkerProcess:
    """One worker, started at the first request and again after each loss.

    `memory_bytes` limits the private memory of the process; by default half of
    the machine's, at most 8 GiB.  Not safe for use by several threads at once,
    except for `close`.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.memory_bytes = default_memory_bytes() if memory_bytes is None else memory_bytes
        self.generation = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._pending = b""
        self._served = 0
        self._stderr_seen = 0

    @property
    def pid(self) -> int | None:
        """The process id of the live worker, None while there is none."""
        return None if self._process is None else self._process.pid

    def request(self, job: Job[R], seconds: float, total: float | None = None) -> R | Failed:
        """The answer to `job`, or that it was killed for its deadline, at most about a second late.

        `seconds` may pass without a sign of progress, and `total` in all, by default
        the same.  A job shows progress each time a call of its kernel has come back.
        """
        problem = self._ensure_started()
        if problem is not None:
            return problem
        kills_before = kernel_oom_kills()
        self._served += 1
        self._stderr_seen = self._stderr_size()
        try:
            text = self._exchange(to_text(job).encode() + b"\n", seconds, seconds if total is None else total)
            reply = reply_of(job, text)
        except _DeadlinePassed:
            self._stop()
            message = f"the {type(job).__name__} job did not finish within {seconds:g} s"
            return Failed(status=job.timeout, message=message)
        except _WorkerGone:
            return self._died(kills_before)
        except ProtocolError as error:
            self._stop()
            return Failed(status="infrastructure", message=f"a worker process sent {error}")
        except BaseException:
            self._stop()
            raise
        if (isinstance(reply, Failed) and reply.status in RETIRE_STATUSES) or self._served >= RETIRE_AFTER:
            self._stop()
        return reply

    def close(self) -> None:
        """Kill the worker with its process group and remove its scratch folder."""
        self._stop()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ensure_started(self) -> Failed | None:
        """Start a worker if none runs; return the failure to do so, None where one runs."""
        if self._process is not None and self._process.poll() is None:
            return None
        self._stop()
        try:
            self._scratch = new_folder()
            folder, thread = Path(self._scratch_name), daemon_thread("stridesmith-spawn")
            self._process = thread.submit(lambda: _spawn(folder, self.memory_bytes)).result()
            self._pending, self._served, self._stderr_seen = b"", 0, 0
            self.generation += 1
            reply_of(Ping(), self._exchange(b"", START_SECONDS, START_SECONDS))
        except (_DeadlinePassed, _WorkerGone, ProtocolError, OSError) as error:
            late = f"no sign of life within {START_SECONDS:g} s" if isinstance(error, _DeadlinePassed) else ""
            detail = self._last_line() or str(error) or late or type(error).__name__
            self._stop()
            return Failed(status="infrastructure", message=f"a worker process did not start: {detail}")
        return None

    @property
    def _scratch_name(self) -> str:
        assert self._scratch is not None
        return self._scratch.name

    def _exchange(self, data: bytes, seconds: float, total: float) -> bytes:
        """Write `data` and read lines up to the first that is no tick."""
        end = time.monotonic() + total
        while True:
            line = self._read_line(data, min(end, time.monotonic() + seconds))
            data = b""
            if line != TICK.encode():
                return line

    def _read_line(self, data: bytes, deadline: float) -> bytes:
        """Write `data` and read one line, both before `deadline` (monotonic seconds)."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        to_worker, from_worker = process.stdin.fileno(), process.stdout.fileno()
        while b"\n" not in self._pending:
            poll = select.poll()
            poll.register(from_worker, select.POLLIN)
            if data:
                poll.register(to_worker, select.POLLOUT)
            left = deadline - time.monotonic()
            if left <= 0:
                raise _DeadlinePassed
            ready = dict(poll.poll(min(left, 60.0) * 1000))
            try:
                if to_worker in ready:
                    data = data[os.write(to_worker, data[: select.PIPE_BUF]) :]
                if from_worker in ready:
                    chunk = os.read(from_worker, 1 << 20)
                    if not chunk or len(self._pending) > MAX_REPLY_BYTES:
                        raise _WorkerGone
                    self._pending += chunk
            except OSError:
                raise _WorkerGone from None
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self, kills_before: int) -> Failed:
        """The reply for a worker that went away by itself."""
        words = self._last_line()
        code = self._stop()
        if any(word in words for word in OOM_WORDS):
            return Failed(status="oom", message=f"memory limit of {self.memory_bytes >> 20} MiB: {words}")
        if code == -signal.SIGKILL:
            if kernel_oom_kills() > kills_before:
                return Failed(status="oom", message="the kernel killed the worker process for memory")
            return Failed(status="infrastructure", message="the worker process was killed from outside")
        cause = signal.Signals(-code).name if code < 0 else f"exit{code}"
        return Failed(status=f"crash:{cause}", message=words or f"the worker process ended with {cause}")

    def _last_line(self) -> str:
        """The last line of any worth that this request put on stderr."""
        if self._scratch is None:
            return ""
        with contextlib.suppress(OSError), open(Path(self._scratch.name, "stderr"), "rb") as file:
            file.seek(max(self._stderr_seen, self._stderr_size() - 4096))
            lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:500]
        return ""

    def _stderr_size(self) -> int:
        try:
            return os.stat(Path(self._scratch_name, "stderr")).st_size
        except OSError:
            return 0

    def _stop(self) -> int:
        """End the process group; the return code of the leader, 0 if there was none."""
        process, self._process = self._process, None
        scratch, self._scratch = self._scratch, None
        code = 0
        if process is not None:
            code = _end_group(process)
        if scratch is not None:
            scratch.cleanup()
        return code


def _end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill the group that `process` leads and reap the leader.

    A leader that is already dead keeps its own return code, and as a zombie
    still holds the group id, so the signal cannot meet a stranger.
    """
    assert process.stdin is not None and process.stdout is not None
    if _pipe_closed(process):
        _wait_exited(process, EXIT_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()
    return code


def _pipe_closed(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _wait_exited(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until the process has exited; where the system can, without collecting its status."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if sys.platform == "darwin":
            exited = process.poll() is not None
        else:
            exited = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if exited:
            return
        time.sleep(0.005)


def _spawn(scratch: Path, memory_bytes: int) -> subprocess.Popen[bytes]:
    """A worker in a session of its own.

    No ``preexec_fn``: this process has threads.  The worker sets its limits itself.
    """
    command = [sys.executable, "-P", "-m", "stridesmith.worker", str(os.getpid()), str(memory_bytes)]
    with open(scratch / "stderr", "ab") as stderr:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            env=worker_environment(scratch), start_new_session=True, bufsize=0,
        )  # fmt: skip


def worker_environment(scratch: Path) -> dict[str, str]:
    """The environment of a worker: ours without Ray's, with one BLAS thread and private caches.

    Threads that a kernel may use are passed in each job, never inherited.
    ``PYTHONPATH`` repeats our ``sys.path``, so that the worker imports what we import.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k != guardian.VARIABLE}
    env.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    env["PYTHONPATH"] = guardian.import_path()
    env["POCL_CACHE_DIR"] = str(scratch / "pocl")
    env["PYOPENCL_NO_CACHE"] = "1"
    (scratch / "pocl").mkdir(exist_ok=True)
    return env


def default_memory_bytes() -> int:
    """Half of the physical memory, at most 8 GiB."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(physical // 2, 8 << 30))


def kernel_oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it does not say."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
