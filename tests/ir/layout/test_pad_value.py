"""Pad values are text and back, mean what they say at every element, and nothing in them is evaluated."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith import T
from stridesmith.ir.expr import Buffer, Const, Undef, Var, const
from stridesmith.ir.interpreter.memory import DEFINED, FORBIDDEN, UNDEF
from stridesmith.ir.interpreter.pads import pad_contents
from stridesmith.ir.layout.pad_value import PadValue, PadValueError, encode

B = Buffer("B", (4, 4), "float32")
AXES = (Var("io"), Var("ii"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (lambda io, ii: None, ""),
        ("undef", "undef"),
        (ss.undef, "undef"),
        (T.undef("float32"), "undef"),
        (lambda io, ii: ss.undef(), "undef"),
        (0, "0.0"),
        (0.0, "0.0"),
        (lambda io, ii: 0.0, "0.0"),
        (lambda *indices: -1, "-1.0"),
        ("-inf", "-inf"),
        (float("inf"), "inf"),
        (const(2.0, "float32"), "2.0"),
        (lambda io, ii: B[0, (4 * io + ii - 14) % 4], "lambda io, ii: B[0, (4 * io + ii - 14) % 4]"),
        (
            lambda a, b: T.if_then_else(a < 3, T.float32(1), ss.undef()),
            'lambda a, b: T.if_then_else(a < 3, T.float32(1.0), T.undef("float32"))',
        ),
        (
            "lambda a, b: T.if_then_else(a < 2, None, 3)",
            "lambda a, b: T.if_then_else(a < 2, None, T.float32(3.0))",
        ),
    ],
)
def test_every_form_is_text_and_back(value: Any, text: str) -> None:
    """What RFC 0077 calls equivalent is equal, and `parse` inverts `text`."""
    made = PadValue.make(value, B, AXES)
    assert made.text == text
    assert PadValue.parse(made.text, B, AXES) == made
    assert PadValue.make(encode(value), B, AXES) == made


@pytest.mark.parametrize(
    ("value", "dtype", "sentence"),
    [
        (0.5, "int32", "is not a int32"),
        (2**63, "int64", "is not a int64"),
        ("1e40", "int64", "is not a int64"),
        ("inf", "int32", "is not a int32"),
        (float("nan"), "int32", "is not a int32"),
        (2, "bool", "is not a bool"),
        (1e5, "float16", "is not a float16"),
        (10**39, "float32", "is not a float32"),
        ("lambda i, j: T.if_then_else(i < 2, 1e5, 0)", "float16", "the number 100000.0 is no float16"),
        (300, "uint8", "is not a uint8"),
        ("zero", "float32", "must be None"),
        ("lambda i: i", "float32", "takes 1 indices, but `B` has 2"),
        ("lambda i, j: C[i, j]", "float32", "`C` is not defined"),
        ("lambda i, j: __import__('os')", "float32", "element type"),
        ("lambda i, j=1: i", "float32", "is not a pad value"),
        ("lambda *i: 0", "float32", "is not a pad value"),
        ("lambda i, j: (", "float32", "is not a pad value"),
        (Var("k"), "float32", "function of the transformed indices"),
        (object(), "float32", "but got"),
    ],
)
def test_what_is_no_pad_value_is_refused(value: Any, dtype: str, sentence: str) -> None:
    """The refusal says what a pad value is, or which name or type does not fit."""
    with pytest.raises(PadValueError, match=sentence):
        PadValue.make(value, Buffer("B", (4, 4), dtype), AXES)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**63 - 1, "int64"), (-(2**63), "int64"), (2**53 + 1, "int64"), (255, "uint8"),
        (True, "bool"), (False, "bool"), (65504.0, "float16"), (-math.inf, "float16"), (3.39e38, "bfloat16"),
    ],
)  # fmt: skip
def test_numbers_are_exact_and_their_text_reads_back(value: Any, dtype: str) -> None:
    """A pad value is the number that was given: no integer passes through a float."""
    buffer = Buffer("B", (4, 4), dtype)
    made = PadValue.make(value, buffer, AXES)
    assert made.single == const(value, dtype)
    assert PadValue.parse(made.text, buffer, AXES) == made


def test_text_is_never_evaluated() -> None:
    """Reading hostile text opens, imports and runs nothing."""
    events: list[str] = []
    watching = True

    def hook(event: str, args: tuple[object, ...]) -> None:
        if watching and event in ("exec", "open", "import", "os.system", "subprocess.Popen"):
            events.append(event)

    PadValue.make("lambda i, j: i + j", B, AXES)
    sys.addaudithook(hook)
    for text in ("lambda i, j: __import__('os').system('true')", "lambda i, j: eval('1')", "lambda i, j: open('x')"):
        with pytest.raises(PadValueError):
            PadValue.make(text, B, AXES)
    watching = False
    assert events == []


def test_contents_are_those_of_the_pieces() -> None:
    """Each padding element holds the value of the first piece that applies to it; a load reads data."""
    text = "lambda io, ii: T.if_then_else(ii == 3, None, T.if_then_else(ii == 2, T.undef(), B[0, io] * 2))"
    value = PadValue.make(text, B, AXES)
    data = np.arange(16, dtype="float32")
    padding = np.zeros(16, bool)
    padding[[5, 10, 11, 13]] = True
    values, states = pad_contents(value, B, data, padding)
    assert list(states) == [DEFINED, UNDEF, FORBIDDEN, DEFINED]
    assert (values[0], values[3]) == (2.0, 6.0)


def test_at_gives_each_piece_without_those_before_it() -> None:
    """Conditions of pieces exclude each other."""
    value = PadValue.make("lambda io, ii: T.if_then_else(io < 2, 1, T.if_then_else(ii < 2, 2, None))", B, AXES)
    pieces = value.at(AXES)
    assert [v if v is None else v.value for _, v in pieces if not isinstance(v, Undef)] == [1.0, 2.0, None]
    for point in np.ndindex(4, 4):
        held = [k for k, (cond, _) in enumerate(pieces) if _holds(cond, point)]
        assert held == [0 if point[0] < 2 else 1 if point[1] < 2 else 2]


def _holds(cond: Any, point: tuple[int, ...]) -> bool:
    from stridesmith.ir.layout.index_text import evaluate

    env = {v.name: p for v, p in zip(AXES, point, strict=True)}
    return bool(cond.value) if isinstance(cond, Const) else bool(evaluate(cond, env))
