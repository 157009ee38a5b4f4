"""What a call from Python costs: microseconds of a small kernel, called natively, by `kernel(...)` and as a model.

NumPy and PyTorch stand beside it, and the same kernel as an operator of PyTorch.

    python benchmarks/calls.py [--sizes 16,16384]

A row is the median of rounds of 20,000 calls, less what the loop takes.  PyTorch is left out where it is missing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.models.network import Network, Operator, Tensor
from stridesmith.models.run.kernels import Kernel
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of
from stridesmith.search.workers.protocol import Build, Built
from stridesmith.search.workers.spread import build_here

ROUNDS, CALLS = 9, 20_000
PROGRAM = """
@T.prim_func
def relu(A: T.Buffer((SIZE,), "float32"), B: T.Buffer((SIZE,), "float32")):
    for i in range(SIZE // 16):
        for j in T.vectorized(16):
            with T.block("b"):
                v = T.axis.spatial(SIZE, i * 16 + j)
                B[v] = T.max(A[v], 0.0)
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="16,16384", help="elements of the array, multiples of 16")
    for size in map(int, parser.parse_args().sizes.split(",")):
        for name, microseconds in rows(size):
            print(f"{size:8d}  {name:26s} {microseconds:8.3f} us", flush=True)


def rows(size: int) -> Iterator[tuple[str, float]]:
    """Who computes the ReLU of `size` numbers, and in how many microseconds."""
    target = discover("cpu", threads=1)
    func = ss.parse(PROGRAM.replace("SIZE", str(size)))
    kernel = ss.build(func, target)
    a = np.random.default_rng(0).normal(size=size).astype(np.float32)
    b = np.zeros_like(a)
    bound = load_artifact(compile_lowered(lower(func, target), target)).bind()
    bound.write(0, a)
    yield "native, back to back", 1e6 * statistics.median(bound.time(2000) for _ in range(ROUNDS))
    loop = per_call(lambda: None)
    yield "kernel(a, out=b)", per_call(lambda: kernel(a, out=b)) - loop
    yield "kernel(a)", per_call(lambda: kernel(a)) - loop
    model = model_of(func, size, target)
    yield "model(a, out=b)", per_call(lambda: model(a, out=b)) - loop
    yield "np.maximum(a, 0, out=b)", per_call(lambda: np.maximum(a, 0, out=b)) - loop
    yield "np.negative(a, out=b)", per_call(lambda: np.negative(a, out=b)) - loop
    yield "np.negative(a)", per_call(lambda: np.negative(a)) - loop
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    with torch.inference_mode():
        tensor = torch.from_numpy(a)
        yield "torch.relu(a)", per_call(lambda: torch.relu(tensor)) - loop
        yield "torch.relu_(a)", per_call(lambda: torch.relu_(tensor)) - loop
        for name, made in (("kernel", kernel), ("model", model)):
            called = ss.torch.operator(made, f"relu_{name}_{size}")
            yield f"operator of the {name}", per_call(lambda called=called: called(tensor)) - loop


def model_of(func: ss.PrimFunc, size: int, target: ss.Target) -> Model:
    """A network of this program alone, as it is written."""
    tensors = {name: Tensor(name, (size,), "float32") for name in ("a", "b")}
    network = Network("relu", ("a",), ("b",), tensors, {}, (Operator("relu", func, ("a",), ("b",)),))
    (item,) = tasks_of(network, target)
    (built,) = build_here([Build(script=item.task.script, target=target)])
    assert isinstance(built, Built)
    return Model(network, {"relu": Kernel(item.task, built.kernel, "untuned")}, target)


def per_call(call: Callable[[], object]) -> float:
    """Microseconds."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter_ns() - start) * 1e-3 / CALLS)
    return statistics.median(found)


if __name__ == "__main__":
    main()
