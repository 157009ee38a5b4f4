"""Jobs go through Ray, losses are repeated, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stridesmith.errors import TemporaryError
from stridesmith.search.workers import guardian
from stridesmith.search.workers.bench import Limits
from stridesmith.search.workers.executor import RayExecutor, spread
from stridesmith.search.workers.protocol import Failed, Reply, SelfTest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process groups and /proc of Linux"),
    pytest.mark.timeout(180),
]


def job(what: str, **fields: Any) -> SelfTest:
    return SelfTest(what=what, **fields)


def status(reply: Reply) -> str:
    return reply.status if isinstance(reply, Failed) else "ok"


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    os.environ["STRIDESMITH_SELFTEST"] = "1"
    before = dict(os.environ)
    made = RayExecutor(threads=2, limits=Limits(build=5, call=5))
    made.build([job("ping")])
    assert {k for k in os.environ if os.environ[k] != before.get(k)} == set(), "Ray's variables leak"
    yield made
    made.close()
    del os.environ["STRIDESMITH_SELFTEST"]


def test_replies_come_in_the_order_of_the_jobs(executor: RayExecutor) -> None:
    """However the work is spread, reply k belongs to job k, and `done` hears of each once."""
    heard: dict[int, object] = {}
    replies = executor.build([job("ping", echo=str(i)) for i in range(12)], lambda i, r: heard.update({i: r.echo}))
    assert [r.echo for r in replies] == list(map(str, range(12)))
    assert heard == {i: str(i) for i in range(12)}


def test_faults_are_values_beside_other_results(executor: RayExecutor) -> None:
    """A crash and a hang cost their own jobs and no other."""
    replies = executor.build([job("ping"), job("segfault"), job("hang", deadline=1), job("ping")])
    assert [status(r) for r in replies] == ["ok", "crash:SIGSEGV", "run_timeout", "ok"]


def test_work_is_spread_over_builders_and_measured_by_one(executor: RayExecutor) -> None:
    """Builds run beside each other in two processes, measurements one after the other in a third."""
    built = {r.pid for r in executor.build([job("sleep", seconds=0.3) for _ in range(4)])}
    measured = {r.pid for r in executor.measure([job("ping") for _ in range(4)])}
    assert len(built) == 2
    assert len(measured) == 1
    assert not built & measured


def test_lost_work_is_repeated_twice_and_then_infrastructure(executor: RayExecutor) -> None:
    """A job whose process is killed from outside every time is given up, and not blamed."""
    replies = executor.build([job("signal", signal="SIGKILL"), job("ping")])
    assert [status(r) for r in replies] == ["infrastructure", "ok"]


def test_a_killed_actor_loses_no_work(executor: RayExecutor) -> None:
    """SIGKILL of a Ray actor in the middle of its job: the job is done by another."""
    executor.build([job("ping"), job("ping")])
    victims = [pid for pid in _session_pids(executor) if _title(pid).startswith("ray::BenchActor")]
    assert victims
    timer = threading.Timer(0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in victims])
    timer.start()
    replies = executor.build([job("sleep", seconds=1, echo=str(i)) for i in range(3)])
    timer.join()
    assert [r.echo for r in replies] == ["0", "1", "2"]
    assert status(executor.measure([job("ping")])[0]) == "ok"


def test_nodes_count_what_was_done(executor: RayExecutor) -> None:
    """The statistics have one node with builds and measurements."""
    before = sum(n["built"] for n in executor.nodes().values())
    executor.build([job("ping")] * 3)
    executor.measure([job("ping")])
    nodes = executor.nodes()
    assert len(nodes) == 1
    assert sum(n["built"] for n in nodes.values()) == before + 3
    assert next(iter(nodes.values()))["measured"] >= 1


def _session_pids(executor: RayExecutor) -> list[int]:
    return guardian.members(executor._session._token)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


SCRIPT = """
import os, sys, time
os.environ["STRIDESMITH_SELFTEST"] = "1"
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import Failed, SelfTest
executor = RayExecutor(threads=1)
executor.measure([SelfTest(what="ping")])
executor.build([SelfTest(what="ping")])
print(executor._session._token, executor._session._folder, flush=True)
try:
    if sys.argv[1] == "run":
        executor.build([SelfTest(what="hang")])
