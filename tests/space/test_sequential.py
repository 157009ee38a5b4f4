"""sequential_buffer_access: loops over the physical indices of a buffer, recorded as the steps that lead there."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from goldens.execute import same_results
from scale import scaled

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

COPY = """
@T.prim_func
def main(x: T.Buffer((14, 10), "int32"), y: T.Buffer((14, 10), "int32")):
    for i, j in T.grid(14, 10):
        y[i, j] = x[i, j] + i
"""

BLOCKS = """
@T.prim_func
def main(a: T.Buffer((7, 9), "float32"), b: T.Buffer((9, 5), "float32"), c: T.Buffer((7, 5), "float32")):
    for i, j, k in T.grid(7, 5, 9):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""

CONV2D = """
@T.prim_func
def main(x: T.Buffer((6, 7), "int32"), w: T.Buffer((3, 2), "int32"), y: T.Buffer((4, 6), "int32")):
    for h, v in T.grid(4, 6):
        y[h, v] = 0
        for r, s in T.grid(3, 2):
            y[h, v] = y[h, v] + w[r, s] * x[h + r, v + s]
"""


def schedule(text: str) -> Schedule:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return Schedule(func)


def same(sch: Schedule, text: str) -> None:
    """Valid, in bounds, equal under both poisons, and the trace of primitives replays."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    verify(sch.func)
    check_in_bounds(sch.func)
    same_results(original, sch.func)
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func


def steps(sch: Schedule) -> list[str]:
    """The recorded instructions after the layouts."""
    return [i.name for i in sch.trace.instructions if i.name != "transform_layout"]


@pytest.mark.parametrize(
    ("index_map", "wanted"),
    [
        ("lambda i, j: [i // 4, i % 4, j]", ["split"]),
        ("lambda i, j: [j, i]", ["reorder"]),
        ("lambda i, j: [j // 4, i, j % 4]", ["split", "reorder"]),
        ("lambda i, j: [i // 4, j // 4, i % 4, j % 4]", ["split", "split", "reorder"]),
        ("lambda i, j: [(i * 10 + j) // 16, (i * 10 + j) % 16]", ["fuse", "split"]),
        ("lambda i, j: [(i + 2) // 8, (i + 2) % 8, j]", ["transform_loops"]),
        ("lambda i, j: [i + j, j]", ["transform_loops"]),
        ("lambda i, j: [13 - i, j]", ["transform_loops"]),
    ],
)
def test_the_steps_are_recorded(index_map: str, wanted: list[str]) -> None:
    """Fuse, split and reorder where they do it, a map of loops where they do not."""
    sch = schedule(COPY)
    sch.transform_layout("root", "y", index_map)
    loops = sch.sequential_buffer_access("root", "y")
    assert steps(sch) == wanted
    assert f"y[{', '.join(loops)}] =" in sch.func.script()
    same(sch, COPY)


def test_a_nest_that_is_sequential_stays() -> None:
    """Nothing is recorded where nothing is to be done."""
    sch = schedule(COPY)
    assert sch.sequential_buffer_access("root", "y") == []
    assert steps(sch) == []


@pytest.mark.parametrize("pad", [None, 0, "undef"])
def test_transform_layout_can_rewrite_bare_loops_at_once(pad: object) -> None:
    """`rewrite_loops` gives what the layout and the wrapper give, and the loops; the padding follows."""
    index_map = "lambda i, j: [i // 4, j, i % 4]"
    sch = schedule(COPY)
    loops = sch.transform_layout("root", "y", index_map, pad, rewrite_loops=True)
    assert [i.name for i in sch.trace.instructions] == ["transform_layout"]
    same(sch, COPY)
    stepwise = schedule(COPY)
    stepwise.transform_layout("root", "y", index_map, pad)
    assert tuple(stepwise.sequential_buffer_access("root", "y")) == tuple(loops)
    assert stepwise.func == sch.func


def test_one_nest_of_several() -> None:
    """`loop` restricts the rewrite to the nest that it leads."""
    text = COPY + "    for p, q in T.grid(14, 10):\n        y[p, q] = y[p, q] * 2\n"
    sch = schedule(text)
    sch.transform_layout("root", "y", "lambda i, j: [i // 4, j, i % 4]")
    sch.sequential_buffer_access("root", "y", loop="p")
    assert "y[i // 4, j, i % 4] =" in sch.func.script()
    same(sch, text)
    sch.sequential_buffer_access("root", "y")
    assert "//" not in sch.func.script().split("def main")[1].split("\n", 2)[2]
    same(sch, text)


def test_blocks_with_iterators_keep_them() -> None:
    """The loops around a block change, and its bindings with them."""
    for buffer, index_map in (
        ("a", "lambda i, k: [k // 4, i, k % 4]"),
        ("b", "lambda k, j: [(k + 1) // 4, j, (k + 1) % 4]"),
        ("c", "lambda i, j: [j, i // 2, i % 2]"),
    ):
        sch = schedule(BLOCKS)
        sch.transform_layout("matmul", buffer, index_map)
        assert len(sch.sequential_buffer_access("matmul", buffer)) == 3
        same(sch, BLOCKS)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_an_input_of_a_convolution_in_two_dimensions(offset: int) -> None:
    """Both pairs of loops are replaced at once, the taps stay inside, and the initialisation is separated."""
    sch = schedule(CONV2D)
    index_map = f"lambda h, v: [(h + {offset}) // 4, v // 2, (h + {offset}) % 4, v % 2]"
    sch.transform_layout("root", "x", index_map, physical_shape=[3, 4, 4, 2])
    loops = sch.sequential_buffer_access("root", "x")
    assert steps(sch) == ["decompose_reduction", "transform_loops"]
    assert f"x[{', '.join(loops)}]" in sch.func.script()
    same(sch, CONV2D)


def test_the_output_of_a_convolution_keeps_its_initialisation_in_place() -> None:
    """Only an order that is not the dimensions' needs a perfect nest."""
    sch = schedule(CONV2D)
    sch.transform_layout("root", "y", "lambda h, v: [h // 3, h % 3, v // 4, v % 4]")
    sch.sequential_buffer_access("root", "y")
    assert steps(sch) == ["split", "split"]
    same(sch, CONV2D)


