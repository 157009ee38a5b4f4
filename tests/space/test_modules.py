"""Schedules of modules: functions share buffers, layouts change together, and what is assumed is proven."""

from __future__ import annotations

from typing import Any

import pytest
from goldens.execute import same_results

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Module, PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

PAIR = """
@T.ir_module
class Pair:
    @T.prim_func
    def producer(X: T.Buffer((14,), "int32"), A: T.Buffer((14,), "int32")):
        for i in T.serial(14):
            A[i] = X[i] + 1

    @T.prim_func
    def consumer(A: T.Buffer((14,), "int32"), B: T.Buffer((1,), "int32")):
        B[0] = 0
        for i in T.serial(14):
            B[0] = B[0] + A[i]
"""


def module(text: str = PAIR) -> Module:
    found = parse(text)
    assert isinstance(found, Module)
    return found


def check(sch: Schedule, original: Module | PrimFunc) -> None:
    """Valid, printable, replayable, equal results."""
    verify(sch.module)
    assert parse(sch.module.script()) == sch.module
    assert Trace.from_json(sch.trace.to_json()).replay(original).module == sch.module
    same_results(original, sch.module)


def test_functions_are_worked_on_by_name() -> None:
    """`mod` has every function; primitives act on one; the choice is part of the trace."""
    sch = Schedule(module())
    assert set(sch.mod) == {"main", "producer", "consumer"} and sch.func.name == "producer"
    sch.work_on("consumer")
    sch.split("i", [None, 5])
    check(sch, module())
    assert sch.mod["consumer"] is sch.mod["main"] is sch.func
    assert sch.mod["producer"] == Schedule(module()).func
    with pytest.raises(ScheduleError, match=r"\(1\) there is no function `maker`; there are producer, consumer"):
        sch.work_on("maker")


