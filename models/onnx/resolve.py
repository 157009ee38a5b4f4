"""Every shape known, every constant folded, what has no effect gone: a model as a `Graph`.

Nodes are visited in order, so that a node's inputs have known shapes when it is reached:

1. what computes nothing becomes another name of its input (Identity, Dropout, a cast to the same type, ...);
2. what has only constant inputs is computed by the reference implementation of ONNX, and so are Shape and Size;
3. a branch whose condition is constant takes its place, and what has no elements is computed by nothing;
4. the shapes of what is left are inferred by ONNX, given the small constants among the inputs, but for those that its
   inference gets wrong (`definition`); those of a small node that will run by the reference implementation are what
   that gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TypeProto, numpy_helper

from ...errors import ModelProblem
from ..inputs import Given
from ..network import Array
from ..operators import BUILDERS
from ..operators.graph import OWN_DOMAIN, Node, Type
from .choosing import choice
from .counting import Counted, counting, cut_of, following
from .definition import AT_MOST, as_defined
from .definitions import defined, is_of_onnx
from .expansion import body_of, expanded
from .folding import NOT_FOLDED, evaluated, is_foldable, quantised, reference, refuse_unknown, without_effect
from .functions import inlined
from .graph import (
    ModelGraph,
    ModelNode,
    constant_names,
    free_names,
    invalid,
    model_node,
    node_of,
    ordered,
    refusing,
    type_proto,
    typed,
    with_names,
)
from .inference import inferred, refuse_unsafe
from .inputs import known_inputs
from .loops import mapped, unrolled
from .quantized import as_integers
from .reading import Weights
from .repeating import as_loop, repetition
from .sequences import listed, place, resolved

OLDEST = 7
"""The first version of the operators that is read; those of 9 to 22 are what is tested."""

SMALL = 1 << 14
"""Constants of so many elements may say something about shapes."""

NO_TYPES: Mapping[str, Type] = {}
LEARNING = "ai.onnx.ml"
"""Whose operators have shapes that do not depend on contents, also where ONNX infers none."""

Formal: TypeAlias = onnx.defs.OpSchema.FormalParameterOption


def resolve(model: ModelProto, weights: Weights, inputs: Given) -> ModelGraph:
    """The model with its shapes; `inputs` has those that it leaves open, and the values of inputs that are constants.

    Raises ModelProblem where something stays unknown or is invalid.
    """
    if model.functions:
        model = inlined(model)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", OLDEST) < OLDEST and _are_of_oldest(model.graph, opsets[""]):
        opsets[""] = OLDEST
    if not OLDEST <= opsets.get("", OLDEST) <= newest:
        raise ModelProblem(
            f"the model uses version {opsets['']} of ONNX's operators; versions {OLDEST} to {newest} are read. "
            "`onnx.version_converter.convert_version` brings a model to another version"
        )
    graph = ModelGraph(model.graph.name or "network", (), (), {}, {}, [], opsets, ir_version=model.ir_version)
    _Resolver(graph, weights).run(model.graph, inputs)
    return graph


def _are_of_oldest(graph: GraphProto, version: int) -> bool:
    """Whether all operators of a graph of an older version are still defined so in the oldest that is read."""
    return version > 0 and not any(
        node.domain not in ("", "ai.onnx")
        or not onnx.defs.has(node.op_type, OLDEST, "")
        or onnx.defs.get_schema(node.op_type, OLDEST, "").since_version > version
        or any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        for node in graph.node
    )


class _Resolver:
    """Builds a graph node by node.

    `alias` has the names of what was found to be another tensor, `lists` the tensors of each sequence, `counted` what
    is known of results of which only contents say how long they are.
    """

    def __init__(self, graph: ModelGraph, weights: Weights) -> None:
        self.graph = graph
        self.weights = weights
        self.alias: dict[str, str] = {}
        self.used: set[str] = set()
        self.lists: dict[str, list[str]] = {}
        self.counted: dict[str, Counted] = {}
        self.folded = 0

    def run(self, proto: GraphProto, inputs: Given) -> None:
        """Read a model's graph."""
        graph = self.graph
        self._initializers(proto)
        open_ones = [item for item in proto.input if item.name not in graph.constants]
        items, inputs, absent = listed(open_ones, inputs, self.lists)
        self.alias.update(dict.fromkeys(absent, ""))
        found = known_inputs(items, inputs)
        graph.inputs = tuple(name for name, what in found.items() if isinstance(what, Type))
        for name, what in found.items():
            if isinstance(what, Type):
                graph.types[name] = what
            else:
                graph.constant(name, what)
        self._nodes(proto)

    def run_inside(self, proto: GraphProto, around: ModelGraph, given: Mapping[str, Type]) -> None:
        """Read an inner graph, whose inputs are what it is `given`, and the tensors around it that it reads."""
        graph = self.graph
        self._initializers(proto)
        graph.types.update(given)
        graph.inputs = tuple(given)
        for name in dict.fromkeys(free_names(proto)):
            if name in around.constants:
                graph.constant(name, around.constants[name])
                if name in around.quantised:
                    graph.quantised[name] = around.quantised[name]
            elif name in around.types:
                graph.types[name] = around.types[name]
                graph.inputs = (*graph.inputs, name)
        self._nodes(proto)
        if any(node.op == "Cut" and node.domain == OWN_DOMAIN for node in graph.nodes):
            raise ModelProblem(
                f"the shape of a result of the branch `{proto.name}` depends on the contents of its inputs; such a "
                "model cannot be compiled"
            )

    def _nodes(self, proto: GraphProto) -> None:
        """Visit the nodes of a graph, each after those whose results it reads, and name its outputs."""
        self.used = used_names(proto)
        self.graph.taken |= self.used | {name for node in proto.node for name in node.output}
        for node in ordered([node_of(node) for node in proto.node]):
            self.visit(node)
        names = [name for output in proto.output for name in self._single(output.name)]
        self.graph.outputs = tuple(self._output(name, names) for name in names)
        self.graph.prune()

    def _initializers(self, proto: GraphProto) -> None:
        for tensor in proto.initializer:
            self.graph.constant(tensor.name, self.weights.array(tensor))
        for sparse in proto.sparse_initializer:
            self.graph.constant(sparse.values.name, self.weights.dense(sparse))

    def _single(self, name: str) -> list[str]:
        """The tensors of an output: of a sequence each one, and nothing of an optional one that is absent."""
        source = self.alias.get(name, name)
        if not source:
            return []
        if source not in self.lists:
            return [name]
        items = [(place(name, at), self.alias.get(item, item)) for at, item in enumerate(self.lists[source])]
        self.alias.update({made: item for made, item in items if made != item})
        return [made for made, _ in items]

    def _output(self, name: str, outputs: Sequence[str]) -> str:
        """A tensor of this very name for an output that is another name of something."""
        source = self.alias.get(name, name)
        if source in self.counted:
            made = cut_of(name, self.counted[source], self.graph)
            (self.graph.types[name],) = made.values["results"]
            self.graph.nodes.append(made)
            return name
        if source not in self.graph.types:
            raise ModelProblem(f"nothing in the model computes its output `{name}`")
        if source == name:
            return name
        graph = self.graph
        graph.types[name] = graph.types[source]
        graph.at_most.update([name] if source in graph.at_most else [])
        is_inner = any(source in node.outer for node in graph.nodes)
        if source in graph.constants:
            graph.constants[name] = graph.constants[source]
        elif source not in graph.inputs and source not in outputs and not is_inner:
            graph.rename(source, name)
            self.alias = {old: name if new == source else new for old, new in self.alias.items()} | {source: name}
        else:
            self.graph.nodes.append(model_node("Identity", "", f"{name} as an output", (source,), (name,)))
        return name

    def visit(self, original: ModelNode) -> None:
        """Fold a node, drop it, or add it with the types of its outputs.

        Raises ModelProblem for one that is not what ONNX defines.
        """
        with refusing(original):
            self._visit(original)

    def _visit(self, original: ModelNode) -> None:
        graph = self.graph
        node = self._wanted(original)
        if node.op in ("Optional", "Identity") and not node.domain and not any(node.inputs):
            self.alias[node.outputs[0]] = ""  # an optional value that is absent
            return
        if node.op == "SequenceMap" and not node.domain and node.inputs[0] in self.lists:
            made: Sequence[ModelNode] | None = mapped(node, graph, self.lists)
        else:
            made = resolved(node, graph, self.lists)
        if made is not None:
            for part in made:
                self.used.update((*part.reads, *part.outputs))
            for part in made:
                self.visit(part)
            return
        if self._follows(node):
            return
        self._refuse_names(node)
        node = self._with_empty_constants(node)
        node = self._with_numbers(node) if node.op == "Range" and not node.domain else node
        known = {name: graph.constants[name] for name in node.reads if name in graph.constants}
        if node.op == "If" and not node.domain:
            self._if(node)
            return
        if any(name in self.lists for name in node.reads) or (node.op == "Loop" and not all(node.inputs[2:])):
            self._with_lists(node, known)
            return
        if node.domain == OWN_DOMAIN:  # which `Parts.own` makes
            results = zip(node.outputs, node.values["results"], strict=False)  # the last ones may be unwanted
            graph.types.update({name: found for name, found in results if name})
            graph.nodes.append(node)
            return
        if (parts := defined(node, graph)) is not None:
            self._taken_apart(node, parts, [None] * len(node.outputs))
            return
        self._add(node, known)

    def _with_lists(self, node: ModelNode, known: Mapping[str, Array]) -> None:
        """The iterations of a loop that goes on with sequences, or what is absent; ModelProblem for any other node."""
        inner = unrolled(node, self.graph, known)
        if inner is None:
            raise ModelProblem(
                f"the node {node} reads a sequence, and is no loop whose iterations are known when the model is read"
            )
        self._taken_apart(node, inner, [None] * len(node.outputs))

    def _add(self, node: ModelNode, known: dict[str, Array]) -> None:
        """Add a node of ONNX with its types, or others that compute the same; `known` has constants that it reads."""
        graph = self.graph
        graph.schema(node)  # which there is none of for what nobody defines
        inferred = self._inferred(node, known)
        types = as_defined(node, graph, [_fixed(found) for found in inferred])
        if _are_unknown(node, types):
            types = self._by_reference(node) if node.domain == LEARNING else self._by_body(node, types)
        if (source := without_effect(node, graph, types[0])) is not None:
            self.alias[node.outputs[0]] = source
            graph.note(node, "without effect")
            return
        if self._is_empty(node, types) or (is_foldable(node, types, known, self.folded) and self._fold(node, types)):
            return
        if self._counts(node):
            return
        inner = as_integers(node, graph, types[0]) or expanded(node, graph) or unrolled(node, graph, known)
        inner = inner or as_loop(node, graph, types)
        if inner is not None and self._taken_apart(node, inner, types):
            return
        if repetition(node, graph, known, types, self._inside):
            return
        _require_known(node, types, inferred)
        if node.op == "Split" and not node.domain:  # a part without elements is known, and nothing has to compute it
            empty = {n: part for n, part in zip(node.outputs, types, strict=True) if n and part and not part.size}
            for name, part in empty.items():
                graph.constant(name, np.empty(part.shape, part.dtype))
            node = replace(node, outputs=tuple("" if name in empty else name for name in node.outputs))
        types = self._tried(node, types)
        for name, found in zip(node.outputs, types, strict=False):
            if name and found is not None:
                graph.types[name] = found
        if node.op in AT_MOST and not node.domain:
            graph.at_most.update(node.outputs)
        graph.nodes.append(node)

    def _with_empty_constants(self, node: ModelNode) -> ModelNode:
        """The node with constants for inputs that have no elements, of which everything is known."""
        graph = self.graph
        unknown = [n for n in dict.fromkeys(node.inputs) if n in graph.types and n not in graph.constants]
        empty = [name for name in unknown if not graph.types[name].size]
        if not empty:
            return node
        made = {name: graph.fresh(f"{name}/nothing") for name in empty}
        for name, constant in made.items():
            graph.constant(constant, np.empty(graph.types[name].shape, graph.types[name].dtype))
        return replace(node, inputs=tuple(made.get(name, name) for name in node.inputs))

    def _with_numbers(self, node: ModelNode) -> ModelNode:
        """A Range whose constants of one element have no dimensions, as ONNX's own bodies do not always have it."""
        graph, made = self.graph, []
        for name in node.inputs:
            array = graph.constants.get(name)
            if array is not None and array.size == 1 and array.ndim:
                name = graph.fresh(f"{name}/number")
                graph.constant(name, array.reshape(()))
            made.append(name)
        return replace(node, inputs=tuple(made))

    def _refuse_names(self, node: ModelNode) -> None:
        """Raise ModelProblem for a node that reads what nothing computes, or writes what there is."""
        for name in node.reads:
            if name not in self.graph.types and name not in self.lists:
                raise invalid(node, f"it reads `{name}`, which nothing before it computes")
        first = next((name for name in node.reads if name in self.graph.at_most), None)
        if first is not None and node.op != "Identity":
            raise ModelProblem(
                f"the shape of `{first}`, which the node {node} reads, depends on the contents of the model's inputs; "
                "it can only be an output"
            )
        for name in node.outputs:
            if name and (name in self.graph.types or name in self.alias or name in self.counted):
                raise invalid(node, f"it writes `{name}`, which there is already")

    def _counts(self, node: ModelNode) -> bool:
        """Take apart a node whose results are as long as contents say; False for any other."""
        made = counting(node, self.graph)
        if made is not None:
            self._counted(node, *made)
        return made is not None

    def _follows(self, node: ModelNode) -> bool:
        """Take apart a node that reads such a result; False for any other.  Raises ModelProblem where that cannot be.

        What asks for all dimensions, as Shape does, is of this kind.
        """
        first = next((name for name in node.reads if name in self.counted), None)
        if first is None:
            return False
        made = following(node, self.graph, self.counted)
        if made is None:
            raise ModelProblem(
                f"the shape of `{first}`, which the node {node} reads, depends on the contents of the model's inputs; "
                "nothing but elements of it can be computed"
            )
        self._counted(node, *made)
        return True

    def _counted(self, node: ModelNode, parts: Sequence[ModelNode], found: Mapping[str, Counted]) -> None:
        """Visit the nodes that take the place of one, some of whose results are `found` to count in part."""
        self.used.update(name for part in parts for name in (*part.reads, *part.outputs))
        self.used.update(name for counted in found.values() for name in (counted.whole, counted.count))
        for part in parts:
            self.visit(part)
        for name, counted in found.items():
            whole, count = (self.alias.get(inner, inner) for inner in (counted.whole, counted.count))
            self.counted[name] = replace(counted, whole=whole, count=count)
        self.graph.note(node, f"written as {', '.join(dict.fromkeys(part.op for part in parts))}, and a count")

    def _if(self, node: ModelNode) -> None:
        """The branch that a known condition takes in the place of an If, else a choice between both."""
        condition = self.graph.constants.get(node.inputs[0])
        if condition is None:
            choice(node, self.graph, self._inside)
            return
        if condition.size != 1:
            raise invalid(node, f"its condition has {condition.size} elements, and not one")
        self._branch(node, bool(condition))

    def _inside(self, proto: GraphProto, given: Mapping[str, Type] = NO_TYPES) -> ModelGraph:
        """The graph of a branch, or of a loop whose inputs are `given`, with what it reads around it as inputs."""
        around = self.graph
        graph = ModelGraph(proto.name, (), (), {}, {}, [], around.opsets, ir_version=around.ir_version)
        inner = _Resolver(graph, self.weights)
        inner.folded = self.folded
        inner.run_inside(proto, around, given)
        self.folded = inner.folded
        return graph

    def _by_body(self, node: ModelNode, types: list[Type | None]) -> list[Type | None]:
        """The types of a node's results as the body that ONNX gives it has them; those of `types` where it has none."""
        inner = body_of(node, self.graph)
        if inner is None:
            return types
        restored = self._restoring()
        self.used.update(name for part in inner for name in (*part.reads, *part.outputs))
        try:
            for part in inner:
                self.visit(part)
            return [
                self.graph.types.get(self.alias.get(name, name)) if name and found is None else found
                for name, found in zip(node.outputs, types, strict=True)
            ]
        except ModelProblem:
            return types
        finally:
            restored()

    def _by_reference(self, node: ModelNode) -> list[Type | None]:
        """The types of a node's results as the reference implementation has them, on zeros; None where it fails."""
        given = {n: self.graph.constants.get(n, _nothing(self.graph.types[n])) for n in node.reads}
        values = reference(self.graph.model(node), given)
        if values is None or not all(isinstance(value, np.ndarray) for value in values):
            return [None] * len(node.outputs)
        found = dict(zip([name for name in node.outputs if name], values, strict=True))
        types = {n: Type(a.shape, "object" if a.dtype.kind in "OSU" else str(a.dtype)) for n, a in found.items()}
        return [types.get(name) for name in node.outputs]

    def _restoring(self) -> Callable[[], None]:
        """A function that brings the graph and this resolver back to their state at this call."""
        graph = self.graph
        before = dict(graph.types), dict(graph.constants), list(graph.nodes), list(graph.notes), dict(graph.quantised)
        alias, used, folded, counted = dict(self.alias), set(self.used), self.folded, dict(self.counted)
        lists = dict(self.lists)

        def restore() -> None:
            graph.types, graph.constants, graph.nodes, graph.notes, graph.quantised = before
            self.alias, self.used, self.folded, self.counted, self.lists = alias, used, folded, counted, lists

        return restore

    def _taken_apart(self, node: ModelNode, inner: Sequence[ModelNode], types: Sequence[Type | None]) -> bool:
        """Put a node's body in its place; False where something in there cannot be, but the node as a whole can."""
        graph = self.graph
        restore = self._restoring()
        graph.note(node, f"written as {', '.join(dict.fromkeys(part.op for part in inner))}")
        self.used.update(name for part in inner for name in (*part.reads, *part.outputs))
        try:
            for part in ordered(list(inner)):
                self.visit(part)
        except ModelProblem:
            if _are_unknown(node, types):
                raise
            restore()
            return False
        return True

    def _wanted(self, node: ModelNode) -> ModelNode:
        """The node with the names that its inputs have now, and without optional outputs that nothing reads.

        Of outputs of any number, those that nothing reads have no name, but stay: they are counted.
        """
        inputs = tuple(self.alias.get(name, name) for name in node.inputs)
        if node.op == "Concat" and not node.domain:  # a part without elements is nothing
            parts = [name for name in inputs if name not in self.graph.types or self.graph.types[name].size]
            inputs = tuple(parts) or inputs
        attributes = tuple(with_names(a, self.alias) for a in node.attributes)
        kinds = _kinds_of_outputs(node, self.graph)
        outputs = [
            name if kind == Formal.Single or name in self.used or not at else ""
            for at, (name, kind) in enumerate(zip(node.outputs, kinds, strict=True))
        ]
        while len(outputs) > 1 and not outputs[-1] and kinds[len(outputs) - 1] == Formal.Optional:
            outputs.pop()
        changed = any(new is not old for new, old in zip(attributes, node.attributes, strict=True))
        made = node.with_attributes(attributes) if changed else node
        return replace(made, inputs=inputs, outputs=tuple(outputs))

    def _branch(self, node: ModelNode, taken: bool) -> None:
        """The nodes of the branch that is taken, under names of their own."""
        graph = node.values["then_branch" if taken else "else_branch"]
        own = {n for part in graph.node for n in part.output if n} | constant_names(graph)
        names = {name: self.graph.fresh(f"{node.outputs[0]}/{name}") for name in sorted(own)}
        self.used.update(names.get(name, name) for name in used_names(graph))
        for tensor in graph.initializer:
            self.graph.constant(names[tensor.name], self.weights.array(tensor))
        for sparse in graph.sparse_initializer:
            self.graph.constant(names[sparse.values.name], self.weights.dense(sparse))
        for part in ordered([node_of(proto) for proto in graph.node]):
            attributes = tuple(with_names(a, names) for a in part.attributes)
            inputs, outputs = (tuple(names.get(n, n) for n in side) for side in (part.inputs, part.outputs))
            self.visit(replace(part.with_attributes(attributes), inputs=inputs, outputs=outputs, version=node.version))
        for outer, inner in zip(node.outputs, graph.output, strict=True):
            renamed = names.get(inner.name, inner.name)
            if outer:  # else nothing reads it, and no name stands for an input that is left out
                self.alias[outer] = self.alias.get(renamed, renamed)
        self.graph.note(node, "the branch that its constant condition takes")

    def _is_empty(self, node: Node, types: Sequence[Type | None]) -> bool:
        """Whether the results have no elements, so that there is nothing to compute; they are constants then."""
        wanted = {name: found for name, found in zip(node.outputs, types, strict=True) if name}
        if not wanted or not all(found is not None and not found.size for found in wanted.values()):
            return False
        for name, found in wanted.items():
            if found is not None:
                self.graph.constant(name, np.empty(found.shape, found.dtype))
        self.graph.note(node, "nothing, as it has no elements")
        return True

    def _fold(self, node: Node, types: Sequence[Type | None]) -> bool:
        """Compute a node now; False where the reference implementation cannot."""
        values = evaluated(self.graph, node, types)
        if values is None:
            return False
        for name, value in zip(node.outputs, values, strict=False):
            if name:
                self.graph.constant(name, value)
                self.folded += value.nbytes
        if (found := quantised(self.graph, node)) is not None:
            self.graph.quantised[node.outputs[0]] = found
        self.graph.note(node, "constant")
        return True

    def _tried(self, node: Node, types: list[Type | None]) -> list[Type | None]:
        """The types of a small node that will be foreign, as the reference implementation has them.

        Raises ModelProblem where it has no such operator.
        """
        graph = self.graph
        if (node.domain, node.op) in BUILDERS or node.op in NOT_FOLDED:
            return types
        refuse_unknown(graph.model(node), node)
        known = [found for found in types if found is not None]
        if sum(t.size for t in (*known, *(graph.types[name] for name in node.reads))) > SMALL:
            return types
        given = {n: graph.constants.get(n, np.zeros(graph.types[n].shape, graph.types[n].dtype)) for n in node.reads}
        values = reference(graph.model(node), given)
        if values is None:
            return types
        shapes = dict(zip([name for name in node.outputs if name], values, strict=True))
        return [
            found if found is None else Type(np.shape(shapes[name]), found.dtype)
            for name, found in zip(node.outputs, types, strict=True)
        ]

    def _inferred(self, node: ModelNode, known: Mapping[str, Array]) -> list[TypeProto | None]:
        """The types of a node's outputs, as far as ONNX can tell; None for what is not wanted."""
        protos = {name: type_proto(self.graph.types[name]) for name in node.reads}
        data = {n: numpy_helper.from_array(a) for n, a in known.items() if a.size <= SMALL and a.dtype != object}
        refuse_unsafe(self.graph, node, protos, data)
        found = inferred(self.graph, node, protos, data)
        return [found.get(name) if name else None for name in node.outputs]


