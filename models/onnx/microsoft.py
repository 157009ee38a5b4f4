"""Operators of ONNX Runtime's domain ``com.microsoft``, and those that it adds to ONNX's own, by what they compute.

Each is said in operators of ONNX, for which there are programs, and which fusion puts together as it does others.
A function adds the nodes and gives whether it could: False is for what ONNX Runtime has not on CPUs, either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..operators.graph import Type
from .attention import attention, multi_head_attention, rotary_embedding
from .grouped_attention import group_query_attention
from .parts import Parts

Definition: TypeAlias = Callable[[Parts], bool]

DOMAIN = "com.microsoft"
LAST = [-1]


def _gelu(p: Parts) -> bool:
    p.add("Gelu", [0], 0)
    return True


def _fast_gelu(p: Parts) -> bool:
    x = p.add("Add", [0, 1]) if p.has(1) else 0
    p.add("Gelu", [x], 0, approximate="tanh")
    return True


def _bias_gelu(p: Parts) -> bool:
    p.add("Gelu", [p.add("Add", [0, 1])], 0)
    return True


def _quick_gelu(p: Parts) -> bool:
    """``x sigmoid(alpha x)``."""
    scaled = p.add("Mul", [0, p.number(p.attribute("alpha", 1.702))])
    p.add("Mul", [0, p.add("Sigmoid", [scaled])], 0)
    return True


def _bias_split_gelu(p: Parts) -> bool:
    """The first half of the last dimension times the Gelu of the second."""
    x, half = p.add("Add", [0, 1]), p.shape()[-1] // 2
    right = p.add("Gelu", [p.sliced(x, -1, half, 2 * half)])
    p.add("Mul", [p.sliced(x, -1, 0, half), right], 0)
    return True


def _bias_add(p: Parts) -> bool:
    p.add("Add", [p.add("Add", [0, 1]), 2], 0)
    return True


def _bias_softmax(p: Parts) -> bool:
    rank = len(p.shape())
    axis = int(p.attribute("axis", 1)) % rank
    if axis != rank - 1 or len(p.shape(1)) != rank:
        return False
    p.add("Softmax", [p.add("Add", [0, 1])], 0, axis=-1)
    return True


def _layer_normalization(p: Parts) -> bool:
    """The LayerNormalization of ONNX since version 17, with the same inputs."""
    p.add(
        "LayerNormalization", [at for at in range(3) if p.has(at)], range(max(1, len(p.whole.outputs))),
        axis=int(p.attribute("axis", -1)), epsilon=float(p.attribute("epsilon", 1e-5)),
    )  # fmt: skip
    return True


def _simplified_layer_normalization(p: Parts) -> bool:
    rank = len(p.shape())
    axis = int(p.attribute("axis", -1)) % rank
    _root_mean_square(p, 0, 1, range(axis, rank), (0, 1))
    return True


def _root_mean_square(p: Parts, x: int | str, scale: int, axes: Sequence[int], into: tuple[int, int]) -> None:
    """``x / sqrt(mean of x**2 + epsilon) scale``, halves computed in float32; outputs: that, and one over the root."""
    dtype = p.type().dtype
    inner = "float32" if dtype == "float16" else dtype
    wide = p.cast(x, inner) if inner != dtype else x
    mean = p.add("ReduceMean", [p.add("Mul", [wide, wide]), p.constant(list(axes), "int64")], keepdims=1)
    root = p.add("Sqrt", [p.add("Add", [mean, p.constant(p.attribute("epsilon", 1e-5), inner)])])
    if p.wants(into[1]):
        p.add("Reciprocal", [root], into[1])
    scaled = p.add("Div", [wide, root])
    p.add("Mul", [p.cast(scaled, dtype) if inner != dtype else scaled, scale], into[0])


def _added(p: Parts, bias: int) -> str:
    """The sum of an input, what skipped layers, and a bias where there is one, which may leave as output 3."""
    total = p.add("Add", [0, 1], -1 if p.has(bias) or not p.wants(3) else 3)
    return p.add("Add", [total, bias], 3 if p.wants(3) else -1) if p.has(bias) else total


def _skip_layer_normalization(p: Parts) -> bool:
    if p.wants(1) or p.wants(2):
        return False
    epsilon = float(p.attribute("epsilon", 1e-12))
    p.add("LayerNormalization", [_added(p, 4), 2, *([3] if p.has(3) else [])], 0, axis=-1, epsilon=epsilon)
    return True


def _skip_simplified_layer_normalization(p: Parts) -> bool:
    if p.wants(1) or p.wants(2):
        return False
    _root_mean_square(p, _added(p, 3), 2, LAST, (0, 2))
    return True


def _embed_layer_normalization(p: Parts) -> bool:
    """The sum of three embeddings, normalised; and how many tokens of each row the mask has."""
    batch, length = p.shape()
    places = 8 if p.has(8) else p.constant([range(length)], "int64")
    both = [p.add("Gather", [2, 0]), p.add("Gather", [3, places])]
    total = p.add("Add", both, -1 if p.has(1) or not p.wants(2) else 2)
    if p.has(1):
        total = p.add("Add", [total, p.add("Gather", [4, 1])], 2 if p.wants(2) else -1)
    p.add("LayerNormalization", [total, 5, 6], 0, axis=-1, epsilon=float(p.attribute("epsilon", 1e-12)))
    if p.wants(1) and not p.has(7):
        p.add("Identity", [p.constant([0] * batch, "int32")], 1)
    elif p.wants(1):
        is_there = p.cast(p.add("Equal", [7, p.number(1, like=7)]), "int32")
        p.add("ReduceSum", [is_there, p.constant([1], "int64")], 1, keepdims=0)
    return True


def _matrix(p: Parts, at: int, side: str) -> int | str:
    """An operand of FusedMatMul: its first dimension behind those of the batch, then its last two exchanged."""
    rank = len(p.shape(at))
    order = list(range(rank))
    if p.attribute(f"transBatch{side}", 0) and rank > 2:
        order = [*order[1:-1], 0, rank - 1]
    if p.attribute(f"trans{side}", 0) and rank > 1:
        order[-2:] = order[:-3:-1]
    return p.add("Transpose", [at], perm=order) if order != sorted(order) else at


def _fused_matmul(p: Parts) -> bool:
    alpha = float(p.attribute("alpha", 1.0))
    activation = str(p.attribute("activation", ""))
    last = 0 if alpha == 1 and not activation else -1
    y = p.add("MatMul", [_matrix(p, 0, "A"), _matrix(p, 1, "B")], last)
    if alpha != 1:
        y = p.add("Mul", [y, p.number(alpha)], -1 if activation else 0)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return not activation or _activated(p, y, [p.attribute(name) for name in names])


def _fused_gemm(p: Parts) -> bool:
    kept = {name: p.attribute(name) for name in ("alpha", "beta", "transA", "transB")}
    y = p.add("Gemm", [at for at in range(3) if p.has(at)], **kept)
    return _activated(p, y, [p.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")])


def _fused_conv(p: Parts) -> bool:
    """A convolution, to which a tensor may be added, and an activation."""
    y = p.add("Conv", [at for at in range(3) if p.has(at)], **_convolution(p))
    if p.has(3):
        y = p.add("Add", [y, 3])
    return _activated(p, y, list(p.attribute("activation_params", [])))


def _convolution(p: Parts) -> dict[str, Any]:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return {name: p.attribute(name) for name in names}


def _activated(p: Parts, y: str, numbers: Sequence[float | None]) -> bool:
    """The activation of a fused operator, by its attributes; the numbers that it leaves out are ONNX's defaults."""
    name = str(p.attribute("activation", ""))
    given = {
        "": (), "Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (), "HardSwish": (),
        "LeakyRelu": ("alpha",), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
        "Clip": ("min", "max"),
    }.get(name)  # fmt: skip
    if given is None:
        return False
    if name == "Clip":
        ends = [p.number(float(number)) if number is not None else "" for number in numbers]
        p.add("Clip", [y, *ends], 0)
    else:
        p.add(name or "Identity", [y], 0, **dict(zip(given, numbers, strict=False)))
    return True


