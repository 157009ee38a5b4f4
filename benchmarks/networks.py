"""The ten networks of the benchmarks, and their inputs.

    python benchmarks/networks.py --out FOLDER [--only NAME]

Five come from the tests of the package `onnx`, where weights are constants without meaning: they get seeded random
ones.  Three are those of PP-OCRv4, with their real weights, from the wheel `rapidocr-onnxruntime`, which pip downloads.
Two are written here: MobileNetV2, and six layers of BERT-base at 127 tokens.  Nothing else is fetched from anywhere.

``NAME:int8`` is the network after ONNX Runtime's static quantiser and the preparation that this asks for: bytes between
QuantizeLinear and DequantizeLinear, weights with a scale for each channel, calibrated on seeded inputs.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]

CALIBRATION = 8
"""Inputs from which the quantiser learns the ranges of tensors."""
PER_CHANNEL = 13
"""The version of ONNX's operators since which scales may differ between channels."""


@dataclass(frozen=True)
class Net:
    """A model, and the shape of its one input."""

    name: str
    make: Callable[[], ModelProto]
    shape: tuple[int, ...]
    reads: bool = False

    def input(self, model: ModelProto, seed: int = 0) -> dict[str, Floats]:
        """A seeded random input; for networks that were trained to read, something like writing."""
        name = next(i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer})
        rng = np.random.default_rng(seed)
        found = writing(rng, *self.shape[2:]) if self.reads else rng.standard_normal(self.shape)
        return {name: np.ascontiguousarray(np.broadcast_to(found, self.shape), np.float32)}


def writing(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """Dark strokes on light paper, in lines of characters of 5 by 7 fields, from -1 to 1."""
    field = 4
    page = np.ones((height, width))
    for top in range(field, height - 7 * field, 11 * field):
        for left in range(2 * field, width - 5 * field, 6 * field):
            strokes = np.kron(rng.random((7, 5)) < 0.5, np.ones((field, field)))
            page[top : top + 7 * field, left : left + 5 * field] -= 1.8 * strokes
    return np.asarray(page + 0.02 * rng.standard_normal(page.shape))


def light(name: str) -> ModelProto:
    """A model of onnx's tests with random weights."""
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
    return with_random_weights(onnx.load(path))


def with_random_weights(model: ModelProto, seed: int = 0) -> ModelProto:
    """The model with a random tensor for each ConstantOfShape, of a size that keeps activations near 1."""
    rng = np.random.default_rng(seed)
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    users: dict[str, tuple[NodeProto, int]] = {}
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            users.setdefault(name, (node, at))
    made, left = [], []
    # Residual sums let activations grow, so that the layers between them must not, and the last must undo it: where
    # one class has all of a softmax, nobody sees what is wrong.
    gain = 1.0 if any(node.op_type == "Sum" for node in model.graph.node) else 2.0
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            left.append(node)
            continue
        user, at = users[node.output[0]]
        found = _weights(rng, shapes[node.input[0]], user.op_type, at, gain)
        made.append(numpy_helper.from_array(found, node.output[0]))
    used = {name for node in left for name in node.input}
    inputs = [
        i for i in model.graph.input if i.name in used and i.name not in {t.name for t in model.graph.initializer}
    ]
    tensors = [t for t in model.graph.initializer if t.name in used] + made
    graph = helper.make_graph(left, model.graph.name, inputs, list(model.graph.output), tensors)
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=max(4, model.ir_version))


def _weights(rng: np.random.Generator, shape: NDArray[np.int64], op: str, at: int, gain: float) -> Floats:
    size = tuple(int(extent) for extent in shape)
    if op in ("Conv", "Gemm") and at == 1:
        fan = int(np.prod(size[1:]))
        found = rng.standard_normal(size) * np.sqrt((gain if op == "Conv" else 1.0 if gain > 1 else 1e-3) / fan)
    elif op == "BatchNormalization" and at in (1, 4):
        found = rng.uniform(0.6, 1.4, size)
    elif op == "Unsqueeze":
        found = rng.uniform(0.4, 1.0, size)
    else:
        found = rng.standard_normal(size) * 0.1
    return found.astype(np.float32)