def _nothing(found: Type) -> Array:
    """Zeros of a type, or empty texts."""
    return np.full(found.shape, "", object) if found.dtype == "object" else np.zeros(found.shape, found.dtype)


def _fixed(found: TypeProto | None) -> Type | None:
    """A tensor's type whose shape is known; None for anything else."""
    if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        return None
    dims = found.tensor_type.shape.dim
    known = all(dim.HasField("dim_value") for dim in dims)
    return typed([dim.dim_value for dim in dims], found.tensor_type.elem_type) if known else None


def _require_known(node: Node, types: Sequence[Type | None], inferred: Sequence[TypeProto | None]) -> None:
    """Raise ModelProblem for a result that is no tensor, or whose shape is not known."""
    for name, known, found in zip(node.outputs, types, inferred, strict=True):
        if name and known is None and found is not None and not found.HasField("tensor_type"):
            raise ModelProblem(
                f"the node {node} computes `{name}`, which is no tensor but a {found.WhichOneof('value')}; networks "
                "pass only tensors"
            )
        if name and known is None:
            raise ModelProblem(
                f"the shape of `{name}`, which the node {node} computes, depends on the contents of its inputs; such a "
                "model cannot be compiled"
            )


def _are_unknown(node: Node, types: Sequence[Type | None]) -> bool:
    """Whether the type of a result that is wanted is not known."""
    return any(found is None and name for found, name in zip(types, node.outputs, strict=True))


def _kinds_of_outputs(node: ModelNode, graph: ModelGraph) -> list[Formal]:
    """Whether each output must be there, may be, or is one of any number; those that ONNX does not know may be."""
    count = len(node.outputs)
    if not is_of_onnx(node, graph):
        return [Formal.Single, *[Formal.Optional] * count][:count]
    known = [formal.option for formal in graph.schema(node).outputs]
    return [*known, *known[-1:] * count][:count]


def used_names(graph: GraphProto) -> set[str]:
    """All names that nodes of a graph read, inner graphs included, and its outputs."""
    found = {output.name for output in graph.output}
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                found |= used_names(inner)
    return found
