"""Operators of the domain ``ai.onnx.ml``, said in operators of ONNX and in trees (`operators.trees`).

Where ONNX's text leaves something open, above all what a classifier of two classes says, it is what ONNX Runtime does.
Names of classes are looked up at the end (`Lookup`), by numbers that programs compute.  Maps by class are no tensors:
ZipMap gives its matrix, whose columns are the classes in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, pi
from typing import Any, TypeAlias

import numpy as np

from ...errors import ModelProblem
from ..network import Array
from ..operators.graph import Type
from .forest import Forest, by_number, by_place
from .parts import Parts

Definition: TypeAlias = Callable[[Parts], bool]

DOMAIN = "ai.onnx.ml"
FLOATS = ("float32", "float64")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""What the version 5 of TreeEnsemble has numbers for, in their order."""


def _floats(p: Parts, at: int = 0) -> int | str:
    """An input in float32, or as it is where it is of a float type."""
    return at if p.type(at).dtype in FLOATS else p.cast(at, "float32")


def _single(p: Parts) -> int | str:
    """The first input in float32."""
    return 0 if p.type().dtype == "float32" else p.cast(0, "float32")


def _scaler(p: Parts) -> bool:
    apart = p.add("Sub", [_single(p), p.constant(p.attribute("offset"), "float32")])
    p.add("Mul", [apart, p.constant(p.attribute("scale"), "float32")], 0)
    return True


def _normalizer(p: Parts) -> bool:
    """Each row by its largest element, or by its norm; as it is where that is 0."""
    x, over = _single(p), p.constant([-1], "int64")
    op = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[str(p.attribute("norm", "MAX"))]
    norm = p.add(op, [x, over], keepdims=1)
    none = p.add("Equal", [norm, p.constant(0, "float32")])
    p.add("Div", [x, p.add("Where", [none, p.constant(1, "float32"), norm])], 0)
    return True


def _binarizer(p: Parts) -> bool:
    above = p.add("Greater", [0, p.number(p.attribute("threshold", 0.0))])
    p.add("Where", [above, p.number(1), p.number(0)], 0)
    return True


def _imputer(p: Parts) -> bool:
    """A column's number in the place of what is missing, which may be NaN."""
    if p.type().dtype in FLOATS:
        values, missing = p.attribute("imputed_value_floats"), float(p.attribute("replaced_value_float", 0.0))
    else:
        values, missing = p.attribute("imputed_value_int64s"), int(p.attribute("replaced_value_int64", 0))
    if not values:
        return False
    gone = p.add("IsNaN", [0]) if np.isnan(missing) else p.add("Equal", [0, p.number(missing)])
    p.add("Where", [gone, p.constant(values, p.type().dtype), 0], 0)
    return True


def _one_hot_encoder(p: Parts) -> bool:
    categories = p.attribute("cats_int64s")
    if not categories or p.type().dtype == "object":
        return False
    x = p.cast(0, "int64") if p.type().dtype != "int64" else 0
    spread = p.add("Unsqueeze", [x, p.constant([-1], "int64")])
    is_it = p.add("Equal", [spread, p.constant(categories, "int64")])
    p.add("Cast", [is_it], 0, to=1)
    return True


def _array_feature_extractor(p: Parts) -> bool:
    """Elements of the last dimension; of a known list of names, those of numbers that are computed."""
    x, shape = p.known(0), p.shape()
    count = p.type(1).size
    if x is not None and x.dtype == object:
        if len(shape) == 2 and shape[0] != 1:
            return False
        result = Type((1, count), "object")
        p.own("Lookup", [p.reshaped(1, (1, count))], result, 0, table=tuple(map(str, x.reshape(-1))))
        return True
    if p.type().dtype == "object":
        return False
    source = p.reshaped(0, (1, *shape)) if len(shape) == 1 else 0
    p.add("Gather", [source, p.reshaped(1, (count,))], 0, axis=-1)
    return True


def _feature_vectorizer(p: Parts) -> bool:
    columns = [p.cast(at, "float32") for at in range(len(p.whole.inputs))]
    p.add("Concat", columns, 0, axis=-1)
    return True


def _zip_map(p: Parts) -> bool:
    p.add("Identity", [0], 0)
    return True


