"""Programs and tables as HTML: readable on every ground, and notes where they belong."""

from __future__ import annotations

import re

import pytest

from stridesmith.ir.markup import COLOURS, program, table

GROUNDS = {"light": ((33, 33, 33), (255, 255, 255)), "dark": ((194, 197, 204), (30, 33, 41))}
"""The colour of text, and what is behind it."""


def luminance(colour: tuple[float, ...]) -> float:
    """The relative luminance of WCAG 2."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("kind", COLOURS)
def test_colours_of_programs_are_readable_on_light_and_on_dark_ground(ground: str, kind: str) -> None:
    """At least 4.5 to 1, which WCAG asks of small text; the style mixes what the test mixes."""
    text, behind = GROUNDS[ground]
    own = tuple(int(COLOURS[kind][at : at + 2], 16) for at in (1, 3, 5))
    mixed = luminance(tuple((a + b) / 2 for a, b in zip(text, own, strict=True)))
    other = luminance(behind)
    assert (max(mixed, other) + 0.05) / (min(mixed, other) + 0.05) >= 4.5


def test_a_token_is_coloured_relative_to_the_text_around_it() -> None:
    html = program("for i in range(4):  # rows")
    assert set(re.findall(r'style="color:([^"]*)"', html)) == {
        f"color-mix(in srgb, currentcolor 50%, {COLOURS[kind]})" for kind in ("loop", "note")
    }


def test_notes_stand_below_a_table_and_are_no_markup() -> None:
    html = table("", ("a",), [("1",)], ["2 < 3"])
    assert html.endswith("</table><div>2 &lt; 3</div></div>") and "<b>" not in html
    assert table("best", ("a",), [("1",)]).startswith("<div><b>best</b><table>")