def _channels_last(p: Parts) -> bool:
    """A convolution of images whose channels are the last dimension, and whose weights' channels are, too."""
    rank = len(p.shape())
    first = [0, rank - 1, *range(1, rank - 1)]
    operands: list[int | str] = [p.add("Transpose", [at], perm=first) for at in (0, 1)]
    y = p.add("Conv", [*operands, *([2] if p.has(2) else [])], **_convolution(p))
    last = [0, *range(2, rank), 1]
    if not p.has(3) and not p.attribute("activation", ""):
        p.add("Transpose", [y], 0, perm=last)
        return True
    y = p.add("Transpose", [y], perm=last)
    y = p.add("Add", [y, 3]) if p.has(3) else y
    return _activated(p, y, list(p.attribute("activation_params", [])))


def _grid_sample(p: Parts) -> bool:
    """As ONNX has it, but for cubics at a border: there each tap is moved into the image, not the place of all."""
    mode, align = str(p.attribute("mode", "bilinear")), p.attribute("align_corners", 0)
    if mode == "bicubic" and p.attribute("padding_mode", "zeros") == "border" and len(p.shape()) == 4:
        result = Type((*p.shape()[:2], *p.shape(1)[1:-1]), p.type(0).dtype)
        p.own("GridSample", [0, 1], result, 0, mode="cubic", padding_mode="taps", align_corners=align)
        return True
    p.add(
        "GridSample", [0, 1], 0, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=p.attribute("padding_mode"), align_corners=align,
    )  # fmt: skip
    return True


