"""LSTM, GRU and RNN layers as programs: the loop over steps, its attributes, and what the design space does with it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import model, node

from stridesmith.backends.devices import discover
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Network, Operator
from stridesmith.models.onnx import read
from stridesmith.models.tasks import tasks_of
from stridesmith.search.tuning.study import Study
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Build, Built, Choice
from stridesmith.space.design.space import generate

Array = Any
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
FUNCTIONS: Mapping[str, Any] = {
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)), "Tanh": lambda x, a, b: np.tanh(x),
    "Relu": lambda x, a, b: np.maximum(x, 0), "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x), "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0), "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1), "Softplus": lambda x, a, b: np.log1p(np.exp(x)),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
}  # fmt: skip
DEFAULTS = {"LeakyRelu": (0.01, None), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, None), "ThresholdedRelu": (1.0, None)}
PLACES = {"Affine": 3, "ScaledTanh": 3, "HardSigmoid": 3, "LeakyRelu": 1, "Elu": 1, "ThresholdedRelu": 1}
"""Which of alpha (1) and beta (2) an activation has."""


def activations(op: str, count: int, values: Mapping[str, Any]) -> list[list[Any]]:
    """The functions of each direction, which take alpha and beta in their order."""
    alphas, betas = list(values.get("activation_alpha", [])), list(values.get("activation_beta", []))
    found = []
    for name in values.get("activations", USUAL[op] * count):
        first, second = DEFAULTS.get(name, (None, None))
        first = alphas.pop(0) if PLACES.get(name, 0) & 1 and alphas else first
        second = betas.pop(0) if PLACES.get(name, 0) & 2 and betas else second
        found.append(lambda x, name=name, a=first, b=second: FUNCTIONS[name](x, a, b))
    size = len(USUAL[op])
    return [found[at : at + size] for at in range(0, len(found), size)]


def expected(op: str, given: Mapping[str, Array], values: Mapping[str, Any]) -> list[Array]:
    """The results of a layer in float64, as the text of the operators defines them."""
    x, w, r = (given[name].astype(float) for name in "xwr")
    first = bool(values.get("layout"))
    x = x.swapaxes(0, 1) if first else x
    steps, batch, _ = x.shape
    count, _, size = r.shape
    rows, clip = GATES[op] * size, values.get("clip", 0) or np.inf
    b = given.get("b", np.zeros((count, 2 * rows))).astype(float)
    p = given.get("p", np.zeros((count, 3 * size))).astype(float)
    starts = [given.get(name, np.zeros((batch, count, size) if first else (count, batch, size))).astype(float)
              for name in ("h", "c")]  # fmt: skip
    h0, c0 = (s.swapaxes(0, 1) if first else s for s in starts)
    lengths = given.get("l", np.full(batch, steps))
    y, h_end, c_end = np.zeros((steps, count, batch, size)), np.zeros((count, batch, size)), np.zeros(c0.shape)
    for d in range(count):
        acts = activations(op, count, values)[d]
        acts = [lambda v, act=act: act(np.clip(v, -clip, clip)) for act in acts]
        h, c = h0[d], c0[d]
        backwards = values.get("direction") == "reverse" or d == 1
        for t in reversed(range(steps)) if backwards else range(steps):
            new_h, new_c = _cell(op, acts, values, (x[t] @ w[d].T, r[d], b[d], p[d]), (h, c))
            on = (t < lengths)[:, None]
            h, c = np.where(on, new_h, h), np.where(on, new_c, c)
            y[t, d] = np.where(on, h, 0)
        h_end[d], c_end[d] = h, c
    if first:
        y, h_end, c_end = y.transpose(2, 0, 1, 3), h_end.swapaxes(0, 1), c_end.swapaxes(0, 1)
    return [y, h_end, c_end][: 1 + STATES[op]]


def _cell(op: str, acts: list[Any], values: Mapping[str, Any], layer: tuple[Array, ...], state: tuple[Array, Array]):
    xw, r, b, p = layer
    h, c = state
    size, rows = h.shape[1], len(r)
    wb, rb = b[:rows], b[rows:]
    if op == "RNN":
        return acts[0](xw + h @ r.T + wb + rb), c
    if op == "GRU":
        own = xw + wb
        both = h @ r[: 2 * size].T + rb[: 2 * size]
        z, reset = acts[0](own[:, :size] + both[:, :size]), acts[0](own[:, size : 2 * size] + both[:, size:])
        if values.get("linear_before_reset"):
            seen = reset * (h @ r[2 * size :].T + rb[2 * size :])
        else:
            seen = (reset * h) @ r[2 * size :].T + rb[2 * size :]
        n = acts[1](own[:, 2 * size :] + seen)
        return (1 - z) * n + z * h, c
    i, o, f, g = np.split(xw + h @ r.T + wb + rb, 4, axis=1)
    pi, po, pf = np.split(p, 3)
    i = acts[0](i + pi * c)
    f = 1 - i if values.get("input_forget") else acts[0](f + pf * c)
    c = f * c + i * acts[1](g)
    return acts[0](o + po * c) * acts[2](c), c


def layer(op: str, rng: np.random.Generator, extents: tuple[int, ...], extra: str, **values: Any) -> tuple[Any, Any]:
    """A model of one layer, and what its inputs and constants are; `extra` are letters of optional inputs."""
    steps, batch, width, size = extents
    count = 2 if values.get("direction") == "bidirectional" else 1
    rows, first = GATES[op] * size, bool(values.get("layout"))
    state = (batch, count, size) if first else (count, batch, size)
    shapes = {
        "x": (batch, steps, width) if first else (steps, batch, width), "w": (count, rows, width),
        "r": (count, rows, size), "b": (count, 2 * rows), "h": state, "c": state, "p": (count, 3 * size),
    }  # fmt: skip
    given = {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items() if n in "xwr" or n in extra}
    if "l" in extra:
        given["l"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    order = ("x", "w", "r", "b", "l", "h", *(("c", "p") if op == "LSTM" else ()))
    names = [name if name in given else "" for name in order]
    while not names[-1]:
        names.pop()
    outputs = ["y", "y_h", "y_c"][: 1 + STATES[op]]
    made = node(op, "", " ".join(outputs), hidden_size=size, **values)
    made.input.extend(names)
    known = {name: array for name, array in given.items() if name in "wrbp"}
    loose = {name: array.shape for name, array in given.items() if name not in known and name != "l"}
    if "l" in given:
        known["l"] = given["l"]
    return model([made], loose, known, " ".join(outputs), opset=14), given


def check(network: Network, op: str, given: Mapping[str, Array], values: Mapping[str, Any], run: Any = None) -> None:
    assert not network.foreign
    inputs = {name: given[name] for name in network.inputs}
    found = (run or (lambda arrays: evaluate(network, arrays)))(inputs)
    for name, right in zip(network.outputs, expected(op, given, values), strict=True):
        np.testing.assert_allclose(found[name], right, rtol=2e-5, atol=2e-6, err_msg=name)


CASES = [
    ("LSTM", "bhcp", {}), ("LSTM", "", {"direction": "reverse"}), ("LSTM", "blhc", {"direction": "bidirectional"}),
    ("LSTM", "bp", {"clip": 0.3, "layout": 1, "direction": "bidirectional"}), ("LSTM", "b", {"input_forget": 1}),
    ("LSTM", "bl", {"direction": "reverse", "activations": ["HardSigmoid", "Softsign", "Elu"],
                    "activation_alpha": [0.3, 0.7], "activation_beta": [0.4]}),
    ("GRU", "bh", {}), ("GRU", "blh", {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("GRU", "", {"linear_before_reset": 1, "layout": 1}), ("GRU", "bl", {"direction": "bidirectional", "layout": 1}),
    ("GRU", "b", {"clip": 0.5, "direction": "reverse", "activations": ["Sigmoid", "ScaledTanh"],
                  "activation_alpha": [0.8], "activation_beta": [0.9]}),
    ("RNN", "blh", {"direction": "bidirectional", "activations": ["LeakyRelu", "Affine"],
                    "activation_alpha": [0.2, 0.5], "activation_beta": [0.1]}),
    ("RNN", "", {"activations": ["Softplus"], "clip": 0.9}), ("RNN", "b", {"activations": ["ThresholdedRelu"]}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "extra", "values"), CASES)
def test_layers_are_what_their_text_says(op: str, extra: str, values: dict[str, Any]) -> None:
    """All attributes, with and without the optional inputs, in the interpreter."""
    made, given = layer(op, np.random.default_rng(0), (4, 2, 3, 5), extra, **values)
    check(read(made), op, given, values)


@pytest.mark.parametrize(("op", "directions"), itertools.product(("LSTM", "GRU", "RNN"), ("forward", "bidirectional")))
@pytest.mark.parametrize("extents", [(5, 1, 6, 24), (3, 3, 4, 16), (1, 1, 3, 7)])
def test_compiled_layers(op: str, directions: str, extents: tuple[int, ...]) -> None:
    """What the estimate likes best, on two threads."""
    values = {"direction": directions}
    made, given = layer(op, np.random.default_rng(1), extents, "bh", **values)
    target = discover("cpu", 2)
    network = network_of(read(made), target)
    found = compiled(network, target)
    check(network, op, given, values, found)


def test_weights_that_are_computed() -> None:
    """Weights and biases that are inputs are put in order by programs before the steps."""
    for op, values in (("LSTM", {"direction": "bidirectional"}), ("GRU", {"linear_before_reset": 1}), ("GRU", {})):
        made, given = layer(op, np.random.default_rng(2), (3, 2, 3, 4), "b", **values)
        loose = model(list(made.graph.node), {n: a.shape for n, a in given.items()}, {}, "y y_h", opset=14)
        loose.graph.node[0].output[:] = ["y", "y_h"]
        network = read(loose)
        assert not network.foreign
        found = evaluate(network, given)
        np.testing.assert_allclose(found["y"], expected(op, given, values)[0], rtol=2e-5, atol=2e-6)


def test_the_product_of_the_input_stands_in_front_of_the_steps() -> None:
    """One product for all steps, and one program for these."""
    made, _ = layer("LSTM", np.random.default_rng(0), (50, 1, 8, 16), "b")
    names = [part.func.name for part in read(made).nodes if isinstance(part, Operator)]
    assert names == ["input_product", "lstm"]


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_sequence_without_steps_ends_in_zeros(op: str) -> None:
    """ONNX says nothing of it: the last states are those of ONNX Runtime, whatever the first ones are."""
    made, given = layer(op, np.random.default_rng(4), (3, 3, 2, 4), "blhc"[: 4 if op == "LSTM" else 3])
    given["l"][:] = [2, 0, 3]
    loose = next(at for at, tensor in enumerate(made.graph.initializer) if tensor.name == "l")
    del made.graph.initializer[loose]
    made.graph.input.append(helper.make_tensor_value_info("l", TensorProto.INT32, [3]))
    network = read(made)
    inputs = {name: given[name] for name in network.inputs}
    found = evaluate(network, inputs)
    assert not found["y_h"][:, 1].any()
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, right in zip(network.outputs, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(found[name], right, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("in_bytes", [False, True])
def test_what_a_step_makes_for_its_own_sums_is_never_moved(in_bytes: bool) -> None:
    """Each candidate of a layer whose steps have such a stage, as a GRU has the reset state, can be built."""
    extents = (4, 1, 16, 32)
    made = (
        layer_of_bytes("", "int8", True, {}, extents)
        if in_bytes
        else layer("GRU", np.random.default_rng(0), extents, "b")
    )
    made = made[0]
    target = discover("cpu", 2)
    task = tasks_of(network_of(read(made), target), target)[-1].task
    space = generate(task.work.func, target, task.interface)
    for candidate in Study(space, seed=0).ask(6):
        sketch = space.sketches[candidate.sketch]
        choice = Choice(sketch.name, candidate.choice, dict(task.interface))
        assert isinstance(jobs.run(Build(script=task.script, target=target, choice=choice)), Built)


BACK = {"direction": "reverse"}
BYTES_CASES = [
    ("", "int8", False, {}), ("bhcp", "uint8", True, {}), ("bl", "int8", True, {}),
    ("blhcp", "uint8", False, {"direction": "bidirectional"}), ("bl", "int8", False, BACK),
    ("b", "int8", True, {"direction": "reverse", "clip": 2.5}), ("bhp", "int8", False, {"input_forget": 1}),
    ("b", "uint8", True, {"direction": "bidirectional", "activation_alpha": [0.3], "activations":
        ["HardSigmoid", "Softsign", "Tanh", "Sigmoid", "Relu", "Tanh"]}),
]  # fmt: skip
"""Optional inputs, the type of the weights, whether columns have scales of their own, and attributes."""


def layer_of_bytes(extra: str, dtype: str, each: bool, values: Mapping[str, Any], extents: tuple[int, ...]) -> Any:
    """A model of ONNX Runtime's DynamicQuantizeLSTM, and its inputs."""
    rng = np.random.default_rng(3)
    steps, batch, width, size = extents
    count = 2 if values.get("direction") == "bidirectional" else 1
    shape = (count, 4 * size) if each else (count,)
    constants: dict[str, Any] = {}
    for name, rows in (("w", width), ("r", size)):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        constants[name] = rng.integers(low, high + 1, (count, rows, 4 * size)).astype(dtype)
        constants[f"{name}s"] = rng.uniform(0.003, 0.006, shape).astype(np.float32)
        zero = 0 if dtype == "int8" else rng.integers(118, 138)
        constants[f"{name}z"] = np.full(shape, zero, dtype)
    given = {"x": rng.standard_normal((steps, batch, width)).astype(np.float32)}
    state = rng.uniform(-1, 1, (count, batch, size)).astype(np.float32)
    given |= {name: state for name in "hc" if name in extra}
    if "l" in extra:
        given["l"] = np.r_[steps - 1, rng.integers(1, steps, batch - 1)].astype(np.int32)
    constants |= {name: rng.uniform(-1, 1, (count, many * size)).astype(np.float32)
                  for name, many in (("b", 8), ("p", 3)) if name in extra}  # fmt: skip
    names = [name if name in given or name in constants else "" for name in "xwrblhcp"]
    made = helper.make_node("DynamicQuantizeLSTM", [*names, "ws", "wz", "rs", "rz"], ["y", "y_h", "y_c"],
                            domain="com.microsoft", hidden_size=size, **values)  # fmt: skip
    whole = model([made], {name: array.shape for name, array in given.items()}, constants, "y y_h y_c")
    for item in whole.graph.input:
        item.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(given[item.name].dtype)
    whole.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return whole, given


