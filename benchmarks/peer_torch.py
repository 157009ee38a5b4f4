"""PyTorch: eager operators, which call oneDNN, MKL or PyTorch's own code, and oneDNN with weights prepacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peer_forms import CONVOLUTIONS, SLOPE, TOP, Call, Forms, Job, arrays, convolution, filters

Data = dict[str, Any]


def torch_forms(job: Job, threads: int) -> Forms:
    """Every way in which PyTorch does a job."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    data = {name: torch.from_numpy(array) for name, array in arrays(job).items()}
    kind = job["workload"]
    if kind in CONVOLUTIONS:
        return _convolution(torch, data, job)
    if "matmul" in kind:
        return _matmul(torch, data, job)
    make = EAGER.get(kind)
    return Forms(make(torch, data, job["params"])) if make is not None else Forms()


def _channels_first(x: Any, is_last: bool) -> tuple[Any, Callable[[Any], Any]]:
    """PyTorch's view of an image, and what makes a contiguous result in the layout of a result; copies only if it must.

    With channels last it is seen as a channels_last tensor, the same memory; then results are, too.
    """
    if not is_last:
        return x, lambda y: y.contiguous()
    space = range(1, x.dim() - 1)
    return x.permute(0, x.dim() - 1, *space), lambda y: y.permute(0, *(a + 1 for a in space), 1).contiguous()


def _activation(torch: Any, name: str) -> Callable[[Any], Any]:
    """An activation; in place where PyTorch has that."""
    functional = torch.nn.functional
    known: dict[str, Callable[[Any], Any]] = {
        "none": lambda y: y, "relu": torch.relu_, "clip": lambda y: y.clamp_(0, TOP), "sigmoid": torch.sigmoid_,
        "leaky_relu": lambda y: functional.leaky_relu_(y, SLOPE), "tanh": torch.tanh_,
        "silu": lambda y: functional.silu(y, inplace=True), "gelu": functional.gelu,
    }  # fmt: skip
    return known[name]


FUSED: dict[str, tuple[str, list[float], str]] = {
    "none": ("none", [], ""), "relu": ("relu", [], ""), "clip": ("hardtanh", [0.0, TOP], ""),
    "sigmoid": ("sigmoid", [], ""), "leaky_relu": ("leaky_relu", [SLOPE], ""), "tanh": ("tanh", [], ""),
    "silu": ("swish", [], ""), "gelu": ("gelu", [], "none"),
}  # fmt: skip
"""Activations as oneDNN's operators take them: a name, numbers and an algorithm."""


def _convolution(torch: Any, data: Data, job: Job) -> Forms:
    conv = convolution(job)
    directions = len(conv.stride)
    bias, act = data.get("bias"), job["params"].get("act", "none")
    after = _activation(torch, act)
    x, back = _channels_first(data["x"], conv.is_last)
    w = torch.from_numpy(filters(job, data["w"].numpy()))
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    like = w.contiguous(memory_format=formats[directions]) if conv.is_last and directions > 1 else w
    functional, ops = torch.nn.functional, torch.ops.mkldnn
    pad, stride, dilation, groups = conv.pad, conv.stride, conv.dilation, conv.groups

    def forward() -> Any:
        if conv.is_transposed:
            y = functional.conv_transpose2d(x, like, bias, stride, pad, conv.output_pad, groups, dilation)
        else:
            name = f"conv{directions}d"
            y = getattr(functional, name)(x, like, bias, stride, pad, dilation, groups)
        return back(after(y))

    def prepacked() -> Call:
        if conv.is_transposed:
            more = conv.output_pad
            packed = ops._reorder_convolution_transpose_weight(w, pad, more, stride, dilation, groups, list(x.shape))
            point = ops._convolution_transpose_pointwise
            return lambda: back(point(x, packed, bias, pad, more, stride, dilation, groups, *FUSED[act]))
        image, weights, sizes = x, w, (pad, stride, dilation)
        if directions == 1:  # oneDNN prepacks images and volumes: a row is an image of height 1
            image, weights = x.unsqueeze(2), w.unsqueeze(2)
            sizes = ([0, *pad], [1, *stride], [1, *dilation])
        packed = ops._reorder_convolution_weight(weights, *sizes, groups, list(image.shape))
        squeeze = (lambda y: y.squeeze(2)) if directions == 1 else (lambda y: y)
        return lambda: back(squeeze(ops._convolution_pointwise(image, packed, bias, *sizes, groups, *FUSED[act])))

    forms = Forms({f"conv{directions}d": forward})
    forms.attempt("prepacked", prepacked)
    return forms


