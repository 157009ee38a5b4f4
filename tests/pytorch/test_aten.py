"""Each operator of the table against PyTorch itself, and what the table leaves to PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_parts import parts_of, rows_masked  # noqa: E402

from stridesmith.models.evaluate import evaluate  # noqa: E402
from stridesmith.pytorch.parts import Divided  # noqa: E402

Shape = tuple[int, ...]


def checked(model: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5) -> Divided:
    """The parts, of which there is one that computes what PyTorch does."""
    found = parts_of(model, *inputs)
    assert len(found.parts) == 1, found.refused
    (part,) = found.parts
    assert not any("aten" in str(node.target) and _computes(node) for node in found.module.graph.nodes)
    given = {str(name): _fitting(part.network.tensors[name].shape, inputs) for name in part.network.inputs}
    with torch.no_grad():
        expected = model(*inputs)
    results = evaluate(part.network, given)
    wanted = [value.numpy() for value in (expected if isinstance(expected, tuple) else (expected,))]
    found_values = [results[part.network.outputs[at]] for at in part.outputs]
    for value in wanted:
        close = [np.allclose(each, value.reshape(each.shape), tolerance, tolerance, equal_nan=True)
                 for each in found_values if each.size == value.size]  # fmt: skip
        assert any(close), (value, found_values)
    return found


def _computes(node: Any) -> bool:
    """Whether a node of what is left to PyTorch is more than another view, a weight turned, or a number."""
    views = ("view", "unsqueeze", "squeeze", "aten.t.default", "permute")
    return bool(node.all_input_nodes) and not any(name in str(node.target) for name in views)


def _fitting(shape: Shape, inputs: tuple[Any, ...]) -> Any:
    """The input with as many elements."""
    return next(x.numpy().reshape(shape) for x in inputs if x.numel() == np.prod(shape, dtype=int))


def drawn(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype("float32"))


UNARY: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "erf": torch.erf,
    "log": lambda x: torch.log(x.abs()), "sqrt": lambda x: torch.sqrt(x.abs()), "rsqrt": lambda x: torch.rsqrt(x.abs()),
    "reciprocal": torch.reciprocal, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "neg": torch.neg,
    "sign": torch.sign, "sinh": torch.sinh, "silu": F.silu, "hardswish": F.hardswish, "mish": F.mish,
    "hardsigmoid": F.hardsigmoid, "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "elu": lambda x: F.elu(x, 0.7), "softplus": F.softplus,
    "relu6": F.relu6, "clamp": lambda x: x.clamp(-0.5, 0.3), "clamp min": lambda x: x.clamp(min=0.1),
    "scalars": lambda x: (2 - x * 3) / 4 + 1, "alpha": lambda x: torch.add(x, x.exp(), alpha=2), "pow": lambda x: x**3,
    "maximum": lambda x: torch.maximum(x, x * 2), "where": lambda x: torch.where(x > 0, x, x.exp()),
    "compare": lambda x: torch.where((x <= 0.5) & (x != 1), 1.0, x),
    "masked": lambda x: (x * 2).masked_fill(x < 0, -1), "cast": lambda x: (x > 0).to(torch.float32) + x,
    "softmax": lambda x: F.softmax(x, 1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "mean": lambda x: x.mean((0, 2)), "sum": lambda x: x.exp().sum(1, keepdim=True), "amax": lambda x: x.amax(1),
    "amin": lambda x: x.exp().amin(), "permute": lambda x: x.permute(2, 0, 1).exp(), "t": lambda x: x[0].t() + 1,
    "expand": lambda x: x[:1].expand(4, 5, 6) * 2, "slice": lambda x: x[:, 1:4:2].exp() + 1,
    "select": lambda x: x.exp()[:, -2] + 1, "cat": lambda x: torch.cat([x, x.exp()], 1),
    "split": lambda x: tuple(each.exp() for each in x.split([2, 3], 1)),
    "chunk": lambda x: torch.mul(*(x.exp()).chunk(2, 2)), "pad": lambda x: F.pad(x.exp(), (1, 2, 3, 0), value=0.5),
    "repeat": lambda x: x.exp().repeat(1, 2, 1), "layer_norm": lambda x: F.layer_norm(x, (5, 6)),
    "stack": lambda x: torch.stack([x, x.exp()], 1), "bmm": lambda x: x @ x.transpose(1, 2),
}  # fmt: skip


def test_the_sign_of_what_is_no_number_is_as_in_pytorch() -> None:
    """0, where ONNX has none."""
    x = torch.linspace(-2, 2, 48).reshape(4, 12)
    x[1, 3:5] = math.nan
    checked(lambda x: torch.sign(x * 2) + 1, x)


@pytest.mark.parametrize("name", UNARY)
def test_operators_of_one_tensor(name: str) -> None:
    """Each computes what PyTorch computes, and nothing of it is left to PyTorch."""
    model = UNARY[name]
    checked(lambda x: model(model(x) if name in ("sigmoid", "floor", "ceil", "round", "sign") else x) * 1.5
            if name not in ("split",) else model(x), drawn(4, 5, 6))  # fmt: skip


CONVOLUTIONS: dict[str, tuple[Shape, Callable[[], Any]]] = {
    "plain": ((2, 4, 7, 6), lambda: torch.nn.Conv2d(4, 5, 3, padding=1)),
    "strided": ((1, 4, 7, 6), lambda: torch.nn.Conv2d(4, 5, (3, 2), stride=2, padding=(1, 0), bias=False)),
    "groups": ((1, 4, 5, 6), lambda: torch.nn.Conv2d(4, 6, 3, groups=2)),
    "depthwise": ((1, 4, 5, 6), lambda: torch.nn.Conv2d(4, 4, 3, groups=4, padding=1)),
    "one dimension": ((1, 4, 9), lambda: torch.nn.Conv1d(4, 5, 3, dilation=2)),
    "transposed": ((1, 4, 5, 6), lambda: torch.nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1)),
    "batch norm": (
        (1, 4, 5, 6),
        lambda: torch.nn.Sequential(torch.nn.Conv2d(4, 5, 1), torch.nn.BatchNorm2d(5), torch.nn.ReLU()),
    ),
    "group norm": ((2, 4, 5, 6), lambda: torch.nn.GroupNorm(2, 4)),
    "max pool": ((1, 4, 7, 6), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1))),
    "ceil": ((1, 4, 8, 6), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, ceil_mode=True))),
    "average": ((1, 4, 7, 6), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AvgPool2d(3, 2, 1))),
    "adaptive": ((1, 4, 6, 6), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2))),
    "global": ((1, 4, 6, 6), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1))),
    "linear": ((2, 3, 8), lambda: torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.GELU())),
    "layer norm": ((2, 3, 8), lambda: torch.nn.LayerNorm(8)),
    "attention": ((1, 4, 8), lambda: Attention(None)),
    "causal": ((1, 4, 8), lambda: Attention(True)),
}


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Two heads, by the function that has kernels of its own in PyTorch."""

    def __init__(self, causal: bool | None) -> None:
        super().__init__()
        self.causal = bool(causal)
        self.project = torch.nn.Linear(8, 24)

    def forward(self, x: Any) -> Any:
        q, k, v = (y.view(1, 4, 2, 4).transpose(1, 2) for y in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2) * 1.5


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_modules(name: str) -> None:
    """Modules compute what PyTorch computes, with their weights as constants of the network."""
    shape, make = CONVOLUTIONS[name]
    torch.manual_seed(0)
    model = make().eval()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    found = checked(model, drawn(*shape))
    (part,) = found.parts
    assert len(part.inputs) == 1
    if name == "batch norm":
        (one,) = part.network.nodes
        assert one.name.startswith("convolution")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rows_of_which_all_is_masked(dtype: Any) -> None:
    """By -inf the result is 0, by the lowest number the mean of the values, and by a mixture that of the lowest."""
    torch.manual_seed(0)
    q, kv, mask = torch.randn(1, 2, 6, 4).to(dtype), torch.randn(1, 2, 5, 4).to(dtype), rows_masked(5, dtype)

    def model(q: Any, kv: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q * 2, kv, kv, attn_mask=mask)

    with torch.no_grad():
        result = model(q, kv, mask).to(torch.float32)
    assert (result[:, :, 0] == 0).all()
    if dtype == torch.float32:
        torch.testing.assert_close(result[:, :, 1], kv.mean(-2))
        torch.testing.assert_close(result[:, :, 2], kv[..., :2, :].mean(-2))
    checked(model, q, kv, mask, tolerance=1e-5 if dtype == torch.float32 else 3e-3)


