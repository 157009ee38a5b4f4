"""A worker process can do nothing that its parent does not survive and name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from stridesmith.ir.target import Target
from stridesmith.search.records.status import failure_kind
from stridesmith.search.workers import scratch
from stridesmith.search.workers.process import WorkerProcess
from stridesmith.search.workers.protocol import Build, Failed, Ping, Reply, SelfTest, reply_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups and /proc of Linux")


@pytest.fixture(autouse=True)
def selftest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDESMITH_SELFTEST", "1")


@pytest.fixture
def worker():
    with WorkerProcess() as process:
        yield process


def job(what: str, **fields: Any) -> SelfTest:
    return SelfTest(what=what, **fields)


def status(reply: Reply) -> str:
    return reply.status if isinstance(reply, Failed) else "ok"


def gone(pid: int) -> bool:
    """Whether no process of that id is alive (a zombie is not alive)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_gone(pid: int, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not gone(pid):
        time.sleep(0.02)
    return gone(pid)


def test_one_warm_worker_serves_many_requests(worker: WorkerProcess) -> None:
    """The second request finds the process of the first, and its answer belongs to it."""
    replies = [worker.request(job("ping", echo=str(i)), 20) for i in range(3)]
    assert [r.echo for r in replies] == ["0", "1", "2"]
    assert {r.pid for r in replies} == {worker.pid}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (job("segfault"), "crash:SIGSEGV"),
        (job("signal", signal="SIGFPE"), "crash:SIGFPE"),
        (job("signal", signal="SIGILL"), "crash:SIGILL"),
        (job("signal", signal="SIGABRT"), "crash:SIGABRT"),
        (job("exit", code=3), "crash:exit3"),
        (job("abort_for_memory"), "oom"),
        (job("signal", signal="SIGKILL"), "infrastructure"),
    ],
)
def test_a_death_is_named_and_the_next_request_works(worker: WorkerProcess, fields: SelfTest, expected: str) -> None:
    """Each way to die has its status; a kill from outside is not the candidate's fault; a new worker serves on."""
    reply = worker.request(fields, 20)
    assert status(reply) == expected
    assert reply.message
    assert status(worker.request(job("ping"), 20)) == "ok"


def test_a_hang_is_killed_within_a_second_of_the_deadline(worker: WorkerProcess) -> None:
    """A job that holds the interpreter's lock and blocks SIGTERM ends all the same, and its process with it."""
    pid = worker.request(job("ping"), 20).pid
    start = time.monotonic()
    reply = worker.request(job("hang"), 0.5)
    assert time.monotonic() - start < 1.5
    assert status(reply) == "run_timeout"
    assert "0.5 s" in reply.message
    assert wait_gone(pid)


def test_signs_of_progress_move_the_deadline(worker: WorkerProcess) -> None:
    """A job that keeps coming back may take longer than its deadline, up to the total."""
    slow = job("ping", ticks=6, tick_seconds=0.2)
    worker.request(job("ping"), 20)
    assert status(worker.request(slow, 0.8, 10)) == "ok"
    assert status(worker.request(slow, 0.8)) == "run_timeout"
    worker.request(job("ping"), 20)
    start = time.monotonic()
    assert status(worker.request(job("hang", ticks=2, tick_seconds=0.2), 0.8, 10)) == "run_timeout"
    assert time.monotonic() - start < 2.2


def test_a_build_that_hangs_is_a_build_timeout(worker: WorkerProcess) -> None:
    """The same deadline has another name when it passes in a build."""
    worker.request(job("ping"), 20)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    assert status(worker.request(Build(script="", target=Target()), 0.3)) == "build_timeout"


def test_children_of_a_worker_are_killed_with_it(worker: WorkerProcess, tmp_path: Path) -> None:
    """The deadline kills the whole process group."""
    file = tmp_path / "pid"
    assert status(worker.request(job("hang_with_child", pid_file=str(file)), 2)) == "run_timeout"
    assert wait_gone(int(file.read_text()))


def test_exhausted_memory_is_oom() -> None:
    """Touching more memory than the limit is `oom`; this process does not grow."""
    with WorkerProcess(memory_bytes=600 << 20) as worker:
        assert status(worker.request(job("oom"), 30)) == "oom"
        assert status(worker.request(job("ping"), 20)) == "ok"


def test_prints_of_a_kernel_cannot_forge_an_answer(worker: WorkerProcess) -> None:
    """What a job writes to fd 1 or prints does not reach the channel."""
    assert status(worker.request(job("print"), 20)) == "ok"
    assert worker.request(job("ping", echo="mine"), 20).echo == "mine"


def test_a_worker_loads_no_heavy_libraries(worker: WorkerProcess) -> None:
    """The process that measures loads neither ray nor xgboost nor optuna."""
    modules = set(worker.request(job("modules"), 20).modules)
    assert not modules & {"ray", "xgboost", "optuna", "sqlalchemy"}


