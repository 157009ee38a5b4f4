"""Random nodes of ``com.microsoft`` and ``ai.onnx.ml`` against ONNX Runtime.

    python benchmarks/domains.py --count 2000 --seed 0 [--from N] [--only NAME ...] [--compiled 20] [--verbose]

Needs the packages `onnx` and `onnxruntime`.  Each number draws a model of one operator with random attributes, shapes
and values, runs it by its network's programs, every few times also compiled, and compares it with ONNX Runtime without
optimisations.  What ONNX Runtime does not run on CPUs is counted, and compared with nothing; what is refused here and
runs there, or differs, is printed, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from domain_bytes import RECIPES_OF_BYTES
from domain_cases import LEARNING, Array, Case, Draw, microsoft

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

CLOSE = 2e-4
"""How far a result may be from another one, as a share of its largest element or of 1."""


# ---------------------------------------------------------------- com.microsoft


def _pointwise(d: Draw) -> Case:
    op = d.one("Gelu", "FastGelu", "QuickGelu", "BiasGelu")
    shape = [d.size() for _ in range(d.size(1, 4))]
    arrays = {"x": d.floats(*shape, scale=2)}
    if op == "BiasGelu" or (op == "FastGelu" and d.flip()):
        arrays["b"] = d.floats(shape[-1])
    attributes = {"alpha": float(d.rng.uniform(0.5, 2))} if op == "QuickGelu" and d.flip() else {}
    return microsoft(op, arrays, attributes=attributes)


def _skip(d: Draw) -> Case:
    op = d.one("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    shape = (d.size(), d.size(), d.size(2, 9))
    arrays = {"x": d.floats(*shape), "skip": d.floats(*shape), "gamma": d.floats(shape[2])}
    absent: tuple[int, ...] = ()
    has_beta = op == "SkipLayerNormalization" and d.flip()
    if has_beta:
        arrays["beta"] = d.floats(shape[2])
    if d.flip():
        arrays["bias"] = d.floats(shape[2])
        absent = (3,) if op == "SkipLayerNormalization" and not has_beta else ()
    attributes = {"epsilon": float(10 ** d.rng.uniform(-12, -2))}
    return microsoft(op, arrays, absent=absent, attributes=attributes)


def _simplified(d: Draw) -> Case:
    shape = [d.size(2, 7) for _ in range(d.size(1, 4))]
    axis = d.one(-1, len(shape) - 1)
    attributes = {"axis": axis, "epsilon": 1e-5, "stash_type": 1}
    return Case(
        "SimplifiedLayerNormalization", "", {"x": d.floats(*shape), "s": d.floats(shape[-1])}, attributes=attributes
    )


def _embed(d: Draw) -> Case:
    batch, length, columns, words = d.size(), d.size(), d.size(2, 9), d.size(3, 9)
    arrays = {"ids": d.ints(words, batch, length)}
    absent: list[int] = []
    has_segments, has_mask, has_places = d.flip(), d.flip(), d.flip(0.3)
    if has_segments:
        arrays["segments"] = d.ints(2, batch, length)
    else:
        absent.append(1)
    arrays |= {"word": d.floats(words, columns), "position": d.floats(length + d.size(0, 3), columns)}
    if has_segments:
        arrays["segment"] = d.floats(2, columns)
    else:
        absent.append(4)
    arrays |= {"gamma": d.floats(columns), "beta": d.floats(columns)}
    if has_mask:
        arrays["mask"] = d.ints(2, batch, length)
    elif has_places:
        absent.append(7)
    if has_places:
        arrays["places"] = d.ints(length, d.one(1, batch), length)
    attributes = {"epsilon": 1e-8, "mask_index_type": int(has_mask)}
    return microsoft("EmbedLayerNormalization", arrays, outputs=2, absent=tuple(absent), attributes=attributes)


def _attention(d: Draw) -> Case:
    batch, length, heads, size, columns = d.size(1, 3), d.size(1, 5), d.size(1, 3), d.size(2, 4), d.size(2, 6)
    value = size if d.flip() else d.size(2, 4)
    before = d.size(1, 4) if d.flip(0.3) and value == size else 0
    keys = before + length
    q, v = heads * size, heads * value
    arrays = {"x": d.floats(batch, length, columns), "w": d.floats(columns, 2 * q + v), "b": d.floats(2 * q + v)}
    absent: list[int] = []
    kind = d.one("none", "ends", "both", "raw", "each")
    if kind == "ends":
        arrays["mask"] = d.rng.integers(1, keys + 1, batch).astype(np.int32)
    elif kind == "both":
        ends = d.rng.integers(1, keys + 1, batch).astype(np.int32)
        arrays["mask"] = np.concatenate([ends, ends // 2]).astype(np.int32)
    elif kind == "raw":
        arrays["mask"] = d.ints(2, batch, keys)
    elif kind == "each":
        arrays["mask"] = d.ints(2, batch, length, keys)
    has_bias = d.flip(0.3)
    if kind == "none" and (before or has_bias):
        absent.append(3)
    if before:
        arrays["past"] = d.floats(2, batch, heads, before, size)
    elif has_bias:
        absent.append(4)
    if has_bias:
        arrays["scores"] = d.floats(batch, heads, length, keys)
    attributes: dict[str, Any] = {"num_heads": heads}
    if value != size:
        attributes["qkv_hidden_sizes"] = [q, q, v]
    if d.flip(0.4):
        attributes["unidirectional"] = 1
    if d.flip(0.3):
        attributes["scale"] = float(d.rng.uniform(0.2, 1.5))
    if d.flip(0.3):
        attributes["mask_filter_value"] = -500.0
    outputs = 2 if before else 1
    return microsoft("Attention", arrays, outputs=outputs, absent=tuple(absent), attributes=attributes)


def _multi_head(d: Draw) -> Case:
    batch, length, keys, heads, size = d.size(1, 3), d.size(1, 5), d.size(1, 5), d.size(1, 3), d.size(2, 4)
    value = size if d.flip(0.7) else d.size(2, 4)
    arrays = {
        "q": d.floats(batch, length, heads * size), "k": d.floats(batch, keys, heads * size),
        "v": d.floats(batch, keys, heads * value),
    }  # fmt: skip
    absent: list[int] = []
    has_bias, has_mask, has_scores = d.flip(0.3), d.flip(0.3), d.flip(0.3)
    if has_bias:
        arrays["b"] = d.floats(heads * (2 * size + value))
    elif has_mask or has_scores:
        absent.append(3)
    if has_mask:
        arrays["mask"] = d.ints(2, batch, keys)
    elif has_scores:
        absent.append(4)
    if has_scores:
        arrays["scores"] = d.floats(d.one(1, batch), d.one(1, heads), length, keys)
    attributes: dict[str, Any] = {"num_heads": heads}
    if d.flip(0.3):
        attributes["unidirectional"] = 1
    if d.flip(0.3):
        attributes["scale"] = float(d.rng.uniform(0.2, 1.5))
    return microsoft("MultiHeadAttention", arrays, absent=tuple(absent), attributes=attributes)


def _grouped(d: Draw) -> Case:
    """Texts that begin, and those that go on, with room in what is kept or not."""
    groups, length, columns = d.size(1, 2), d.one(1, d.size(2, 5)), d.one(16, 32)
    heads, begins = groups * d.size(1, 3), d.flip(0.3)
    batch = d.size(1, 3) if begins or length == 1 else 1
    before = 0 if begins else d.size(1, 5)
    total = before + length
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    if d.flip():
        attributes["scale"] = float(d.rng.uniform(0.1, 1.0))
    if d.flip(0.3):
        attributes["softcap"] = float(d.rng.uniform(0.5, 3.0))
    if d.flip(0.3):
        attributes |= d.one({"local_window_size": d.size(1, 4)}, {"causal": 0})
    if d.flip(0.3):
        attributes["smooth_softmax"] = 1
    given: list[Array | None] = [d.floats(batch, length, columns * (heads + 2 * groups)), None, None]
    if d.flip():
        given = [d.floats(batch, length, columns * count) for count in (heads, groups, groups)]
    kept = before + d.one(0, d.size(0, 7)) if not begins or d.flip() else 0
    given += [d.floats(batch, groups, kept, columns) if kept else None for _ in range(2)]
    tokens = np.full(batch, total) if begins else d.rng.integers(length, total + 1, batch)
    tokens[d.rng.integers(batch)] = total
    given += [(tokens - 1).astype(np.int32), np.array(total, np.int32)]
    if d.flip():
        half = d.one(8, columns // 2)
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(d.flip())}
        given += [d.floats(total + 3, half) for _ in range(2)]
        given.append(d.ints(total + 3, batch, length, dtype=np.int64) if d.flip(0.3) else None)
    else:
        given += [None] * 3
    given.append(d.floats(d.one(1, batch), d.one(1, heads), length, total) if d.flip(0.3) else None)
    given.append(d.floats(heads) if d.flip(0.3) and "smooth_softmax" not in attributes else None)
    names = ("q", "k", "v", "past_k", "past_v", "tokens", "total", "cos", "sin", "places", "bias", "sink")
    while given[-1] is None:
        given.pop()
    arrays = {name: array for name, array in zip(names, given, strict=False) if array is not None}
    absent = tuple(at for at, array in enumerate(given) if array is None)
    fixed = frozenset({"total"})
    return microsoft("GroupQueryAttention", arrays, outputs=3, absent=absent, attributes=attributes, fixed=fixed)


def _rotary(d: Draw) -> Case:
    batch, length, heads, half, longest = d.size(1, 3), d.size(1, 5), d.size(1, 3), d.size(1, 4), 8
    size = 2 * half
    attributes: dict[str, Any] = {"interleaved": int(d.flip())}
    x = d.floats(batch, heads, length, size) if d.flip() else d.floats(batch, length, heads * size)
    if x.ndim == 3 and d.flip(0.3):
        attributes |= {"num_heads": heads}
    places = d.ints(longest - length, 1, dtype=np.int64) if d.flip() else d.ints(longest, batch, length, dtype=np.int64)
    arrays = {"x": x, "places": places, "cos": d.floats(longest, half), "sin": d.floats(longest, half)}
    return microsoft("RotaryEmbedding", arrays, attributes=attributes)


def _fused_matmul(d: Draw) -> Case:
    m, k, n, lead = d.size(), d.size(), d.size(), [d.size(1, 3) for _ in range(d.size(0, 2))]
    a, b, attributes = [*lead, m, k], [*(lead if d.flip(0.7) else []), k, n], {"alpha": float(d.one(1.0, 0.5, -2.0))}
    for name, shape in (("A", a), ("B", b)):
        if d.flip(0.4):
            attributes[f"trans{name}"] = 1
            shape[-2:] = shape[:-3:-1]
    return microsoft("FusedMatMul", {"a": d.floats(*a), "b": d.floats(*b)}, attributes=attributes)


def _activation(
    d: Draw, names: tuple[str, ...] = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
) -> Any:
    name = d.one(*names)
    numbers = {"LeakyRelu": [0.1], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}.get(name, [])
    return name, numbers


def _fused_conv(d: Draw) -> Case:
    channels, outs, taps = d.size(1, 4), d.size(1, 4), (d.size(1, 3), d.size(1, 3))
    arrays = {"x": d.floats(d.size(1, 2), channels, d.size(3, 7), d.size(3, 7)), "w": d.floats(outs, channels, *taps)}
    name, numbers = _activation(d)
    attributes: dict[str, Any] = {"activation": name, "pads": [d.size(0, 1) for _ in range(4)], "kernel_shape": taps}
    if numbers:
        attributes["activation_params"] = numbers
    if d.flip():
        attributes["strides"] = [d.size(1, 2), d.size(1, 2)]
    if d.flip():
        arrays["b"] = d.floats(outs)
    return microsoft("FusedConv", arrays, attributes=attributes, fixed=frozenset({"w"}))


def _fused_gemm(d: Draw) -> Case:
    m, k, n = d.size(), d.size(), d.size()
    name, numbers = _activation(d, ("Relu", "Tanh", "Sigmoid", "LeakyRelu"))
    attributes: dict[str, Any] = {"activation": name, "alpha": float(d.one(1.0, 0.5)), "beta": float(d.one(1.0, 2.0))}
    if numbers:
        attributes["activation_alpha"] = numbers[0]
    turned = d.flip()
    if turned:
        attributes["transB"] = 1
    arrays = {"a": d.floats(m, k), "b": d.floats(*((n, k) if turned else (k, n)))}
    if d.flip(0.7):
        arrays["c"] = d.floats(*d.one((n,), (m, n), (1, n), (m, 1)))
    return microsoft("FusedGemm", arrays, attributes=attributes)


def _grid_sample(d: Draw) -> Case:
    arrays = {"x": d.floats(d.size(1, 2), d.size(1, 3), d.size(2, 6), d.size(2, 6))}
    arrays["grid"] = d.rng.uniform(-1.2, 1.2, (arrays["x"].shape[0], d.size(), d.size(), 2)).astype(np.float32)
    attributes = {
        "mode": d.one("bilinear", "nearest", "bicubic"), "padding_mode": d.one("zeros", "border", "reflection"),
        "align_corners": d.size(0, 1),
    }  # fmt: skip
    return microsoft("GridSample", arrays, attributes=attributes)


def _distances(d: Draw) -> Case:
    k = d.size()
    arrays = {"a": d.floats(d.size(), k), "b": d.floats(d.size(), k)}
    return microsoft("CDist", arrays, attributes={"metric": d.one("euclidean", "sqeuclidean")})


# ---------------------------------------------------------------- ai.onnx.ml


def _learning(op: str, arrays: dict[str, Array], **more: Any) -> Case:
    return Case(op, LEARNING, arrays, **more)


def _features(d: Draw, *, dtype: Any = np.float32) -> Array:
    return d.floats(d.size(), d.size(2, 6)).astype(dtype)


def _scaler(d: Draw) -> Case:
    x = _features(d)
    if d.flip(0.3):
        x = (x * 4).astype(d.one(np.int64, np.int32, np.float64))
    count = d.one(1, x.shape[1])
    attributes = {"offset": d.floats(count).tolist(), "scale": d.floats(count).tolist()}
    return _learning("Scaler", {"x": x}, attributes=attributes)


def _normalizer(d: Draw) -> Case:
    x = _features(d)
    if d.flip(0.3):
        x[0] = 0
    return _learning("Normalizer", {"x": x}, attributes={"norm": d.one("MAX", "L1", "L2")})


def _simple(d: Draw) -> Case:
    x, op = _features(d), d.one("Binarizer", "Imputer", "OneHotEncoder", "ArrayFeatureExtractor", "FeatureVectorizer")
    if op == "Binarizer":
        return _learning(op, {"x": x}, attributes={"threshold": float(d.rng.normal())})
    if op == "Imputer":
        if d.flip():
            x = d.ints(4, *x.shape, dtype=np.int64)
            attributes: Any = {
                "imputed_value_int64s": d.ints(9, d.one(1, x.shape[1])).tolist(),
                "replaced_value_int64": 2,
            }
        else:
            x[d.rng.random(x.shape) < 0.3] = missing = d.one(np.nan, 0.5)
            attributes = {
                "imputed_value_floats": d.floats(d.one(1, x.shape[1])).tolist(),
                "replaced_value_float": float(missing),
            }
        return _learning(op, {"x": x}, attributes=attributes)
    if op == "OneHotEncoder":
        kinds = d.ints(6, *x.shape, dtype=d.one(np.int64, np.float32))
        return _learning(op, {"x": kinds}, attributes={"cats_int64s": [0, 2, 3, 5, 1, 4][: d.size(1, 6)], "zeros": 1})
    if op == "ArrayFeatureExtractor":
        return _learning(op, {"x": x, "at": d.ints(x.shape[1], d.size(), dtype=np.int64)})
    other = d.ints(5, x.shape[0], d.size(), dtype=np.float32)
    return _learning(op, {"x": x, "o": other}, attributes={"inputdimensions": [x.shape[1], other.shape[1]]})


def _encoder(d: Draw) -> Case:
    count, kind = d.size(1, 6), d.one("if", "ff", "ii", "is", "fs", "fi")
    keys = d.rng.permutation(9)[:count]
    attributes: dict[str, Any] = {}
    attributes["keys_int64s" if kind[0] == "i" else "keys_floats"] = [
        int(k) if kind[0] == "i" else float(k) for k in keys
    ]
    if kind[1] == "s":
        attributes |= {"values_strings": [f"v{k}" for k in keys], "default_string": "none"}
    elif kind[1] == "f":
        attributes |= {"values_floats": d.floats(count).tolist(), "default_float": 0.25}
    else:
        attributes |= {"values_int64s": d.ints(50, count).tolist(), "default_int64": 7}
    x = d.ints(9, d.size(), d.size(), dtype=np.int64 if kind[0] == "i" else np.float32)
    return _learning("LabelEncoder", {"x": x}, attributes=attributes, version=2)


def _names(d: Draw, count: int, ints: str) -> dict[str, Any]:
    return (
        {"classlabels_strings": [f"c{k}" for k in range(count)]}
        if d.flip()
        else {ints: [3 * k - 1 for k in range(count)]}
    )


TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _linear(d: Draw) -> Case:
    x = _features(d)
    if d.flip():
        targets = d.size(1, 3)
        attributes: dict[str, Any] = {
            "coefficients": d.floats(targets * x.shape[1], scale=0.2).tolist(), "targets": targets,
            "post_transform": d.one(*TRANSFORMS[:3]),
        }  # fmt: skip
        if d.flip(0.8):
            attributes["intercepts"] = d.floats(targets).tolist()
        return _learning("LinearRegressor", {"x": x}, attributes=attributes)
    classes = d.size(2, 4)
    rows = 1 if classes == 2 and d.flip() else classes
    attributes = {
        "coefficients": d.floats(rows * x.shape[1]).tolist(), "intercepts": d.floats(rows).tolist(),
        "multi_class": d.size(0, 1), "post_transform": d.one(*TRANSFORMS[:4]), **_names(d, classes, "classlabels_ints"),
    }  # fmt: skip
    return _learning("LinearClassifier", {"x": x}, outputs=2, attributes=attributes)


def _kernel(d: Draw) -> dict[str, Any]:
    kind = d.one("LINEAR", "POLY", "RBF", "SIGMOID")
    return {"kernel_type": kind, "kernel_params": [0.3, 0.5, float(d.size(1, 3))]}


def _svm(d: Draw) -> Case:
    x = _features(d)
    columns = x.shape[1]
    if d.flip():
        count = d.size(1, 6)
        attributes = {
            "coefficients": d.floats(count).tolist(), "support_vectors": d.floats(count * columns).tolist(),
            "n_supports": count, "rho": d.floats(1).tolist(), "one_class": int(d.flip(0.3)), **_kernel(d),
        }  # fmt: skip
        return _learning("SVMRegressor", {"x": x}, attributes=attributes)
    classes = d.size(2, 4)
    per = [d.size(1, 3) for _ in range(classes)]
    pairs = classes * (classes - 1) // 2
    attributes = {
        "coefficients": d.floats((classes - 1) * sum(per)).tolist(),
        "support_vectors": d.floats(sum(per) * columns).tolist(),
        "vectors_per_class": per,
        "rho": d.floats(pairs).tolist(),
        **_kernel(d),
        **_names(d, classes, "classlabels_ints"),
    }
    return _learning("SVMClassifier", {"x": x}, outputs=2, attributes=attributes)


def _grown(d: Draw, columns: int, trees: int, modes: tuple[str, ...]) -> dict[str, list[Any]]:
    """The nodes of random trees."""
    made: dict[str, list[Any]] = collections.defaultdict(list)
    for tree in range(trees):
        waiting, number = [(0, 0)], 1
        while waiting:
            node, depth = waiting.pop()
            is_leaf = depth >= d.size(0, 5) or number > 40
            made["nodes_treeids"].append(tree)
            made["nodes_nodeids"].append(node)
            made["nodes_modes"].append("LEAF" if is_leaf else d.one(*modes))
            made["nodes_featureids"].append(0 if is_leaf else int(d.rng.integers(columns)))
            made["nodes_values"].append(0.0 if is_leaf else float(np.round(d.rng.normal(), 1)))
            made["nodes_hitrates"].append(1.0)
            made["nodes_missing_value_tracks_true"].append(d.size(0, 1))
            made["nodes_truenodeids"].append(0 if is_leaf else number)
            made["nodes_falsenodeids"].append(0 if is_leaf else number + 1)
            if not is_leaf:
                waiting += [(number, depth + 1), (number + 1, depth + 1)]
                number += 2
    return made


def _trees(d: Draw) -> Case:
    x = np.round(d.floats(d.size(1, 9), d.size(1, 5)), 1)
    if d.flip(0.3):
        x[d.rng.random(x.shape) < 0.2] = np.nan
    every = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    modes = every[:1] if d.flip() else (d.one(*every),) if d.flip() else every
    nodes = _grown(d, x.shape[1], d.size(1, 5), modes)
    if d.flip():
        del nodes["nodes_missing_value_tracks_true"]
    leaves = [
        (t, n)
        for t, n, mode in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
        if mode == "LEAF"
    ]
    is_regressor = d.flip()
    count = d.size(1, 3) if is_regressor else d.size(2, 4)
    single = (not is_regressor and count == 2 and d.flip()) or (is_regressor and count == 1)
    kind = "target" if is_regressor else "class"
    made: dict[str, Any] = collections.defaultdict(list)
    positive = d.flip()
    for tree, node in leaves:
        for target in range(1 if single else count):
            weight = float(d.rng.normal())
            made[f"{kind}_treeids"].append(tree)
            made[f"{kind}_nodeids"].append(node)
            made[f"{kind}_ids"].append(target)
            made[f"{kind}_weights"].append(abs(weight) if positive else weight)
    attributes = {**nodes, **made, "post_transform": d.one(*TRANSFORMS[:4])}
    if is_regressor:
        attributes |= {"n_targets": count, "aggregate_function": d.one("SUM", "AVERAGE", "MIN", "MAX")}
        if d.flip(0.3):
            attributes["base_values"] = d.floats(count).tolist()
        return _learning("TreeEnsembleRegressor", {"x": x}, attributes=attributes)
    if d.flip(0.3):
        attributes["base_values"] = d.floats(1 if single else count).tolist()
    attributes |= _names(d, count, "classlabels_int64s")
    return _learning("TreeEnsembleClassifier", {"x": x}, outputs=2, attributes=attributes)


RECIPES: dict[str, Callable[[Draw], Case]] = {
    "pointwise": _pointwise, "skip": _skip, "simplified": _simplified, "embed": _embed, "attention": _attention,
    "multi_head": _multi_head, "grouped": _grouped, "rotary": _rotary,
    "fused_matmul": _fused_matmul, "fused_conv": _fused_conv,
    "fused_gemm": _fused_gemm, "grid_sample": _grid_sample, "distances": _distances, "scaler": _scaler,
    "normalizer": _normalizer, "simple": _simple, "encoder": _encoder, "linear": _linear, "svm": _svm, "trees": _trees,
    **RECIPES_OF_BYTES,
}  # fmt: skip


def difference(found: Any, wanted: Any, steps: int = 0) -> str:
    """How two results differ; nothing where they are close, as whole numbers are that are `steps` apart."""
    a, b = np.asarray(found), np.asarray(wanted)
    if a.shape != b.shape:
        return f"shape {a.shape}, not {b.shape}"
    if b.dtype.kind in "iu" and steps:
        apart = np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0)
        return f"{apart} steps apart" if apart > steps or a.dtype != b.dtype else ""
    if b.dtype.kind != "f":
        return (
            ""
            if np.array_equal(
                a.astype(str) if b.dtype.kind in "OSU" else a, b.astype(str) if b.dtype.kind in "OSU" else b
            )
            else f"{a.reshape(-1)[:6]} instead of {b.reshape(-1)[:6]}"
        )
    if a.dtype != b.dtype:
        return f"type {a.dtype}, not {b.dtype}"
    size = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
    if np.allclose(a, b, rtol=CLOSE, atol=CLOSE * size, equal_nan=True):
        return ""
    return f"{a.reshape(-1)[:6]} instead of {b.reshape(-1)[:6]}"


def outcome(case: Case, is_compiled: bool) -> tuple[str, str]:
    """What came of a case: its kind, and what is wrong with it."""
    model = case.model()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # with more, each rounds its part of a batch to bytes by itself
    given = {name: array for name, array in case.arrays.items() if name not in case.fixed}
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = session.run(None, given)
    except Exception:  # what the peer does not run is compared with nothing
        return "not in ONNX Runtime", ""
    try:
        network = read(model)
    except StridesmithError as error:
        return "refused", str(error)
    found = evaluate(network, given)
    whys = [difference(found[f"y{at}"], right, case.steps) for at, right in enumerate(wanted)]
    if not any(whys) and is_compiled:
        target = discover("cpu", 1)
        made = compiled(network_of(network, target), target)(given)
        whys = [
            f"compiled: {why}" if (why := difference(made[f"y{at}"], r, case.steps)) else ""
            for at, r in enumerate(wanted)
        ]
    return "foreign" if network.foreign else "native", "; ".join(f"y{at}: {w}" for at, w in enumerate(whys) if w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(RECIPES), default=sorted(RECIPES))
    parser.add_argument("--compiled", type=int, default=0, help="compile every so many cases as well")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    bad = 0
    for number in range(asked.first, asked.first + asked.count):
        d = Draw(np.random.default_rng([asked.seed, number]))
        case = RECIPES[asked.only[number % len(asked.only)]](d)
        kind, why = outcome(case, bool(asked.compiled) and number % asked.compiled == 0)
        counts[case.op, kind] += 1
        if why:
            bad += 1
            shapes = {name: array.shape for name, array in case.arrays.items()}
            few = {k: v for k, v in case.attributes.items() if not isinstance(v, list) or len(v) < 7}
            print(f"{number} {case.op} {kind} {shapes} {few if asked.verbose else ''}: {why}", flush=True)
    for (op, kind), count in sorted(counts.items()):
        print(f"{op:32} {kind:20} {count}")
    print(f"{asked.count} cases, {bad} refused or different")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
