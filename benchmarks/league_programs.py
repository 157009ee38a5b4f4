"""Operators that the library lacks, as programs in script form, each with a NumPy reference.

``PROGRAMS[kind](**params)`` gives the text, which is what a user would write for ``stridesmith --script``, and the
reference. Indices are as the operator's definition has them, quotients and remainders included: nothing is brought into
a form that the rules of the design space like.  The result is the buffer `y`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stridesmith.space.workloads.activations import ACTIVATIONS
from stridesmith.space.workloads.text import AxisText, Shape, block, literal

Array = np.ndarray[Any, Any]
Reference = Callable[[Mapping[str, Array]], Array]
ZERO, LOWEST = literal(0, "float32"), literal(float("-inf"), "float32")


@dataclass(frozen=True)
class Nest:
    """Loops around one block: its name, its axes, what it stores, and what it starts from."""

    name: str
    axes: list[AxisText]
    body: str
    init: str = ""

    def text(self, number: int) -> str:
        """The nest with names of its own, as names are bound once in a function."""
        names = "|".join(axis for axis, _, _ in self.axes)
        body, init = (re.sub(rf"\bv({names})\b", rf"v\g<1>{number}", part) for part in (self.body, self.init))
        return block(self.name, [(f"{axis}{number}", extent, kind) for axis, extent, kind in self.axes], body, init)


@dataclass(frozen=True)
class Program:
    """A program's text, and what it computes as a function of the inputs by name."""

    text: str
    reference: Reference


def made(
    name: str,
    inputs: Mapping[str, Shape],
    output: Shape,
    nests: Sequence[Nest],
    reference: Reference,
    allocs: Mapping[str, Shape] | None = None,
) -> Program:
    """A function of float32 buffers that writes `y`."""
    lines = ["@T.prim_func", f"def {name}("]
    lines += [f"    {buffer}: T.Buffer({shape}, 'float32')," for buffer, shape in inputs.items()]
    lines += [f"    y: T.Buffer({output}, 'float32'),", "):"]
    lines += [f"    {buffer} = T.alloc_buffer({shape}, 'float32')" for buffer, shape in (allocs or {}).items()]
    lines += [nest.text(number) for number, nest in enumerate(nests)]
    return Program("\n".join(lines) + "\n", reference)


def at(buffer: str, *indices: str) -> str:
    """``buffer[indices]``."""
    return f"{buffer}[{', '.join(indices)}]"


def spatial(**extents: int) -> list[AxisText]:
    """Axes of a block that its result has."""
    return [(name, extent, "S") for name, extent in extents.items()]


def reduced(**extents: int) -> list[AxisText]:
    """Axes of a block that its result does not have."""
    return [(name, extent, "R") for name, extent in extents.items()]


def summed(name: str, axes: list[AxisText], y: str, value: str) -> Nest:
    """A sum."""
    return Nest(name, axes, f"{y} = {y} + {value}", f"{y} = {ZERO}")


def largest(name: str, axes: list[AxisText], y: str, value: str) -> Nest:
    """A maximum."""
    return Nest(name, axes, f"{y} = T.max({y}, {value})", f"{y} = {LOWEST}")


def activated(value: str, act: str) -> str:
    """An activation of an expression that is cheap to repeat."""
    return ACTIVATIONS[act].step("float32")[1].format(v=value)


def number(value: float) -> str:
    """A constant of the programs' type."""
    return literal(value, "float32")


def bordered(shape: Shape, pads: Sequence[int]) -> Nest:
    """The block that puts zeros around `x`, into `x_pad`."""
    names = [f"p{'abcde'[i]}" for i in range(len(shape))]
    inside = [f"{p} <= v{a} and v{a} < {e + p}" for a, e, p in zip(names, shape, pads, strict=True) if p]
    source = at("x", *(f"v{a} - {p}" if p else f"v{a}" for a, p in zip(names, pads, strict=True)))
    axes = [(a, e + 2 * p, "S") for a, e, p in zip(names, shape, pads, strict=True)]
    target = at("x_pad", *(f"v{a}" for a in names))
    return Nest("pad", axes, f"{target} = T.if_then_else({' and '.join(inside)}, {source}, {ZERO})")


