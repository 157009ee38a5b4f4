"""Random graphs of 20 to 60 ONNX operators against ONNX Runtime without optimisations.

    python benchmarks/onnx_graphs.py --count 2000 --seed 0 [--from N] [--compiled 20] [--done FILE] [--verbose]

Needs the packages `onnx` and `onnxruntime`.  Operators are drawn as by `onnx_operators.py`, all of one version from 13
to 22, and take what others before them have computed, brought to the shape that they were drawn with by Reshape, Tile
and Slice.  Each node is run alone when it is drawn, and left out where ONNX Runtime does not run it or gives what is no
number, or huge; where its definition leaves open what comes out (integers divided by 0, or cast from what they do not
hold); and where ONNX Runtime computes something else for a reason that `onnx_differences.py` has.  All tensors that
nothing reads are outputs.

Small differences may become whole ones on their way, in Floor, ArgMax or Cast: the graph is run again with inputs,
operands and all results of nodes multiplied by what differs from 1 by a rounding or two, each element by another
number, and how far outputs move is added to how far ours may be away; so is how far they are from what the nodes gave
when they were run alone, each rounded to its type.  Where outputs move far, the element tells nothing and is counted.
Every `--compiled`-th graph is compiled, too.  What differs from ONNX Runtime and not from the reference implementation
is printed as ODD, with the operators before it; what differs from both, or where the reference cannot run the graph, as
WRONG, which makes the exit code 1.  With `--done` what came of each graph is a line of that file, and those that it
has are not run again.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import Array, Case, Draw
from onnx_differences import DIFFERENCES, RUNTIME
from onnx_operators import OFFSET, RECIPES, SUMS

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
    operands: dict[str, Array] = field(default_factory=dict)
    """What was brought to the shape of an operand, equal elements often, which rounding moves apart."""
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
        brought = [name for name in names if name and name not in self.values and name not in new]
        found = self._run(nodes, new, [*outputs, *brought], fixed)
        if found is None or not all(_is_plain(array) for array in found):
            return False
        known = {**self.values, **new, **dict(zip([*outputs, *brought], found, strict=True))}
        given = {f"x{at}": known[name] if name else None for at, name in enumerate(names)}
        constants = frozenset(f"x{at}" for at, name in enumerate(names) if name in fixed)
        case = Case(number, made.op, self.opset, made.values, given, constants, made.outputs, 8)
        found = found[: len(outputs)]
        if not _is_defined(case) or _differs_alone(case, found):
            return False
        self.values.update(new)
        self.values.update(zip(outputs, found, strict=True))
        self.operands.update((name, known[name]) for name in brought)
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

    def _run(
        self, nodes: list[onnx.NodeProto], new: dict[str, Array], outputs: list[str], fixed: list[str]
    ) -> list[Array] | None:
        values = {**self.values, **new}
        reads = dict.fromkeys(n for node in nodes for n in node.input if n and n in values and n not in fixed)
        model = self._model(nodes, list(reads), values, outputs, fixed)
        return session(model, {name: values[name] for name in reads})

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

    def moved(self, number: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """A model all of whose results are moved by a rounding or two, and inputs that are, too."""
        rng = np.random.default_rng(number)

        def apart(dtype: str, shape: tuple[int, ...]) -> Array:
            return np.asarray(1 + MOVED[dtype] * rng.uniform(-1, 1, shape), dtype)

        values = dict(self.values)
        for name in self.inputs:
            if values[name].dtype.name in MOVED:
                array = values[name]
                values[name] = np.asarray(array * apart(array.dtype.name, array.shape), array.dtype)
        nodes: list[onnx.NodeProto] = []
        factors: list[str] = []
        for node in self.nodes:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            nodes.append(made)
            for at, name in enumerate(node.output):
                array = self.values.get(name, self.operands.get(name))
                if array is not None and array.dtype.name in MOVED:
                    made.output[at], factor = f"{name}_still", f"{name}_factor"
                    values[factor] = apart(array.dtype.name, array.shape)
                    factors.append(factor)
                    added = f"{name}_moved" if node.op_type in (*SUMS, *OFFSET, "Erf") else name
                    nodes.append(helper.make_node("Mul", [f"{name}_still", factor], [added]))
                    if added != name:  # whose errors are parts of what is added
                        size = max(float(np.abs(array).max(initial=0)), 0.5 * (node.op_type not in SUMS))
                        values[f"{name}_term"] = np.asarray((values[factor] - 1) * size, array.dtype)
                        factors.append(f"{name}_term")
                        nodes.append(helper.make_node("Add", [added, f"{name}_term"], [name]))
        model = self._model(nodes, self.inputs, values, self.outputs, [*self.constants, *factors])
        return model, {name: values[name] for name in self.inputs}

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
        return array.dtype.kind in "biu" and float(np.abs(array.astype(float)).max(initial=0)) < 2**24
    return bool(array.size) and bool(np.all(np.isfinite(array))) and float(np.abs(array).max()) < LARGEST


def _is_defined(case: Case) -> bool:
    """Whether ONNX defines what comes out for these values; large integers are not drawn on."""
    first, second = case.given(0), case.given(1)
    if case.op in ("Cast", "CastLike", "QuantizeLinear") and first is not None and first.dtype.kind == "f":
        if case.op == "QuantizeLinear":
            return second is None or bool(np.all(np.asarray(second) > 1e-6))
        to = case.value("to")
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(to)) if to or second is None else second.dtype
        return kind.kind not in "iu" or bool(np.all((first > np.iinfo(kind).min) & (first < np.iinfo(kind).max)))
    is_whole = first is not None and first.dtype.kind in "iu"
    if is_whole and first is not None and np.max(np.abs(first.astype(float)), initial=0) >= 2**24:
        return case.op not in ("Div", "Mod", "Pow", "Neg", "Abs", "Mean") and not case.op.startswith("Reduce")
    if is_whole and case.op in ("Div", "Mod"):
        return second is not None and bool(np.all(second != 0))
    if is_whole and case.op == "Pow" and second is not None:
        size = np.abs(np.asarray(first, float))
        with np.errstate(all="ignore"):
            return bool(np.all(second >= 0) and np.all(np.asarray(size ** second.astype(float)) < 2**24))
    if is_whole and case.op == "BitShift" and second is not None:
        return bool(np.all(second < 8 * second.dtype.itemsize))
    if is_whole and case.op == "ReduceLogSum":
        return bool(np.all(np.asarray(first) > 0))
    return True


def _differs_alone(case: Case, theirs: list[Array]) -> bool:
    """Whether the operator by itself differs from ONNX Runtime for a reason that is known."""
    if not any(case.op in k.ops and RUNTIME in k.witnesses and k.holds(case) for k in DIFFERENCES):
        return False
    try:
        network = read(case.model())
        found = evaluate(network, {name: case.arrays[name] for name in network.inputs})
    except StridesmithError:
        return False
    ours = [found[name] for name in network.outputs]
    return any(
        a.shape != b.shape or bool(np.any(_apart(a, b) > CLOSE.get(b.dtype.name, 0)))
        for a, b in zip(ours, theirs, strict=True)
    )


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
    odd: str = ""
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
    # ONNX Runtime infers other shapes than it computes of a few pools: then nothing is known of how far results move.
    tried = [session(*graph.moved(number)) for number in range(2)]
    others = [*(one for one in tried if one is not None), [graph.values[name] for name in graph.outputs]]
    spread = [
        max((_apart(other[at], one) for other in others), key=lambda a: float(a.max(initial=0)))
        for at, one in enumerate(theirs)
    ]
    ours = [found[name] for name in network.outputs]
    result.why = _compared(graph, ours, theirs, spread, result)
    if result.why and (second := _by_reference(model, arrays)) is not None:
        if other := _compared(graph, ours, second, spread, Outcome(0, "")):
            result.why += f"; against the reference: {other}"
        else:
            result.odd, result.why = result.why, ""
    if not result.why and not result.odd and compiles:
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
        apart = np.nan_to_num(np.abs(a.astype(float) - b.astype(float)) / size, nan=math.inf)
        return np.where(np.isfinite(b), apart, ~((a == b) | (np.isnan(a) & np.isnan(b))))


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


def _by_reference(model: onnx.ModelProto, arrays: dict[str, Array]) -> list[Array] | None:
    """The results by the reference implementation, where it has some."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, arrays)]
    except Exception:  # what NumPy and its own asserts raise
        return None