def test_rows_that_a_bool_masks() -> None:
    """True is what is seen; a row of False is 0."""
    torch.manual_seed(0)
    q, kv, seen = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 5, 4), rows_masked(5, torch.float32) == 0
    checked(lambda q, kv, seen: F.scaled_dot_product_attention(q * 2, kv, kv, attn_mask=seen), q, kv, seen)


@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "_safe_softmax"])
def test_softmax_of_masked_rows(kind: str) -> None:
    """A row of -inf is NaN, but 0 for the one that is safe; a row of the lowest number has equal shares."""
    operator = torch.ops.aten._safe_softmax if kind == "_safe_softmax" else getattr(torch, kind)
    mask = rows_masked(5, torch.float32)
    with torch.no_grad():
        first = operator(mask, -1)[0]
    assert (first == 0).all() if kind == "_safe_softmax" else first.isnan().all()
    checked(lambda x: operator(x, -1) * 2, mask)
    checked(lambda x: operator(x, 0) * 2, mask)


def test_embedding() -> None:
    """Rows of a table by their numbers."""
    checked(torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.LayerNorm(4)).eval(), torch.tensor([[1, 9, 3]]))


REST: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sort": (lambda x: x.sort(-1).values, (drawn(4, 5),)),
    "both results": (lambda x: F.max_pool2d(x, 2, return_indices=True), (drawn(1, 2, 4, 4),)),
    "complex": (lambda x: torch.view_as_complex(x).abs(), (drawn(4, 2),)),
    "types": (lambda x, n: x * n, (drawn(4, 5), torch.ones(4, 5, dtype=torch.int64))),
    "number of bools": (lambda x: x == 2, (drawn(4, 5) > 0,)),
    "number beyond the type": (lambda x: x == -1, (torch.ones(4, 5, dtype=torch.uint8),)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, 3), (drawn(1, 2, 5, 5),)),
    "without a batch": (lambda x: F.max_pool2d(x, 2), (drawn(2, 4, 4),)),
    "random": (lambda x: F.dropout(x, 0.5, training=True), (drawn(4, 5),)),
}


