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

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from ...errors import ModelProblem, did_you_mean
from ..network import Array
from ..operators import BUILDERS
from ..operators.graph import Node, Type
from .definition import as_defined
from .expansion import expanded
from .folding import NOT_FOLDED, evaluated, is_foldable, quantised, reference, refuse_unknown, without_effect
from .functions import inlined
from .graph import (
    ModelGraph,
    ModelNode,
    constant_names,
    invalid,
    model_node,
    node_of,
    refusing,
    type_proto,
    typed,
    with_names,
)
from .inference import inferred, refuse_unsafe
from .loops import unrolled
from .quantized import as_integers
from .reading import Weights

OLDEST = 7
"""The first version of the operators that is read; those of 9 to 22 are what is tested."""

SMALL = 1 << 14
"""Constants of so many elements may say something about shapes."""

Formal: TypeAlias = onnx.defs.OpSchema.FormalParameterOption
Shapes = Mapping[str, Sequence[int]]


def resolve(model: ModelProto, weights: Weights, inputs: Shapes) -> ModelGraph:
    """The model with its shapes, of which `inputs` gives those that the model leaves open.

    Raises ModelProblem where something stays unknown or is invalid.
    """
    if model.functions:
        model = inlined(model)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opsets.get("", OLDEST) <= newest:
        raise ModelProblem(
            f"the model uses version {opsets['']} of ONNX's operators; versions {OLDEST} to {newest} are read. "
            "`onnx.version_converter.convert_version` brings a model to another version"
        )
    graph = ModelGraph(model.graph.name or "network", (), (), {}, {}, [], opsets, ir_version=model.ir_version)
    _Resolver(graph, weights).run(model.graph, inputs)
    graph.prune()
    return graph


class _Resolver:
    """Builds a graph node by node; `alias` has the names of what was found to be another tensor."""

    def __init__(self, graph: ModelGraph, weights: Weights) -> None:
        self.graph = graph
        self.weights = weights
        self.alias: dict[str, str] = {}
        self.used: set[str] = set()
        self.folded = 0

    def run(self, proto: GraphProto, inputs: Shapes) -> None:
        """Read a model's graph."""
        self._initializers(proto)
        self.used = used_names(proto)
        self.graph.taken |= self.used | {name for node in proto.node for name in node.output}
        given = [i for i in proto.input if i.name not in self.graph.constants]
        shapes = _input_shapes(given, inputs)
        for item in given:
            self.graph.types[item.name] = typed(shapes[item.name], item.type.tensor_type.elem_type)
        self.graph.inputs = tuple(shapes)
        for node in proto.node:
            self.visit(node_of(node))
        names = [o.name for o in proto.output]
        self.graph.outputs = tuple(self._output(name, names) for name in names)

    def _initializers(self, proto: GraphProto) -> None:
        for tensor in proto.initializer:
            self.graph.constant(tensor.name, self.weights.array(tensor))
        for sparse in proto.sparse_initializer:
            self.graph.constant(sparse.values.name, self.weights.dense(sparse))

    def _output(self, name: str, outputs: Sequence[str]) -> str:
        """A tensor of this very name for an output that is another name of something."""
        source = self.alias.get(name, name)
        if source not in self.graph.types:
            raise ModelProblem(f"nothing in the model computes its output `{name}`")
        if source == name:
            return name
        graph = self.graph
        graph.types[name] = graph.types[source]
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
        for name in node.reads:
            if name not in graph.types:
                raise invalid(node, f"it reads `{name}`, which nothing before it computes")
        for name in node.outputs:
            if name and (name in graph.types or name in self.alias):
                raise invalid(node, f"it writes `{name}`, which there is already")
        known = {name: graph.constants[name] for name in node.reads if name in graph.constants}
        if node.op == "If" and node.inputs[0] in known:
            if known[node.inputs[0]].size != 1:
                raise invalid(node, f"its condition has {known[node.inputs[0]].size} elements, and not one")
            self._branch(node, bool(known[node.inputs[0]]))
            return
        inferred = self._inferred(node, known)
        types = as_defined(node, graph, [_fixed(found) for found in inferred])
        if (source := without_effect(node, graph, types[0])) is not None:
            self.alias[node.outputs[0]] = source
            graph.note(node, "without effect")
            return
        if self._is_empty(node, types) or (is_foldable(node, types, known, self.folded) and self._fold(node, types)):
            return
        inner = as_integers(node, graph, types[0]) or expanded(node, graph) or unrolled(node, graph, known)
        if inner is not None and self._taken_apart(node, inner, types):
            return
        _require_known(node, types, inferred)
        types = self._tried(node, types)
        for name, found in zip(node.outputs, types, strict=False):
            if name and found is not None:
                graph.types[name] = found
        graph.nodes.append(node)

    def _taken_apart(self, node: ModelNode, inner: Sequence[ModelNode], types: Sequence[Type | None]) -> bool:
        """Put a node's body in its place; False where something in there cannot be, but the node as a whole can."""
        graph = self.graph
        before = dict(graph.types), dict(graph.constants), list(graph.nodes), list(graph.notes)
        alias, used = dict(self.alias), set(self.used)
        graph.note(node, f"written as {', '.join(dict.fromkeys(part.op for part in inner))}")
        self.used.update(name for part in inner for name in (*part.reads, *part.outputs))
        try:
            for part in inner:
                self.visit(part)
        except ModelProblem:
            if any(found is None and name for found, name in zip(types, node.outputs, strict=True)):
                raise
            graph.types, graph.constants, graph.nodes, graph.notes = before
            self.alias, self.used = alias, used
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
        kinds = _kinds_of_outputs(self.graph.schema(node), len(node.outputs))
        outputs = [
            name if kind == Formal.Single or name in self.used or not at else ""
            for at, (name, kind) in enumerate(zip(node.outputs, kinds, strict=True))
        ]
        while len(outputs) > 1 and not outputs[-1] and kinds[len(outputs) - 1] == Formal.Optional:
            outputs.pop()
        return model_node(node.op, node.domain, node.name, inputs, outputs, attributes)

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
        for proto in graph.node:
            part = node_of(proto)
            attributes = tuple(with_names(a, names) for a in part.attributes)
            inputs, outputs = (tuple(names.get(n, n) for n in side) for side in (part.inputs, part.outputs))
            self.visit(model_node(part.op, part.domain, part.name, inputs, outputs, attributes))
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


