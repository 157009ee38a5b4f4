"""Calls that are timed as a network makes them: the same results, weights from copies that are as they were written."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of

from stridesmith.backends.artifact import InNetwork
from stridesmith.backends.devices import discover
from stridesmith.backends.executable import Bound
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower

CPU = discover("cpu", threads=2)
SCALED = func_of("""
@T.prim_func
def main(x: T.Buffer((64, 33), "float32"), w: T.Buffer((33,), "float32"), y: T.Buffer((64, 33), "float32")):
    for i in T.parallel(64):
        for k in range(33):
            y[i, k] = x[i, k] * w[k]
""")


def bound_in(called: InNetwork | None) -> Bound:
    return load_artifact(compile_lowered(lower(SCALED, CPU), CPU)).bind(guard_bytes=64, called=called)


def filled(bound: Bound, factor: float) -> np.ndarray:
    x = np.arange(64 * 33, dtype=np.float32).reshape(64, 33)
    w = np.full(33, factor, np.float32)
    bound.write(0, x)
    bound.write(1, w)
    bound.write(2, np.zeros_like(x))
    return x * w


@pytest.mark.parametrize("nbytes", [0, 1000, 1 << 20])
@pytest.mark.parametrize("calls", [1, 2, 7, 600])
def test_results_and_inputs_stay(calls: int, nbytes: int) -> None:
    """With one copy of the weights, with some, and with as many as there may be; around the table more than once."""
    bound = bound_in(InNetwork(("x",), ("w",), nbytes))
    wanted = filled(bound, 2.0)
    assert bound.time(1) > 0  # the call that verifies
    np.testing.assert_array_equal(bound.read(2).reshape(64, 33), wanted)
    bound.poison_guards(b"\x5a")
    assert bound.time(calls) > 0
    np.testing.assert_array_equal(bound.read(2).reshape(64, 33), wanted)
    np.testing.assert_array_equal(bound.read(0).reshape(64, 33), wanted / 2)
    assert bound.guards_intact()


def test_copies_are_of_what_was_written_last() -> None:
    bound = bound_in(InNetwork(("x",), ("w",), 1 << 16))
    filled(bound, 2.0)
    for _ in range(3):
        bound.time(5)
    wanted = filled(bound, 3.0)
    for _ in range(3):
        bound.time(5)
        np.testing.assert_array_equal(bound.read(2).reshape(64, 33), wanted)
