"""The pictures of docs/padding.md: ``python docs/pictures.py`` writes them to docs/pictures/."""

from __future__ import annotations

from pathlib import Path

from stridesmith.ir.picture import layout_picture

FOLDER = Path(__file__).parent / "pictures"
TILES = "lambda i: [i // 4, i % 4]"
HALO = "lambda i: [(i + 2) // 8, (i + 2) % 8]"


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {
        "plain.svg": layout_picture([14], "lambda i: [i]", title="B as the program sees it"),
        "none.svg": layout_picture([14], TILES, title="B in rows of 4, pad_value None"),
        "undef.svg": layout_picture([14], TILES, "undef", title="B in rows of 4, pad_value undef"),
        "zero.svg": layout_picture([14], TILES, 0, title="B in rows of 4, pad_value 0"),
        "lowest.svg": layout_picture([14], TILES, "-inf", title="B in rows of 4, pad_value -inf"),
        "wrap.svg": layout_picture(
            [14], TILES, "lambda io, ii: B[0, (4 * io + ii - 14) % 4]", title="B in rows of 4, repeating its beginning"
        ),
        "front.svg": layout_picture([14], "lambda i: [(i + 2) // 8, (i + 2) % 8]", 0, title="two elements in front"),
        "room.svg": layout_picture(
            [16], TILES, "undef", physical_shape=[5, 4], name="A", title="A with a row more than it needs"
        ),
        "halo_input.svg": layout_picture([16], HALO, 0, name="A", title="the input A of a convolution"),
        "halo_output.svg": layout_picture(
            [18], HALO, 0, name="B", physical_shape=[4, 8], title="its output B, with room for overcompute"
        ),
        "both.svg": layout_picture(
            [6, 7],
            "lambda i, j: [i // 4, j // 4, i % 4, j % 4]",
            "lambda io, jo, ii, ji: T.if_then_else(jo == 1 and ji == 3, 0.0, T.undef())",
            title="tiles of 4 x 4: columns hold 0, rows anything",
        ),
    }


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