def _label_encoder(p: Parts) -> bool:
    """Values by keys: the place of an element among the keys, and what stands there; numbers become anything."""
    keys, values, default = _table(p)
    if keys is None or values is None or keys.dtype == object or p.type().dtype == "object":
        return False
    dtype = p.type().dtype
    if str(keys.dtype) != dtype:
        return False
    place = _found(p, keys)
    if values.dtype == object:
        p.own("Lookup", [place], Type(p.shape(), "object"), 0, table=(*map(str, values), str(default)))
        return True
    p.add("Gather", [p.constant(np.append(values, np.asarray(default, values.dtype))), place], 0)
    return True


def _found(p: Parts, keys: Array) -> str:
    """The place of each element among the keys; their number where it is none of them."""
    spread = p.add("Unsqueeze", [0, p.constant([-1], "int64")])
    is_it = p.add("Equal", [spread, p.constant(keys)])
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        none = p.add("And", [p.add("IsNaN", [spread]), p.constant(np.isnan(keys))])
        is_it = p.add("Or", [is_it, none])
    places = p.add("Where", [is_it, p.constant(range(len(keys)), "int64"), p.constant(len(keys), "int64")])
    return p.add("ReduceMin", [places, p.constant([-1], "int64")], keepdims=0)


def _table(p: Parts) -> tuple[Array | None, Array | None, Any]:
    """The keys and values of a LabelEncoder, and what stands for what is no key."""
    texts = p.attribute("classes_strings")
    if texts is not None:  # version 1, which goes both ways
        numbers = np.arange(len(texts))
        return numbers, np.asarray(texts, object), p.attribute("default_string", "_Unused")
    kinds = (
        ("floats", "float32", "float", -0.0),
        ("int64s", "int64", "int64", -1),
        ("strings", "object", "string", "_Unused"),
    )
    found: list[Array | None] = []
    default: Any = None
    for side in ("keys", "values"):
        array = p.attribute(f"{side}_tensor")
        if array is not None and side == "values":
            given = p.attribute("default_tensor")
            absent = {"f": -0.0, "i": -1}.get(array.dtype.kind, "_Unused")
            default = absent if given is None else given.reshape(-1)[0]
        for name, dtype, kind, otherwise in kinds:
            given = p.attribute(f"{side}_{name}")
            if array is None and given:
                array = np.asarray(given, dtype)
                default = p.attribute(f"default_{kind}", otherwise) if side == "values" else None
        found.append(None if array is None else array.reshape(-1))
    return found[0], found[1], default


# ---------------------------------------------------------------- products


def _linear_regressor(p: Parts) -> bool:
    targets = int(p.attribute("targets", 1))
    y = _linear(p, _single(p), targets)
    _transformed(p, y, str(p.attribute("post_transform", "NONE")), 0, targets)
    return True


def _linear(p: Parts, x: int | str, count: int) -> str:
    """``x w' + b`` of the attributes `coefficients` and `intercepts`."""
    weights = np.asarray(p.attribute("coefficients"), np.float32).reshape(count, -1)
    if len(p.shape()) == 1:
        x = p.reshaped(x, (1, *p.shape()))
    y = p.add("MatMul", [x, p.constant(np.ascontiguousarray(weights.T))])
    intercepts = p.attribute("intercepts")
    return p.add("Add", [y, p.constant(intercepts, "float32")]) if intercepts else y


def _linear_classifier(p: Parts) -> bool:
    names = _names(p)
    count = len(p.attribute("intercepts") or ()) or len(names)
    y, transform = _linear(p, _single(p), count), str(p.attribute("post_transform", "NONE"))
    if count == 1:
        return len(names) == 2 and _two_classes(p, y, names, True, transform, 0.0)
    _labelled(p, p.add("ArgMax", [y], axis=1, keepdims=0), names)
    _transformed(p, y, transform, 1)
    return True


def _svm_regressor(p: Parts) -> bool:
    """``sum of coefficient k(x, support vector) + rho``; of one class its sign."""
    count = int(p.attribute("n_supports", 0))
    coefficients = np.asarray(p.attribute("coefficients"), np.float32)
    if count:
        kernels = _kernels(p, count)
        y = p.add("MatMul", [kernels, p.constant(coefficients.reshape(count, 1))])
    else:
        y = p.add("MatMul", [_single(p), p.constant(coefficients.reshape(-1, 1))])
    y = p.add("Add", [y, p.constant(p.attribute("rho")[0], "float32")])
    if p.attribute("one_class", 0):
        above = p.add("Greater", [y, p.constant(0, "float32")])
        p.add("Where", [above, p.constant(1, "float32"), p.constant(-1, "float32")], 0)
        return True
    _transformed(p, y, str(p.attribute("post_transform", "NONE")), 0, 1)
    return True


