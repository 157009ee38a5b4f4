"""Random nodes of ``com.microsoft`` on bytes and on weights of few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from domain_cases import Array, Case, Draw, microsoft

BYTES = (np.uint8, np.int8)


def _drawn(d: Draw, dtype: Any, *shape: int) -> Array:
    """Numbers from the one end of a type to the other."""
    limits = np.iinfo(dtype)
    return np.asarray(d.rng.integers(limits.min, limits.max + 1, shape), dtype)


def _scale(d: Draw, *shape: int) -> Array:
    return d.rng.uniform(0.01, 0.05, shape).astype(np.float32)


def _of_bytes(op: str, arrays: dict[str, Array], tensors: str = "x w", **more: Any) -> Case:
    """A node of which all inputs but `tensors` are constants."""
    fixed = frozenset(name for name in arrays if name not in tensors.split())
    return microsoft(op, arrays, fixed=fixed, steps=1, **more)


def _quantised(d: Draw, name: str, dtype: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    """A tensor of bytes with its scale and zero point."""
    return {name: _drawn(d, dtype, *shape), **_steps(d, name, dtype)}


def _steps(d: Draw, name: str, dtype: Any) -> dict[str, Array]:
    """A scale and a zero point."""
    return {f"{name}s": _scale(d), f"{name}z": _drawn(d, dtype)}


def _shape(d: Draw, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(d.size() for _ in range(d.size(least, most)))


def _elementwise(d: Draw) -> Case:
    dtype, shape = d.one(*BYTES), _shape(d)
    op = d.one("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearWhere")
    arrays = _quantised(d, "x", dtype, shape)
    if op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        values = {"alpha": float(d.rng.uniform(0.01, 0.5))} if op == "QLinearLeakyRelu" and d.flip() else {}
        return _of_bytes(op, arrays | _steps(d, "y", dtype), attributes=values)
    other = tuple(d.one(1, extent) for extent in shape)[0 if op == "QLinearWhere" else d.size(0, len(shape)) :]
    arrays |= _quantised(d, "w", dtype, other) | _steps(d, "y", dtype)
    if op == "QLinearWhere":
        arrays = {"c": d.rng.random(shape) < 0.5} | arrays
        return _of_bytes(op, arrays, "c x w")
    return _of_bytes(op, arrays)


def _joined(d: Draw) -> Case:
    dtype, shape = d.one(*BYTES), _shape(d, 2)
    axis = d.size(0, len(shape) - 1)
    arrays, names = _steps(d, "y", dtype), [f"x{at}" for at in range(d.size(1, 4))]
    for name in names:
        arrays |= _quantised(d, name, dtype, (*shape[:axis], d.size(), *shape[axis + 1 :]))
    return _of_bytes("QLinearConcat", arrays, " ".join(names), attributes={"axis": axis})


def _pooled(d: Draw) -> Case:
    dtype, is_last, size = d.one(*BYTES), d.flip(), (d.size(3, 7), d.size(3, 7))
    batch, channels = d.size(1, 2), d.size()
    shape = (batch, *size, channels) if is_last else (batch, channels, *size)
    arrays = _quantised(d, "x", dtype, shape) | _steps(d, "y", dtype)
    values: dict[str, Any] = {"channels_last": int(is_last)}
    if d.flip():
        return _of_bytes("QLinearGlobalAveragePool", arrays, attributes=values)
    kernel = [d.size(1, 3), d.size(1, 3)]
    values |= {
        "kernel_shape": kernel, "pads": [int(d.rng.integers(k)) for k in kernel * 2], "ceil_mode": d.size(0, 1),
        "strides": [d.size(1, 2), d.size(1, 2)], "count_include_pad": d.size(0, 1),
    }  # fmt: skip
    return _of_bytes("QLinearAveragePool", arrays, attributes=values)


def _softmax(d: Draw) -> Case:
    dtype, shape = d.one(*BYTES), _shape(d, 2)
    arrays = _quantised(d, "x", dtype, shape)
    arrays |= {"ys": np.asarray(1 / 256, np.float32), "yz": np.asarray(np.iinfo(dtype).min, dtype)}
    axis = d.size(0, len(shape) - 1)
    return _of_bytes("QLinearSoftmax", arrays, attributes={"axis": d.one(axis, -1), "opset": d.one(11, 13)})


def _gemm(d: Draw) -> Case:
    m, k, n = d.size(), d.size(1, 40), d.size(1, 9)
    a, b = d.one(*BYTES), d.one(*BYTES)
    turned_a, turned_b, columns = d.flip(0.3), d.flip(), d.one(1, n)
    arrays = _quantised(d, "x", a, (k, m) if turned_a else (m, k))
    arrays["w"] = _drawn(d, b, *((n, k) if turned_b else (k, n)))
    arrays["ws"] = _scale(d, *(() if columns == 1 else (n,)))
    arrays["wz"] = _drawn(d, b) if columns == 1 else np.full(n, 0 if b is np.int8 else 128, b)
    absent: tuple[int, ...] = ()
    if d.flip():
        arrays["c"] = d.rng.integers(-999, 999, d.one((n,), (m, n), (1, n))).astype(np.int32)
    else:
        absent = (6,)
    if d.flip(0.7):
        arrays |= {"ys": np.asarray(d.rng.uniform(0.2, 1), np.float32), "yz": _drawn(d, a)}
    elif absent:
        absent = ()
    values = {"transA": int(turned_a), "transB": int(turned_b), "alpha": float(d.one(1.0, 0.5))}
    return _of_bytes("QGemm", arrays, "x", absent=absent, attributes=values)


def _scaled(d: Draw) -> Case:
    """Products of bytes whose results are floats."""
    lead, k, n = tuple(d.size(1, 3) for _ in range(d.size(1, 3))), d.size(1, 40), d.size(1, 9)
    b, op, has_bias = d.one(*BYTES), d.one("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), d.flip()
    w, per = _drawn(d, b, k, n), d.one((), (1,), (n,))
    kinds = {"none": None, "one": _drawn(d, b, *(per if per != (n,) else ())), "columns": _drawn(d, b, n)}
    zero = kinds[d.one("none", "one", *(["columns"] if per == (n,) else []))]
    zero = np.full(n, zero, b) if zero is not None and per == (n,) and zero.ndim == 0 else zero
    absent: list[int] = []
    arrays: dict[str, Array] = {"x": d.floats(*lead, k), "w": w, "ws": _scale(d, *per)}
    if op == "MatMulIntegerToFloat":
        a = np.uint8 if d.flip(0.7) else b
        arrays = {"x": _drawn(d, a, *lead, k), "w": w, "xs": _scale(d), "ws": arrays["ws"]}
        if d.flip(0.7):
            arrays["xz"] = _drawn(d, a)
        elif zero is not None or has_bias:
            absent.append(4)
    if zero is not None:
        arrays["wz"] = zero
    elif has_bias:
        absent.append(3 if op == "DynamicQuantizeMatMul" else 5)
    if has_bias:
        arrays["bias"] = d.floats(n)
    return _of_bytes(op, arrays, "x", absent=tuple(absent))


def _attention(d: Draw) -> Case:
    batch, length, heads, size, columns = d.size(1, 3), d.size(1, 5), d.size(1, 3), d.size(2, 4), d.size(2, 9)
    before, width, a, b = d.size(1, 4) if d.flip(0.3) else 0, 3 * heads * size, np.uint8, d.one(*BYTES)
    per = d.one((), (width,))
    arrays: dict[str, Array] = {
        "x": _drawn(d, a, batch, length, columns), "w": _drawn(d, b, columns, width), "bias": d.floats(width),
        "xs": _scale(d), "ws": _scale(d, *per) * np.float32(0.3),
    }  # fmt: skip
    absent: list[int] = []
    kind, keys = d.one("none", "ends", "raw"), before + length
    if kind == "ends":
        arrays["mask"] = d.rng.integers(1, keys + 1, batch).astype(np.int32)
    elif kind == "raw":
        arrays["mask"] = d.ints(2, batch, keys)
    else:
        absent.append(5)
    arrays |= {"xz": _drawn(d, a), "wz": _drawn(d, b, *per)}
    if before:
        arrays["past"] = d.floats(2, batch, heads, before, size)
    values: dict[str, Any] = {"num_heads": heads, "unidirectional": int(d.flip(0.4))}
    outputs = 2 if before else 1
    return _of_bytes("QAttention", arrays, "x mask past", outputs=outputs, absent=tuple(absent), attributes=values)


def _few_bits(d: Draw) -> Case:
    bits, block, n = d.one(4, 8), d.one(16, 32, 64, 128), d.size(1, 20)
    k = d.size(1, 3) * block - d.one(0, 0, 1, 7)
    groups, rows = -(-k // block), d.one((1,), (3,), (2, 3))
    scale = d.rng.uniform(0.001, 0.02, (n, groups)).astype(np.float32)
    arrays = {"x": d.floats(*rows, k), "w": _drawn(d, np.uint8, n, groups, block * bits // 8), "ws": scale}
    absent: tuple[int, ...] = ()
    kind, has_bias = d.one("none", "packed", "float"), d.flip(0.3)
    if kind == "packed":
        arrays["wz"] = _drawn(d, np.uint8, n, -(-groups * bits // 8))
    elif kind == "float":
        arrays["wz"] = d.rng.uniform(0, 1 << bits, (n, groups)).astype(np.float32)
    elif has_bias:
        absent = (3,)
    if has_bias:
        absent = (*absent, 4)
        arrays["bias"] = d.floats(n)
    if d.flip():  # as older models have them
        arrays |= {name: arrays[name].reshape(-1) for name in ("ws", "wz") if name in arrays}
    values = {"K": k, "N": n, "bits": bits, "block_size": block}
    return _of_bytes("MatMulNBits", arrays, "x", absent=absent, attributes=values)


def _rows(d: Draw) -> Case:
    """Floats as bytes, and back, by ``com.microsoft``'s own operators, whose zero point may be of 16 bits."""
    shape, op = _shape(d), d.one("QuantizeLinear", "DequantizeLinear")
    dtype = d.one(*BYTES, np.uint16, np.int16)
    axis = d.size(0, len(shape) - 1)
    per = d.one((), (shape[axis],))
    x = d.floats(*shape, scale=2) if op == "QuantizeLinear" else _drawn(d, dtype, *shape)
    arrays = {"x": x, "xs": _scale(d, *per), "xz": _drawn(d, dtype, *per)}
    return _of_bytes(op, arrays, attributes={"axis": axis} if per else {})


