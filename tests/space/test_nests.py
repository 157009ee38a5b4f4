"""Bare loops and opaque blocks are scheduled like blocks: every accepted change of loops computes the same."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from scale import scaled

from stridesmith.ir.expr import Const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, Iter, PrimFunc
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule, ScheduleError, Trace


def schedule(text: str) -> Schedule:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return Schedule(func)


def results(func: PrimFunc) -> list[np.ndarray]:
    """All arguments after a run on fixed integers."""
    rng = np.random.default_rng(11)
    arrays = [rng.integers(-9, 10, b.shape).astype(b.dtype) for b in func.buffers]
    interpret(func, *arrays)
    return arrays


def same(sch: Schedule, text: str) -> None:
    """The schedule's program is valid, computes what `text` does, and its trace replays."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    verify(sch.func)
    check_in_bounds(sch.func)
    for got, wanted in zip(results(sch.func), results(original), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=sch.func.script())
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func


CONV = """
@T.prim_func
def main(a: T.Buffer((10,), "int32"), f: T.Buffer((3,), "int32"), b: T.Buffer((8,), "int32")):
    with T.block("compute"):
        for i in range(8):
            b[i] = 0
            for k in range(3):
                b[i] = b[i] + f[k] * a[i + k]
"""

STENCIL = """
@T.prim_func
def main(x: T.Buffer((9, 9), "int32"), a: T.Buffer((9, 9), "int32")):
    for p, q in T.grid(9, 9):
        a[p, q] = x[p, q]
    for t in range(7):
        for i in range(7):
            a[t + 1, i + 1] = a[t, i + 1{shift}] + 1
"""


def test_bare_loops_split_and_fuse() -> None:
    """Splits that do not divide guard the body once, and fusing gives the loops back."""
    text = STENCIL.format(shift="")
    sch = schedule(text)
    outer, inner = sch.split("i", [None, 3])
    same(sch, text)
    assert sch.func.script().count("if ") == 1
    fused = schedule(text)
    fused.fuse("t", "i")
    same(fused, text)
    assert (outer, inner) == ("i_0", "i_1")


@pytest.mark.parametrize("shift", ["", " - 1"])
def test_reorder_of_bare_loops_follows_dependence(shift: str) -> None:
    """A value from above or from the upper left is ready in either order."""
    text = STENCIL.format(shift=shift)
    sch = schedule(text)
    sch.reorder("i", "t")
    same(sch, text)


def test_reorder_that_turns_a_dependence_round_is_refused_with_the_two_instances() -> None:
    """A value from the upper right is written in a later column of the row before."""
    with pytest.raises(ScheduleError, match=r"\(3\).*writes.*at t=0, i=1, and later.*reads.*at t=1, i=0"):
        schedule(STENCIL.format(shift=" + 1")).reorder("i", "t")


def test_a_reduction_in_bare_loops_may_be_reordered() -> None:
    """Updates of one element commute; with the initialisation separated the nest is perfect."""
    sch = schedule(CONV)
    with pytest.raises(ScheduleError, match="not in a perfect nest"):
        sch.reorder("k", "i")
    assert sch.decompose_reduction("compute", "i") == "init_compute"
    sch.reorder("k", "i")
    same(sch, CONV)


def test_reorder_takes_conditions_along() -> None:
    """A condition between two loops is tested inside both."""
    text = """
@T.prim_func
def main(a: T.Buffer((6, 5), "int32")):
    for i in range(6):
        if i < 4:
            for j in range(5):
                a[i, j] = i * j
"""
    sch = schedule(text)
    sch.reorder("j", "i")
    same(sch, text)


def test_reorder_of_a_triangle_is_refused() -> None:
    """Condition (2): an extent that depends on a loop cannot be known outside of it."""
    text = """
@T.prim_func
def main(a: T.Buffer((6, 6), "int32")):
    for i in range(6):
        for j in range(i + 1):
            a[i, j] = 1
"""
    with pytest.raises(ScheduleError, match=r"\(2\) the extent"):
        schedule(text).reorder("j", "i")