def _kinds_of_outputs(schema: onnx.defs.OpSchema, count: int) -> list[Formal]:
    """Whether each of so many outputs must be there, may be, or is one of any number."""
    known = [formal.option for formal in schema.outputs]
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


def _input_shapes(given: Sequence[ValueInfoProto], inputs: Shapes) -> dict[str, tuple[int, ...]]:
    """The shape of each input, from the model and from what the caller says.

    A name that stands for an extent has one value in the whole model.
    """
    names = [item.name for item in given]
    for name in inputs:
        if name not in names:
            raise ModelProblem(
                f"the model has no input `{name}`{did_you_mean(name, names)}; it has {', '.join(names) or 'none'}"
            )
    symbols: dict[str, int] = {}
    for item in given:
        if item.name in inputs:
            _compare(item, tuple(inputs[item.name]), symbols)
    shapes = {}
    for item in given:
        tensor = item.type.tensor_type
        if not item.type.HasField("tensor_type") or tensor.elem_type == TensorProto.UNDEFINED:
            kind = item.type.WhichOneof("value") or "of unknown type"
            raise ModelProblem(
                f"the input `{item.name}` is no tensor ({kind}); only tensors can be passed to a network"
            )
        if tensor.elem_type not in TensorProto.DataType.values():
            raise ModelProblem(f"the input `{item.name}` is damaged: no element type has the number {tensor.elem_type}")
        if item.name in inputs:
            shapes[item.name] = tuple(int(extent) for extent in inputs[item.name])
            continue
        found = [d.dim_value if _is_fixed(d) else symbols.get(_symbol(d)) for d in tensor.shape.dim]
        if not tensor.HasField("shape") or None in found:
            shown = ",".join(_shown(d) for d in tensor.shape.dim) if tensor.HasField("shape") else "of any rank"
            example = "x".join(str(extent or "N") for extent in found) or "SHAPE"
            raise ModelProblem(
                f"the model leaves the shape of its input `{item.name}` open ({shown}); say it with "
                f"`--input {item.name}={example}`, with a number for each extent"
            )
        shapes[item.name] = tuple(extent for extent in found if extent is not None)
    return shapes


def _compare(item: ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Raise ModelProblem unless `shape` is one that the model allows; learn what its symbols stand for."""
    tensor = item.type.tensor_type
    asked = "x".join(map(str, shape))
    if any(extent < 0 for extent in shape):
        raise ModelProblem(f"the shape {asked} for the input `{item.name}` has a negative extent")
    if not tensor.HasField("shape"):
        return
    dims = tensor.shape.dim
    shown = ",".join(map(_shown, dims))
    if len(dims) != len(shape):
        raise ModelProblem(
            f"the input `{item.name}` has {len(dims)} dimensions ({shown}), but {asked} has {len(shape)}; give one "
            "number for each"
        )
    for dim, extent in zip(dims, shape, strict=True):
        expected = dim.dim_value if _is_fixed(dim) else symbols.setdefault(_symbol(dim) or f"\0{len(symbols)}", extent)
        if expected != extent:
            raise ModelProblem(
                f"the input `{item.name}` of shape {shown} cannot be {asked}: `{_shown(dim)}` is {expected} in "
                "this model"
            )


def _is_fixed(dim: Any) -> bool:
    """Whether an extent is a number; some exporters write -1 for one that is not."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _symbol(dim: Any) -> str:
    """The name that stands for an extent wherever it appears; none for ``?``, which stands for any."""
    return "" if dim.dim_param == "?" else str(dim.dim_param)


def _shown(dim: Any) -> str:
    return str(dim.dim_value) if _is_fixed(dim) else dim.dim_param or "?"
