"""Networks of kinds that wheels lack, written as exporters write them, for `zoo.py`.

PyTorch's exporter, skl2onnx and the quantiser of ONNX Runtime write those that they can; what converters of Keras write
(images that are turned around each convolution, LSTMs with sequences first) is put together by `onnx.helper`.  Weights
are seeded random numbers.  Each maker writes one file and says the shapes that it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Shapes = dict[str, list[int]]
Maker = Callable[[Path], Shapes]


# ---------------------------------------------------------------- PyTorch


def _torch(build: Callable[[Any], tuple[Any, tuple[Any, ...]]], **options: Any) -> Maker:
    """A maker that exports a module with example inputs; `build` is given the package."""

    def make(path: Path) -> Shapes:
        import torch

        torch.manual_seed(0)
        module, arguments = build(torch)
        given: dict[str, Any] = {"opset_version": 17, "dynamo": False, **options}
        torch.onnx.export(module.eval(), arguments, str(path), **given)
        return {}

    return make


def _module(torch: Any, parts: Mapping[str, Any], forward: Callable[..., Any]) -> Any:
    """A module of these parts; `forward` is called with it and the inputs."""

    class Made(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    return Made()


def _convnext(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        x = m.stem(x)
        y = m.depthwise(x).permute(0, 2, 3, 1)
        y = m.out(torch.nn.functional.gelu(m.wide(m.norm(y)))) * m.gamma
        return m.head((x + y.permute(0, 3, 1, 2)).mean((2, 3)))

    parts = {
        "stem": nn.Conv2d(3, 24, 4, 4), "depthwise": nn.Conv2d(24, 24, 7, padding=3, groups=24),
        "norm": nn.LayerNorm(24), "wide": nn.Linear(24, 96), "out": nn.Linear(96, 24),
        "gamma": nn.Parameter(torch.full((24,), 0.5)), "head": nn.Linear(24, 10),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 3, 64, 64),)


def _unet(torch: Any) -> Any:
    nn = torch.nn

    def block(a: int, b: int) -> Any:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

    def forward(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.b(torch.nn.functional.max_pool2d(a, 2))
        return m.d(torch.cat([m.up(b), a], 1)).sigmoid()

    parts = {"a": block(3, 8), "b": block(8, 16), "up": nn.ConvTranspose2d(16, 8, 2, 2), "d": block(16, 1)}
    return _module(torch, parts, forward), (torch.randn(1, 3, 48, 48),)


def _squeeze_excite(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        x = m.act(m.stem_norm(m.stem(x)))
        y = m.act(m.depth_norm(m.depthwise(x)))
        scale = torch.sigmoid(m.up(m.act(m.down(torch.nn.functional.adaptive_avg_pool2d(y, 1)))))
        return m.head(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(x + y * scale, 1), 1))

    parts = {
        "act": nn.SiLU(), "stem": nn.Conv2d(3, 16, 3, 2, 1, bias=False), "stem_norm": nn.BatchNorm2d(16),
        "depthwise": nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False), "depth_norm": nn.BatchNorm2d(16),
        "down": nn.Conv2d(16, 4, 1), "up": nn.Conv2d(4, 16, 1), "head": nn.Linear(16, 10),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 3, 64, 64),)


def _mixer(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        y = m.patch(x).flatten(2).transpose(1, 2)
        y = y + m.tokens(m.n1(y).transpose(1, 2)).transpose(1, 2)
        y = y + m.channels(m.n2(y))
        return m.head(y.mean(1))

    def mlp(a: int, b: int) -> Any:
        return nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))

    parts = {
        "patch": nn.Conv2d(3, 32, 8, 8), "tokens": mlp(36, 64), "channels": mlp(32, 128), "n1": nn.LayerNorm(32),
        "n2": nn.LayerNorm(32), "head": nn.Linear(32, 10),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 3, 48, 48),)


def _gpt(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, ids: Any) -> Any:
        x = m.words(ids) + m.places(torch.arange(ids.shape[1]))
        q, k, v = (part.unflatten(2, (4, 16)).transpose(1, 2) for part in m.qkv(m.n1(x)).chunk(3, -1))
        hidden = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), 1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4.0 + hidden, -1)
        x = x + m.out((weights @ v).transpose(1, 2).flatten(2))
        return m.head(m.n3(x + m.mlp(m.n2(x))))

    parts = {
        "words": nn.Embedding(100, 64), "places": nn.Embedding(32, 64), "qkv": nn.Linear(64, 192),
        "out": nn.Linear(64, 64),
        "mlp": nn.Sequential(nn.Linear(64, 256), nn.GELU(approximate="tanh"), nn.Linear(256, 64)),
        "n1": nn.LayerNorm(64), "n2": nn.LayerNorm(64), "n3": nn.LayerNorm(64), "head": nn.Linear(64, 100, bias=False),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randint(0, 100, (1, 20)),)


def _tagger(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, ids: Any) -> Any:
        return m.head(m.lstm(m.words(ids))[0])

    parts = {
        "words": nn.Embedding(50, 24), "lstm": nn.LSTM(24, 32, 2, batch_first=True, bidirectional=True),
        "head": nn.Linear(64, 9),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randint(0, 50, (1, 12)),)


def _gru(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any, h: Any) -> Any:
        y, state = m.gru(x, h)
        return m.head(y[:, -1]), state

    parts = {"gru": nn.GRU(20, 48, batch_first=True), "head": nn.Linear(48, 5)}
    return _module(torch, parts, forward), (torch.randn(1, 15, 20), torch.zeros(1, 1, 48))


def _encoder(torch: Any) -> Any:
    layer = torch.nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, activation="gelu", norm_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(1, 18, 48),)


def _cross(torch: Any) -> Any:
    nn = torch.nn
    parts = {"attend": nn.MultiheadAttention(32, 4, batch_first=True), "norm": nn.LayerNorm(32)}
    return (
        _module(torch, parts, lambda m, q, kv: m.norm(q + m.attend(q, kv, kv, need_weights=False)[0])),
        (torch.randn(1, 6, 32), torch.randn(1, 11, 32)),
    )


def _super_resolution(torch: Any) -> Any:
    nn = torch.nn
    layers = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1), nn.PReLU(16),
        nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip
    return layers, (torch.randn(1, 1, 32, 32),)


def _segmentation(torch: Any) -> Any:
    nn, f = torch.nn, torch.nn.functional

    def forward(m: Any, x: Any) -> Any:
        y = f.relu(m.a(x))
        parts = [f.relu(branch(y)) for branch in m.branches]
        pooled = f.interpolate(f.adaptive_avg_pool2d(y, 1), size=y.shape[2:], mode="bilinear", align_corners=False)
        logits = m.head(torch.cat([*parts, pooled], 1))
        return f.interpolate(logits, scale_factor=4, mode="bilinear", align_corners=False).argmax(1)

    branches = nn.ModuleList([nn.Conv2d(12, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)])
    parts = {"a": nn.Conv2d(3, 12, 3, 4, 1), "branches": branches, "head": nn.Conv2d(36, 5, 1)}
    return _module(torch, parts, forward), (torch.randn(1, 3, 64, 64),)


def _style(torch: Any) -> Any:
    nn = torch.nn
    layers = nn.Sequential(
        nn.ReflectionPad2d(4), nn.Conv2d(3, 12, 9), nn.InstanceNorm2d(12, affine=True), nn.LeakyReLU(0.2),
        nn.Conv2d(12, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ELU(), nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(16, 3, 3, padding=1), nn.Hardtanh(),
    )  # fmt: skip
    return layers, (torch.randn(1, 3, 40, 40),)


def _wavenet(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        x, total = m.start(x), 0
        for gate, out in zip(m.gates, m.outs, strict=True):
            y = out(torch.nn.functional.glu(gate(x), 1))
            x, total = x + y, total + y
        return m.end(torch.relu(total)).log_softmax(1)

    gates = nn.ModuleList([nn.Conv1d(16, 32, 3, padding=d, dilation=d) for d in (1, 2, 4, 8)])
    parts = {
        "start": nn.Conv1d(1, 16, 1), "gates": gates, "outs": nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(4)]),
        "end": nn.Conv1d(16, 20, 1),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 1, 200),)


def _windows(torch: Any) -> Any:
    """Attention in windows that are moved, as Swin has it."""
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        y = torch.roll(m.norm(x), (-2, -2), (1, 2))
        y = y.view(1, 4, 4, 4, 4, 24).permute(0, 1, 3, 2, 4, 5).reshape(16, 16, 24)
        q, k, v = m.qkv(y).reshape(16, 16, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = m.out(((q * 8**-0.5 @ k.transpose(-2, -1) + m.bias).softmax(-1) @ v).transpose(1, 2).reshape(16, 16, 24))
        y = y.view(1, 4, 4, 4, 4, 24).permute(0, 1, 3, 2, 4, 5).reshape(1, 16, 16, 24)
        return x + torch.roll(y, (2, 2), (1, 2))

    parts = {
        "norm": nn.LayerNorm(24), "qkv": nn.Linear(24, 72), "out": nn.Linear(24, 24),
        "bias": nn.Parameter(torch.randn(3, 16, 16) * 0.1),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 16, 16, 24),)


def _warp(torch: Any) -> Any:
    nn, f = torch.nn, torch.nn.functional

    def forward(m: Any, x: Any) -> Any:
        theta = m.place(f.adaptive_avg_pool2d(x, 4).flatten(1)).view(-1, 2, 3)
        base = torch.stack([*torch.meshgrid(m.line, m.line, indexing="xy"), torch.ones(24, 24)], -1).view(1, -1, 3)
        return f.grid_sample(x, (base @ theta.transpose(1, 2)).view(1, 24, 24, 2), align_corners=False)

    parts = {"place": nn.Linear(48, 6), "line": nn.Parameter(torch.linspace(-1, 1, 24))}
    return _module(torch, parts, forward), (torch.randn(1, 3, 24, 24),)


def _recommender(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, user: Any, items: Any, x: Any) -> Any:
        u, i = m.users(user), m.items(items)
        scores = (i @ u.unsqueeze(-1)).squeeze(-1) + m.mlp(torch.cat([u, x], 1)).sigmoid()
        return torch.topk(scores, 5, 1)

    parts = {
        "users": nn.Embedding(100, 16), "items": nn.Embedding(500, 16),
        "mlp": nn.Sequential(nn.Linear(20, 32), nn.SELU(), nn.Linear(32, 1)),
    }  # fmt: skip
    arguments = (torch.randint(0, 100, (4,)), torch.randint(0, 500, (4, 30)), torch.randn(4, 4))
    return _module(torch, parts, forward), arguments


def _rotary(torch: Any) -> Any:
    """A decoder's attention with turned places, fewer heads of keys, and a norm by squares."""
    nn = torch.nn

    def norm(x: Any, w: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(m: Any, x: Any) -> Any:
        y, length = norm(x, m.w1), x.shape[1]
        angles = torch.outer(torch.arange(length).float(), m.frequencies)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        q = turned(m.q(y).view(1, length, 4, 16).transpose(1, 2), cos, sin)
        k = turned(m.k(y).view(1, length, 2, 16).transpose(1, 2), cos, sin).repeat_interleave(2, 1)
        v = m.v(y).view(1, length, 2, 16).transpose(1, 2).repeat_interleave(2, 1)
        x = x + m.o((torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v).transpose(1, 2).reshape(1, length, 64))
        y = norm(x, m.w2)
        return x + m.down(torch.nn.functional.silu(m.gate(y)) * m.up(y))

    frequencies = 10000 ** (-torch.arange(0, 16, 2).float() / 16)
    parts = {
        "q": nn.Linear(64, 64, False), "k": nn.Linear(64, 32, False), "v": nn.Linear(64, 32, False),
        "o": nn.Linear(64, 64, False), "gate": nn.Linear(64, 128, False), "up": nn.Linear(64, 128, False),
        "down": nn.Linear(128, 64, False), "w1": nn.Parameter(torch.ones(64)), "w2": nn.Parameter(torch.ones(64)),
        "frequencies": nn.Parameter(frequencies),
    }  # fmt: skip
    return _module(torch, parts, forward), (torch.randn(1, 10, 64),)


# ---------------------------------------------------------------- scikit-learn


def _sklearn(build: Callable[[], Any], **options: Any) -> Maker:
    """A maker that fits an estimator on seeded data of 12 columns and three classes, and converts it."""

    def make(path: Path) -> Shapes:
        from skl2onnx import to_onnx

        rng = np.random.default_rng(0)
        x = rng.standard_normal((400, 12)).astype(np.float32)
        y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.5).astype(int) + (x[:, 3] > 1)
        fitted = build().fit(x, y)
        how = {"options": {type(fitted): options}} if options else {}
        made = to_onnx(fitted, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}, **how)
        path.write_bytes(made.SerializeToString())
        return {"X": [20, 12]}

    return make


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(60, random_state=0)


