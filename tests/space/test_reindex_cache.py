"""Caches with indices of their own hold what the block touches, padded where asked, and refuse by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from goldens.execute import same_results

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

SHIFTED = """
@T.prim_func
def func(A: T.Buffer((12, 12), "float32"), B: T.Buffer((10, 10), "float32")):
    for i, j in T.grid(10, 10):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi + 1, vj + 1] * 2.0
"""

CONV = """
@T.prim_func
def func(x: T.Buffer((11,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((11,), "float32")):
    for i, k in T.grid(11, 3):
        with T.block("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = 0.0
            y[vi] = y[vi] + T.if_then_else(1 <= vi + vk and vi + vk < 12, x[vi + vk - 1], 0.0) * w[vk]
"""


def function(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def check(sch: Schedule, text: str) -> None:
    """Valid, printable, replayable, equal results."""
    verify(sch.func)
    assert parse(sch.func.script()) == sch.func
    assert Trace.from_json(sch.trace.to_json()).replay(function(text)).func == sch.func
    same_results(function(text), sch.func)


@pytest.mark.parametrize("pad", [None, "undef", 0, lambda i, j, a, b: i + b])
@pytest.mark.parametrize("shape", [None, (4, 3, 4, 6)])
@pytest.mark.parametrize("split", [False, True])
def test_reading_through_a_packed_and_padded_cache(pad: Any, shape: Any, split: bool) -> None:
    """The copy goes over the iterators, whatever loops they are bound to; padding is stored behind it."""
    sch = Schedule(function(SHIFTED))
    if split:
        sch.split("i", [None, 4])
    name = sch.reindex_cache_read(
        "B", 0, "shared", lambda i, j: (i // 4, j // 4, i % 4, j % 4), pad_value=pad, physical_shape=shape
    )
    assert name == "A_shared" and ('T.block("A_shared_padding")' in sch.func.script()) == (pad is not None)
    check(sch, SHIFTED)


@pytest.mark.parametrize("pad", [None, "undef", 0])
def test_writing_through_a_packed_and_padded_cache(pad: Any) -> None:
    """The block, its init included, writes the cache; only what it wrote is copied back."""
    sch = Schedule(function(CONV))
    sch.split("i", [None, 4])
    name = sch.reindex_cache_write("conv", 0, "local", lambda i, k: [i // 4, i % 4], pad_value=pad)
    assert name == "y_local"
    check(sch, CONV)
    assert sch.func.script().count("y[") == 1


def test_instances_may_share_an_element_that_they_read() -> None:
    """A window that slides is held once; what a condition leaves out is not copied, and is padding."""
    sch = Schedule(function(CONV))
    sch.reindex_cache_read("conv", 0, "global", lambda i, k: [i + k], pad_value=0)
    check(sch, CONV)
    text = sch.func.script()
    assert 'x_global = T.alloc_buffer((13,), "float32")' in text
    assert "T.where(x_global_ax0 + x_global_ax1 >= 1 and x_global_ax0 + x_global_ax1 < 12)" in text


def test_iterators_that_do_not_matter_are_left_out() -> None:
    """The weights of a convolution are copied by the reduction alone."""
    sch = Schedule(function(CONV))
    sch.reindex_cache_read("conv", 1, "global", lambda i, k: [k])
    check(sch, CONV)
    assert sch.get_loops("w_global") == ["w_global_ax0"]


def test_consumers_with_the_same_access_share_the_cache() -> None:
    """A second block that reads the same points reads the copy, too; another point is refused."""
    text = SHIFTED.replace('B: T.Buffer((10, 10), "float32")', (
        'B: T.Buffer((10, 10), "float32"), C: T.Buffer((10, 10), "float32")'
    )) + """
    for i, j in T.grid(10, 10):
        with T.block("C"):
            wi, wj = T.axis.remap("SS", [i, j])
            C[wi, wj] = A[wi + 1, wj + 1]
    for i, j in T.grid(10, 10):
        with T.block("other"):
            ui, uj = T.axis.remap("SS", [i, j])
            T.evaluate(A[ui, uj])
"""  # fmt: skip
    sch = Schedule(function(text))
    sch.reindex_cache_read("C", 0, "shared", lambda i, j: [j, i], ["B"])
    check(sch, text)
    assert sch.func.script().count("A_shared[") == 3
    with pytest.raises(ScheduleError, match=r"\(9\) block `other` reads `A` at another point"):
        Schedule(function(text)).reindex_cache_read("B", 0, "shared", lambda i, j: [j, i], ["other"])


READS: list[tuple[str, dict[str, Any], str]] = [
    (SHIFTED, {"block": "root"}, r"\(1\) block `root` has no iterators"),
    (SHIFTED, {"read_buffer_index": 1}, r"\(1\) block `B` reads 1 buffers \(A\), but got index 1"),
    (SHIFTED.replace("* 2.0", "+ A[vi, vj]"), {}, r"\(2\) .*A\[vi \+ 1, vj \+ 1\] and A\[vi, vj\]"),
    (SHIFTED, {"index_map": lambda i: [i]}, r"\(3\) .*takes 1 indices"),
    (SHIFTED, {"index_map": lambda i, j: [i]}, r"\(4\) the instances .* share the element \['vi'\]"),
    (SHIFTED, {"physical_shape": (10, 4)}, r"\(6\) .*\(10, 4\) does not hold the image"),
    (SHIFTED, {"pad_value": "lambda i, j: A[i, j]", "physical_shape": (11, 10)}, r"\(7\) .*`A` is not defined"),
    (SHIFTED, {"pad_value": "lambda i, j: A_shared[i, j]", "physical_shape": (11, 10)}, r"\(7\) at .*no logical"),
    (SHIFTED.replace("vi, vj = ", "T.where(A[i, j] > 0.0)\n            vi, vj = "), {}, r"\((2|8)\)"),
]


@pytest.mark.parametrize(("text", "changed", "sentence"), READS)
def test_reading_refuses(text: str, changed: dict[str, Any], sentence: str) -> None:
    """Conditions 1 to 8, each with its values."""
    arguments: dict[str, Any] = {
        "block": "B", "read_buffer_index": 0, "storage_scope": "shared", "index_map": lambda i, j: [i, j], **changed,
    }  # fmt: skip
    with pytest.raises(ScheduleError, match=sentence):
        Schedule(function(text)).reindex_cache_read(**arguments)


def test_reading_what_the_nest_writes_is_refused() -> None:
    """Condition 5: the copy stands before the nest."""
    text = """
@T.prim_func
def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("fill"):
            vi = T.axis.spatial(8, i)
            t[vi] = A[vi]
        with T.block("use"):
            vj = T.axis.spatial(8, i)
            B[vj] = t[vj]
"""
    with pytest.raises(ScheduleError, match=r"\(5\) `t` is written in the same loop nest"):
        Schedule(function(text)).reindex_cache_read("use", 0, "local", lambda i: [i])


WRITES: list[tuple[str, dict[str, Any], str]] = [
    (CONV, {"index_map": lambda i, k: [i, k]}, r"\(3\) the map uses `vk`, which does not decide the element of `y`"),
    (CONV, {"index_map": lambda i, k: [i // 2]}, r"\(4\) .*vi.*share the element .* of the cache"),
    (CONV.replace("            with T.init():\n                y[vi] = 0.0\n", ""), {}, r"\(9\) .*held before"),
    (CONV.replace("y[vi] + T", "y[0] + T"), {}, r"\(2\) block `conv` accesses several points"),
    (CONV, {"physical_shape": (10,), "index_map": lambda i, k: [i]}, r"\(6\)"),
]


@pytest.mark.parametrize(("text", "changed", "sentence"), WRITES)
def test_writing_refuses(text: str, changed: dict[str, Any], sentence: str) -> None:
    """Conditions 2 to 9."""
    arguments: dict[str, Any] = {
        "block": "conv", "write_buffer_index": 0, "storage_scope": "local", "index_map": lambda i, k: [i], **changed,
    }  # fmt: skip
    with pytest.raises(ScheduleError, match=sentence):
        Schedule(function(text)).reindex_cache_write(**arguments)


def test_a_store_under_a_condition_is_not_copied_back() -> None:
    """Condition 8: the copy would take elements that nothing wrote."""
    text = SHIFTED.replace("B[vi, vj] = A", "if vi < 5:\n                B[vi, vj] = A")
    with pytest.raises(ScheduleError, match=r"\(8\) not every instance of block `B` stores to `B`"):
        Schedule(function(text)).reindex_cache_write("B", 0, "local", lambda i, j: [i, j])


def test_a_result_that_the_nest_reads_stays_where_it_is() -> None:
    """Condition 5: another block of the nest touches the buffer."""
    text = """
@T.prim_func
def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("fill"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("use"):
            vj = T.axis.spatial(8, i)
            C[vj] = B[vj]
"""
    with pytest.raises(ScheduleError, match=r"\(5\) something else in the nest of block `fill` touches `B`"):
        Schedule(function(text)).reindex_cache_write("fill", 0, "local", lambda i: [i])


BARE = """
@T.prim_func
def func(A: T.Buffer((14,), "int32"), B: T.Buffer((1,), "int32")):
    T.assume(A[0] == A[0])
    B[0] = 0
    for i in T.serial(14):
        B[0] = B[0] + A[i]
"""


def test_caches_of_bare_loops() -> None:
    """Reads and writes of a function of bare loops go through copies in bare loops; assumptions stay with the input."""
    sch = Schedule(function(BARE))
    assert sch.cache_read("root", "A", "local") == "A_local_ax0"
    assert sch.cache_write("root", "B", "local") == "B_local_ax0"
    check(sch, BARE)
    text = sch.func.script()
    assert "T.block" not in text and "T.assume(A[0] == A[0])" in text
    assert text.index("B_local[0] = B_local[0] + A_local[i]") < text.index("B[B_local_ax0] = B_local[B_local_ax0]")


@pytest.mark.parametrize(
    ("method", "buffer", "sentence"),
    [
        ("cache_read", "C", r"\(1\) block `root` does not read a buffer `C`; there are A, B"),
        ("cache_read", "B", r"\(2\) `B` is read before, or together with, its last writer"),
        ("cache_write", "A", r"\(1\) block `root` does not write a buffer `A`"),
    ],
)
def test_caches_of_bare_loops_refuse(method: str, buffer: str, sentence: str) -> None:
    """The buffer is named, and the condition."""
    with pytest.raises(ScheduleError, match=sentence):
        getattr(Schedule(function(BARE)), method)("root", buffer, "local")


def test_what_the_init_reads_is_copied_too() -> None:
    """Also where the body reads less of it."""
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 3):
        with T.block("s"):
            v, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = A[v]
            C[v] = C[v] + T.if_then_else(v < 2, A[v], 0)
"""
    sch = Schedule(function(text))
    sch.reindex_cache_read("s", 0, "global", lambda v, k: [v])
    same_results(function(text), sch.func)


def test_a_partial_result_of_bare_loops_has_no_cache() -> None:
    """Condition 4: all would be copied back."""
    with pytest.raises(ScheduleError, match=r"\(4\) block `root` does not write all of `B`"):
        Schedule(function(BARE.replace("B: T.Buffer((1,)", "B: T.Buffer((2,)"))).cache_write("root", "B", "local")


MATMUL = """
@T.prim_func
def main(a: T.Buffer((7, 9), "float32"), b: T.Buffer((9, 5), "float32"), c: T.Buffer((7, 5), "float32")):
    for i, j, k in T.grid(7, 5, 9):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""


@pytest.mark.parametrize(
    "index_map",
    [lambda i, j, k: [j, k, i], lambda i, j, k: [i // 2, j, k, i % 2], lambda i, j, k: [i * 5 + j, k // 4, k % 4]],
)
def test_transform_block_layout_rewrites_iterators_and_loops(index_map: Any) -> None:
    """Every iterator is bound to a loop of its own afterwards; what the map does not reach does not run."""
    sch = Schedule(function(MATMUL))
    loops = sch.transform_block_layout("matmul", index_map)
    check(sch, MATMUL)
    assert tuple(sch.get_loops("matmul")) == loops
    assert [str(i.binding) for i in sch.get("matmul").iters] == list(loops)


@pytest.mark.parametrize(
    ("index_map", "sentence"),
    [
        (lambda i, j: [i, j], r"\(2\) .*takes 2 indices"),
        (lambda i, j, k: [i, j + k, k], r"\(3\) index 1 of the map mixes reduce and spatial"),
        (lambda i, j, k: [i, j, k // 2], "injective|both"),
        (lambda i, j, k: [i, j, 8 - k], r"\(5\) "),
    ],
)
def test_transform_block_layout_refuses(index_map: Any, sentence: str) -> None:
    """Conditions 2 to 5."""
    with pytest.raises(ScheduleError, match=sentence):
        Schedule(function(MATMUL)).transform_block_layout("matmul", index_map)


def test_transform_block_layout_needs_plain_bindings() -> None:
    """Condition 1: a split loop has to be undone first."""
    sch = Schedule(function(MATMUL))
    sch.split("i", [None, 2])
    with pytest.raises(ScheduleError, match=r"\(1\) the iterators of block `matmul` are not bound one by one"):
        sch.transform_block_layout("matmul", lambda i, j, k: [j, i, k])


def test_the_copies_of_a_random_access_are_exact() -> None:
    """Offsets, strides and transposes: the cache holds exactly the elements that are read."""
    rng = np.random.default_rng(11)
    for _ in range(6):
        a, b, c = (int(x) for x in rng.integers(1, 4, 3))
        text = SHIFTED.replace("A[vi + 1, vj + 1]", f"A[vj % {a + 8} + {c - 1}, vi // {b} + {c - 1}]")
        sch = Schedule(function(text))
        sch.reindex_cache_read("B", 0, "local", lambda i, j: [j, i // 3, i % 3], pad_value=0)
        check(sch, text)