def test_conditions_that_may_fail_are_evaluated_where_they_were() -> None:
    """Moved inside, a division would be by 0 where another condition kept it from that."""
    text = """
@T.prim_func
def main(a: T.Buffer((4, 2), "int32"), n: T.int64):
    for i in range(4):
        if n > 0:
            for j in range(2):
                if (i + j) % n == 0:
                    for k in range(3):
                        a[i, j] = 1
"""
    with pytest.raises(ScheduleError, match=r"\(1\) loop k is not in a perfect nest with `i`"):
        schedule(text).reorder("i", "k")


def test_reorder_takes_extents_that_are_bound_between_the_loops_along() -> None:
    """Outside of its binding a name means nothing."""
    text = """
@T.prim_func
def main(a: T.Buffer((4, 3), "int32")):
    for i in range(4):
        m: T.int64 = T.int64(3)
        for j in range(m):
            a[i, j] = 1
"""
    sch = schedule(text)
    sch.reorder("j", "i")
    same(sch, text)


def test_reorder_does_not_make_a_concurrent_loop_meet_itself() -> None:
    """Columns are independent in one row, but not over all rows."""
    text = STENCIL.format(shift=" - 1")
    sch = schedule(text)
    sch.parallel("i")
    with pytest.raises(ScheduleError, match="two iterations of"):
        sch.reorder("i", "t")


def test_distribute_separates_what_is_independent() -> None:
    """Both parts keep the loops and conditions around them."""
    text = """
@T.prim_func
def main(a: T.Buffer((6,), "int32"), b: T.Buffer((6,), "int32")):
    for i in range(6):
        k = i
        if i > 1:
            a[k] = k
            b[k] = a[k] + 1
"""
    sch = schedule(text)
    assert sch.distribute("i", 1) == "i_rest"
    same(sch, text)


def test_distribute_refuses_a_value_that_comes_back() -> None:
    """Condition (2): the first statement needs what the second wrote an iteration before."""
    text = """
@T.prim_func
def main(a: T.Buffer((6,), "int32"), b: T.Buffer((7,), "int32")):
    b[0] = 0
    for i in range(6):
        a[i] = b[i]
        b[i + 1] = a[i] + 1
"""
    with pytest.raises(ScheduleError, match=r"\(2\).*writes `b\[i \+ 1\]` at i=0, and later.*reads `b\[i\]` at i=1"):
        schedule(text).distribute("i", 1)


@pytest.mark.parametrize("position", [0, 2, -1])
def test_distribute_needs_statements_on_both_sides(position: int) -> None:
    """Condition (1) counts the statements."""
    with pytest.raises(ScheduleError, match=r"\(1\) `position` must lie between 0 and the 2"):
        schedule(CONV).distribute("i", position)


def test_decompose_needs_something_before_an_update() -> None:
    """Condition (1) in bare loops."""
    text = STENCIL.format(shift="").replace("a[t + 1, i + 1] =", "a[t, i] = 1\n            a[t + 1, i + 1] =")
    with pytest.raises(ScheduleError, match="nothing that is stored before an update"):
        schedule(text).decompose_reduction("root", "t")


def test_decompose_stays_inside_a_block_with_other_statements() -> None:
    """Only a block that is all about the loop becomes two."""
    text = CONV + "        b[0] = b[0] + 1\n"
    sch = schedule(text)
    assert sch.decompose_reduction("compute", "i") == "i_init"
    same(sch, text)


def test_transform_loops_skews() -> None:
    """A wavefront: the instances of a stencil by their sum of indices."""
    text = STENCIL.format(shift="")
    sch = schedule(text)
    new = sch.transform_loops(["t", "i"], lambda t, i: [t + i, i])
    assert len(new) == 2
    same(sch, text)


