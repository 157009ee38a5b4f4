"""A network as one callable: right results, the caller's memory, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from model_networks import residual
from network_maker import Maker
from onnx import numpy_helper
from onnx_models import model as model_of
from onnx_models import node, value

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.backends.llvm.python_call import held
from stridesmith.errors import UsageError
from stridesmith.models.onnx import read
from stridesmith.models.run.kernels import kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of


@pytest.fixture(scope="module")
def model() -> Model:
    """The residual block with what the estimate likes best."""
    target = discover("cpu", 2)
    network, _ = residual()
    return Model(network, kernels_of(tasks_of(network, target), None), target)


def test_equal_programs_are_one_task() -> None:
    """Both convolutions are one task of weight two."""
    tasks = tasks_of(residual()[0], discover("cpu", 2))
    assert [(item.task.work.name, item.weight) for item in tasks] == [("conv2d", 2), ("relu", 1), ("add", 1)]
    assert list(tasks[0].task.interface.values()) == ["fixed", "constant", "fixed"]


def test_a_network_computes_what_its_programs_mean(model: Model) -> None:
    """Twice, on new data, by position and by name, into fresh arrays and into given ones."""
    _, reference = residual()
    for seed in range(2):
        (x,) = model.random_inputs(seed)
        wanted = reference({"x": x})
        y, b = model(x)
        np.testing.assert_allclose(y, wanted["y"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(b, wanted["b"], rtol=1e-4, atol=1e-4)
        named = model({"x": x})
        assert named.keys() == {"y", "b"}
        np.testing.assert_array_equal(named["y"], y)
        into = np.empty_like(y), np.empty_like(b)
        assert model(x, out=into)[0] is into[0]
        np.testing.assert_array_equal(into[0], y)


def test_a_network_is_one_native_call(model: Model) -> None:
    """With the results of the careful way; it declines what is wrong, and all while the memory is used otherwise."""
    (x,) = model.random_inputs()
    wanted = model._run((x,), None)
    found = tuple(np.empty_like(array) for array in wanted)
    assert model.direct is not None and model.direct(x, *found)
    for array, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array, other)
    assert not model.direct(x.astype(np.float64), *found)
    assert not model.direct(x, found[0], found[0])
    with held(model.direct):
        assert not model.direct(x, *found)
    assert model.direct(x, *found)


def test_callers_in_threads_wait_for_each_other(model: Model) -> None:
    """Some are called natively, others carefully, and all find the right results."""
    given = [model.random_inputs(seed) for seed in range(4)]
    wanted = [model._run(inputs, None) for inputs in given]

    def right(number: int) -> bool:
        called = model if number % 2 else lambda *inputs: model._run(inputs, None)
        at = number % 4
        return all(np.array_equal(a, b) for a, b in zip(called(*given[at]), wanted[at], strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(200)))


def test_a_constant_may_leave_that_no_operator_reads() -> None:
    """As the shape of a tensor does, which is known beforehand."""
    target, make = discover("cpu", 2), Maker()
    y = make.map("{0} + {0}", make.input(2, 3))
    network = make.network(y, make.constant(4))
    model = Model(network, kernels_of(tasks_of(network, target), None), target)
    (x,) = model.random_inputs()
    found, known = model(x)
    np.testing.assert_array_equal(found, x + x)
    np.testing.assert_array_equal(known, network.constants[network.outputs[1]])


def test_what_does_not_fit_is_refused(model: Model) -> None:
    """Numbers, names, types, shapes and overlap, each in a sentence; nothing runs."""
    (x,) = model.random_inputs()
    y, b = model(x)
    with pytest.raises(TypeError, match=r"takes 1 inputs \(x\), but got 2"):
        model(x, x)
    with pytest.raises(TypeError, match="`x` must have dtype float32, but got float64"):
        model(x.astype(np.float64))
    with pytest.raises(ValueError, match=r"`x` must have shape \(1, 16, 6, 6\)"):
        model(x[0])
    with pytest.raises(ValueError, match="C-contiguous"):
        model(np.asfortranarray(x))
    with pytest.raises(UsageError, match="no input 'z'; there are x"):
        model({"z": x})
    with pytest.raises(UsageError, match="lacks the input 'x'"):
        model({})
    with pytest.raises(ValueError, match="`y` is written and shares memory with `x`"):
        model(x, out=(x, b))
    with pytest.raises(ValueError, match="`b` is written and shares memory with `y`"):
        model(x, out=(y, y))
    with pytest.raises(TypeError, match="2 outputs, but `out` holds 1"):
        model(x, out=(y,))


def test_a_profile_times_each_operator_inside_of_whole_runs(model: Model) -> None:
    """Every operator once, and together not more than they took."""
    seconds = model.profile(runs=3)
    assert list(seconds) == ["conv1", "relu", "conv2", "add"]
    assert all(0 < value < 0.1 for value in seconds.values())


def test_integers_are_drawn_that_are_a_place_anywhere() -> None:
    """What counts elements along a dimension of one is 0, so that a model is measured without given inputs."""
    made = model_of([node("ScatterElements", "x i x", "y", axis=0)], {"x": (1, 4)})
    made.graph.input.append(value("i", (1, 4), "int64"))
    found = ss.compile(read(made), threads=1)
    assert found.measure(seconds=0.01) and found.profile(runs=1)
    bytes_only = ss.compile(read(model_of([node("Identity", "x", "y")], {"x": (64,)}, dtype="uint8")), threads=1)
    assert set(bytes_only.random_inputs()[0]) == {0, 1, 2, 3}


@pytest.mark.parametrize("array", [np.array(["a", "bc"], object), np.array([1, 2], np.uint32)], ids=["texts", "uint32"])
def test_a_constant_of_a_type_that_programs_have_not_may_leave(array: np.ndarray) -> None:
    """It is the caller's as it is."""
    tensor = numpy_helper.from_array(array, "t")
    source = model_of([node("Relu", "x", "y")], {"x": (2, 3)}, outputs="y t", tensors=[tensor])
    made = ss.compile(read(source), threads=1)
    assert made(np.zeros((2, 3), np.float32))[1].tolist() == array.tolist()


