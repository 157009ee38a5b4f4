"""Operators as published networks have them, drawn by a seed.

``draw(seed, number)`` depends on nothing else, so that any part of a league can be run anywhere.  A deck has a card
for each kind of operator, several where networks have many of it, and is shuffled anew when it is through: whatever
run of ``len(DECK)`` operators holds every family.  Channels and steps come from the stages of published networks,
sizes from an input's resolution divided by the stage's step, so that they are ragged where networks have ragged ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stridesmith.space.workloads import Workload

RESOLUTIONS = (192, 208, 224, 224, 224, 240, 256, 260, 288, 299, 300, 320, 384, 416, 448, 512)
MOST_FLOPS, MOST_BYTES, LEAST_ELEMENTS = 1.5e9, 6.4e7, 4096
Params = dict[str, Any]
Random = random.Random


@dataclass(frozen=True)
class Operator:
    """An operator of a family: a workload of the library or a program in script form (`league_programs`).

    `constants` are the inputs that are weights.
    """

    family: str
    kind: str
    params: Params
    constants: tuple[str, ...] = ()

    @cached_property
    def work(self) -> Workload:
        """The program.  Raises an error of the language where it has no such operator."""
        import stridesmith as ss

        if not self.script:
            return ss.workload(self.kind, **self.params)
        func = ss.parse(self.script)
        assert isinstance(func, ss.PrimFunc)
        ss.verify(func)
        return ss.from_func(func)

    @cached_property
    def script(self) -> str:
        """The text of a program that is no workload of the library, else nothing."""
        from league_programs import PROGRAMS

        return PROGRAMS[self.kind](**self.params).text if self.kind in PROGRAMS else ""

    @property
    def label(self) -> str:
        """The operator in one word, as tables have it and `named.py` reads it."""
        return f"{self.kind}({','.join(f'{name}={_plain(value)}' for name, value in self.params.items())})"


def values(**params: Any) -> Params:
    """An operator's parameters."""
    return params


def _plain(value: Any) -> str:
    """A value without blanks; a shape as ``3x4``, several as ``3x4+4``."""
    if not isinstance(value, (tuple, list)):
        return str(value)
    return ("+" if value and isinstance(value[0], (tuple, list)) else "x").join(map(_plain, value))


# ------------------------------------------------------------------- convolutions