def _lstm(d: Draw) -> Case:
    """A layer whose weights, inputs and states are bytes; one sequence in each batch, as ONNX Runtime rounds it."""
    steps, batch, width, size, ways = d.size(), d.size(1, 3), d.size(2, 9), d.size(2, 9), d.size(1, 2)
    arrays: dict[str, Array] = {"x": d.floats(steps, batch, width)}
    dtype, per = d.one(*BYTES), d.flip()
    for name, rows in (("w", width), ("r", size)):
        arrays[name] = _drawn(d, dtype, ways, rows, 4 * size)
    absent: list[int] = []
    for at, (name, shape) in enumerate(
        [("b", (ways, 8 * size)), ("l", (batch,)), ("h", (ways, batch, size)), ("c", (ways, batch, size)),
         ("p", (ways, 3 * size))], 3,
    ):  # fmt: skip
        if not d.flip():
            absent.append(at)
        elif name == "l":
            lengths = d.rng.integers(1, steps + 1, shape).astype(np.int32)
            lengths[0] = steps
            arrays[name] = lengths
        else:
            arrays[name] = d.rng.uniform(-1, 1, shape).astype(np.float32)
    shape = (ways, 4 * size) if per else (ways,)
    for name in "wr":
        zero = 0 if dtype is np.int8 else int(d.rng.integers(118, 138))
        arrays |= {f"{name}s": d.rng.uniform(0.003, 0.006, shape).astype(np.float32)}
        arrays |= {f"{name}z": np.full(shape, zero, dtype)}
    values: dict[str, Any] = {
        "hidden_size": size,
        "direction": "bidirectional" if ways == 2 else d.one("forward", "reverse"),
    }
    if d.flip(0.2):
        values["clip"] = 1.5
    if d.flip(0.2):
        values["input_forget"] = 1
    return _of_bytes("DynamicQuantizeLSTM", arrays, "x l h c", outputs=3, absent=tuple(absent), attributes=values)


def _channels_last(d: Draw) -> Case:
    channels, outs, taps = d.size(1, 4), d.size(1, 4), (d.size(1, 3), d.size(1, 3))
    x, w = d.floats(d.size(1, 2), d.size(3, 7), d.size(3, 7), channels), d.floats(outs, *taps, channels)
    arrays = {"x": x, "w": w} | ({"b": d.floats(outs)} if d.flip() else {})
    values: dict[str, Any] = {"pads": [d.size(0, 1) for _ in range(4)], "kernel_shape": taps}
    if d.flip():
        values["strides"] = [d.size(1, 2), d.size(1, 2)]
    return _of_bytes(d.one("NhwcConv", "NhwcFusedConv"), arrays, "x", attributes=values)


RECIPES_OF_BYTES: Mapping[str, Callable[[Draw], Case]] = {
    "bytes": _elementwise, "bytes_joined": _joined, "bytes_pooled": _pooled, "bytes_softmax": _softmax,
    "bytes_gemm": _gemm, "bytes_scaled": _scaled, "few_bits": _few_bits, "quantise": _rows, "bytes_lstm": _lstm,
    "channels_last": _channels_last, "bytes_attention": _attention,
}  # fmt: skip
"""A function for each family of operators."""
