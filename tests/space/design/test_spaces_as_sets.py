"""Design spaces as sets: every sketch and alternative that is expected is there, and none besides.

What is expected follows from the anchors described here by the rules of `expected_space.TABLE`.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from expected_space import CPU, DOTS, OPENCL, SUBGROUPS, Anchor, Input, expected

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.decision import KINDS
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import workload

TWO_STAGES = """
@T.prim_func
def main(a: T.Buffer((9, 20), "float32"), b: T.Buffer((20, 24), "float32"), bias: T.Buffer((24,), "float32"),
         y: T.Buffer((9,), "float32")):
    c = T.alloc_buffer((9, 24), "float32")
    d = T.alloc_buffer((9, 24), "float32")
    for i, j, k in T.grid(9, 24, 20):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(9, 24):
        with T.block("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            d[vi, vj] = T.max(c[vi, vj] + bias[vj], T.float32(0))
    for i, j in T.grid(9, 24):
        with T.block("total"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + d[vi, vj]
"""


def func_of(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


PRODUCT = {"i0": Input("fixed", "r0, s1"), "i1": Input("fixed", "s0, r0")}

PROGRAMS: dict[str, tuple[PrimFunc, dict[str, Anchor]]] = {
    "conv2d": (
        workload("conv2d", ci=5, h=8, w=9, co=20, k=3).func,
        {"b0": Anchor(
            {"s1": 20, "s2": 8, "s3": 9}, {"r0": 5, "r1": 3, "r2": 3},
            {
                "i0": Input("constant", "s1, r0, r1, r2"),
                "i1": Input("padded", "s0, r0, s2 + r1, s3 + r2"),
            }, "0",
        )},
    ),
    "dilated conv2d": (
        workload("conv2d", ci=5, h=9, w=10, co=20, k=3, pad=6, dilation=6).func,
        {"b0": Anchor(
            {"s1": 20, "s2": 9, "s3": 10}, {"r0": 5, "r1": 3, "r2": 3},
            {
                "i0": Input("padded", "s0, r0, s2 + r1*6, s3 + r2*6", padding=("s2", "s3")),
                "i1": Input("constant", "s1, r0, r1, r2"),
            }, "0",
        )},
    ),
    "matmul": (
        workload("matmul", m=13, n=19, k=11).func,
        {"b0": Anchor({"s0": 13, "s1": 19}, {"r0": 11}, PRODUCT, "0")},
    ),
    "vector times matrix": (
        workload("matmul", m=1, n=200, k=80).func,
        {"b0": Anchor({"s1": 200}, {"r0": 80}, PRODUCT, "0")},
    ),
    "rows times rows": (
        workload("matmul", m=13, n=19, k=40, transpose_b=1).func,
        {"b0": Anchor(
            {"s0": 13, "s1": 19}, {"r0": 40}, {"i0": Input("fixed", "s1, r0"), "i1": Input("fixed", "s0, r0")}, "0",
        )},
    ),
    "max_pool2d": (
        workload("max_pool2d", c=12, h=9, w=33).func,
        {"b0": Anchor(
            {"s1": 12, "s2": 5, "s3": 17}, {"r0": 3, "r1": 3},
            {"i0": Input("padded", "s0, s1, s2*2 + r0, s3*2 + r1")}, "-inf",
        )},
    ),
    "softmax": (
        workload("softmax", rows=64, cols=40).func,
        {
            "b0": Anchor({"s0": 64}, {"r0": 40}, {"i0": Input("fixed", "s0, r0")}, "-inf"),
            "b1": Anchor({"s0": 64, "s1": 40}, {}, {"i0": Input("fixed", "s0, s1"), "i1": Input("between", "s0")}),
            "b2": Anchor({"s0": 64}, {"r0": 40}, {"i0": Input("between", "s0, r0")}, "0"),
            "b3": Anchor({"s0": 64, "s1": 40}, {}, {"i0": Input("between", "s0, s1"), "i1": Input("between", "s0")}),
        },
    ),
    "row_sum": (
        workload("row_sum", rows=5, cols=37).func,
        {"b0": Anchor({"s0": 5}, {"r0": 37}, {"i0": Input("fixed", "s0, r0")}, "0")},
    ),
    "two stages": (
        func_of(TWO_STAGES),
        {
            "b0": Anchor({"s0": 9, "s1": 24}, {"r0": 20}, PRODUCT, "0", epilogue=True),
            "b1": Anchor({"s0": 9}, {"r0": 24}, {"i0": Input("between", "s0, r0")}, "0"),
        },
    ),
}  # fmt: skip

ALONG_ROWS = ("rows times rows", "softmax", "row_sum", "two stages")
"""Programs with long reductions whose steps are neighbours in all that they read."""

BYTES: dict[str, tuple[PrimFunc, dict[str, Anchor]]] = {
    "matmul": (
        workload("matmul", m=13, n=19, k=150, dtype="int8").func,
        {"b0": Anchor(
            {"s0": 13, "s1": 19}, {"r0": 150}, {"i0": Input("fixed", "r0, s1"), "i1": Input("fixed", "s0, r0")}, "0",
            bytes=True,
        )},
    ),
    "rows times rows": (
        workload("matmul", m=13, n=19, k=40, transpose_b=1, dtype="int8").func,
        {"b0": Anchor(
            {"s0": 13, "s1": 19}, {"r0": 40}, {"i0": Input("fixed", "s1, r0"), "i1": Input("fixed", "s0, r0")}, "0",
            bytes=True,
        )},
    ),
    "conv2d": (
        workload("conv2d", ci=7, h=8, w=9, co=20, k=3, dtype="int8").func,
        {"b0": Anchor(
            {"s1": 20, "s2": 8, "s3": 9}, {"r0": 7, "r1": 3, "r2": 3},
            {
                "i0": Input("constant", "s1, r0, r1, r2"),
                "i1": Input("padded", "s0, r0, s2 + r1, s3 + r2"),
            }, "0", bytes=True,
        )},
    ),
    "few channels": (
        workload("conv2d", ci=2, h=8, w=9, co=20, k=3, dtype="int8").func,
        {"b0": Anchor(
            {"s1": 20, "s2": 8, "s3": 9}, {"r0": 2, "r1": 3, "r2": 3},
            {
                "i0": Input("constant", "s1, r0, r1, r2"),
                "i1": Input("padded", "s0, r0, s2 + r1, s3 + r2"),
            }, "0", bytes=True,
        )},
    ),
    "channels of colours": (
        workload("conv2d", ci=3, h=8, w=9, co=20, k=3, dtype="int8").func,
        {"b0": Anchor(
            {"s1": 20, "s2": 8, "s3": 9}, {"r0": 3, "r1": 3, "r2": 3},
            {
                "i0": Input("constant", "s1, r0, r1, r2"),
                "i1": Input("padded", "s0, r0, s2 + r1, s3 + r2"),
            }, "0", bytes=True,
        )},
    ),
}  # fmt: skip
"""Sums of products of int8 in int32."""

CONSTANTS = {"conv2d": ("w",), "dilated conv2d": ("w",)}


def space_of(name: str, target: Target) -> Space:
    return generate(PROGRAMS[name][0], target, dict.fromkeys(CONSTANTS.get(name, ()), "constant"))


def contents(space: Space) -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """By sketch: each decision's kind and labels under its name."""
    return {s.name: {d.name: (d.kind, d.labels) for d in s.decisions} for s in space.sketches}


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_space_is_the_expected_set(name: str, target: Target) -> None:
    """Sketches, decisions and alternatives are those that the rules of `expected_space.TABLE` give, and no others."""
    wanted, found = expected(PROGRAMS[name][1], target), contents(space_of(name, target))
    assert set(found) == set(wanted)
    for sketch, decisions in wanted.items():
        told = "see TABLE in tests/expected_space.py"
        assert found[sketch].keys() - decisions.keys() == set(), f"not in the table: {told}"
        assert decisions.keys() - found[sketch].keys() == set(), f"not in the space: {told}"
        assert found[sketch] == decisions, told


@pytest.mark.parametrize("target", [OPENCL, DOTS], ids=["without", "with"])
@pytest.mark.parametrize("name", BYTES)
def test_dot_products_are_where_bytes_and_the_device_offer_them(name: str, target: Target) -> None:
    """Sketches with dot products, and the layouts that they ask for, are those of the table, and no others."""
    func, anchors = BYTES[name]
    space = generate(func, target, dict.fromkeys(CONSTANTS.get(name, ("w",)), "constant"))
    wanted, found = expected(anchors, target), contents(space)
    assert found == wanted
    assert any(",dot=" in sketch for sketch in found) == (target is DOTS and name != "few channels")


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_reductions_are_in_subgroups_where_the_device_has_them(name: str) -> None:
    """Sketches with subgroups, and the sizes and tiles that go with them, are those of the table, and no others."""
    found = contents(space_of(name, SUBGROUPS))
    assert found == expected(PROGRAMS[name][1], SUBGROUPS)
    assert any(",subgroup" in sketch for sketch in found) == (name in ALONG_ROWS)


def test_every_kind_is_expected_somewhere() -> None:
    """The programs here have decisions of every kind, but for those of users' own rules."""
    kinds = {kind for name in PROGRAMS for s in expected(PROGRAMS[name][1], OPENCL).values() for kind, _ in s.values()}
    assert kinds == set(KINDS) - {"choice"}


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_mask_says_which_rule_excludes_a_candidate(name: str, target: Target) -> None:
    """A candidate is masked if and only if some rule excludes it, and every sketch has candidates that none does."""
    rng = np.random.default_rng(0)
    for sketch in space_of(name, target).sketches[-2:]:
        rows = np.stack([rng.integers(len(d), size=50_000) for d in sketch.decisions], axis=1)
        excluded = np.zeros(len(rows), dtype=bool)
        for rows_of_rule in sketch.exclusions(rows).values():
            excluded |= rows_of_rule
        np.testing.assert_array_equal(sketch.mask(rows), ~excluded)
        found = sketch.draw(rng, 4)
        assert len(found) and sketch.mask(found).all()


LOOPS = re.compile(r"( *)for (?P<vars>[\w, ]+) in T.grid\((?P<extents>[\d, ]+)\):")


def permuted(text: str, rng: np.random.Generator) -> str:
    """The program with the loops of every nest in another order, their blocks' iterators bound as before."""

    def shuffle(match: re.Match[str]) -> str:
        pairs = list(zip(match["vars"].split(", "), match["extents"].split(", "), strict=True))
        order = [pairs[k] for k in rng.permutation(len(pairs))]
        names, extents = ", ".join(v for v, _ in order), ", ".join(e for _, e in order)
        return f"{match[1]}for {names} in T.grid({extents}):"

    return LOOPS.sub(shuffle, text)


def renamed(text: str) -> str:
    """The program with another name for every block, buffer and variable."""
    kept = {"T", "def", "for", "in", "with", "max", "float32", "if", "or", "and", "from", "import", "True", "False"}
    kept |= {"stridesmith", "prim_func", "Buffer", "alloc_buffer", "grid", "block", "axis", "remap", "init"}
    kept |= {"if_then_else", "exp", "inf", "SR", "SS", "SSR", "SSSS", "SSSSRR", "SSSSRRR"}
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: m[0] if m[0] in kept else f"z_{m[0][::-1]}", text)


def anonymous(space: Space) -> list[tuple[str, list[tuple[str, str, tuple[str, ...]]]]]:
    return [(s.name, [(d.name, d.kind, d.labels) for d in s.decisions]) for s in space.sketches]


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_and_the_order_of_loops_do_not_matter(name: str) -> None:
    """A program with other names and permuted loops has the same sketches and decisions in the same order."""
    func, _ = PROGRAMS[name]
    text = func.script()
    plain = anonymous(generate(func, CPU, dict.fromkeys(CONSTANTS.get(name, ()), "constant")))
    other = renamed(permuted(text, np.random.default_rng(4)))
    assert other != text and "product" not in other and "conv" not in other
    again = func_of(other)
    weights = {f"z_{constant}": "constant" for constant in CONSTANTS.get(name, ())}
    assert anonymous(generate(again, CPU, weights)) == plain


def test_the_order_of_factors_and_arguments_does_not_matter() -> None:
    """``b * a`` for ``a * b``, and parameters in another order, leave the space as it is."""
    func, _ = PROGRAMS["two stages"]
    text = TWO_STAGES.replace("a[vi, vk] * b[vk, vj]", "b[vk, vj] * a[vi, vk]").replace(
        'a: T.Buffer((9, 20), "float32"), b: T.Buffer((20, 24), "float32")',
        'b: T.Buffer((20, 24), "float32"), a: T.Buffer((9, 20), "float32")',
    )
    assert text.index("b: T.Buffer") < text.index("a: T.Buffer")
    assert anonymous(generate(func_of(text), CPU)) == anonymous(generate(func, CPU))


def test_interfaces_change_what_may_be_laid_out() -> None:
    """A fixed argument is copied, a constant or free one is laid out itself and has no place of its own."""
    func = PROGRAMS["matmul"][0]
    fixed = contents(generate(func, CPU, {}))["vec=s1,row=s0"]
    free = contents(generate(func, CPU, {"b": "free", "a": "constant"}))["vec=s1,row=s0"]
    start = "vec=s1,row=s0/b0"
    assert fixed[f"{start}/layout:i0"][1] == ("identity", "copy", "tiled:d1", "last:d0")
    assert free[f"{start}/layout:i0"][1] == ("identity", "tiled:d1", "last:d0")
    assert fixed.keys() - free.keys() == {f"{start}/place:i0", f"{start}/place:i1"}
