"""Numbers that users give: what is one, and what Python alone would take for one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.errors import UsageError
from stridesmith.numerals import as_real, as_whole, at_least_one, count, real, seed_of, time_limit, truth, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), (" 12 ", 12), ("-3", -3), ("+3", 3), ("１２", None), ("²", None), ("٥", None), ("1_000", None)]
    + [(text, None) for text in ("", "1.0", "0x10", "1 2", "-", "9" * 101)],
)
def test_whole_numbers_are_digits_from_0_to_9(text: str, number: int | None) -> None:
    """Neither digits of other scripts nor underscores; `count` takes no sign either."""
    assert whole(text) == number
    assert count(text) == (None if text[:1] in "+-" else number)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1.0), ("1.", 1.0), (".5", 0.5), ("-1e-3", -0.001), (" 2.5 ", 2.5), ("inf", np.inf)]
    + [(text, None) for text in ("", ".", "１.5", "1_0.5", "1e", "0x1p3", "one")],
)
def test_numbers_are_written_as_people_write_them(text: str, number: float | None) -> None:
    """As JSON and shells have them."""
    assert real(text) == number


@pytest.mark.parametrize(
    ("value", "is_whole", "is_real"),
    [(3, True, True), (np.int64(3), True, True), (3.0, False, True), (np.float32(3), False, True)]
    + [(value, False, False) for value in (True, np.True_, "3", None, Decimal(3), np.array(3), [3])],
)
def test_texts_and_truth_values_are_no_numbers(value: Any, is_whole: bool, is_real: bool) -> None:
    """Those of NumPy's types are."""
    assert as_whole(value) == (3 if is_whole else None)
    assert as_real(value) == (3.0 if is_real else None)


@pytest.mark.parametrize(
    "wrong",
    [lambda: time_limit("5"), lambda: time_limit(-1), lambda: time_limit(np.nan), lambda: seed_of(True),
     lambda: seed_of(2**63), lambda: truth("winograd", "no"), lambda: at_least_one("runs", 0)],
)  # fmt: skip
def test_an_option_says_what_it_takes(wrong: Any) -> None:
    """In one sentence, with the value that it got."""
    with pytest.raises(UsageError, match=r"^`\w+` is [^;]*, but got \S+$"):
        wrong()
    assert (time_limit(None), time_limit(2), seed_of(np.int64(7)), truth("winograd", False)) == (0.0, 2.0, 7, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seconds": "5"}, "seconds='5': Input should be a number, and no text or truth value"),
        ({"trials": True}, "trials=True: Input should be a whole number"),
        ({"trials": 8.0}, "trials=8.0: Input should be a whole number"),
        ({"seed": "1"}, "seed='1': Input should be a whole number"),
        ({"resume": "no"}, "resume='no': Input should be a valid boolean"),
        ({"likely": {"m": {"1": 0.5}}}, "likely='1': likely numbers of a size"),
        ({"target": None}, "target=None: Input should be a valid string"),
        ({"emit": 3}, "`emit` is a function that is called with each event, but got 3"),
    ],
)
def test_a_search_takes_no_text_for_a_number(options: dict[str, Any], sentence: str) -> None:
    """Nor what is no function for one; nothing has begun then."""
    with pytest.raises(UsageError, match=sentence.replace("(", r"\(")):
        ss.tune("matmul", **{"trials": 1, **options})
    with pytest.raises(TypeError, match="`generate` is a function"):
        ss.tune("matmul", trials=1, generate=3)
