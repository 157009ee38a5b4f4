"""One library behind a pipe: prepares a workload in each of its forms, and times calls of one.

    python benchmarks/peer_process.py torch|onnxruntime|numpy|stridesmith THREADS

Reads one JSON object a line and answers each with one: ``{"op": "prepare", ...}`` gives the names
of the forms, ``{"op": "time", "form", "seconds"}`` the seconds of single calls.  A library loads
only here, with its own threads, so that the parent can park the whole process while another is timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]
Job = dict[str, Any]


def arrays(job: Job) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in job["buffers"].items()}


def padding(p: dict[str, Any]) -> dict[str, Any]:
    return {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"]}


# ------------------------------------------------------------------- torch (oneDNN)


def torch_forms(job: Job, threads: int) -> dict[str, Call]:
    """Eager operators, and oneDNN's prepacked weights where something is constant."""
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
    if kind == "max_pool2d":
        return {"max_pool2d": lambda: functional.max_pool2d(data["x"], p["k"], p["stride"], p["pad"])}
    if kind == "row_sum":
        return {"sum": lambda: torch.sum(data["x"], 1, out=data["y"])}
    if kind == "softmax":
        return {"softmax": lambda: torch.softmax(data["x"], -1, out=data["y"])}
    if kind == "layernorm":
        shape = data["gamma"].shape
        return {"layer_norm": lambda: functional.layer_norm(data["x"], shape, data["gamma"], data["beta"])}
    return {}


def _torch_conv(torch: Any, data: dict[str, Any], p: dict[str, Any], depthwise: bool) -> dict[str, Call]:
    options = padding(p) | {"groups": p["c"] if depthwise else p["groups"]}
    nhwc = p["layout"] == "nhwc"
    x, w = data["x"], data["w"]
    if nhwc:
        x = x.permute(0, 3, 1, 2)  # the same memory, seen as channels_last
        w = w.permute(2, 0, 1) if depthwise else w.permute(3, 2, 0, 1)
    w = (w.unsqueeze(1) if depthwise else w).contiguous()
    conv = torch.nn.functional.conv2d
    like = w.contiguous(memory_format=torch.channels_last) if nhwc else w
    forms = {"conv2d": lambda: conv(x, like, **options)}
    both = [[p[n]] * 2 for n in ("pad", "stride", "dilation")]
    pad, stride, dilation = both
    try:
        ops = torch.ops.mkldnn
        packed = ops._reorder_convolution_weight(w, pad, stride, dilation, options["groups"], list(x.shape))
        forms["prepacked"] = lambda: ops._convolution_pointwise(
            x, packed, None, pad, stride, dilation, options["groups"], "none", [], ""
        )
        forms["prepacked"]()
    except (RuntimeError, AttributeError) as error:
        forms.pop("prepacked", None)
        print(f"no prepacked convolution: {error}", file=sys.stderr)
    return forms


def _torch_matmul(torch: Any, data: dict[str, Any], constant: bool) -> dict[str, Call]:
    a, b, c = data["a"], data["b"], data["c"]
    forms = {"matmul": lambda: torch.matmul(a, b, out=c)}
    if constant:
        try:
            ops = torch.ops.mkldnn
            packed = ops._reorder_linear_weight(b.t().contiguous(), a.shape[0])
            forms["prepacked"] = lambda: ops._linear_pointwise(a, packed, None, "none", [], "")
            forms["prepacked"]()
        except (RuntimeError, AttributeError) as error:
            forms.pop("prepacked", None)
            print(f"no prepacked product: {error}", file=sys.stderr)
    return forms


# ------------------------------------------------------------------- ONNX Runtime