def test_statements_that_follow_are_distributed() -> None:
    """What comes after the reduction gets a nest of its own."""
    text = """
@T.prim_func
def main(a: T.Buffer((16,), "int32"), b: T.Buffer((14,), "int32"), c: T.Buffer((14,), "int32")):
    for i in range(14):
        b[i] = 0
        for f in range(3):
            b[i] = b[i] + a[i + f]
        c[i] = b[i] * 2
"""
    sch = schedule(text)
    sch.transform_layout("root", "a", "lambda i: [i // 4, i % 4]")
    sch.sequential_buffer_access("root", "a")
    assert steps(sch) == ["decompose_reduction", "distribute", "transform_loops"]
    same(sch, text)


def test_refusals_leave_the_schedule_alone() -> None:
    """A refused step undoes the steps before it, in the program and in the trace."""
    text = """
@T.prim_func
def main(a: T.Buffer((16,), "int32"), b: T.Buffer((15,), "int32")):
    b[0] = 0
    for i in range(14):
        b[i + 1] = b[i]
        for f in range(3):
            b[i + 1] = b[i + 1] + a[i + f]
"""
    sch = schedule(text)
    sch.transform_layout("root", "a", "lambda i: [i // 4, i % 4]")
    before, trace = sch.func, sch.trace
    with pytest.raises(ScheduleError, match=r"sequential_buffer_access\(.*decompose_reduction\(.*\(2\)"):
        sch.sequential_buffer_access("root", "a")
    assert sch.func is before
    assert sch.trace is trace


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("x[0, 0] = 1", r"\(1\) no loops of block `root` lead over `x`"),
        ("x[i, j] = 1\n        x[i + 1, j] = 2", r"\(2\) `x` is accessed at \[i, j\] and at \[i \+ 1, j\]"),
        ("x[i // 2, j // 5] = 1", r"\(3\) the indices \['i // 2'\] do not determine any of the loops \['i'\]"),
    ],
)
def test_what_cannot_be_sequential_is_refused(statement: str, sentence: str) -> None:
    """Conditions (1) to (3), each by its sentence."""
    text = f"""
@T.prim_func
def main(x: T.Buffer((15, 10), "int32")):
    for i, j in T.grid(14, 10):
        {statement}
"""
    with pytest.raises(ScheduleError, match=sentence):
        schedule(text).sequential_buffer_access("root", "x")