finally:
    executor.close()
"""


def _start(mode: str) -> tuple[subprocess.Popen[str], str, str]:
    driver = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    token, folder = driver.stdout.readline().split()
    return driver, token, folder


def _wait_clean(token: str, folder: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not guardian.members(token, folder) and not Path(folder).exists():
            return True
        time.sleep(0.1)
    return False


def test_close_leaves_no_process_and_no_folder() -> None:
    """After `close` neither Ray nor a worker lives, and Ray's folder is gone."""
    driver, token, folder = _start("stop")
    assert driver.wait(60) == 0
    assert guardian.members(token, folder) == []
    assert not Path(folder).exists()


def test_ctrl_c_in_the_middle_of_a_build_ends_everything_in_time() -> None:
    """SIGINT while a job hangs: `close` in a `finally` ends within 5 s and leaves nothing."""
    driver, token, folder = _start("run")
    time.sleep(1)
    start = time.monotonic()
    driver.send_signal(signal.SIGINT)
    driver.wait(30)
    assert time.monotonic() - start < 5
    assert _wait_clean(token, folder, 1)


def test_a_killed_driver_leaves_no_orphans() -> None:
    """SIGKILL of the driver: Ray, its agents, the actors and their workers end by themselves."""
    driver, token, folder = _start("run")
    time.sleep(1)
    assert guardian.members(token)
    driver.kill()
    driver.wait()
    assert _wait_clean(token, folder, 15)


LOST_SCRIPT = """
import os, signal
from stridesmith.search.workers import guardian
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import SelfTest
with RayExecutor(threads=1) as executor:
    executor.build([SelfTest(what="ping")])
    session = executor._session
    (raylet,) = [pid for pid in session.core if guardian.name_of(pid) == "raylet"]
    os.kill(raylet, signal.SIGKILL)
    replies = executor.build([SelfTest(what="sleep", seconds=1.5, echo=str(n)) for n in range(3)])
    measured = executor.measure([SelfTest(what="ping", echo="m")])
print([r.echo for r in replies + measured], executor.notes, guardian.members(session._token, session._folder))
"""


