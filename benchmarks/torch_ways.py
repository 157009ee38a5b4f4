"""Ways to run a network of torch.nn: eager, by Inductor with frozen weights, and in two ways by us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch_zoo
from peer_forms import Forms, Job
from torch import Tensor, nn
from torch_networks import NETWORKS, network


def taken(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network of `torch_networks.py` or `torch_zoo.py` by its name, and the inputs of one call."""
    if name in NETWORKS:
        module, x = network(name)
        return module, (x,)
    module, calls = torch_zoo.made(name)
    return module, tuple(calls[0])


def nn_forms(job: Job, threads: int) -> Forms:
    """One way to run a network, with the database of the job.  What is written in place is written in each call."""
    torch.set_num_threads(threads)
    module, inputs = taken(job["nn"])
    way: Any = module
    if job["way"] == "inductor":
        import torch._inductor.config as inductor

        inductor.freezing = True
        way = torch.compile(module, dynamic=False)
    elif job["way"] == "stridesmith":
        import stridesmith as ss

        options = {"db": job["db"], "threads": threads, "rest": job["rest"]}
        way = torch.compile(module, backend=ss.torch.backend, options=options, dynamic=False)
    elif job["way"] == "compile":
        import stridesmith as ss

        way = ss.torch.compile(module, inputs, db=job["db"], threads=threads, rest=job["rest"])

    def call() -> Tensor:
        with torch.no_grad():
            found: Tensor | Sequence[Tensor] = way(*inputs)
        return found if isinstance(found, Tensor) else found[0]

    with torch._dynamo.config.patch(allow_rnn=True):
        call()
    return Forms({job["way"]: call})
