"""What Ray does not do is a value in bounded time: calls that hang or fail, processes that end or stand still."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from stridesmith.errors import TemporaryError, ToolMissing, UsageError
from stridesmith.ir.deadline import until
from stridesmith.search.workers import actor_pool as pool_module
from stridesmith.search.workers import executor as executor_module
from stridesmith.search.workers import guardian, host_lock, protocol, ray_address, ray_calls, ray_session, scratch
from stridesmith.search.workers.actor_pool import ActorPool
from stridesmith.search.workers.actors import host_of_processes
from stridesmith.search.workers.bench import Limits
from stridesmith.search.workers.executor import NO_TIME, RayExecutor, _Batch
from stridesmith.search.workers.local_pool import LocalPool
from stridesmith.search.workers.protocol import Failed, SelfTest, to_text
from stridesmith.search.workers.ray_address import check_address
from stridesmith.search.workers.ray_calls import RayCalls, RayLost
from stridesmith.search.workers.ray_session import RaySession
from stridesmith.search.workers.versions import versions_here

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes as Linux has them"), pytest.mark.timeout(60),
]  # fmt: skip


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds in a run takes tenths here; but an answer, which a busy machine may keep back for so long."""
    monkeypatch.setattr(ray_calls, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(ray_calls, "STOPPED_SECONDS", 0.3)
    monkeypatch.setattr(pool_module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(ray_calls, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(pool_module, "CHECK_SECONDS", 0.05)


def test_a_call_gives_what_the_function_gives() -> None:
    """With all kinds of arguments."""
    assert RayCalls(None).call(max, 3, 5) == 5
    assert RayCalls(None).call(sorted, [1, 2], reverse=True) == [2, 1]


def test_a_call_that_hangs_or_fails_is_ray_lost_and_nothing_is_asked_after_it() -> None:
    """In bounded time; the reason stays."""
    for function, reason in ((lambda: time.sleep(5), "did not answer"), (lambda: 1 // 0, "ZeroDivisionError")):
        calls, start = RayCalls(None), time.monotonic()
        with pytest.raises(RayLost, match=reason):
            calls.call(function)
        with pytest.raises(RayLost, match=reason):
            calls.call(max, 1, 2)
        assert time.monotonic() - start < 2 and reason in calls.lost


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGKILL, "has ended"), (signal.SIGSTOP, "stands still")])
def test_a_core_process_that_ends_or_stands_still_is_ray_lost(
    sleeper: subprocess.Popen[bytes], number: signal.Signals, reason: str
) -> None:
    """While something else is waited for, long before that would be over."""
    calls = RayCalls(None, [sleeper.pid])
    calls.look()
    threading.Timer(0.1, os.kill, (sleeper.pid, number)).start()
    start = time.monotonic()
    with pytest.raises(RayLost, match=reason):
        calls.call(time.sleep, 20, seconds=20)
    assert time.monotonic() - start < 2


def test_a_core_process_that_goes_on_in_time_is_not_lost(sleeper: subprocess.Popen[bytes]) -> None:
    """A debugger may stop one for a moment."""
    calls = RayCalls(None, [sleeper.pid])
    sleeper.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    calls.look()
    sleeper.send_signal(signal.SIGCONT)
    time.sleep(0.4)
    calls.look()


# ---------------------------------------------------------------- actors that Ray does not have


class _Method:
    def __init__(self, function: Any) -> None:
        self.remote = function

    def options(self, **_: Any) -> _Method:
        return self


class _Handle:
    """An actor that builds at once while it lives; one that is `frozen` answers nothing, also where it has a `pid`."""

    def __init__(self, frozen: bool, pid: int = 0, **other: str) -> None:
        self.frozen = frozen
        host = host_of_processes() if pid else "host"
        self.hello = _Method(lambda: _done(f"{host} {pid} {json.dumps(versions_here() | other)}"))
        self.sign = _Method(lambda: Future() if self.frozen else _done("alive"))
        self.build = _Method(lambda text: Future() if self.frozen else _done(to_text(protocol.Tested(pid=1, echo="x"))))
        self.measure = self.build
        self.close = _Method(lambda: _done("None"))


class _Ray:
    """`wait`, `get` and `kill` of futures."""

    def __init__(self) -> None:
        self.killed: list[Any] = []

    def wait(self, tasks: list[Any], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Any], list[Any]]:
        deadline = time.monotonic() + min(timeout, 0.05)
        while not any(t.done() for t in tasks) and time.monotonic() < deadline:
            time.sleep(0.005)
        done = [t for t in tasks if t.done()]
        return done[:num_returns], [t for t in tasks if t not in done[:num_returns]]

    def get(self, task: Any) -> Any:
        return task.result()

    def kill(self, handle: Any) -> None:
        self.killed.append(handle)


def _done(value: str) -> Future[str]:
    future: Future[str] = Future()
    future.set_result(value)
    return future


def pool_of(monkeypatch: pytest.MonkeyPatch, frozen: list[bool]) -> tuple[ActorPool, _Ray]:
    """A pool of one actor at a time; `frozen` says of each in turn whether it answers."""
    import ray.exceptions

    ray, coming = _Ray(), iter(frozen)
    monkeypatch.setattr(pool_module, "start_actor", lambda *_: _Handle(next(coming)))
    return ActorPool(RayCalls(ray), 1, Limits(), lambda: {"node": 1}, None), ray


def test_an_actor_that_gives_no_sign_is_given_up_and_its_work_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next actor does the job; the silent one was killed."""
    pool, ray = pool_of(monkeypatch, [True, False])
    batch = _Batch("build", [SelfTest(what="ping")], None)
    start = time.monotonic()
    assert [reply.echo for reply in batch.run(pool, lambda: None)] == ["x"]  # type: ignore[union-attr]
    assert time.monotonic() - start < 5
    while not ray.killed and time.monotonic() - start < 10:
        time.sleep(0.01)
    assert len(ray.killed) == 1


def test_an_actor_whose_process_here_is_stopped_is_not_waited_for_as_long_as_a_silent_one(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """Linux tells of a process of this host; it is killed, and the next actor does the job."""
    pool, _ = pool_of(monkeypatch, [])
    monkeypatch.setattr(pool_module, "SILENT_SECONDS", 60.0)
    handles = iter([_Handle(True, sleeper.pid), _Handle(False)])
    monkeypatch.setattr(pool_module, "start_actor", lambda *_: next(handles))
    sleeper.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    assert [reply.echo for reply in _Batch("build", [SelfTest(what="ping")], None).run(pool, lambda: None)] == ["x"]  # type: ignore[union-attr]
    assert 0.3 < time.monotonic() - start < 5
    assert sleeper.wait(5) == -signal.SIGKILL


def test_a_silent_actor_is_noticed_while_another_one_has_news_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed long before the other one has done all there is."""
    pool, ray = pool_of(monkeypatch, [True, False, False])
    monkeypatch.setattr(pool, "_wanted", lambda: {"node": 2})
    start = time.monotonic()

    def jobs() -> Iterator[SelfTest]:
        while not ray.killed and time.monotonic() - start < 10:
            yield SelfTest(what="ping")
            time.sleep(0.005)

    replies = _Batch("measure", jobs(), None).run(pool, lambda: None)
    assert time.monotonic() - start < 5 and len(ray.killed) == 1
    assert all(not isinstance(reply, Failed) for reply in replies)


def test_a_pool_whose_ray_does_not_answer_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was asked: the actors are forgotten, and who closes the pool goes on."""
    pool, _ = pool_of(monkeypatch, [False])
    _Batch("build", [SelfTest(what="ping")], None).run(pool, lambda: None)
    (actor,) = pool.idle()
    stuck = threading.Event()
    actor.handle.close = _Method(lambda: stuck.wait(20))
    start = time.monotonic()
    pool.close(0.2)
    assert 0.15 < time.monotonic() - start < 2 and not pool.actors
    stuck.set()


def test_a_node_of_other_versions_gets_no_work_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with what it has and what to do; the other node does all of it."""
    import ray.exceptions  # noqa: F401

    def start(_: Any, node: str, *__: Any) -> _Handle:
        return _Handle(False, llvmlite="0.1", source="fade") if node == "other" else _Handle(False)

    monkeypatch.setattr(pool_module, "start_actor", start)
    pool = ActorPool(RayCalls(_Ray()), 1, Limits(), lambda: {"other": 2, "node": 1}, None)
    batch = _Batch("build", [SelfTest(what="ping") for _ in range(4)], None)
    assert [reply.echo for reply in batch.run(pool, lambda: None)] == ["x"] * 4  # type: ignore[union-attr]
    assert set(batch.nodes) == {"node"}
    (note,) = pool.notes
    assert note.startswith("node other gets no work") and "install llvmlite==" in note and "sources of stride" in note


def test_work_that_silences_three_actors_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice it goes elsewhere, then it counts as nobody's fault."""
    pool, _ = pool_of(monkeypatch, [True] * 3 + [False])
    (reply,) = _Batch("build", [SelfTest(what="ping")], None).run(pool, lambda: None)
    assert isinstance(reply, Failed) and reply.status == "infrastructure" and "sign of life" in reply.message


@pytest.mark.parametrize(("kind", "times"), [("infrastructure", 3), ("no_reference", 1)])
def test_a_job_is_done_again_only_where_it_was_lost(kind: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no reference result has none the next time either."""
    pool, _ = pool_of(monkeypatch, [False])
    receive, received = pool.receive, list[object]()

    def fails(actor: Any) -> Any:
        if (text := receive(actor)) is None:
            return None
        received.append(text)
        return Failed(status=kind, message="why")

    monkeypatch.setattr(pool, "receive", fails)
    (reply,) = _Batch("measure", [SelfTest(what="ping")], None).run(pool, lambda: None)
    assert isinstance(reply, Failed) and reply.kind == kind and len(received) == times


def test_nothing_is_waited_for_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a reply keeps it, the rest is too late, jobs that were not made yet included."""
    pool, _ = pool_of(monkeypatch, [True])
    monkeypatch.setattr(pool_module, "SILENT_SECONDS", 60.0)
    until, heard = time.monotonic() + 0.3, []
    jobs = (SelfTest(what="ping") for _ in range(3))
    replies = _Batch("measure", jobs, lambda index, reply: heard.append(index)).run(pool, lambda: until)
    assert replies == [NO_TIME] * 3 and heard == [0, 1, 2] and time.monotonic() - until < 2


def test_benches_of_this_process_do_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that loses Ray goes on with them; a crash there is a value, and nothing lives after `close`."""
    monkeypatch.setenv("STRIDESMITH_SELFTEST", "1")
    pool, _ = pool_of(monkeypatch, [True])
    jobs = [SelfTest(what="ping", echo="a"), SelfTest(what="segfault"), SelfTest(what="ping", echo="b")]
    batch = _Batch("build", jobs, None)
    pool._calls.lost = "gone"
    with pytest.raises(RayLost):
        batch.run(pool, lambda: None)
    own = LocalPool(2, Limits(build=20))
    first, second, third = batch.run(own, lambda: None)
    assert (first.echo, third.echo) == ("a", "b")  # type: ignore[union-attr]
    assert isinstance(second, Failed) and second.status == "crash:SIGSEGV"
    pids = [actor.bench.worker.pid for actor in own.actors]
    own.close()
    assert not any(pid and Path(f"/proc/{pid}").exists() for pid in pids)


# ---------------------------------------------------------------- sessions


def test_what_a_dead_run_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    """The lock tells; a process with the token of the dead one is ended as well."""
    dead, live = tmp_path / f"{guardian.PREFIX}dead", tmp_path / f"{guardian.PREFIX}live"
    for folder, token in ((dead, "deadbeef00"), (live, "livebeef00")):
        folder.mkdir()
        descriptor = guardian.own(str(folder), token)
        if folder is dead:
            os.close(descriptor)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, guardian.VARIABLE: "deadbeef00"}) as left:
        assert guardian.sweep(str(tmp_path)) == [str(dead)]
        assert left.wait(5) == -signal.SIGKILL
    assert sorted(p.name for p in tmp_path.iterdir()) == [live.name, live.name + guardian.OWNER]
    os.close(descriptor)


def test_a_run_removes_at_its_end_what_ended_while_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of dead workers and sessions go when the executor is closed; those of the living stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    executor = RayExecutor(first_here=True, builders=1)
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    dead = tmp_path / f"{scratch._prefix()}{ended.pid}-a"
    live = tmp_path / f"{scratch._prefix()}{os.getppid()}-b"
    session = tmp_path / f"{guardian.PREFIX}dead"
    for folder in (dead, live, session):
        folder.mkdir()
    os.close(guardian.own(str(session), "deadbeef00"))
    executor.close()
    assert list(tmp_path.iterdir()) == [live]


class _LateRay(ModuleType):
    """A Ray of which one function takes until `go_on` is set; `called` are those that were asked for."""

    def __init__(self, late: str) -> None:
        super().__init__("ray")
        self.late, self.go_on, self.called = late, threading.Event(), list[str]()

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name == self.late:
            self.go_on.wait(20)

    def is_initialized(self) -> bool:
        self._call("is_initialized")
        return False

    def init(self, **_: Any) -> None:
        self._call("init")

    def shutdown(self) -> None:
        self._call("shutdown")


def late_ray(late: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> _LateRay:
    """Such a Ray in place of the real one, with the host's lock in `folder`."""
    ray = _LateRay(late)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_session, "END_SECONDS", 0.1)
    monkeypatch.setattr(ray_session, "answering_mode", lambda *_: "")
    monkeypatch.setattr(host_lock, "FOLDER", folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return ray


@pytest.mark.parametrize(
    ("address", "late", "called"),
    [(None, "is_initialized", ["is_initialized"]), ("127.0.0.1:1", "init", ["is_initialized", "init", "shutdown"])],
)
def test_a_ray_that_comes_after_the_end_is_not_started_or_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str | None, late: str, called: list[str]
) -> None:
    """Closing does not wait for it, and nothing stays behind: no Ray, no guardian."""
    ray = late_ray(late, monkeypatch, tmp_path)
    monkeypatch.setattr(RaySession, "_start_private", lambda *_: ray.called.append("private"))
    session = RaySession(address)
    session.begin()
    while late not in ray.called:
        time.sleep(0.01)
    session.close()
    assert "shutdown" not in ray.called
    ray.go_on.set()
    assert session._started is not None
    wait([session._started], 5)
    deadline = time.monotonic() + 5
    while ray.called != called and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ray.called == called


class _Broken(ModuleType):
    """A module of Ray that starts nothing."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("ray")
        self.error, self.tried = error, 0

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.tried += 1
        raise self.error

    def shutdown(self) -> None:
        raise RuntimeError("there is nothing to end")


NODE = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Exception(NODE), "The current node timed out during startup"),
        (ValueError("Attempting to cap object store memory usage"), "Attempting to cap object store memory usage"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (SystemExit(1), "1"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_whatever_keeps_a_private_ray_from_starting_the_run_goes_on_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, reason: str
) -> None:
    """It is tried again; then the benches of this process do the work, and no folder or process is left."""
    monkeypatch.setenv("STRIDESMITH_SELFTEST", "1")
    ray = _Broken(error)
    late_ray("init", monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_session, "_without_services", contextlib.nullcontext)
    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    with RayExecutor(threads=1, first_here=True) as executor:
        executor.scale_up(pays=True)
        executor.wait()
        assert not isinstance(executor.build([SelfTest(what="ping")])[0], Failed)
        executor.wait()
        executor.scale_up(pays=True)
        assert not isinstance(executor.measure([SelfTest(what="ping")])[0], Failed)
        assert ray.tried == ray_session.START_ATTEMPTS
        (note,) = executor.notes
        assert note.startswith(f"the local Ray did not start: {reason}") and "this process builds and measures" in note
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(guardian.PREFIX)]


def test_a_package_of_ray_that_does_not_import_is_done_without_unless_a_cluster_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then it is an error that says what to do."""
    monkeypatch.setenv("STRIDESMITH_SELFTEST", "1")
    late_ray("init", monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with RayExecutor(threads=1, first_here=True) as executor:
        executor.scale_up(pays=True)
        executor.wait()
        assert not isinstance(executor.build([SelfTest(what="ping")])[0], Failed)
        assert len(executor.notes) == 1 and "`ray` cannot be imported" in executor.notes[0]
    says = r"which joins the cluster at 127\.0\.0\.1:1; .* leave out `--address`"
    with RayExecutor("127.0.0.1:1", threads=1, first_here=True) as executor, pytest.raises(ToolMissing, match=says):
        while True:
            executor.build([SelfTest(what="ping")])


@pytest.mark.parametrize(("patience", "left"), [(0.2, None), (60.0, 2.0)])
def test_a_start_that_takes_long_holds_no_measurement_up(
    patience: float, left: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Benches of this process measure meanwhile, which is said once; of a run with few seconds a quarter is waited for.

    The start itself holds off measurements on this host until then.
    """
    monkeypatch.setenv("STRIDESMITH_SELFTEST", "1")
    ray = late_ray("init", monkeypatch, tmp_path)
    monkeypatch.setattr(ray_session, "_without_services", contextlib.nullcontext)
    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    monkeypatch.setattr(ray_session, "PATIENCE_SECONDS", patience)
    with RayExecutor(threads=1, first_here=True) as executor:
        executor.until = None if left is None else time.monotonic() + left
        executor.scale_up(pays=True)
        executor.until, start = None, time.monotonic()
        executor.wait()
        assert 0.1 < time.monotonic() - start < 5 and "init" in ray.called
        executor.until = time.monotonic() + 10
        with until(time.monotonic() + 5), host_lock.exclusive():
            pass
        assert not isinstance(executor.measure([SelfTest(what="ping")])[0], Failed)
        executor.wait()
        (note,) = executor.notes
        assert note == "the local Ray is slow to start; this process builds and measures by itself until then"
        ray.go_on.set()


@pytest.mark.parametrize(("named", "named_by"), [("auto", "`--address`"), (None, "RAY_ADDRESS")])
@pytest.mark.parametrize("noted", ["127.0.0.1:9", "", None])
def test_auto_says_at_once_that_no_cluster_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, noted: str | None, named: str | None, named_by: str
) -> None:
    """Ray would try the address that an ended cluster has left for most of a minute."""
    (tmp_path / "ray").mkdir()
    if noted is not None:
        (tmp_path / "ray" / "ray_current_cluster").write_text(noted)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr(ray_address, "_has_cluster", lambda: False)
    session, start = RaySession(named), time.monotonic()
    session.begin()
    what = "no cluster runs on this host" if noted is None else f"no cluster answers at {noted or 'an empty address'}"
    with pytest.raises(TemporaryError, match=f"^{named_by} is `auto`, but {what}.*leave out {named_by} to use"):
        while not session.is_ready:
            time.sleep(0.01)
    assert time.monotonic() - start < ray_address.CONNECT_SECONDS
    session.close()


def test_nothing_is_measured_here_while_a_cluster_is_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither by this run, which tells what it waits for, nor by others."""
    monkeypatch.setattr(executor_module, "LocalPool", MagicMock())
    ray, told = late_ray("init", monkeypatch, tmp_path), list[str]()
    with RayExecutor("127.0.0.1:1", 1, first_here=True) as executor:
        while "init" not in ray.called:
            time.sleep(0.01)
        with (tmp_path / "stridesmith-host.device.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        threading.Timer(0.2, ray.go_on.set).start()
        executor.wait(told.append)
        assert ray.go_on.is_set() and told == ["waiting for the Ray cluster at 127.0.0.1:1"]
    with host_lock.exclusive():
        pass


def test_a_cluster_whose_cores_are_taken_does_not_hold_measurements_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The actor that measures lives, builders wait for cores elsewhere: this process's own build, and are measured."""
    monkeypatch.setattr(executor_module, "LocalPool", MagicMock())
    late_ray("init", monkeypatch, tmp_path).go_on.set()
    pools = {kind: MagicMock(ready=kind == "measure") for kind in executor_module.KINDS}
    for pool in pools.values():
        pool.is_starting_here.return_value = False
    with RayExecutor("127.0.0.1:1", 1, first_here=True) as executor:
        executor.scale_up(pays=True)
        monkeypatch.setattr(executor, "_is_there", lambda *kinds: all(pools[k].ready for k in kinds or pools))
        monkeypatch.setattr(executor, "_actors", pools)
        executor.until = time.monotonic() + 5
        executor.wait()
        assert time.monotonic() < executor.until - 2


@pytest.mark.parametrize(
    "address", ["hello", "ray://127.0.0.1:10001", "host:", ":6379", "host:0", "host:70000", "a b:1"]
)
def test_an_address_that_names_no_cluster_is_refused(address: str) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="auto or HOST:PORT"):
        check_address(address)


@pytest.mark.parametrize("address", ["auto", "10.0.0.7:6379", "head.cluster-1.local:6379", "[::1]:6379"])
def test_an_address_may_be_auto_a_name_or_a_number(address: str) -> None:
    """IPv6 in brackets."""
    check_address(address)


def test_threads_of_a_ray_that_is_gone_print_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told of as before."""
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: told.append(failed.thread.name))
    ray_session._silence_threads.cache_clear()
    ray_session._silence(ModuleType("ray"))
    for name in ("ray_listen_error_messages", "mine"):
        thread = threading.Thread(target=lambda: 1 // 0, name=name)
        thread.start()
        thread.join()
    ray_session._silence_threads.cache_clear()
    assert told == ["mine"]


@pytest.mark.parametrize(
    ("first", "is_grpc"),
    [(b"\0\0\x06\4\0\0\0\0\0", True), (b"HTTP/1.0 400 Bad\r\n", False), (b"\0\0", False), (b"", False)],
)
def test_what_speaks_no_http2_is_known_to_be_no_ray_at_once(
    monkeypatch: pytest.MonkeyPatch, first: bytes, is_grpc: bool
) -> None:
    """By the first frame of the answer, also where that is late, is cut off or does not come; not behind TLS."""
    monkeypatch.setattr(ray_address, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        kept = []

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    connection.sendall(first)

        threading.Thread(target=answer, daemon=True).start()
        start = time.monotonic()
        with (
            contextlib.nullcontext() if is_grpc else pytest.raises(TemporaryError, match="not answer as a Ray cluster")
        ):
            ray_address._check_reachable(address)
        assert time.monotonic() - start < 2
        monkeypatch.setenv("RAY_USE_TLS", "1")
        ray_address._check_reachable(address)
