"""The page about schedules has the primitives as they describe themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.reference import reference, with_reference
from stridesmith.space.wrappers import WRAPPERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedules.md"


def test_the_reference_is_that_of_the_code() -> None:
    """Every primitive with its signature, equation and conditions, word for word.

    STRIDESMITH_UPDATE_PAGES=1 writes it.
    """
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("STRIDESMITH_UPDATE_PAGES"):
        PAGE.write_text(with_reference(page), encoding="utf-8")
        return
    assert page == with_reference(page), "run this test with STRIDESMITH_UPDATE_PAGES=1"


@pytest.mark.parametrize("name", [*PRIMITIVES, *WRAPPERS])
def test_every_primitive_is_in_the_reference(name: str) -> None:
    """A call for each, without the function that it rewrites."""
    assert f"```\n{name}(" in reference()
    assert f"{name}(func:" not in reference()


def test_a_page_without_marks_is_refused() -> None:
    """There must be a place for the reference."""
    with pytest.raises(ValueError, match="the page has no marks"):
        with_reference("# A page")
