"""Tensors that decide a step: where the smallest difference may become a whole one.

A step is an operator such as Floor, QuantizeLinear or Less.  Its inputs decide it, and what these are computed of, up
to sums: the order in which a convolution adds up is open in any case.
"""

from __future__ import annotations

from ...ir import dtypes
from .graph import Graph, Node

STEPS = frozenset((
    "Floor", "Ceil", "Round", "Sign", "Mod", "QuantizeLinear", "DynamicQuantizeLinear", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "ArgMax", "ArgMin", "TopK", "Hardmax", "NonZero", "Shrink",
    "ThresholdedRelu", "NonMaxSuppression", "Unique", "LSTMOfBytes",
))  # fmt: skip
SUMS = frozenset((
    "Conv", "ConvTranspose", "DeformConv", "MatMul", "Gemm", "Einsum", "Attention", "AveragePool", "GlobalAveragePool",
    "LpPool", "GlobalLpPool", "CumSum", "CumProd", "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare", "Softmax", "LogSoftmax", "LayerNormalization",
    "RMSNormalization", "GroupNormalization", "InstanceNormalization", "LpNormalization", "MeanVarianceNormalization",
    "LRN", "LSTM", "GRU", "RNN",
))  # fmt: skip


def deciding(graph: Graph) -> frozenset[str]:
    """The names of all tensors that decide a step."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        is_on_the_way = node.op not in SUMS and not found.isdisjoint(node.outputs)
        if is_on_the_way or _is_step(graph, node):
            found.update(name for name in node.inputs if name)
    return frozenset(found)


def _is_step(graph: Graph, node: Node) -> bool:
    if node.op in ("Cast", "CastLike"):
        return not dtypes.is_float(graph.types[node.outputs[0]].dtype)
    return node.op in STEPS
