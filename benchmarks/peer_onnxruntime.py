"""ONNX Runtime: a model of one operator, constants as initializers, which the runtime prepacks; all buffers bound.

Its operators know channels first alone, so that channels last has transposes around them.  An operator that ONNX has
not is the nodes that exporters write for it, which the runtime fuses where it knows how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peer_forms import CONVOLUTIONS, SLOPE, TOP, Forms, Job, arrays, convolution, filters

OPSET = 20


@dataclass
class Graph:
    """The nodes of a model, with values that are counted up, and its initializers by name."""

    data: dict[str, np.ndarray]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Append a node; the name of its result."""
        from onnx import helper

        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """An initializer; its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(value, dtype)
        return name

    def integers(self, *values: int) -> str:
        """An initializer of axes or extents."""
        return self.constant(values, np.int64)


def onnxruntime_forms(job: Job, threads: int) -> Forms:
    """The job's model, if ONNX has operators for it."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    graph = Graph(arrays(job))
    build = _convolution if job["workload"] in CONVOLUTIONS else BUILD.get(job["workload"])
    if build is None:
        return Forms()
    output = "c" if "c" in graph.data else "y"
    last = build(graph, job)
    graph.nodes[-1].output[0] = output
    assert last not in graph.data
    used = {name for node in graph.nodes for name in node.input}
    inputs = [n for n in graph.data if n in used and n != output and n not in graph.constants]
    for name in set(inputs) & set(job["constants"]):
        graph.constants[name] = graph.data[name]
        inputs.remove(name)
    value = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            graph.nodes, "one",
            [value(n, TensorProto.FLOAT, graph.data[n].shape) for n in inputs],
            [value(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9,
    )  # fmt: skip
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name in inputs:
        binding.bind_cpu_input(name, graph.data[name])
    result = ort.OrtValue.ortvalue_from_numpy(graph.data[output])
    binding.bind_ortvalue_output(output, result)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return result

    return Forms({"session": run})


def _activate(graph: Graph, value: str, act: str) -> str:
    """The nodes of an activation."""
    if act == "none":
        return value
    if act == "silu":
        return graph.add("Mul", value, graph.add("Sigmoid", value))
    if act == "clip":
        return graph.add("Clip", value, graph.constant(0), graph.constant(TOP))
    if act == "leaky_relu":
        return graph.add("LeakyRelu", value, alpha=SLOPE)
    return graph.add({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "gelu": "Gelu"}[act], value)


def _channels_first(graph: Graph, is_last: bool, make: Callable[[str], str]) -> str:
    """The nodes that `make` adds to an image with channels first, between two transposes for channels last."""
    if not is_last:
        return make("x")
    rank = graph.data["x"].ndim
    moved = graph.add("Transpose", "x", perm=[0, rank - 1, *range(1, rank - 1)])
    return graph.add("Transpose", make(moved), perm=[0, *range(2, rank), 1])


def _convolution(graph: Graph, job: Job) -> str:
    conv = convolution(job)
    graph.constants["w"] = filters(job, graph.data["w"])
    bias = ["bias"] if "bias" in graph.data else []
    options: dict[str, Any] = {"strides": conv.stride, "pads": conv.pad * 2, "dilations": conv.dilation}
    options |= {"group": conv.groups, "kernel_shape": list(graph.constants["w"].shape[2:])}
    if conv.is_transposed:
        options["output_padding"] = conv.output_pad
    kind, act = "ConvTranspose" if conv.is_transposed else "Conv", job["params"].get("act", "none")
    return _channels_first(
        graph, conv.is_last, lambda x: _activate(graph, graph.add(kind, x, "w", *bias, **options), act)
    )


def _matmul(graph: Graph, job: Job) -> str:
    p = job["params"]
    transposed, batched = [bool(p.get(f"transpose_{n}")) for n in "ab"], graph.data["a"].ndim == 3
    if batched or not (any(transposed) or "bias" in graph.data):
        perm = [0, 2, 1] if batched else [1, 0]
        a, b = (graph.add("Transpose", n, perm=perm) if t else n for n, t in zip("ab", transposed, strict=True))
        value = graph.add("MatMul", a, b)
        if "bias" in graph.data:
            value = graph.add("Add", value, graph.add("Unsqueeze", "bias", graph.integers(1)))
    else:
        bias = ["bias"] if "bias" in graph.data else []
        value = graph.add("Gemm", "a", "b", *bias, transA=int(transposed[0]), transB=int(transposed[1]))
    return _activate(graph, value, p.get("act", "none"))


def _pool(graph: Graph, job: Job) -> str:
    p = job["params"]
    options = {"kernel_shape": [p["k"]] * 2, "strides": [p["stride"]] * 2, "pads": [p["pad"]] * 4}
    if job["workload"] == "avg_pool2d":
        options["count_include_pad"] = p["include_pad"]
    kind = "MaxPool" if job["workload"] == "max_pool2d" else "AveragePool"
    return _channels_first(graph, p["layout"] == "nhwc", lambda x: graph.add(kind, x, **options))


def _global_pool(graph: Graph, job: Job) -> str:
    mean = job["workload"] == "global_avg_pool2d"
    if job["params"]["layout"] == "nchw":
        return graph.add("Flatten", graph.add("GlobalAveragePool" if mean else "GlobalMaxPool", "x"))
    return graph.add("ReduceMean" if mean else "ReduceMax", "x", graph.integers(1, 2), keepdims=0)


def _reduction(graph: Graph, axes: list[int], op: str) -> str:
    kind = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}[op]
    return graph.add(kind, "x", graph.integers(*axes), keepdims=0)


