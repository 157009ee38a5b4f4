"""Integer operators of a network wrap around, as they do in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import model, node

from stridesmith.backends.devices import discover
from stridesmith.models.evaluate import evaluate
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network
from stridesmith.models.onnx import read
from stridesmith.models.run.kernels import Kernel
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of
from stridesmith.search.workers.protocol import Build, Built
from stridesmith.search.workers.spread import build_here

FACTOR, OFFSET, RANGE = 6364136223846793005, 1442695040888963407, 1000003


def untuned(network: Network) -> Model:
    """The network with its programs as they are written."""
    target = discover("cpu", 1)
    kernels = {}  # type: ignore[var-annotated]
    for item in tasks_of(network, target):
        (built,) = build_here([Build(script=item.task.script, target=target)])
        assert isinstance(built, Built)
        kernels.update((one.name, Kernel(item.task, built.kernel, "untuned")) for one in item.operators)
    return Model(network, kernels, target)


@pytest.mark.parametrize("joined", [False, True])
def test_mul_add_and_mod_of_int64(joined: bool) -> None:
    """A generator of random numbers, operator by operator and as one program, gives NumPy's numbers."""
    nodes = [node("Mul", "x f", "p"), node("Add", "p o", "s"), node("Mod", "s r", "y"), node("Div", "s q", "z")]
    numbers = {"f": FACTOR, "o": OFFSET, "r": RANGE, "q": 2**33}
    constants = {name: np.array([number]) for name, number in numbers.items()}
    network = read(model(nodes, {"x": (8,)}, constants, outputs="y z", dtype="int64"))
    network = fused(network, discover("cpu", 1)) if joined else network
    assert len(network.nodes) < 4 or not joined
    x = np.array([1, 2, 3, 4, 2**63 - 1, -(2**63), 2**62, -5], np.int64)
    right = x * FACTOR + OFFSET
    towards_zero = right // 2**33 + ((right < 0) & (right % 2**33 != 0))
    for found in (evaluate(network, {"x": x}), dict(zip(network.outputs, untuned(network)(x), strict=True))):
        np.testing.assert_array_equal(found["y"], right % RANGE)
        np.testing.assert_array_equal(found["z"], towards_zero)