def paddle(name: str) -> ModelProto:
    """A model of PP-OCRv4 with its weights."""
    return onnx.load_from_string(_paddle_models()[f"{name}.onnx"])


@functools.cache
def _paddle_models() -> dict[str, bytes]:
    """The models in the wheel, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--dest", folder, "rapidocr-onnxruntime==1.4.4"]
        subprocess.run([sys.executable, "-m", "pip", "download", *options], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".onnx")]
            return {Path(name).name: wheel.read(name) for name in names}


class Writer:
    """A model in the making: nodes, with random weights of a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None, fan: int = 0) -> str:
        """A tensor of normal numbers, of the size that keeps what it is multiplied with."""
        factor = scale if scale is not None else float(np.sqrt(2.0 / max(1, fan)))
        return self.constant((self.rng.standard_normal(shape) * factor).astype(np.float32))

    def constant(self, array: NDArray[np.generic]) -> str:
        """A tensor of these numbers."""
        name = f"w{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """A scalar."""
        return self.constant(np.array(value, np.float32))

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """A node; the name of its result."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{len(self.nodes)}", **attributes))
        return name

    def model(self, name: str, x: tuple[int | str, ...], y: tuple[int | str, ...], last: str) -> ModelProto:
        """The model, from `x` to the tensor `last`."""
        self.nodes.append(helper.make_node("Identity", [last], ["y"]))
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, y)
        graph = helper.make_graph(self.nodes, name, [given], [result], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and stride of each stage of MobileNetV2."""


def mobilenet_v2(
    size: int = 224, stages: int = len(MOBILE), classes: int = 1000, batch: int | str = 1
) -> ModelProto:  # fmt: skip
    """MobileNetV2 of width 1 with its normalisations apart, as exporters write it in training's form."""
    w = Writer()

    def conv(x: str, ci: int, co: int, k: int, stride: int, groups: int, clips: bool) -> str:
        weight = w.weight(co, ci // groups, k, k, fan=ci // groups * k * k)
        pads = [k // 2] * 4
        y = w.add("Conv", x, weight, kernel_shape=[k, k], strides=[stride] * 2, pads=pads, group=groups)
        scale, variance = (w.constant(w.rng.uniform(0.6, 1.4, co).astype(np.float32)) for _ in range(2))
        y = w.add("BatchNormalization", y, scale, w.weight(co, scale=0.1), w.weight(co, scale=0.1), variance)
        return w.add("Clip", y, w.number(0), w.number(6)) if clips else y

    y, channels = conv("x", 3, 32, 3, 2, 1, True), 32
    for expansion, co, blocks, first in MOBILE[:stages]:
        for block in range(blocks):
            stride, inner = (first if block == 0 else 1), channels * expansion
            z = conv(y, channels, inner, 1, 1, 1, True) if expansion > 1 else y
            z = conv(conv(z, inner, inner, 3, stride, inner, True), inner, co, 1, 1, 1, False)
            y, channels = (w.add("Add", y, z) if stride == 1 and channels == co else z), co
    y = conv(y, channels, 1280, 1, 1, 1, True)
    y = w.add("Flatten", w.add("GlobalAveragePool", y))
    y = w.add("Gemm", y, w.weight(classes, 1280, fan=1280), w.weight(classes, scale=0.1), transB=1)
    return w.model("mobilenet_v2", (batch, 3, size, size), (batch, classes), y)


def bert(layers: int = 6, tokens: int | str = 127, hidden: int = 768, heads: int = 12) -> ModelProto:
    """Layers of BERT in the form of exporters: layer normalisation and gelu are many nodes.

    Where `tokens` is a name, their number is free, and Reshape takes it over (0).
    """
    w = Writer()
    length = tokens if isinstance(tokens, int) else 0
    split = w.constant(np.array([1, length, heads, hidden // heads], np.int64))
    whole = w.constant(np.array([1, length, hidden], np.int64))

    def linear(x: str, ci: int, co: int) -> str:
        return w.add("Add", w.add("MatMul", x, w.weight(ci, co, scale=float(ci**-0.5))), w.weight(co, scale=0.1))

    def norm(x: str) -> str:
        centred = w.add("Sub", x, w.add("ReduceMean", x, axes=[-1], keepdims=1))
        variance = w.add("ReduceMean", w.add("Pow", centred, w.number(2)), axes=[-1], keepdims=1)
        y = w.add("Div", centred, w.add("Sqrt", w.add("Add", variance, w.number(1e-12))))
        gamma = w.constant(w.rng.uniform(0.6, 1.4, hidden).astype(np.float32))
        return w.add("Add", w.add("Mul", y, gamma), w.weight(hidden, scale=0.1))

    def gelu(x: str) -> str:
        y = w.add("Add", w.add("Erf", w.add("Div", x, w.number(2**0.5))), w.number(1))
        return w.add("Mul", w.add("Mul", x, y), w.number(0.5))

    y = "x"
    for _ in range(layers):
        q, k, v = (w.add("Reshape", linear(y, hidden, hidden), split) for _ in range(3))
        q, v = (w.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = w.add("MatMul", q, w.add("Transpose", k, perm=[0, 2, 3, 1]))
        scores = w.add("Softmax", w.add("Div", scores, w.number(float((hidden // heads) ** 0.5))), axis=-1)
        mixed = w.add("Transpose", w.add("MatMul", scores, v), perm=[0, 2, 1, 3])
        y = norm(w.add("Add", y, linear(w.add("Reshape", mixed, whole), hidden, hidden)))
        y = norm(w.add("Add", y, linear(gelu(linear(y, hidden, 4 * hidden)), 4 * hidden, hidden)))
    return w.model("bert", (1, tokens, hidden), (1, tokens, hidden), y)


NETWORKS = {
    net.name: net
    for net in (
        *(Net(n, lambda n=n: light(n), (1, 3, 224, 224))  # type: ignore[misc]
          for n in ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v2")),
        Net("ppocr_det", lambda: paddle("ch_PP-OCRv4_det_infer"), (1, 3, 640, 640), True),
        Net("ppocr_rec", lambda: paddle("ch_PP-OCRv4_rec_infer"), (1, 3, 48, 320), True),
        Net("ppocr_cls", lambda: paddle("ch_ppocr_mobile_v2.0_cls_infer"), (1, 3, 48, 192), True),
        Net("mobilenet_v2", mobilenet_v2, (1, 3, 224, 224)),
        Net("bert", bert, (1, 127, 768)),
    )
}  # fmt: skip


def written(name: str, folder: Path) -> tuple[Path, dict[str, tuple[int, ...]]]:
    """The file of a network in a folder, made where it is not there yet, and the shape of its input by name."""
    plain, _, precision = name.partition(":")
    net, path = NETWORKS[plain], folder / f"{name.replace(':', '_')}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if precision == "int8":
            quantise(net, written(plain, folder)[0], path.with_suffix(".part"))
        else:
            onnx.save(net.make(), path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path, {given: array.shape for given, array in net.input(onnx.load(path)).items()}


def quantise(net: Net, source: Path, into: Path) -> None:
    """Write the network of the file `source` as ONNX Runtime's static quantiser makes it of `CALIBRATION` inputs.

    Before, its own preparation brings normalisations into convolutions and constants to where the quantiser looks for
    weights, as it asks for.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, model: ModelProto) -> None:
            self.left = iter([net.input(model, seed) for seed in range(1, 1 + CALIBRATION)])

        def get_next(self) -> dict[str, Floats] | None:
            return next(self.left, None)

    model = onnx.load(source)
    if next(o.version for o in model.opset_import if not o.domain) < PER_CHANNEL:
        model = onnx.version_converter.convert_version(model, PER_CHANNEL)
    with tempfile.TemporaryDirectory() as folder:
        newer, prepared = Path(folder) / "newer.onnx", Path(folder) / "prepared.onnx"
        onnx.save(model, newer)
        quant_pre_process(newer, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared, into, Reader(model), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip


def main() -> None:
    """Write the networks and their inputs into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, net in NETWORKS.items():
        if asked.only in (None, name):
            model = onnx.load(written(name, asked.out)[0])
            for given, array in net.input(model).items():
                np.save(asked.out / f"{name}.{given.replace('/', '_')}.npy", array)
            print(f"{asked.out / name}.onnx: {len(model.graph.node)} nodes, input {net.shape}")


if __name__ == "__main__":
    main()