def _distances(p: Parts) -> bool:
    """The distance of each row of the first matrix to each of the second."""
    (m, k), (n, _) = p.shape(0), p.shape(1)
    apart = p.add("Sub", [p.reshaped(0, (m, 1, k)), p.reshaped(1, (1, n, k))])
    total = p.add("ReduceSumSquare", [apart, p.constant([2], "int64")], keepdims=0)
    p.add("Sqrt" if p.attribute("metric", "sqeuclidean") == "euclidean" else "Identity", [total], 0)
    return True


def _expand_dims(p: Parts) -> bool:
    axis = p.known(1)
    if axis is None:
        return False
    p.add("Unsqueeze", [0, p.constant([int(axis.reshape(-1)[0])], "int64")], 0)
    return True


def _same(op: str) -> Definition:
    """The definition of an operator that is ONNX's of this name."""

    def define(p: Parts) -> bool:
        attributes = {name: p.attribute(name) for name in p.whole.values}
        p.add(op, range(len(p.whole.inputs)), range(len(p.whole.outputs)), **attributes)
        return True

    return define


DEFINITIONS: Mapping[tuple[str, str], Definition] = {
    ("", "LayerNormalization"): _layer_normalization,
    ("", "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    (DOMAIN, "Gelu"): _gelu,
    (DOMAIN, "FastGelu"): _fast_gelu,
    (DOMAIN, "BiasGelu"): _bias_gelu,
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "BiasSplitGelu"): _bias_split_gelu,
    (DOMAIN, "BiasAdd"): _bias_add,
    (DOMAIN, "BiasSoftmax"): _bias_softmax,
    (DOMAIN, "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    (DOMAIN, "SkipLayerNormalization"): _skip_layer_normalization,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_simplified_layer_normalization,
    (DOMAIN, "EmbedLayerNormalization"): _embed_layer_normalization,
    (DOMAIN, "Attention"): attention,
    (DOMAIN, "MultiHeadAttention"): multi_head_attention,
    (DOMAIN, "GroupQueryAttention"): group_query_attention,
    (DOMAIN, "RotaryEmbedding"): rotary_embedding,
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "TransposeMatMul"): _fused_matmul,
    (DOMAIN, "FusedMatMulActivation"): _fused_matmul,
    (DOMAIN, "FusedGemm"): _fused_gemm,
    (DOMAIN, "FusedConv"): _fused_conv,
    (DOMAIN, "NhwcConv"): _channels_last,
    (DOMAIN, "NhwcFusedConv"): _channels_last,
    (DOMAIN, "GridSample"): _grid_sample,
    (DOMAIN, "CDist"): _distances,
    (DOMAIN, "ExpandDims"): _expand_dims,
    (DOMAIN, "Trilu"): _same("Trilu"),
    (DOMAIN, "GatherND"): _same("GatherND"),
    (DOMAIN, "Range"): _same("Range"),
}
