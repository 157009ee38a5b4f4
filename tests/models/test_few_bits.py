"""Products by weights of few bits, against NumPy and ONNX Runtime; and what ONNX makes of numbers of few bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import value

from stridesmith.backends.host import host_cpu
from stridesmith.backends.llvm.compile import compile_assembly
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate as render
from stridesmith.cost_model.features import FeatureMap
from stridesmith.errors import ModelProblem
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Operator
from stridesmith.models.onnx import read
from stridesmith.models.operators import BUILDERS, FAMILIES
from stridesmith.models.operators.few_bits import most_rows
from stridesmith.space.design.space import generate

Array = np.ndarray[Any, Any]


def model(arrays: dict[str, Array], a: tuple[str, tuple[int, ...]], **values: Any) -> onnx.ModelProto:
    """A model of one MatMulNBits, whose operands but the first are constants; one of None is left out."""
    names = ["a", *arrays]
    given = [name if name == "a" or arrays[name] is not None else "" for name in names]
    while not given[-1]:
        given.pop()
    node = helper.make_node("MatMulNBits", given, ["y"], "node", domain="com.microsoft", **values)
    tensors = [onnx.numpy_helper.from_array(v, n) for n, v in arrays.items() if v is not None]
    graph = helper.make_graph([node], "one", [value("a", a[1], a[0])], [onnx.ValueInfoProto(name="y")], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def drawn(seed: int) -> tuple[onnx.ModelProto, Array, Array]:
    """A random product, its first operand, and the result in float64 as the operator is defined."""
    rng = np.random.default_rng(seed)
    bits, block = int(rng.choice((4, 8))), int(rng.choice((16, 32, 64, 128, 256)))
    n, k = int(rng.integers(1, 40)), int(rng.integers(1, 5)) * block - int(rng.choice((0, 0, 1, 7)))
    shape = ((1, k), (3, k), (2, 3, k), (1, 1, k))[rng.integers(4)]
    groups, kind = -(-k // block), ("none", "packed", "float")[rng.integers(3)]
    w = rng.integers(0, 256, (n, groups, block * bits // 8)).astype(np.uint8)
    scale = (rng.random((n, groups)) * 0.02 + 0.001).astype(np.float32)
    q = w if bits == 8 else np.stack((w & 15, w >> 4), -1)
    q = q.reshape(n, -1)[:, :k].astype(np.float64)
    zero, given = np.full((n, groups), 1 << bits - 1, np.float64), None
    if kind == "packed":
        given = rng.integers(0, 256, (n, -(-groups * bits // 8))).astype(np.uint8)
        zero = (given if bits == 8 else np.stack((given & 15, given >> 4), -1).reshape(n, -1))[:, :groups]
    elif kind == "float":
        given = (rng.random((n, groups)) * (1 << bits)).astype(np.float32)
        zero = given
    bias = rng.standard_normal(n).astype(np.float32) if rng.random() < 0.3 else None
    flat = rng.random() < 0.5  # older models have scales and zero points in one dimension
    arrays = {
        "w": w, "scale": scale.reshape(-1) if flat else scale,
        "zero": None if given is None else given.reshape(-1) if flat else given, "order": None, "bias": bias,
    }  # fmt: skip
    a = rng.standard_normal(shape).astype(np.float32)
    spread = [np.repeat(np.asarray(part, np.float64), block, 1)[:, :k] for part in (zero, scale)]
    wanted = a.astype(np.float64) @ ((q - spread[0]) * spread[1]).T
    made = model(arrays, ("float32", shape), K=k, N=n, bits=bits, block_size=block)
    return made, a, wanted if bias is None else wanted + bias


@pytest.mark.parametrize("seed", range(12))
def test_products_by_packed_weights_are_their_definition(seed: int) -> None:
    """4 and 8 bits, blocks of any size, zero points of both kinds, ends of K within a block; ONNX Runtime agrees."""
    made, a, wanted = drawn(seed)
    network = read(made)
    (node,) = network.nodes
    assert isinstance(node, Operator) and "of_" in node.func.name
    assert any(array.dtype == np.uint8 for array in network.constants.values()), "the weights stay packed"
    (found,) = evaluate(network, {"a": a}).values()
    bound = 1e-5 * np.abs(wanted).max() + 1e-5
    np.testing.assert_allclose(found, wanted, atol=bound)
    runtime = pytest.importorskip("onnxruntime")
    try:
        session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {"a": a})
    except Exception as error:  # which has not every form of it in every version
        pytest.skip(str(error))
    np.testing.assert_allclose(found, theirs, atol=20 * bound)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_rounded_to_bytes_where_the_model_lets_them(seed: int) -> None:
    """Level 4: blocks of signed bytes times whole numbers, as they are defined; ONNX Runtime agrees."""
    rng = np.random.default_rng(seed)
    bits, block = (4, 8)[seed % 2], int(rng.choice((32, 64, 128)))
    n, groups, rows = (
        int(rng.integers(1, 40)),
        int(rng.integers(1, 5)),
        int(rng.integers(1, most_rows(block, bits) + 1)),
    )
    w = rng.integers(0, 256, (n, groups, block * bits // 8)).astype(np.uint8)
    scale = (rng.random((n, groups)) * 0.02 + 0.001).astype(np.float32)
    q = (w if bits == 8 else np.stack((w & 15, w >> 4), -1)).reshape(n, groups, block).astype(np.int64)
    given = rng.integers(0, 256, (n, -(-groups * bits // 8))).astype(np.uint8) if seed % 4 > 1 else None
    bias = rng.standard_normal(n).astype(np.float32) if seed % 3 == 0 else None
    arrays = {"w": w, "scale": scale, "zero": given, "order": None, "bias": bias}
    values = {"K": groups * block, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4}
    made = model(arrays, ("float32", (rows, groups * block)), **values)
    a = rng.standard_normal((rows, groups * block)).astype(np.float32)
    a[0, :block] = 0  # a block without a scale
    network = read(made)
    assert [node.func.name for node in network.nodes if isinstance(node, Operator)] == [
        "scales_of_blocks", "bytes_of_blocks", f"matmul_of_bytes_by_{bits}_bits",
    ]  # fmt: skip
    (found,) = evaluate(network, {"a": a}).values()
    blocks = a.reshape(rows, groups, block)
    size = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    whole = np.rint(np.divide(blocks, size, out=np.zeros_like(blocks), where=size > 0)).astype(np.int64)
    zero = np.full((n, groups, 1), 1 << bits - 1)
    if given is not None:
        halves = given if bits == 8 else np.stack((given & 15, given >> 4), -1).reshape(n, -1)
        zero = halves[:, :groups, None].astype(np.int64)
    centred = q - zero
    wanted = np.einsum("mgk,ngk,mg,ng->mn", whole, centred, size[..., 0].astype(float), scale.astype(float))
    wanted = wanted if bias is None else wanted + bias
    step = np.einsum("mg,ngk,ng->mn", size[..., 0], np.abs(centred), scale).max()  # a number at a half, either way
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max() + 0.02 * step)
    runtime = pytest.importorskip("onnxruntime")
    try:
        (theirs,) = runtime.InferenceSession(made.SerializeToString()).run(None, {"a": a})
    except Exception as error:  # which has not every form of it in every version
        pytest.skip(str(error))
    np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


def test_many_rows_or_parts_of_blocks_stay_floats() -> None:
    """A level lets the operator round, and does not ask it to."""
    w, scale = np.zeros((4, 2, 16), np.uint8), np.ones((4, 2), np.float32)
    for rows, size in ((3, 64), (1, 60)):
        values = {"K": size, "N": 4, "bits": 4, "block_size": 32, "accuracy_level": 4}
        network = read(model({"w": w, "scale": scale}, ("float32", (rows, size)), **values))
        assert _program(network).name == "matmul_of_4_bits"


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "g_idx": ({"order": np.zeros(32, np.int32)}, {}, "g_idx"),
    "bits": ({}, {"bits": 2}, "there are those of 4 and 8 bits"),
    "block": ({}, {"block_size": 24}, "in blocks of a power of two"),
    "shape": ({}, {"N": 5}, "which are not those of N = 5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_forms_are_refused_in_words(case: str) -> None:
    """An order of groups, other widths and blocks, and operands that do not fit each other."""
    arrays, values, told = REFUSED[case]
    rng = np.random.default_rng(0)
    w = rng.integers(0, 256, (4, 1, 16)).astype(np.uint8)
    known: dict[str, Any] = {"w": w, "scale": np.ones((4, 1), np.float32), "zero": None, "order": None} | arrays
    with pytest.raises(ModelProblem, match=told):
        read(model(known, ("float32", (2, 32)), **({"K": 32, "N": 4, "bits": 4, "block_size": 32} | values)))


def test_halves_are_multiplied_in_float32() -> None:
    """float16 operands are summed in float32 and rounded once."""
    rng = np.random.default_rng(1)
    w, scale = rng.integers(0, 256, (8, 2, 8)).astype(np.uint8), rng.random((8, 2)).astype(np.float16)
    a = rng.standard_normal((3, 32)).astype(np.float16)
    network = read(model({"w": w, "scale": scale}, ("float16", (3, 32)), K=32, N=8, bits=4, block_size=16))
    (found,) = evaluate(network, {"a": a}).values()
    q = np.stack((w & 15, w >> 4), -1).reshape(8, 2, 16) - 8.0
    wanted = a.astype(float) @ (q * scale.astype(float)[..., None]).reshape(8, 32).T
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), wanted, rtol=2e-3, atol=1e-2)


def test_no_operator_has_two_builders() -> None:
    """The table of all families would have the last one, without a word."""
    assert len(BUILDERS) == sum(len(family.BUILDERS) for family in FAMILIES)


def _program(network: Any) -> PrimFunc:
    (node,) = network.nodes
    assert isinstance(node, Operator)
    return node.func


ONE: dict[str, tuple[str, dict[str, Any], list[Array]]] = {
    "BitShift": (
        "BitShift",
        {"direction": "LEFT"},
        [np.array([1, 3, 65535], np.uint16), np.array([15, 1, 16], np.uint16)],
    ),
    "BitwiseNot": ("BitwiseNot", {}, [np.array([0, 5, 2**64 - 1], np.uint64)]),
    "Mod": ("Mod", {"fmod": 1}, [np.array([-4.5, 7.0, 5.25], np.float32), np.array([2.0, -3.0, 0.5], np.float32)]),
    "Mod of integers": ("Mod", {"fmod": 1}, [np.array([-7, 7, -128], np.int8), np.array([2, -3, -1], np.int8)]),
    "Div": ("Div", {}, [np.array([-7, 7, -128], np.int8), np.array([2, -3, -1], np.int8)]),
}
WANTED = {
    "BitShift": [32768, 6, 0], "BitwiseNot": [2**64 - 1, 2**64 - 6, 0], "Mod": [-0.5, 1.0, 0.25],
    "Mod of integers": [-1, 1, 0], "Div": [-3, -2, -128],
}  # fmt: skip


@pytest.mark.parametrize("case", ONE)
def test_operators_on_bits_and_rests_are_programs(case: str) -> None:
    """Shifts, bits and rests of unsigned and negative numbers, and the rest of floats, are what ONNX defines."""
    op, values, arrays = ONE[case]
    given = {f"x{n}": array for n, array in enumerate(arrays)}
    node = helper.make_node(op, list(given), ["y"], **values)
    inputs = [value(name, array.shape, str(array.dtype)) for name, array in given.items()]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
    network = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    assert not network.foreign and _program(network)
    (found,) = evaluate(network, given).values()
    assert found.dtype == arrays[0].dtype
    assert found.tolist() == WANTED[case]


def test_a_row_by_packed_weights_is_computed_in_vectors() -> None:
    """One row on AVX-512: bytes are widened, halved and multiplied in whole registers, and no number is taken apart."""
    target = replace(host_cpu(), threads=1)
    if target.isa != "avx512":
        pytest.skip("reads instructions of AVX-512")
    rng = np.random.default_rng(0)
    w, scale = rng.integers(0, 256, (256, 8, 16)).astype(np.uint8), np.ones((256, 8), np.float32)
    func = _program(read(model({"w": w, "scale": scale}, ("float32", (1, 256)), K=256, N=256, bits=4, block_size=32)))
    interface = {buffer.name: "constant" if buffer.name in ("w", "scale") else "fixed" for buffer in func.buffers}
    space = generate(func, target, interface)
    features = FeatureMap(space.sketches, target)
    found = []
    for number, sketch in enumerate(space.sketches):
        drawn_at = np.asarray(sketch.draw(np.random.default_rng(0), 300))
        seconds = features.estimate(number, drawn_at)
        found.append((float(np.min(seconds)), number, drawn_at[np.argmin(seconds)]))
    _, number, best = min(found, key=lambda each: each[:2])
    text = compile_assembly(render(lower(space.sketches[number].schedule(best).func, target), target), target)
    loop = max(re.split(r"^\.?L\w+:.*$", text, flags=re.M), key=lambda part: part.count("vfmadd"))
    products = len(re.findall(r"\tvfmadd\w+ps\t.*zmm", loop))
    assert products and not re.search(r"vcvtsi2ss|vmulss|vfmadd\w+ss|vpextr|vpinsr", loop)
    assert len(re.findall(r"\tvcvtdq2ps\t%zmm", loop)) == products
    instructions = [line for line in loop.splitlines() if re.match(r"\t[a-z]", line)]
    assert len(instructions) <= 0.75 * 16 * products, "of which each product takes sixteen weights"