@pytest.mark.parametrize("start", ["producer", "consumer"])
@pytest.mark.parametrize("pad", [None, "undef", 0, "lambda io, ii: A[0, ii]", "lambda io, ii: io + ii"])
def test_a_shared_buffer_changes_everywhere(start: str, pad: Any) -> None:
    """The producer writes the padding, the consumer assumes it, whichever function is worked on."""
    sch = Schedule(module())
    sch.work_on(start)
    sch.transform_layout("root", "A", lambda i: [i // 4, i % 4], pad)
    check(sch, module())
    assert all(f.layouts[0][0] == "A" for f in sch.module.functions)
    assert ("T.assume" in sch.mod["consumer"].script()) == (pad is not None)
    assert "T.assume" not in sch.mod["producer"].script()


def test_a_buffer_that_is_not_shared_changes_alone() -> None:
    """`B` belongs to the consumer, `X` to the producer."""
    sch = Schedule(module())
    sch.transform_layout("root", "X", lambda i: [i // 4, i % 4], 0)
    check(sch, module())
    assert sch.mod["consumer"] == Schedule(module()).mod["consumer"]


def test_an_input_of_the_whole_module_is_assumed_in_every_reader() -> None:
    """Nobody writes it, so that its padding is the caller's word."""
    text = PAIR.replace("A[i] = X[i] + 1", "C[i] = A[i]").replace(
        'X: T.Buffer((14,), "int32"), A: T.Buffer((14,), "int32")',
        'A: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")',
    )
    sch = Schedule(module(text))
    sch.transform_layout("root", "A", lambda i: [i // 4, i % 4], 0)
    check(sch, module(text))
    assert sch.module.script().count("T.assume") == 2


def test_a_reader_before_the_writer_is_refused() -> None:
    """Condition 10: what the first function reads is not what the second wrote."""
    functions = module().functions
    sch = Schedule(Module((functions[1], functions[0])))
    with pytest.raises(ScheduleError, match=r"\(10\) `consumer` reads the padding of `A` before `producer` writes it"):
        sch.transform_layout("root", "A", lambda i: [i // 4, i % 4], 0)


def test_functions_that_disagree_about_a_buffer_are_refused() -> None:
    """Condition 9 shows how the other function declares it."""
    text = PAIR.replace('def consumer(A: T.Buffer((14,), "int32")', 'def consumer(A: T.Buffer((15,), "int32")')
    with pytest.raises(ScheduleError, match=r"\(9\) `consumer` declares the shared buffer `A` as Buffer\(A\[15\]"):
        Schedule(module(text)).transform_layout("root", "A", lambda i: [i // 4, i % 4], 0)


def test_rewriting_loops_of_a_shared_buffer_is_left_to_another_primitive() -> None:
    """Condition 8: each function has loops of its own."""
    with pytest.raises(ScheduleError, match=r"\(8\) several functions share `A`; use sequential_buffer_access"):
        Schedule(module()).transform_layout("root", "A", lambda i: [i // 4, i % 4], 0, rewrite_loops=True)


def test_axis_separators_of_a_shared_buffer_change_everywhere() -> None:
    """Both functions group the axes alike."""
    sch = Schedule(module())
    sch.transform_layout("root", "A", lambda i: [i // 4, i % 4], 0)
    sch.set_axis_separator("root", "A", [1])
    assert [b.axis_separators for f in sch.module.functions for b in f.buffers if b.name == "A"] == [(1,), (1,)]
    check(sch, module())


CONSTANT = """
@T.prim_func
def main(w: T.Buffer((14,), "int32"), x: T.Buffer((14,), "int32"), C: T.Buffer((1,), "int32")):
    C[0] = 0
    for i in T.serial(14):
        C[0] = C[0] + w[i] * x[i]
"""


@pytest.mark.parametrize("pad", [None, "undef", 0])
def test_packing_of_a_constant_is_a_function_of_its_own(pad: Any) -> None:
    """The packed buffer takes the constant's place; what packing leaves in the padding is assumed, and no more."""
    original = parse(CONSTANT)
    assert isinstance(original, PrimFunc)
    sch = Schedule(original)
    sch.cache_read("root", "w", "global")
    sch.transform_layout("root", "w_global", lambda i: [i // 4, i % 4], pad_value=pad)
    assert sch.split_packing("w_global") == "pack_w_global"
    check(sch, original)
    assert [f.name for f in sch.module.functions] == ["pack_w_global", "main"]
    assert [b.name for b in sch.mod["pack_w_global"].buffers] == ["w", "w_global"]
    assert [b.name for b in sch.mod["main"].buffers] == ["w_global", "x", "C"]
    assert sch.mod["main"].script().count("T.assume") == (0 if pad is None else 1)


def test_packing_inside_one_conditional_is_understood() -> None:
    """A copy that chooses between data and zero leaves zero where it does not copy."""
    text = CONSTANT.replace("    C[0] = 0\n", """    p = T.alloc_buffer((4, 4), "int32")
    for io, ii in T.grid(4, 4):
        p[io, ii] = T.if_then_else(4 * io + ii < 14, w[4 * io + ii], 0)
    C[0] = 0
""").replace("w[i] * x", "p[i // 4, i % 4] * x")  # fmt: skip
    original = parse(text)
    assert isinstance(original, PrimFunc)
    sch = Schedule(original)
    sch.split_packing("p", "pack")
    check(sch, original)
    assert "T.assume(" in sch.mod["main"].script()


@pytest.mark.parametrize(
    ("text", "buffer", "sentence"),
    [
        (CONSTANT, "q", r"\(1\) the root block allocates no `q`; it allocates none"),
        (
            CONSTANT.replace("    C[0] = 0\n", '    p = T.alloc_buffer((4,), "int32")\n    C[0] = 0\n'),
            "p",
            r"\(2\) nothing writes `p`",
        ),
        (
            CONSTANT.replace("    C[0] = 0\n", (
                '    p = T.alloc_buffer((1,), "int32")\n    C[0] = 0\n    p[0] = C[0]\n    C[0] = p[0]\n'
            )),
            "p",
            r"\(3\) what fills `p` touches `C`",
        ),
    ],
)  # fmt: skip
def test_split_packing_refuses(text: str, buffer: str, sentence: str) -> None:
    """Conditions 1 to 3."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    with pytest.raises(ScheduleError, match=sentence):
        Schedule(original).split_packing(buffer)
