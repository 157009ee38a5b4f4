"""One library behind a pipe: prepares a workload in each of its forms, and times calls of one.

    python benchmarks/peer_process.py torch|onnxruntime|numpy|stridesmith THREADS

Reads one JSON object a line and answers each with one: ``{"op": "prepare", ...}`` gives for each form some elements
of its result, by which the parent sees that all compute the same, and says why a form is missing;
``{"op": "time", "form", "seconds"}`` gives the seconds of single calls.  A library loads only here, with its own
threads, so that the parent can park the whole process while another is timed.

All work on arrays of the same numbers that start at a cache line.  A form gives its result in the layout that was
asked for; it may allocate it where its library has no other way, from memory that the process keeps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Call = Callable[[], Any]
Job = dict[str, Any]
WARM_SECONDS = 3e-3
SAMPLED = 256
LINE = 64


@dataclass
class Forms:
    """What one library does a workload with: calls by name, each giving its result; and why others are not there."""

    calls: dict[str, Call] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def attempt(self, name: str, make: Callable[[], Call]) -> None:
        """Add the form that `make` gives if it can be made and called."""
        try:
            call = make()
            call()
            self.calls[name] = call
        except (RuntimeError, AttributeError, TypeError, NotImplementedError) as error:
            self.missing[name] = f"{type(error).__name__}: {error}"[:200]


def arrays(job: Job) -> dict[str, np.ndarray]:
    """The workload's buffers, all filled, each from the start of a cache line."""
    rng = np.random.default_rng(0)
    return {name: aligned(rng.standard_normal(shape, dtype=np.float32)) for name, shape in job["buffers"].items()}


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a cache line, which NumPy does not promise."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def padding(p: dict[str, Any]) -> dict[str, Any]:
    return {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"]}


# ------------------------------------------------------------------- torch (oneDNN)


def torch_forms(job: Job, threads: int) -> Forms:
    """Eager operators, which call oneDNN, MKL or PyTorch's own code, and oneDNN with weights prepacked."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    data = {name: torch.from_numpy(array) for name, array in arrays(job).items()}
    kind, p = job["workload"], job["params"]
    if kind in ("conv2d", "depthwise_conv2d"):
        return _torch_conv(torch, data, p, kind == "depthwise_conv2d")
    if kind in ("matmul", "batch_matmul"):
        return _torch_matmul(torch, data, "b" in job["constants"])
    functional = torch.nn.functional
    forms = Forms()
    if kind == "max_pool2d":
        x, back = _channels_first(data["x"], p["layout"])
        forms.calls["max_pool2d"] = lambda: back(functional.max_pool2d(x, p["k"], p["stride"], p["pad"]))
    if kind == "row_sum":
        forms.calls["sum"] = lambda: torch.sum(data["x"], 1, out=data["y"])
    if kind == "softmax":
        forms.calls["softmax"] = lambda: torch.softmax(data["x"], -1, out=data["y"])
    if kind == "layernorm":
        shape = data["gamma"].shape
        forms.calls["layer_norm"] = lambda: functional.layer_norm(data["x"], shape, data["gamma"], data["beta"])
    return forms


def _channels_first(x: Any, layout: str) -> tuple[Any, Callable[[Any], Any]]:
    """PyTorch's view of an input, and what makes a contiguous result in the layout of a result; copies only if it must.

    An nhwc input is seen as a channels_last tensor, the same memory; then results are, too.
    """
    if layout == "nhwc":
        return x.permute(0, 3, 1, 2), lambda y: y.permute(0, 2, 3, 1).contiguous()
    return x, lambda y: y.contiguous()


def _torch_conv(torch: Any, data: dict[str, Any], p: dict[str, Any], depthwise: bool) -> Forms:
    options = padding(p) | {"groups": p["c"] if depthwise else p["groups"]}
    nhwc = p["layout"] == "nhwc"
    x, back = _channels_first(data["x"], p["layout"])
    w = data["w"]
    if nhwc:
        w = w.permute(2, 0, 1) if depthwise else w.permute(3, 2, 0, 1)
    w = (w.unsqueeze(1) if depthwise else w).contiguous()
    conv = torch.nn.functional.conv2d
    like = w.contiguous(memory_format=torch.channels_last) if nhwc else w
    pad, stride, dilation = ([p[n]] * 2 for n in ("pad", "stride", "dilation"))

    def prepacked() -> Call:
        ops, groups = torch.ops.mkldnn, options["groups"]
        packed = ops._reorder_convolution_weight(w, pad, stride, dilation, groups, list(x.shape))
        point = ops._convolution_pointwise
        return lambda: back(point(x, packed, None, pad, stride, dilation, groups, "none", [], ""))

    forms = Forms({"conv2d": lambda: back(conv(x, like, **options))})
    forms.attempt("prepacked", prepacked)
    return forms


def _torch_matmul(torch: Any, data: dict[str, Any], constant: bool) -> Forms:
    a, b, c = data["a"], data["b"], data["c"]

    def prepacked() -> Call:
        packed = torch.ops.mkldnn._reorder_linear_weight(b.t().contiguous(), a.shape[0])
        return lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")

    forms = Forms({"matmul": lambda: torch.matmul(a, b, out=c)})
    if constant:
        forms.attempt("prepacked", prepacked)
    return forms


# ------------------------------------------------------------------- ONNX Runtime


def onnxruntime_forms(job: Job, threads: int) -> Forms:
    """A model of one operator, constants as initializers (which the runtime prepacks), inputs and output bound.

    Its operators know nchw alone, so that nhwc has transposes around them.
    """
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    data = arrays(job)
    built = _onnx_nodes(helper, job, data)
    if built is None:
        return Forms()
    nodes, inputs, initializers, output = built
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "one",
        [value(n, TensorProto.FLOAT, data[n].shape) for n in inputs],
        [value(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name in inputs:
        binding.bind_cpu_input(name, data[name])
    result = ort.OrtValue.ortvalue_from_numpy(data[output])
    binding.bind_ortvalue_output(output, result)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return result

    return Forms({"session": run})


def _onnx_nodes(helper: Any, job: Job, data: dict[str, np.ndarray]) -> Any:
    """Nodes, inputs, initializers and the output of a workload's model; None if there is no operator."""
    kind, p, node = job["workload"], job["params"], helper.make_node
    if kind in ("conv2d", "depthwise_conv2d"):
        depthwise = kind == "depthwise_conv2d"
        w = data["w"]
        if p["layout"] == "nhwc":
            w = w.transpose(2, 0, 1) if depthwise else w.transpose(3, 2, 0, 1)
        w = np.ascontiguousarray(w[:, None] if depthwise else w)
        options = {"strides": [p["stride"]] * 2, "pads": [p["pad"]] * 4, "dilations": [p["dilation"]] * 2}
        options |= {"group": p["c"] if depthwise else p["groups"], "kernel_shape": list(w.shape[2:])}
        return _onnx_channels_first(node, "Conv", ["w"], p["layout"], options), ["x"], {"w": w}, "y"
    if kind in ("matmul", "batch_matmul"):
        constants = {n: data[n] for n in job["constants"]}
        return [node("MatMul", ["a", "b"], ["c"])], [n for n in ("a", "b") if n not in constants], constants, "c"
    if kind == "max_pool2d":
        options = {"kernel_shape": [p["k"]] * 2, "strides": [p["stride"]] * 2, "pads": [p["pad"]] * 4}
        return _onnx_channels_first(node, "MaxPool", [], p["layout"], options), ["x"], {}, "y"
    if kind == "row_sum":
        axes = np.array([1], np.int64)
        return [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], ["x"], {"axes": axes}, "y"
    if kind == "softmax":
        return [node("Softmax", ["x"], ["y"], axis=-1)], ["x"], {}, "y"
    if kind == "layernorm":
        gains = {n: data[n] for n in ("gamma", "beta")}
        return [node("LayerNormalization", ["x", "gamma", "beta"], ["y"], epsilon=1e-5)], ["x"], gains, "y"
    return None


def _onnx_channels_first(node: Any, name: str, more: list[str], layout: str, options: dict[str, Any]) -> list[Any]:
    """The nodes of an operator from `x` to `y`, between two transposes for nhwc."""
    if layout != "nhwc":
        return [node(name, ["x", *more], ["y"], **options)]
    return [
        node("Transpose", ["x"], ["xt"], perm=[0, 3, 1, 2]), node(name, ["xt", *more], ["yt"], **options),
        node("Transpose", ["yt"], ["y"], perm=[0, 2, 3, 1]),
    ]  # fmt: skip


# ------------------------------------------------------------------- NumPy (OpenBLAS)


def numpy_forms(job: Job, threads: int) -> Forms:
    """What OpenBLAS does: products; and NumPy's own sum."""
    data, kind = arrays(job), job["workload"]
    if kind in ("matmul", "batch_matmul"):
        return Forms({"matmul": lambda: np.matmul(data["a"], data["b"], out=data["c"])})
    if kind == "row_sum" and threads == 1:
        return Forms({"sum": lambda: np.sum(data["x"], axis=1, out=data["y"])})
    return Forms()


# ------------------------------------------------------------------- stridesmith


def stridesmith_forms(job: Job, threads: int) -> Forms:
    """The best record's kernel, constants packed ahead of time, called as a user does."""
    import stridesmith as ss

    work = ss.workload(job["workload"], **job["params"])
    kernel = ss.load(work, target="cpu", db=job["db"], interface=job["interface"], threads=threads)
    data = arrays(job)
    constants = {n: data.pop(n) for n in job["constants"]}
    call = kernel.pack(**constants) if constants else kernel
    output = data.pop(work.outputs[0])
    inputs = tuple(data[n] for n in work.inputs if n in data)
    return Forms({"kernel": lambda: call(*inputs, out=output)})


FORMS = {
    "torch": torch_forms, "onnxruntime": onnxruntime_forms, "numpy": numpy_forms, "stridesmith": stridesmith_forms,
}  # fmt: skip


def elements(result: Any) -> list[float]:
    """Some elements of a result, the same ones for all libraries."""
    array = result if isinstance(result, np.ndarray) else np.asarray(result.numpy())
    flat = array.reshape(-1)
    return [float(v) for v in flat[np.random.default_rng(1).integers(flat.size, size=SAMPLED)]]


def timed(call: Call, seconds: float) -> list[float]:
    """Seconds of single calls for about `seconds`, at least three, after some that wake threads and fill caches."""
    result: list[float] = []
    end = time.perf_counter() + WARM_SECONDS
    call()
    while time.perf_counter() < end:
        call()
    end = time.perf_counter() + seconds
    while len(result) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        result.append(time.perf_counter() - start)
    return result


def main(library: str, threads: int) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    forms = Forms()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if job["op"] == "prepare":
                forms = FORMS[library](job, threads)
                results = {name: elements(call()) for name, call in forms.calls.items()}
                answer: dict[str, Any] = {"forms": results, "missing": forms.missing}
            else:
                answer = {"samples": timed(forms.calls[job["form"]], job["seconds"])}
        except Exception as error:  # a peer that cannot do a workload is named, not fatal
            answer = {"error": f"{type(error).__name__}: {error}"[:300], "forms": {}, "missing": {}}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