def _boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=80, random_state=0)


def _neighbours() -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(5)


def _pipeline() -> Any:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    return make_pipeline(StandardScaler(), PCA(6), PolynomialFeatures(2), LogisticRegression(max_iter=500))


def _perceptron() -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    return make_pipeline(MinMaxScaler(), MLPClassifier((32, 16), max_iter=60, random_state=0))


def _support_vectors() -> Any:
    from sklearn.svm import SVR

    return SVR(kernel="rbf", C=2.0)


def _clusters() -> Any:
    from sklearn.cluster import KMeans

    return KMeans(5, n_init=2, random_state=0)


# ---------------------------------------------------------------- ONNX Runtime's quantiser


def _quantised(source: str, how: str, **options: Any) -> Maker:
    """A maker that quantises what another one writes, with the numbers of seeded inputs."""

    def make(path: Path) -> Shapes:
        import onnx
        from onnxruntime import quantization as q

        plain = path.with_name(f"{path.stem}-float.onnx")
        shapes = MAKERS[source](plain)
        prepared = path.with_name(f"{path.stem}-prepared.onnx")
        q.shape_inference.quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        if how == "dynamic":
            q.quantize_dynamic(str(prepared), str(path), **options)
            return shapes
        inputs = onnx.load(str(prepared)).graph.input
        extents = {item.name: [d.dim_value for d in item.type.tensor_type.shape.dim] for item in inputs}
        rng = np.random.default_rng(1)
        drawn = [{name: rng.standard_normal(shape) for name, shape in extents.items()} for _ in range(4)]
        rows = [{name: array.astype(np.float32) for name, array in row.items()} for row in drawn]

        class Reader(q.CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> Any:
                return rows.pop() if rows else None

        form = {"qdq": q.QuantFormat.QDQ, "operators": q.QuantFormat.QOperator}[how]
        q.quantize_static(str(prepared), str(path), Reader(), quant_format=form, **options)
        return shapes

    return make


# ---------------------------------------------------------------- as converters of Keras write


def _keras(build: Callable[[Any], None]) -> Maker:
    """A maker that puts a graph together node by node."""

    def make(path: Path) -> Shapes:
        import onnx
        from onnx import helper

        g = Keras()
        build(g)
        graph = helper.make_graph(
            g.nodes, "keras", g.inputs, [onnx.ValueInfoProto(name=name) for name in g.outputs], g.weights
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
        path.write_bytes(made.SerializeToString())
        return {}

    return make


class Keras:
    """A graph in the making, whose images have their channels last."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[str] = []
        self.weights: list[Any] = []

    def input(self, name: str, shape: list[int], integer: bool = False) -> str:
        """An input of floats, or of int64."""
        from onnx import TensorProto, helper

        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def add(self, op: str, *inputs: str, **values: Any) -> str:
        """A node; the name of its result."""
        from onnx import helper

        made = f"StatefulPartitionedCall/{op.lower()}_{len(self.nodes)}:0"
        self.nodes.append(helper.make_node(op, inputs, [made], made[:-2], **values))
        return made

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        """Seeded weights."""
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: Any) -> str:
        """A constant."""
        from onnx import numpy_helper

        name = f"const_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(self, x: str, channels: int, filters: int, size: int, **values: Any) -> str:
        """A convolution of an image with its channels last."""
        turned = self.add("Transpose", x, perm=[0, 3, 1, 2])
        group = values.get("group", 1)
        weight = self.weight(filters, channels // group, size, size)
        y = self.add("Conv", turned, weight, auto_pad="SAME_UPPER", **values)
        y = self.add("Transpose", y, perm=[0, 2, 3, 1])
        return self.add("Add", y, self.weight(filters))


def _keras_images(g: Keras) -> None:
    x = g.input("input_1", [1, 32, 32, 3])
    x = g.add("Relu", g.conv(x, 3, 12, 3, strides=[2, 2]))
    x = g.add("Clip", g.conv(x, 12, 12, 3, group=12), g.constant(np.float32(0)), g.constant(np.float32(6)))
    turned = g.add("Transpose", x, perm=[0, 3, 1, 2])
    pooled = g.add("MaxPool", turned, kernel_shape=[2, 2], strides=[2, 2])
    back = g.add("Transpose", pooled, perm=[0, 2, 3, 1])
    flat = g.add("Reshape", back, g.constant(np.array([-1, 768], np.int64)))
    logits = g.add("Add", g.add("MatMul", flat, g.weight(768, 10, scale=0.05)), g.weight(10))
    g.outputs = [g.add("Softmax", logits, axis=-1)]


def _keras_lstm(g: Keras) -> None:
    x = g.input("words", [1, 16], integer=True)
    rows = g.add("Gather", g.weight(60, 20), x)
    turned = g.add("Transpose", rows, perm=[1, 0, 2])
    hidden = 24
    y = g.add(
        "LSTM", turned, g.weight(2, 4 * hidden, 20), g.weight(2, 4 * hidden, hidden), g.weight(2, 8 * hidden), "",
        hidden_size=hidden, direction="bidirectional",
    )  # fmt: skip
    y = g.add("Reshape", g.add("Transpose", y, perm=[0, 2, 1, 3]), g.constant(np.array([16, 1, 48], np.int64)))
    last = g.add("ReduceMax", g.add("Transpose", y, perm=[1, 0, 2]), axes=[1], keepdims=0)
    g.outputs = [g.add("Sigmoid", g.add("Add", g.add("MatMul", last, g.weight(48, 3)), g.weight(3)))]


def _keras_detection(g: Keras) -> None:
    x = g.input("image", [1, 32, 32, 3])
    x = g.add("LeakyRelu", g.conv(x, 3, 16, 3, strides=[4, 4]), alpha=0.1)
    head = g.add("Reshape", g.conv(x, 16, 18, 1), g.constant(np.array([1, -1, 6], np.int64)))
    parts = [g.constant(np.array([n], np.int64)) for n in (0, 2, 4, 6)]
    one, three = (g.constant(np.array([n], np.int64)) for n in (1, 3))
    corner = g.add("Sigmoid", g.add("Slice", head, parts[0], parts[1], g.constant(np.array([2], np.int64))))
    size = g.add("Exp", g.add("Slice", head, parts[1], parts[2], g.constant(np.array([2], np.int64))))
    boxes = g.add("Concat", corner, g.add("Add", corner, size), axis=2)
    scores = g.add("Sigmoid", g.add("Slice", head, parts[2], parts[3], g.constant(np.array([2], np.int64))))
    numbers = (np.array(10, np.int64), np.array(0.5, np.float32), np.array(0.3, np.float32))
    chosen = g.add("NonMaxSuppression", boxes, g.add("Transpose", scores, perm=[0, 2, 1]), *map(g.constant, numbers))
    place = g.add("Squeeze", g.add("Slice", chosen, parts[1], three, one), one)
    found = g.add("Gather", g.add("Squeeze", boxes, g.constant(np.array([0], np.int64))), place, axis=0)
    g.outputs = [chosen, found]


MAKERS: Mapping[str, Maker] = {
    "torch/convnext": _torch(_convnext), "torch/unet": _torch(_unet), "torch/squeeze-excite": _torch(_squeeze_excite),
    "torch/mixer": _torch(_mixer), "torch/gpt": _torch(_gpt), "torch/tagger": _torch(_tagger),
    "torch/gru": _torch(_gru), "torch/encoder": _torch(_encoder), "torch/cross-attention": _torch(_cross),
    "torch/super-resolution": _torch(_super_resolution), "torch/segmentation": _torch(_segmentation),
    "torch/style": _torch(_style), "torch/wavenet": _torch(_wavenet), "torch/windows": _torch(_windows),
    "torch/warp": _torch(_warp), "torch/recommender": _torch(_recommender), "torch/rotary": _torch(_rotary),
    "sklearn/forest": _sklearn(_forest, zipmap=False), "sklearn/boosting": _sklearn(_boosting),
    "sklearn/neighbours": _sklearn(_neighbours, optim="cdist", zipmap=False),
    "sklearn/pipeline": _sklearn(_pipeline),
    "sklearn/perceptron": _sklearn(_perceptron), "sklearn/svr": _sklearn(_support_vectors),
    "sklearn/kmeans": _sklearn(_clusters),
    "quantised/unet-qdq": _quantised("torch/unet", "qdq", per_channel=True),
    "quantised/squeeze-excite-operators": _quantised("torch/squeeze-excite", "operators"),
    "quantised/encoder-dynamic": _quantised("torch/encoder", "dynamic"),
    "keras/images": _keras(_keras_images), "keras/lstm": _keras(_keras_lstm),
    "keras/detection": _keras(_keras_detection),
}  # fmt: skip
"""Thirty networks by name."""
