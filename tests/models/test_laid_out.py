"""Programs whose parameters lie in chosen layouts compute the same, without copies inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith import configs
from stridesmith.backends.data import arguments_of, pack, padding, unpack
from stridesmith.ir.layout.layout import Dim, Layout
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.fusion import tidied
from stridesmith.models.laid_out import laid_out
from stridesmith.space.tree import leaf_blocks

CPU = configs.target("cpu-avx2")


def layout(shape: tuple[int, ...], kind: str, pad: str | float = 0.0, border: int = 1) -> Layout:
    """An image's layout: ``nchw``, ``nhwc`` or ``nchw4c``, with a halo if the name ends in ``+``."""
    order = (0, 2, 3, 1) if kind.startswith("nhwc") else ()
    block = (1, 4) if kind.startswith("nchw4c") else (-1, 1)
    halo = (0, 0, border, border) if kind.endswith("+") else ()
    made = Layout.ordered(shape, order, block, halo, halo)
    return replace(made, pad_value=pad) if made.pads else made


def same_in_layouts(func: PrimFunc, layouts: Mapping[str, Layout], constants: tuple[str, ...] = ()) -> PrimFunc:
    """The program in layouts, after it has computed the same, and held in its padding what it promises."""
    func = tidied(func)
    made = laid_out(func, layouts, constants)
    rng = np.random.default_rng(0)
    *given, result = [rng.integers(-3, 4, b.shape).astype(b.dtype) for b in func.buffers]
    ss.interpret(func, *given, result)
    arguments = arguments_of(made)
    for name, wanted in layouts.items():
        argument = next(a for a in arguments if a.name == name)
        assert argument.physical_shape == wanted.physical_shape
    physical: list[Any] = [pack(a, x) for a, x in zip(arguments, [*given, result], strict=True)]
    physical[-1] = np.full(arguments[-1].physical_shape, np.nan, "float32")
    ss.interpret(made, *physical)
    np.testing.assert_array_equal(unpack(arguments[-1], physical[-1]), result)
    if arguments[-1].pad_value not in ("", "undef"):
        assert (padding(arguments[-1], physical[-1]) == float(arguments[-1].pad_value)).all()
    return made


def names(func: PrimFunc) -> list[str]:
    """The blocks that do something."""
    return [b.name for b in leaf_blocks(func.body) if not b.name.endswith("_assume")]


def edges(func: PrimFunc) -> int:
    """The boxes of padding that are filled."""
    return sum("_edge" in name for name in names(func))


IMAGES = ("nchw", "nhwc", "nhwc+", "nchw4c", "nchw4c+")


@pytest.mark.parametrize("read", IMAGES)
@pytest.mark.parametrize("written", IMAGES)
def test_a_convolution_between_layouts(read: str, written: str) -> None:
    """Ragged channels on both sides; with a halo of zeros no condition is left, and relu writes the last block's."""
    func = ss.workload("conv2d_bias_act", ci=6, h=5, w=5, co=5, k=3, pad=1).func
    layouts = {"x": layout((1, 6, 5, 5), read), "y": layout((1, 5, 5, 5), written)}
    made = same_in_layouts(func, layouts, ("w", "bias"))
    assert ("pad" in names(made)) != read.endswith("+")
    assert edges(made) == (4 if written.endswith("+") else 0)


def test_a_result_that_is_not_zero_over_the_edge_is_filled() -> None:
    """Zeros are written where the program writes something else: sigmoid(0) is not 0."""
    func = ss.workload("conv2d_bias_act", ci=4, h=4, w=4, co=5, k=1, pad=0, act="sigmoid").func
    assert edges(same_as_before(func, {"y": layout((1, 5, 4, 4), "nchw4c")})) == 1


def same_as_before(func: PrimFunc, layouts: Mapping[str, Layout]) -> PrimFunc:
    return laid_out(tidied(func), layouts, ("w", "bias"))


@pytest.mark.parametrize("kind", ["nhwc+", "nchw4c+"])
def test_depthwise_convolutions(kind: str) -> None:
    """Channels are blocked in the image, the weights and the result alike."""
    func = ss.workload("depthwise_conv2d", c=6, h=6, w=6, k=3, stride=2, pad=1).func
    layouts = {"x": layout((1, 6, 6, 6), kind), "y": layout((1, 6, 3, 3), kind)}
    made = same_in_layouts(func, layouts, ("w",))
    assert "pad" not in names(made)
    assert edges(made) == 4