# ------------------------------------------------------------------- convolutions


def grouped_conv2d(ci: int, co: int, h: int, w: int, k: int, stride: int, groups: int, layout: str) -> Program:
    """A grouped convolution whose group is a quotient of the output channel, as TVM's library writes it."""
    return _windows("grouped_conv2d", (h, w), k, stride, groups, ci // groups, co // groups, layout)


def depthwise_multiplier(c: int, multiplier: int, h: int, w: int, k: int, stride: int, layout: str) -> Program:
    """A convolution of each channel with `multiplier` kernels."""
    return _windows("depthwise_multiplier", (h, w), k, stride, c, 1, multiplier, layout)


def _windows(name: str, size: Shape, k: int, stride: int, groups: int, each: int, filters: int, layout: str) -> Program:
    """A convolution in groups of `each` input channels and `filters` output channels, padded to keep the size."""
    pad, first, ci, co = k // 2, layout == "nchw", groups * each, groups * filters
    oh, ow = ((extent + 2 * pad - k) // stride + 1 for extent in size)
    image, output = ((1, ci, *size), (1, co, oh, ow)) if first else ((1, *size, ci), (1, oh, ow, co))
    pads = [0, 0, pad, pad] if first else [0, pad, pad, 0]
    group = f"vco // {filters}"
    channel = group if each == 1 else f"{group} * {each} + vci"
    row, col = (f"v{o} * {stride} + v{t}" if stride > 1 else f"v{o} + v{t}" for o, t in (("oh", "kh"), ("ow", "kw")))
    some, inner = (reduced(ci=each), ["vci"]) if each > 1 else ([], [])
    source, depth = "x_pad" if pad else "x", (each,) if each > 1 else ()
    if first:
        axes = [*spatial(n=1, co=co, oh=oh, ow=ow), *some, *reduced(kh=k, kw=k)]
        y, x = at("y", "vn", "vco", "voh", "vow"), at(source, "vn", channel, row, col)
        kernel, factor = (co, *depth, k, k), at("w", "vco", *inner, "vkh", "vkw")
    else:
        axes = [*spatial(n=1, oh=oh, ow=ow, co=co), *reduced(kh=k, kw=k), *some]
        y, x = at("y", "vn", "voh", "vow", "vco"), at(source, "vn", row, col, channel)
        kernel, factor = (k, k, *depth, co), at("w", "vkh", "vkw", *inner, "vco")

    def reference(data: Mapping[str, Array]) -> Array:
        x, w = data["x"], data["w"].reshape(kernel if each > 1 else (co, 1, k, k) if first else (k, k, 1, co))
        if not first:
            x, w = np.moveaxis(x, -1, 1), w.transpose(3, 2, 0, 1)
        x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
        sources = np.arange(co)[:, None] // filters * each + np.arange(each)
        total = np.zeros((1, co, oh, ow), x.dtype)
        for kh in range(k):
            for kw in range(k):
                seen = x[:, :, kh : kh + stride * (oh - 1) + 1 : stride, kw : kw + stride * (ow - 1) + 1 : stride]
                total += np.einsum("noihw,oi->nohw", seen[:, sources], w[:, :, kh, kw])
        return total if first else np.ascontiguousarray(np.moveaxis(total, 1, -1))

    nests = [bordered(image, pads)] if pad else []
    padded = {"x_pad": tuple(e + 2 * p for e, p in zip(image, pads, strict=True))} if pad else {}
    nests.append(summed("conv", axes, y, f"{x} * {factor}"))
    return made(name, {"x": image, "w": kernel}, output, nests, reference, padded)


def gathered_conv_transpose(ci: int, co: int, h: int, w: int, k: int, stride: int, pad: int) -> Program:
    """A transposed convolution by its condition: the taps whose distance the stride divides."""
    oh, ow = (h - 1) * stride - 2 * pad + k, (w - 1) * stride - 2 * pad + k
    tests = []
    for tap, extent in ((f"voh + {pad} - vkh", h), (f"vow + {pad} - vkw", w)):
        tests += [f"0 <= {tap}", f"{tap} < {(extent - 1) * stride + 1}"]
        tests += [f"({tap}) % {stride} == 0"] if stride > 1 else []
    x = at("x", "vn", "vci", f"(voh + {pad} - vkh) // {stride}", f"(vow + {pad} - vkw) // {stride}")
    value = f"T.if_then_else({' and '.join(tests)}, {x}, {ZERO}) * {at('w', 'vci', 'vco', 'vkh', 'vkw')}"
    axes = [*spatial(n=1, co=co, oh=oh, ow=ow), *reduced(ci=ci, kh=k, kw=k)]

    def reference(data: Mapping[str, Array]) -> Array:
        whole = np.zeros((1, co, (h - 1) * stride + k, (w - 1) * stride + k), data["x"].dtype)
        for kh in range(k):
            for kw in range(k):
                part = whole[:, :, kh : kh + (h - 1) * stride + 1 : stride, kw : kw + (w - 1) * stride + 1 : stride]
                part += np.einsum("nihw,io->nohw", data["x"], data["w"][:, :, kh, kw])
        return np.ascontiguousarray(whole[:, :, pad : pad + oh, pad : pad + ow])

    nest = summed("conv", axes, at("y", "vn", "vco", "voh", "vow"), value)
    inputs = {"x": (1, ci, h, w), "w": (ci, co, k, k)}
    return made("gathered_conv_transpose", inputs, (1, co, oh, ow), [nest], reference)


# ------------------------------------------------------------------- products


def batch_matmul_bias_act(b: int, m: int, n: int, k: int, transpose_a: int, transpose_b: int, act: str) -> Program:
    """Products of pairs of matrices, plus a bias for each column of each pair, then an activation."""
    left = at("a", "vs", *(("vk", "vi") if transpose_a else ("vi", "vk")))
    right = at("b", "vs", *(("vj", "vk") if transpose_b else ("vk", "vj")))
    point, shape, axes = "vs, vi, vj", (b, m, n), spatial(s=b, i=m, j=n)
    nests = [
        summed("product", [*axes, *reduced(k=k)], f"acc[{point}]", f"{left} * {right}"),
        Nest("bias", axes, f"t[{point}] = acc[{point}] + bias[vs, vj]"),
        Nest("act", axes, f"y[{point}] = {activated(f't[{point}]', act)}"),
    ]
    inputs = {
        "a": (b, k, m) if transpose_a else (b, m, k), "b": (b, n, k) if transpose_b else (b, k, n), "bias": (b, n),
    }  # fmt: skip

    def reference(data: Mapping[str, Array]) -> Array:
        left = np.swapaxes(data["a"], 1, 2) if transpose_a else data["a"]
        right = np.swapaxes(data["b"], 1, 2) if transpose_b else data["b"]
        return ACTIVATIONS[act].compute(left @ right + data["bias"][:, None])

    return made("batch_matmul_bias_act", inputs, shape, nests, reference, {"acc": shape, "t": shape})


def attention_row(heads: int, rows: int, d: int) -> Program:
    """One query of each head against `rows` keys and values, as when text is generated word by word."""
    scale = 1 / math.sqrt(d)
    nests = [
        summed("score", [*spatial(g=heads, i=rows), *reduced(c=d)], "s[vg, vi]", "q[vg, vc] * k[vg, vi, vc]"),
        largest("peak", [*spatial(g=heads), *reduced(i=rows)], "m[vg]", "s[vg, vi]"),
        Nest("power", spatial(g=heads, i=rows), f"e[vg, vi] = T.exp((s[vg, vi] - m[vg]) * {number(scale)})"),
        summed("total", [*spatial(g=heads), *reduced(i=rows)], "z[vg]", "e[vg, vi]"),
        summed("mix", [*spatial(g=heads, c=d), *reduced(i=rows)], "o[vg, vc]", "e[vg, vi] * v[vg, vi, vc]"),
        Nest("share", spatial(g=heads, c=d), "y[vg, vc] = o[vg, vc] / z[vg]"),
    ]

    def reference(data: Mapping[str, Array]) -> Array:
        s = np.einsum("gc,gic->gi", data["q"], data["k"]) * data["q"].dtype.type(scale)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return np.einsum("gi,gic->gc", e / e.sum(axis=1, keepdims=True), data["v"])

    inputs = {"q": (heads, d), "k": (heads, rows, d), "v": (heads, rows, d)}
    inner = {"s": (heads, rows), "m": (heads,), "e": (heads, rows), "z": (heads,), "o": (heads, d)}
    return made("attention_row", inputs, (heads, d), nests, reference, inner)


# ------------------------------------------------------------------- along axes


LETTERS = "abcdef"


def reduction(shape: Shape, axes: Shape, op: str) -> Program:
    """The sum, mean or maximum over some axes of an array."""
    kept = [i for i in range(len(shape)) if i not in axes]
    output = tuple(shape[i] for i in kept)
    loops = [(LETTERS[i], shape[i], "S") for i in kept] + [(LETTERS[i], shape[i], "R") for i in axes]
    x = at("x", *(f"v{LETTERS[i]}" for i in range(len(shape))))
    point = ", ".join(f"v{LETTERS[i]}" for i in kept)
    count = math.prod(shape[i] for i in axes)
    if op == "max":
        nests = [largest("reduce", loops, f"y[{point}]", x)]
    elif op == "sum":
        nests = [summed("reduce", loops, f"y[{point}]", x)]
    else:
        nests = [summed("reduce", loops, f"t[{point}]", x)]
        nests.append(Nest("mean", loops[: len(kept)], f"y[{point}] = t[{point}] / {number(count)}"))

    def reference(data: Mapping[str, Array]) -> Array:
        compute: dict[str, Callable[..., Any]] = {"max": np.max, "sum": np.sum, "mean": np.mean}
        return np.asarray(compute[op](data["x"], axis=tuple(axes)))

    return made("reduction", {"x": shape}, output, nests, reference, {"t": output} if op == "mean" else {})


def softmax_axis(n: int, c: int, pixels: int) -> Program:
    """Softmax over the channels of an image, as at the end of a segmentation."""
    shape, axes = (n, c, pixels), spatial(n=n, c=c, p=pixels)
    over, rows = [*spatial(n=n, p=pixels), *reduced(c=c)], (n, pixels)
    nests = [
        largest("peak", over, "m[vn, vp]", "x[vn, vc, vp]"),
        Nest("power", axes, "e[vn, vc, vp] = T.exp(x[vn, vc, vp] - m[vn, vp])"),
        summed("total", over, "s[vn, vp]", "e[vn, vc, vp]"),
        Nest("share", axes, "y[vn, vc, vp] = e[vn, vc, vp] / s[vn, vp]"),
    ]

    def reference(data: Mapping[str, Array]) -> Array:
        e = np.exp(data["x"] - data["x"].max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

    return made("softmax_axis", {"x": shape}, shape, nests, reference, {"m": rows, "e": shape, "s": rows})


def group_norm(groups: int, each: int, pixels: int) -> Program:
    """Each group of channels to mean 0 and variance 1, then scaled and shifted by channel."""
    c = groups * each
    shape, over = (c, pixels), [*spatial(g=groups), *reduced(c=each, p=pixels)]
    x, count = f"x[vg * {each} + vc, vp]", number(each * pixels)
    centred = f"({x} - s[vg] / {count})"
    own = f"(x[vc, vp] - s[vc // {each}] / {count}) * T.rsqrt(q[vc // {each}] / {count} + {number(1e-5)})"
    nests = [
        summed("total", over, "s[vg]", x),
        summed("spread", over, "q[vg]", f"{centred} * {centred}"),
        Nest("normal", spatial(c=c, p=pixels), f"y[vc, vp] = {own} * gamma[vc] + beta[vc]"),
    ]

    def reference(data: Mapping[str, Array]) -> Array:
        x = data["x"].reshape(groups, -1)
        centred = x - x.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + x.dtype.type(1e-5))
        return np.asarray(normal.reshape(shape) * data["gamma"][:, None] + data["beta"][:, None])

    inputs = {"x": shape, "gamma": (c,), "beta": (c,)}
    return made("group_norm", inputs, shape, nests, reference, {"s": (groups,), "q": (groups,)})


def rms_norm(rows: int, cols: int) -> Program:
    """Every row divided by the root of its mean square, then scaled by column."""
    nests = [
        summed("square", [*spatial(i=rows), *reduced(j=cols)], "q[vi]", "x[vi, vj] * x[vi, vj]"),
        Nest("normal", spatial(i=rows, j=cols),
             f"y[vi, vj] = x[vi, vj] * T.rsqrt(q[vi] / {number(cols)} + {number(1e-5)}) * gamma[vj]"),
    ]  # fmt: skip

    def reference(data: Mapping[str, Array]) -> Array:
        x = data["x"]
        root = np.sqrt((x * x).mean(axis=1, keepdims=True) + x.dtype.type(1e-5))
        return np.asarray(x / root * data["gamma"])

    return made("rms_norm", {"x": (rows, cols), "gamma": (cols,)}, (rows, cols), nests, reference, {"q": (rows,)})


def cumulative_sum(rows: int, cols: int, axis: int) -> Program:
    """The sums of what stands before each element along an axis, itself included."""
    size, kinds = (rows, cols), [("opaque", "spatial"), ("spatial", "opaque")][axis]
    iters = [f"v{a} = T.axis.{kind}({e}, {a})" for kind, e, a in zip(kinds, size, "ij", strict=True)]
    along, before = [("vi", "vi - 1, vj"), ("vj", "vi, vj - 1")][axis]
    text = "\n".join([
        "@T.prim_func", "def cumulative_sum(", f"    x: T.Buffer({size}, 'float32'),",
        f"    y: T.Buffer({size}, 'float32'),", "):", f"    for i, j in T.grid({rows}, {cols}):",
        '        with T.block("scan"):', f"            {iters[0]}", f"            {iters[1]}",
        f"            y[vi, vj] = x[vi, vj] + T.if_then_else({along} > 0, y[{before}], {ZERO})",
    ])  # fmt: skip
    return Program(text + "\n", lambda data: np.cumsum(data["x"], axis=axis, dtype=data["x"].dtype))


# ------------------------------------------------------------------- element by element


def broadcast(shapes: Sequence[Shape], op: str, act: str) -> Program:
    """``act(a op b op ...)`` of arrays that are repeated along their axes of extent 1."""
    output = tuple(np.broadcast_shapes(*shapes))
    names = "abcd"[: len(shapes)]
    loads = []
    for name, shape in zip(names, shapes, strict=True):
        letters = LETTERS[len(output) - len(shape) : len(output)]
        loads.append(at(f"x{name}", *(f"v{a}" if e > 1 else "0" for a, e in zip(letters, shape, strict=True))))
    axes: list[AxisText] = [(a, e, "S") for a, e in zip(LETTERS, output, strict=False)]
    point = ", ".join(f"v{a}" for a, _, _ in axes)
    sign = {"add": " + ", "multiply": " * "}[op]
    nests = [
        Nest("combine", axes, f"t[{point}] = {sign.join(loads)}"),
        Nest("act", axes, f"y[{point}] = {activated(f't[{point}]', act)}"),
    ]
    if act == "none":
        nests, inner = [Nest("combine", axes, f"y[{point}] = {sign.join(loads)}")], {}
    else:
        inner = {"t": output}

    def reference(data: Mapping[str, Array]) -> Array:
        function: Callable[[Any, Any], Any] = {"add": np.add, "multiply": np.multiply}[op]
        value = data["xa"]
        for name in names[1:]:
            value = function(value, data[f"x{name}"])
        return ACTIVATIONS[act].compute(np.asarray(value))

    inputs = {f"x{name}": tuple(shape) for name, shape in zip(names, shapes, strict=True)}
    return made("broadcast", inputs, output, nests, reference, inner)


def pixel_shuffle(c: int, h: int, w: int, r: int) -> Program:
    """``r * r`` channels become the pixels of a square."""
    source = f"x[vn, vc * {r * r} + voh % {r} * {r} + vow % {r}, voh // {r}, vow // {r}]"
    nest = Nest("shuffle", spatial(n=1, c=c, oh=h * r, ow=w * r), f"y[vn, vc, voh, vow] = {source}")

    def reference(data: Mapping[str, Array]) -> Array:
        return data["x"].reshape(1, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(1, c, h * r, w * r)

    return made("pixel_shuffle", {"x": (1, c * r * r, h, w)}, (1, c, h * r, w * r), [nest], reference)


def channel_shuffle(c: int, h: int, w: int, groups: int) -> Program:
    """Channels of a grouped convolution dealt out to the groups of the next."""
    each = c // groups
    nest = Nest("shuffle", spatial(n=1, c=c, h=h, w=w),
                f"y[vn, vc, vh, vw] = x[vn, vc % {groups} * {each} + vc // {groups}, vh, vw]")  # fmt: skip

    def reference(data: Mapping[str, Array]) -> Array:
        return data["x"].reshape(1, groups, each, h, w).swapaxes(1, 2).reshape(1, c, h, w)

    return made("channel_shuffle", {"x": (1, c, h, w)}, (1, c, h, w), [nest], reference)


def interpolation(c: int, h: int, w: int, oh: int, ow: int, mode: str, layout: str) -> Program:
    """An image at another size, by the nearest pixel or between the four around; centres of pixels correspond."""
    where = {"nchw": ("vn", "vc", "{h}", "{w}"), "nhwc": ("vn", "{h}", "{w}", "vc")}[layout]
    image, output = ((1, c, h, w), (1, c, oh, ow)) if layout == "nchw" else ((1, h, w, c), (1, oh, ow, c))
    axes = spatial(n=1, c=c, oh=oh, ow=ow) if layout == "nchw" else spatial(n=1, oh=oh, ow=ow, c=c)
    y = at("y", *where).format(h="voh", w="vow")

    def x(row: str, col: str) -> str:
        return at("x", *where).format(h=row, w=col)

    if mode == "nearest":
        body = f"{y} = {x(f'voh * {h} // {oh}', f'vow * {w} // {ow}')}"
    else:
        parts = []
        for axis, extent, size in (("voh", h, oh), ("vow", w, ow)):
            twice = f"T.max({axis} * {2 * extent} + {extent - size}, 0)"
            low, share = f"{twice} // {2 * size}", f"T.Cast('float32', {twice} % {2 * size}) * {number(0.5 / size)}"
            parts.append((low, f"T.min({low} + 1, {extent - 1})", share))
        (top, bottom, down), (left, right, along) = parts
        upper = f"({x(top, left)} + ({x(top, right)} - {x(top, left)}) * ({along}))"
        lower = f"({x(bottom, left)} + ({x(bottom, right)} - {x(bottom, left)}) * ({along}))"
        body = f"{y} = {upper} + ({lower} - {upper}) * ({down})"

    def reference(data: Mapping[str, Array]) -> Array:
        planes = data["x"] if layout == "nchw" else np.moveaxis(data["x"], -1, 1)
        for axis, extent, size in ((2, h, oh), (3, w, ow)):
            if mode == "nearest":
                planes = np.take(planes, np.arange(size) * extent // size, axis)
                continue
            place = np.maximum((np.arange(size) + 0.5) * extent / size - 0.5, 0)
            low = place.astype(int)
            share = (place - low).astype(planes.dtype).reshape((-1, 1) if axis == 2 else (-1,))
            below, above = np.take(planes, low, axis), np.take(planes, np.minimum(low + 1, extent - 1), axis)
            planes = below + (above - below) * share
        return planes if layout == "nchw" else np.ascontiguousarray(np.moveaxis(planes, 1, -1))

    return made(f"interpolate_{mode}", {"x": image}, output, [Nest("pixel", axes, body)], reference)


PROGRAMS: dict[str, Callable[..., Program]] = {
    "grouped_conv2d": grouped_conv2d,
    "depthwise_multiplier": depthwise_multiplier,
    "gathered_conv_transpose": gathered_conv_transpose,
    "batch_matmul_bias_act": batch_matmul_bias_act,
    "attention_row": attention_row,
    "reduction": reduction,
    "softmax_axis": softmax_axis,
    "group_norm": group_norm,
    "rms_norm": rms_norm,
    "cumulative_sum": cumulative_sum,
    "broadcast": broadcast,
    "pixel_shuffle": pixel_shuffle,
    "channel_shuffle": channel_shuffle,
    "interpolation": interpolation,
}
