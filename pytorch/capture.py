"""What AOTAutograd makes of a graph of Dynamo: ATen's operators without side effects.

A graph that writes to tensors which it is given computes their new values instead, which AOTAutograd copies into them
afterwards.  Where a new value is the old one but for a few elements, as that of a cache is, these alone are written,
as soon as they are known (`write_in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from .call import Left
from .movement import is_whole
from .operators import Operator
from .recurrent import as_operators, layer_of
from .strides import is_view

Compiled: TypeAlias = Callable[..., Any]

SCATTERS: Mapping[object, Operator] = {
    torch.ops.aten.slice_scatter.default: torch.ops.aten.slice.Tensor,
    torch.ops.aten.select_scatter.default: torch.ops.aten.select.int,
}
"""What puts a tensor in the place of a part of another one, with what looks at that part."""
WRITES: Mapping[object, Operator] = {
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
    torch.ops.aten.index_copy.default: torch.ops.aten.index_copy_.default,
    torch.ops.aten.scatter.src: torch.ops.aten.scatter_.src,
    torch.ops.aten.scatter.value: torch.ops.aten.scatter_.value,
}
"""What writes some elements of a new tensor, with what writes them where they are."""


@dataclass
class Captured:
    """A graph in ATen's operators, and the value of each input that is a weight, None for others.

    A weight that was created under `inference_mode` is another: it has no version, by which writing would be seen; and
    so is one that the graph writes to, whose number is among the `written`.  Their new values are the first outputs.
    `call` takes what Dynamo's graph takes; what computes the graph is `run`, which is put there afterwards.  What is
    `plain` has nothing to be done around it, so that `run` may be called itself.
    """

    aten: fx.GraphModule
    values: list[Tensor | None]
    written: list[int]
    plain: bool
    run: Compiled
    call: Compiled


def capture(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Captured:
    """What AOTAutograd makes of a graph of Dynamo, of which recurrent layers stay one operator each.

    Raises Left for a graph that AOTAutograd gives other inputs, that changes how tensors lie in memory, that sees a
    part of memory in another order, or that has a recurrent layer which would be written out step by step.
    """
    found: list[Captured] = []

    def written(aten: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        context = TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        if metadata is None or len(inputs) != len(example_inputs):
            raise Left("it is given tensors that share memory, one of which it writes to")
        if any(info.mutates_metadata for info in metadata.input_info):
            raise Left("it changes how a tensor that it is given lies in memory")
        for node in aten.graph.nodes:
            if str(node.target).startswith("aten.as_strided") and not is_whole(node.args[0].meta["val"]):
                raise Left("it sees a part of a tensor's memory in another order (as_strided)")
        changed = list(metadata.mutated_inp_runtime_indices)
        static = set(metadata.static_input_indices or ()).difference(changed)
        values = [
            value if at in static and not value.is_inference() else None for at, value in enumerate(example_inputs)
        ]
        plain = not (
            metadata.num_outputs_aliased or metadata.dynamic_outputs or metadata.tokens or changed
            or metadata.is_rng_op_functionalized or metadata.num_mutated_graph_handled_indices
            or torch.is_autocast_enabled("cpu")
        )  # fmt: skip
        found.append(Captured(aten, values, changed, plain, aten, aten))
        boxed: Compiled = make_boxed_func(lambda *given: found[0].run(*given))
        return boxed

    as_operators(module)
    if any(layer_of(node) for node in module.graph.nodes):
        raise Left("a recurrent layer has projections, packed sequences, or dropout in training, and has no program")
    call = aot_autograd(fw_compiler=written, inference_compiler=written)(module, list(example_inputs))
    found[0].call = call
    return found[0]


def write_in_place(graph: fx.Graph, written: Sequence[int]) -> None:
    """Write to inputs as soon as what is written is known, where nothing reads their old values from then on.

    ``new = scatter(input, part, ...)`` -> ``scatter_(input, part, ...)``, after which the new value is the input.  The
    first outputs are the new values of the inputs that are `written`; others than such stay new tensors.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    (outputs,) = graph.output_node().args
    assert isinstance(outputs, (tuple, list))
    for at, new in zip(written, outputs, strict=False):
        chain = _chain(new, inputs[at])
        order = {node: number for number, node in enumerate(graph.nodes)}
        steps = zip((inputs[at], *chain), chain, strict=False)
        if all(order[user] < order[writer] for old, writer in steps for user in _readers(old, writer)):
            for node in chain:
                _write(graph, node, inputs[at])


def _chain(new: object, given: fx.Node) -> list[fx.Node]:
    """The operators that make the new value of an input, each of which writes to what the one before has made."""
    found: list[fx.Node] = []
    while isinstance(new, fx.Node) and new is not given:
        if new.target not in SCATTERS and new.target not in WRITES:
            return []
        found.append(new)
        new = new.args[0]
    return found[::-1] if new is given else []


def _readers(old: fx.Node, writer: fx.Node) -> Iterator[fx.Node]:
    """What reads a value or a view of it, but for `writer`, where that only writes to the value."""
    pending = [old]
    while pending:
        node = pending.pop()
        for user in node.users:
            if node is not old or user is not writer or _times_read(user, old) > 1:
                yield user
            if is_view(user):
                pending.append(user)


def _times_read(node: fx.Node, value: fx.Node) -> int:
    """How often a value is among the arguments of a node."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found.count(value)


def _write(graph: fx.Graph, node: fx.Node, given: fx.Node) -> None:
    """Put what writes to an input in the place of what made a new tensor of it."""
    target, (_, *others) = node.target, node.args
    with graph.inserting_before(node):
        if target in SCATTERS:
            part, *where = others
            seen = graph.call_function(SCATTERS[target], (given, *where), dict(node.kwargs))
            made = graph.call_function(torch.ops.aten.copy_.default, (seen, part))
        else:
            made = graph.call_function(WRITES[target], (given, *others), dict(node.kwargs))
    made.meta["val"] = node.meta.get("val")
    node.replace_all_uses_with(given)
    graph.erase_node(node)
