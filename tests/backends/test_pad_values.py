"""Compiled kernels and their packing keep what a layout says of padding, expressions included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import arguments_of, pack, pad_values, padding, unpack
from stridesmith.ir.interpreter.memory import DEFINED, FORBIDDEN, UNDEF
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.schedule import Schedule

TEXT = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    for i in range(14):
        with T.block("double"):
            vi = T.axis.spatial(14, i)
            B[vi] = A[vi] * 2.0
"""
WRAP = "lambda io, ii: {0}[0, (4 * io + ii - 14) % 4]"


def laid_out(buffer: str, pad: Any) -> PrimFunc:
    func = ss.parse(TEXT)
    assert isinstance(func, PrimFunc)
    sch = Schedule(func)
    sch.transform_layout("double", buffer, lambda i: [i // 4, i % 4], pad)
    return sch.func


@pytest.mark.parametrize(
    ("pad", "wanted"),
    [(0, [0, 0]), (WRAP.format("A"), [0, 1]), ("lambda io, ii: io + ii * 0.5", [4.0, 4.5])],
)
def test_packing_fills_padding_by_its_expression(pad: Any, wanted: list[float]) -> None:
    """A number, the data itself, and a function of the indices; unpacking gives the data back."""
    argument = arguments_of(laid_out("A", pad))[0]
    logical = np.arange(14, dtype="float32")
    physical = pack(argument, logical, np.full((4, 4), np.nan, "float32"))
    assert list(padding(argument, physical)) == wanted
    np.testing.assert_array_equal(unpack(argument, physical), logical)


def test_pieces_without_a_value_keep_what_is_there() -> None:
    """None and undef leave the caller's fill; the states tell them apart."""
    text = "lambda io, ii: T.if_then_else(ii == 2, None, T.undef())"
    argument = Argument("A", Layout.parse((14,), "lambda i: [i // 4, i % 4]", text, (5, 4)), "float32")
    physical = pack(argument, np.zeros(14, "float32"), np.full((5, 4), 9, "float32"))
    assert set(padding(argument, physical)) == {9.0}
    states = list(pad_values(argument, physical)[1])
    assert states == [FORBIDDEN if k % 4 == 2 else UNDEF for k in range(14, 20)] and DEFINED not in states


@pytest.mark.parametrize("pad", [0, 7.5, WRAP.format("B"), "lambda io, ii: io + ii"])
def test_a_kernel_writes_the_padding_that_its_output_promises(pad: Any) -> None:
    """The caller's array holds the pad value after a call; the signature says which."""
    func = laid_out("B", pad)
    kernel = ss.build(func, "cpu")
    out = np.full((4, 4), np.nan, "float32")
    data = np.arange(14, dtype="float32")
    kernel(data, out=out)
    argument = kernel.signature[1]
    np.testing.assert_array_equal(kernel.to_logical("B", out), data * 2)
    np.testing.assert_array_equal(padding(argument, out), pad_values(argument, out)[0])
    np.testing.assert_array_equal(out, kernel.to_physical("B", data * 2))


def test_the_interpreter_marks_padding_by_its_pieces() -> None:
    """Reading padding that a piece forbids is an error; what is undef there may be read."""
    func = laid_out("A", None)
    text = func.script().replace("B[vi] = A[vi // 4, vi % 4]", "B[vi] = A[3, 2]")
    for pad, forbidden in (("", True), ("lambda a, b: T.if_then_else(b == 3, None, 1.0)", False)):
        program = ss.parse(text.replace('[i // 4, i % 4]", ""', f'[i // 4, i % 4]", "{pad}"'))
        assert isinstance(program, PrimFunc)
        arrays = np.ones((4, 4), "float32"), np.empty(14, "float32")
        if forbidden:
            with pytest.raises(RuntimeError, match="padding that holds nothing"):
                ss.interpret(program, *arrays)
        else:
            ss.interpret(program, *arrays)
            assert set(arrays[1]) == {2.0}


def test_layouts_that_are_asked_for_are_applied_when_a_kernel_is_built() -> None:
    """RFC 0039: the attribute is applied as part of lowering; the kernel is that of the schedule."""
    entry = '{"B": [("lambda i: [i // 4, i % 4]", 7)]}'
    asked = TEXT.replace("    for i in", f'    T.func_attr({{"layout_transform_map": {entry}}})\n    for i in')
    func = ss.parse(asked)
    assert isinstance(func, PrimFunc)
    kernel = ss.build(func, "cpu")
    at_once = laid_out("B", 7)
    assert kernel.signature == arguments_of(at_once)
    assert ss.lower(func, "cpu") == ss.lower(at_once, "cpu")
    data = np.arange(14, dtype="float32")
    np.testing.assert_array_equal(kernel(data), kernel.to_physical("B", data * 2))
