"""Subnormal weights count as zeros where only sums of products read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from network_maker import Maker, computed, drawn

import stridesmith as ss
from stridesmith import configs
from stridesmith.models.api import network_of
from stridesmith.models.network import Network, Operator, Tensor

CPU = configs.target("cpu-avx2")
TINY = np.float32(2.0**-130)


def conv(make: Maker) -> tuple[str, str]:
    """A convolution, and its weights."""
    weights = make.constant(4, 3, 3, 3)
    return make.work("conv2d", make.input(1, 3, 6, 6), weights, ci=3, co=4, h=6, w=6, k=3, pad=1), weights


def scaled(make: Maker) -> tuple[str, str]:
    """A product element by element, which shows each of them."""
    factor = make.constant(1, 3, 6, 6)
    return make.map("{0} * {1}", make.input(1, 3, 6, 6), factor), factor


def divided(make: Maker) -> tuple[str, str]:
    """What a divisor is, is a matter of whether it is zero."""
    floor = make.constant(1, 3, 6, 6)
    return make.map("T.float32(1) / ({0} + {1})", make.input(1, 3, 6, 6), floor), floor


def both(make: Maker) -> tuple[str, str]:
    """Weights that something else reads, too."""
    result, weights = conv(make)
    return make.map("{0} + b[0, 0, 0, 0]", result, weights), weights


def test_weights_of_half_floats_stay() -> None:
    """What is subnormal among them is a normal number of float32, in which products are added up."""
    func = ss.workload("matmul", m=2, n=3, k=4, dtype="float16").func
    tensors = {b.name: Tensor(b.name, b.shape, b.dtype) for b in func.buffers}
    weights = {"b": np.full((4, 3), 3e-5, np.float16)}
    operator = Operator("product", func, ("a", "b"), ("c",))
    network = Network("half", ("a",), ("c",), tensors, weights, (operator,))
    np.testing.assert_array_equal(network_of(network, CPU).constants["b"], weights["b"])


@pytest.mark.parametrize(("form", "zeros"), [(conv, True), (scaled, False), (divided, False), (both, False)])
def test_subnormal_weights_are_zeros(form: Callable[[Maker], tuple[str, str]], zeros: bool) -> None:
    """Nothing else is; what is computed differs by less than a normal number."""
    make = Maker()
    output, name = form(make)
    make.constants[name].flat[::5] = TINY
    make.constants[name].flat[1] = -TINY
    given: Network = make.network(output)
    found = network_of(given, CPU)
    expected = make.constants[name].copy()
    if zeros:
        expected[np.abs(expected) == TINY] = 0
    np.testing.assert_array_equal(found.constants[name], expected)
    assert (make.constants[name] == TINY).any(), "the caller's constants stay"
    inputs = {n: a + 4 for n, a in drawn(given).items()}
    for key, array in computed(given, inputs).items():
        np.testing.assert_allclose(computed(found, inputs)[key], array, rtol=0, atol=2.0**-120)