def _kernels(p: Parts, count: int) -> str:
    """The kernel of each row with each support vector."""
    vectors = np.asarray(p.attribute("support_vectors"), np.float32).reshape(count, -1)
    gamma, offset, degree = (float(number) for number in (p.attribute("kernel_params") or (0, 0, 0)))
    kind, x = str(p.attribute("kernel_type", "LINEAR")), _single(p)
    if kind == "RBF":
        apart = p.add("Sub", [p.reshaped(x, (p.shape()[0], 1, vectors.shape[1])), p.constant(vectors[None])])
        total = p.add("ReduceSumSquare", [apart, p.constant([2], "int64")], keepdims=0)
        return p.add("Exp", [p.add("Mul", [total, p.constant(-gamma, "float32")])])
    dot = p.add("MatMul", [x, p.constant(np.ascontiguousarray(vectors.T))])
    if kind == "LINEAR":
        return dot
    scaled = p.add("Mul", [dot, p.constant(gamma, "float32")])
    scaled = p.add("Add", [scaled, p.constant(offset, "float32")])
    if kind == "SIGMOID":
        return p.add("Tanh", [scaled])
    return p.add("Pow", [scaled, p.constant(degree, "float32")])


def _svm_classifier(p: Parts) -> bool:
    """One vote for each pair of classes, where there are vectors, else a product; not for probabilities."""
    names, vectors = _names(p), [int(n) for n in p.attribute("vectors_per_class", [])]
    if p.attribute("prob_a"):
        raise ModelProblem(
            f"the node {p.whole} makes probabilities of decisions between pairs of classes, for which there is no "
            "program here, and the reference implementation of ONNX gives others than ONNX Runtime"
        )
    if not sum(vectors):
        return False
    count, total = len(names), sum(vectors)
    kernels = _kernels(p, total)
    coefficients = np.asarray(p.attribute("coefficients"), np.float32).reshape(-1, total)
    ends = np.cumsum([0, *vectors])
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    weights, votes = np.zeros((total, len(pairs)), np.float32), np.zeros((len(pairs), count), np.float32)
    for at, (i, j) in enumerate(pairs):
        weights[ends[i] : ends[i + 1], at] = coefficients[j - 1, ends[i] : ends[i + 1]]
        weights[ends[j] : ends[j + 1], at] = coefficients[i, ends[j] : ends[j + 1]]
        votes[at, i], votes[at, j] = 1, -1
    scores = p.add("Add", [p.add("MatMul", [kernels, p.constant(weights)]), p.constant(p.attribute("rho"), "float32")])
    is_first = p.cast(p.add("Greater", [scores, p.constant(0, "float32")]), "float32")
    counted = p.add("Add", [p.add("MatMul", [is_first, p.constant(votes)]), p.constant((votes < 0).sum(0), "float32")])
    chosen = p.add("ArgMax", [counted], axis=1, keepdims=0)
    transform = str(p.attribute("post_transform", "NONE"))
    if count == 2:
        if transform != "NONE":
            return False
        _labelled(p, chosen, names)
        p.add("Concat", [p.add("Neg", [scores]), scores], 1, axis=1)
        return True
    _labelled(p, chosen, names)
    _transformed(p, scores, transform, 1)
    return True


# ---------------------------------------------------------------- trees


def _forest_of(p: Parts, forest: Forest, x: int | str, how: str) -> str:
    """What the leaves of a forest make together, ``[rows, targets]``, in the features' type."""
    kinds = sorted({int(kind) for kind in forest.kind[~np.isnan(forest.split)]}) or [0]
    tables = [forest.feature, forest.split, forest.first, forest.roots, forest.value]
    if len(kinds) > 1:
        tables.append(forest.kind)
    result = Type((p.shape()[0], forest.value.shape[1]), str(forest.value.dtype))
    inputs = [x, *(p.constant(table) for table in tables)]
    return p.own("Trees", inputs, result, depth=forest.depth, how=how, kinds=kinds)