def onnxruntime_forms(job: Job, threads: int) -> dict[str, Call]:
    """A model of one operator, constants as initializers (which the runtime prepacks), bound outputs."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    data = arrays(job)
    built = _onnx_nodes(helper, job, data)
    if built is None:
        return {}
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
    binding.bind_output(output, "cpu")
    return {"session": lambda: session.run_with_iobinding(binding)}


def _onnx_nodes(helper: Any, job: Job, data: dict[str, np.ndarray]) -> Any:
    """Nodes, inputs, initializers and the output of a workload's model; None if there is no operator."""
    kind, p, node = job["workload"], job["params"], helper.make_node
    if kind in ("conv2d", "depthwise_conv2d"):
        depthwise, nhwc = kind == "depthwise_conv2d", p["layout"] == "nhwc"
        w = data["w"]
        if nhwc:
            w = w.transpose(2, 0, 1) if depthwise else w.transpose(3, 2, 0, 1)
        w = np.ascontiguousarray(w[:, None] if depthwise else w)
        options = {"strides": [p["stride"]] * 2, "pads": [p["pad"]] * 4, "dilations": [p["dilation"]] * 2}
        options |= {"group": p["c"] if depthwise else p["groups"], "kernel_shape": list(w.shape[2:])}
        if not nhwc:
            return [node("Conv", ["x", "w"], ["y"], **options)], ["x"], {"w": w}, "y"
        nodes = [
            node("Transpose", ["x"], ["xt"], perm=[0, 3, 1, 2]), node("Conv", ["xt", "w"], ["yt"], **options),
            node("Transpose", ["yt"], ["y"], perm=[0, 2, 3, 1]),
        ]  # fmt: skip
        return nodes, ["x"], {"w": w}, "y"
    if kind in ("matmul", "batch_matmul"):
        constants = {n: data[n] for n in job["constants"]}
        return [node("MatMul", ["a", "b"], ["c"])], [n for n in ("a", "b") if n not in constants], constants, "c"
    if kind == "max_pool2d":
        options = {"kernel_shape": [p["k"]] * 2, "strides": [p["stride"]] * 2, "pads": [p["pad"]] * 4}
        return [node("MaxPool", ["x"], ["y"], **options)], ["x"], {}, "y"
    if kind == "row_sum":
        axes = np.array([1], np.int64)
        return [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], ["x"], {"axes": axes}, "y"
    if kind == "softmax":
        return [node("Softmax", ["x"], ["y"], axis=-1)], ["x"], {}, "y"
    if kind == "layernorm":
        gains = {n: data[n] for n in ("gamma", "beta")}
        return [node("LayerNormalization", ["x", "gamma", "beta"], ["y"], epsilon=1e-5)], ["x"], gains, "y"
    return None


# ------------------------------------------------------------------- NumPy (OpenBLAS)


def numpy_forms(job: Job, threads: int) -> dict[str, Call]:
    """What OpenBLAS does: products; and NumPy's own sum."""
    data, kind = arrays(job), job["workload"]
    if kind in ("matmul", "batch_matmul"):
        return {"matmul": lambda: np.matmul(data["a"], data["b"], out=data["c"])}
    if kind == "row_sum" and threads == 1:
        return {"sum": lambda: np.sum(data["x"], axis=1, out=data["y"])}
    return {}


# ------------------------------------------------------------------- stridesmith


def stridesmith_forms(job: Job, threads: int) -> dict[str, Call]:
    """The best record's kernel, constants packed ahead of time, called as a user does."""
    import stridesmith as ss

    work = ss.workload(job["workload"], **job["params"])
    kernel = ss.load(work, target="cpu", db=job["db"], interface=job["interface"], threads=threads)
    data = arrays(job)
    constants = {n: data.pop(n) for n in job["constants"]}
    call = kernel.pack(**constants) if constants else kernel
    output = data.pop(work.outputs[0])
    inputs = tuple(data[n] for n in work.inputs if n in data)
    return {"kernel": lambda: call(*inputs, out=output)}


FORMS = {
    "torch": torch_forms, "onnxruntime": onnxruntime_forms, "numpy": numpy_forms, "stridesmith": stridesmith_forms,
}  # fmt: skip


def timed(call: Call, seconds: float) -> list[float]:
    """Seconds of single calls for about `seconds`, at least three, after one that is not counted."""
    call()
    result: list[float] = []
    end = time.perf_counter() + seconds
    while len(result) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        result.append(time.perf_counter() - start)
    return result


def main(library: str, threads: int) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    forms: dict[str, Call] = {}
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if job["op"] == "prepare":
                forms = FORMS[library](job, threads)
                for call in forms.values():
                    call()
                answer: dict[str, Any] = {"forms": list(forms)}
            else:
                answer = {"samples": timed(forms[job["form"]], job["seconds"])}
        except Exception as error:  # a peer that cannot do a workload is named, not fatal
            answer = {"error": f"{type(error).__name__}: {error}"[:300], "forms": []}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
