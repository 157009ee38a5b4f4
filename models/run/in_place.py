"""Kernels that write a result over an input that nobody needs afterwards (`ir.passes.in_place`).

Such a kernel is compiled anew, since a kernel takes its buffers to be apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.deadline import OutOfTime, has_deadline, look
from ...ir.target import Target
from ...search.workers import kernel_cache
from ...search.workers.protocol import Build, Built, Compiled, Failed, to_text
from ...search.workers.spread import build_here
from ..network import Network, Operator
from ..views import Sharing, sharing_of
from .kernels import Builder, Kernel

LEAST_BYTES = 1 << 16  # a smaller tensor is in a near cache anyway

Overwritten = dict[tuple[int, int, int], Compiled | None]
"""By a kernel's identity and the numbers of two parameters: the code, None where there can be none."""


def overwriting(network: Network, kernels: Mapping[str, Kernel], sharing: Sharing) -> dict[str, Kernel]:
    """The kernels, some of which write over an input that ends there.

    After a deadline (`ir.deadline`) no more are compiled.
    """
    found, known = dict(kernels), Overwritten()
    with contextlib.suppress(OutOfTime):
        for node, pairs in _candidates(network, kernels, sharing):
            kernel = kernels[node.name]
            for read, written in pairs:
                key = id(kernel), read, written
                if key not in known:
                    look()
                    known[key] = _compiled(kernel, read, written)
                made = known[key]
                if made is not None:
                    found[node.name] = replace(kernel, compiled=made, over=(read, written))
                    break
    return found


def compile_overwriting(network: Network, kernels: Mapping[str, Kernel], target: Target, build: Builder) -> None:
    """Have a builder compile, together, what `overwriting` will ask for first, and find in the user's cache then.

    Where there is a deadline (`ir.deadline`), that asks for one after the other, as long as there is time.
    """
    if target.kind != "cpu" or has_deadline():
        return
    jobs: dict[str, Build] = {}
    for node, pairs in _candidates(network, kernels, sharing_of(network, target)):
        job = _job(kernels[node.name], *next(pairs, (-1, -1)))
        if job.over != (-1, -1) and kernel_cache.stored(to_text(job)) is None:
            jobs[to_text(job)] = job
    for question, reply in zip(jobs, build(jobs.values()) if jobs else (), strict=True):
        _store(question, reply)


def _candidates(
    network: Network, kernels: Mapping[str, Kernel], sharing: Sharing
) -> Iterator[tuple[Operator, Iterator[tuple[int, int]]]]:
    """Operators, and numbers of parameters: an input that ends with it and an output that could take its memory.

    What the caller lends, what holds numbers from the start, results of the network, and what shares memory with
    other tensors keep memory of their own.
    """
    initialised = {name for name, lying in sharing.layouts.items() if lying.initialised}
    fixed = {*sharing.lent, *initialised, *network.outputs, *sharing.shared}
    for step, node in enumerate(network.nodes):
        if isinstance(node, Operator) and node.name in kernels and not node.apart:
            yield node, _pairs(network, step, node, sharing, fixed)


def _pairs(network: Network, step: int, node: Operator, sharing: Sharing, fixed: set[str]) -> Iterator[tuple[int, int]]:
    later = {name for other in network.nodes[step + 1 :] for name in other.inputs}
    for read, name in enumerate(node.inputs):
        if name in network.constants or name in fixed or name in later or node.inputs.count(name) > 1:
            continue
        if network.tensors[name].nbytes < LEAST_BYTES:
            continue
        for written, result in enumerate(node.outputs, len(node.inputs)):
            one, other = network.tensors[name], network.tensors[result]
            alike = one.dtype == other.dtype and one.nbytes == other.nbytes
            layouts = sharing.layouts
            if result not in fixed and alike and layouts[name].layout.same_memory(layouts[result].layout):
                yield read, written


def _job(kernel: Kernel, read: int, written: int) -> Build:
    task = kernel.task
    return Build(script=task.script, target=task.target, trace=kernel.trace, over=(read, written))


def _compiled(kernel: Kernel, read: int, written: int) -> Compiled | None:
    """The kernel with one buffer for two parameters, if that is proven to compute the same."""
    job = _job(kernel, read, written)
    question = to_text(job)
    reply = kernel_cache.stored(question)
    if reply is None:
        (reply,) = build_here([job])
        _store(question, reply)
    return reply.kernel if isinstance(reply, Built) else None


def _store(question: str, reply: Built | Failed) -> None:
    """Keep what would be answered again."""
    if isinstance(reply, Built) or reply.kind in ("refused", "build_error"):
        kernel_cache.store(question, reply)
