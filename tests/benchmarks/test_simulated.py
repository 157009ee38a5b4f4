"""A simulated cluster: workers that are lost, freeze or lie cost no trial, and more nodes build more candidates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import simulated
from simulated import Handle, Node, SimTask, Time, World, built_a_second, made_up, run_with_faults

from stridesmith.search.workers import actor_pool, protocol
from stridesmith.search.workers.protocol import Failed, SelfTest

SIZE = 60


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("spaces"), SIZE)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_on_workers_with_faults_loses_nothing(space: Path, tmp_path: Path, seed: int) -> None:
    """Each trial is told and stored once, no job is given out more than three times, and the winner is a true one."""
    seen = run_with_faults(space, 24, seed, tmp_path, trials=40, sampler="random", batch=16)
    assert seen.problems == [] and seen.trials == 40
    assert sum(count for fate, count in seen.had.items() if fate != "sound") > 3


def test_a_run_ends_in_its_time_whatever_its_workers_do(space: Path, tmp_path: Path) -> None:
    """With none that answers, too: then it has found nothing, and says so."""
    seen = run_with_faults(space, 16, 3, tmp_path, seconds=40.0, sampler="random", batch=16)
    assert seen.problems == [] and seen.trials > 0


class OneNode(World):
    """A node that builds, in seconds of the job's own; its actors have the fates that come."""

    def __init__(self, fates: Iterable[str] = (), seconds: float = 0.2) -> None:
        nodes = [Node("node0", 0), Node("node1", 1)]
        super().__init__(Time(), nodes, lambda job: protocol.Tested(pid=1, echo=job.echo), lambda job: seconds)
        self.coming = iter(fates)

    def fate(self, node: str) -> str:
        return next(self.coming, "sound") if node == "node1" else "sound"

    def build(self, count: int) -> list[Any]:
        with simulated.simulated(self) as executor:
            return executor.build([SelfTest(what="ping", echo=str(number)) for number in range(count)])


@pytest.mark.parametrize("lie", [lie for lie in simulated.LIES if "Tested" not in lie])
def test_a_reply_that_is_none_costs_its_worker_and_no_job(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is replaced, and the job goes to another one; it is given up after three."""
    honest, lies = Handle._do, iter([True, True])

    def replies(self: Handle, text: str) -> SimTask:
        task = honest(self, text)
        return SimTask(task.at, lie) if next(lies, False) else task

    monkeypatch.setattr(Handle, "_do", replies)
    world = OneNode()
    assert [reply.echo for reply in world.build(3)] == ["0", "1", "2"]
    assert world.had["sound"] == 3 + 1, "two builders were replaced, and one actor measures"
    lies = iter([True] * 3)
    first, second = OneNode().build(2)
    assert isinstance(first, Failed) and first.status == "infrastructure" and "reply was none" in first.message
    assert second.echo == "1"


def test_a_node_that_fails_at_times_and_works_again_keeps_its_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only starts that fail one after the other exclude a node."""
    world = OneNode(["dies", "never starts"] * 8, seconds=6.0)
    made = Handle.__init__

    def short_lived(self: Handle, world: World, node: Node, fate: str) -> None:
        made(self, world, node, fate)
        self.dies = world.time.monotonic() + 15.0 if fate == "dies" else self.dies

    monkeypatch.setattr(Handle, "__init__", short_lived)
    assert [reply.echo for reply in world.build(12)] == list(map(str, range(12)))
    assert world.had["never starts"] > actor_pool.FAILED_STARTS and not world.own
    world = OneNode(["sound"] + ["never starts"] * 9, seconds=6.0)
    monkeypatch.setattr(Handle, "__init__", made)
    with simulated.simulated(world) as executor:
        executor.build([SelfTest(what="ping", echo="0")])
        world.nodes[1].cores = 2  # whose second builder never comes
        assert [reply.echo for reply in executor.build([SelfTest(what="ping", echo=str(n)) for n in range(90)])]
    assert world.had["never starts"] == actor_pool.FAILED_STARTS


def test_three_nodes_build_almost_three_times_as_much() -> None:
    """On recorded build times; the driver's own time is left out here, since a busy machine makes it any number."""
    one, three = (built_a_second(nodes, 4, 240, real=False) for nodes in (1, 3))
    assert three > 2.7 * one