def _attention(graph: Graph, job: Job) -> str:
    query = graph.add("Unsqueeze", "q", graph.integers(1))
    scores = graph.add("MatMul", query, graph.add("Transpose", "k", perm=[0, 2, 1]))
    shares = graph.add("Softmax", graph.add("Mul", scores, graph.constant(job["params"]["d"] ** -0.5)), axis=-1)
    return graph.add("Squeeze", graph.add("MatMul", shares, "v"), graph.integers(1))


def _group_norm(graph: Graph, job: Job) -> str:
    p = job["params"]
    whole = graph.add("Reshape", "x", graph.integers(1, p["groups"], p["each"] * p["pixels"]))
    one, zero = graph.constant(np.ones(p["groups"])), graph.constant(np.zeros(p["groups"]))
    normal = graph.add("InstanceNormalization", whole, one, zero, epsilon=1e-5)
    back = graph.add("Reshape", normal, graph.integers(p["groups"] * p["each"], p["pixels"]))
    gamma, beta = (graph.add("Unsqueeze", name, graph.integers(1)) for name in ("gamma", "beta"))
    return graph.add("Add", graph.add("Mul", back, gamma), beta)


def _rms_norm(graph: Graph, job: Job) -> str:
    square = graph.add("ReduceMean", graph.add("Pow", "x", graph.constant(2)), graph.integers(-1), keepdims=1)
    root = graph.add("Sqrt", graph.add("Add", square, graph.constant(1e-5)))
    return graph.add("Mul", graph.add("Div", "x", root), "gamma")


def _broadcast(graph: Graph, job: Job) -> str:
    kind = {"add": "Add", "multiply": "Mul"}[job["params"]["op"]]
    value, *others = sorted(name for name in graph.data if name != "y")
    for other in others:
        value = graph.add(kind, value, other)
    return _activate(graph, value, job["params"]["act"])


def _channel_shuffle(graph: Graph, job: Job) -> str:
    c, h, w, groups = (job["params"][n] for n in ("c", "h", "w", "groups"))
    split = graph.add("Reshape", "x", graph.integers(1, groups, c // groups, h, w))
    return graph.add("Reshape", graph.add("Transpose", split, perm=[0, 2, 1, 3, 4]), graph.integers(1, c, h, w))


def _interpolation(graph: Graph, job: Job) -> str:
    p = job["params"]
    options = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    if p["mode"] == "nearest":
        options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = graph.integers(1, p["c"], p["oh"], p["ow"])
    return _channels_first(graph, p["layout"] == "nhwc", lambda x: graph.add("Resize", x, "", "", sizes, **options))


def _norm(graph: Graph, job: Job) -> str:
    return graph.add("LayerNormalization", "x", "gamma", "beta", epsilon=1e-5)


BUILD: dict[str, Callable[[Graph, Job], str]] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "matmul_bias_act": _matmul,
    "batch_matmul_bias_act": _matmul,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_avg_pool2d": _global_pool,
    "global_max_pool2d": _global_pool,
    "row_sum": lambda graph, job: _reduction(graph, [1], "sum"),
    "reduction": lambda graph, job: _reduction(graph, job["params"]["axes"], job["params"]["op"]),
    "softmax": lambda graph, job: graph.add("Softmax", "x", axis=-1),
    "softmax_axis": lambda graph, job: graph.add("Softmax", "x", axis=1),
    "layernorm": _norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "attention_row": _attention,
    "cumulative_sum": lambda graph, job: graph.add("CumSum", "x", graph.constant(job["params"]["axis"], np.int64)),
    "broadcast": _broadcast,
    "pixel_shuffle": lambda graph, job: graph.add("DepthToSpace", "x", blocksize=job["params"]["r"], mode="CRD"),
    "channel_shuffle": _channel_shuffle,
    "interpolation": _interpolation,
}
