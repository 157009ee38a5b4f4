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
    left = [node for node in found.module.graph.nodes if "aten" in str(node.target) and node.name not in found.known]
    assert not any(map(_computes, left))
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
    "types": (lambda x, n: x == n, (drawn(4, 5), torch.ones(4, 5, dtype=torch.int64))),
    "number of bools": (lambda x: x == 2, (drawn(4, 5) > 0,)),
    "number beyond the type": (lambda x: x == -1, (torch.ones(4, 5, dtype=torch.uint8),)),
    "norm of order 0": (lambda x: torch.linalg.vector_norm(x, 0), (drawn(4, 5),)),
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


def test_shapes_that_contents_tell_stay() -> None:
    """What reads a tensor whose extent only a call tells stays with PyTorch; what stands before it does not."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.raises(Exception, match="not known"):
        parts_of(lambda x: (x @ x.t()).nonzero() * 2, drawn(3, 4))


def test_doubles_have_programs() -> None:
    """float64 is a type like others."""
    checked(torch.nn.Linear(4, 5).double().eval(), drawn(3, 4).double())


IMAGE = drawn(2, 4, 5, 7)
PLACES = torch.tensor([[2, 0], [1, 3]])
MORE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sin": (lambda x: torch.sin(x * 30) * 2, (drawn(4, 5),)),
    "cos": (lambda x: torch.cos(x * 30) * 2, (drawn(4, 5),)),
    "sin of doubles": (lambda x: torch.sin(x * 1000) * 2, (drawn(4, 5).double(),)),
    "cos of doubles": (lambda x: torch.cos(x * 1000) * 2, (drawn(4, 5).double(),)),
    "types": (lambda x, n: x.exp() * n, (drawn(4, 5), torch.arange(5))),
    "quotient of whole numbers": (lambda n: n / 4 - n / n.sum(), (torch.arange(1, 6),)),
    "unbind": (lambda x: torch.stack(x.exp().unbind(1), 0), (drawn(3, 4),)),
    "max dim": (lambda x: x.exp().max(1), (drawn(3, 4, 5),)),
    "min dim": (lambda x: x.exp().min(-1, keepdim=True), (drawn(3, 4, 5),)),
    "max": (lambda x: x.exp().max(), (drawn(3, 4),)),
    "sum of all": (lambda x: x.exp().sum(), (drawn(3, 4),)),
    "sum of bools": (lambda x: (x > 0).sum(1), (drawn(3, 4),)),
    "mean of all": (lambda x: x.exp().mean(), (drawn(3, 4),)),
    "prod": (lambda x: x.exp().prod(1), (drawn(3, 4),)),
    "any": (lambda x: (x > 1).any(1), (drawn(3, 4),)),
    "all": (lambda x: (x > -1).all(), (drawn(3, 4),)),
    "logsumexp": (lambda x: x.exp().logsumexp((1, 2)), (drawn(3, 4, 5),)),
    "argmax": (lambda x: x.exp().argmax(1), (drawn(3, 4),)),
    "argmax of all": (lambda x: x.exp().argmax(), (drawn(3, 4),)),
    "argmin kept": (lambda x: x.exp().argmin(0, keepdim=True), (drawn(3, 4),)),
    "cumsum": (lambda x: x.exp().cumsum(1), (drawn(3, 4),)),
    "gather": (lambda x, places: x.exp().gather(1, places), (drawn(3, 5), PLACES)),
    "index_select": (lambda x, places: x.exp().index_select(1, places), (drawn(3, 5), torch.tensor([4, 0]))),
    "index": (lambda x, places: x.exp()[:, places], (drawn(3, 5), PLACES)),
    "index by two": (lambda x, a, b: x.exp()[:, a, b], (drawn(3, 4, 4), PLACES, torch.tensor([1, 3]))),
    "index by two apart": (lambda x, a: x.exp()[a, :, a], (drawn(4, 3, 5), PLACES)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x.exp(), 2), (drawn(2, 8, 3, 4),)),
    "pixel_shuffle without a batch": (lambda x: F.pixel_shuffle(x.exp(), 2), (drawn(8, 3, 4),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x.exp(), 2), (drawn(2, 2, 6, 4),)),
    "prelu": (lambda x, a: F.prelu(x * 2, a), (IMAGE, torch.tensor([0.1, -0.2, 0.3, 0.4]))),
    "celu": (lambda x: F.celu(x * 2, 0.7), (drawn(3, 4),)),
    "selu": (lambda x: F.selu(x * 2), (drawn(3, 4),)),
    "norm": (lambda x: torch.linalg.vector_norm(x * 2, dim=1), (drawn(3, 4),)),
    "norm of order 1": (lambda x: torch.linalg.vector_norm(x * 2, 1, keepdim=True), (drawn(3, 4),)),
    "norm of order 3": (lambda x: torch.linalg.vector_norm(x * 2, 3, dim=-1), (drawn(3, 4),)),
    "largest norm": (lambda x: torch.linalg.vector_norm(x * 2, math.inf, dim=0), (drawn(3, 4),)),
    "normalize": (lambda x: F.normalize(x * 2), (drawn(3, 4),)),
    "clamp_min": (lambda x: torch.clamp_min(x * 2, 0.1), (drawn(3, 4),)),
    "clamp by tensors": (lambda x, low: torch.clamp(x * 2, min=low), (drawn(3, 4), drawn(4))),
    "unsafe_split": (lambda x: torch.add(*torch.ops.aten.unsafe_split(x.exp(), 2, 1)), (drawn(3, 4),)),
    "nearest": (lambda x: F.interpolate(x.exp(), scale_factor=2), (IMAGE,)),
    "bilinear": (lambda x: F.interpolate(x.exp(), size=(8, 9), mode="bilinear"), (IMAGE,)),
    "bilinear, corners": (
        lambda x: F.interpolate(x.exp(), size=(8, 9), mode="bilinear", align_corners=True), (IMAGE,),
    ),
    "var": (lambda x: x.exp().var(1), (drawn(3, 4),)),
    "std": (lambda x: x.exp().std((0, 2), correction=0, keepdim=True), (drawn(3, 4, 5),)),
    "var_mean": (lambda x: torch.var_mean(x.exp(), -1), (drawn(3, 4),)),
    "glu": (lambda x: F.glu(x * 2, 1), (drawn(3, 4),)),
    "roll": (lambda x: x.exp().roll((1, -2), (0, 1)), (drawn(3, 4),)),
    "roll of all": (lambda x: x.exp().roll(3), (drawn(3, 4),)),
    "flip": (lambda x: x.exp().flip((0, 1)), (drawn(3, 4),)),
    "instance norm": (lambda x: F.instance_norm(x * 2), (IMAGE,)),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x * 2, (3, 4)), (IMAGE,)),
    "adaptive average 1d": (lambda x: F.adaptive_avg_pool1d(x * 2, 3), (drawn(2, 4, 7),)),
    "adaptive average 3d": (lambda x: F.adaptive_avg_pool3d(x * 2, (2, 3, 2)), (drawn(1, 2, 3, 5, 4),)),
    "adaptive maximum": (lambda x: F.adaptive_max_pool2d(x * 2, (3, 4)), (IMAGE,)),
    "as_strided": (lambda x: torch.as_strided(x.exp(), (4, 3), (1, 4)) + 1, (drawn(3, 4),)),
    "shared heads": (
        lambda q, kv: F.scaled_dot_product_attention(q * 2, kv, kv, enable_gqa=True),
        (drawn(1, 4, 5, 8), drawn(1, 2, 7, 8)),
    ),
    "shared heads, causal": (
        lambda q, kv: F.scaled_dot_product_attention(q * 2, kv, kv, enable_gqa=True, is_causal=True),
        (drawn(2, 6, 5, 4), drawn(2, 3, 5, 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_operators_of_other_families(name: str) -> None:
    """Each computes what PyTorch computes, and nothing of it is left to PyTorch."""
    model, inputs = MORE[name]
    checked(model, *inputs, tolerance=1e-11 if inputs[0].dtype == torch.float64 else 1e-5)


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """A recurrent layer and a product."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.last = torch.nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 3)

    def forward(self, x: Any) -> Any:
        results, last = self.layer(x)
        return self.last(results), *(last if isinstance(last, tuple) else (last,))


