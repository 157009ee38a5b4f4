"""One library behind a pipe: prepares a workload in each of its forms, and times calls of one.

    python benchmarks/peer_process.py \
        torch|onnxruntime|openvino|numpy|metaschedule|clblast:DRIVER|stridesmith|before|opencl:DRIVER THREADS

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
from typing import Any

import numpy as np
from peer_clblast import clblast_forms
from peer_forms import Call, Forms, Job, arrays
from peer_metaschedule import metaschedule_forms
from peer_models import MODEL_FORMS, inputs_of
from peer_numpy import numpy_forms
from peer_onnxruntime import onnxruntime_forms
from peer_torch import torch_forms

WARM_SECONDS = 3e-3
SAMPLED = 256


def stridesmith_forms(job: Job, threads: int) -> Forms:
    """The best record's kernel, constants packed ahead of time, called as a user does."""
    import stridesmith as ss

    work = ss.from_func(ss.parse(job["script"])) if job["script"] else ss.workload(job["workload"], **job["params"])
    kernel = ss.load(work, target="cpu", db=job["db"], interface=job["interface"], threads=threads)
    data = arrays(job)
    constants = {n: data.pop(n) for n in job["constants"]}
    call = kernel.pack(**constants) if constants else kernel
    output = data.pop(work.outputs[0])
    inputs = tuple(data[n] for n in work.inputs if n in data)
    return Forms({"kernel": lambda: call(*inputs, out=output)})


def nn_forms(job: Job, threads: int) -> Forms:
    """A network of torch.nn in one of its ways (`torch_ways.py`)."""
    from torch_ways import nn_forms

    return nn_forms(job, threads)


class OnDevice:
    """A call of a kernel whose arrays stay on its device; the result is read when somebody asks for it."""

    def __init__(self, run: Call, read: Call) -> None:
        self.run, self.numpy = run, read

    def __call__(self) -> OnDevice:
        self.run()
        return self


def opencl_forms(job: Job, threads: int, target: str) -> Forms:  # the driver decides how many threads there are
    """The best record's kernel on an OpenCL device, where its arguments stay."""
    import stridesmith as ss

    work = ss.workload(job["workload"], **job["params"])
    kernel = ss.load(work, target=target, db=job["db"], interface=job["interface"])
    data = arrays(job)
    output = data.pop(work.outputs[0])
    kernel(*(data[n] for n in work.inputs), out=output)  # which writes them to the device
    bound: Any = kernel._memory._bound  # type: ignore[attr-defined]
    index = next(i for i, argument in enumerate(kernel.signature) if argument.is_output)
    return Forms({"kernel": OnDevice(bound.run, lambda: bound.read(index))})


FORMS: dict[str, Callable[[Job, int], Forms]] = {
    "torch": torch_forms, "onnxruntime": onnxruntime_forms, "numpy": numpy_forms, "stridesmith": stridesmith_forms,
    "before": stridesmith_forms, "metaschedule": metaschedule_forms,
}  # fmt: skip


def forms_of(library: str, job: Job, threads: int) -> Forms:
    """What a library does a job with."""
    kind, _, driver = library.partition(":")
    if kind == "opencl":
        return opencl_forms(job, threads, library)
    if kind == "clblast":
        return clblast_forms(job, driver)
    return (nn_forms if "nn" in job else (MODEL_FORMS if "model" in job else FORMS)[library])(job, threads)


def elements(result: Any) -> list[float]:
    """Some elements of a result, the same ones for all libraries, and the largest; of a network's first output."""
    result = result[0] if isinstance(result, list | tuple) else result
    array = result if isinstance(result, np.ndarray) else np.asarray(result.numpy())
    flat = array.reshape(-1)
    some = flat[np.random.default_rng(1).integers(flat.size, size=SAMPLED)]
    return [float(v) for v in (*some, np.abs(flat).max())]


def results_of(forms: Forms, job: Job) -> dict[str, list[float]]:
    """Elements of the result of each form; of a network in few bits, `draws` of them, of that many draws of its inputs.

    How far roundings take a result is luck: over six draws, ShuffleNet's error in bfloat16 was 0.4 to 1.0 %.
    """
    found = {name: elements(call()) for name, call in forms.calls.items()}
    for draw in range(1, job.get("draws", 1)):
        for name, values in inputs_of(job, draw).items():
            forms.given[name][...] = values
        for name, call in forms.calls.items():
            found[name] += elements(call())
    return found


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
                forms = forms_of(library, job, threads)
                answer: dict[str, Any] = {"forms": results_of(forms, job), "missing": forms.missing}
            else:
                answer = {"samples": timed(forms.calls[job["form"]], job["seconds"])}
        except Exception as error:  # a peer that cannot do a workload is named, not fatal
            answer = {"error": f"{type(error).__name__}: {error}"[:300], "forms": {}, "missing": {}}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
