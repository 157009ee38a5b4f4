"""Buffers without dimensions are inputs and results like all others, in each stage of a kernel's life."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import model, node

import stridesmith as ss
from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import pack, unpack
from stridesmith.backends.devices import discover, listing
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import compare
from stridesmith.errors import WrongResult
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import PrimFunc, script
from stridesmith.search.calling.kernel import from_record
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Build, Built, Choice, Measure, Measured
from stridesmith.search.workers.reference import check_reference, compiled_reference, fast_reference, reference_of
from stridesmith.space.workloads.library import from_func

SUM = """
@T.prim_func
def f(x: T.Buffer((40,), "{dtype}"), y: T.Buffer((), "{dtype}")):
    for i in range(40):
        with T.block("s"):
            vi = T.axis.reduce(40, i)
            with T.init():
                y[()] = T.{dtype}(0)
            y[()] = y[()] + x[vi]
"""
SCALED = """
@T.prim_func
def f(a: T.Buffer((), "{dtype}"), x: T.Buffer((40,), "{dtype}"), y: T.Buffer((40,), "{dtype}")):
    for i in range(40):
        with T.block("s"):
            vi = T.axis.spatial(40, i)
            y[vi] = a[()] * x[vi]
"""
ALONE = """
@T.prim_func
def f(a: T.Buffer((), "{dtype}"), y: T.Buffer((), "{dtype}")):
    with T.block("s"):
        y[()] = a[()] * a[()] + a[()]
"""
ROUNDED = """
@T.prim_func
def f(a: T.Buffer((), "{dtype}"), y: T.Buffer((), "int32")):
    with T.block("s"):
        y[()] = T.Cast("int32", T.floor(T.exp(a[()]) / a[()]))
"""
PROGRAMS = {"sum": SUM, "scaled": SCALED, "alone": ALONE, "rounded": ROUNDED}
TARGETS = [pytest.param(device.target, id=device.selector) for device in listing()]
NUMBER = np.dtype("float32").type


def program(name: str, dtype: str = "float32") -> PrimFunc:
    func = ss.parse(PROGRAMS[name].format(dtype=dtype))
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_are_arrays(name: str) -> None:
    """NumPy makes numbers of what it computes of arrays without dimensions; samples stay arrays."""
    func = program(name)
    for sample in make_samples(func, reference_of(func), 0):
        for arrays in (sample.inputs, sample.expected, sample.bounds or {}):
            assert all(isinstance(array, np.ndarray) for array in arrays.values())
        compare(sample, dict(sample.expected))
        wrong = {"y": np.asarray(sample.expected["y"] + 100)}
        with pytest.raises(WrongResult, match=r"`y`\[\d*\] is .*, but should be"):
            compare(sample, wrong)


@pytest.mark.parametrize("name", ["sum", "scaled", "alone"])
def test_references_of_large_programs(name: str) -> None:
    """They run compiled, or by NumPy, and are compared with the interpreter."""
    func = program(name)
    assert check_reference(func, compiled_reference(func)) > 0
    assert check_reference(func, fast_reference(func)) > 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_are_built_measured_recorded_and_replayed(name: str, target: ss.Target) -> None:
    """Each candidate of the space is right, and its record makes a kernel."""
    func = program(name)
    work = from_func(func)
    task = Task(work, target, interface_of(work))
    space = ss.generate(func, target, task.interface)
    for sketch in space.sketches[:3]:
        numbers = tuple(0 for _ in sketch.decisions)
        choice = Choice(sketch.name, numbers, dict(task.interface))
        built = jobs.run(Build(script=task.script, target=target, choice=choice))
        assert isinstance(built, Built), built
        measured = jobs.run(Measure(kernel=built.kernel, work=task.name, seed=0, repeat_ms=5.0))
        assert isinstance(measured, Measured), measured
        record = Record(
            script=task.script, target=target.to_json(), interface=task.interface, trace=built.trace,
            sketch=sketch.name, choice=list(numbers), space_version=space.version, status="infrastructure",
        ).measured(measured.samples, measured.max_abs_error, "trial")  # fmt: skip
        assert_calls(func, from_record(record))


def given(func: PrimFunc, dtype: str = "float32") -> list[np.ndarray]:
    inputs = [b for b in func.buffers if b.name != "y"]
    return [np.asarray(np.arange(1, 1 + max(b.size, 1)).reshape(b.shape), dtype) for b in inputs]


def assert_calls(func: PrimFunc, kernel: Callable[..., Any], dtype: str = "float32") -> None:
    """A kernel takes arrays, and the numbers that NumPy makes of them, and gives an array."""
    inputs, buffer = given(func, dtype), func.buffers[-1]
    expected = np.zeros(buffer.shape, buffer.dtype)
    interpret(func, *inputs, expected)
    numbers = [array[()] for array in inputs]
    for arrays in (inputs, numbers):
        result = kernel(*arrays)
        assert isinstance(result, np.ndarray) and result.shape == buffer.shape
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", ["sum", "scaled", "alone"])
def test_each_type_is_called(name: str, dtype: str) -> None:
    """Programs are printed and read again, interpreted, compiled and called."""
    func = program(name, dtype)
    assert ss.parse(script(func)) == func
    assert_calls(func, ss.build(func), dtype)


def test_a_number_is_no_result() -> None:
    """A kernel cannot write into it."""
    kernel = ss.build(program("sum"))
    with pytest.raises(TypeError, match="`y` must be an array"):
        kernel(np.ones(40, np.float32), out=NUMBER(0))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROGRAMS)
def test_exported_kernels_take_and_give_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own caller knows them."""
    func = program(name)
    (wheel,) = ss.build(func).export(tmp_path / f"package_{name}.whl", "wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module(f"package_{name}")
    assert_calls(func, package.run)


def test_layouts_of_one_element_pack_them() -> None:
    """A buffer that a layout gives dimensions holds the one element somewhere."""
    argument = Argument("a", Layout.parse((), "lambda : [0]", "", (1,)), "float32")
    packed = pack(argument, np.asarray(3, np.float32))
    assert packed.tolist() == [3.0]
    found = unpack(argument, packed)
    assert isinstance(found, np.ndarray) and found.shape == () and found == 3


def test_a_layout_of_a_result_keeps_the_program() -> None:
    """The sum has a dimension then."""
    schedule = ss.Schedule(program("sum"))
    schedule.transform_layout("s", "y", lambda: [0])
    kernel = ss.build(schedule.func, target=discover("cpu", threads=1))
    assert kernel(np.ones(40, np.float32)).reshape(()) == 40


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_networks_take_and_give_them(target: str, tmp_path: Path) -> None:
    """A sum over everything, scaled by an input without dimensions."""
    if target == "opencl" and len(TARGETS) == 1:
        pytest.skip("no OpenCL device on this machine")
    nodes = [node("Relu", "x", "a"), node("ReduceSum", "a", "b", keepdims=0), node("Mul", "b s", "y")]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, {"x": (3, 40), "s": ()}, {}, opset=13), path)
    run = ss.compile(path, target, db=str(tmp_path / "empty.db"))
    for factor in (np.asarray(2, np.float32), NUMBER(2)):
        result = run(np.ones((3, 40), np.float32), factor)
        assert isinstance(result, np.ndarray) and result.shape == () and result == 240
    with pytest.raises(TypeError, match="`y` must be an array, NumPy's or one with `__dlpack__`, but got float32"):
        run(np.ones((3, 40), np.float32), NUMBER(2), out=NUMBER(0))
