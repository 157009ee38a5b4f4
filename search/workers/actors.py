"""The actor that Ray runs on each node: a `Bench` that takes and gives the texts of `protocol`.

Ray pickles what it carries; only texts of ours are given to it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .bench import Bench, Limits
from .protocol import job_of, to_text
from .versions import versions_here

SIGNS = "signs"  # the threads that answer while a job is under way


class BenchActor:
    """Builds or measures on the node where Ray put it, through a worker process of its own."""

    def __init__(self, limits: str) -> None:
        self._bench = Bench(Limits(**json.loads(limits)))

    def hello(self) -> str:
        """The host, the process's id there, and the versions there; the first answer shows that the actor lives."""
        return f"{host_of_processes()} {os.getpid()} {json.dumps(versions_here())}"

    def sign(self) -> str:
        """A sign of life, which is answered beside a job."""
        return "alive"

    def build(self, job: str) -> str:
        return to_text(self._bench.build(job_of(job)))

    def prepare(self, job: str) -> None:
        """Do what later jobs need (see `Bench.prepare`)."""
        self._bench.prepare(job_of(job))

    def measure(self, job: str) -> str:
        return to_text(self._bench.measure(job_of(job)))

    def close(self) -> None:
        self._bench.close()


def host_of_processes() -> str:
    """A name that two processes have in common if ids of processes mean the same to them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "?" + str(os.getpid())


def start_actor(ray: Any, node: str, cpus: int, limits: str) -> Any:
    """A handle of a new actor on `node`."""
    options = {"num_cpus": cpus, "max_restarts": 0, "scheduling_strategy": on_node(node)}
    return ray.remote(concurrency_groups={SIGNS: 1})(BenchActor).options(**options).remote(limits)


def on_node(node: str) -> Any:
    """What puts a task or an actor of Ray's on this node, and on no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)