PHASES = (Dim(0), Dim(1), Dim(2), Dim(3, "inner", 2), Dim(3, "block", 2))
PACKED = (Dim(0), Dim(1, "block", 4), Dim(2), Dim(3), Dim(1, "inner", 4))
PANELS = (Dim(0), Dim(1, "block", 4), Dim(2), Dim(3, "block", 4), Dim(3, "inner", 4), Dim(1, "inner", 4))
GROUPS = (Dim(2), Dim(0), Dim(1), Dim(3))


@pytest.mark.parametrize("written", [PHASES, PACKED, PANELS, GROUPS, ()], ids=str)
@pytest.mark.parametrize("read", [PHASES, PANELS, ()], ids=str)
def test_families_of_the_design_space_fit_between_operators(read: tuple[Dim, ...], written: tuple[Dim, ...]) -> None:
    """Phases of a stride, steps of dot products side by side, also in panels, groups first, and rows with a pitch."""
    func = ss.workload("conv2d_bias_act", ci=6, h=6, w=7, co=5, k=3, pad=0).func
    plain = tuple(Dim(d) for d in range(4))
    layouts = {
        name: Layout.of_dims(shape, dims or plain, reach=() if dims else (*shape[:3], shape[3] + 4), pad_value=0.0)
        for name, shape, dims in (("x", (1, 6, 6, 7), read), ("y", (1, 5, 4, 5), written))
    }
    made = same_in_layouts(func, layouts, ("w", "bias"))
    assert all(made.layout_of(name) == layout for name, layout in layouts.items())


GATED = ss.parse("""
@T.prim_func
def gated(x: T.Buffer((1, 4, 3, 3), "float32"), w: T.Buffer((5, 4), "float32"), g: T.Buffer((1, 5), "float32"),
          y: T.Buffer((1, 5, 3, 3), "float32")):
    t = T.alloc_buffer((1, 5, 3, 3))
    for i0, i1, i2, i3, j in T.grid(1, 5, 3, 3, 4):
        with T.block("conv"):
            v0, v1, v2, v3, vj = T.axis.remap("SSSSR", [i0, i1, i2, i3, j])
            with T.init():
                t[v0, v1, v2, v3] = T.float32(0)
            t[v0, v1, v2, v3] = t[v0, v1, v2, v3] + x[v0, vj, v2, v3] * w[v1, vj]
    for i0, i1, i2, i3 in T.grid(1, 5, 3, 3):
        with T.block("gate"):
            v0, v1, v2, v3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
            y[v0, v1, v2, v3] = t[v0, v1, v2, v3] * g[v0, v1]
""")


@pytest.mark.parametrize(("pad", "filled"), [("undef", 1), ("0.0", 0), ("inf", 1)])
def test_zero_times_anything_is_not_zero(pad: str, filled: int) -> None:
    """Over the edge a sum of zeros meets the padding of a gate: where that may be no number, zeros are written."""
    assert isinstance(GATED, PrimFunc)
    gate = Layout.ordered((1, 5), block=(1, 4), pad_value=pad)
    layouts = {"g": gate, "y": layout((1, 5, 3, 3), "nchw4c")}
    made = laid_out(tidied(GATED), layouts, ("w",))
    assert edges(made) == filled
    arguments = arguments_of(made)
    rng = np.random.default_rng(0)
    x, w, g = (rng.integers(-3, 4, b.shape).astype("float32") for b in GATED.buffers[:3])
    physical = [pack(a, value) for a, value in zip(arguments, (x, w, g), strict=False)]
    physical[2][0, 1, 1:] = float("nan") if pad == "undef" else float(pad)
    y = np.full(arguments[-1].physical_shape, np.nan, "float32")
    ss.interpret(made, *physical, y)
    wanted = np.einsum("nihw,oi->nohw", x, w) * g[:, :, None, None]
    np.testing.assert_array_equal(unpack(arguments[-1], y), wanted)
    assert (padding(arguments[-1], y) == 0).all()


