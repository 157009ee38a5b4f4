"""Halos are padding: a border that a program tests where it reads becomes the padding of a stage."""

from __future__ import annotations

import numpy as np
import pytest
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.ir.expr import Call
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.program import anchors
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.tree import leaf_blocks
from stridesmith.space.workloads import workload

CONV1D = """
@T.prim_func
def main(x: T.Buffer((4, 20), "float32"), w: T.Buffer((6, 4, 3), "float32"), y: T.Buffer((6, {out}), "float32")):
    for o, i, c, k in T.grid(6, {out}, 4, 3):
        with T.block("conv"):
            vo, vi, vc, vk = T.axis.remap("SSRR", [o, i, c, k])
            with T.init():
                y[vo, vi] = T.float32(0)
            y[vo, vi] = y[vo, vi] + {value}
"""
READ = "T.if_then_else({low} <= {at} and {at} < {high}, x[vc, {at} - {low}], T.float32({outside})) * w[vo, vc, vk]"
AROUND = "T.if_then_else(1 <= vi + vk and vi + vk < 21, x[vc, vi + vk - 1] * w[vo, vc, vk], T.float32(0))"
PADDED = """
@T.prim_func
def main(x: T.Buffer((4, 20), "float32"), w: T.Buffer((6, 4, 3), "float32"), y: T.Buffer((6, 20), "float32")):
    p = T.alloc_buffer((4, 22), "float32")
    for c, h in T.grid(4, 22):
        with T.block("pad"):
            vc, vh = T.axis.remap("SS", [c, h])
            p[vc, vh] = T.if_then_else(1 <= vh and vh < 21, x[vc, vh - 1], T.float32(0))
    for o, i, c, k in T.grid(6, 20, 4, 3):
        with T.block("conv"):
            vo, vi, vc, vk = T.axis.remap("SSRR", [o, i, c, k])
            with T.init():
                y[vo, vi] = T.float32(0)
            y[vo, vi] = y[vo, vi] + p[vc, vi + vk] * w[vo, vc, vk]
"""
TURNED = """
@T.prim_func
def main(x: T.Buffer((20, 2, 2), "float32"), w: T.Buffer((6, 4, 3), "float32"), y: T.Buffer((6, 20), "float32")):
    p = T.alloc_buffer((4, 22), "float32")
    for c, h in T.grid(4, 22):
        with T.block("pad"):
            vc, vh = T.axis.remap("SS", [c, h])
            p[vc, vh] = T.if_then_else(1 <= vh and vh < 21, x[vh - 1, vc // 2, vc % 2], T.float32(0))
    for o, i, a, b, k in T.grid(6, 20, 2, 2, 3):
        with T.block("conv"):
            vo, vi, va, vb, vk = T.axis.remap("SSRRR", [o, i, a, b, k])
            with T.init():
                y[vo, vi] = T.float32(0)
            y[vo, vi] = y[vo, vi] + p[va * 2 + vb, vi + vk] * w[vo, va * 2 + vb, vk]
"""
POOL = """
@T.prim_func
def main(x: T.Buffer((3, 9, 11), "float32"), y: T.Buffer((3, 5, 6), "float32")):
    for c, i, j, a, b in T.grid(3, 5, 6, 3, 3):
        with T.block("pool"):
            vc, vi, vj, va, vb = T.axis.remap("SSSRR", [c, i, j, a, b])
            with T.init():
                y[vc, vi, vj] = T.float32("-inf")
            y[vc, vi, vj] = T.max(y[vc, vi, vj], T.if_then_else(
                1 <= vi * 2 + va and vi * 2 + va < 10 and 1 <= vj * 2 + vb and vj * 2 + vb < 12,
                x[vc, vi * 2 + va - 1, vj * 2 + vb - 1], T.float32("-inf")))
"""


def func_of(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def conv(value: str = READ, at: str = "vi + vk", low: int = 1, outside: str = "0", out: int = 20) -> PrimFunc:
    return func_of(CONV1D.format(value=value.format(at=at, low=low, high=20 + low, outside=outside), out=out))


def space_of(func: PrimFunc, target: Target = CPU) -> Space:
    return generate(func, target, {"w": "constant"} if any(b.name == "w" for b in func.buffers) else {})


def candidates(sketch: Sketch, count: int, **labels: str) -> list[list[int]]:
    """Random feasible candidates with these labels for some decisions."""
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(len(d), size=40_000) for d in sketch.decisions], axis=1)
    for number, item in enumerate(sketch.decisions):
        name = item.name.rsplit("/", 1)[-1].replace(":", "_")
        if name in labels:
            rows[:, number] = item.labels.index(labels[name])
    found: list[list[int]] = rows[sketch.mask(rows)][:count].tolist()
    assert len(found) == count
    return found


def stages(space: Space) -> list[str]:
    """Where the first sketch's inputs come from."""
    return [operand.source for operand in space.sketches[0].main.anchor.inputs]


