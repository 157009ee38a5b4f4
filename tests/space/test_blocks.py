"""Blocks around loops, intrinsics in their place, spaced rows, notes: equal results, and refusals by their sentence."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace
from stridesmith.space.tensor_intrinsics import TensorIntrin
from stridesmith.space.tree import find_block
from stridesmith.space.workloads import workload

MATMUL = """
@T.prim_func
def main(a: T.Buffer((12, 16), "float32"), b: T.Buffer((16, 24), "float32"), c: T.Buffer((12, 24), "float32")):
    for i, j, k in T.grid(12, 24, 16):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""

CHAIN = """
@T.prim_func
def main(x: T.Buffer((6, 10), "float32"), y: T.Buffer((6, 10), "float32"), z: T.Buffer((6, 10), "float32")):
    t = T.alloc_buffer((6, 10), "float32")
    for i, j in T.grid(6, 10):
        with T.block("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj] * T.float32(2)
    for i, j in T.grid(6, 10):
        with T.block("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = t[vi, vj] + T.float32(1)
    for i, j in T.grid(6, 10):
        with T.block("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = t[vi, vj] - T.float32(1)
"""


def func_of(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def schedule(text: str = MATMUL) -> Schedule:
    return Schedule(func_of(text))


def run(func: PrimFunc) -> list[np.ndarray]:
    """Every parameter after interpreting `func` on fixed integers; outputs start as NaN."""
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-4, 5, b.shape).astype(b.dtype) for b in func.buffers]
    for buffer, array in zip(func.buffers, arrays, strict=True):
        if buffer.name in ("c", "y", "z"):
            array[...] = np.nan if array.dtype.kind == "f" else -1
    interpret(func, *arrays)
    return arrays


