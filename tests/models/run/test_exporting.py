"""A network leaves as one function of C, and computes what the model computed, bit for bit."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from exported import compiled, in_another_root, numbers
from model_networks import elementwise, residual
from network_maker import Maker

from stridesmith.backends.devices import discover
from stridesmith.errors import UsageError
from stridesmith.ir.script.parser import parse
from stridesmith.models.network import Foreign, Network, Operator, Tensor
from stridesmith.models.run import in_place
from stridesmith.models.run.exporting import library_of
from stridesmith.models.run.kernels import kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.run.plan import plan
from stridesmith.models.tasks import tasks_of


@pytest.fixture(scope="module")
def model() -> Model:
    """The residual block with what the estimate likes best."""
    target = discover("cpu", 2)
    network, _ = residual()
    return Model(network, kernels_of(tasks_of(network, target), None), target)


needs_linker = pytest.mark.skipif(
    not any(map(shutil.which, ("ld", "ld.lld", "cc"))) and importlib.util.find_spec("ziglang") is None,
    reason="there is no linker on this machine",
)


@needs_linker
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


@needs_linker
def test_kernels_that_write_over_their_input_leave_as_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What runs here in one buffer for two takes two of them outside."""
    monkeypatch.setattr(in_place, "LEAST_BYTES", 1)
    target = discover("cpu", 2)
    tensors = {name: Tensor(name, (24, 40), "float32") for name in "xaby"}
    func = elementwise("mix", (24, 40), "P * T.float32(0.5) + Q", ("p", "q"))
    nodes = tuple(Operator(f"to_{b}", func, (a, "x"), (b,)) for a, b in pairwise("xaby"))
    network = Network("chain", ("x",), ("y",), tensors, {}, nodes)
    model = Model(network, kernels_of(tasks_of(network, target), None), target)
    pointers = [len(call.places) for call in model.plan.calls.values()]
    assert pointers != [len(c.places) for c in plan(network, model.kernels, target, in_place=False).calls.values()]
    model.export(tmp_path / "libblock.so")
    library = ctypes.CDLL(str(tmp_path / "libblock.so"))
    (x,) = model.random_inputs(3)
    got = np.full_like(x, np.nan)
    assert library.block(x.ctypes, got.ctypes) == 0
    np.testing.assert_array_equal(got, model(x))


@needs_linker
def test_parts_of_the_callers_arrays_leave_in_their_places(tmp_path: Path) -> None:
    """What is computed in a part of an output, or read in a part of an input, is there outside, too."""
    make = Maker()
    x = make.input(6, 4)
    half = make.map("a[v0 + 3, v1]", x, shape=(3, 4))
    network = make.network(make.concat(0, make.map("{0} + {0}", half), make.map("{0} * {0}", half)))
    target = discover("cpu", 2)
    model = Model(network, kernels_of(tasks_of(network, target), None), target)
    assert [place.offset for call in model.plan.calls.values() for place in call.places] == [48, 0, 48, 48]
    model.export(tmp_path / "libblock.so")
    library = ctypes.CDLL(str(tmp_path / "libblock.so"))
    (given,) = model.random_inputs(4)
    got = np.full_like(model(given), np.nan)
    assert library.block(given.ctypes, got.ctypes) == 0
    np.testing.assert_array_equal(got, model(given))


RUN = """
#include "block.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    float *x = malloc(BLOCK_X_BYTES), *y = malloc(BLOCK_Y_BYTES), *b = malloc(BLOCK_B_BYTES);
    for (size_t n = 0; n < BLOCK_X_BYTES / 4; n++) x[n] = ((float)(n * 37 % 11) - 5) / 7;
    int code = block(x, y, b);
    if (!code) fwrite(y, 1, BLOCK_Y_BYTES, stdout), fwrite(b, 1, BLOCK_B_BYTES, stdout);
    return code;
}
"""


@needs_linker
def test_a_root_without_python_runs_it(model: Model, tmp_path: Path) -> None:
    """A program of a few lines, in a root with the C library alone, computes what the model does."""
    model.export(tmp_path / "libblock.so")
    program = compiled(RUN, tmp_path, "-L.", "-lblock")
    wanted = b"".join(array.tobytes() for array in model(numbers(model.inputs[0].shape)))
    assert in_another_root(program, tmp_path / "libblock.so", tmp_path / "root") == wanted


def test_scripts_of_a_network(model: Model, tmp_path: Path) -> None:
    """Each scheduled program once, under a name of its own."""
    ours, _ = model.export(tmp_path / "block.py", "script")
    module = [parse(ours.read_text(), name=f"{name}_{number}") for number, name in enumerate(("conv2d", "relu", "add"))]
    assert all(func.buffers for func in module)


def test_a_foreign_operator_stays(model: Model) -> None:
    """What runs through the reference implementation of ONNX cannot leave, and is named."""
    network = model.network
    foreign = Foreign("odd", "Oddity", b"", (network.outputs[0],), ("z",))
    tensors = {**network.tensors, "z": Tensor("z", (1,), "float32")}
    mixed = replace(network, nodes=(*network.nodes, foreign), tensors=tensors)
    with pytest.raises(UsageError, match=r"its operator `odd` \(Oddity\) is no program and runs in Python"):
        library_of(mixed, model.kernels, model.plan, "block", model.target)
