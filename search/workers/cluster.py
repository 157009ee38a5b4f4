"""What the nodes of a Ray cluster have: their devices, what they would build with, and what is wrong with them."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .actors import on_node
from .ray_calls import RayCalls
from .ray_session import RaySession, usable_cores
from .versions import differences, versions_here

PROBE_SECONDS = 45.0  # a node that has not started a worker of Ray's by then is told as one that does not answer
LOOK_SECONDS = 0.1  # between two looks


@dataclass(frozen=True)
class Node:
    """A node: its address, the cores that it offers, and its `problem`, empty where it has none.

    `id` is Ray's, empty where there is no Ray.  `devices` are the keys of its devices of the kind that was asked for,
    by the texts that choose them there; `folder` is the same for two nodes that have the same folder at that path.
    """

    address: str
    cores: int
    is_here: bool = False
    problem: str = ""
    id: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    folder: str = ""


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
        return Cluster(address, str(ray.__version__), seconds, nodes_of(RayCalls(ray)))
    finally:
        session.close()


def facts(kind: str, threads: int | None, folder: str) -> str:
    """What this host says of itself, as JSON: its name, its devices of a kind, the versions here, what a path is.

    `threads` are those of a CPU that kernels use, by default all.
    """
    from ...backends.devices import discover, listing

    if kind == "cpu":
        devices = {kind: discover(kind, threads).key}
    else:
        devices = {entry.selector: entry.target.key for entry in listing() if entry.target.kind == kind}
    said = {"host": platform.node(), "devices": devices, "versions": versions_here(), "folder": _identity(folder)}
    return json.dumps(said)


def _identity(folder: str) -> str:
    """An identity of the folder at a path, equal for nodes of one machine that see the same; empty without a folder."""
    try:
        boot, found = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.stat(folder)
    except OSError:
        return ""
    return f"{boot}/{found.st_dev}/{found.st_ino}"


def node_here(kind: str, threads: int | None, folder: str) -> Node:
    """This host, where there is no Ray."""
    said = json.loads(facts(kind, threads, folder))
    return Node(said["host"], usable_cores(), True, devices=said["devices"], folder=said["folder"])


def nodes_of(calls: RayCalls, kind: str = "cpu", threads: int | None = None, folder: str = "/") -> list[Node]:
    """Every live node, with what it says of itself (see `facts`).  Raises RayLost."""
    ray = calls.ray
    here = str(calls.call(lambda: ray.get_runtime_context().get_node_id()))
    alive = [node for node in calls.call(ray.nodes) if node["Alive"]]
    asked = {str(node["NodeID"]): calls.call(_ask, ray, str(node["NodeID"]), kind, threads, folder) for node in alive}
    deadline = time.monotonic() + PROBE_SECONDS
    found = []
    for node in alive:
        name = str(node["NodeID"])
        left = max(0.0, deadline - time.monotonic())
        done, _ = calls.call(ray.wait, [asked[name]], timeout=left, seconds=left)
        found.append(_node(calls, node, asked[name] if done else None, name == here))
    return found


def _ask(ray: Any, node: str, *question: Any) -> Any:
    return ray.remote(facts).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node(node)).remote(*question)


def _node(calls: RayCalls, node: Any, task: Any, is_here: bool) -> Node:
    address, cores, name = str(node["NodeManagerAddress"]), int(node["Resources"].get("CPU", 0)), str(node["NodeID"])
    if task is None:
        return Node(address, cores, is_here, f"it ran nothing within {PROBE_SECONDS:g} s", name)

    def answer() -> str:
        from ray.exceptions import RayError

        try:
            return str(calls.ray.get(task))
        except RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return json.dumps({"problem": (lines or [type(error).__name__])[-1][:300]})

    said = json.loads(calls.call(answer))
    if problem := said.get("problem"):
        return Node(address, cores, is_here, problem, name)
    problem = differences(said["versions"])
    return Node(f"{address} ({said['host']})", cores, is_here, problem, name, said["devices"], said["folder"])
