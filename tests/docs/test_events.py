"""The page of events: each event of a run with its fields, as the code defines them."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

import stridesmith
from stridesmith.search.tuning.events import EVENTS, Event, Phase

PACKAGE = Path(stridesmith.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")


def fields_on_the_page(name: str) -> list[str]:
    section = re.search(rf"### `{name}`\n(.*?)(?=\n##|\Z)", PAGE, re.DOTALL)
    assert section, f"docs/events.md has no section on `{name}`"
    return re.findall(r"^\| `(\w+)` \|", section.group(1), re.MULTILINE)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_the_page_has_each_field_in_order(event: type[Event]) -> None:
    """No field of an event is undocumented, and none is documented that does not come."""
    assert fields_on_the_page(event.name) == [field.name for field in dataclasses.fields(event)]


def test_the_page_has_no_other_event_of_a_run() -> None:
    """Each section is about an event that exists."""
    assert re.findall(r"^### `(\w+)`", PAGE, re.MULTILINE) == [event.name for event in EVENTS]


def test_events_of_commands_are_on_the_page() -> None:
    """Every event that a command prints by itself is in the table, with all of its fields."""
    table = PAGE[PAGE.index("## Other commands") :]
    found = 0
    for path in sorted((PACKAGE / "commands").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Dict):
                continue
            pairs = [(k.value, v) for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)]
            names = [v.value for k, v in pairs if k == "event" and isinstance(v, ast.Constant)]
            if not names or names == ["note"]:
                continue
            found += 1
            rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
            (row,) = [cells[3] for cells in rows if f"`{names[0]}`" in cells[1]]
            for key, _ in pairs:
                assert key == "event" or f"`{key}`" in row or "the facts of" in row, f"{names[0]}.{key} in {path.name}"
    assert found >= 10


def test_a_default_is_left_out() -> None:
    """A phase outside of rounds has no `round`."""
    assert Phase(phase="x").to_json() == {"event": "phase", "phase": "x"}
    assert Phase(phase="x", round=0).to_json() == {"event": "phase", "phase": "x", "round": 0}