def same(sch: Schedule, original: PrimFunc) -> None:
    """The schedule computes what the program did; its trace replays and its program reads back."""
    verify(sch.func)
    for got, expected in zip(run(sch.func), run(original), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func
    assert Trace.from_script(sch.trace.script()) == sch.trace
    assert parse(sch.func.script()) == sch.func


# ------------------------------------------------------------ queries


def test_questions_about_blocks_are_answered_by_name() -> None:
    """Children, producers, consumers and output blocks, in program order."""
    sch = schedule(CHAIN)
    assert sch.get_child_blocks("root") == ["twice", "first", "second"]
    assert sch.get_child_blocks("i") == ["twice"]
    assert sch.get_consumers("twice") == ["first", "second"]
    assert sch.get_producers("second") == ["twice"]
    assert sch.get_producers("twice") == sch.get_consumers("first") == []
    assert sch.get_output_blocks("root") == ["first", "second"]
    assert sch.get_block("first") == sch.get_sblock("first") == "first"
    assert sch.get("first").name == "first" and sch.get("i").var.name == "i"


def test_questions_about_what_is_not_there_say_what_is() -> None:
    """An unknown name is answered with those that there are."""
    with pytest.raises(ScheduleError, match="no block or loop `q`; there are root, i, j, twice"):
        schedule(CHAIN).get_child_blocks("q")
    with pytest.raises(ScheduleError, match="there is no block `q`"):
        schedule(CHAIN).get_consumers("q")


# ------------------------------------------------------------ blockize, unit loops


@pytest.mark.parametrize("at", [0, 1, 2])
def test_blockize_keeps_meaning_wherever_the_reduction_is(at: int) -> None:
    """With the reduction inside, outside or split, the blockized program computes the same."""
    sch = schedule()
    i0, i1 = sch.split("i", [None, 4])
    j0, j1 = sch.split("j", [None, 8])
    k0, k1 = sch.split("k", [None, 4])
    sch.reorder(*[[i0, j0, k0, i1, j1, k1], [i0, i1, j0, j1, k0, k1], [i0, k0, j0, i1, j1, k1]][at])
    target = sch.get_loops("matmul")[3]
    assert sch.blockize(target) == "matmul_o"
    assert sch.get_loops("matmul_o") == ([i0, j0, k0], [i0, i1, j0], [i0, k0, j0])[at]
    assert sch.get_child_blocks("matmul_o") == ["matmul"]
    same(sch, func_of(MATMUL))


def test_blockize_keeps_a_ragged_edge() -> None:
    """Conditions over loops outside go to the outer block, the others stay inside."""
    sch = schedule()
    _, i1 = sch.split("i", [None, 5])
    _, j1 = sch.split("j", [None, 7])
    sch.reorder("i_0", "k", i1, "j_0", j1)
    sch.decompose_reduction("matmul", "k")
    sch.blockize("j_0")
    assert sch.get("matmul_o").predicate != sch.get("matmul").predicate
    same(sch, func_of(MATMUL))


def test_the_init_of_a_blockized_reduction_can_be_decomposed() -> None:
    """An outer reduction takes the init along, so that it is decomposed like any other."""
    sch = schedule()
    k0, k1 = sch.split("k", [None, 4])
    sch.reorder("i", k0, "j", k1)
    outer = sch.blockize("j")
    assert sch.decompose_reduction(outer, k0) == "matmul_o_init"
    same(sch, func_of(MATMUL))


def test_blockize_refuses_what_is_not_one_block() -> None:
    """Condition (1): below the loop is a perfect nest around one block."""
    sch = schedule()
    sch.split("i", [None, 4])
    sch.decompose_reduction("matmul", "i_1")
    with pytest.raises(ScheduleError, match=r"\(1\) below `i_0` there is more than loops around one block"):
        sch.blockize("i_0")


def test_blockize_refuses_a_loop_of_two_kinds() -> None:
    """Condition (2): a loop outside is spatial or part of the reduction, not both."""
    text = """
@T.prim_func
def main(a: T.Buffer((4, 4), "float32"), c: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 4):
        with T.block("sum"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(4, (i + k) % 4)
            c[vi] = c[vi] + a[vi, vk]
"""
    with pytest.raises(ScheduleError, match=r"\(2\) loop `i` outside is used by reduce and spatial iterators"):
        schedule(text).blockize("k")


def test_blockize_refuses_to_move_an_init_of_a_ragged_reduction() -> None:
    """Condition (3): the moved init does not depend on where the reduction stops."""
    sch = schedule()
    k0, k1 = sch.split("k", [None, 5])
    sch.reorder("i", k0, "j", k1)
    with pytest.raises(ScheduleError, match=r"\(3\) a condition of `matmul` is over its reduction; use decompose"):
        sch.blockize("j")


def test_blockize_refuses_to_move_an_init_of_points_that_are_met_twice() -> None:
    """Condition (3): every spatial point belongs to one iteration."""
    text = """
@T.prim_func
def main(a: T.Buffer((5, 8), "float32"), c: T.Buffer((5,), "float32")):
    for i, k0, j, k1 in T.grid(3, 4, 3, 2):
        with T.block("sum"):
            vi = T.axis.spatial(5, i + j)
            vk = T.axis.reduce(8, k0 * 2 + k1)
            with T.init():
                c[vi] = T.float32(0)
            c[vi] = c[vi] + a[vi, vk]
"""
    with pytest.raises(ScheduleError, match=r"\(3\) the point `vi` of `sum` may be met by several iterations"):
        schedule(text).blockize("j")


def test_unit_loops_stand_around_blocks_and_loops() -> None:
    """A loop of one iteration changes nothing, and is a handle."""
    sch = schedule()
    assert sch.add_unit_loop("matmul") == "u"
    assert sch.add_unit_loop("i") == "u_1"
    assert sch.get_loops("matmul") == ["u_1", "i", "j", "k", "u"]
    same(sch, func_of(MATMUL))
    with pytest.raises(ScheduleError, match="there is no block or loop `q`"):
        sch.add_unit_loop("q")


# ------------------------------------------------------------ tensorize


def vectorized(lanes: int = 8) -> tuple[Schedule, str]:
    sch = schedule()
    j0, j1 = sch.split("j", [None, lanes])
    sch.reorder("i", j0, "k", j1)
    sch.decompose_reduction("matmul", "k")
    return sch, j1


@pytest.mark.parametrize("lanes", [4, 8])
def test_a_vector_multiply_add_takes_the_place_of_a_loop(lanes: int) -> None:
    """The shipped fma of a row computes the same, in vectors."""
    sch, loop = vectorized(lanes)
    sch.tensorize(loop, f"fma_float32x{lanes}")
    assert "T.fma" in sch.func.script()
    same(sch, func_of(MATMUL))


def test_a_tensorized_kernel_runs() -> None:
    """The vector multiply-add is compiled for this machine's CPU and computes the product."""
    import stridesmith as ss

    sch, loop = vectorized(8)
    sch.tensorize(loop, "fma_float32x8")
    sch.parallel("i")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((12, 16), (16, 24)))
    np.testing.assert_array_equal(ss.build(sch.func, "cpu")(a, b), a @ b)


def test_a_fused_dot_of_bytes_takes_the_place_of_a_block() -> None:
    """The shipped dot product matches a block as well as a loop."""
    func = workload("matmul", m=3, n=4, k=32, dtype="int8", transpose_b=1).func
    sch = Schedule(func)
    k0, k1 = sch.split("k", [None, 16])
    sch.decompose_reduction("matmul", k0)
    sch.tensorize(sch.blockize(k1), "dot_int8x16_int32")
    assert sch.get_loops("matmul_o") == ["i", "j", k0]
    same(sch, func)


