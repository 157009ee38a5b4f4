"""A look at a Ray cluster before a run is lost to it: what each of its nodes would build with."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import dataclass, field
from typing import Any

from .ray_calls import RayCalls
from .ray_session import RaySession
from .versions import differences, versions_here

PROBE_SECONDS = 45.0  # a node that has not started a worker of Ray's by then is told as one that does not answer
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Node:
    """One node: its address, the cores that it offers, its device, and what is wrong with it (empty: nothing)."""

    address: str
    cores: int
    is_here: bool = False
    device: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Cluster:
    """What answers at an address; `seconds` is how long it took to join."""

    address: str
    ray: str
    seconds: float
    nodes: list[Node] = field(default_factory=list)


def look(address: str) -> Cluster:
    """Join, ask every node, and leave.  Raises UsageError and TemporaryError as joining does."""
    began = time.monotonic()
    session = RaySession(address)
    session.begin()
    try:
        while not session.is_ready:
            time.sleep(LOOK_SECONDS)
        seconds, ray = time.monotonic() - began, session.ray
        calls = RayCalls(ray)
        return Cluster(address, str(ray.__version__), seconds, _nodes(calls, ray))
    finally:
        session.close()


def facts() -> str:
    """What a node says of itself, as JSON."""
    from ...backends.host import host_cpu

    return json.dumps({"host": platform.node(), "device": host_cpu().key, "versions": versions_here()})


def _nodes(calls: RayCalls, ray: Any) -> list[Node]:
    here = str(calls.call(lambda: ray.get_runtime_context().get_node_id()))
    alive = [node for node in calls.call(ray.nodes) if node["Alive"]]
    asked = {str(node["NodeID"]): calls.call(_ask, ray, str(node["NodeID"])) for node in alive}
    deadline = time.monotonic() + PROBE_SECONDS
    found = []
    for node in alive:
        name = str(node["NodeID"])
        left = max(0.0, deadline - time.monotonic())
        done, _ = calls.call(ray.wait, [asked[name]], timeout=left, seconds=left)
        found.append(_node(calls, node, asked[name] if done else None, name == here))
    return found


def _ask(ray: Any, node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    return ray.remote(facts).options(num_cpus=0, max_retries=0, scheduling_strategy=place).remote()


def _node(calls: RayCalls, node: Any, task: Any, is_here: bool) -> Node:
    address, cores = str(node["NodeManagerAddress"]), int(node["Resources"].get("CPU", 0))
    if task is None:
        return Node(address, cores, is_here, problem=f"it ran nothing within {PROBE_SECONDS:g} s")

    def answer() -> str:
        from ray.exceptions import RayError

        try:
            return str(calls.ray.get(task))
        except RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return json.dumps({"problem": (lines or [type(error).__name__])[-1][:300]})

    said = json.loads(calls.call(answer))
    if problem := said.get("problem"):
        return Node(address, cores, is_here, problem=problem)
    return Node(f"{address} ({said['host']})", cores, is_here, said["device"], differences(said["versions"]))
