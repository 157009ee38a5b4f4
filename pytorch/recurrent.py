"""Recurrent layers as operators of their own, and these in the words of ONNX.

PyTorch writes a layer out step by step, for which a compiler would take minutes.  Before it does, calls of ``lstm``,
``gru``, ``rnn_tanh`` and ``rnn_relu`` in a graph of Dynamo become calls of operators ``stridesmith::recurrent_...``
that compute the same by PyTorch, with steps first (`as_operators`); these have programs where weights never change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx

from ..models.network import Array
from ..models.operators.graph import Type
from .call import Call, Convert, Result, Unsupported
from .operators import Operator, define

Layers: TypeAlias = "Callable[..., tuple[Tensor, ...]]"

KINDS: Mapping[str, tuple[str, Sequence[int]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2)), "gru": ("GRU", (1, 0, 2)), "rnn_tanh": ("RNN", (0,)), "rnn_relu": ("RNN", (0,)),
}  # fmt: skip
"""ONNX's name of each kind of layer, and where its gates stand in PyTorch's order: i, o, f, g among i, f, g, o, and
z, r, n among r, z, n."""

ARGUMENTS = "(Tensor input, Tensor[] states, Tensor[] params, bool has_biases, int num_layers, bool bidirectional)"


def _defined(kind: str) -> Operator:
    """The operator ``stridesmith::recurrent_<kind>``: the results of all steps, and the last states."""
    layers: Layers = getattr(torch, kind)
    count = 2 if kind == "lstm" else 1

    def run(
        x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int, both: bool
    ) -> tuple[Tensor, ...]:
        first = tuple(states) if count > 1 else states[0]
        return layers(x, first, params, has_biases, num_layers, 0.0, False, both, False)

    def fake(x: Tensor, states: Sequence[Tensor], *given: object) -> tuple[Tensor, ...]:
        size = states[0].shape[-1] * (2 if given[-1] else 1)
        return (x.new_empty((*x.shape[:-1], size)), *(state.new_empty(state.shape) for state in states))

    return define(f"recurrent_{kind}", f"{ARGUMENTS} -> ({', '.join(['Tensor'] * (1 + count))})", run, fake)


OPERATORS: Mapping[str, Operator] = {kind: _defined(kind) for kind in KINDS}


def as_operators(module: fx.GraphModule) -> None:
    """Let recurrent layers in a graph of Dynamo be operators of their own.

    Those in training with dropout, of packed sequences and with projections stay as they are.
    """
    graph, changed = module.graph, False
    for node in list(graph.nodes):
        kind = layer_of(node)
        if kind not in KINDS or not _is_plain(node):
            continue
        x, first, params, has_biases, count, _, _, both, is_batch_first = node.args
        with graph.inserting_before(node):
            turned = graph.call_method("transpose", (x, 0, 1)) if is_batch_first else x
            states = list(first) if kind == "lstm" else [first]
            made = graph.call_function(OPERATORS[kind], (turned, states, list(params), has_biases, count, both))
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        for item in [user for user in made.users if user.args[1] == 0] if is_batch_first else []:
            readers = list(item.users)
            with graph.inserting_after(item):
                back = graph.call_method("transpose", (item, 0, 1))
            for reader in readers:
                reader.replace_input_with(item, back)
        changed = True
    if changed:
        graph.lint()
        module.recompile()


def layer_of(node: fx.Node) -> str:
    """The function of PyTorch by which a node calls a recurrent layer; empty for any other node."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name if name in KINDS and node.target in (getattr(torch, name), getattr(torch._VF, name)) else ""


def _is_plain(node: fx.Node) -> bool:
    """Whether the arguments are those of a layer of whole sequences, without dropout and projections."""
    if len(node.args) != 9 or node.kwargs or any(user.target is not operator.getitem for user in node.users):
        return False
    _, _, params, has_biases, count, dropout, is_training, both, _ = node.args
    if not isinstance(has_biases, bool) or not isinstance(count, int) or not isinstance(params, (tuple, list)):
        return False
    each = (4 if has_biases else 2) * (2 if both else 1)
    return len(params) == each * count and not (is_training and dropout and count > 1)


def _layers(kind: str) -> Convert:
    """All layers, each in one direction or both, one after the other."""
    op, gates = KINDS[kind]

    def convert(call: Call) -> Result:
        x, size = call.tensor("input"), call.type(call.called(call["states"][0])).shape[-1]
        steps, batch, _ = call.type(x).shape
        dtype, both = call.type(x).dtype, 2 if call["bidirectional"] else 1
        each = 4 if call["has_biases"] else 2
        values: dict[str, Any] = {"linear_before_reset": 1} if kind == "gru" else {}
        if kind == "rnn_relu":
            values = {"activations": ["Relu"] * both}
        lasts: list[list[str]] = [[] for _ in call["states"]]
        for layer in range(call["num_layers"]):
            rows = [
                [_ordered(call, value, gates, size) for value in call["params"][first : first + each]]
                for first in range(layer * both * each, (layer + 1) * both * each, each)
            ]
            weights = [np.stack([own[at] for own in rows]) for at in range(2)]
            inputs = [x, *map(call.constant, weights)]
            has_biases = call["has_biases"]
            inputs += [call.constant(np.stack([np.concatenate(own[2:]) for own in rows])) if has_biases else "", ""]
            inputs += [_first(call, value, layer * both, (both, batch, size)) for value in call["states"]]
            results = [Type((steps, both, batch, size), dtype), *[Type((both, batch, size), dtype)] * len(lasts)]
            direction = "bidirectional" if both > 1 else "forward"
            made, *ends = call.several(op, inputs, results, hidden_size=size, direction=direction, **values)
            for own, end in zip(lasts, ends, strict=True):
                own.append(end)
            if both > 1:
                made = call.part("Transpose", [made], (steps, batch, both, size), perm=[0, 2, 1, 3])
            x = call.reshaped(made, (steps, batch, both * size))
        whole = (both * call["num_layers"], batch, size)
        return (x, *(own[0] if len(own) == 1 else call.part("Concat", own, whole, axis=0) for own in lasts))

    return convert


def _ordered(call: Call, value: fx.Node, gates: Sequence[int], size: int) -> Array:
    """The rows of weights, or of a bias, in the order of ONNX's gates."""
    found = call.constant_of(call.called(value))
    if found is None:
        raise Unsupported(f"{call.node.target} has a program where its weights never change")
    return np.concatenate([found[gate * size : (gate + 1) * size] for gate in gates])


def _first(call: Call, value: fx.Node, at: int, shape: Sequence[int]) -> str:
    """The first state of one layer; none where it is known to be 0, which is what a layer begins with."""
    name = call.called(value)
    known = call.constant_of(name)
    if known is not None and not known.any():
        return ""
    return name if call.type(name).shape == shape else call.sliced(name, 0, slice(at, at + shape[0]), shape)


CONVERT: Mapping[str, Convert] = {str(found): _layers(kind) for kind, found in OPERATORS.items()}

ALLOWED = {"allow_rnn": True}
"""The setting of Dynamo that lets recurrent layers into its graphs."""
