"""Layouts as one value: where elements lie, what padding holds, equality, JSON now and as it was."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from stridesmith.errors import BadRecord
from stridesmith.ir.expr import Buffer
from stridesmith.ir.layout.index_map import IndexMap, IndexMapError
from stridesmith.ir.layout.layout import Dim, Layout

SHAPE = (1, 20, 7, 7)
PACKED = (Dim(1, "block", 8), Dim(0), Dim(2, "block", 4), Dim(3), Dim(1, "inner", 8), Dim(2, "inner", 4))


def drawn(rng: Random) -> tuple[Layout, tuple[Dim, ...], tuple[int, ...]]:
    """A layout with its dimensions, and what is in front of each."""
    shape = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4)))
    dims: list[Dim] = []
    for d in range(len(shape)):
        size = rng.choice((1, 1, 2, 3, 4))
        dims += [Dim(d)] if size == 1 else [Dim(d, "block", size), Dim(d, "inner", size)]
    rng.shuffle(dims)
    before = tuple(rng.choice((0, 0, 1, 4)) for _ in shape)
    reach = tuple(e + b + rng.choice((0, 0, 2)) for e, b in zip(shape, before, strict=True))
    return Layout.of_dims(shape, dims, before, reach, rng.choice((None, "undef", 0, 1.5))), tuple(dims), before


@pytest.mark.parametrize("seed", range(40))
def test_a_layout_says_what_it_was_made_of(seed: int) -> None:
    """Dimensions, room and places of elements, against enumeration; text and JSON give the same layout back."""
    layout, dims, before = drawn(Random(seed))
    assert (layout.dims, layout.before) == (dims, before)
    again = Layout.of_dims(layout.logical_shape, layout.dims, layout.before, layout.room, layout.pad_value)
    assert again == layout and hash(again) == hash(layout)
    read = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert read == layout and read.index_map == layout.index_map and read.pad_text == layout.pad_text
    assert pickle.loads(pickle.dumps(layout)) == layout
    parts = {"whole": lambda i, s: i, "block": lambda i, s: i // s, "inner": lambda i, s: i % s}
    for point in product(*map(range, layout.logical_shape)):
        place = [parts[d.part](point[d.dim] + before[d.dim], d.step) for d in dims]
        assert layout.positions[point] == np.ravel_multi_index(place, layout.physical_shape)


def test_an_image_in_blocks_with_a_halo() -> None:
    """The example of the page on networks."""
    layout = Layout.ordered(SHAPE, block=(1, 16), before=(0, 0, 1, 1), after=(0, 0, 1, 1), pad_value=0.0)
    assert layout.index_map.text == "lambda d0, d1, d2, d3: [d0, d1 // 16, d2 + 1, d3 + 1, d1 % 16]"
    assert layout.physical_shape == (1, 2, 9, 9, 16) and layout.pads and layout.has_halo
    assert layout.without_halo == Layout.ordered(SHAPE, block=(1, 16), pad_value=0.0)
    assert (layout.order, layout.blocks, layout.innermost) == ((0, 1, 2, 3), {1: 16}, 1)
    assert layout.label == "block1x16+halo2,3=0.0"
    assert str(layout) == f"{layout.index_map.text} -> 1x2x9x9x16, padding 0.0"


@pytest.mark.parametrize(
    ("layout", "label"),
    [
        (Layout.plain(SHAPE), "0123"),
        (Layout.ordered(SHAPE, (0, 2, 3, 1)), "0231"),
        (Layout.ordered(SHAPE, block=(1, 4)), "block1x4"),
        (Layout.of_dims(SHAPE, PACKED, pad_value="undef"), "1/8,0,2/4,3,1%8,2%4=undef"),
        (Layout.parse((6, 5), "lambda i, j: [i * 5 + j]", "", (30,)), "as given"),
    ],
)
def test_labels_are_short(layout: Layout, label: str) -> None:
    """Orders, one dimension in blocks, several, and what is made of no dimensions."""
    assert layout.label == label


def test_layouts_are_equal_where_elements_lie_alike() -> None:
    """However the map is written, whatever padding that there is not would hold; numbers by their value."""
    layout = Layout.parse((6, 4), "lambda i, j: [j, i // 4, i % 4]", "0", (4, 2, 4))
    assert layout == Layout.parse((6, 4), "lambda row, k: [k, row // 4, row - row // 4 * 4]", "0.0", (4, 2, 4))
    assert layout.pad_value == 0 and layout != replace(layout, pad_value="undef")
    assert replace(layout, pad_value=0.0) != replace(layout, pad_value="-0.0")
    assert layout != replace(layout, physical_shape=(5, 2, 4))
    assert Layout.plain((4, 4)) == replace(Layout.plain((4, 4)), pad_value=1.0), "nothing is padded"
    assert Layout.plain((4, 4)) != Layout.parse((4, 4), "lambda i, j: [j, i]", "", (4, 4))
    assert len({layout, Layout.parse((6, 4), "lambda a, b: [b, a // 4, a % 4]", "0", (4, 2, 4))}) == 1


def test_one_memory_may_have_several_shapes() -> None:
    """A reshape of the plain tensor is in place; two maps to one place are one memory, whatever padding holds."""
    flat = Layout.parse((6, 5), "lambda i, j: [i * 5 + j]", "", (30,))
    assert flat.is_in_place and not flat.is_plain and flat.same_memory(Layout.plain((6, 5)))
    turned = Layout.ordered((6, 5), (1, 0))
    assert not turned.is_in_place and not turned.same_memory(flat)
    blocked = Layout.ordered((6, 5), block=(1, 4), pad_value=0)
    fused = Layout.parse((6, 5), "lambda i, j: [i * 8 + j // 4 * 4 + j % 4]", "undef", (48,))
    assert blocked.same_memory(fused) and blocked != fused
    assert Layout.ordered((6, 5), block=(1, 8)).same_memory(Layout.ordered((6, 5), after=(0, 3)))
    assert not blocked.same_memory(Layout.ordered((6, 5), after=(2, 1)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_plain_layouts(shape: tuple[int, ...]) -> None:
    """Also of scalars, which have no dimensions."""
    layout = Layout.plain(shape)
    assert layout.is_plain and layout.is_in_place and not layout.pads and str(layout) == "as given"
    assert Layout.from_json(layout.to_json()) == layout and layout.positions.shape == shape


@pytest.mark.parametrize(
    ("text", "value", "number", "promises"),
    [
        ("", None, None, False), ("undef", "undef", None, False), ("0.0", 0.0, 0.0, True), ("7", 7, 7, True),
        ("-inf", float("-inf"), float("-inf"), True), ("lambda p, q: p + 0.5", "lambda p, q: p + 0.5", None, True),
    ],
)  # fmt: skip
def test_what_padding_holds(text: str, value: Any, number: float | None, promises: bool) -> None:
    """Its value, text and number; as an argument of an instruction it is JSON."""
    layout = Layout.parse((5,), "lambda i: [i // 4, i % 4]", text, (2, 4))
    assert (layout.pad_value, layout.pad_text, layout.pad_number, layout.promises) == (value, text, number, promises)
    json.dumps(layout.pad_argument, allow_nan=False)
    if not text.startswith("lambda"):
        assert layout.pad(Buffer("A", (2, 4))).encoded == value


OLD = {
    "shape": [1, 20, 7, 7], "order": [0, 1, 2, 3], "block": [1, 16], "before": [0, 0, 1, 1], "after": [0, 0, 1, 1],
    "pad_value": "0.0",
}  # fmt: skip


def test_what_networks_wrote_before_is_read() -> None:
    """Records of earlier versions have the order and the block of a tensor's layout."""
    halo = Layout.ordered(SHAPE, block=(1, 16), before=(0, 0, 1, 1), after=(0, 0, 1, 1), pad_value=0.0)
    assert Layout.from_json(OLD) == halo
    last = OLD | {"order": [0, 2, 3, 1], "block": [-1, 1], "before": [0] * 4, "after": [0] * 4, "pad_value": ""}
    assert Layout.from_json(last) == Layout.ordered(SHAPE, (0, 2, 3, 1))


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"shape": [3]}, OLD | {"order": [0, 1, 2, 9]}, OLD | {"block": [1, 0]}, OLD | {"shape": [-1, 2]},
        OLD | {"before": [0]}, OLD | {"block": ["1", 2]}, OLD | {"shape": "1234"},
        Layout.plain(SHAPE).to_json() | {"index_map": "lambda i: [i]"},
        Layout.plain(SHAPE).to_json() | {"index_map": "__import__('os')"},
        Layout.plain(SHAPE).to_json() | {"physical_shape": [1, 2]},
        Layout.plain(SHAPE).to_json() | {"physical_shape": [True, 2, 3, 4]},
    ],
)  # fmt: skip
def test_what_is_no_layout_is_refused(data: object) -> None:
    """In one sentence, with nothing evaluated."""
    with pytest.raises(BadRecord, match="not a layout"):
        Layout.from_json(data)


def test_ranks_must_agree() -> None:
    """A layout takes as many indices as the tensor has dimensions, and gives as many as memory has."""
    with pytest.raises(IndexMapError, match=r"takes 1 indices and gives 2, but lays out \[3, 3\] in \[2, 2\]"):
        Layout((3, 3), IndexMap.parse("lambda i: [i // 2, i % 2]"), (2, 2))


@pytest.mark.parametrize(
    "text",
    [
        "lambda i, j: [i * 4 + j]", "lambda i, j: [i // 2, j]", "lambda i, j: [i % 2, (i + 1) // 2, j]",
        "lambda i, j: [i // 4, i // 2 % 2, i % 2, j]", "lambda i, j: [i, AXIS_SEPARATOR, j]", "lambda i, j: [i, i]",
    ],
)  # fmt: skip
def test_not_every_map_is_made_of_dimensions(text: str) -> None:
    """Sums, parts that are missing, digits of three places, dimensions of images."""
    index_map = IndexMap.parse(text)
    layout = Layout((8, 4), index_map, (64,) * len(index_map.indices))
    with pytest.raises(IndexMapError, match="is not made of dimensions"):
        _ = layout.dims
    assert layout.label == str(layout)