def test_the_environment_of_a_worker(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thread counts are not inherited, Ray's variables are left out, PoCL has a private cache."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("RAY_ADDRESS", "somewhere")
    env = worker.request(job("environment"), 20).environment
    assert env["OMP_NUM_THREADS"] == "1"
    assert not [name for name in env if name.startswith("RAY_")]
    assert Path(env["POCL_CACHE_DIR"]).is_dir()
    worker.close()
    assert not Path(env["POCL_CACHE_DIR"]).parent.exists()


def test_large_requests_and_answers_pass(worker: WorkerProcess) -> None:
    """Ten megabytes go through the pipes in both directions without a deadlock."""
    text = "x" * (10 << 20)
    assert worker.request(job("ping", echo=text), 30).echo == text


def test_selftest_jobs_are_refused_in_earnest(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable nobody can make a worker misbehave."""
    monkeypatch.delenv("STRIDESMITH_SELFTEST")
    assert status(worker.request(job("segfault"), 20)) == "refused"


def test_an_unknown_job_is_refused(worker: WorkerProcess) -> None:
    """The refusal lists what there is."""
    worker.request(Ping(), 20)
    reply = reply_of(Ping(), worker._exchange(b'{"job": "nonsense"}\n', 20, 20))
    assert status(reply) == "refused"
    assert "Measure" in reply.message
    assert status(worker.request(Ping(), 20)) == "ok"


def test_close_leaves_no_process() -> None:
    """After `close` the worker is gone; a second call does nothing."""
    worker = WorkerProcess()
    pid = worker.request(job("ping"), 20).pid
    worker.close()
    worker.close()
    assert wait_gone(pid)


def test_a_worker_that_cannot_start_is_infrastructure(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broken installation is nobody's candidate's fault, and the message has the reason."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    reply = worker.request(job("ping"), 20)
    assert status(reply) == "infrastructure"
    assert "no such library" in reply.message


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the parent ends a worker even in the middle of a hang."""
    code = (
        "import json, sys, threading\n"
        "from stridesmith.search.workers.process import WorkerProcess\n"
        "from stridesmith.search.workers.protocol import Ping, SelfTest\n"
        "worker = WorkerProcess()\n"
        "print(worker.request(Ping(), 20).pid, flush=True)\n"
        "threading.Thread(target=worker.request, args=(SelfTest(what='hang'), 60)).start()\n"
        "print('hanging', flush=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.stdout.readline()
    parent.kill()
    parent.wait()
    assert wait_gone(pid)


def test_a_worker_outlives_the_thread_that_asked_first() -> None:
    """The parent-death signal belongs to the process, not to the thread that happened to start the worker."""
    import threading

    with WorkerProcess() as worker:
        thread = threading.Thread(target=worker.request, args=(job("ping"), 20))
        thread.start()
        thread.join()
        pid = worker.pid
        time.sleep(0.2)
        assert worker.request(job("ping"), 20).pid == pid


def test_failure_kind_drops_the_detail() -> None:
    """`crash:SIGSEGV` is a crash."""
    assert failure_kind("crash:SIGSEGV") == "crash"
    assert failure_kind("oom") == "oom"


def test_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    """What a killed parent leaves in the temporary folder goes when the next one starts; live ones keep theirs."""
    code = (
        "import os, signal, json\n"
        "from stridesmith.search.workers.process import WorkerProcess\n"
        "from stridesmith.search.workers.protocol import Ping, SelfTest\n"
        "worker = WorkerProcess(); worker.request(Ping(), 20)\n"
        "print(worker._scratch.name, flush=True)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    first = code + "os.kill(os.getpid(), signal.SIGKILL)\n"
    stale = subprocess.run([sys.executable, "-c", first], env=env, capture_output=True, text=True).stdout.strip()
    assert Path(stale).is_dir()
    fresh = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert not Path(stale).exists()
    assert json.dumps(sorted(p.name for p in tmp_path.iterdir())) == "[]", fresh.stdout


def test_folders_lie_where_programs_may_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL loads what it compiles there; where no such place is, the sentence says which one to name."""
    home = tmp_path / "cache"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert scratch.place() == tmp_path and not scratch.problem()
    monkeypatch.setattr(scratch, "runs_programs", lambda folder: folder != tmp_path)
    assert home in scratch.place().parents and not scratch.problem()
    with scratch.new_folder() as folder:
        assert Path(folder).parent == scratch.place()
    monkeypatch.setattr(scratch, "runs_programs", lambda folder: False)
    assert scratch.place() == tmp_path
    assert str(tmp_path) in scratch.problem() and "TMPDIR" in scratch.problem()