POINTWISE = (  # in, out, step of the stage
    (64, 256, 4), (256, 64, 4), (512, 128, 8), (128, 512, 8), (1024, 256, 16), (256, 1024, 16), (2048, 512, 32),
    (16, 96, 2), (24, 144, 4), (144, 24, 4), (32, 192, 8), (192, 32, 8), (64, 384, 16), (96, 576, 16), (160, 960, 32),
    (320, 1280, 32), (40, 240, 8), (112, 672, 16), (672, 192, 32), (1152, 320, 32), (288, 48, 8), (192, 64, 8),
    (768, 192, 16), (1280, 320, 32), (96, 16, 4), (16, 64, 4), (256, 32, 8), (512, 64, 16), (152, 152, 16),
    (368, 368, 32), (116, 116, 16), (58, 58, 8), (1024, 255, 32), (256, 21, 8), (64, 2, 4),
)  # fmt: skip
SQUARE3 = (
    (64, 64, 4), (128, 128, 8), (256, 256, 16), (512, 512, 32), (64, 128, 4), (32, 64, 4), (128, 256, 8),
    (256, 512, 16), (512, 1024, 32), (128, 32, 8), (128, 32, 16), (192, 48, 8), (16, 64, 4), (64, 256, 16),
    (64, 96, 8), (96, 96, 8), (80, 192, 4), (3, 32, 2), (64, 3, 4), (48, 48, 4), (160, 160, 16), (29, 29, 8),
)  # fmt: skip
LARGE = (  # in, out, step, kernel
    (48, 64, 8, 5), (16, 32, 8, 5), (32, 128, 16, 5), (64, 192, 8, 5), (24, 24, 4, 5), (40, 40, 8, 5), (6, 16, 16, 5),
    (128, 128, 8, 7), (185, 128, 8, 7), (64, 64, 16, 7), (32, 3, 4, 7), (2, 1, 8, 7),
)  # fmt: skip
LONG = (  # in, out, step, taps along one direction
    (128, 128, 16, 7), (160, 160, 16, 7), (192, 192, 16, 7), (128, 192, 16, 7), (160, 192, 16, 7), (384, 384, 32, 3),
    (448, 384, 32, 3), (64, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 5), (22, 22, 8, 11),
)  # fmt: skip
STRIDED = (  # in, out, step before, kernel, stride, pad
    (64, 128, 4, 3, 2, 1), (128, 256, 8, 3, 2, 1), (256, 512, 16, 3, 2, 1), (256, 512, 4, 1, 2, 0),
    (512, 1024, 8, 1, 2, 0), (64, 128, 4, 1, 2, 0), (288, 384, 8, 3, 2, 0), (192, 192, 16, 3, 2, 0),
    (96, 192, 4, 2, 2, 0), (192, 384, 8, 2, 2, 0), (3, 96, 1, 4, 4, 0), (3, 192, 1, 16, 16, 0), (3, 64, 1, 7, 2, 3),
    (3, 32, 1, 3, 2, 1), (3, 64, 1, 11, 4, 2), (1, 32, 2, 3, 2, 1), (3, 32, 1, 3, 2, 0),
)  # fmt: skip
DILATED = (  # in, out, step, dilation
    (256, 256, 8, 2), (512, 512, 16, 2), (256, 256, 16, 4), (128, 128, 8, 2), (64, 64, 4, 2), (64, 64, 8, 4),
    (32, 32, 8, 8), (128, 128, 8, 16), (256, 128, 16, 6), (320, 64, 16, 12), (48, 48, 8, 3),
)  # fmt: skip
GROUPED = (  # in, out, step, kernel, groups
    (128, 128, 4, 3, 32), (256, 256, 8, 3, 32), (512, 512, 16, 3, 32), (1024, 1024, 32, 3, 32), (144, 144, 8, 3, 6),
    (320, 320, 16, 3, 20), (96, 96, 8, 3, 2), (256, 256, 8, 3, 2), (96, 256, 8, 5, 2), (384, 256, 16, 3, 2),
    (240, 240, 8, 1, 3), (240, 60, 8, 1, 3), (272, 272, 16, 1, 4), (384, 96, 16, 1, 8), (64, 64, 4, 3, 4),
    (168, 168, 16, 3, 7), (224, 224, 16, 3, 4), (120, 120, 16, 5, 5), (64, 64, 8, 7, 16), (48, 48, 8, 5, 2),
    (408, 408, 32, 3, 17), (72, 72, 8, 3, 3), (128, 128, 16, 7, 8),
)  # fmt: skip
DEPTHWISE = (  # channels, step, kernel
    (32, 2, 3), (96, 2, 3), (144, 4, 3), (192, 8, 3), (384, 16, 3), (576, 16, 3), (960, 32, 3), (512, 16, 3),
    (240, 8, 5), (480, 16, 5), (672, 16, 5), (1152, 32, 5), (72, 4, 5), (96, 4, 7), (192, 8, 7), (384, 16, 7),
    (768, 32, 7), (58, 8, 3), (116, 16, 3), (728, 16, 3),
)  # fmt: skip
MULTIPLIED = ((32, 2, 4, 3), (64, 2, 8, 3), (16, 4, 4, 3), (3, 8, 2, 3), (128, 2, 16, 3), (24, 3, 8, 5), (8, 6, 4, 5))
TRANSPOSED = (  # in, out, size, kernel, stride, pad, output pad
    (512, 256, 8, 4, 2, 1, 0), (256, 128, 16, 4, 2, 1, 0), (128, 64, 32, 4, 2, 1, 0), (64, 3, 32, 4, 2, 1, 0),
    (256, 128, 28, 2, 2, 0, 0), (128, 64, 56, 2, 2, 0, 0), (256, 128, 24, 3, 2, 1, 1), (128, 64, 48, 3, 2, 1, 1),
    (64, 64, 28, 4, 4, 0, 0), (48, 32, 33, 4, 4, 0, 0), (32, 16, 20, 4, 4, 0, 0), (21, 21, 16, 8, 4, 2, 0),
    (64, 64, 28, 3, 1, 1, 0), (128, 64, 14, 3, 1, 1, 0), (256, 256, 7, 3, 1, 0, 0), (100, 256, 4, 4, 1, 0, 0),
    (64, 32, 25, 5, 2, 2, 1),
)  # fmt: skip


