"""What stands around a block, beside it and in its way is kept, or the primitive refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from scheduled import same, schedule

from stridesmith.ir.affine import guard
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.space.schedule import Schedule, ScheduleError

SUM = """
                with T.block("b"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = 0
                    C[vi] = C[vi] + X[vi, vk]
"""
START = """
@T.prim_func
def main(X: T.Buffer((4, 3), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4, 3), "int32")):
    for a in range(4):
        with T.block("start"):
            va = T.axis.spatial(4, a)
            C[va] = 5
    for a, c in T.grid(4, 3):
        with T.block("other"):
            va, vc = T.axis.remap("SS", [a, c])
            D[va, vc] = 1
"""


def summed(*lines: str) -> str:
    """A program with one sum inside of `lines`."""
    return START + "".join(f"    {line}\n" for line in lines) + SUM


@pytest.mark.parametrize(
    ("lines", "loop"),
    [
        (("for i in range(4):", "    for k in range(3):", "        if i < 3:"), "i"),
        (("for i in range(4):", "    for k in range(3):", "        if i < 3:"), "k"),
        (("for i in range(4):", "    if i < 3:", "        for k in range(3):"), "i"),
        (("for k in range(3):", "    for i in range(4):", "        if k < i:"), "k"),
        (("for k in range(3):", "    for i in range(4):", "        if i * k < 1:"), "k"),
    ],
)
def test_an_init_keeps_the_conditions_of_its_block(lines: tuple[str, ...], loop: str) -> None:
    """Where a block does not run, its init stores nothing, from whatever loop it is taken."""
    text = summed(*lines)
    sch = schedule(text)
    sch.decompose_reduction("b", loop)
    same(sch, text)


def test_an_init_runs_where_a_reduction_begins_beside_zero() -> None:
    """The loop over a reduction may begin it elsewhere than at 0."""
    text = summed("for i in range(4):", "    for k in range(6):").replace(
        'vi, vk = T.axis.remap("SR", [i, k])',
        "vi = T.axis.spatial(4, i)\n                    vk = T.axis.reduce(3, k // 2)\n"
        "                    T.where(k % 2 == 1)",
    )
    sch = schedule(text)
    sch.decompose_reduction("b", "k")
    same(sch, text)


@pytest.mark.parametrize(
    "lines",
    [
        ("for i in range(4):", "    for k in range(3):", "        D[i, k] = C[i]", "        if i < 9:"),
        ("for i in range(4):", "    for k in range(3):", "        C[i] = 7", "        if i < 9:"),
    ],
    ids=["reader", "writer"],
)
def test_an_init_keeps_its_order_with_what_stands_beside_it(lines: tuple[str, ...]) -> None:
    """Condition (4) of decompose_reduction: what an earlier statement finds, the init would have replaced."""
    with pytest.raises(ScheduleError, match=r"decompose_reduction.*\(4\)"):
        schedule(summed(*lines)).decompose_reduction("b", "k")


def test_an_init_stays_after_the_stores_that_it_reads() -> None:
    """Condition (4) of decompose_reduction, for what the init itself reads."""
    text = """
