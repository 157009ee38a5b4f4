"""Expressions are found from numbers, and what could be another one is looked at where both differ."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.expr import Extent
from stridesmith.ir.text import extent_text
from stridesmith.models.ranges.fitting import Undetermined, fitted
from stridesmith.models.ranges.lifting import Differs, Grid, of_parameters

ALL = np.arange(1, 513)


def text_of(found: Extent | None) -> str:
    assert found is not None
    return extent_text(found)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (lambda n: 3, "3"),
        (lambda n: n, "n"),
        (lambda n: 4 * n + 1, "n * 4 + 1"),
        (lambda n: (n - 3) // 2 + 1, "(n + 1) // 2 + -1"),
        (lambda n: (n + 1) // 2 * 3, "(n + 1) // 2 * 3"),
    ],
)
def test_an_expression_of_one_size_is_found(expression: object, text: str) -> None:
    """Multiples, windows with strides and pads, and upsampling."""
    points = [2, 3, 48, 47, 100, 211, 401, 512]
    assert callable(expression)
    assert text_of(fitted([expression(n) for n in points], {"n": points}, {"n": ALL})) == text


def test_what_is_not_told_apart_is_looked_at() -> None:
    """Sizes that are all even do not tell where an odd one is rounded."""
    with pytest.raises(Undetermined) as caught:
        fitted([1, 2, 8], {"n": [2, 4, 16]}, {"n": ALL})
    assert caught.value.value % 2 == 1
    assert fitted([1, 2, 8], {"n": [2, 4, 16]}, {"n": 2 * ALL}) is not None


def test_products_and_sums_of_two_sizes() -> None:
    """Elements of an image, and the length of what two sizes make together; nothing for a root."""
    known = {"h": [2, 3, 5, 7, 11], "w": [13, 4, 6, 9, 2]}
    possible = {"h": ALL, "w": ALL}
    product, total = ([f(h, w) for h, w in zip(known["h"], known["w"], strict=True)] for f in (
        lambda h, w: 2 * h * w, lambda h, w: h + 3 * w + 1))  # fmt: skip
    assert text_of(fitted(product, known, possible)) == "h * w * 2"
    assert text_of(fitted(total, known, possible)) == "w * 3 + (h + 1)"
    assert fitted([1, 4, 2, 8, 5], known, possible) is None


def test_a_square_has_both_sides_of_one_size() -> None:
    """The elements of an image whose sides are the same size; nothing for what is beside it."""
    points = [2, 3, 48, 47, 100]
    assert text_of(fitted([3 * n * n for n in points], {"n": points}, {"n": ALL})) == "n * n * 3"
    assert fitted([n * n + (n == 47) for n in points], {"n": points}, {"n": ALL}) is None


def test_numbers_that_no_expression_gives_are_told_with_their_sizes() -> None:
    """Two of them that differ, each with the sizes that it is seen at."""
    grid = Grid({"n": np.array([2, 3, 4, 5]), "m": np.array([8, 8, 8, 9])})
    with pytest.raises(Differs) as refused:
        of_parameters([1, 1, 7, 2], grid, [0, 1, 2, 3])
    assert str(refused.value) == (
        "an extent of its result is 1 where n = 2, m = 8, and 7 where n = 4, m = 8; "
        "no sum, product, `//` or `%` of n and m was found that is so at all sizes"
    )