def test_it_is_a_method_and_no_instruction() -> None:
    """The wrapper is documented, listed and callable, but a trace never holds it."""
    sch = schedule(COPY)
    assert "sequential_buffer_access" in dir(sch)
    assert "physical indices" in sch.sequential_buffer_access.__doc__
    assert "sequential_buffer_access" not in PRIMITIVES
    with pytest.raises(ScheduleError, match="buffer"):
        sch.sequential_buffer_access("root")


# ------------------------------------------------------------ random layouts


PROGRAMS = [COPY, CONV2D, BLOCKS]


def random_map(rng: random.Random, rank: int) -> str:
    """A layout of blocks, offsets and permutations."""
    names = ["i", "j"][:rank]
    outer, inner = [], []
    for name in names:
        factor, offset = rng.choice([2, 3, 4]), rng.choice([0, 0, 1, 2])
        shifted = f"({name} + {offset})" if offset else name
        if rng.random() < 0.6:
            outer.append(f"{shifted} // {factor}")
            inner.append(f"{shifted} % {factor}")
        else:
            outer.append(shifted)
    parts = outer + inner
    if rng.random() < 0.4:
        rng.shuffle(parts)
    return f"lambda {', '.join(names)}: [{', '.join(parts)}]"


def test_random_layouts_and_buffers() -> None:
    """Whatever the layouts and pad values, the loops over a buffer compute the same."""
    outcomes: Counter[str] = Counter()
    for seed in range(scaled(60)):
        rng = random.Random(seed)
        text = rng.choice(PROGRAMS)
        sch = schedule(text)
        block = sch.get_blocks()[-1]
        try:
            buffers = [b.name for b in sch.func.buffers]
            for name in buffers:
                sch.transform_layout(block, name, random_map(rng, 2), rng.choice([None, 0, "undef"]))
            for name in rng.sample(buffers, 2):
                try:
                    sch.sequential_buffer_access(block, name)
                    outcomes["accepted"] += 1
                except ScheduleError as error:
                    outcomes[str(error).split("(")[0]] += 1
            same(sch, text)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}\n{text}\n{sch.trace.script()}\n{sch.func.script()}")
    assert outcomes["accepted"] >= 0.8 * outcomes.total(), outcomes


def never(extents: str) -> Schedule:
    """A nest without iterations, which would go over the elements of `y`."""
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer((4, 4), "int32"), y: T.Buffer((4, 4), "int32")):
    for i, j in T.grid({extents}):
        y[(i * 4 + j) // 4, (i * 4 + j) % 4] = x[i, j]
""")
    assert isinstance(func, PrimFunc)
    return Schedule(func)


def test_loops_without_iterations_are_rewritten_or_refused() -> None:
    """Where the extents fit the buffer nothing is written as before; a map of no point at all is refused in words."""
    sch = never("0, 4")
    sch.sequential_buffer_access("root", "y")
    verify(sch.func)
    y = np.ones((4, 4), "int32")
    interpret(sch.func, y, y.copy())
    with pytest.raises(ScheduleError, match="no instance of the loops runs"):
        never("4, 0").sequential_buffer_access("root", "y")


def test_a_buffer_of_an_unknown_extent_is_refused() -> None:
    """Where the loops over it have numbers all the same, there is no loop that runs over all of it."""
    sch = schedule("""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    T.assume(n <= 9)
    for io, ii in T.grid(3, 3):
        with T.block("C"):
            vi = T.axis.spatial(n, io * 3 + ii)
            T.where(io * 3 + ii < n)
            C[vi] = A[vi]
""")
    with pytest.raises(ScheduleError, match=r"\(4\) the extents of `A` are expressions"):
        sch.sequential_buffer_access("C", "A")