@T.prim_func
def main(X: T.Buffer((4, 3), "int32"), C: T.Buffer((4,), "int32")):
    D = T.alloc_buffer((4,), "int32")
    for k in range(3):
        for j in range(4):
            D[j] = 2
        for i in range(4):
            with T.block("b"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = D[vi]
                C[vi] = C[vi] + X[vi, vk]
"""
    with pytest.raises(ScheduleError, match=r"\(4\)"):
        schedule(text).decompose_reduction("b", "k")


def test_an_init_goes_past_what_it_does_not_meet() -> None:
    """Statements beside a sum that read its result later, or other memory, are no obstacle."""
    text = summed("for i in range(4):", "    for c in range(3):", "        D[i, c] = 2", "    for k in range(3):")
    text += "        for c in range(3):\n            D[i, c] = D[i, c] + C[i]\n"
    sch = schedule(text)
    sch.decompose_reduction("b", "i")
    same(sch, text)


COPY = """
@T.prim_func
def main({params}):
{before}    for i in range({count}):
{lead}        with T.block("b"):
            vi = {iterator}
            B[vi] = {value}
"""
PARAMS = 'X: T.Buffer((14,), "int32"), B: T.Buffer((14,), "int32")'
TILE = "lambda i: [i // 4, i % 4]"


def copied(
    params: str = PARAMS,
    before: str = "",
    count: int = 14,
    lead: str = "",
    iterator: str = "T.axis.spatial(14, i)",
    value: str = "X[vi]",
) -> str:
    return COPY.format(params=params, before=before, count=count, lead=lead, iterator=iterator, value=value)


BESIDE = copied(PARAMS + ', D: T.Buffer((14,), "int32")', lead="        D[i] = X[i]\n")
GUARDED = copied("n: T.int32, " + PARAMS).replace("    for i", "    if n > 5:\n      for i")
SHORT = copied('X: T.Buffer((8,), "int32"), B: T.Buffer((14,), "int32")', count=8)
NARROW = SHORT.replace("spatial(14, i)", "spatial(8, i)")
SCAN = copied(iterator="T.axis.opaque(14, i)", value="X[vi] + T.if_then_else(vi > 0, B[vi - 1], 0)")


@pytest.mark.parametrize(
    "text", [BESIDE, GUARDED, SHORT, NARROW, SCAN], ids=["beside", "guarded", "short", "narrow", "scan"]
)
def test_loops_that_are_rewritten_hold_one_block_over_a_whole_buffer(text: str) -> None:
    """Condition (8) of transform_layout: nothing is thrown away, and nothing is written that was not."""
    with pytest.raises(ScheduleError, match=r"\(8\)"):
        schedule(text).transform_layout("b", "B", "lambda i: [13 - i]", rewrite_loops=True)


@pytest.mark.parametrize("index_map", [TILE, "lambda i: [13 - i]"])
def test_a_copy_is_rewritten_over_its_new_layout(index_map: str) -> None:
    """One block whose loops reach every element goes over physical indices."""
    text = copied()
    sch = schedule(text)
    sch.transform_layout("b", "B", index_map, 0, rewrite_loops=True)
    same(sch, text)


def test_a_condition_that_reads_stays_behind_that_of_the_padding() -> None:
    """Both sides of ``and`` are evaluated: a condition on data of the writer keeps the one that protects its index."""
    text = copied(value="T.if_then_else(X[vi] == 5, T.int32(3), T.int32(0))")
    sch = schedule(text)
    sch.transform_layout("b", "B", "lambda i: [i + 1]", 0, physical_shape=[18], rewrite_loops=True)
    check_in_bounds(sch.func)
    same(sch, text)


@pytest.mark.parametrize("budget", [500, 5000, 20000])
def test_what_is_too_hard_to_decide_is_refused(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """A primitive whose question is beyond its budget raises a ScheduleError, or does without."""
    monkeypatch.setattr(guard, "MAX_OPERATIONS", budget)
    wide = PARTS.replace("extent", str(budget))
    steps: list[Callable[[Schedule], object]] = [
        lambda sch: sch.hoist_expression("b"),
        lambda sch: sch.remove_branching_through_overcompute("b"),
        lambda sch: sch.reindex_cache_read("b", 0, "global", lambda i, j: [i, j]),
    ]
    for step in steps:
        with contextlib.suppress(ScheduleError):
            step(schedule(wide))


PARTS = """
@T.prim_func
def main(X: T.Buffer((extent, 6), "int32"), B: T.Buffer((extent, 42), "int32")):
    for i, j, k in T.grid(extent, 6, 7):
        with T.block("b"):
            vi = T.axis.spatial(extent, i)
            vj = T.axis.spatial(42, j * 7 + k)
            T.where((i * 3 + j) // 2 % 5 < 4 and (j + k * 2) % 3 != 1)
            B[vi, vj] = T.if_then_else((vi + vj) % 4 < 3 and vj // 7 < 6, X[vi, vj // 7], T.int32(0))
"""


PADDED = """
@T.prim_func
def main({params}X: T.Buffer((14,), "int32"), C: T.Buffer((8,), "int32")):
    A = T.alloc_buffer((14,), "int32")
    for {loops}:
        A[i] = X[i]
    for j in range(8):
        C[j] = {value}
"""


@pytest.mark.parametrize(
    ("params", "loops", "value"),
    [("", "i in range(8)", "A[j]"), ("n: T.int32, ", "t, i in T.grid(n, 14)", "X[j]")],
    ids=["half", "none"],
)
def test_a_pad_value_reads_what_has_been_written(params: str, loops: str, value: str) -> None:
    """Condition (4) of transform_layout: a logical element that nobody has stored holds nothing."""
    text = PADDED.format(params=params, loops=loops, value=value)
    with pytest.raises(ScheduleError, match=r"\(4\) .*written"):
        schedule(text).transform_layout("root", "A", TILE, pad_value="lambda a, b: A[3, 1]")


def test_a_pad_value_may_read_an_element_that_is_written() -> None:
    """Condition (4) of transform_layout asks for the elements that are read, and no others."""
    text = PADDED.format(params="", loops="i in range(8)", value="A[j]")
    sch = schedule(text)
    sch.transform_layout("root", "A", TILE, pad_value="lambda a, b: A[1, 3]")
    same(sch, text)


DECIDED = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for a in range(4):
        A[a] = 3
    for i in range(4):
        with T.block("b"):
            vi = T.axis.spatial(4, {binding})
            T.where({cond})
            for k in range({extent}):
                B[vi] = 1
                {other} = 0
"""


@pytest.mark.parametrize(
    ("binding", "cond", "extent"), [("i", "A[i] > 2", "1"), ("i", "i < 4", "A[vi]"), ("A[i]", "i < 1", "1")]
)
def test_what_decides_for_both_parts_is_not_written_by_them(binding: str, cond: str, extent: str) -> None:
    """Condition (2) of distribute: extents, predicates and bindings are evaluated for each part."""
    text = DECIDED.format(binding=binding, cond=cond, extent=extent, other="A[vi]")
    func = parse(text)
    assert isinstance(func, PrimFunc)
    with pytest.raises(ScheduleError, match=r"\(2\)"):
        Schedule(func).distribute("i", 1)


def test_parts_may_be_decided_by_memory_that_they_leave_alone() -> None:
    """Condition (2) of distribute asks for what the parts write."""
    text = DECIDED.format(binding="i", cond="A[i] > 2", extent="1", other="C[vi]")
    sch = schedule(text)
    sch.distribute("i", 1)
    same(sch, text)