TILE_DESC = """
@T.prim_func
def desc(a: T.Buffer((2, 4), "float32"), b: T.Buffer((4, 2), "float32"), c: T.Buffer((2, 2), "float32")):
    for i, j, k in T.grid(2, 2, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            c[vi, vj] = b[vk, vj] * a[vi, vk] + c[vi, vj]
"""

TILE_IMPL = """
@T.prim_func
def impl(a: T.Buffer((2, 4), "float32"), b: T.Buffer((4, 2), "float32"), c: T.Buffer((2, 2), "float32")):
    row = T.alloc_buffer((4,), "float32")
    for i in range(2):
        for k in range(4):
            with T.block("load"):
                vi, vk = T.axis.remap("SS", [i, k])
                row[vk] = a[vi, vk]
        for j in range(2):
            with T.block("sum"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = c[vi, vj] + (row[0] * b[0, vj] + row[1] * b[1, vj] + row[2] * b[2, vj] + row[3] * b[3, vj])
"""


BACK = "\n                a[vi, vk] = row[vk]"
WHERE = "\n            T.where(i < 1)"


@pytest.fixture
def tile() -> str:
    """A registered 2x2x4 product with a buffer and blocks of its own."""
    TensorIntrin.register("test_tile", func_of(TILE_DESC), func_of(TILE_IMPL), override=True)
    return "test_tile"


def tiled() -> Schedule:
    sch = schedule()
    i0, i1 = sch.split("i", [None, 2])
    j0, j1 = sch.split("j", [None, 2])
    k0, k1 = sch.split("k", [None, 4])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    return sch


def test_an_implementation_with_blocks_and_buffers_of_its_own(tile: str) -> None:
    """Names of the implementation are made fresh, also when it is used twice; operands match in any order."""
    sch = tiled()
    sch.decompose_reduction("matmul", "k_0")
    sch.tensorize("i_1", tile)
    assert {"load", "sum"} <= set(sch.get_blocks())
    same(sch, func_of(MATMUL))


def test_an_init_must_be_separate(tile: str) -> None:
    """Condition (1): a block that initialises is no plain update."""
    with pytest.raises(ScheduleError, match=r"\(1\) `matmul_o` is not loops around one block without init"):
        tiled().tensorize("i_1", tile)


def test_extents_must_be_those_of_the_description(tile: str) -> None:
    """Condition (2) tells both."""
    sch = schedule()
    sch.decompose_reduction("matmul", "i")
    with pytest.raises(ScheduleError, match=r"\(2\) the loops .* run over \[12, 24, 16\], .* over \[2, 2, 4\]"):
        sch.tensorize("i", tile)


def test_the_statement_must_be_that_of_the_description(tile: str) -> None:
    """Condition (3): another operation does not match, and neither do other types or scopes."""
    other = func_of(TILE_DESC.replace("b[vk, vj] * a[vi, vk]", "b[vk, vj] + a[vi, vk]"))
    TensorIntrin.register("test_sum", other, other, override=True)
    sch = tiled()
    sch.decompose_reduction("matmul", "k_0")
    with pytest.raises(ScheduleError, match=r"\(3\) the statement of `matmul_o` is not that of the description"):
        sch.tensorize("i_1", "test_sum")
    double = func_of(TILE_DESC.replace("float32", "float64"))
    TensorIntrin.register("test_double", double, double, override=True)
    with pytest.raises(ScheduleError, match=r"\(3\) `\w` is float32 in scope global, but the description has float64"):
        sch.tensorize("i_1", "test_double")


def test_accesses_must_move_as_described() -> None:
    """Condition (4): a transposed operand is another access, which is shown."""
    func = workload("matmul", m=4, n=16, k=4, transpose_b=1).func
    sch = Schedule(func)
    sch.reorder("i", "k", "j")
    sch.decompose_reduction("matmul", "k")
    with pytest.raises(ScheduleError, match=r"\(4\) the access b\[j, vk.*\] does not move as the described b\[\w+\]"):
        sch.tensorize("j", "fma_float32x16")


def test_an_unknown_intrinsic_is_answered_with_those_that_there_are() -> None:
    """The names include what was shipped."""
    with pytest.raises(ScheduleError, match=r"no intrinsic `nope`; there are .*dot_int8x16_int32, .*fma_float32x16"):
        vectorized()[0].tensorize("j_1", "nope")


@pytest.mark.parametrize("name", [n for n in TensorIntrin.names() if n.startswith(("fma", "dot"))])
def test_shipped_intrinsics_are_what_they_say(name: str) -> None:
    """Each one is built, which compares its implementation with its description."""
    intrinsic = TensorIntrin.get(name)
    assert intrinsic.desc != intrinsic.impl