@pytest.mark.parametrize(
    ("index_map", "extents", "sentence"),
    [
        ("lambda t, i: [t + i]", None, r"\(2\) the map is not injective"),
        ("lambda t, i: [t, i]", [7, 6], r"\(3\) the extents \[7, 6\] do not hold the image, which needs \[7, 7\]"),
        ("lambda t, i: [t - 1, i]", None, r"\(3\) the image begins at \[-1, 0\]"),
        ("lambda t, i: [i, 6 - t]", None, r"\(4\)"),
        ("lambda t, i: [t * i, i]", None, r"\(2\) the map is not affine"),
    ],
)
def test_transform_loops_refuses(index_map: str, extents: list[int] | None, sentence: str) -> None:
    """Conditions (2) to (4)."""
    with pytest.raises(ScheduleError, match=sentence):
        schedule(STENCIL.format(shift="")).transform_loops(["t", "i"], index_map, extents)


def test_transform_loops_names_the_nest() -> None:
    """Condition (1): all loops of the nest in order."""
    with pytest.raises(ScheduleError, match=r"\(1\) the nest has the loops \['t', 'i'\]"):
        schedule(STENCIL.format(shift="")).transform_loops(["i", "t"], "lambda i, t: [i, t]")


def test_transform_loops_of_a_block_moves_its_bindings() -> None:
    """A reduction in a block follows the new loops, and its init still comes first."""
    text = """
@T.prim_func
def main(a: T.Buffer((6, 5), "int32"), c: T.Buffer((6,), "int32")):
    for i, k in T.grid(6, 5):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = 0
            c[vi] = c[vi] + a[vi, vk]
"""
    sch = schedule(text)
    sch.transform_loops(["i", "k"], lambda i, k: [(i + k) // 4, (i + k) % 4, k])
    same(sch, text)
    with pytest.raises(ScheduleError, match=r"\(5\)"):
        schedule(text).transform_loops(["i", "k"], lambda i, k: [i, 4 - k])


def test_move_before_exchanges_independent_nests() -> None:
    """A nest passes those that touch none of its elements."""
    text = """
@T.prim_func
def main(a: T.Buffer((6,), "int32"), b: T.Buffer((6,), "int32")):
    for i in range(6):
        a[i] = 1
    for j in range(6):
        b[j] = {value}
"""
    sch = schedule(text.format(value="2"))
    sch.move_before("j", "i")
    same(sch, text.format(value="2"))
    assert sch.func.script().index("b[") < sch.func.script().index("a[i]")
    with pytest.raises(ScheduleError, match=r"\(2\).*writes `a\[i\]` at i=0"):
        schedule(text.format(value="a[j]")).move_before("j", "i")
    with pytest.raises(ScheduleError, match=r"\(1\) loop `i` does not stand after `j`"):
        schedule(text.format(value="2")).move_before("i", "j")


TRIANGLES = """
@T.prim_func
def main(a: T.Buffer((6, 6), "int32"), y: T.Buffer((6,), "int32")):
    for i in range(6):
        for j in range({extent}):
            with T.block("s"):
                vi = T.axis.spatial(6, i)
                vj = T.axis.reduce(6, j)
                with T.init():
                    y[vi] = 0
                y[vi] = y[vi] + a[vi, vj]
"""


@pytest.mark.parametrize("extent", ["i + 1", "6 - i", "6 - i // 2", "T.min(i + 3, 6)"])
def test_rows_of_several_lengths_become_those_of_a_box(extent: str) -> None:
    """What runs stays what it was, and the loops may be exchanged."""
    text = TRIANGLES.format(extent=extent)
    sch = schedule(text)
    sch.make_rectangular("j")
    same(sch, text)
    assert "for i, j in T.grid(6, 6)" in sch.func.script() and "T.where(" in sch.func.script()
    sch.reorder("j", "i")
    same(sch, text)
    before = sch.func
    sch.make_rectangular("i")
    assert sch.func == before


def test_bare_rows_of_several_lengths_get_a_condition() -> None:
    """Loops inside of loops, the outermost first, and what is no block."""
    text = """
@T.prim_func
def main(y: T.Buffer((6, 6, 6), "int32")):
    for i in range(6):
        for j in range(i + 1):
            for k in range(j + 1):
                y[i, j, k] = i * 36 + j * 6 + k
"""
    sch = schedule(text)
    with pytest.raises(ScheduleError, match=r"\(1\) the largest value of the extent .* of loop `k` is not known"):
        sch.make_rectangular("k")
    sch.make_rectangular("j")
    sch.make_rectangular("k")
    same(sch, text)
    assert all(isinstance(loop.extent, Const) for loop in walk(sch.func) if isinstance(loop, For))


def test_make_rectangular_refuses_lengths_that_nobody_knows() -> None:
    """As those that stand in memory."""
    text = "@T.prim_func\ndef main(n: T.Buffer((6,), 'int64'), y: T.Buffer((6, 9), 'int32')):\n    for i in range(6):\n"
    text += "        for j in range(T.min(n[i], 9)):\n            y[i, j] = 1\n"
    with pytest.raises(ScheduleError, match=r"\(1\) the largest value of the extent"):
        schedule(text).make_rectangular("j")


# ------------------------------------------------------------ random nests


def random_program(rng: random.Random) -> str:
    """A nest of bare loops of any type over one or two buffers, imperfect at times, with conditions and updates."""
    dtype = rng.choice(["int64", "int64", "int32", "int16", "int8", "uint8"])
    index = ["i", "j", "i + j", "i + 1", "j + 1", "i + 2 * j", "7 - i", "j // 2 + i"]
    a, b, c = (rng.choice(index) for _ in range(3))
    read = f"x[{b}, {rng.choice(index)}]" if rng.random() < 0.6 else f"y[{b}]"
    kind = rng.random()
    target = f"y[{a}]" if rng.random() < 0.6 else f"x[{a}, {c}]"
    i, j = (v if dtype == "int64" else f'T.Cast("int64", {v})' for v in "ij")
    value = f"{target} + {read}" if kind < 0.5 else f"{read} + {i}" if kind < 0.8 else f"{read} * 2 + {j}"
    inner = f"{target} = {value}"
    if rng.random() < 0.4:
        inner = f"if i {rng.choice(['<=', '>', '!='])} j:\n                " + inner
    lead = rng.choice(["", f"y[{rng.choice(['i', 'i + 1', '2 * i'])}] = {i}", "x[i, 0] = y[i]"])
    block = rng.random() < 0.5
    lines = [
        "@T.prim_func",
        'def main(u: T.Buffer((24, 24), "int64"), x: T.Buffer((24, 24), "int64"), y: T.Buffer((24,), "int64")):',
        "    for p, q in T.grid(24, 24):",
        "        x[p, q] = u[p, q]",
        "    for r in range(24):",
        "        y[r] = u[3, r]",
        *(['    with T.block("compute"):'] if block else []),
        f"    for i in range(T.{dtype}(6)):",
        *([f"        {lead}"] if lead else []),
        f"        for j in range(T.{dtype}(5)):",
        f"            {inner}",
    ]
    if not block:
        return "\n".join(lines) + "\n"
    head, body = lines[:7], lines[7:]
    return "\n".join([*head, *("    " + line.replace("\n", "\n    ") for line in body)]) + "\n"


def random_step(sch: Schedule, rng: random.Random) -> str:
    """Apply one rewrite of loops, or be refused; the name and the outcome."""
    block = sch.get_blocks()[-1]
    maps = ["i + j, j", "(i + j) // 4, (i + j) % 4, j", "j, i", "i // 2, j, i % 2", "i, 4 - j", "j + 2, i + j"]
    steps = {
        "reorder": lambda: sch.reorder("j", "i"),
        "distribute": lambda: sch.distribute("i", 1),
        "decompose_reduction": lambda: sch.decompose_reduction(block, "i"),
        "transform_loops": lambda: sch.transform_loops(["i", "j"], f"lambda i, j: [{rng.choice(maps)}]"),
        "split": lambda: sch.split(rng.choice("ij"), [None, rng.choice([2, 3, 4])]),
        "fuse": lambda: sch.fuse("i", "j"),
    }
    name = rng.choice(list(steps))
    try:
        steps[name]()
    except ScheduleError:
        return f"{name} refused"
    return f"{name} accepted"


def test_random_nests_keep_their_meaning() -> None:
    """Whatever is accepted computes the same, and each rewrite is accepted and refused."""
    outcomes: Counter[str] = Counter()
    for seed in range(scaled(250)):
        rng = random.Random(seed)
        text = random_program(rng)
        sch = schedule(text)
        try:
            for _ in range(rng.choice([1, 1, 2, 3])):
                outcomes[random_step(sch, rng)] += 1
                verify(sch.func)
            same(sch, text)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}\n{text}\n{sch.trace.script()}\n{sch.func.script()}")
    for name in ("reorder", "distribute", "decompose_reduction", "transform_loops", "fuse"):
        assert outcomes[f"{name} accepted"] >= scaled(3), outcomes
        assert outcomes[f"{name} refused"] >= scaled(3), outcomes


# ------------------------------------------------------------ loops of narrow types

MATMUL = """
@T.prim_func
def main(a: T.Buffer((64, 96), "float32"), b: T.Buffer((96, 80), "float32"), c: T.Buffer((64, 80), "float32")):
    for i, j, k in T.grid(T.{dtype}(64), T.{dtype}(80), T.{dtype}(96)):
        with T.block("product"):
            vi = T.axis.spatial(T.{dtype}(64), i)
            vj = T.axis.spatial(T.{dtype}(80), j)
            vk = T.axis.reduce(T.{dtype}(96), k)
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""

WRAPPING = """
@T.prim_func
def main(y: T.Buffer((100,), "float32"), z: T.Buffer((100,), "int32"), n: T.int32):
    for i in range(T.int32(100)):
        with T.block("wraps"):
            vi = T.axis.spatial(T.int32(100), i)
            y[vi] = T.Cast("float32", vi * T.int32(100000000))
    for j in range(T.int32(100)):
        if j < n and j * T.int32(100000000) > T.int32(0):
            z[(j * T.int32(100000000)) % T.int32(100)] = j + n
        else:
            z[j] = T.Select(j + T.int32(2147483600) < T.int32(0), j, -j)
"""


def narrow(func: PrimFunc) -> list[str]:
    return [n.var.name for n in walk(func.body) if isinstance(n, (For, Iter)) and n.var.dtype != "int64"]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_the_program_becomes_that_of_64_bits(dtype: str) -> None:
    """Loops, iterators and indices, without a cast that is left; and then there is nothing more to do."""
    text = MATMUL.format(dtype=dtype)
    sch = schedule(text)
    assert narrow(sch.func)
    sch.widen_loops()
    assert sch.func == schedule(MATMUL.format(dtype="int64")).func
    sch.widen_loops()
    assert sch.func == schedule(MATMUL.format(dtype="int64")).func


def test_what_wraps_around_stays_narrow() -> None:
    """Values, comparisons and indices whose operations overflow have the results of their type."""
    sch = schedule(WRAPPING)
    sch.widen_loops()
    assert not narrow(sch.func)
    for n in (0, 7, 2**31 - 1, -(2**31)):
        found, wanted = (
            [np.zeros(100, np.float32), np.arange(100, dtype=np.int32)] for _ in range(2)
        )  # fmt: skip
        interpret(sch.func, *found, n)
        wrapping = parse(WRAPPING)
        assert isinstance(wrapping, PrimFunc)
        interpret(wrapping, *wanted, n)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_random_programs_of_all_types_stay_the_same() -> None:
    """Bare loops and blocks, conditions, updates, and what comes after them."""
    seen = 0
    for seed in range(scaled(150)):
        text = random_program(random.Random(seed))
        sch = schedule(text)
        seen += bool(narrow(sch.func))
        sch.widen_loops()
        assert not narrow(sch.func)
        same(sch, text)
    assert seen > scaled(150) // 4


def test_the_design_space_is_that_of_64_bits() -> None:
    """As many sketches, with the same decisions."""
    target = Target(vector_bits=512, registers=32)
    spaces = [
        generate(schedule(MATMUL.format(dtype=dtype)).func, target) for dtype in ("int64", "int32")
    ]  # fmt: skip
    wide, found = ([[(d.name, d.labels) for d in s.decisions] for s in space.sketches] for space in spaces)
    assert found == wide and any(len(decisions) > 5 for decisions in found)