def _matmul(torch: Any, data: Data, job: Job) -> Forms:
    p, bias = job["params"], data.get("bias")
    act = p.get("act", "none")
    after = _activation(torch, act)
    a = data["a"].mT if p.get("transpose_a") else data["a"]
    b = data["b"].mT if p.get("transpose_b") else data["b"]
    c = data["c"] if "c" in data else data["y"]

    def product() -> Any:
        if bias is None:
            return torch.matmul(a, b, out=c)
        if a.dim() == 3:
            return after(torch.baddbmm(bias[:, None], a, b, out=c))
        return after(torch.addmm(bias, a, b, out=c))

    def prepacked() -> Call:
        packed = torch.ops.mkldnn._reorder_linear_weight(b.t().contiguous(), a.shape[0])
        return lambda: torch.ops.mkldnn._linear_pointwise(a, packed, bias, *FUSED[act])

    forms = Forms({"matmul": product})
    if "b" in job["constants"] and a.dim() == 2:
        forms.attempt("prepacked", prepacked)
    return forms


# ------------------------------------------------------------------- everything else, as PyTorch itself does it


def _max_pool(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    x, back = _channels_first(data["x"], p["layout"] == "nhwc")
    pool = torch.nn.functional.max_pool2d
    return {"max_pool2d": lambda: back(pool(x, p["k"], p["stride"], p["pad"], p.get("dilation", 1)))}


def _avg_pool(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    x, back = _channels_first(data["x"], p["layout"] == "nhwc")
    pool, include = torch.nn.functional.avg_pool2d, bool(p["include_pad"])
    return {"avg_pool2d": lambda: back(pool(x, p["k"], p["stride"], p["pad"], count_include_pad=include))}


def _global_pool(torch: Any, data: Data, p: dict[str, Any], reduce: str) -> dict[str, Call]:
    axes = (2, 3) if p["layout"] == "nchw" else (1, 2)
    return {reduce: lambda: getattr(torch, reduce)(data["x"], axes, out=data["y"])}


def _reduction(torch: Any, data: Data, axes: list[int], op: str) -> dict[str, Call]:
    reduce = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[op]
    return {op: lambda: reduce(data["x"], axes, out=data["y"])}


def _attention(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    q, k, v = data["q"][None, :, None], data["k"][None], data["v"][None]
    rows, scale = data["q"][:, None], p["d"] ** -0.5
    attention = torch.nn.functional.scaled_dot_product_attention

    def products() -> Any:
        return torch.bmm(torch.softmax(torch.bmm(rows, data["k"].mT).mul_(scale), -1), data["v"])[:, 0]

    return {"attention": lambda: attention(q, k, v)[0, :, 0].contiguous(), "products": products}


def _broadcast(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    first, *others = (data[name] for name in sorted(data) if name != "y")
    combine = {"add": torch.add, "multiply": torch.mul}[p["op"]]
    after, y = _activation(torch, p["act"]), data["y"]

    def chain() -> Any:
        value = combine(first, others[0], out=y if len(others) == 1 else None)
        for other in others[1:]:
            value = combine(value, other, out=y)
        return after(value)

    return {p["op"]: chain}


def _interpolation(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    x, back = _channels_first(data["x"], p["layout"] == "nhwc")
    options = {"align_corners": False} if p["mode"] == "bilinear" else {}
    interpolate = torch.nn.functional.interpolate
    return {p["mode"]: lambda: back(interpolate(x, (p["oh"], p["ow"]), mode=p["mode"], **options))}


def _group_norm(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    x, norm = data["x"][None], torch.nn.functional.group_norm
    return {"group_norm": lambda: norm(x, p["groups"], data["gamma"], data["beta"], 1e-5)}


def _layer_norm(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    shape, norm = data["gamma"].shape, torch.nn.functional.layer_norm
    return {"layer_norm": lambda: norm(data["x"], shape, data["gamma"], data["beta"])}


def _rms_norm(torch: Any, data: Data, p: dict[str, Any]) -> dict[str, Call]:
    shape, norm = data["gamma"].shape, torch.nn.functional.rms_norm
    return {"rms_norm": lambda: norm(data["x"], shape, data["gamma"], 1e-5)}


EAGER: dict[str, Callable[[Any, Data, dict[str, Any]], dict[str, Call]]] = {
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "global_avg_pool2d": lambda torch, data, p: _global_pool(torch, data, p, "mean"),
    "global_max_pool2d": lambda torch, data, p: _global_pool(torch, data, p, "amax"),
    "row_sum": lambda torch, data, p: _reduction(torch, data, [1], "sum"),
    "reduction": lambda torch, data, p: _reduction(torch, data, p["axes"], p["op"]),
    "softmax": lambda torch, data, p: {"softmax": lambda: torch.softmax(data["x"], -1, out=data["y"])},
    "softmax_axis": lambda torch, data, p: {"softmax": lambda: torch.softmax(data["x"], 1, out=data["y"])},
    "layernorm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "attention_row": _attention,
    "cumulative_sum": lambda torch, data, p: {"cumsum": lambda: torch.cumsum(data["x"], p["axis"], out=data["y"])},
    "broadcast": _broadcast,
    "pixel_shuffle": lambda torch, data, p: {
        "pixel_shuffle": lambda: torch.nn.functional.pixel_shuffle(data["x"], p["r"])
    },
    "channel_shuffle": lambda torch, data, p: {
        "channel_shuffle": lambda: torch.nn.functional.channel_shuffle(data["x"], p["groups"])
    },
    "interpolation": _interpolation,
}