def _image(rng: Random, step: int) -> tuple[int, int]:
    """The size of a stage's image: square, or as detectors and segmenters have it."""
    height = rng.choice(RESOLUTIONS)
    width = height if rng.random() < 0.8 else rng.choice(RESOLUTIONS)
    return -(-height // step), -(-width // step)


def _layout(rng: Random) -> str:
    return rng.choice(("nchw", "nhwc"))


def _conv(rng: Random, family: str, **params: Any) -> Operator:
    """A convolution, every third with the bias and activation that follow it in its network."""
    if family != "grouped convolution" and rng.random() < 1 / 3:
        params["act"] = rng.choice(("relu", "relu", "clip", "leaky_relu", "silu"))
        return Operator(family, "conv2d_bias_act", params, ("w", "bias"))
    return Operator(family, "conv2d", params, ("w",))


def conv1x1(rng: Random) -> Operator:
    ci, co, step = rng.choice(POINTWISE)
    h, w = _image(rng, step)
    return _conv(rng, "convolution 1x1", ci=ci, h=h, w=w, co=co, k=1, pad=0, layout=_layout(rng))


def conv3x3(rng: Random) -> Operator:
    ci, co, step = rng.choice(SQUARE3)
    h, w = _image(rng, step)
    return _conv(rng, "convolution 3x3", ci=ci, h=h, w=w, co=co, k=3, pad=1, layout=_layout(rng))


def conv_large(rng: Random) -> Operator:
    ci, co, step, k = rng.choice(LARGE)
    h, w = _image(rng, step)
    return _conv(rng, "convolution 5x5, 7x7", ci=ci, h=h, w=w, co=co, k=k, pad=k // 2, layout=_layout(rng))


def conv_long(rng: Random) -> Operator:
    ci, co, step, k = rng.choice(LONG)
    h, w = _image(rng, step)
    kh, kw = rng.choice(((1, k), (k, 1)))
    return _conv(rng, "convolution 1x7, 7x1", ci=ci, h=h, w=w, co=co, kh=kh, kw=kw, pad_h=kh // 2, pad_w=kw // 2,
                 layout=_layout(rng))  # fmt: skip


def conv_strided(rng: Random) -> Operator:
    ci, co, step, k, stride, pad = rng.choice(STRIDED)
    h, w = _image(rng, step)
    return _conv(rng, "convolution, strided", ci=ci, h=h, w=w, co=co, k=k, stride=stride, pad=pad, layout=_layout(rng))


def conv_dilated(rng: Random) -> Operator:
    ci, co, step, d = rng.choice(DILATED)
    h, w = _image(rng, step)
    return _conv(rng, "convolution, dilated", ci=ci, h=h, w=w, co=co, k=3, pad=d, dilation=d, layout=_layout(rng))


def conv_grouped(rng: Random) -> Operator:
    ci, co, step, k, groups = rng.choice(GROUPED)
    h, w = _image(rng, step)
    stride = 2 if k > 1 and rng.random() < 0.2 else 1
    params = values(ci=ci, h=h, w=w, co=co, k=k, stride=stride, groups=groups, layout=_layout(rng))
    if rng.random() < 0.25:
        return Operator("grouped convolution", "grouped_conv2d", params, ("w",))
    return _conv(rng, "grouped convolution", **params, pad=k // 2)


def depthwise(rng: Random) -> Operator:
    c, step, k = rng.choice(DEPTHWISE)
    h, w = _image(rng, step)
    params = values(c=c, h=h, w=w, k=k, stride=rng.choice((1, 1, 2)), pad=k // 2, layout=_layout(rng))
    return Operator("depthwise", "depthwise_conv2d", params, ("w",))


def depthwise_multiplied(rng: Random) -> Operator:
    c, multiplier, step, k = rng.choice(MULTIPLIED)
    h, w = _image(rng, step)
    params = values(c=c, multiplier=multiplier, h=h, w=w, k=k, stride=rng.choice((1, 1, 2)), layout=_layout(rng))
    return Operator("depthwise with multiplier", "depthwise_multiplier", params, ("w",))


def conv_transposed(rng: Random) -> Operator:
    ci, co, size, k, stride, pad, more = rng.choice(TRANSPOSED)
    if more == 0 and rng.random() < 0.2:
        params = values(ci=ci, co=co, h=size, w=size, k=k, stride=stride, pad=pad)
        return Operator("transposed convolution", "gathered_conv_transpose", params, ("w",))
    params = values(ci=ci, h=size, w=size, co=co, k=k, stride=stride, pad=pad, output_pad=more, layout=_layout(rng))
    return Operator("transposed convolution", "conv2d_transpose", params, ("w",))


def conv1d(rng: Random) -> Operator:
    ci, co, k, stride, dilation = rng.choice((
        (512, 512, 3, 2, 1), (1, 512, 10, 5, 1), (80, 384, 3, 1, 1), (384, 384, 3, 2, 1), (64, 64, 3, 1, 4),
        (64, 128, 2, 1, 16), (128, 128, 7, 1, 3), (64, 64, 11, 1, 5), (256, 256, 1, 1, 1), (32, 32, 5, 1, 1),
    ))  # fmt: skip
    width = rng.choice((400, 799, 1024, 1500, 1599, 3000))
    params = values(ci=ci, w=width, co=co, k=k, stride=stride, pad=dilation * (k // 2), dilation=dilation,
                  layout=rng.choice(("ncw", "nwc")))  # fmt: skip
    return Operator("1-d convolution", "conv1d", params, ("w",))


def conv3d(rng: Random) -> Operator:
    ci, co, d, size = rng.choice((
        (3, 24, 8, 112), (3, 64, 8, 56), (16, 32, 16, 28), (64, 64, 8, 28), (32, 32, 12, 33), (128, 128, 4, 14),
        (64, 144, 8, 28), (256, 256, 2, 7), (24, 24, 13, 40),
    ))  # fmt: skip
    kd, k = rng.choice(((3, 3), (3, 3), (1, 3), (3, 1), (1, 1)))
    params = values(ci=ci, d=d, h=size, w=size, co=co, kd=kd, kh=k, kw=k, stride=rng.choice((1, 1, 2)), pad_d=kd // 2,
                  pad_h=k // 2, pad_w=k // 2, layout=rng.choice(("ncdhw", "ndhwc")))  # fmt: skip
    return Operator("3-d convolution", "conv3d", params, ("w",))


# ------------------------------------------------------------------- products

ROWS = (1, 4, 16, 32, 49, 64, 100, 128, 128, 192, 196, 197, 256, 256, 384, 400, 511, 512, 577, 784)
LINEAR = (
    (768, 768), (768, 3072), (3072, 768), (768, 2304), (512, 2048), (2048, 512), (384, 1536), (384, 1152), (192, 576),
    (96, 288), (1024, 1024), (1024, 4096), (1280, 1280), (2048, 1000), (1280, 1000), (1000, 2048), (256, 91),
    (513, 255), (640, 1920), (312, 1200), (128, 512), (400, 120), (100, 400),
)  # fmt: skip
ACTS = ("relu", "gelu", "gelu", "tanh", "silu", "none")


def matmul(rng: Random) -> Operator:
    k, n = rng.choice(LINEAR)
    params = values(m=rng.choice(ROWS), n=n, k=k, transpose_a=int(rng.random() < 0.2), transpose_b=rng.choice((0, 1)))
    form = rng.random()
    if form < 0.4:
        return Operator("matmul", "matmul_bias_act", params | {"act": rng.choice(ACTS)}, ("b", "bias"))
    return Operator("matmul", "matmul", params, ("b",) if form < 0.7 else ())


def batch_matmul(rng: Random) -> Operator:
    heads, rows, d = rng.choice((
        (12, 128, 64), (12, 197, 64), (8, 256, 64), (16, 64, 64), (3, 196, 64), (64, 49, 32), (12, 384, 64),
        (6, 197, 64), (8, 100, 32), (4, 400, 80), (5, 255, 33), (20, 150, 64), (16, 577, 64),
    ))  # fmt: skip
    form = rng.choice(("scores", "mix", "gradient"))
    m, n, k = {"scores": (rows, rows, d), "mix": (rows, d, rows), "gradient": (d, rows, rows)}[form]
    transposed = {"scores": (0, 1), "mix": (0, 0), "gradient": (1, rng.choice((0, 1)))}[form]
    params = values(b=heads, m=m, n=n, k=k, transpose_a=transposed[0], transpose_b=transposed[1])
    if rng.random() < 0.25:
        return Operator("batch matmul", "batch_matmul_bias_act", params | {"act": rng.choice(ACTS)}, ("b", "bias"))
    return Operator("batch matmul", "batch_matmul", params)


def attention_row(rng: Random) -> Operator:
    heads, d = rng.choice(((12, 64), (16, 64), (32, 128), (8, 64), (20, 64), (9, 96)))
    rows = rng.choice((64, 127, 200, 256, 500, 512, 1000, 1024))
    return Operator("attention row", "attention_row", values(heads=heads, rows=rows, d=d))


# ------------------------------------------------------------------- pooling, rows, axes


def pool(rng: Random) -> Operator:
    kind = rng.choice(("max_pool2d", "avg_pool2d"))
    c, step, k, stride, pad = rng.choice((
        (64, 2, 3, 2, 1), (64, 4, 3, 2, 0), (192, 4, 3, 2, 0), (288, 8, 3, 2, 0), (480, 8, 3, 2, 1), (192, 8, 3, 1, 1),
        (288, 8, 3, 1, 1), (768, 16, 3, 1, 1), (64, 1, 2, 2, 0), (128, 2, 2, 2, 0), (256, 8, 2, 2, 0),
        (512, 16, 2, 2, 0), (512, 32, 5, 1, 2), (256, 32, 13, 1, 6), (24, 2, 3, 2, 1), (96, 4, 3, 2, 1),
    ))  # fmt: skip
    h, w = _image(rng, step)
    params = values(c=c, h=h, w=w, k=k, stride=stride, pad=pad, layout=_layout(rng))
    if kind == "avg_pool2d" and pad:
        params["include_pad"] = rng.choice((0, 1))
    return Operator("pooling", kind, params)


def global_pool(rng: Random) -> Operator:
    c, step = rng.choice((
        (512, 32), (2048, 32), (1280, 32), (960, 32), (240, 8), (144, 4), (672, 16), (96, 2), (400, 16),
    ))  # fmt: skip
    h, w = _image(rng, step)
    kind = rng.choice(("global_avg_pool2d", "global_avg_pool2d", "global_max_pool2d"))
    return Operator("global pooling", kind, values(n=rng.choice((1, 1, 4)), c=c, h=h, w=w, layout=_layout(rng)))


def softmax(rng: Random) -> Operator:
    if rng.random() < 0.25:
        c, step = rng.choice(((21, 4), (19, 4), (150, 8), (2, 2), (81, 16)))
        h, w = _image(rng, step)
        return Operator("softmax", "softmax_axis", values(n=1, c=c, pixels=h * w))
    rows, cols = rng.choice((
        (1, 1000), (64, 1000), (32, 10), (1536, 128), (2364, 197), (3136, 49), (588, 3072), (49, 768), (12, 1024),
        (4096, 64), (512, 512), (16, 32000), (4, 50257), (400, 91), (1000, 333), (3072, 384),
    ))  # fmt: skip
    return Operator("softmax", "softmax", values(rows=rows, cols=cols))


def layernorm(rng: Random) -> Operator:
    rows, cols = rng.choice((
        (128, 768), (197, 768), (512, 1024), (49, 768), (196, 384), (784, 192), (3136, 96), (64, 512), (577, 1024),
        (1, 768), (1500, 384), (255, 333), (256, 2048), (77, 1280),
    ))  # fmt: skip
    form = rng.random()
    if form < 0.3:
        groups, each, size = rng.choice(((32, 8, 16), (32, 10, 32), (32, 4, 28), (32, 20, 8), (16, 4, 33), (64, 1, 56)))
        params = values(groups=groups, each=each, pixels=size * size)
        return Operator("layernorm", "group_norm", params, ("gamma", "beta"))
    if form < 0.5:
        return Operator("layernorm", "rms_norm", values(rows=rows, cols=cols), ("gamma",))
    return Operator("layernorm", "layernorm", values(rows=rows, cols=cols), ("gamma", "beta"))


def reduction(rng: Random) -> Operator:
    shape, axes = rng.choice((
        ((1024, 1024), (1,)), ((1024, 1024), (0,)), ((511, 1000), (1,)), ((4096, 96), (0,)), ((8, 197, 768), (1,)),
        ((32, 128, 256), (1,)), ((64, 128, 512), (0,)), ((256, 56, 56), (1, 2)), ((8, 64, 28, 28), (0, 2, 3)),
        ((8, 28, 28, 128), (0, 1, 2)), ((12, 197, 197), (2,)), ((16, 33, 500), (2,)), ((4, 3, 224, 224), (1,)),
        ((1, 400, 25, 25), (1,)), ((100, 17, 64), (0, 2)), ((1000000,), (0,)),
    ))  # fmt: skip
    if len(axes) == len(shape):
        shape, axes = (1, *shape), tuple(a + 1 for a in axes)
    return Operator("reduction", "reduction", values(shape=shape, axes=axes, op=rng.choice(("sum", "mean", "max"))))


def cumulative_sum(rng: Random) -> Operator:
    rows, cols = rng.choice(((64, 1000), (1, 32000), (128, 4096), (8, 50257), (512, 513), (1024, 128), (16, 16384)))
    return Operator("cumulative sum", "cumulative_sum", values(rows=rows, cols=cols, axis=rng.choice((1, 1, 0))))


# ------------------------------------------------------------------- element by element


def elementwise(rng: Random) -> Operator:
    c, step = rng.choice(((64, 4), (256, 4), (128, 8), (512, 8), (240, 8), (672, 16), (1152, 32), (24, 4)))
    h, w = _image(rng, step)
    rows, cols = rng.choice(((128, 768), (197, 3072), (512, 2048), (1000, 333), (49, 384), (2048, 1024)))
    heads, words = rng.choice(((12, 128), (12, 197), (8, 256), (16, 77)))
    shapes, op, act = rng.choice((
        (((1, c, h, w), (c, 1, 1)), "add", "relu"), (((1, c, h, w), (1, c, 1, 1)), "multiply", "none"),
        (((1, h, w, c), (c,)), "add", "silu"), (((1, h, w, c), (1, 1, 1, c)), "multiply", "none"),
        (((1, c, h, w), (1, c, h, w)), "add", "relu"), (((1, c, h, w), (1, 1, h, w)), "multiply", "sigmoid"),
        (((1, heads, words, words), (1, 1, 1, words)), "add", "none"),
        (((heads, words, words), (words, words)), "add", "none"), (((rows, cols), (cols,)), "add", "gelu"),
        (((rows, cols), (rows, 1), (cols,)), "multiply", "none"), (((rows, 1), (1, cols)), "add", "tanh"),
        (((rows, cols), (rows, cols)), "multiply", "silu"),
    ))  # fmt: skip
    return Operator("element-wise", "broadcast", values(shapes=shapes, op=op, act=act))


def shuffle(rng: Random) -> Operator:
    if rng.random() < 0.3:
        c, size, groups = rng.choice(((240, 28, 3), (272, 28, 4), (116, 28, 2), (464, 14, 2), (384, 14, 8)))
        return Operator("pixel shuffle", "channel_shuffle", values(c=c, h=size, w=size, groups=groups))
    c, r, size = rng.choice(((3, 2, 128), (3, 4, 64), (64, 2, 56), (16, 2, 100), (3, 3, 85), (128, 2, 14), (4, 2, 90)))
    return Operator("pixel shuffle", "pixel_shuffle", values(c=c, h=size, w=size + rng.choice((0, 0, 7)), r=r))


def interpolation(rng: Random) -> Operator:
    c, size = rng.choice((
        (256, 14), (256, 28), (128, 26), (64, 56), (21, 65), (3, 224), (512, 10), (48, 33), (320, 16),
    ))  # fmt: skip
    width = size + rng.choice((0, 0, 5))
    mode = rng.choice(("nearest", "bilinear"))
    if rng.random() < 0.7:
        scale = rng.choice((2, 2, 2, 4)) if c * size * size < 100_000 else 2
        oh, ow = size * scale, width * scale
    else:
        oh, ow = size * 3 // 2 + 1, width * 3 // 2 + 2
    params = values(c=c, h=size, w=width, oh=oh, ow=ow, mode=mode, layout=_layout(rng))
    return Operator("interpolation", "interpolation", params)


# ------------------------------------------------------------------- the deck


@dataclass(frozen=True)
class Card:
    """A family's way to draw, and how often it is in the deck."""

    make: Callable[[Random], Operator]
    count: int = 1


CARDS = (
    Card(conv1x1, 3), Card(conv3x3, 3), Card(conv_large, 2), Card(conv_long), Card(conv_strided, 2), Card(conv_dilated),
    Card(conv_grouped, 3), Card(depthwise, 2), Card(depthwise_multiplied), Card(conv_transposed, 2), Card(conv1d),
    Card(conv3d), Card(matmul, 4), Card(batch_matmul, 2), Card(attention_row), Card(pool, 2), Card(global_pool),
    Card(softmax, 2), Card(layernorm, 2), Card(reduction, 2), Card(cumulative_sum), Card(elementwise, 2), Card(shuffle),
    Card(interpolation, 2),
)  # fmt: skip
DECK = tuple(card.make for card in CARDS for _ in range(card.count))


def draw(seed: int, number: int) -> Operator:
    """The operator of a number: its card by the order of its deck, everything else by the number's own stream.

    What is too large to be tuned and raced in a minute, or so small that it is none, is drawn again.
    """
    deck, place = divmod(number, len(DECK))
    order = list(DECK)
    Random(f"deck {seed} {deck}").shuffle(order)
    rng = Random(f"operator {seed} {number}")
    while True:
        operator = order[place](rng)
        if fits(operator):
            return operator


def fits(operator: Operator) -> bool:
    """Whether an operator is neither too large nor too small; one that the language lacks fits."""
    from stridesmith.errors import StridesmithError

    try:
        work = operator.work
    except (StridesmithError, ValueError):
        return True
    elements = sum(math.prod(b.shape) for b in work.func.buffers)
    return work.flops <= MOST_FLOPS and 4 * elements <= MOST_BYTES and elements >= LEAST_ELEMENTS
