"""ONNX models as PyTorch modules, in the operators that a user of PyTorch would write.

Everything that follows from shapes and constants alone is computed once, so that what is left is a straight line of
PyTorch's own operators: `torch.compile` takes all of it as one graph, and freezes the weights.  Normalisations stay
operators of their own, as they do in a module that is put into `eval()`; folding them is the compiler's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

Values = Mapping[str, Any]
Make = Callable[["Site"], Callable[..., Any]]


class Site:
    """A node with its attributes and the shapes and constants around it."""

    def __init__(self, node: onnx.NodeProto, known: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        self.node, self.known, self.values = node, known, values
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    def get(self, name: str, default: Any) -> Any:
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else found

    def list(self, at: int, name: str = "") -> list[Any] | None:
        """Numbers that newer versions take as an input, which must be known, and older ones as an attribute."""
        if at < len(self.node.input) and self.node.input[at]:
            return [number.item() for number in self.known[self.node.input[at]].reshape(-1)]
        return self.get(name, None)

    def shape(self, at: int = 0) -> tuple[int, ...]:
        return tuple(self.values[self.node.input[at]].shape)


class Straight(nn.Module):
    """A straight line of calls, each of which reads and writes places of a list."""

    def __init__(self, model: onnx.ModelProto, given: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.inputs = list(given)
        constants = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in model.graph.initializer}
        values: dict[str, Tensor] = {**constants, **given}
        known = dict(constants)
        self.steps: list[tuple[Callable[..., Any], tuple[str | None, ...], tuple[str, ...]]] = []
        for node in model.graph.node:
            names = tuple(name or None for name in node.input)
            call = _call(node, known, values)
            found = call(*(None if name is None else values[name] for name in names))
            results = found if isinstance(found, tuple) else (found,)
            is_known = node.op_type == "Shape" or all(name is None or name in known for name in names)
            for name, result in zip(node.output, results, strict=False):
                values[name] = result
                if is_known:
                    known[name] = result
            if not is_known:
                self.steps.append((call, names, tuple(node.output)))
        read = {name for _, names, _ in self.steps for name in names if name is not None}
        used = read & known.keys()
        self.weights = nn.ParameterDict()
        self.called: dict[str, str] = {}
        for number, name in enumerate(sorted(used)):  # names of ONNX may be none of a module
            self.called[name] = f"w{number}"
            self.weights[f"w{number}"] = nn.Parameter(known[name], requires_grad=False)
        self.output = model.graph.output[0].name

    def forward(self, *given: Tensor) -> Tensor:
        values: dict[str, Any] = dict(zip(self.inputs, given, strict=True))
        for name, called in self.called.items():
            values[name] = self.weights[called]
        for call, names, outputs in self.steps:
            found = call(*(None if name is None else values[name] for name in names))
            results = found if isinstance(found, tuple) else (found,)
            values.update(zip(outputs, results, strict=False))
        return values[self.output]


def _call(node: onnx.NodeProto, known: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Callable[..., Any]:
    if node.op_type not in _MAKERS:
        raise NotImplementedError(f"no PyTorch form of {node.op_type} is written here")
    return _MAKERS[node.op_type](Site(node, known, values))


def _pads(site: Site, size: Sequence[int], taps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Pixels before and after an image in each direction."""
    rank, auto = len(taps), site.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        strides = site.get("strides", [1] * rank)
        total = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(size, strides, taps, strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        return (small, large) if auto == "SAME_UPPER" else (large, small)
    found = list(site.get("pads", [0] * 2 * rank))
    return found[:rank], found[rank:]


def _padded(front: Sequence[int], end: Sequence[int], value: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The image with a border, where PyTorch's operator has only one that is the same on both sides."""
    both = [pixels for pair in reversed(list(zip(front, end, strict=True))) for pixels in pair]
    return lambda x: F.pad(x, both, value=value)


def _conv(site: Site) -> Callable[..., Any]:
    taps = site.shape(1)[2:]
    front, end = _pads(site, site.shape()[2:], taps)
    stride, dilation = site.get("strides", [1] * len(taps)), site.get("dilations", [1] * len(taps))
    groups, operator = site.get("group", 1), {1: F.conv1d, 2: F.conv2d}[len(taps)]
    if front == end:
        return lambda x, w, b=None: operator(x, w, b, stride, front, dilation, groups)
    pad = _padded(front, end)
    return lambda x, w, b=None: operator(pad(x), w, b, stride, 0, dilation, groups)


def _conv_transpose(site: Site) -> Callable[..., Any]:
    taps = site.shape(1)[2:]
    front, end = _pads(site, site.shape()[2:], taps)
    if front != end or len(taps) != 2:
        raise NotImplementedError("a transposed convolution that is cut unevenly")
    stride, extra = site.get("strides", [1, 1]), site.get("output_padding", [0, 0])
    groups, dilation = site.get("group", 1), site.get("dilations", [1, 1])
    return lambda x, w, b=None: F.conv_transpose2d(x, w, b, stride, front, extra, groups, dilation)


def _pool(site: Site, is_max: bool) -> Callable[..., Any]:
    taps = site.get("kernel_shape", [])
    front, end = _pads(site, site.shape()[2:], taps)
    stride, ceil = site.get("strides", [1] * len(taps)), bool(site.get("ceil_mode", 0))
    even = front == end and all(2 * f <= k for f, k in zip(front, taps, strict=True))
    pad = _padded(front, end, -np.inf if is_max else 0.0)
    if is_max:
        return lambda x: F.max_pool2d(x if even else pad(x), taps, stride, front if even else 0, 1, ceil)
    include = bool(site.get("count_include_pad", 0))
    if even:
        return lambda x: F.avg_pool2d(x, taps, stride, front, ceil, include)
    if include:
        return lambda x: F.avg_pool2d(pad(x), taps, stride, 0, ceil)
    inside = F.avg_pool2d(pad(torch.ones(1, 1, *site.shape()[2:])), taps, stride, 0, ceil)
    return lambda x: F.avg_pool2d(pad(x), taps, stride, 0, ceil) / inside


def _batch_normalization(site: Site) -> Callable[..., Any]:
    epsilon = site.get("epsilon", 1e-5)
    return lambda x, scale, bias, mean, variance: F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def _gemm(site: Site) -> Callable[..., Any]:
    alpha, beta = site.get("alpha", 1.0), site.get("beta", 1.0)
    turned_a, turned_b = site.get("transA", 0), site.get("transB", 0)

    def call(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a, b = (a.t() if turned_a else a), (b.t() if turned_b else b)
        return alpha * (a @ b) if c is None else torch.addmm(c, a, b, beta=beta, alpha=alpha)

    return call


def _reshape(site: Site) -> Callable[..., Any]:
    wanted = site.list(1, "shape") or []
    shape = [site.shape()[at] if n == 0 else n for at, n in enumerate(wanted)]
    return lambda x, _=None: x.reshape(shape)


def _flatten(site: Site) -> Callable[..., Any]:
    rows = int(np.prod(site.shape()[: site.get("axis", 1)]))
    return lambda x: x.reshape(rows, -1)


def _squeeze(site: Site) -> Callable[..., Any]:
    axes = site.list(1, "axes")
    return lambda x, _=None: x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(site: Site) -> Callable[..., Any]:
    given = site.list(1, "axes") or []
    rank = len(site.shape()) + len(given)
    axes = sorted(at % rank for at in given)

    def call(x: Tensor, _: Any = None) -> Tensor:
        for at in axes:
            x = x.unsqueeze(at)
        return x

    return call


def _slice(site: Site) -> Callable[..., Any]:
    starts, ends = site.list(1, "starts") or [], site.list(2, "ends") or []
    axes = site.list(3, "axes") or list(range(len(starts)))
    steps = site.list(4) or [1] * len(starts)
    index: list[Any] = [slice(None)] * len(site.shape())
    for at, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[at] = slice(*slice(start, end, step).indices(site.shape()[at]))
    place = tuple(index)
    return lambda x, *_: x[place]


def _softmax(site: Site) -> Callable[..., Any]:
    axis = site.get("axis", -1)
    return lambda x: F.softmax(x, axis)


def _reduce_mean(site: Site) -> Callable[..., Any]:
    axes, keeps = site.list(1, "axes") or list(range(len(site.shape()))), bool(site.get("keepdims", 1))
    return lambda x, _=None: x.mean(axes, keeps)


def _resize(site: Site) -> Callable[..., Any]:
    mode, shape = site.get("mode", "nearest"), site.shape()[2:]
    how = site.get("coordinate_transformation_mode", "half_pixel")
    last = next(at for at in (3, 2, 1) if at < len(site.node.input) and site.node.input[at])
    numbers = [v.item() for v in site.known[site.node.input[last]].reshape(-1)][2:]
    size = [int(n) for n in numbers] if last == 3 else [int(e * n) for e, n in zip(shape, numbers, strict=True)]
    whole = all(b % a == 0 for a, b in zip(shape, size, strict=True))
    if mode == "nearest" and (how == "asymmetric" or whole):
        return lambda x, *_: F.interpolate(x, size, mode="nearest")
    if mode == "linear" and len(shape) == 2 and how in ("half_pixel", "align_corners"):
        return lambda x, *_: F.interpolate(x, size, mode="bilinear", align_corners=how == "align_corners")
    raise NotImplementedError(f"Resize of mode {mode}, {how}")


def _lrn(site: Site) -> Callable[..., Any]:
    size, alpha, beta, bias = (site.get(n, d) for n, d in (("size", 1), ("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return lambda x: F.local_response_norm(x, size, alpha, beta, bias)


def _clip(site: Site) -> Callable[..., Any]:
    bounds = [site.list(at, name) for at, name in ((1, "min"), (2, "max"))]
    low, high = (found[0] if isinstance(found, list) else found for found in bounds)
    return lambda x, *_: torch.clamp(x, low, high)


def _hard_sigmoid(site: Site) -> Callable[..., Any]:
    alpha, beta = site.get("alpha", 0.2), site.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid
    return lambda x: torch.clamp(x * alpha + beta, 0.0, 1.0)


def _constant(site: Site) -> Callable[..., Any]:
    value = torch.from_numpy(np.array(numpy_helper.to_array(site.get("value", None))))
    return lambda: value


def _cast(site: Site) -> Callable[..., Any]:
    dtype = torch.from_numpy(np.empty(0, onnx.helper.tensor_dtype_to_np_dtype(site.get("to", 1)))).dtype
    return lambda x: x.to(dtype)


def _transpose(site: Site) -> Callable[..., Any]:
    order = site.get("perm", list(range(len(site.shape())))[::-1])
    return lambda x: x.permute(order)


def _concat(site: Site) -> Callable[..., Any]:
    axis = site.get("axis", 0)
    return lambda *parts: torch.cat(parts, axis)


def _gather(site: Site) -> Callable[..., Any]:
    axis = site.get("axis", 0)

    def call(x: Tensor, places: Tensor) -> Tensor:
        found = x.index_select(axis, places.reshape(-1))
        return found.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])

    return call


GATE_ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
"""Where PyTorch's gates stand among those of ONNX."""


def _recurrent(site: Site) -> Callable[..., Any]:
    """`torch.nn.LSTM` or `GRU` with the weights of the node, and the result with ONNX's dimensions."""
    kind, names = site.node.op_type, [name for name in site.node.input if name]
    w, r, b = (site.known[name] for name in names[1:4])
    directions, rows, width = w.shape
    size = r.shape[2]
    module = getattr(nn, kind)(width, size, bidirectional=directions > 1).eval()

    def ordered(rows_of_gates: Tensor) -> Tensor:
        return torch.cat([rows_of_gates[gate * size : (gate + 1) * size] for gate in GATE_ORDERS[kind]])

    with torch.no_grad():
        for at, suffix in enumerate(("l0", "l0_reverse")[:directions]):
            given = {"weight_ih": w[at], "weight_hh": r[at], "bias_ih": b[at, :rows], "bias_hh": b[at, rows:]}
            for name, value in given.items():
                getattr(module, f"{name}_{suffix}").copy_(ordered(value))

    def call(x: Tensor, *_: Any) -> Tensor:
        steps, batch, _ = x.shape
        return module(x)[0].reshape(steps, batch, directions, size).transpose(1, 2)

    return call


def _sum(*parts: Tensor) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _plain(call: Callable[..., Any]) -> Make:
    return lambda site: call


_MAKERS: Mapping[str, Make] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "BatchNormalization": _batch_normalization, "Gemm": _gemm,
    "MaxPool": lambda site: _pool(site, True), "AveragePool": lambda site: _pool(site, False),
    "GlobalAveragePool": _plain(lambda x: F.adaptive_avg_pool2d(x, 1)), "LRN": _lrn,
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Slice": _slice,
    "Softmax": _softmax, "ReduceMean": _reduce_mean, "Resize": _resize, "Clip": _clip, "Cast": _cast,
    "HardSigmoid": _hard_sigmoid, "Constant": _constant, "Transpose": _transpose, "Concat": _concat,
    "Gather": _gather, "MatMul": _plain(torch.matmul), "Add": _plain(torch.add), "Sub": _plain(torch.sub),
    "Mul": _plain(torch.mul), "Div": _plain(torch.div), "Pow": _plain(torch.pow), "Sqrt": _plain(torch.sqrt),
    "Erf": _plain(torch.erf), "Relu": _plain(F.relu), "Sigmoid": _plain(torch.sigmoid), "Sum": _plain(_sum),
    "HardSwish": _plain(F.hardswish), "Identity": _plain(lambda x: x), "Dropout": _plain(lambda x, *_: x),
    "Shape": _plain(lambda x: torch.tensor(x.shape)), "LSTM": _recurrent, "GRU": _recurrent,
}  # fmt: skip
