"""The tree of errors: what a user can catch, and with which code the command ends."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import stridesmith
from stridesmith import errors
from stridesmith.errors import InternalError, ProgramError, StridesmithError

ROOT = Path(stridesmith.__file__).resolve().parent
NOT_SHIPPED = {"tests", "benchmarks", "docs", "build", "dist"}
if importlib.util.find_spec("torch") is None:
    NOT_SHIPPED |= {"pytorch"}  # a package that PyTorch is an extra for
NAMED = re.compile(r"^class (\w+)\(.*\b(\w*(?:Error|Exception))\b", re.MULTILINE)


def modules() -> list[Path]:
    found = (p for p in ROOT.rglob("*.py") if not NOT_SHIPPED & set(p.relative_to(ROOT).parts))
    return sorted(p for p in found if "class " in p.read_text(encoding="utf-8") and not p.name.startswith("__"))


def exceptions() -> list[type[BaseException]]:
    """Every class of exceptions that a module of the package defines, without those that no other module sees."""
    found = []
    for path in modules():
        if not NAMED.search(path.read_text(encoding="utf-8")):
            continue
        name = "stridesmith." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for cls in vars(importlib.import_module(name)).values():
            own = inspect.isclass(cls) and issubclass(cls, BaseException) and cls.__module__ == name
            if own and not cls.__name__.startswith("_"):
                found.append(cls)
    return found


def test_every_error_is_a_stridesmith_error() -> None:
    """``except StridesmithError`` catches whatever the package raises by a name of its own, but what is no error.

    That is what no handler of errors may take for one, as the end of a run's time.
    """
    found = [cls for cls in exceptions() if issubclass(cls, Exception)]
    assert len(found) > 30
    assert [cls for cls in found if not issubclass(cls, StridesmithError)] == []


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Each class stands in the drawing, below its parent's code, and no name occurs twice."""
    drawn = errors.__doc__ or ""
    names = [cls.__name__ for cls in exceptions() if issubclass(cls, Exception)]
    assert sorted(names) == sorted(set(names))
    for name in names:
        assert re.search(rf"\b{name}\b", drawn), f"{name} is not in the tree of errors.py"
    for line in drawn.splitlines():
        row = re.match(r"[│├└─ ]*(\w+) +(\d+)  (\w+)", line)
        if row:
            cls = next(cls for cls in exceptions() if cls.__name__ == row[1])
            assert (cls.exit_code, cls.kind) == (int(row[2]), row[3])


@pytest.mark.parametrize("cls", exceptions(), ids=lambda cls: cls.__name__)
def test_codes_tell_whose_fault_it_is(cls: type[StridesmithError]) -> None:
    """Refused programs end the command with 2, what is internal with 1."""
    if issubclass(cls, ProgramError):
        assert cls.exit_code == 2
    if issubclass(cls, InternalError):
        assert (cls.exit_code, cls.kind) == (1, "internal")
    assert cls.__name__ not in vars(builtins)
