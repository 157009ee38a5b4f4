"""A network leaves as one function of C, and computes what the model computed, bit for bit."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from model_networks import residual

from stridesmith.backends.devices import discover
from stridesmith.errors import UsageError
from stridesmith.models.network import Foreign, Tensor
from stridesmith.models.run.exporting import library_of
from stridesmith.models.run.kernels import kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of


@pytest.fixture(scope="module")
def model() -> Model:
    """The residual block with what the estimate likes best."""
    target = discover("cpu", 2)
    network, _ = residual()
    return Model(network, kernels_of(tasks_of(network, target), None), target)


@pytest.mark.skipif(
    not any(map(shutil.which, ("ld", "ld.lld", "cc"))) and importlib.util.find_spec("ziglang") is None,
    reason="there is no linker on this machine",
)
def test_a_network_is_one_function(model: Model, tmp_path: Path) -> None:
    """Its weights are inside, its intermediate tensors in scratch memory; inputs and outputs are the caller's."""
    model.export(tmp_path / "libblock.so")
    assert "int block(const float *x, float *y, float *b);" in (tmp_path / "block.h").read_text()
    library = ctypes.CDLL(str(tmp_path / "libblock.so"))
    for seed in range(2):
        (x,) = model.random_inputs(seed)
        wanted = model(x)
        got = [np.full_like(array, np.nan) for array in wanted]
        assert library.block(x.ctypes, *(array.ctypes for array in got)) == 0
        for array, expected in zip(got, wanted, strict=True):
            assert array.tobytes() == expected.tobytes()


def test_a_foreign_operator_stays(model: Model) -> None:
    """What runs through the reference implementation of ONNX cannot leave, and is named."""
    network = model.network
    foreign = Foreign("odd", "Oddity", b"", (network.outputs[0],), ("z",))
    tensors = {**network.tensors, "z": Tensor("z", (1,), "float32")}
    copy = object.__new__(Model)
    copy.network = replace(network, nodes=(*network.nodes, foreign), tensors=tensors)
    copy.target = model.target
    with pytest.raises(UsageError, match=r"its operator `odd` \(Oddity\) has no program here"):
        library_of(copy, "block")
