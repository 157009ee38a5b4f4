"""ONNX models of free sizes, whose inputs have extents that are ranges, in the making, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.numbers import boundary_dtype
from stridesmith.models.ranges.network import RangedNetwork, valued

Array: TypeAlias = NDArray[Any]
Point: TypeAlias = Mapping[str, int]
Recipe: TypeAlias = "Callable[[FreeGraph, str], Sequence[str]]"

MOST_ELEMENTS, LARGEST = 30_000, 200.0
"""Results that are larger are not drawn."""
CLOSE, MOVED, FAR = 1e-4, 3e-7, 1e-2
"""How far results may be apart, and how far inputs are moved; what moves further then tells nothing."""


class Unfit(Exception):
    """What was drawn is no operator of the tensor that it was drawn for."""


@dataclass
class FreeGraph:
    """A model in the making; each tensor has its values at all `points`, sizes in the ranges."""

    rng: np.random.Generator
    opset: int
    ranges: Mapping[str, tuple[int, int, int]]
    points: Sequence[Point]
    inputs: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, list[Array]] = field(default_factory=dict)
    pending: list[onnx.NodeProto] = field(default_factory=list)
    numbered: int = 0

    # ---------------------------------------------------------------- what recipes are made of

    def pick(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a tensor, where they are free -1."""
        shapes = [array.shape for array in self.values[name]]
        return tuple(own[0] if len(set(own)) == 1 else -1 for own in zip(*shapes, strict=True))

    def least(self, name: str, axis: int) -> int:
        return min(array.shape[axis] for array in self.values[name])

    def axis(self, name: str) -> int:
        """Any axis of a tensor, in two of three cases one that is free where there is one."""
        shape = self.shape(name)
        free = [at for at, extent in enumerate(shape) if extent < 0]
        return int(self.pick(*(free if free and self.chance(0.66) else range(len(shape)))))

    def same(self, name: str) -> list[str]:
        """Other tensors with the shapes of this one."""
        shapes = [array.shape for array in self.values[name]]
        return [n for n, own in self.values.items() if n != name and [array.shape for array in own] == shapes]

    def normal(self, *shape: int) -> str:
        """A constant of normal numbers, whose sums stay small."""
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / max(prod(shape[1:]), 1) ** 0.5)

    def constant(self, array: Any) -> str:
        name = self._name("c")
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result."""
        return self.node_of(1, op, *inputs, **attributes)[0]

    def node_of(self, count: int, op: str, *inputs: str, **attributes: Any) -> list[str]:
        outputs = [self._name("t") for _ in range(count)]
        self.pending.append(helper.make_node(op, inputs, outputs, f"{op}_{outputs[0]}", **attributes))
        return outputs

    def extent(self, name: str, axis: int) -> str:
        """An extent as a tensor of one number, as exporters compute it."""
        if self.opset >= 15 and self.chance(0.3):
            return self.node("Shape", name, start=axis, end=axis + 1)
        shape = self.node("Shape", name)
        if self.chance(0.5):
            return self.node("Gather", shape, self.ints(axis), axis=0)
        scalar = self.node("Gather", shape, self.constant(np.array(axis)), axis=0)
        return self.node("Unsqueeze", scalar, self.ints(0))

    def _name(self, letter: str) -> str:
        self.numbered += 1
        return f"{letter}{self.numbered}"

    # ---------------------------------------------------------------- growing

    def input(self, *extents: int | str) -> None:
        name = self._name("x")
        self.inputs[name] = extents
        self.values[name] = [self.drawn(name, point, at) for at, point in enumerate(self.points)]

    def drawn(self, name: str, point: Point, seed: int) -> Array:
        """Normal numbers for an input."""
        shape = [point[e] if isinstance(e, str) else e for e in self.inputs[name]]
        return np.random.default_rng([seed, *map(ord, name)]).standard_normal(shape).astype(np.float32)

    def grow(self, wanted: int, recipes: Sequence[Recipe]) -> None:
        """Add operators until there are so many."""
        steps = 0
        for _ in range(30 * wanted):
            if steps == wanted:
                return
            names = list(self.values)
            recent = names[-1 - int(min(self.rng.exponential(1.5), len(names) - 1))]
            steps += self._added(self.pick(*recipes), recent)

    def _added(self, recipe: Recipe, name: str) -> bool:
        before, self.pending = dict(self.constants), []
        try:
            outputs = recipe(self, name)
            found = [self._run(point, outputs) for point in range(len(self.points))]
        except Unfit:
            self.constants = before
            return False
        self.nodes += self.pending
        self.values.update(zip(outputs, map(list, zip(*found, strict=True)), strict=True))
        return True

    def _run(self, at: int, outputs: Sequence[str]) -> list[Array]:
        """Values of the new tensors at a point.  Raises Unfit where ONNX Runtime has none, or large ones."""
        made = {output for node in self.pending for output in node.output}
        reads = dict.fromkeys(n for node in self.pending for n in node.input if n in self.values and n not in made)
        given = {name: self.values[name][at] for name in reads}
        infos = {name: array.shape for name, array in given.items()}
        found = session(self._model(self.pending, infos, outputs))(given)
        for array in found:
            if array.dtype != np.float32 or not 0 < array.size < MOST_ELEMENTS or not np.abs(array).max() < LARGEST:
                raise Unfit
        return found

    def _model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, list(shape)) for n, shape in inputs.items()]
        read = {name for node in nodes for name in node.input}
        fixed = [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in read]
        graph = helper.make_graph(nodes, "graph", given, [onnx.ValueInfoProto(name=n) for n in outputs], fixed)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    @property
    def outputs(self) -> list[str]:
        """What nothing reads."""
        read = {name for node in self.nodes for name in node.input}
        return [name for name in self.values if name not in read and name not in self.inputs]

    def model(self) -> onnx.ModelProto:
        return self._model(self.nodes, self.inputs, self.outputs)

    def point(self) -> dict[str, int]:
        """Any sizes of the ranges."""
        return point_of(self.rng, self.ranges)

    @property
    def ends(self) -> Sequence[Point]:
        """The least sizes and the largest ones."""
        return self.points[:2]


def point_of(rng: np.random.Generator, ranges: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    """Any sizes of ranges."""
    return {name: int(rng.choice(np.arange(low, high + 1, step))) for name, (low, high, step) in ranges.items()}


def computed(network: RangedNetwork, point: Point, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a network at some sizes, as its programs say."""
    values: dict[str, Array] = {**network.constants, **arrays}
    for node in network.nodes:
        results = [
            np.zeros(network.shape(name, point), boundary_dtype(network.tensors[name].dtype)) for name in node.outputs
        ]
        if node.func is None:
            results = [values[node.inputs[0]].reshape(results[0].shape)]
        else:
            arrays_of = [*(values[name] for name in node.inputs), *results]
            own = [valued(shape, point) for shape in node.shapes] or [array.shape for array in arrays_of]
            interpret(node.func, *(array.reshape(shape) for array, shape in zip(arrays_of, own, strict=True)))
        values.update(zip(node.outputs, results, strict=True))
    return {name: values[name] for name in network.outputs}