LAYERS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: torch.nn.LSTM(6, 5),
    "lstm, no biases, both directions": lambda: torch.nn.LSTM(6, 5, bias=False, bidirectional=True),
    "lstm, two layers, batch first": lambda: torch.nn.LSTM(6, 5, 2, batch_first=True),
    "gru": lambda: torch.nn.GRU(6, 5),
    "gru, two layers, both directions": lambda: torch.nn.GRU(6, 5, 2, bidirectional=True),
    "gru, no biases, batch first": lambda: torch.nn.GRU(6, 5, bias=False, batch_first=True),
    "rnn": lambda: torch.nn.RNN(6, 5),
    "rnn, relu, both directions": lambda: torch.nn.RNN(6, 5, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(name: str) -> None:
    """All layers of a module, in both directions, are loops over steps with weights that are constants."""
    torch.manual_seed(0)
    model = Recurrent(LAYERS[name]()).eval()
    found = checked(model, drawn(4, 2, 6))
    names = [node.func.name for node in found.parts[0].network.nodes]
    kind = name.split(",")[0]
    assert names.count(kind) == model.layer.num_layers, names


def test_a_first_state_that_is_given() -> None:
    """A state that is not known is an input; each layer has its own."""
    torch.manual_seed(0)
    layer = torch.nn.GRU(6, 5, 2).eval()
    found = checked(lambda x, h: layer(x * 2, h)[0], drawn(4, 3, 6), drawn(2, 3, 5))
    assert len(found.parts[0].inputs) == 2


def test_a_part_of_memory_stays_with_pytorch() -> None:
    """What is beside a tensor in its memory is nothing that a program could read."""
    with pytest.raises(Exception, match=r"sees a part of a tensor's memory in another order \(as_strided\)"):
        parts_of(lambda x: torch.as_strided(x, (2, 2), (4, 1), 0) + 1, drawn(4, 4)[1:])


def test_layers_that_stay_with_pytorch() -> None:
    """Projections have no program, and PyTorch does not write the layer out."""
    layer = torch.nn.LSTM(6, 5, proj_size=2).eval()
    with pytest.raises(Exception, match="recurrent layer has projections"):
        parts_of(lambda x: layer(x)[0], drawn(4, 2, 6))