def test_a_run_goes_on_without_a_ray_that_is_lost() -> None:
    """The raylet is killed: all jobs are done in their order, the user is told, and nothing is left."""
    env = {**os.environ, "STRIDESMITH_SELFTEST": "1"}
    run = subprocess.run([sys.executable, "-c", LOST_SCRIPT], env=env, capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("['0', '1', '2', 'm'] ['Ray was lost (its process raylet has ended)")
    assert run.stdout.endswith(" []\n") and run.stdout.count("\n") == 1


FIRST_SCRIPT = """
from stridesmith.search.workers import guardian
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import SelfTest
told = []
with RayExecutor(threads=1, first_here=True) as executor:
    first = executor.build([SelfTest(what="ping", echo="1")]) + executor.measure([SelfTest(what="ping", echo="2")])
    executor.wait(told.append)
    executor.scale_up(pays=False)
    assert executor._session._started is None and not told, "Ray was started without need"
    executor.scale_up(pays=True)
    meanwhile = executor.build([SelfTest(what="ping", echo="3")])
    executor.wait(told.append)
    last = executor.build([SelfTest(what="ping", echo="4")]) + executor.measure([SelfTest(what="ping", echo="5")])
    print([r.echo for r in first + meanwhile + last], told, list(executor.nodes().values()))
    token, folder = executor._session._token, executor._session._folder
    own = [bench.bench.worker.pid for pool in executor._benches.values() for bench in pool.actors]
print(guardian.members(token, folder), own)
"""


def test_the_first_jobs_are_done_here_and_those_after_scale_up_by_ray() -> None:
    """What is waited for is told once; benches of this process end when Ray's actors have taken over."""
    env = {**os.environ, "STRIDESMITH_SELFTEST": "1"}
    run = subprocess.run([sys.executable, "-c", FIRST_SCRIPT], env=env, capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stderr
    done, left = run.stdout.splitlines()
    assert done.startswith("['1', '2', '3', '4', '5'] ['waiting for Ray to start'] ")
    assert "{'built': 2, 'measured': 1}, {'built': 1, 'measured': 1}" in done
    assert left == "[] []"


def test_a_cluster_that_does_not_answer_is_a_temporary_error() -> None:
    """The message names the address and says what to do; it comes at once."""
    executor = RayExecutor(address="127.0.0.1:9")
    with pytest.raises(TemporaryError, match=r"127\.0\.0\.1:9.*ray start --head"):
        executor.build([job("ping")])
    executor.close()


CLUSTER_SCRIPT = """
import json, sys
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import Failed, SelfTest
with RayExecutor(address=sys.argv[1]) as executor:
    built = executor.build([SelfTest(what="sleep", seconds=0.2)] * 6)
    measured = executor.measure([SelfTest(what="ping")] * 3)
    statuses = [r.status if isinstance(r, Failed) else "ok" for r in built]
    print(json.dumps([statuses, len({r.pid for r in measured}), executor.nodes()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["disabled", "token"])
def test_a_cluster_of_two_nodes_builds_on_both_and_measures_on_one(mode: str, tmp_path: Path) -> None:
    """A head and a second node: both build, one measures, and both still run after `close`.

    The user has a Ray token, which one of the two clusters demands.
    """
    (tmp_path / "auth_token").write_text("0123456789abcdef" * 4)
    folder = tempfile.mkdtemp(prefix="ss-", dir="/tmp")
    env = {
        **os.environ, "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "auth_token"),
        "STRIDESMITH_SELFTEST": "1", "RAY_USAGE_STATS_ENABLED": "0", guardian.VARIABLE: "two-nodes-" + mode,
    }  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    port = address.partition(":")[2]
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", "1"]
    head = ["--head", "--port", port, "--include-dashboard=false", "--temp-dir", folder]
    try:
        subprocess.run([*ray, *head], env=env, check=True, capture_output=True)
        subprocess.run([*ray, "--address", address], env=env, check=True, capture_output=True)
        env = {k: v for k, v in env.items() if k not in ("RAY_AUTH_MODE", guardian.VARIABLE)}
        run = subprocess.run([sys.executable, "-c", CLUSTER_SCRIPT, address], env=env, capture_output=True, text=True)
        statuses, measurers, nodes = json.loads(run.stdout.splitlines()[-1])
        doctor = [sys.executable, "-m", "stridesmith", "doctor", "--address", address, "--format", "json"]
        checked = subprocess.run(doctor, env=env, capture_output=True, text=True)
        checks = [check for line in checked.stdout.splitlines() if (check := json.loads(line))["event"] == "check"]
        raylets = [p for p in guardian.members("two-nodes-" + mode) if "raylet/raylet" in _title(p)]
    finally:
        guardian.end_session("two-nodes-" + mode)
        shutil.rmtree(folder, ignore_errors=True)
    assert statuses == ["ok"] * 6
    assert measurers == 1
    assert sorted(n["measured"] for n in nodes.values()) == [0, 3]
    assert all(n["built"] > 0 for n in nodes.values()) and len(nodes) == 2
    assert len(raylets) == 2
    of_nodes = [check for check in checks if check["name"].startswith("node ")]
    assert [check["state"] for check in of_nodes] == ["ok", "ok"] and "2 nodes" in checks[-3]["text"], checked.stderr
    assert sorted(check["text"].partition(" with 1")[0] for check in of_nodes) == ["builds", "builds and measures"]


def test_builders_are_spread_over_nodes() -> None:
    """Without a number each core gets a builder; a number is handed out in turns."""
    assert spread({"a": 2, "b": 1}, None) == {"a": 2, "b": 1}
    assert spread({"a": 2, "b": 1}, 3) == {"a": 2, "b": 1}
    assert spread({"a": 8, "b": 8}, 4) == {"a": 2, "b": 2}
    assert spread({}, 4) == {}
