"""Whole networks in the forms that libraries have for them: what `peer_process.py` prepares for a job with a `model`.

A job has the ONNX file, the shapes of its inputs, and for ours the database.  All libraries get the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from peer_forms import Forms, Job


def inputs_of(job: Job, draw: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers for each input, by name, others in each draw; small integers where the model takes integers."""
    rng = np.random.default_rng(7 + draw)
    found = {}
    for name, (shape, dtype) in job["inputs"].items():
        values = rng.standard_normal(shape) if np.dtype(dtype).kind == "f" else rng.integers(0, 2, shape)
        found[name] = np.asarray(values).astype(dtype)
    return found


def stridesmith_model(job: Job, threads: int) -> Forms:
    """The best records of all operators, in one native call."""
    import stridesmith as ss

    shapes = {name: shape for name, (shape, _) in job["inputs"].items()}
    precision = job["precision"] or "float32"
    model = ss.compile(job["model"], inputs=shapes, db=job["db"], threads=threads, precision=precision)
    given = inputs_of(job)
    arrays = tuple(given[tensor.name] for tensor in model.inputs)
    out = model(*arrays)
    out = out if isinstance(out, tuple) else (out,)
    return Forms({"model": lambda: model(*arrays, out=out)}, given=given)


def onnxruntime_model(job: Job, threads: int) -> Forms:
    """All optimisations, inputs and outputs bound to memory that stays."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
    given = inputs_of(job)
    bound = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in given.items()}
    binding = session.io_binding()
    for name, value in bound.items():
        binding.bind_ortvalue_input(name, value)
    found = session.run(None, given)
    results = [ort.OrtValue.ortvalue_from_numpy(array) for array in found]
    for item, result in zip(session.get_outputs(), results, strict=True):
        binding.bind_ortvalue_output(item.name, result)

    def run() -> Any:
        session.run_with_iobinding(binding)
        assert given and bound and found  # whose memory the session uses, and does not keep
        return results

    return Forms({"session": run}, given=given)


def openvino_model(job: Job, threads: int) -> Forms:
    """Compiled for latency, with one stream; in float32 unless the job names another precision, then as it comes."""
    import openvino as ov

    core = ov.Core()
    network = core.read_model(job["model"])
    network.reshape({name: list(shape) for name, (shape, _) in job["inputs"].items()})
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    options |= {} if job["precision"] else {"INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(network, "CPU", options).create_infer_request()
    given = inputs_of(job)
    for name, array in given.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))

    def run() -> Any:
        assert given  # whose memory the request reads
        request.infer()
        return [request.get_output_tensor(0).data]

    return Forms({"request": run}, given=given)


def torch_model(job: Job, threads: int) -> Forms:
    """PyTorch's operators in the order of the file: eager, and unless the job says otherwise with frozen weights.

    One operator between quantised tensors has forms of its own.
    """
    import onnx
    import torch
    import torch._inductor.config as inductor
    from peer_torch_bytes import byte_forms, is_of_bytes
    from peer_torch_models import Straight

    torch.set_num_threads(threads)
    inductor.freezing = True
    narrow = job["precision"] == "bfloat16"
    arrays = inputs_of(job)
    given = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if is_of_bytes(model := onnx.load(job["model"])):
        with torch.inference_mode():
            return byte_forms(model, *given.values())
    with torch.inference_mode():
        module = Straight(model, given).eval()

    def form(call: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                found = call(*given.values())
                if not narrow:
                    return found
                return [part.float() for part in (found if isinstance(found, list | tuple) else [found])]

        return run

    forms = Forms({"eager": form(module)}, given=arrays)
    if job.get("eager"):  # as of layers that Dynamo leaves as they are
        return forms
    try:
        compiled = form(torch.compile(module))
        compiled()
        forms.calls["compile"] = compiled
    except Exception as error:  # a compiler that cannot do a network is named, not fatal
        forms.missing["compile"] = f"{type(error).__name__}: {error}"[:200]
    return forms


MODEL_FORMS: dict[str, Callable[[Job, int], Forms]] = {
    "stridesmith": stridesmith_model, "onnxruntime": onnxruntime_model, "openvino": openvino_model,
    "torch": torch_model,
}  # fmt: skip