@pytest.mark.parametrize(("pad", "filled"), [("undef", 1), ("0.0", 0)])
def test_a_depthwise_convolution_of_what_may_be_anything(pad: str, filled: int) -> None:
    """Weights of 0 are not enough where the image holds anything over the edge."""
    func = ss.workload("depthwise_conv2d", c=6, h=4, w=4, k=1, pad=0).func
    layouts = {"x": layout((1, 6, 4, 4), "nchw4c", pad=pad), "y": layout((1, 6, 4, 4), "nchw4c")}
    assert edges(laid_out(tidied(func), layouts, ("w",))) == filled


@pytest.mark.parametrize("kind", ["nhwc+", "nchw4c+"])
def test_a_pool_reads_a_halo_of_its_own_value(kind: str) -> None:
    """With -inf around the image no border is copied; with zeros around, the border stays a stage."""
    func = ss.workload("max_pool2d", c=6, h=6, w=6, k=3, stride=2, pad=1).func
    seen = layout((1, 6, 6, 6), kind, pad="-inf")
    made = same_in_layouts(func, {"x": seen, "y": layout((1, 6, 3, 3), kind)})
    assert "pad" not in names(made)
    zeros = same_in_layouts(func, {"x": replace(seen, pad_value=0.0)})
    assert "pad" in names(zeros)


def test_products_of_matrices() -> None:
    """Blocks of both dimensions."""
    func = ss.workload("matmul", m=5, n=6, k=7).func
    same_in_layouts(func, {"a": Layout.ordered((5, 7), block=(1, 4), pad_value=0.0)}, ("b",))
    blocked = Layout.ordered((5, 6), block=(0, 4), pad_value=0.0)
    same_in_layouts(func, {"a": Layout.ordered((5, 7), block=(0, 4), pad_value=0.0), "c": blocked}, ("b",))


SUM = ss.parse("""
@T.prim_func
def add(a: T.Buffer((1, 6, 5, 5), "float32"), b: T.Buffer((1, 6, 5, 5), "float32"),
        y: T.Buffer((1, 6, 5, 5), "float32")):
    for i0, i1, i2, i3 in T.grid(1, 6, 5, 5):
        with T.block("add"):
            v0, v1, v2, v3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
            y[v0, v1, v2, v3] = T.max(a[v0, v1, v2, v3] + b[v0, v1, v2, v3], T.float32(0))
""")


@pytest.mark.parametrize("kind", IMAGES)
def test_element_wise_operators_follow_their_operands(kind: str) -> None:
    """A sum of zeros is zero over the edge of the last block."""
    assert isinstance(SUM, PrimFunc)
    made = same_in_layouts(SUM, {name: layout((1, 6, 5, 5), kind) for name in ("a", "b", "y")})
    assert edges(made) == (4 if kind.endswith("+") else 0)
    same_in_layouts(SUM, {"a": layout((1, 6, 5, 5), kind)})


def test_part_of_a_larger_tensor() -> None:
    """A result may lie inside of memory whose rest belongs to others."""
    part = Layout.ordered((1, 6, 5, 5), block=(1, 4), before=(0, 4, 0, 0), after=(0, 3, 0, 0))
    assert isinstance(SUM, PrimFunc)
    made = laid_out(SUM, {"y": part})
    a = np.ones((1, 6, 5, 5), "float32")
    y = np.full(part.physical_shape, np.nan, "float32")
    ss.interpret(made, a, a, y)
    assert np.isnan(y[:, 0]).all() and (y[:, 1] == 2).all() and (y[:, 2, ..., :2] == 2).all()
    assert np.isnan(y[:, 2, ..., 2:]).all() and np.isnan(y[:, 3]).all()


@pytest.mark.parametrize("kind", ["nhwc+", "nchw4c+"])
def test_candidates_of_a_program_in_layouts_can_be_built(kind: str) -> None:
    """One anchor that reads the halo itself; what is drawn is scheduled and lowered."""
    func = tidied(ss.workload("conv2d_bias_act", ci=6, h=5, w=5, co=5, k=3, pad=1).func)
    layouts = {"x": layout((1, 6, 5, 5), kind), "y": layout((1, 5, 5, 5), kind)}
    made = laid_out(func, layouts, ("w", "bias"))
    space = ss.generate(made, CPU, {"w": "constant", "bias": "constant"})
    rng = np.random.default_rng(0)
    for sketch in space.sketches:
        assert [part.anchor.block for part in sketch.parts] == ["conv"]
        for choice in sketch.draw(rng, 1):
            ss.lower(sketch.schedule(choice).func, CPU)