@dataclass
class Expected:
    """What ONNX Runtime computes of a graph at some sizes, and how far that moves with the last digits of inputs."""

    arrays: dict[str, Array]
    results: dict[str, Array]
    moves: dict[str, float]

    @classmethod
    def of(cls, graph: FreeGraph, point: Point, seed: int) -> Expected:
        """Of inputs that a seed draws.  Raises Unfit where ONNX Runtime does not run the model."""
        arrays = {name: graph.drawn(name, point, seed) for name in graph.inputs}
        run, rng = session(graph.model()), np.random.default_rng(seed)
        results = dict(zip(graph.outputs, run(arrays), strict=True))
        moves = dict.fromkeys(graph.outputs, 0.0)
        for _ in range(2):
            moved = {n: a * (1 + MOVED * rng.uniform(-1, 1, a.shape)).astype(np.float32) for n, a in arrays.items()}
            for name, array in zip(graph.outputs, run(moved), strict=True):
                moves[name] = max(moves[name], apart(array, results[name]))
        return cls(arrays, results, moves)

    def differences(self, found: Mapping[str, Array]) -> list[str]:
        """Outputs that are other ones, in words."""
        told = []
        for name, wanted in self.results.items():
            got, far = found[name], self.moves[name]
            if got.shape != wanted.shape:
                told.append(f"{name} has the shape {got.shape}, not {wanted.shape}")
            elif far < FAR and not (off := apart(got, wanted)) <= CLOSE + 30 * far:
                told.append(f"{name} is {off:.2g} of its largest number away")
        return told


def apart(a: Array, b: Array) -> float:
    """The largest difference of elements, as a share of the largest one."""
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-3))


def session(model: onnx.ModelProto) -> Callable[[Mapping[str, Array]], list[Array]]:
    """ONNX Runtime without optimisations.  Raises Unfit for what it does not run."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own for each kind of failure
        raise Unfit(str(error)) from None

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        try:
            return [np.asarray(found) for found in made.run(None, dict(arrays))]
        except Exception as error:
            raise Unfit(str(error)) from None

    return run
