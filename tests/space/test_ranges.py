"""Primitives on programs whose extents are expressions: what they make is right for all values, or they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from ranged_programs import MATMUL, product, program

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule

CHAIN = """
@T.prim_func
def chain(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n + 2), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    T.assume(n <= 40)
    t = T.alloc_buffer((n, n + 2), "float32")
    for i, j in T.grid(n, n + 2):
        with T.block("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(n, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = t[vi, vj] + t[vi, vj + 2]
"""

Steps = Callable[[Schedule], object]


def sums(func: PrimFunc, n: int) -> None:
    """Compare the interpreter's sums of neighbours with NumPy's."""
    a, b = np.random.default_rng(n).integers(-4, 5, (n, n + 2)).astype(np.float32), np.zeros((n, n), np.float32)
    ss.interpret(func, a, b)
    np.testing.assert_array_equal(b, 2 * a[:, :-2] + 2 * a[:, 2:])


def loops(sch: Schedule, block: str = "C") -> list[str]:
    """The loops around a block."""
    return list(sch.get_loops(block))


def tiled(sch: Schedule) -> None:
    """A register tile with rounded-up outer loops."""
    i, j, k = loops(sch)
    (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    sch.unroll(i1)


PRODUCTS: dict[str, Steps] = {
    "reorder": lambda s: s.reorder(*reversed(loops(s)[:2])),
    "split": lambda s: s.split(loops(s)[0], [None, 16]),
    "split by all of it": lambda s: s.split(loops(s)[0], [4, 16]),
    "split reduction": lambda s: s.split(loops(s)[2], [None, 5]),
    "fuse": lambda s: (s.reorder(*loops(s)[:1], loops(s)[2], loops(s)[1]), s.fuse(*loops(s)[:2])),
    "bind": lambda s: s.bind(loops(s)[0], "blockIdx.x"),
    "tile": tiled,
    "cache_read": lambda s: s.cache_read("C", 0, "global"),
    "cache_write": lambda s: s.cache_write("C", 0, "global"),
    "decompose_reduction": lambda s: s.decompose_reduction("C", loops(s)[1]),
    "rfactor": lambda s: s.rfactor(s.split(loops(s)[2], [None, 4])[1], 0),
    "blocks": lambda s: (s.cache_write("C", 0, "global"),
                         s.transform_layout("C", "C_global", lambda i, j: [i // 16, j, i % 16])),
    "blocks with zeros": lambda s: (s.cache_read("C", 0, "global"), s.transform_layout(
        "C", "A_global", lambda i, j: [i // 16, j // 8, i % 16, j % 8], pad_value=0)),
    "transposed": lambda s: (s.cache_read("C", 1, "global"), s.transform_layout("C", "B_global", lambda i, j: [j, i])),
    "compute_at": lambda s: (s.cache_read("C", 0, "global"), s.compute_at("A_global", loops(s)[0])),
    "reverse_compute_at": lambda s: (s.cache_write("C", 0, "global"), s.split(loops(s)[0], [None, 4]),
                                     s.reverse_compute_at("C_global", loops(s)[0])),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_all_shapes(name: str) -> None:
    """The scheduled program is one, is read back as printed, and computes the product at five values."""
    sch = Schedule(program(MATMUL))
    PRODUCTS[name](sch)
    assert ss.parse(sch.func.script()) == sch.func and ss.parse(sch.func.script("tvm")) == sch.func
    for n, m in ((1, 1), (5, 2), (16, 3), (17, 1), (64, 2)):
        product(sch.func, n, m)
    assert sch.trace.replay(program(MATMUL)).func == sch.func


def narrow(dtype: str, assumed: str) -> PrimFunc:
    """`MATMUL` with sizes and loops of a narrow type, and `n` in a range."""
    text = MATMUL.replace("T.int64", f"T.{dtype}").replace("n <= 64", assumed)
    func = ss.parse(text, integers=dtype)
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_loops_of_a_narrow_type(name: str) -> None:
    """As apache-tvm writes them: sizes and loops of int32, whose tiles count in int32 too."""
    sch = Schedule(narrow("int32", "n <= 64"))
    PRODUCTS[name](sch)
    assert ss.parse(sch.func.script()) == sch.func and ss.parse(sch.func.script("tvm"), integers="int32") == sch.func
    for n, m in ((1, 1), (5, 2), (17, 3)):
        product(sch.func, n, m)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_at_the_end_of_a_narrow_type(name: str) -> None:
    """What int8 does not count is refused; all else is right up to the largest extent."""
    sch = Schedule(narrow("int8", "1 <= n and n <= 120"))
    refused = {
        "fuse": "(2) the type int8 of loop `i_k_fused` is not known to hold its extent",
        "split by all of it": "(2) the product of the factors [4, 16] is 64, and nothing says that it covers",
    }
    if name in refused:
        with pytest.raises(ScheduleError, match=re.escape(refused[name])):
            PRODUCTS[name](sch)
        return
    PRODUCTS[name](sch)
    product(sch.func, 120, 1)


def test_loops_are_fused_where_their_type_holds_all_iterations() -> None:
    """As the facts say, whichever type computes the extent; a loop that was split is fused again."""
    for dtype, most, held in (
        ("int8", 3, True),
        ("int8", 4, False),
        ("int32", 67108863, True),
        ("int32", 67108864, False),
    ):
        sch = Schedule(narrow(dtype, f"1 <= n and n <= {most}"))
        i, j, k = loops(sch)
        sch.reorder(i, k, j)
        if held:
            sch.fuse(i, k)
            product(sch.func, 3, 1)
        else:
            with pytest.raises(
                ScheduleError, match=rf"\(2\) the type {dtype} of loop `i_k_fused` is not known to hold"
            ):
                sch.fuse(i, k)
    for most, held in ((124, True), (125, False)):
        sch = Schedule(narrow("int8", f"1 <= n and n <= {most}"))
        i0, i1 = sch.split("i", [None, 4])
        if held:
            sch.fuse(i0, i1)
            product(sch.func, 121, 1)
        else:
            with pytest.raises(
                ScheduleError, match=r"\(2\) the type int8 of loop `i_0_i_1_fused` is not known to hold"
            ):
                sch.fuse(i0, i1)


def test_factors_of_a_narrow_loop_are_held_by_its_type() -> None:
    """So is the first one, whose extent is computed in the index type, also of a loop that was split before."""
    sch = Schedule(narrow("int8", "1 <= n and n <= 120"))
    with pytest.raises(ScheduleError, match=r"\(2\) the type int8 of loop `i_1` is not known to hold its extent `128`"):
        sch.split("i", [None, 128])
    for again in ([None, 100], [2, 15]):
        sch = Schedule(narrow("int8", "1 <= n and n <= 120"))
        i0, _ = sch.split("i", [None, 4])
        sch.split(i0, again)
        for n in (1, 120):
            product(sch.func, n, 1)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("compute_at", lambda s: (s.split(loops(s, "B")[0], [None, 4]), s.compute_at("t", loops(s, "B")[0]))),
        ("compute_inline", lambda s: s.compute_inline("t")),
        ("layout", lambda s: s.transform_layout("t", "t", lambda i, j: [j // 4, i, j % 4], pad_value=0)),
        ("compute_at inner", lambda s: s.compute_at("t", loops(s, "B")[1])),
    ],
)
def test_stages_of_all_shapes(name: str, steps: Steps) -> None:
    """A producer with a halo of two, moved, inlined and laid out."""
    sch = Schedule(program(CHAIN))
    steps(sch)
    assert ss.parse(sch.func.script()) == sch.func, name
    for n in (1, 3, 4, 9, 40):
        sums(sch.func, n)


def test_a_box_has_a_largest_extent() -> None:
    """A loop that would go to the largest value of its extent needs one: nothing counts to 2**48."""
    sch = Schedule(program(MATMUL))
    sch.make_rectangular(loops(sch)[0])
    product(sch.func, 5, 2)
    assert "range(64)" in sch.func.script() or "(64, " in sch.func.script()
    sch = Schedule(program(MATMUL.replace("n <= 64 and ", "")))
    with pytest.raises(ScheduleError, match="nothing says how large the extent `n` of loop `i` may be"):
        sch.make_rectangular(loops(sch)[0])
    twice = """@T.prim_func
def main(A: T.Buffer((n * 2,), "float32"), n: T.int64):
    for i in range(n * 2):
        A[i] = T.float32(1)
"""
    with pytest.raises(ScheduleError, match=r"nothing says how large the extent `n \* 2` of loop `i` may be"):
        Schedule(program(twice)).make_rectangular("i")


def test_a_layout_has_as_many_blocks_as_are_needed() -> None:
    """``n`` by 16 is ``(n + 15) // 16`` blocks, of 16 where it does not divide."""
    sch = Schedule(program(MATMUL))
    sch.cache_write("C", 0, "global")
    sch.transform_layout("C", "C_global", lambda i, j: [i // 16, j, i % 16])
    assert 'C_global = T.alloc_buffer(((n + 15) // 16, m * 4, 16), "float32")' in sch.func.script()


def test_padding_of_a_layout_ends_where_extents_do() -> None:
    """Not where the largest extent would end that there may be, whose last block an odd offset makes ragged."""
    text = MATMUL.replace("n <= 64 and m <= 8", "m <= 8")
    sch = Schedule(program(text))
    sch.cache_read("C", 0, "global")
    sch.transform_layout("C", "A_global", lambda i, k: [(i + 1) // 2, k, (i + 1) % 2], 0)
    assert "n <= " in sch.func.script() and not re.search(r"\d{9}", sch.func.script())
    for n in (1, 2, 5, 8):
        product(sch.func, n, 2)


def test_a_factor_that_divides_needs_no_condition() -> None:
    """What is assumed at the top leaves out the test of the last tile."""
    text = MATMUL.replace("n <= 64", "n <= 64 and n % 8 == 0")
    for factor, tested in ((8, False), (4, False), (16, True)):
        sch = Schedule(program(text))
        sch.split(loops(sch)[0], [None, factor])
        assert ("T.where" in sch.func.script()) == tested, factor


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.split(loops(s)[0], [8, None]), "(3) the extent `n` of loop `i` is an expression"),
        (lambda s: s.split(loops(s)[0], [4, 8]), "(2) the product of the factors [4, 8] is 32, and nothing says"),
        (lambda s: s.fuse(*loops(s)[:2]), "(3) the extent `m * 4` of the inner loop `j` is an expression"),
        (lambda s: s.vectorize(loops(s)[0]), "loop `i` has the extent `n`, which is not constant"),
        (lambda s: s.unroll(loops(s)[0]), "loop `i` has the extent `n`, which is not constant"),
        (lambda s: s.parallel(loops(s)[2]), "iteration"),
        (lambda s: s.transform_layout("C", "A", lambda i, j: [j, i]), "(8) the extents of the parameter `A`"),
        (lambda s: (s.cache_read("C", 0, "global"), s.transform_layout("C", "A_global", lambda i, j: [i // 2, j])),
         "(2) the map `lambda i, j: [i // 2, j]` is not injective"),
        (lambda s: (s.cache_read("C", 0, "global"),
                    s.transform_layout("C", "A_global", lambda i, j: [i, j], physical_shape=[64, 32])),
         "(3) no shape of numbers holds the image, which needs (n, 32)"),
    ],
)  # fmt: skip
def test_refusals(steps: Steps, message: str) -> None:
    """What is not proven for all values is refused by a sentence."""
    sch = Schedule(program(MATMUL))
    with pytest.raises(ScheduleError) as refused:
        steps(sch)
    assert message in str(refused.value)


def test_tiles_are_computed_over_the_end_into_memory_that_is_ours() -> None:
    """A cache in multiples of the tile has room for all rows of the last one, so that no row is tested."""
    sch = Schedule(program(MATMUL))
    sch.cache_write("C", 0, "global")
    sch.cache_read("C", 0, "global")
    sch.transform_layout("C", "C_global", lambda i, j: [i // 2, j, i % 2], "undef", multiples=[3, 1, 1])
    sch.transform_layout("C", "A_global", lambda i, k: [i // 2, k, i % 2], 0, multiples=[3, 1, 1], rewrite_loops=True)
    i, j, k = loops(sch)
    i0, i1 = sch.split(i, [None, 6])
    sch.reorder(i0, j, k, i1)
    assert f"T.where({i0} * 6 + {i1} < n)" in sch.func.script()
    sch.remove_branching_through_overcompute("C", loops=[i1])
    assert f"T.where({i0} * 6 + {i1} < n)" not in sch.func.script()
    for n, m in ((1, 1), (5, 2), (6, 3), (7, 1), (64, 8)):
        product(sch.func, n, m)


def test_a_cache_without_that_room_keeps_its_condition() -> None:
    """The refusal has values of the parameters, and the element."""
    sch = Schedule(program(MATMUL))
    sch.cache_write("C", 0, "global")
    sch.split("i", [None, 6])
    with pytest.raises(ScheduleError, match=r"stays: .*at .*n=\d+"):
        sch.remove_branching_through_overcompute("C")


def test_multiples_are_as_many_as_extents() -> None:
    """Of positive numbers."""
    for wrong in ([2], [0, 1], [2, 2, 2]):
        with pytest.raises(ScheduleError, match=r"\(3\) the 2 physical extents are multiples of as many numbers"):
            Schedule(ss.workload("matmul", m=4, n=4, k=4).func).transform_layout(
                "matmul", "a", lambda i, j: [i, j], multiples=wrong
            )
    sch = Schedule(ss.workload("matmul", m=5, n=4, k=4).func)
    sch.cache_write("matmul", 0, "global")
    sch.transform_layout("matmul", "c_global", lambda i, j: [i, j], multiples=[4, 1])
    assert "T.alloc_buffer((8, 4)" in sch.func.script()


POOL = """
@T.prim_func
def means(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 5, 4, 6), "float32")
    B = T.match_buffer(b, (n, 5), "float32")
    T.assume(n <= 40)
    for i, j, k, l in T.grid(n, 5, 4, 6):
        with T.block("B"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                B[vi, vj] = 0.0
            B[vi, vj] = B[vi, vj] + A[vi, vj, vk, vl]
"""


@pytest.mark.parametrize(
    ("index_map", "order"),
    [("lambda i, j, k, l: [i, j, k * 6 + l]", ["i", "j", "i_2"]), ("lambda i, j, k, l: [j, l, i, k]", list("jlik"))],
)
def test_loops_of_an_unknown_extent_stay_while_others_are_transformed(index_map: str, order: list[str]) -> None:
    """Those that are an index by themselves, in their place among the new ones; in another index they are refused."""
    sch = Schedule(program(POOL))
    made = list(sch.transform_block_layout("B", index_map))
    assert len(made) == len(order) and made[order.index("i")] == "i"
    for n in (1, 3, 40):
        a, b = np.random.default_rng(n).integers(-4, 5, (n, 5, 4, 6)).astype(np.float32), np.zeros((n, 5), np.float32)
        ss.interpret(sch.func, a, b)
        np.testing.assert_array_equal(b, a.sum(axis=(2, 3)))
    with pytest.raises(ScheduleError, match="loop `i` has the extent `n`, which is not constant"):
        Schedule(program(POOL)).transform_block_layout("B", "lambda i, j, k, l: [i * 5 + j, k, l]")


def test_loops_of_an_unknown_extent_are_cut_into_digits() -> None:
    """In tiles that round up, of which the last one may be a part; each digit is an iterator."""
    sch = Schedule(program(POOL))
    made = sch.transform_block_layout("B", "lambda i, j, k, l: [i // 3, j, i % 3, k, l]")
    assert len(made) == 5 and "(n + 2) // 3" in sch.func.script() and len(sch.get_loops("B")) == 5
    for n in (1, 3, 5, 40):
        a, b = np.random.default_rng(n).integers(-4, 5, (n, 5, 4, 6)).astype(np.float32), np.zeros((n, 5), np.float32)
        ss.interpret(sch.func, a, b)
        np.testing.assert_array_equal(b, a.sum(axis=(2, 3)))
    for wrong in ("i // 3, j, i % 2", "i // 3, i % 3, i + j", "i // 3, i // 3, i % 3, j"):
        with pytest.raises(ScheduleError, match="loop `i` has the extent `n`, which is not constant"):
            Schedule(program(POOL)).transform_block_layout("B", f"lambda i, j, k, l: [{wrong}, k, l]")


def test_accesses_are_proven_again_only_where_a_primitive_touches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """How loops run, and what is annotated, moves no access."""
    proven: list[PrimFunc] = []
    monkeypatch.setattr("stridesmith.space.primitive.check_in_bounds", proven.append)
    sch = Schedule(program(CHAIN.replace("chain", "marked")))
    i0, i1 = sch.split(sch.get_loops("t")[0], [None, 4])
    assert len(proven) == 1
    sch.unroll(i1)
    sch.parallel(i0)
    sch.annotate(i1, "peel", True)
    assert len(proven) == 1
    sch.reorder(sch.get_loops("t")[2], i1)
    assert len(proven) == 2