def _aggregated(p: Parts, forest: Forest, x: int | str, how: str, base: Any) -> str:
    """The sum, mean, least or greatest value of all trees, by `how`, and `base` added to it."""
    dtype = str(forest.value.dtype)
    y = _forest_of(p, forest, x, {"MIN": "min", "MAX": "max"}.get(how, "sum"))
    if how == "AVERAGE":
        y = p.add("Div", [y, p.constant(len(forest.roots), dtype)])
    elif how in ("MIN", "MAX"):
        none = p.add("IsInf", [y])
        y = p.add("Where", [none, p.constant(0, dtype), y])
    return p.add("Add", [y, p.constant(base, dtype)]) if base is not None and len(base) else y


def _absent(how: str) -> float:
    """What a leaf has for a target that it does not name."""
    return {"MIN": inf, "MAX": -inf}.get(how, 0.0)


def _tree_regressor(p: Parts) -> bool:
    how, x = str(p.attribute("aggregate_function", "SUM")), _floats(p)
    dtype = p.type().dtype if x == 0 else "float32"
    forest = by_number(dict(p.whole.values), dtype, "target", int(p.attribute("n_targets", 1)), _absent(how))
    y = _aggregated(p, forest, x, how, _base(p))
    if dtype == "float64":
        y = p.cast(y, "float32")
    _transformed(p, y, str(p.attribute("post_transform", "NONE")), 0, forest.value.shape[1])
    return True


def _tree_ensemble(p: Parts) -> bool:
    if p.type().dtype not in FLOATS:
        return False
    how = AGGREGATES[int(p.attribute("aggregate_function", 1))]
    forest = by_place(dict(p.whole.values), p.type().dtype, _absent(how))
    y = _aggregated(p, forest, 0, how, None)
    _transformed(p, y, TRANSFORMS[int(p.attribute("post_transform", 0))], 0, forest.value.shape[1])
    return True


def _tree_classifier(p: Parts) -> bool:
    names, x = _names(p), _floats(p)
    dtype = p.type().dtype if x == 0 else "float32"
    count, ids = len(names), sorted(set(p.attribute("class_ids")))
    transform, base = str(p.attribute("post_transform", "NONE")), _base(p)
    forest = by_number(dict(p.whole.values), dtype, "class", max(count, ids[-1] + 1))
    is_full = base is not None and len(base) == forest.value.shape[1]
    is_odd = count == 2 and is_full and len(ids) == 2
    y = _aggregated(p, forest, x, "SUM", base if is_full and not is_odd else None)
    if dtype == "float64":
        y = p.cast(y, "float32")
    if is_odd:  # as ONNX Runtime has it: the first sum, with the second base value
        score = p.add("Add", [p.sliced(y, 1, 0, 1), p.constant(base[1], "float32")])
        y = p.add("Concat", [p.add("Neg", [score]), score], axis=1)
    if count != 2:
        _labelled(p, p.add("ArgMax", [y], axis=1, keepdims=0), names)
        _transformed(p, y, transform, 1)
        return True
    if len(ids) == 1 and base is not None and len(base) > 1:
        return False
    weights = np.asarray(p.attribute("class_weights", []) or p.attribute("class_weights_as_tensor", []))
    is_share = bool((weights >= 0).all())
    if ids == [0]:
        score = p.sliced(y, 1, 0, 1)
        score = p.add("Add", [score, p.constant(base, "float32")]) if base else score
        return _two_classes(p, score, names, is_share, transform, 0.5 if is_share else 0.0)
    least = 0.5 if is_share and len(ids) == 1 else 0.0
    above = p.add("Greater", [p.reshaped(p.sliced(y, 1, 1, 2), (p.shape()[0],)), p.constant(least, "float32")])
    known = names if isinstance(names[0], str) or len(ids) == 1 else [0, 1]  # as ONNX Runtime has them
    _labelled(p, p.cast(above, "int64"), known)
    _transformed(p, y, transform, 1)
    return True


def _base(p: Parts) -> Any:
    """The base values of an ensemble, which may be a tensor."""
    tensor = p.attribute("base_values_as_tensor")
    return p.attribute("base_values") if tensor is None else tensor.reshape(-1).tolist()


# ---------------------------------------------------------------- classes


