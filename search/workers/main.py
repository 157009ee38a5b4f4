"""The disposable process that compiles and runs generated code: ``python -m stridesmith.worker PARENT MEMORY``.

Reads one JSON object per line from stdin and answers each with one line, after
a first line that says it is ready.  It loads neither ray nor xgboost nor optuna.
Started by `process`, which gives each request its deadline.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from typing import BinaryIO

from .protocol import TICK, Alive, Failed, ProtocolError, Reply, job_of, to_text

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
MAX_FILE_BYTES = 1 << 30  # that a worker may write, a choice
COLLECT_EVERY = 100  # jobs; a build leaves up to 4 MB in cycles


def main() -> None:
    """Serve jobs until stdin ends."""
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    answers = claim_stdout()
    limit_memory(memory_bytes)
    send(answers, to_text(Alive(pid=os.getpid())))
    # The collector of cycles would walk over all that is remembered in each build: an eighth of its time.
    gc.disable()
    for served, line in enumerate(sys.stdin.buffer, start=1):
        send(answers, to_text(serve(line, answers)))
        if served % COLLECT_EVERY == 0:
            gc.collect()


def serve(line: bytes, answers: BinaryIO) -> Reply:
    """The reply to one request line; lines of `TICK` come before it while the job goes on."""
    from . import jobs

    try:
        return jobs.run(job_of(line), lambda: send(answers, TICK))
    except ProtocolError as error:
        return Failed(status="refused", message=str(error))
    except MemoryError as error:
        return Failed(status="oom", message=str(error) or "the memory limit of the worker process")


def send(answers: BinaryIO, line: str) -> None:
    answers.write(line.encode() + b"\n")
    answers.flush()


def claim_stdout() -> BinaryIO:
    """The pipe to the parent, taken away from fd 1, which now prints to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def die_with(parent: int) -> None:
    """End this process when `parent` ends, even in the middle of a job."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def limit_memory(memory_bytes: int) -> None:
    """Limit private writable memory, and leave no core files behind.

    RLIMIT_DATA and not RLIMIT_AS: device drivers reserve far more address space
    than they use.
    """
    import resource

    limits = ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, MAX_FILE_BYTES))
    for which, value in limits:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (value, value))
