"""The page about the language says what the code says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from stridesmith.ir import expr, statements, stmt
from stridesmith.ir.syntax.words import EXPRESSIONS, OPAQUE, STATEMENTS
from stridesmith.ir.verify.rules import listing

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")


def test_rules_are_those_of_the_code() -> None:
    """The list of rules is the catalogue's, word for word."""
    shown = PAGE.split("## Rules")[1]
    shown = "".join(line + "\n" for line in shown.splitlines() if re.match(r"\d+\. ", line))
    assert shown == listing(), f"the list should be\n{listing()}"


@pytest.mark.parametrize("module", [expr, statements, stmt])
def test_grammar_is_that_of_the_modules(module: object) -> None:
    """The grammar on the page is the one at the top of the modules."""
    text = str(module.__doc__).split("::\n\n", 1)[1]
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    grammar = textwrap.dedent("\n".join(lines)).strip()
    assert f"```\n{grammar}\n```" in PAGE, grammar


def test_words_of_the_page_exist() -> None:
    """Every `T.name` that the page mentions is one that the parser knows, but for deliberate mistakes."""
    known = EXPRESSIONS | STATEMENTS | {"Buffer", "prim_func", "handle", "axis", "seriall", "address_of"}
    used = set(re.findall(r"\bT\.(\w+)", PAGE))
    assert {name for name in used if not name.startswith(OPAQUE)} <= known
