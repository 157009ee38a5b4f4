"""The pictures of docs/padding.md are those that the code draws, and each cell shows what lies there."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from stridesmith.ir.expr import Buffer
from stridesmith.ir.passes.relayout import LayoutError, make_change
from stridesmith.ir.picture import Cell, cells, layout_picture

DOCS = Path(__file__).resolve().parents[2] / "docs"


def pictures() -> dict[str, str]:
    """What docs/pictures.py draws."""
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn: dict[str, str] = module.pictures()
    return drawn


def test_the_committed_pictures_are_the_drawn_ones() -> None:
    """`python docs/pictures.py` changes nothing, and no other picture is there."""
    drawn = pictures()
    assert {p.name for p in (DOCS / "pictures").iterdir()} == drawn.keys()
    for name, svg in drawn.items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == svg, f"run `python docs/pictures.py`: {name}"


def test_the_page_shows_every_picture() -> None:
    """Each picture is on the page, and each image of the page is a picture."""
    text = (DOCS / "padding.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(pictures/([^)]+)\)", text)) == pictures().keys()


def test_a_picture_is_well_formed_and_within_its_frame() -> None:
    """Every rectangle and every label of a picture lies inside of it."""
    for name, svg in pictures().items():
        root = ElementTree.fromstring(svg)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for item in root:
            if item.tag.endswith("rect"):
                sides = (("x", "width"), ("y", "height"))
                right, bottom = (float(item.get(start, 0)) + float(item.attrib[size]) for start, size in sides)
                assert right <= width and bottom <= height, name
            elif item.tag.endswith("text"):
                room = len(item.text or "") * 7.2
                start = {"start": 0.0, "middle": room / 2, "end": room}[item.attrib["text-anchor"]]
                left = float(item.attrib["x"]) - start
                assert left >= 0 and left + room <= width and float(item.attrib["y"]) <= height, (name, item.text)


@pytest.mark.parametrize(
    ("pad_value", "wanted"),
    [
        (None, [Cell("none", "×"), Cell("none", "×")]),
        ("undef", [Cell("undef", "?"), Cell("undef", "?")]),
        (0, [Cell("number", "0.0"), Cell("number", "0.0")]),
        ("lambda io, ii: B[0, (4 * io + ii - 14) % 4]", [Cell("copy", "=0"), Cell("copy", "=1")]),
        ("lambda io, ii: B[0, 0] + T.float32(1)", [Cell("other", "f"), Cell("other", "f")]),
    ],
)
def test_cells_say_what_padding_holds(pad_value: object, wanted: list[Cell]) -> None:
    """Data by its logical index, padding by its meaning."""
    found = cells(make_change(Buffer("B", (14,)), "lambda i: [i // 4, i % 4]", pad_value))
    assert [found[3, 2], found[3, 3]] == wanted
    assert {point: cell.text for point, cell in found.items() if cell.kind == "data"} == {
        (i // 4, i % 4): str(i) for i in range(14)
    }


def test_what_cannot_be_drawn_is_refused() -> None:
    """A map that is no layout, and a buffer with too many elements."""
    with pytest.raises(LayoutError, match="not injective"):
        layout_picture([14], "lambda i: [i // 4]")
    with pytest.raises(ValueError, match="at most 4096 elements, but B has 10000; draw a smaller buffer"):
        layout_picture([100, 100], "lambda i, j: [i, j]")