@pytest.mark.parametrize(
    ("desc", "impl", "sentence"),
    [
        (TILE_DESC, TILE_IMPL.replace("row[3] *", "row[2] *"), r"\(6\) on sample data the implementation gives"),
        (TILE_DESC, TILE_IMPL.replace("a[vi, vk]", "a[vi, vk + 1]"), r"\(2\) .*a\["),
        (TILE_DESC, TILE_IMPL.replace("(2, 4)", "(2, 5)"), r"\(2\) `desc` and `impl` must take buffers of equal"),
        (TILE_DESC.replace("(4, 2)", "(5, 2)"), TILE_IMPL.replace("(4, 2)", "(5, 2)"),
         r"\(4\) the description does not touch every element of `b`"),
        (TILE_DESC, TILE_IMPL.replace("row[vk] = a[vi, vk]", "row[vk] = a[vi, vk]" + BACK),
         r"\(5\) the implementation writes `a`"),
        (TILE_DESC.replace('block("update"):', 'block("update"):' + WHERE), TILE_IMPL,
         r"\(3\) the description `desc` must be loops around one block"),
    ],
)  # fmt: skip
def test_registration_refuses_what_is_no_intrinsic(desc: str, impl: str, sentence: str) -> None:
    """Shapes, bounds, coverage, writes and results of the two functions are compared."""
    with pytest.raises(ScheduleError, match=sentence):
        TensorIntrin.register("test_bad", func_of(desc), func_of(impl))


def test_a_name_is_taken_once(tile: str) -> None:
    """Condition (1): registering again needs `override`, also for what was shipped."""
    for name in (tile, "fma_float32x8"):
        with pytest.raises(ScheduleError, match=rf"\(1\) there is an intrinsic `{name}` already"):
            TensorIntrin.register(name, func_of(TILE_DESC), func_of(TILE_IMPL))


# ------------------------------------------------------------ rows, notes, scopes


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "shape"), [(0, 8, 3, (6, 11)), (-2, 4, 0, (6, 12)), (1, 1, 0, (6, 10))]
)
def test_storage_align_spaces_out_rows(axis: int, factor: int, offset: int, shape: tuple[int, ...]) -> None:
    """The stride is as asked; elements keep their indices."""
    sch = schedule(CHAIN)
    sch.storage_align("twice", 0, axis, factor, offset)
    (buffer,) = sch.func.body.allocs
    assert buffer.shape == shape
    assert buffer.strides[axis] % factor == offset
    same(sch, func_of(CHAIN))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("twice", 0, 2, 4, 0), r"\(1\) `factor` must be positive and `axis` in \[-2, 2\), but got 4 and 2"),
        (("twice", 0, 0, 0, 0), r"\(1\) `factor` must be positive"),
        (("first", 0, 0, 4, 0), r"\(2\) `y` is a parameter, whose strides are the caller's; use cache_write"),
        (("twice", 0, 1, 4, 0), r"\(3\) no stride of axis 1 of `t` is 0 modulo 4"),
    ],
)
def test_storage_align_refuses(arguments: tuple[object, ...], sentence: str) -> None:
    """Each condition by its sentence."""
    with pytest.raises(ScheduleError, match=sentence):
        schedule(CHAIN).storage_align(*arguments)


def test_notes_come_and_go() -> None:
    """A note replaces one of the same key, is printed with the program, and can be removed."""
    sch = schedule()
    for target in ("i", "matmul"):
        sch.annotate(target, "note", 1)
        sch.annotate(block_or_loop=target, ann_key="note", ann_val=["a", 2])
        assert dict(sch.get(target).annotations)["note"] == ("a", 2)
    same(sch, func_of(MATMUL))
    sch.unannotate("i", "note")
    sch.unannotate("matmul", "note")
    assert sch.func == schedule().func


def test_notes_are_plain_and_there() -> None:
    """Condition (1) of both."""
    with pytest.raises(ScheduleError, match=r"\(1\) an annotation is a number, a text or a list"):
        schedule().annotate("i", "note", {"a": 1})
    with pytest.raises(ScheduleError, match=r"\(1\) `i` has no annotation `note`"):
        schedule().unannotate("i", "note")


def test_iterators_of_a_block_come_in_another_order() -> None:
    """The block computes the same; an order that is none is refused."""
    sch = schedule()
    sch.reorder_block_iter_var("matmul", [2, 0, 1])
    assert [i.var.name for i in find_block(sch.func, "matmul").iters] == ["vk", "vi", "vj"]
    same(sch, func_of(MATMUL))
    with pytest.raises(ScheduleError, match=r"\(1\) \[0, 1\] is no order of the 3 iterators of `matmul`"):
        sch.reorder_block_iter_var("matmul", [0, 1])