@pytest.mark.parametrize(("extra", "dtype", "each", "values"), BYTES_CASES)
def test_an_lstm_in_bytes(extra: str, dtype: str, each: bool, values: dict[str, Any]) -> None:
    """ONNX Runtime's DynamicQuantizeLSTM as one thread of it computes: input and states are rounded to bytes."""
    whole, given = layer_of_bytes(extra, dtype, each, values, (5, 3, 6, 7))
    network = read(whole)
    assert not network.foreign
    check_against_onnxruntime(whole, given, evaluate(network, given))


@pytest.mark.parametrize(("extra", "dtype", "values"), [("bhc", "int8", {}), ("bl", "uint8", BACK), ("", "uint8", {})])
def test_a_compiled_lstm_in_bytes(extra: str, dtype: str, values: dict[str, Any]) -> None:
    """What the estimate likes best, on two threads."""
    whole, given = layer_of_bytes(extra, dtype, True, values, (4, 2, 16, 32))
    target = discover("cpu", 2)
    check_against_onnxruntime(whole, given, compiled(network_of(read(whole), target), target)(given))


def check_against_onnxruntime(whole: Any, given: Mapping[str, Array], found: Mapping[str, Array]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for name, right in zip(("y", "y_h", "y_c"), session.run(None, given), strict=True):
        np.testing.assert_allclose(found[name], right, rtol=2e-5, atol=2e-6, err_msg=name)
