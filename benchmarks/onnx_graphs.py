"""Random graphs of 20 to 60 ONNX operators against ONNX Runtime without optimisations.

    python benchmarks/onnx_graphs.py --count 2000 --seed 0 [--from N] [--compiled 20] [--verbose]

Needs the packages `onnx` and `onnxruntime`.  Operators are drawn as by `onnx_operators.py`, all of one version from 13
to 22, and take what others before them have computed, brought to the shape that they were drawn with by Reshape, Tile
and Slice.  Each node is run alone when it is drawn, and left out where ONNX Runtime does not run it or gives what is no
number, or huge.  All tensors that nothing reads are outputs.

Small differences may become whole ones on their way, in Floor, ArgMax or Cast: the graph is run again with inputs and
constants that differ by a rounding or two, and how far its results move is added to how far ours may be away.  Where
that is far, the element tells nothing and is counted.  Every `--compiled`-th graph is compiled, too.  Anything that
differs is printed with the operators before it, with what the reference implementation gives, and makes the exit
code 1.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
import time
import warnings
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import Array, Draw
from onnx_operators import RECIPES

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

CLOSE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10}
"""How far results may be apart, as a share of the largest one."""
MOVED = {"float16": 1e-3, "float32": 3e-7, "float64": 1e-15}
"""How far inputs are moved, as a share of themselves."""
LARGEST = 1e5
UNSTABLE = 1e-2
TRIES = 3
VERSIONS = range(13, 23)


@dataclass
class Drawn:
    """A graph in the making, with the value of each tensor."""

    rng: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def grow(self, wanted: int) -> None:
        """Add operators until there are so many nodes."""
        for _ in range(40 * wanted):
            if len(self.nodes) >= wanted:
                return
            self._add()

    def _add(self) -> None:
        op = str(self.rng.choice(sorted(RECIPES)))
        made = Draw(self.rng, op, self.opset)
        try:
            if made.schema.deprecated or RECIPES[op](made) is False:
                return
        except onnx.defs.SchemaError:
            return
        while made.inputs and list(made.inputs.values())[-1] is None:
            made.inputs.popitem()
        for attempt in range(TRIES):
            if self._tried(made, wires=attempt < TRIES - 1):
                return

    def _tried(self, made: Draw, wires: bool) -> bool:
        """Add the operator, with inputs from before if it `wires`; False where it does not run or is of no use."""
        number = len(self.nodes)
        nodes: list[onnx.NodeProto] = []
        new: dict[str, Array] = {}
        fixed: list[str] = []
        names = []
        for name, array in made.inputs.items():
            source = self._source(array) if wires and array is not None and name not in made.constants else ""
            if array is None:
                names.append("")
            elif source:
                names.append(self._brought(source, array.shape, f"n{number}_{name}", nodes, new, fixed))
            else:
                called = f"n{number}_{name}"
                new[called] = array
                fixed += [called] if name in made.constants or self.rng.random() < 0.3 else []
                names.append(called)
        outputs = [f"n{number}_y{at}" for at in range(made.outputs)]
        nodes.append(helper.make_node(made.op, names, outputs, f"n{number}_{made.op}", **made.values))
        found = self._run(nodes, new, outputs)
        if found is None or not all(_is_plain(array) for array in found):
            return False
        self.values.update(new)
        self.values.update(zip(outputs, found, strict=True))
        self.nodes += nodes
        self.constants += fixed
        self.inputs += [name for name in new if name not in fixed]
        self.made += [name for name, array in zip(outputs, found, strict=True) if array.size]
        return True

    def _source(self, like: Array) -> str:
        """A tensor from before of the same type, more often a late one; empty for none."""
        known = [name for name in self.made if self.values[name].dtype == like.dtype]
        if not known or not like.size or self.rng.random() < 0.15:
            return ""
        return known[int(len(known) * math.sqrt(self.rng.random()))]

    def _brought(
        self, source: str, shape: tuple[int, ...], name: str, nodes: list[onnx.NodeProto], new: dict[str, Array],
        fixed: list[str],
    ) -> str:  # fmt: skip
        """A tensor's elements in another shape, repeated or cut."""

        def constant(numbers: list[int]) -> str:
            called = f"{name}_c{len(nodes)}{len(fixed)}"
            new[called] = np.array(numbers, np.int64)
            fixed.append(called)
            return called

        def add(op: str, *inputs: str) -> str:
            called = f"{name}_{op}{len(nodes)}"
            nodes.append(helper.make_node(op, inputs, [called], called))
            return called

        have, want = self.values[source].size, math.prod(shape)
        if self.values[source].shape == shape:
            return source
        if have != want:
            source = add("Reshape", source, constant([-1]))
        if have < want:
            source = add("Tile", source, constant([-(-want // have)]))
            have *= -(-want // have)
        if have > want:
            first = int(self.rng.integers(have - want + 1))
            source = add("Slice", source, constant([first]), constant([first + want]))
        return add("Reshape", source, constant(list(shape)))

    def _run(self, nodes: list[onnx.NodeProto], new: dict[str, Array], outputs: list[str]) -> list[Array] | None:
        values = {**self.values, **new}
        reads = dict.fromkeys(n for node in nodes for n in node.input if n and n in values)
        return session(self._model(nodes, list(reads), values, outputs), {name: values[name] for name in reads})

    def _model(
        self, nodes: list[onnx.NodeProto], inputs: list[str], values: dict[str, Array], outputs: list[str],
        constants: list[str] | None = None,
    ) -> onnx.ModelProto:  # fmt: skip
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
            for n in inputs
        ]
        fixed = [numpy_helper.from_array(values[name], name) for name in constants or []]
        graph = helper.make_graph(nodes, "graph", given, [onnx.ValueInfoProto(name=n) for n in outputs], fixed)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    @property
    def outputs(self) -> list[str]:
        """What nothing reads."""
        read_ = {name for node in self.nodes for name in node.input}
        return [name for name in self.made if name not in read_]

    def model(self, values: dict[str, Array]) -> onnx.ModelProto:
        """The whole, with constants of these values."""
        return self._model(self.nodes, self.inputs, values, self.outputs, self.constants)

    def moved(self, number: int) -> dict[str, Array]:
        """Inputs and constants that differ a little from those drawn."""
        rng = np.random.default_rng(number)
        found = dict(self.values)
        for name in (*self.inputs, *self.constants):
            array = found[name]
            if array.dtype.name in MOVED:
                apart = 1 + MOVED[array.dtype.name] * rng.uniform(-1, 1, array.shape)
                found[name] = (array.astype(np.float64) * apart).astype(array.dtype)
        return found

    def before(self, name: str, most: int = 6) -> str:
        """The last operators on the way to a tensor."""
        makers = {output: node for node in self.nodes for output in node.output}
        found: list[onnx.NodeProto] = []
        waiting = [name]
        while waiting and len(found) < most:
            node = makers.get(waiting.pop(0))
            if node is not None and node not in found:
                found.append(node)
                waiting += node.input
        return " <- ".join(f"{node.op_type}({', '.join(node.input)})" for node in found)


def _is_plain(array: Array) -> bool:
    """Whether an array has elements, and these are numbers of a usual size."""
    if array.dtype.kind != "f":
        return array.dtype.kind in "biu"
    return bool(array.size) and bool(np.all(np.isfinite(array))) and float(np.abs(array).max()) < LARGEST


def session(model: onnx.ModelProto, arrays: dict[str, Array]) -> list[Array] | None:
    """The results by ONNX Runtime without optimisations; None where it has none."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(found) for found in made.run(None, arrays)]
    except Exception:  # classes of its own for each kind of failure
        return None


def drawn(seed: int, number: int) -> Drawn:
    """The graph of a number, the same in every run."""
    rng = np.random.default_rng([seed, number])
    made = Drawn(rng, int(rng.integers(VERSIONS.start, VERSIONS.stop)))
    made.grow(int(rng.integers(20, 61)))
    return made


@dataclass
class Outcome:
    """What came of a graph."""

    nodes: int
    kind: str
    why: str = ""
    elements: int = 0
    unstable: int = 0


def outcome(graph: Drawn, compiles: bool) -> Outcome:
    """Run a graph on all sides, and compare."""
    model, arrays = graph.model(graph.values), {name: graph.values[name] for name in graph.inputs}
    theirs = session(model, arrays)
    if theirs is None:
        return Outcome(len(graph.nodes), "not run by ONNX Runtime")
    try:
        network = read(model)
        found = evaluate(network, {name: arrays[name] for name in network.inputs})
    except StridesmithError as error:
        return Outcome(len(graph.nodes), "refused", str(error))
    kind = "native" if not network.foreign else "mixed"
    result = Outcome(len(graph.nodes), kind)
    others = []
    for number in range(2):
        values = graph.moved(number)
        others.append(session(graph.model(values), {name: values[name] for name in graph.inputs}))
    spread = [
        max((_apart(other[at], one) for other in others if other is not None), key=lambda a: float(a.max(initial=0)))
        for at, one in enumerate(theirs)
    ]
    ours = [found[name] for name in network.outputs]
    result.why = _compared(graph, ours, theirs, spread, result)
    if result.why:
        result.why += _by_reference(graph, model, arrays, theirs, spread)
    if not result.why and compiles:
        device = discover("cpu", 1)
        made = compiled(network_of(network, device), device)(dict(arrays))
        why = _compared(graph, [np.asarray(made[name]) for name in network.outputs], theirs, spread, result)
        result.why = f"compiled: {why}" if why else ""
    return result


def _apart(a: Array, b: Array) -> Array:
    """How far elements are apart, as a share of the largest; 1 where shapes differ."""
    if a.shape != b.shape:
        return np.ones(b.shape)
    if b.dtype.kind != "f":
        return (a != b).astype(float)
    size = max(float(np.abs(b[np.isfinite(b)]).max(initial=0)), 1e-3)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(b), np.abs(a.astype(float) - b.astype(float)) / size, ~((a == b) | (a != a)))


def _compared(graph: Drawn, ours: list[Array], theirs: list[Array], spread: list[Array], result: Outcome) -> str:
    """How results differ, or nothing."""
    for name, got, wanted, moved in zip(graph.outputs, ours, theirs, spread, strict=True):
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        close = min((CLOSE.get(graph.values[n].dtype.name, 1e-4) for n in [name]), default=1e-4)
        far = max(float(moved.max(initial=0)), 0.0)  # what moves one element may move others, too
        unstable = far > UNSTABLE
        result.elements += got.size
        result.unstable += got.size * unstable
        wrong = _apart(got, wanted) > close + 30 * far
        if not unstable and wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"{name}: {got[first]!s} instead of {wanted[first]!s} at {list(first)} ({int(wrong.sum())} of "
                f"{got.size}): {graph.before(name)}"
            )
    return ""


def _by_reference(
    graph: Drawn, model: onnx.ModelProto, arrays: dict[str, Array], theirs: list[Array], spread: list[Array]
) -> str:
    """What the reference says of it."""
    try:
        with np.errstate(all="ignore"):
            second = [np.asarray(one) for one in ReferenceEvaluator(model).run(None, arrays)]
    except Exception as error:  # what NumPy and its own asserts raise
        return f"; the reference cannot run it ({type(error).__name__})"
    why = _compared(graph, second, theirs, spread, Outcome(0, ""))
    return f"; the reference against ONNX Runtime: {why or 'the same'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first number")
    parser.add_argument("--compiled", type=int, default=20, help="each which graph is compiled as well; 0 for none")
    parser.add_argument("--verbose", action="store_true", help="print refusals and progress, too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    kinds: collections.Counter[str] = collections.Counter()
    nodes = elements = unstable = wrong = compiled_ = 0
    for number in range(asked.first, asked.first + asked.count):
        compiles = bool(asked.compiled) and number % asked.compiled == 0
        try:
            result = outcome(drawn(asked.seed, number), compiles)
        except Exception as error:  # whatever is raised that is no refusal is wrong
            result = Outcome(0, "native", f"{type(error).__name__}: {error}")
        kinds[result.kind] += 1
        nodes += result.nodes
        elements += result.elements
        unstable += result.unstable
        compiled_ += compiles
        if result.why and result.kind != "refused":
            wrong += 1
            print(f"WRONG {number}: {result.why}", flush=True)
        elif asked.verbose:
            print(f"{number}: {result.nodes} nodes, {result.kind} {result.why}", flush=True)
    print(
        f"{asked.count} graphs from {asked.first} on, seed {asked.seed}, {nodes / max(asked.count, 1):.0f} nodes each, "
        f"{compiled_} compiled, {time.perf_counter() - started:.0f} s"
    )
    print(f"{wrong} wrong; " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print(f"{elements} elements compared; {unstable} of them tell nothing, as the last digits of inputs move them far")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