def conditions(func: PrimFunc) -> dict[str, int]:
    """By block, the values that are chosen by a condition."""
    calls = {b.name: [n for n in walk(b.body) if isinstance(n, Call)] for b in leaf_blocks(func.body)}
    return {name: sum(c.name == "if_then_else" for c in found) for name, found in calls.items()}


def test_a_border_in_a_reduction_gives_the_space_of_a_padded_stage() -> None:
    """A program that tests its border where it reads has the very sketches and decisions of one with a padded copy."""
    spaces = [space_of(conv()), space_of(func_of(PADDED))]
    contents = [
        [(s.name, [(d.name, d.kind, d.labels) for d in s.decisions]) for s in space.sketches] for space in spaces
    ]
    assert contents[0] == contents[1]


MOVED = {
    "a border on both sides": conv(),
    "a wider border": conv(low=4, out=26),
    "a stride": conv(at="vi * 2 + vk", out=11),
    "a dilation": conv(at="vi + vk * 2", low=2),
    "no border on the left": conv(low=0),
    "a border of ones": conv(outside="1"),
    "a product in the condition": conv(AROUND),
    "a pool": func_of(POOL),
}


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", MOVED)
def test_the_halo_lies_in_padding(name: str, target: Target) -> None:
    """With the stage stored, the reduction reads it without a condition, and any candidate keeps the results."""
    func = MOVED[name]
    for sketch in space_of(func, target).sketches[:2]:
        number = next(o.name for o in sketch.main.anchor.inputs if o.source == "stage")
        for choice in candidates(sketch, 2, **{f"place_{number}": "root"}):
            scheduled = sketch.schedule(choice).func
            found = conditions(scheduled)
            assert all(not count for block, count in found.items() if block.startswith(("conv", "pool")))
            assert sum(found.values()) >= 1, "the stage has the condition"
            verify(scheduled)
            same_results(func, scheduled)


def test_the_halo_can_be_a_condition_again() -> None:
    """Inlined, the stage is the program as it was written: the choice between branch and padding is a decision."""
    func = conv()
    (sketch, *_) = space_of(func).sketches
    for choice in candidates(sketch, 2, place_i0="inline", layout_i0="identity"):
        scheduled = sketch.schedule(choice).func
        assert conditions(scheduled)["conv"] == 1
        same_results(func, scheduled)


KEPT = {
    "a condition that is no border": conv(
        "T.if_then_else(vi < 10, x[vc, vi + vk], T.float32(0)) * w[vo, vc, vk]", out=18
    ),
    "a condition on another iterator": conv(
        "T.if_then_else(1 <= vi + vk and vi + vk < 21 and vo < 3, x[vc, vi + vk - 1], T.float32(0)) * w[vo, vc, vk]"
    ),
    "two reads of one buffer": conv(READ + " * x[vc, vi]"),
    "another value outside": conv(
        "T.if_then_else(1 <= vi + vk and vi + vk < 21, x[vc, vi + vk - 1], w[vo, vc, 0]) * w[vo, vc, vk]"
    ),
    "an index that folds": conv(
        "T.if_then_else((vi + vk) % 7 < 5 and vi < 15, x[vc, (vi + vk) % 7 * 4], T.float32(0)) * w[vo, vc, vk]"
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_halo_stays(name: str) -> None:
    """Other conditions stay where they are, and candidates keep the results."""
    func = KEPT[name]
    space = space_of(func)
    assert "stage" not in stages(space)
    for choice in candidates(space.sketches[0], 2):
        same_results(func, space.sketches[0].schedule(choice).func)


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "depthwise_conv2d"])
def test_halos_of_the_library_lie_in_padding(name: str) -> None:
    """The library's windows read ``x[h - 1]`` as element h of a padded stage, which the reduction reads plainly."""
    func = workload(name, h=8, w=9).func
    found = conditions(func)
    pad, window = found
    assert found[pad] == 1 and found[window] == 0
    operand = next(o for o in space_of(func).sketches[0].main.anchor.inputs if o.source == "stage")
    assert operand.producer == pad and min(operand.offsets) == 0


def test_what_an_inlined_border_reads_is_seen_along_the_axes_of_its_reader() -> None:
    """``x[i + k - 1, a, b]`` for ``p[2 a + b, i + k]``: the quotient and the remainder of the channel are axes."""
    (anchor,) = anchors(parse(TURNED), {})
    stage = next(operand for operand in anchor.inputs if operand.source == "stage")
    assert stage.inlined is not None and stage.inlined.buffer.name == "x"
    axes = {axis.var: number for number, axis in enumerate(anchor.axes)}
    assert stage.inlined.dims == (((axes["vi"], 1), (axes["vk"], 1)), ((axes["va"], 1),), ((axes["vb"], 1),))
    assert stage.inlined.offsets == (-1, 0, 0)
    (plain,) = anchors(parse(PADDED), {})
    assert [operand.inlined is None for operand in plain.inputs] == [o.source != "stage" for o in plain.inputs]