def done(path: Path | None, seed: int) -> dict[int, Outcome]:
    """What a file has of graphs with this seed, by number."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    fields = [f.name for f in dataclasses.fields(Outcome)]
    return {row["number"]: Outcome(**{name: row[name] for name in fields}) for row in rows if row["seed"] == seed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first number")
    parser.add_argument("--compiled", type=int, default=20, help="each which graph is compiled as well; 0 for none")
    parser.add_argument("--done", type=Path, help="a file of what came of graphs, which goes on where it ended")
    parser.add_argument("--verbose", action="store_true", help="print refusals and progress, too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    kinds: collections.Counter[str] = collections.Counter()
    nodes = elements = unstable = wrong = odd = compiled_ = 0
    known = done(asked.done, asked.seed)
    for number in range(asked.first, asked.first + asked.count):
        compiles = bool(asked.compiled) and number % asked.compiled == 0
        if number in known:
            result = known[number]
        else:
            try:
                result = outcome(drawn(asked.seed, number), compiles)
            except Exception as error:  # whatever is raised that is no refusal is wrong
                result = Outcome(0, "native", f"{type(error).__name__}: {error}")
            if asked.done:
                with asked.done.open("a") as log:
                    line = {"seed": asked.seed, "number": number, **dataclasses.asdict(result)}
                    log.write(json.dumps(line) + "\n")
        kinds[result.kind] += 1
        nodes += result.nodes
        elements += result.elements
        unstable += result.unstable
        compiled_ += compiles
        if result.why and result.kind != "refused":
            wrong += 1
            print(f"WRONG {number}: {result.why}", flush=True)
        elif result.odd:
            odd += 1
            print(f"ODD {number}: {result.odd}", flush=True)
        elif asked.verbose:
            print(f"{number}: {result.nodes} nodes, {result.kind} {result.why}", flush=True)
    print(
        f"{asked.count} graphs from {asked.first} on, seed {asked.seed}, {nodes / max(asked.count, 1):.0f} nodes each, "
        f"{compiled_} compiled, {time.perf_counter() - started:.0f} s"
    )
    print(f"{wrong} wrong; {odd} where the reference says what we say, and ONNX Runtime something else")
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print(f"{elements} elements compared; {unstable} of them tell nothing, as the last digits of inputs move them far")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
