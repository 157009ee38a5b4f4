"""ATen's recurrent layers in the words of ONNX: one layer in one direction, as oneDNN has it."""

from __future__ import annotations

import numpy as np
import torch

from ..models.network import Array
from ..models.operators.graph import Type
from .call import Call, Result, Unsupported

LSTM_MODE = 2
"""The number of an LSTM among the modes of recurrent layers."""
GATES = (0, 3, 1, 2)
"""Where the gates i, o, f and g of ONNX stand in PyTorch's order, i, f, g and o."""


def rnn_layer(call: Call) -> Result:
    """An LSTM whose weights never change; its first three results, of which a layer in training has one more."""
    if call["mode"] != LSTM_MODE or call["num_layers"] != 1 or call["train"] or call["batch_sizes"]:
        raise Unsupported(f"{call.node.target} has a program for a single layer of an LSTM alone")
    size, (steps, batch, _) = int(call["hidden_size"]), call.shape("input")
    if call["batch_first"] or call["bidirectional"]:
        raise Unsupported(f"{call.node.target} has a program for steps first, and one direction, alone")
    weights = [_ordered(call, f"weight{at}", size) for at in range(4 if call["has_biases"] else 2)]
    inputs = [call.tensor("input"), *(call.constant(w[None]) for w in weights[:2])]
    inputs.append(call.constant(np.concatenate(weights[2:])[None]) if call["has_biases"] else "")
    dtype, state = call.type(inputs[0]).dtype, (1, batch, size)
    inputs += ["", *(call.part("Reshape", [call.tensor(name), call.shape_of(state)], state) for name in ("hx_", "cx_"))]
    results = [Type((steps, 1, batch, size), dtype), *[Type(state, dtype)] * 2]
    direction = "reverse" if call["reverse"] else "forward"
    made = call.several("LSTM", inputs, results, hidden_size=size, direction=direction)
    shapes = [call.result(at).shape for at in range(3)]
    return tuple(
        call.part("Reshape", [name, call.shape_of(shape)], shape) for name, shape in zip(made, shapes, strict=True)
    )


def _ordered(call: Call, name: str, size: int) -> Array:
    """The rows of weights, or of a bias, in the order of ONNX's gates."""
    found = call.known(name)
    if found is None:
        raise Unsupported(f"{call.node.target} has a program where its weights never change")
    return np.concatenate([found[gate * size : (gate + 1) * size] for gate in GATES])


def allowed(model: torch.nn.Module | object) -> dict[str, bool]:
    """What lets Dynamo read a model's LSTMs, which it leaves out of its graphs otherwise.

    GRUs and plain RNNs it writes out step by step, for which it would take minutes: a model with such stays as it is.
    """
    kinds = [type(module) for module in model.modules()] if isinstance(model, torch.nn.Module) else []
    is_lstm = [kind is torch.nn.LSTM for kind in kinds if issubclass(kind, torch.nn.RNNBase)]
    return {"allow_rnn": True} if is_lstm and all(is_lstm) else {}
