"""The references in the pages are what the code says of itself, and leave nothing out."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import stridesmith
from stridesmith.search.tuning.settings import TuneSettings
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.wrappers import WRAPPERS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def references() -> ModuleType:
    """docs/references.py."""
    spec = importlib.util.spec_from_file_location("references", DOCS / "references.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_references_are_those_of_the_code(references: ModuleType) -> None:
    """`python docs/references.py` changes nothing."""
    for name, reference in references.pages().items():
        page = (DOCS / name).read_text(encoding="utf-8")
        assert page == references.with_reference(page, reference), "run `python docs/references.py`"


@pytest.mark.parametrize("name", [*PRIMITIVES, *WRAPPERS])
def test_every_primitive_is_in_the_reference(references: ModuleType, name: str) -> None:
    """A call for each, without the function that it rewrites."""
    text = references.of_primitives()
    assert f"```\n{name}(" in text and f"{name}(func:" not in text


def test_every_public_call_is_in_the_reference(references: ModuleType) -> None:
    """Functions, classes with their methods; `ss.tune` has every setting by name."""
    text = references.of_public_names()
    for name in stridesmith.__all__:
        value = getattr(stridesmith, name)
        if callable(value):
            assert f"```\n{name}(" in text or f"```\nclass {name}\n" in text
    assert "    Kernel.__call__(" in text and "    Schedule.get_loops(" in text
    given = {"workload", "params", "script", "script_name", "faults"}
    signature = inspect.signature(stridesmith.tune).parameters
    assert not set(TuneSettings.model_fields) - given - set(signature), "a setting that `ss.tune` does not take"


def test_a_page_without_marks_is_refused(references: ModuleType) -> None:
    """There must be a place for the reference."""
    with pytest.raises(ValueError, match="the page has no marks"):
        references.with_reference("# A page", "")
