"""Kernels that write over an input: only where each element is read by the instance that writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from model_networks import elementwise, residual, unary

from stridesmith.backends.devices import discover
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models import tuning
from stridesmith.models.chosen import Chosen
from stridesmith.models.network import Network, Operator, Tensor
from stridesmith.models.run import in_place
from stridesmith.models.run.kernels import kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of
from stridesmith.search.workers import kernel_cache
from stridesmith.search.workers.protocol import Build, Built, Failed
from stridesmith.search.workers.spread import build_here

SHAPE = (24, 40)


def chain(func: PrimFunc, inputs: int = 1) -> Network:
    """``x -> a -> b -> y`` by one program, whose further inputs are ``x``."""
    names = ("x", "a", "b", "y")
    tensors = {name: Tensor(name, SHAPE, "float32") for name in names}
    nodes = tuple(Operator(f"to_{b}", func, (a, *["x"] * (inputs - 1)), (b,)) for a, b in pairwise(names))
    return Network("chain", ("x",), ("y",), tensors, {}, nodes)


def model_of(network: Network) -> Model:
    target = discover("cpu", 2)
    return Model(network, kernels_of(tasks_of(network, target), None), target)


@pytest.fixture(autouse=True)
def _small_tensors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "LEAST_BYTES", 1)


def test_element_by_element_is_in_place() -> None:
    """One tensor in the arena for two that follow each other, and the result is right."""
    model = model_of(chain(elementwise("mix", SHAPE, "P * T.float32(0.5) + Q", ("p", "q")), 2))
    assert model.plan.places["a"] == model.plan.places["b"]
    assert model.plan.blocks[0] == 24 * 40 * 4
    (x,) = model.random_inputs()
    np.testing.assert_allclose(model(x), x * 1.875, rtol=1e-5)


def test_what_was_compiled_ahead_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernels are the same, by whoever they were compiled."""
    monkeypatch.setattr(kernel_cache.CACHE, "name", str(tmp_path))
    network, target = chain(elementwise("mix", SHAPE, "P * T.float32(0.5) + Q", ("p", "q")), 2), discover("cpu", 2)
    kernels = kernels_of(tasks_of(network, target), None)
    built: list[Build] = []

    def build(jobs: Iterable[Build]) -> list[Built | Failed]:
        built.extend(jobs)
        return build_here(built)

    in_place.compile_overwriting(network, kernels, target, build)
    in_place.compile_overwriting(network, kernels, target, lambda _: pytest.fail("compiled again"))
    monkeypatch.setattr(in_place, "build_here", lambda _: pytest.fail("compiled again"))
    model = Model(network, kernels, target)
    assert len(built) == 1 and built[0].over is not None
    assert model.plan.places["a"] == model.plan.places["b"]


def test_an_operator_that_is_apart_is_not() -> None:
    """Its result has memory of its own, and is the same."""
    network = chain(elementwise("mix", SHAPE, "P * T.float32(0.5) + Q", ("p", "q")), 2)
    apart = tuple(replace(n, apart=n.name == "to_b") for n in network.nodes if isinstance(n, Operator))
    model = model_of(network.with_nodes(apart))
    assert model.plan.places["a"] != model.plan.places["b"]
    (x,) = model.random_inputs()
    np.testing.assert_allclose(model(x), x * 1.875, rtol=1e-5)


@pytest.mark.parametrize(("slow", "expected"), [(1.5, {"to_b"}), (0.9, set()), (1.0, set())])
def test_what_is_slower_is_kept_apart(slow: float, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the operators that write over an input those that take longer so than apart, told by what runs take."""
    network = chain(elementwise("mix", SHAPE, "P * T.float32(0.5) + Q", ("p", "q")), 2)
    model = model_of(network)

    def profile(self: Model, inputs: object = None, runs: int = 20) -> dict[str, float]:
        shared = {name for name, call in self.plan.calls.items() if len(call.places) == 2}
        return {n.name: slow if n.name in shared and n.name == "to_b" else 1.0 for n in self.network.nodes}

    monkeypatch.setattr(Model, "profile", profile)
    chosen, found = tuning._apart_where_faster(network, Chosen(), model)
    assert chosen.apart == expected
    assert Chosen.from_json(chosen.to_json()) == chosen
    assert (found.plan.places["a"] == found.plan.places["b"]) is not bool(expected)


def test_what_reads_other_elements_is_not() -> None:
    """A program that turns rows round would read what it has written."""
    turned = unary("turned", SHAPE, "X + T.float32(1)").script().replace("x[v0, v1]", "x[23 - v0, v1]")
    import stridesmith as ss

    model = model_of(chain(ss.parse(turned)))
    assert model.plan.places["a"] != model.plan.places["b"]
    (x,) = model.random_inputs()
    np.testing.assert_allclose(model(x), x[::-1] + 3, rtol=1e-5)


def test_what_is_read_again_later_keeps_its_memory() -> None:
    """``a`` is an output, or has another reader after the step: then nothing writes over it."""
    network = chain(unary("double", SHAPE, "X + X"))
    kept = model_of(replace(network, outputs=("y", "a")))
    (x,) = kept.random_inputs()
    y, a = kept(x)
    np.testing.assert_array_equal(a, 2 * x)
    np.testing.assert_array_equal(y, 8 * x)


def test_a_convolution_never_writes_over_its_image() -> None:
    """The residual block with in place work: the sum may, the convolutions may not; the result is right."""
    network, reference = residual()
    model = model_of(replace(network, outputs=("y",)))
    (x,) = model.random_inputs()
    np.testing.assert_allclose(model(x), reference({"x": x})["y"], rtol=1e-4, atol=1e-4)
    assert model.plan.places["a"] == model.plan.places["b"] != model.plan.places["c"]