class Other:
    """An array of another library, which gives and takes its memory by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array_namespace__(self) -> type[Other]:
        return Other

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    @staticmethod
    def from_dlpack(array: np.ndarray) -> Other:
        return Other(array)


def test_arrays_of_other_libraries_are_taken_and_given(model: Model) -> None:
    """Results are of the kind of the first input that is not NumPy's; those that are given are written."""
    (x,) = model.random_inputs()
    wanted = model(x)
    y, b = model(Other(x))
    assert isinstance(y, Other) and isinstance(b, Other)
    np.testing.assert_array_equal(y.array, wanted[0])
    assert isinstance(model({"x": Other(x)})["b"], Other)
    into = Other(np.empty_like(wanted[0])), np.empty_like(wanted[1])
    assert model(x, out=into)[0] is into[0]
    np.testing.assert_array_equal(into[0].array, wanted[0])
    with pytest.raises(ValueError, match="`y` is written and shares memory with `x`"):
        model(x, out=(Other(x), into[1]))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda model, x: model(np.ma.masked_array(x)), "`x` is a masked array, whose mask would be lost"),
        (lambda model, x: model({"x": x}, out=(x, x)), "called with a dict, so that `out` is one too"),
        (lambda model, x: model(x, out={"y": x}), "`out` is a dict where the inputs are given as one"),
        (lambda model, x: model({"y": x}), "no input 'y'"),
        (lambda model, x: model(x, out=3), "2 outputs, but `out` holds 1"),
        (lambda model, x: model.profile(x), "`inputs` is a list of arrays, one for each input, but got ndarray"),
        (lambda model, x: model.profile([x], runs=0), "`runs` is a whole number of at least 1, but got 0"),
        (lambda model, x: model.report(runs="5"), "`runs` is a whole number of at least 1, but got '5'"),
        (lambda model, x: model.measure(seconds="1"), "`seconds` is how long to measure, a number above 0"),
        (lambda model, x: model.export("net.c", "c", target=3), "a target is a text, as 'cpu'"),
        (lambda model, x: model.export("net.c", "c", name=3), "the name of a C library or function is a text"),
    ],
)
def test_a_wrong_use_of_a_model_is_one_sentence(model: Model, wrong: Any, sentence: str) -> None:
    """Of calls, of measurements and of exports."""
    with pytest.raises((TypeError, ValueError), match=sentence):
        wrong(model, model.random_inputs()[0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"inputs": [(1, 3)]}, "`inputs` has the shapes of inputs by name, as in"),
        ({"inputs": {"x": 3}}, r"the shape of an input is its extents, as in {'x': \(1, 3\)}, but got 3"),
        ({"inputs": {"x": (True, 3)}}, r"but got \(True, 3\)"),
        ({"inputs": {"x": np.ones((2, 2))}}, "but got something of type ndarray"),
        ({"inputs": {3: (1, 3)}}, "no input `3`; it has x"),
        ({"values": 3}, "`values` has the values of inputs by name"),
        ({"values": {"x": np.ma.masked_array([1.0])}}, "`x` is a masked array"),
        ({"ranges": 3}, "`ranges` has the numbers that each size may be, by name"),
        ({"ranges": {"n": (1, 4)}, "inputs": {"x": ("n", 2.0)}}, r"but got \('n', 2.0\)"),
        ({"ranges": {"n": (1, 4)}, "address": "auto"}, "no options of a model of free sizes"),
        ({"fallback": None}, "there is no fallback None; there are reference, onnxruntime"),
        ({"winograd": "no"}, "`winograd` is True or False, but got 'no'"),
        ({"seconds": "5"}, "`seconds` is how long to search, a number from 0 on, but got '5'"),
        ({"inputs": {"x": (1, 2)}, "db": 3}, "a database is named by a path or a URL, but got something of type int"),
    ],
)
def test_a_wrong_option_of_compile_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    """With what it takes instead."""
    net = model_of([node("Relu", "x", "y")], {"x": ("n", 2)})
    with pytest.raises((TypeError, ValueError), match=sentence):
        ss.compile(net, **options)
