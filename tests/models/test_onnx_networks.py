"""What becomes of a model: constants and nodes without effect vanish, scales are folded, operators become programs."""

from __future__ import annotations

from typing import Any

import conformance
import networks
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node, value

import stridesmith as ss
from stridesmith.errors import ModelProblem
from stridesmith.models.evaluate import evaluate
from stridesmith.models.fusion import fused
from stridesmith.models.network import Operator, problems
from stridesmith.models.onnx import import_model, read

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def same(made: onnx.ModelProto, right_one: onnx.ModelProto | None = None, **tolerance: float) -> list[str]:
    """Evaluate a model here and by the reference of ONNX, or compare with another one; the names of its programs."""
    network = read(made)
    arrays = {name: normal(*network.tensors[name].shape) for name in network.inputs}
    wanted = ReferenceEvaluator(right_one or made).run(None, arrays)
    for name, right in zip(network.outputs, wanted, strict=True):
        limits: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, **tolerance}
        np.testing.assert_allclose(evaluate(network, arrays)[name], right, **limits)
    assert not list(problems(network))
    return [n.func.name if isinstance(n, Operator) else f"foreign {n.op}" for n in network.nodes]


NORM = {"s": positive(4), "b": normal(4), "m": normal(4), "v": positive(4)}


def test_normalisations_and_scales_go_into_the_convolution() -> None:
    """Conv, BatchNormalization, Mul and Add of constants are one program, whose weights are constants."""
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c s b m v", "n"),
        node("Mul", "n f", "p"), node("Add", "g p", "y"),
    ]  # fmt: skip
    constants = {**NORM, "w": normal(4, 3, 3, 3), "f": positive(4, 1, 1), "g": normal(1, 4, 1, 1)}
    assert same(model(nodes, {"x": (1, 3, 6, 5)}, constants)) == ["conv2d"]


