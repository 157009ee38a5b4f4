"""Kernels that write a result over an input that nobody needs afterwards.

Such a kernel is the scheduled program with one buffer for both,

    y[e] = f(x[e], ...)   ->   y[e] = f(y[e], ...)

which computes the same where (1) nothing but one statement reads ``x``, and (2) each of its instances that reads
``x[e]`` is the one that writes ``y[e]``, so that no element is read after it was written.  It is compiled anew, since a
kernel takes its buffers to be apart.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...backends.data import same_memory
from ...backends.lower import lower
from ...errors import ProgramError
from ...ir.affine.guard import Unknown
from ...ir.dataflow.accesses import Access
from ...ir.dataflow.dependence import clashes
from ...ir.dataflow.instances import Statement, instances
from ...ir.deadline import OutOfTime, look
from ...ir.expr import Buffer
from ...ir.passes.layouts import apply_buffer_transforms
from ...ir.stmt import PrimFunc, replace_buffer
from ...search.workers import kernel_cache
from ...search.workers.jobs import built
from ...search.workers.protocol import Built, Compiled, Failed
from ..edges import EdgeLayout
from ..network import Network, Operator
from .kernels import Kernel

LEAST_BYTES = 1 << 16  # a smaller tensor is in a near cache anyway


def overwriting(
    network: Network, kernels: Mapping[str, Kernel], layouts: Mapping[str, EdgeLayout], fixed: frozenset[str]
) -> dict[str, Kernel]:
    """The kernels, some of which write over an input that ends there; tensors of `fixed` keep their own memory.

    After a deadline (`ir.deadline`) no more are compiled.
    """
    found = dict(kernels)
    with contextlib.suppress(OutOfTime):
        _overwrite(found, network, layouts, fixed)
    return found


def _overwrite(
    found: dict[str, Kernel], network: Network, layouts: Mapping[str, EdgeLayout], fixed: frozenset[str]
) -> None:
    """Put kernels that write over an input in the place of those that do not."""
    known: dict[tuple[int, int, int], Compiled | None] = {}
    for step, node in enumerate(network.nodes):
        if not isinstance(node, Operator) or node.name not in found or node.apart:
            continue
        kernel = found[node.name]
        for read, written in _pairs(network, step, node, layouts, fixed):
            key = id(kernel), read, written
            if key not in known:
                look()
                known[key] = _compiled(kernel, read, written)
            made = known[key]
            if made is not None:
                found[node.name] = replace(kernel, compiled=made, over=(read, written))
                break


def _pairs(
    network: Network, step: int, node: Operator, layouts: Mapping[str, EdgeLayout], fixed: frozenset[str]
) -> Iterator[tuple[int, int]]:
    """Numbers of parameters, an input that ends with this step and an output that could take its memory."""
    later = {name for other in network.nodes[step + 1 :] for name in other.inputs}
    for read, name in enumerate(node.inputs):
        if name in network.constants or name in fixed or name in later or node.inputs.count(name) > 1:
            continue
        if network.tensors[name].nbytes < LEAST_BYTES:
            continue
        for written, result in enumerate(node.outputs, len(node.inputs)):
            one, other = network.tensors[name], network.tensors[result]
            alike = one.dtype == other.dtype and one.nbytes == other.nbytes
            if result not in fixed and alike and same_memory(layouts[name].argument, layouts[result].argument):
                yield read, written


def _compiled(kernel: Kernel, read: int, written: int) -> Compiled | None:
    """The kernel with one buffer for two parameters, if that is proven to compute the same."""
    task = kernel.task
    question = json.dumps(["in place", task.script, task.target.to_json(), kernel.trace, read, written])
    reply = kernel_cache.stored(question)
    if reply is None:
        reply = _built(kernel, read, written)
        kernel_cache.store(question, reply)
    return reply.kernel if isinstance(reply, Built) else None


def _built(kernel: Kernel, read: int, written: int) -> Built | Failed:
    try:
        func = apply_buffer_transforms(kernel.program())
        x, y = func.params[read], func.params[written]
        if isinstance(x, Buffer) and isinstance(y, Buffer) and x.shape == y.shape:
            merged = _merged(func, x, y)
            if _reads_first(func, merged, x, y):
                return built(merged, lower(merged, kernel.task.target), kernel.task.target)
    except (ProgramError, Unknown) as error:
        return Failed(status="refused", message=str(error))
    return Failed(status="refused", message="an element may be read after it was written")


def _merged(func: PrimFunc, x: Buffer, y: Buffer) -> PrimFunc:
    params = tuple(p for p in func.params if p != x)
    layouts = tuple(layout for layout in func.layouts if layout.param != x.name)
    return replace(func, params=params, layouts=layouts, body=replace_buffer(func.body, x, y))


def _reads_first(func: PrimFunc, merged: PrimFunc, x: Buffer, y: Buffer) -> bool:
    """Conditions 1 and 2."""
    before, after = instances(func).statements, instances(merged).statements
    readers = {s.number for s in before if any(a.buffer == x and not a.is_write for a in s.accesses)}
    if len(before) != len(after) or len(readers) != 1:
        return False
    (number,) = readers
    one, two = before[number], after[number]
    if len(one.accesses) != len(two.accesses):  # the result is read, too, so that the merged buffer has fewer
        return False
    reads = [b for a, b in zip(one.accesses, two.accesses, strict=True) if a.buffer == x]
    for statement in after:
        if statement.write is None or statement.write.buffer != y:
            continue
        if statement.number != number or _meets_another(two, statement.write, reads):
            return False
    return True


def _meets_another(statement: Statement, write: Access, reads: list[Access]) -> bool:
    """Whether an instance writes an element that another one reads."""
    for var in statement.variables:
        for order in ("<", ">"):
            for clash in clashes(statement, statement, (), [(var, order, var)], write.buffer):
                if clash.a == write and clash.b in reads:
                    return True
    return False
