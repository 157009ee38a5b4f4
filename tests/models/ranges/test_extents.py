"""Extents of inputs that are expressions of sizes are read as exporters write them, and solved for in a call."""

from __future__ import annotations

import pytest

from stridesmith.ir.text import extent_text
from stridesmith.models.ranges.extents import expression, extent_at, sizes_in, solved


@pytest.mark.parametrize(
    ("text", "shown", "sizes"),
    [
        ("n*32", "n * 32", ("n",)), ("32 * n", "32 * n", ("n",)), ("2*s0 - 1", "2 * s0 - 1", ("s0",)),
        ("s0*s1", "s0 * s1", ("s0", "s1")), ("(n + 3)//4", "(n + 3) // 4", ("n",)),
    ],
)  # fmt: skip
def test_sums_of_products_are_read(text: str, shown: str, sizes: tuple[str, ...]) -> None:
    """With the sizes that they are over."""
    found = expression(text)
    assert found is not None and (extent_text(found), sizes_in(found)) == (shown, sizes)


@pytest.mark.parametrize(
    "text",
    ["n", "7", "2*3", "", "n**2", "n/2", "f(n)", "n[0]", "n*2.5", "n*True", "n if n else 1", "n*", "a b", "(" * 300,
     "n" + "*n" * 200],
)  # fmt: skip
def test_what_is_none_is_none(text: str) -> None:
    """Names and numbers alone among them."""
    assert expression(text) is None


def test_the_size_that_is_not_known_is_solved_for() -> None:
    """Where it is one, and a whole number gives the extent."""
    for text, size, known, wanted in (
        ("n*32", 64, {}, ("n", 2)), ("n*32", 65, {}, None), ("2*n - 1", 7, {}, ("n", 4)), ("n*m", 12, {}, None),
        ("n*m", 12, {"n": 3}, ("m", 4)), ("n*m", 12, {"n": 5}, None), ("n*m", 12, {"n": 3, "m": 4}, None),
        ("n//2", 3, {}, None), ("n*0", 0, {}, None),
    ):  # fmt: skip
        found = expression(text)
        assert found is None or solved(found, size, known) == wanted, text
    made = expression("3*n + m")
    assert made is not None and extent_at(made, {"n": 4, "m": 5}) == 17