def _names(p: Parts) -> list[Any]:
    """The names of the classes: numbers or texts."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        if found := p.attribute(name):
            return list(found)
    return []


def _labelled(p: Parts, chosen: str, names: list[Any]) -> None:
    """The names of the classes of these numbers, the first output."""
    if isinstance(names[0], str):
        p.own("Lookup", [chosen], Type((p.shape()[0],), "object"), 0, table=tuple(names))
    else:
        p.add("Gather", [p.constant(names, "int64"), chosen], 0)


def _two_classes(p: Parts, score: str, names: list[Any], is_share: bool, transform: str, least: float) -> bool:
    """Two classes of one score, which is the share of the second one, or how much there is for it."""
    if transform == "PROBIT":
        return False
    flat = p.reshaped(score, (p.shape()[0],))
    above = p.cast(p.add("Greater", [flat, p.constant(least, "float32")]), "int64")
    _labelled(p, above, names)
    if is_share and transform != "LOGISTIC":
        p.add("Concat", [p.add("Sub", [p.constant(1, "float32"), score]), score], 1, axis=1)
        return True
    both = p.add("Concat", [p.add("Neg", [score]), score], axis=1)
    _transformed(p, both, transform if transform == "LOGISTIC" else "NONE", 1)
    return True


def _transformed(p: Parts, y: str, transform: str, into: int, columns: int = 2) -> None:
    """An output as its `post_transform` makes it of the scores of each row; a single score stays, or is a probit."""
    if columns == 1 and transform != "PROBIT":
        transform = "NONE"
    if transform == "LOGISTIC":
        p.add("Sigmoid", [y], into)
    elif transform == "SOFTMAX":
        p.add("Softmax", [y], into, axis=-1)
    elif transform == "SOFTMAX_ZERO":
        _softmax_zero(p, y, into)
    elif transform == "PROBIT":
        _probit(p, y, into)
    else:
        p.add("Identity", [y], into)


def _softmax_zero(p: Parts, y: str, into: int) -> None:
    """Shares of the powers of e; what is as good as 0 has the share of itself, and counts for no other."""
    over = p.constant([-1], "int64")
    peak = p.add("ReduceMax", [y, over], keepdims=1)
    counts = p.add("Greater", [p.add("Abs", [y]), p.constant(1e-7, "float32")])
    powers = p.add("Exp", [p.add("Sub", [y, peak])])
    small = p.add("Mul", [y, p.add("Exp", [p.add("Neg", [peak])])])
    total = p.add("ReduceSum", [p.add("Where", [counts, powers, p.constant(0, "float32")]), over], keepdims=1)
    p.add("Div", [p.add("Where", [counts, powers, small]), total], into)


def _probit(p: Parts, y: str, into: int) -> None:
    """The point at which the normal distribution has a share, by Winitzki's formula."""

    def number(value: float) -> str:
        return p.constant(value, "float32")

    x = p.add("Sub", [p.add("Mul", [y, number(2)]), number(1)])
    log = p.add("Log", [p.add("Mul", [p.add("Sub", [number(1), x]), p.add("Add", [number(1), x])])])
    v = p.add("Add", [number(2 / (pi * 0.147)), p.add("Mul", [log, number(0.5)])])
    rest = p.add("Sub", [p.add("Mul", [v, v]), p.add("Mul", [log, number(1 / 0.147)])])
    size = p.add("Sqrt", [p.add("Sub", [p.add("Sqrt", [rest]), v])])
    signed = p.add("Where", [p.add("Less", [x, number(0)]), p.add("Neg", [size]), size])
    p.add("Mul", [signed, number(1.41421356)], into)


DEFINITIONS: Mapping[tuple[str, str], Definition] = {
    (DOMAIN, "ArrayFeatureExtractor"): _array_feature_extractor,
    (DOMAIN, "Binarizer"): _binarizer,
    (DOMAIN, "FeatureVectorizer"): _feature_vectorizer,
    (DOMAIN, "Imputer"): _imputer,
    (DOMAIN, "LabelEncoder"): _label_encoder,
    (DOMAIN, "LinearClassifier"): _linear_classifier,
    (DOMAIN, "LinearRegressor"): _linear_regressor,
    (DOMAIN, "Normalizer"): _normalizer,
    (DOMAIN, "OneHotEncoder"): _one_hot_encoder,
    (DOMAIN, "SVMClassifier"): _svm_classifier,
    (DOMAIN, "SVMRegressor"): _svm_regressor,
    (DOMAIN, "Scaler"): _scaler,
    (DOMAIN, "TreeEnsemble"): _tree_ensemble,
    (DOMAIN, "TreeEnsembleClassifier"): _tree_classifier,
    (DOMAIN, "TreeEnsembleRegressor"): _tree_regressor,
    (DOMAIN, "ZipMap"): _zip_map,
}