@pytest.mark.parametrize("name", REST)
def test_what_is_left_to_pytorch(name: str) -> None:
    """What the table does not cover is refused with a reason, and PyTorch still computes it."""
    model, inputs = REST[name]
    found = parts_of(model, *inputs)
    assert not found.parts and found.refused


def test_parts_around_what_is_not_known() -> None:
    """A graph with an unknown operator in the middle has a part before and one behind it."""
    first, second = torch.nn.Linear(4, 8).eval(), torch.nn.Linear(8, 4).eval()
    found = parts_of(lambda x: second(first(x).relu().sort(-1).values).relu(), drawn(3, 4))
    assert len(found.parts) == 2
    assert [node.target for node in found.module.graph.nodes if "sort" in str(node.target)]


def test_shapes_that_are_not_known_stay() -> None:
    """With dynamic shapes nothing runs here."""
    assert not parts_of(lambda x: x.exp().relu() @ x.t(), drawn(3, 4), dynamic=True).parts


def test_doubles_have_programs() -> None:
    """float64 is a type like others."""
    checked(torch.nn.Linear(4, 5).double().eval(), drawn(3, 4).double())


class Tagger(torch.nn.Module):  # type: ignore[misc]
    """Two directions of an LSTM and a product."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(6, 5, bidirectional=True, bias=bias)
        self.last = torch.nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(x)[0])


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_in_two_directions(bias: bool) -> None:
    """Dynamo reads it where it is allowed to, and each direction is a program of its own."""
    torch.manual_seed(0)
    with torch._dynamo.config.patch(allow_rnn=True):
        found = checked(Tagger(bias).eval(), drawn(4, 2, 6))
    names = [node.func.name for node in found.parts[0].network.nodes]
    assert names.count("lstm") == 2, names