@pytest.mark.parametrize(
    ("shape", "taps", "values", "slices", "whole"),
    [
        ((1, 3, 7), (10,), {"strides": [5]}, [(2, 0, -5)], False),
        ((1, 3, 7), (4,), {"strides": [2], "pads": [1, 0]}, [(2, 1, 13)], False),
        ((1, 3, 5, 4), (3, 4), {"strides": [2, 3], "output_padding": [1, 2]}, [(2, 1, 9), (3, 2, 99)], False),
        ((1, 4, 5, 4), (3, 3), {"strides": [2, 2], "group": 4}, [(-1, -6, -1)], False),
        ((1, 3, 7), (4,), {"strides": [2], "auto_pad": "SAME_UPPER"}, [(2, 1, 13)], True),
        ((1, 3, 7), (4,), {"strides": [2]}, [(1, 0, 2)], True),
    ],
)
def test_a_slice_of_an_upsampled_image_is_cut_off_by_pads(
    shape: tuple[int, ...],
    taps: tuple[int, ...],
    values: dict[str, Any],
    slices: list[tuple[int, int, int]],
    whole: bool,
) -> None:
    """One program computes what is left, and the scale behind it is part of its weights; channels are not cut off."""
    names = ["t", *(f"s{at}" for at in range(len(slices)))]
    constants: dict[str, Any] = {
        "w": normal(shape[1], 4 // values.get("group", 1), *taps),
        "f": positive(4, *[1] * len(taps)),
    }
    nodes = [node("ConvTranspose", "x w", "t", **values)]
    for at, (axis, first, last) in enumerate(slices):
        given = {f"b{at}": first, f"e{at}": last, f"a{at}": axis}
        constants |= {name: np.array([number]) for name, number in given.items()}
        nodes.append(node("Slice", f"{names[at]} b{at} e{at} a{at}", names[at + 1]))
    if whole:
        nodes.append(node("Abs", names[-1], "y"))
    else:
        nodes.append(node("Mul", f"{names[-1]} f", "y"))
    made = same(model(nodes, {"x": shape}, constants))
    assert (made == [f"conv{len(taps)}d_transpose"]) is not whole


STEP_CONSTANTS = {**NORM, "d": np.float32(0.1), "h": np.full((4, 1, 1), 0.5, np.float32), "w": normal(4, 3, 1, 1)}


@pytest.mark.parametrize(
    ("first", "operators"),
    [
        ([node("Div", "x d", "a"), node("Add", "a h", "n")], ["div", "add"]),
        ([node("BatchNormalization", "x s b m v", "n")], ["batch_norm"]),
        ([node("Conv", "x w", "a"), node("Mul", "a h", "n")], ["conv2d", "mul"]),
    ],
    ids=["a division and a sum", "a normalisation", "a convolution and a factor"],
)
@pytest.mark.parametrize(
    ("step", "name"),
    [
        (node("Floor", "n", "y"), "floor"),
        (node("QuantizeLinear", "n d", "y"), "quantizelinear"),
        (node("Less", "n h", "y"), "less"),
        (node("Relu", "n", "y"), "relu"),
    ],
    ids=["floor", "quantize", "less", "relu"],
)
def test_what_decides_a_step_is_computed_as_it_is_written(
    first: list[onnx.NodeProto], operators: list[str], step: onnx.NodeProto, name: str
) -> None:
    """Scales are folded but where the smallest difference may become a whole one."""
    channels = 3 if first[0].op_type == "Conv" else 4
    network = read(model([*first, step], {"x": (1, channels, 6, 5)}, STEP_CONSTANTS))
    found = [n.func.name for n in network.nodes if isinstance(n, Operator)]
    if name == "relu":
        assert len(found) == 2 and found[0] in ("scale_shift", "conv2d")
    else:
        assert found == [*operators, name]


@pytest.mark.parametrize("groups", [1, 2])
def test_scales_go_into_transposed_convolutions(groups: int) -> None:
    """Their weights have the channels of the output second, group by group."""
    norm = node("BatchNormalization", "c s b m v", "y")
    shape, constants = {"x": (1, 6, 4, 3)}, {**NORM, "w": normal(6, 4 // groups, 2, 3)}
    made = model([node("ConvTranspose", "x w", "c", strides=[2, 2], group=groups), norm], shape, constants)
    apart = [  # the reference of ONNX cannot do groups itself
        node("Split", "x", "x0 x1", axis=1), node("Split", "w", "w0 w1", axis=0),
        *(node("ConvTranspose", f"x{at} w{at}", f"c{at}", strides=[2, 2]) for at in range(2)),
        node("Concat", "c0 c1", "c", axis=1), norm,
    ]  # fmt: skip
    assert same(made, model(apart, shape, constants) if groups > 1 else None) == ["conv2d_transpose"]


@pytest.mark.parametrize("turned", [0, 1])
def test_scales_go_into_matrix_products(turned: int) -> None:
    """A factor for each column, a shift into the bias; `beta` is part of the new bias."""
    shape = (4, 5) if turned else (5, 4)
    nodes = [
        node("Gemm", "x w c", "g", transB=turned, beta=0.5, alpha=2.0),
        node("Div", "g s", "d"),
        node("Sub", "d b", "y"),
    ]
    assert same(model(nodes, {"x": (3, 5)}, {**NORM, "w": normal(*shape), "c": normal(4)})) == ["matmul"]
    nodes = [node("MatMul", "x w", "g"), node("Mul", "g s", "y")]
    assert same(model(nodes, {"x": (2, 3, 5)}, {**NORM, "w": normal(5, 4)})) == ["matmul"]


@pytest.mark.parametrize(("factor", "programs"), [(0.01, 1), (1e-6, 2), (1e6, 2)])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
def test_half_precision_weights_keep_their_digits(op: str, factor: float, programs: int) -> None:
    """A scale after which they would be subnormal, or infinite, in float16 stays a program of its own."""
    is_image = op.startswith("Conv")
    shape: tuple[int, ...] = (1, 3, 4, 4) if is_image else (2, 3)
    sizes: dict[str, tuple[int, ...]] = {"Conv": (4, 3, 1, 1), "ConvTranspose": (3, 4, 1, 1)}
    weights = positive(*sizes.get(op, (3, 4))).astype(np.float16)
    scale = np.ones((4, 1, 1) if is_image else 4, np.float16)
    scale[2] = min(factor, 1 / factor)
    nodes = [node(op, "x w", "c"), node("Mul" if factor < 1 else "Div", "c s", "y")]
    made = model(nodes, {"x": shape}, {"w": weights, "s": scale}, dtype="float16")
    assert len(read(made).nodes) == programs


def test_what_is_read_elsewhere_is_not_folded() -> None:
    """A convolution whose own result is an output, or read twice, keeps it."""
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y")]
    made = model(nodes, {"x": (1, 3, 6, 5)}, {**NORM, "w": normal(4, 3, 3, 3)}, outputs="y c")
    assert same(made) == ["conv2d", "scale_shift"]
    nodes = [node("MatMul", "x w", "g"), node("Mul", "g s", "m"), node("Add", "g m", "y")]
    assert same(model(nodes, {"x": (3, 5)}, {"w": normal(5, 4), "s": normal(4)})) == ["matmul", "mul", "add"]


def test_shape_computations_of_exporters_vanish() -> None:
    """Shape, Gather, Concat and Reshape of a symbolic extent leave one program."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n axes", "u"),
        node("Concat", "u rest", "t", axis=0), node("Reshape", "x t", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    made = model(nodes, {"x": ("n", 3, 4)}, constants)
    imported = import_model(made, {"x": (2, 3, 4)})
    assert [n.func.name for n in imported.network.nodes] == ["reshape"]
    assert imported.network.tensors["y"].shape == (2, 12)
    assert [fate.became for fate in imported.fates] == ["constant"] * 4 + ["reshape"]


def test_nodes_without_effect_vanish() -> None:
    """Identity, Dropout, casts to the same type, products with 1, reshapes to the same shape."""
    nodes = [
        node("Identity", "x", "a"), node("Dropout", "a", "b mask"), node("Cast", "b", "c", to=TensorProto.FLOAT),
        node("Mul", "c one", "d"), node("Reshape", "d shape", "e"), node("Relu", "e", "y"),
    ]  # fmt: skip
    made = model(nodes, {"x": (2, 3)}, {"one": 1, "shape": np.array([2, -1])})
    assert same(made) == ["relu"]


def test_an_output_that_is_an_input_is_copied() -> None:
    """An output has a tensor of its own name."""
    assert same(model([node("Identity", "x", "y")], {"x": (2, 3)})) == ["copy"]


def test_constant_branches_are_taken() -> None:
    """An If of a constant condition is its branch, whose names may be those of the other one."""
    branches = [
        helper.make_graph([node(op, "x", "z")], op, [], [value("z", (2, 3))]) for op in ("Relu", "Neg")
    ]  # fmt: skip
    for taken, name in ((True, "relu"), (False, "neg")):
        nodes = [node("If", "c", "y", then_branch=branches[0], else_branch=branches[1])]
        assert name in same(model(nodes, {"x": (2, 3)}, {"c": np.array(taken)}))


def test_functions_of_the_model_and_of_onnx_are_taken_apart() -> None:
    """What ONNX defines by other operators needs no builder of its own."""
    assert "foreign" not in " ".join(same(model([node("MeanVarianceNormalization", "x", "y")], {"x": (2, 3, 4, 5)})))
    body = [node("Relu", "a", "b"), node("Neg", "b", "c")]
    function = helper.make_function("own", "NegRelu", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    made = model([helper.make_node("NegRelu", ["x"], ["y"], domain="own")], {"x": (2, 3)})
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    assert same(made) == ["relu", "neg"]


def test_bodies_with_inner_graphs_know_the_names_around_them() -> None:
    """ONNX writes AffineGrid with branches that read what lies around them."""
    size = np.array([2, 3, 4, 5])
    made = model([node("AffineGrid", "x size", "y", align_corners=1)], {"x": (2, 2, 3)}, {"size": size}, opset=20)
    assert same(made)


def test_rounding_is_exact_where_a_half_cannot_be_added() -> None:
    """Beside a half, and where floats lie one or two apart."""
    values = [0.49999997, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388609.0, 8388611.0, 16777217.0, -0.49999997, np.inf]
    node = onnx.helper.make_node("Round", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [len(values)]) for n in "xy")
    network = read(onnx.helper.make_model(onnx.helper.make_graph([node], "round", [x], [y])))
    given = np.array(values, "float32")
    assert not network.foreign
    np.testing.assert_array_equal(evaluate(network, {"x": given})["y"], np.rint(given))


@pytest.mark.parametrize(("attributes", "sizes"), [({}, None), ({"axis": 1}, [1, 3, 2]), ({"axis": 1}, [4, 0, 2])])
def test_parts_that_nothing_reads_are_left_out(attributes: dict[str, int], sizes: list[int] | None) -> None:
    """Of a Split those results are slices that something reads, and the others keep their place."""
    given = "" if sizes is None else " sizes"
    nodes = [node("Split", f"x{given}", "a b c", **attributes), node("Neg", "c", "y")]
    constants = {} if sizes is None else {"sizes": np.array(sizes)}
    made = model(nodes, {"x": (6, 6)}, constants, outputs="a y")
    assert same(made) == ["slice", "slice", "neg"]
    nodes = [node("Split", f"x{given}", "a b c", **attributes), node("Neg", "a", "y")]
    assert same(model(nodes, {"x": (6, 6)}, constants)) == ["slice", "neg"]


def test_results_that_must_be_there_stay_where_nothing_reads_them() -> None:
    """ONNX has no TopK without indices, and no quantisation without a scale."""
    x, k = {"x": (3, 5)}, {"k": np.array([2])}
    assert same(model([node("TopK", "x k", "y i")], x, k)) == ["topk"]
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"), node("Cast", "q", "f", to=TensorProto.FLOAT),
        node("Cast", "z", "g", to=TensorProto.FLOAT), node("Sub", "f g", "y"),
    ]  # fmt: skip
    assert "foreign" not in " ".join(same(model(nodes, x)))


def test_names_that_are_made_up_are_no_other_tensors() -> None:
    """Whatever a model calls its own: of folded weights, of branches that are taken, of tables."""
    nodes = [
        node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y"), node("Add", "y y/bias", "z"),
        node("Mul", "z y/weights", "u"),
    ]  # fmt: skip
    constants = {**NORM, "w": normal(4, 3, 3, 3), "y/bias": normal(1, 4, 4, 3), "y/weights": normal(1, 4, 4, 3)}
    same(model(nodes, {"x": (1, 3, 6, 5)}, constants, outputs="u"))
    branch = helper.make_graph([node("Relu", "x", "z"), node("Neg", "z", "r")], "b", [], [value("r", (2, 3))])
    nodes = [
        node("If", "c", "y", then_branch=branch, else_branch=branch), node("Tan", "x", "y/z"),
        node("Add", "y y/z", "u"),
    ]  # fmt: skip
    same(model(nodes, {"x": (2, 3)}, {"c": np.array(True)}, outputs="u"))
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="cubic")
    tables = {f"y/constant{number}": normal(1, 1, 5, 10) for number in (1, 2)}
    nodes = [resize, node("Add", "y y/constant1", "z"), node("Mul", "z y/constant2", "u")]
    constants = {"scales": [1, 1, 1, 2], **tables}
    same(model(nodes, {"x": (1, 1, 5, 5)}, constants, outputs="u"))


def test_weights_that_a_normalisation_of_training_scales_are_constants() -> None:
    """As networks with standardised weights have it; what nothing reads of its three results stays in the file."""
    norm = node("BatchNormalization", "r one zero m v", "n mean variance", training_mode=1)
    nodes = [node("Reshape", "w rows", "r"), norm, node("Reshape", "n whole", "c"), node("Conv", "x c", "y")]
    shapes = {"rows": np.array([1, 4, -1]), "whole": np.array([4, 3, 2, 2])}
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    constants = {"w": normal(4, 3, 2, 2), **shapes, "one": ones, "zero": zeros, "m": zeros, "v": ones}
    assert same(model(nodes, {"x": (1, 3, 5, 5)}, constants)) == ["conv2d"]


def test_what_is_computed_of_no_elements_is_a_constant() -> None:
    """All is known of an input without elements; the reference of ONNX, which folds, knows no operator of ours."""
    norm = node("BatchNormalization", "x s b m v", "n")
    total = node("ReduceSum", "n", "y", keepdims=0)
    assert same(model([norm, total], {"x": (0, 4, 8, 8)}, NORM)) == []
    product = [node("MatMul", "x w", "p"), node("Mul", "p s", "y")]
    assert same(model(product, {"x": (2, 0)}, {**NORM, "w": normal(0, 4)})) == []


@pytest.mark.parametrize("op", ["Max", "Sum", "Mean"])
def test_an_operator_has_any_number_of_operands(op: str) -> None:
    """More than exporters write by hand."""
    names = [f"x{number}" for number in range(65)]
    (found,) = same(model([node(op, " ".join(names), "y")], dict.fromkeys(names, (2, 3))))
    assert not found.startswith("foreign")


def test_a_tensor_has_any_number_of_dimensions() -> None:
    """As NumPy allows."""
    shape = (2, *[1] * 15, 3)
    nodes = [node("Relu", "x", "a"), node("Concat", "a x", "b", axis=16), node("Transpose", "b", "y")]
    assert same(model(nodes, {"x": shape})) == ["relu", "concat", "transpose"]


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_place_of_what_is_no_number_is_inside(op: str, last: int) -> None:
    """Where there is one it is the extreme, as in NumPy, and the place lies inside of the dimension in any case."""
    x = np.array([[1, 3, 3, 0], [np.nan, 2, 9, np.nan], [0, 1, np.nan, 7], [np.nan] * 4, [-np.inf] * 4], np.float32)
    network = read(model([node(op, "x", "y", axis=1, keepdims=0, select_last_index=last)], {"x": x.shape}))
    chosen = np.argmax if op == "ArgMax" else np.argmin
    wanted = 3 - chosen(x[:, ::-1], axis=1) if last else chosen(x, axis=1)
    assert not network.foreign
    np.testing.assert_array_equal(evaluate(network, {"x": x})["y"], wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_logarithm_of_a_sum_of_powers_may_be_infinite(dtype: str) -> None:
    """A row of which all is -inf, or something inf; what is no number stays none."""
    x = np.array([[-np.inf] * 3, [np.inf, 1, -np.inf], [np.nan, 1, 2], [-np.inf, 3, 3], [90, 91, 92]], dtype)
    network = read(model([node("ReduceLogSumExp", "x", "y", axes=[1], keepdims=0)], {"x": x.shape}, dtype=dtype))
    wanted = np.logaddexp.reduce(x.astype(np.float64), axis=1)
    (operator,) = network.nodes
    assert isinstance(operator, Operator)
    for got in (evaluate(network, {"x": x})["y"], ss.build(operator.func)(x)):
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_largest_byte_of_a_window_is_a_program(dtype: str) -> None:
    """Beyond the border is the least number that there is, so that negative ones are not outdone."""
    x = RNG.integers(0 if dtype == "uint8" else -128, 0 if dtype == "int8" else 255, (1, 2, 5, 6)).astype(dtype)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}
    network = read(model([node("MaxPool", "x", "y", **attributes)], {"x": x.shape}, dtype=dtype))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=np.iinfo(dtype).min)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2]
    assert not network.foreign
    np.testing.assert_array_equal(evaluate(network, {"x": x})["y"], windows.max(axis=(4, 5)))


@pytest.mark.parametrize("op", ["Asinh", "Acosh"])
def test_inverse_hyperbolic_functions_reach_the_largest_numbers(op: str) -> None:
    """The square of a number from 1.8e19 on is infinite, its logarithm is not."""
    values = [1.0, 1.5, 40.0, 9.9e8, 1.1e9, 1.8e19, 1e25, 3e38, np.inf]
    x = np.array([*values, *((-np.array(values)).tolist() if op == "Asinh" else [])], np.float32)
    made = model([node(op, "x", "y")], {"x": x.shape})
    got = evaluate(read(made), {"x": x})["y"]
    wanted = (np.arcsinh if op == "Asinh" else np.arccosh)(x.astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_nodes_of_one_name_have_kernels_of_their_own() -> None:
    """ONNX does not ask for names that differ, and nodes of functions often have none."""
    convs = [node("Conv", f"{x} w{x}", y, name="conv", pads=[1, 1, 1, 1]) for x, y in (("x", "h"), ("h", "y"))]
    made = model(convs, {"x": (1, 4, 6, 5)}, {"wx": normal(4, 4, 3, 3), "wh": normal(4, 4, 3, 3)})
    norm = node("LayerNormalization", "x g", "y mean", axis=-1)
    several = model([norm], {"x": (3, 8)}, {"g": positive(8)}, outputs="y mean")
    for one in (made, several):
        network = read(one)
        names = [n.name for n in network.nodes]
        assert len(set(names)) == len(names) > 1
        given = {name: normal(*network.tensors[name].shape) for name in network.inputs}
        found, wanted = ss.compile(network, threads=1)(given), evaluate(network, given)
        for name, right in wanted.items():
            np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-4)


def test_a_branch_with_a_result_that_nothing_reads_changes_nothing_else() -> None:
    """An input that a later node leaves out stays out."""
    values = [value("a", (2, 3)), value("b", ())]
    body = [node("Relu", "x", "a"), node("ReduceMax", "x", "b", keepdims=0)]
    branch = helper.make_graph(body, "body", [], values)
    nodes = [
        node("If", "c", "p q", then_branch=branch, else_branch=branch),
        helper.make_node("Clip", ["p", "", "top"], ["y"]),
    ]
    same(model(nodes, {"x": (2, 3)}, {"c": np.array(True), "top": np.float32(0.5)}))


@pytest.mark.parametrize(("size", "count"), [(6, 2), (10, 2), (12, 2), (10, 4), (5, 9)])
@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel", "align_corners"])
def test_sizes_are_exact_where_scales_would_be_rounded(size: int, count: int, mode: str) -> None:
    """A third as float32 is more than a third, and 1 divided by it is rounded down to 2."""
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1)
    resize = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], coordinate_transformation_mode=mode, nearest_mode="floor"
    )
    made = model([resize], {"x": x.shape}, {"sizes": np.array([1, 1, count, 1])}, opset=13)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_array_equal(evaluate(read(made), {"x": x})["y"], wanted)


def test_older_resizes_mean_what_their_versions_say() -> None:
    """Version 10 has no half pixels; `tf_half_pixel_for_nn` was in 11 and 12, and the reference does not know it."""
    x = np.array([1, 2], np.float32).reshape(1, 1, 1, 2)
    linear = model([node("Resize", "x scales", "y", mode="linear")], {"x": x.shape}, {"scales": [1, 1, 1, 2]}, opset=10)
    np.testing.assert_array_equal(evaluate(read(linear), {"x": x})["y"].ravel(), [1, 1.5, 2, 2])
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
    nearest = helper.make_node(
        "Resize", ["x", "roi", "scales"], ["y"], coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode="floor",
    )  # fmt: skip
    for scale, places in ((0.5, [1, 3, 5]), (1.5, [0, 1, 1, 2, 3, 3, 4, 5, 5])):
        constants = {"roi": np.zeros(0, np.float32), "scales": [1, 1, 1, scale]}
        network = read(model([nearest], {"x": x.shape}, constants, opset=11))
        assert not network.foreign
        np.testing.assert_array_equal(evaluate(network, {"x": x})["y"].ravel(), places)


def test_the_absolute_value_of_what_has_no_sign_is_itself() -> None:
    """There is nothing to be subtracted from 0."""
    x = np.array([0, 5, 128, 255], np.uint8)
    network = read(model([node("Abs", "x", "y")], {"x": x.shape}, dtype="uint8"))
    np.testing.assert_array_equal(evaluate(network, {"x": x})["y"], x)


NEAR_ZERO = {"Sinh": np.sinh, "Asinh": np.arcsinh, "Atanh": np.arctanh}


@pytest.mark.parametrize("op", NEAR_ZERO)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_keep_their_digits_near_zero(op: str, dtype: str) -> None:
    """Where their formulas are differences of numbers near 1, or logarithms of such."""
    near = [0.0, 1e-12, 1e-8, 1e-5, 1e-3, 0.009, 0.011, 0.1, 0.199, 0.201, 0.5, 0.9]
    x = np.array([*near, *(-v for v in near)])
    given = x.astype(dtype)
    got = evaluate(read(model([node(op, "x", "y")], {"x": x.shape}, dtype=dtype)), {"x": given})["y"]
    tolerance = 2e-6 if dtype == "float32" else 5e-13
    np.testing.assert_allclose(got, NEAR_ZERO[op](given.astype(np.longdouble)).astype(np.float64), rtol=tolerance)


def test_what_has_no_program_runs_through_the_reference() -> None:
    """A foreign operator between two programs, and its name in the report."""
    nodes = [node("Relu", "x", "a"), node("Det", "a", "b"), node("Neg", "b", "y")]
    made = model(nodes, {"x": (2, 5, 5)})
    assert same(made) == ["relu", "foreign Det", "neg"]
    assert [(f.op, f.became) for f in import_model(made).fates] == [
        ("Relu", "relu"),
        ("Det", "foreign"),
        ("Neg", "neg"),
    ]


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_real_networks_are_programs_alone(name: str) -> None:
    """Models of onnx's own tests have no foreign operator; equal layers are equal programs."""
    network = read(networks.NETWORKS[name].make())
    assert not network.foreign and not list(problems(network))
    assert len({n.func for n in network.nodes}) < len(network.nodes) * 2 / 3


def test_networks_of_the_benchmarks_mean_what_onnx_says() -> None:
    """MobileNetV2 and BERT, made small, give what the reference of ONNX gives."""
    names = same(networks.mobilenet_v2(32, 3, 10), rtol=1e-3, atol=1e-4)
    assert set(names) == {"conv2d", "depthwise_conv2d", "clip", "add", "reduce_mean", "reshape", "matmul"}
    names = same(networks.bert(1, 5, 24, 3), rtol=1e-3, atol=1e-4)
    assert not [name for name in names if name.startswith("foreign")]


def test_a_sample_of_onnx_node_cases_is_never_wrong() -> None:
    """A case passes by programs, passes by the reference, or is refused in words; most pass by programs."""
    found = [conformance.outcome(case) for case in list(conformance.cases())[::12]]
    assert not [result for result in found if result.kind == "wrong"]
    assert sum(result.kind == "native" for result in found) > 0.55 * len(found)
    assert all(result.why for result in found if result.kind == "refused")


def test_programs_are_what_the_search_understands() -> None:
    """The design space has sketches for the programs of a network."""
    target = ss.Target("cpu", threads=2)
    for func in {n.func for n in read(networks.bert(1, 5, 24, 3)).nodes}:
        assert ss.generate(func, target).sketches


def test_nodes_that_only_move_join_what_reduces_beside_them() -> None:
    """A softmax over channels whose result is one long row has a layout, whichever set isl looks at."""
    made = model([node("Softmax", "x", "a", axis=1), node("Reshape", "a s", "y")], {"x": (2, 8, 4, 4)},
                 {"s": np.array([2, 128, 1])})  # fmt: skip
    network = fused(read(made), ss.Target("cpu", threads=1))
    arrays = {"x": normal(2, 8, 4, 4)}
    (wanted,) = ReferenceEvaluator(made).run(None, arrays)
    np.testing.assert_allclose(evaluate(network, arrays)["y"], wanted, rtol=1e-4, atol=1e-6)


def test_places_that_are_looked_up_stand_before_strides() -> None:
    """A transposed convolution of stride 2 reads channels by a table, which no rewrite of its sums evaluates."""
    nodes = [node("Gather", "x i", "g", axis=1),
             node("ConvTranspose", "g w", "y", strides=[2, 2], pads=[1, 0, 0, 1])]  # fmt: skip
    made = model(nodes, {"x": (3, 4, 4, 4)}, {"i": np.array([0, 2, 1]), "w": normal(3, 4, 3, 3)})
    network = fused(read(made), ss.Target("cpu", threads=1))
    arrays = {"x": normal(3, 4, 4, 4)}
    (wanted,) = ReferenceEvaluator(made).run(None, arrays)
    np.testing.assert_allclose(evaluate(network, arrays)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("scale", "places"), [(0.6, [0, 2]), (0.75, [0, 2, 3]), (1.5, [0, 0, 1, 2, 2, 3])])
def test_the_first_resize_rounds_places_up_where_it_makes_less(scale: float, places: list[int]) -> None:
    """In version 10 of the operators, the nearest element of a smaller image is the next one."""
    made = model([node("Resize", "x s", "y", mode="nearest")], {"x": (1, 4)}, {"s": [1, scale]}, opset=10)
    x = normal(1, 4)
    np.testing.assert_array_equal(evaluate(read(made), {"x": x})["y"], x[:, places])


def test_the_reference_is_asked_in_its_own_words() -> None:
    """It knows the newest version of an operator alone: what older ones mean, and call otherwise, is told it so."""
    places = {"r": np.array([[0, 0, 5, 5]], np.float32), "b": np.array([0])}
    roi = {"output_height": 2, "output_width": 2}
    newest = node("RoiAlign", "x r b", "y", coordinate_transformation_mode="output_half_pixel", **roi)
    shapes = {"x": (1, 2, 8, 8)}
    old = model([node("RoiAlign", "x r b", "y", **roi)], shapes, places, opset=10)
    assert same(old, model([newest], shapes, places, opset=16)) == ["foreign RoiAlign"]
    grid = {"g": normal(1, 3, 3, 2).clip(-1, 1)}
    old, new = (model([node("GridSample", "x g", "y", mode=mode)], shapes, grid, opset=opset)
                for mode, opset in (("bilinear", 16), ("linear", 20)))  # fmt: skip
    assert same(old, new) == ["grid_sample"]


def test_a_constant_softmax_of_old_versions_flattens() -> None:
    """Everything from `axis` on is one row, also where nothing has to be computed in a call."""
    c = normal(2, 3, 4)
    made = model([node("Softmax", "c", "s", axis=1), node("Add", "x s", "y")], {"x": (2, 3, 4)}, {"c": c}, opset=11)
    e = np.exp(c.reshape(2, 12))
    found = evaluate(read(made), {"x": np.zeros((2, 3, 4), np.float32)})["y"]
    np.testing.assert_allclose(found, (e / e.sum(1, keepdims=True)).reshape(2, 3, 4), rtol=1e-5)


@pytest.mark.parametrize(
    ("made", "opset", "ignored"),
    [
        (node("LSTM", "x w r b", "y", hidden_size=4, activations=["Sigmoid", "Swish", "Relu"]), 14, "`activations`"),
        (node("LSTM", "x w r b l", "y", hidden_size=4, activations=["Swish"] * 3), 14, "`sequence_lens`"),
    ],
)
def test_what_the_reference_leaves_out_is_refused(made: onnx.NodeProto, opset: int, ignored: str) -> None:
    """No wrong results without a word."""
    constants = {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "b": normal(1, 32), "l": np.array([5, 2], np.int32)}
    with pytest.raises(ModelProblem, match=ignored):
        read(model([made], {"x": (5, 2, 3)}, constants, opset=opset))


def test_what_the_reference_does_as_asked_runs() -> None:
    """An LSTM with the activations that it has anyway, and a Hardmax of rows."""
    constants = {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "b": normal(1, 32)}
    given = node("LSTM", "x w r b", "y", hidden_size=4, activations=["Sigmoid", "Tanh", "Tanh"])
    assert same(model([given], {"x": (5, 2, 3)}, constants, opset=14)) == ["input_product", "lstm"]
    assert same(model([node("Hardmax", "x", "y", axis=2)], {"x": (2, 3, 4)}, opset=11)) == ["hardmax"]


@pytest.mark.parametrize("axis", [{"axis": 1}, {}])
def test_a_row_of_one_dimension_flattens_nothing(axis: dict[str, int]) -> None:
    """Dimensions of one element behind it are no part of it, and the axis that old versions mean is said."""
    x = np.array([3, 5], np.float32).reshape(1, 2, 1, 1)
    network = read(model([node("Hardmax", "x", "y", **axis)], {"x": x.shape}, opset=11))
    np.testing.assert_array_equal(evaluate(network, {"x": x})["y"].ravel(), [0, 1])


def test_lengths_of_sequences_that_are_all_the_longest_say_nothing() -> None:
    """Exporters write them so, and the reference, which ignores lengths, computes the same."""
    shapes = {"x": (5, 2, 3)}
    constants = {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "b": normal(1, 32), "l": np.array([5, 5], np.int32)}
    told, silent = (model([node("LSTM", names, "y", hidden_size=4)], shapes, constants, opset=14)
                    for names in ("x w r b l", "x w r b"))  # fmt: skip
    assert same(told, silent) == ["input_product", "lstm"]


def test_graphs_inside_of_nodes_are_asked_for_in_the_words_of_the_reference() -> None:
    """It would read a scan's softmax of all dimensions as one of the last; a branch's has a program."""
    branches = {
        f"{name}_branch": helper.make_graph([inner], name, [], [onnx.ValueInfoProto(name=name)])
        for name, inner in (("then", node("Softmax", "x", "then", axis=1)), ("else", node("Identity", "x", "else")))
    }
    x = normal(1, 2, 2)
    nodes = [node("Cast", "q", "c", to=TensorProto.BOOL), node("If", "c", "y", **branches)]
    for opset, row in ((12, (1, 2)), (13, (1,))):
        network = read(model(nodes, {"x": (1, 2, 2), "q": ()}, opset=opset))
        assert not network.foreign
        wanted = np.exp(x) / np.exp(x).sum(axis=row, keepdims=True)
        for q, right in ((1, wanted), (0, x)):
            found = evaluate(network, {"x": x, "q": np.array(q, np.float32)})["y"]
            np.testing.assert_allclose(found, right, rtol=1e-5)
    body = helper.make_graph(
        [node("Softmax", "s", "t", axis=1)], "body", [value("s", (1, 2, 2))], [value("t", (1, 2, 2))]
    )
    scan = [node("Scan", "x", "y", body=body, num_scan_inputs=1)]
    steps = normal(3, 1, 2, 2)
    for opset, row in ((12, (1, 2)), (13, (1,))):
        network = read(model(scan, {"x": steps.shape}, opset=opset))
        wanted = np.stack([np.exp(step) / np.exp(step).sum(axis=row, keepdims=True) for step in steps])
        assert not network.foreign
        np.testing.assert_allclose(evaluate(network, {"x": steps})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("made", "shapes", "constants", "ignored"),
    [
        (node("MaxPool", "x", "y i", kernel_shape=[2] * 4), {"x": (1, 1, 3, 3, 3, 3)}, {}, "places in windows"),
        (node("LpPool", "x", "y", kernel_shape=[2] * 4, strides=[2] * 4, ceil_mode=1), {"x": (1, 1, 3, 3, 3, 3)}, {},
         "`ceil_mode`"),
        (node("AveragePool", "x", "y", kernel_shape=[3] * 4, dilations=[2] * 4, auto_pad="SAME_UPPER"),
         {"x": (1, 1, 5, 5, 5, 5)}, {}, "without `dilations`"),
        (node("MatMulInteger", "a b z", "y"), {"a": (2, 2)},
         {"b": np.eye(2, dtype=np.uint8), "z": np.array([1, 3], np.uint8)}, "for each row"),
    ],
    ids=["places", "ceil", "dilations", "rows"],
)  # fmt: skip
def test_what_the_reference_computes_otherwise_is_refused(
    made: onnx.NodeProto, shapes: dict[str, tuple[int, ...]], constants: dict[str, np.ndarray], ignored: str
) -> None:
    """Its own definition is ONNX's text, not its code."""
    dtype = "uint8" if "a" in shapes else "float32"
    with pytest.raises(ModelProblem, match=ignored):
        read(model([made], shapes, constants, opset=19, outputs=" ".join(made.output), dtype=dtype))


def test_scales_one_after_the_other_keep_what_half_precision_holds() -> None:
    """Each of them is held, and their product is not."""
    constants = {"c": np.full((1, 2, 1, 1), 256, np.float16)}
    nodes = [node("Mul", "x c", "m"), node("Mul", "m c", "y")]
    network = read(model(nodes, {"x": (1, 2, 1, 1)}, constants, dtype="float16"))
    x = np.array([0.5, 0], np.float16).reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(evaluate(network, {"x": x})["y"].ravel(), [32768, 0])


def test_a_norm_of_a_constant_is_one_of_absolute_values() -> None:
    """As it is where the same numbers are an input."""
    c = np.array([3, -1], np.float32)
    made = model([node("LpNormalization", "c", "n", axis=0, p=1), node("Add", "x n", "y")], {"x": (2,)}, {"c": c})
    np.testing.assert_allclose(evaluate(read(made), {"x": np.zeros(2, np.float32)})["y"], [0.75, -0.25])


def test_sparse_weights_of_a_branch_are_its_own() -> None:
    """A name that a sparse tensor has is defined there."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0]), helper.make_tensor("", TensorProto.INT64, [1], [1]), [2]
    )
    branch = helper.make_graph([node("Add", "x w", "t")], "then", [], [value("t", (2,))], sparse_initializer=[sparse])
    other = helper.make_graph([node("Identity", "x", "e")], "else", [], [value("e", (2,))])
    made = model([node("If", "c", "y", then_branch=branch, else_branch=other)], {"x": (2,)}, {"c": np.array(True)})
    np.testing.assert_array_equal(evaluate(read(made), {"x": np.ones(2, np.float32)})["y"], [1, 6])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Attention"])
def test_rows_of_which_all_is_masked(op: str) -> None:
    """The lowest number is not -inf: a row of it alone has equal shares, beside one of -inf as ONNX has it."""
    lowest = np.finfo(np.float32).min
    mask = np.zeros((5, 5), np.float32)
    mask[0], mask[1], mask[2, :2], mask[2, 2:], mask[3, 1:] = -np.inf, lowest, lowest, -np.inf, -np.inf
    shapes: dict[str, tuple[int, ...]] = {"x": (5, 5)}
    arrays, nodes = {"x": mask}, [node(op, "x", "y")]
    if op == "Attention":
        shapes, nodes = {"q": (1, 2, 5, 4), "k": (1, 2, 5, 4), "x": (5, 5)}, [node(op, "q k k x", "y")]
        arrays |= {name: normal(1, 2, 5, 4) for name in ("q", "k")}
    made = model(nodes, shapes, {}, opset=23)
    with np.errstate(invalid="ignore"):
        (wanted,) = ReferenceEvaluator(made).run(None, arrays)
        found = evaluate(read(made), arrays)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
