"""Index maps agree with enumeration: shape, injectivity, inverse, padding; and refuse with reasons."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from scale import scaled

from stridesmith.ir.affine import guard
from stridesmith.ir.expr import Expr, Var, binary, const, if_then_else
from stridesmith.ir.layout.index_map import AXIS_SEPARATOR, IndexMap, IndexMapError

POOL = [
    "lambda i, j: [i, j]",
    "lambda i, j: [j, i]",
    "lambda i, j: [i // 4, j, i % 4]",
    "lambda i, j: [(i + 3) // 4, (i + 3) % 4, j + 1]",
    "lambda i, j: [i // 12, i // 3 % 4, i % 3, j // 2, j % 2]",
    "lambda i, j: [i * 5 + j]",
    "lambda i, j: [(i * 5 + j) // 8, (i * 5 + j) % 8]",
    "lambda i, j: [i * 3 + 1, j]",
    "lambda i, j: [T.min(i, 5), T.max(i, 5), j]",
    "lambda i, j: [T.if_then_else(i < 5, 2 * i, 2 * (i - 5) + 1), j]",
    "lambda i, j: [i + j, j]",
    "lambda i, j: [5 - i % 6, i // 6, j, 0]",
    "lambda i, j: [i // 4, i % 3, j]",
    "lambda i, j: [i + j]",
    "lambda i, j: [i]",
    "lambda i, j: [i // 2, i % 4, j]",
    "lambda i, j: [i % 4, i // 4 + i % 4, j]",
]


def enumerated(index_map: IndexMap, shape: tuple[int, ...]) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    images: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for point in itertools.product(*map(range, shape)):
        images.setdefault(tuple(int(v) for v in index_map.map_point(point)), []).append(point)
    return images


@pytest.mark.parametrize("text", POOL)
@pytest.mark.parametrize("shape", [(14, 5), (1, 1), (12, 4), (7, 1)])
def test_maps_agree_with_enumeration(text: str, shape: tuple[int, int]) -> None:
    """Shape, injectivity, inverse and padding predicate are those of the enumerated image."""
    index_map = IndexMap.parse(text)
    images = enumerated(index_map, shape)
    if min(min(image) for image in images) < 0:
        with pytest.raises(IndexMapError, match="negative"):
            index_map.map_shape(shape)
        return
    physical = tuple(max(column) + 1 for column in zip(*images, strict=True))
    assert index_map.map_shape(shape) == physical
    injective = all(len(points) == 1 for points in images.values())
    assert index_map.is_injective(shape) == injective
    if not injective:
        with pytest.raises(IndexMapError, match="not injective"):
            index_map.non_surjective_inverse(shape)
        return
    for extra in (0, 1):
        room = tuple(extent + extra * (k % 2) for k, extent in enumerate(physical))
        inverse, padding = index_map.non_surjective_inverse(shape, room)
        for point in itertools.product(*map(range, room)):
            assert padding.evaluate(point) == (point not in images)
            if point in images:
                assert inverse.map_point(point) == images[point][0]


@st.composite
def layouts(draw: Any) -> tuple[IndexMap, tuple[int, ...]]:
    """A shape, and a map of splits, fuses, offsets, reversals, shears, swaps; some lose or repeat an index."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    variables = tuple(Var(name) for name in "ijk"[: len(shape)])
    items: list[tuple[Expr, int]] = list(zip(variables, shape, strict=True))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(items) - 1))
        (e, extent), step = items.pop(at), draw(st.sampled_from(STEPS))
        c = draw(st.integers(2, 5))
        if step == "split" and len(items) < 5:
            items += [(e // c, -(-extent // c)), (e % c, min(c, extent))]
        elif step == "offset":
            items.append((e + c - 1, extent + c - 1))
        elif step == "reverse":
            items.append((binary("-", extent - 1, e), extent))
        elif step == "stride":
            items.append((e * c, (extent - 1) * c + 1))
        elif step == "clamp":
            items.append((binary("min", e, c), min(extent, c + 1)))
        elif step == "rotate":
            items.append(((e + c) % extent, extent))
        elif step == "choose":
            items.append((if_then_else(e < c, e + extent, e - c), 2 * extent))
        elif items and step == "fuse":
            other, size = items.pop(draw(st.integers(0, len(items) - 1)))
            items.append((e * size + other, extent * size))
        elif items and step == "shear":
            items.append((e + items[0][0], extent + items[0][1]))
        elif not (items and step == "drop"):
            items.append((e, extent))
    order = draw(st.permutations(range(len(items))))
    return IndexMap(variables, tuple(items[k][0] for k in order)), shape


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
STEPS = ("split", "split", "offset", "reverse", "stride", "fuse", "fuse", "shear", "clamp", "rotate", "choose", "drop")


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(layouts(), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_random_maps_agree_with_enumeration(layout: tuple[IndexMap, tuple[int, ...]], extra: list[int]) -> None:
    """Shape, injectivity, collision, inverse and padding of a random map are what enumeration finds."""
    index_map, shape = layout
    images = enumerated(index_map, shape)
    physical = tuple(max(column) + 1 for column in zip(*images, strict=True))
    if min(map(min, images)) < 0:
        with pytest.raises(IndexMapError, match=r"negative index .* add an offset"):
            index_map.map_shape(shape)
        return
    assert index_map.map_shape(shape) == physical
    injective = all(len(points) == 1 for points in images.values())
    assert index_map.is_injective(shape) == injective
    if not injective:
        check_collision(index_map, shape)
        return
    room = tuple(p + e for p, e in zip(physical, extra, strict=False)) + physical[len(extra) :]
    if math.prod(room) > 5000:
        room = physical
    check_inverse(index_map, shape, room, images)


def check_collision(index_map: IndexMap, shape: tuple[int, ...]) -> None:
    with pytest.raises(IndexMapError) as caught:
        index_map.non_surjective_inverse(shape)
    points = [tuple(map(int, p.split(", "))) for p in re.findall(r"\[([-0-9, ]+)\]", str(caught.value))[-3:]]
    first, second, image = points
    assert first != second and all(0 <= v < n for p in (first, second) for v, n in zip(p, shape, strict=True))
    assert tuple(index_map.map_point(first)) == tuple(index_map.map_point(second)) == image


def check_inverse(index_map: IndexMap, shape: Any, room: tuple[int, ...], images: Any) -> None:
    try:
        inverse, padding = index_map.non_surjective_inverse(shape, room)
    except IndexMapError as error:
        if "cannot decide" in str(error):
            reject()  # beyond the budget: refused, which is never wrong; a test that rejects too much fails
        raise
    grid = np.indices(room)
    held = np.zeros(room, bool)
    held[tuple(np.array(list(images)).T)] = True
    assert (np.broadcast_to(padding.evaluate(tuple(grid)), room) == ~held).all()
    for image, (point,) in images.items():
        assert inverse.map_point(image) == point
    if held.all() and room == index_map.map_shape(shape):
        assert index_map.inverse(shape) == inverse


def test_the_padding_predicate_is_in_its_simplest_form() -> None:
    """[14] by [i // 4, i % 4] pads where io == 3 and ii >= 2, and an offset on both of its sides."""
    inverse, padding = IndexMap.parse("lambda i: [i // 4, i % 4]").non_surjective_inverse([14])
    assert str(padding) == "io == 3 and ii >= 2"
    assert inverse.text == "lambda io, ii: [io * 4 + ii]"
    _, padding = IndexMap.parse("lambda i: i + 1").non_surjective_inverse([14], [16])
    assert str(padding) == "i == 0 or i == 15"


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("lambda i: [i // 8, i % 8]", [14], (2, 8)),
        ("lambda i: [i // 8, i % 8]", [5], (1, 5)),
        ("lambda n, c: [n, c // 4, c % 4]", [1, 3], (1, 1, 3)),
    ],
)
def test_shape_is_the_bounding_box(text: str, shape: list[int], expected: tuple[int, ...]) -> None:
    """`map_shape` gives the least extents that hold every image."""
    assert IndexMap.parse(text).map_shape(shape) == expected


def test_a_collision_names_two_indices() -> None:
    """The refusal of a map that is not injective shows two indices and their common image."""
    with pytest.raises(IndexMapError, match=r"\[0\] and \[4\] both map to \[0\]"):
        IndexMap.parse("lambda i: [i % 4]").check_injective([14])


def test_a_physical_shape_must_hold_the_image() -> None:
    """An extent below the bounding box is refused with the least one."""
    with pytest.raises(IndexMapError, match=r"at least \[4, 4\]"):
        IndexMap.parse("lambda i: [i // 4, i % 4]").non_surjective_inverse([14], [3, 4])


def test_inverse_refuses_padding() -> None:
    """`inverse` exists only without padding, and its message holds the predicate."""
    index_map = IndexMap.parse("lambda i: [i // 4, i % 4]")
    assert index_map.inverse([16]).text == "lambda io, ii: [io * 4 + ii]"
    with pytest.raises(IndexMapError, match="io == 3 and ii >= 2"):
        index_map.inverse([14])


@pytest.mark.parametrize("text", POOL)
def test_text_round_trip(text: str) -> None:
    """Parsing the text of a map gives an equal map."""
    index_map = IndexMap.parse(text)
    assert IndexMap.parse(index_map.text) == index_map


def test_from_func_matches_text() -> None:
    """A Python function and its text are the same map; separators, `*indices` and keyword names work."""
    made = IndexMap.from_func(lambda i, j: [i // 4, AXIS_SEPARATOR, j, i % 4])
    assert made == IndexMap.parse("lambda i, j: [i // 4, AXIS_SEPARATOR, j, i % 4]")
    assert made.axis_separators == (1,)
    rest = IndexMap.from_func(lambda *batch, c: [*batch, c // 4, c % 4], ndim=3)
    assert rest.ndim == 3 and rest.map_shape([2, 3, 6]) == (2, 3, 2, 4)
    with pytest.raises(IndexMapError, match="ndim"):
        IndexMap.from_func(lambda *indices: list(indices))


def test_map_indices_and_compose() -> None:
    """Composition equals mapping twice, and `map_indices` substitutes at once."""
    swap = IndexMap.parse("lambda i, j: [j, i]")
    assert swap.map_indices([Var("j"), Var("i")]) == (Var("i"), Var("j"))
    block = IndexMap.parse("lambda i, j: [i // 4, j, i % 4]")
    both = block.compose(swap)
    for point in itertools.product(range(5), range(9)):
        assert both.map_point(point) == block.map_point(swap.map_point(point))
    assert swap.compose(swap).is_identity(2) and not swap.is_identity()
    assert block.map_indices([const(9), 1]) == (const(2), const(1), const(1))


def test_arrays_of_points() -> None:
    """Coordinates may be arrays: the image and the predicate come out as arrays."""
    index_map = IndexMap.parse("lambda i, j: [i // 4, j, i % 4]")
    i, j = np.meshgrid(np.arange(14), np.arange(3), indexing="ij")
    physical = np.full((4, 3, 4), -1)
    physical[index_map.map_point((i, j))] = i * 3 + j
    _, padding = index_map.non_surjective_inverse([14, 3])
    mask = np.broadcast_to(padding.evaluate(np.indices((4, 3, 4))), physical.shape)
    assert ((physical == -1) == mask).all() and mask.sum() == 6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lambda i: [__import__('os').system('x')]", "cannot stand"),
        ("lambda i: [i // 0]", "positive constant"),
        ("lambda i: [i // -3]", "positive constant"),
        ("lambda i: [k]", "not one of its parameters"),
        ("lambda i: [i < 3]", "condition"),
        ("lambda i=3: [i]", "plain names"),
        ("i // 4", "must be a `lambda`"),
        ("lambda i: [", "not an index map"),
        ("lambda i: [AXIS_SEPARATOR, i]", "between two indices"),
        ("lambda i: []", "at least one"),
        ("lambda i: [i.real]", "cannot stand"),
        ("lambda i: [2**9]", "cannot stand"),
        ("lambda i: [i + 99999999999999999999]", "larger"),
        ("lambda i: [" + "(" * 4000 + "i" + ")" * 4000 + "]", "not an index map|nested"),
        ("lambda i: [i" + " + 1" * 5000 + "]", "characters"),
    ],
)
def test_hostile_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    """What is not index arithmetic is a ValueError; nothing is ever evaluated."""
    with pytest.raises(ValueError, match=reason):
        IndexMap.parse(text)


def test_products_of_variables_are_refused() -> None:
    """A map that is not quasi-affine says which operation is the trouble."""
    with pytest.raises(IndexMapError, match="constant"):
        IndexMap.parse("lambda i, j: [i * j, i]").check_injective([3, 3])


@pytest.mark.parametrize("shape", ["x", ["4"], [1.5], [True]])
def test_extents_are_whole_numbers(shape: Any) -> None:
    """A shape of anything else is refused, and so is an index that is a text."""
    halves = IndexMap.parse("lambda i: [i // 4, i % 4]")
    for question in (halves.map_shape, halves.inverse, halves.check_injective):
        with pytest.raises(IndexMapError, match="a shape is a sequence of whole numbers, but got"):
            question(shape)
    with pytest.raises(IndexMapError, match="an index is a number or an expression, but got 'x'"):
        halves.map_indices(["x"])  # type: ignore[list-item]


def test_wrong_number_of_indices() -> None:
    """Shapes and indices must have the map's rank."""
    index_map = IndexMap.parse("lambda i, j: [j, i]")
    with pytest.raises(IndexMapError, match="takes 2 indices"):
        index_map.map_shape([3])
    with pytest.raises(IndexMapError, match="takes 2 indices"):
        index_map.map_indices([1, 2, 3])
    with pytest.raises(IndexMapError, match="3 dimensions"):
        IndexMap.make("lambda i, j: [j, i]", 3)


FORMS = [
    ("lambda i: [i // 4, i % 4]", [14], None, "io == 3 and ii >= 2"),
    ("lambda i: [i // 8, i % 8]", [14], None, "io == 1 and ii >= 6"),
    ("lambda i: [(i + 2) // 8, (i + 2) % 8]", [14], None, "io == 0 and ii < 2"),
    ("lambda i: [(i + 2) // 8, (i + 2) % 8]", [16], None, "io == 0 and ii < 2 or io == 2 and ii >= 2"),
    ("lambda i: [(i + 2) // 6, (i + 2) % 6]", [14], None, "io == 0 and ii < 2 or io == 2 and ii >= 4"),
    ("lambda i: [i // 4, i % 4]", [14], [6, 4], "io * 4 + ii >= 14"),
    ("lambda i: [i // 4, i % 4]", [14], [4, 5], "ii == 4 or io == 3 and ii >= 2"),
    ("lambda i: [(i + 5) // 4, (i + 5) % 4]", [14], [6, 4], "io * 4 + ii < 5 or io * 4 + ii >= 19"),
    ("lambda i: [i + 3]", [10], [16], "i < 3 or i >= 13"),
    ("lambda i, j: [i // 4, j, i % 4]", [14, 3], None, "io == 3 and ii >= 2"),
    ("lambda i, j: [i // 4, j // 4, i % 4, j % 4]", [14, 15], None, "io == 3 and ii >= 2 or jo == 3 and ji == 3"),
    ("lambda i, j: [i * 7 + j]", [4, 5], None, "a0 % 7 >= 5"),
    ("lambda i: [i * 2]", [7], None, "a0 % 2 == 1"),
    ("lambda c: [c // 16, c % 16]", [32], None, "False"),
    ("lambda h, w: [h + 1, w + 1]", [7, 7], [9, 9], "h == 0 or h == 8 or w == 0 or w == 8"),
]


@pytest.mark.parametrize(("text", "shape", "physical", "expected"), FORMS)
def test_padding_predicates_read_as_a_person_writes_them(
    text: str, shape: list[int], physical: list[int] | None, expected: str
) -> None:
    """RFC 0077's forms: equalities, bounds with the constant on the right, one disjunct for each side of the data."""
    assert str(IndexMap.parse(text).non_surjective_inverse(shape, physical)[1]) == expected


INVERSES = [
    ("lambda i, j: [i * 7 + j]", [4, 7], "lambda a0: [a0 // 7, a0 % 7]"),
    ("lambda i: [(i + 2) // 8, (i + 2) % 8]", [14], "lambda io, ii: [io * 8 + ii - 2]"),
    ("lambda i: [i % 4, i // 4]", [14], "lambda ii, io: [io * 4 + ii]"),
    ("lambda i: [i // 12, i // 3 % 4, i % 3]", [20], "lambda io, im, ii: [io * 12 + im * 3 + ii]"),
    ("lambda i, j: [i + j, j]", [4, 4], "lambda a0, j: [a0 - j, j]"),
    ("lambda i, j: [(i * 8 + j) // 4, (i * 8 + j) % 4]", [3, 8], "lambda a0, a1: [a0 // 2, a0 % 2 * 4 + a1]"),
]


@pytest.mark.parametrize(("text", "shape", "expected"), INVERSES)
def test_inverses_read_as_a_person_writes_them(text: str, shape: list[int], expected: str) -> None:
    """Digits are put together again, and a fused index is divided."""
    assert IndexMap.parse(text).non_surjective_inverse(shape)[0].text == expected


def test_a_composed_map_is_the_layout_after_both() -> None:
    """The later map's axis separators hold; those of the earlier one group axes that are mapped on."""
    first = IndexMap.parse("lambda i, j: [i // 4, AXIS_SEPARATOR, j, i % 4]")
    second = IndexMap.parse("lambda a, b, c: [a, b // 2, AXIS_SEPARATOR, b % 2, c]")
    both = second.compose(first)
    assert both.text == "lambda i, j: [i // 4, j // 2, AXIS_SEPARATOR, j % 2, i % 4]"
    assert IndexMap.parse("lambda a, b, c: [a, b, c]").compose(first).axis_separators == ()
    with pytest.raises(IndexMapError, match=r"takes 2 indices, but .* gives 3"):
        first.compose(first)


def test_a_map_that_is_too_hard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget of the exact sets, a question about a map is refused with what to try."""
    monkeypatch.setattr(guard, "MAX_OPERATIONS", 20)
    hard = IndexMap.parse("lambda i, j: [(i * 3 + j) // 7, (i + j) % 5, T.min(i, j)]")
    for ask in (hard.map_shape, hard.check_injective, hard.non_surjective_inverse):
        with pytest.raises(IndexMapError, match=r"cannot decide .* use a simpler map"):
            ask([11, 13])
    monkeypatch.undo()
    assert hard.map_shape([11, 13]) == (7, 5, 11)


RESHAPES = [
    ("lambda i, j: [i // 4, i % 4, j]", (8, 5), None, True),
    ("lambda i, j: [i // 4, i % 4, j]", (7, 5), None, False),
    ("lambda i, j: [i*5 + j]", (8, 5), None, True),
    ("lambda i, j: [i*6 + j]", (8, 5), None, False),
    ("lambda i, j: [j, i]", (8, 5), None, False),
    ("lambda i, j: [j, i]", (1, 5), None, True),
    ("lambda i: [i // 12, i // 3 % 4, i % 3]", (36,), None, True),
    ("lambda i: [i // 2 % 3, i // 6, i % 2]", (12,), None, False),
    ("lambda i, j: [(i*5 + j) // 8, (i*5 + j) % 8]", (8, 5), None, True),
    ("lambda i, j: [i, j]", (8, 5), (8, 6), False),
    ("lambda i: [i // 4, 3 - i % 4]", (8,), None, False),
    ("lambda i, j: [i, AXIS_SEPARATOR, j]", (8, 5), None, False),
]


@pytest.mark.parametrize(("text", "shape", "physical", "expected"), RESHAPES)
def test_a_reshape_keeps_the_order_of_memory(
    text: str, shape: tuple[int, ...], physical: tuple[int, ...] | None, expected: bool
) -> None:
    """What is called a reshape moves no element of row-major memory, and what is not does, or has padding."""
    made = IndexMap.parse(text)
    assert made.keeps_memory_order(shape, physical) == expected
    room = physical or made.map_shape(shape)
    moved = np.full(room, -1)
    for number, point in enumerate(np.ndindex(*shape)):
        moved[made.map_point(point)] = number
    plain = moved.size == np.prod(shape) and (moved.reshape(-1) == np.arange(moved.size)).all()
    assert bool(plain) == (expected or bool(made.axis_separators))


def test_indices_that_wrap_around_are_no_map() -> None:
    """A product that leaves 64 bits has no distinct values to count on, so that the map is refused."""
    far = IndexMap.parse("lambda i: [i * 281474976710656 * 32768 // 2, i]")
    assert far.map_shape((1,)) == (1, 1)
    with pytest.raises(IndexMapError, match=r"computes in dimension 0 on shape \[4\] may leave 64 bits"):
        far.map_shape((4,))
