"""Index maps agree with enumeration: shape, injectivity, inverse, padding; and refuse with reasons."""

import itertools
import random

import numpy as np
import pytest

from stridesmith.ir.affine.index_map import AXIS_SEPARATOR, IndexMap, IndexMapError
from stridesmith.ir.expr import Var, const

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


@pytest.mark.parametrize("seed", range(40))
def test_random_splits_agree_with_enumeration(seed: int) -> None:
    """Random offsets and mixed-radix splits, permuted, are inverted exactly and leave exactly their padding."""
    rng = random.Random(seed)
    i, j = Var("i"), Var("j")
    items = []
    for var in (i, j):
        value = var + rng.randint(0, 5)
        for _ in range(rng.randint(0, 2)):
            factor = rng.randint(2, 5)
            items.append(value % factor)
            value = value // factor
        items.append(value)
    rng.shuffle(items)
    shape = (rng.randint(1, 13), rng.randint(1, 6))
    index_map = IndexMap((i, j), tuple(items))
    images = enumerated(index_map, shape)
    assert index_map.map_shape(shape) == tuple(max(column) + 1 for column in zip(*images, strict=True))
    inverse, padding = index_map.non_surjective_inverse(shape)
    for point in itertools.product(*map(range, index_map.map_shape(shape))):
        assert padding.evaluate(point) == (point not in images)
        assert point not in images or inverse.map_point(point) == images[point][0]


def test_the_padding_predicate_is_in_its_simplest_form() -> None:
    """[14] by [i // 4, i % 4] pads where io == 3 and ii >= 2, and an offset on both of its sides."""
    inverse, padding = IndexMap.parse("lambda i: [i // 4, i % 4]").non_surjective_inverse([14])
    assert str(padding) == "io == 3 and ii >= 2"
    assert inverse.text == "lambda io, ii: [io * 4 + ii]"
    _, padding = IndexMap.parse("lambda i: i + 1").non_surjective_inverse([14], [16])
    assert str(padding) == "i < 1 or i >= 15"


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


def test_wrong_number_of_indices() -> None:
    """Shapes and indices must have the map's rank."""
    index_map = IndexMap.parse("lambda i, j: [j, i]")
    with pytest.raises(IndexMapError, match="takes 2 indices"):
        index_map.map_shape([3])
    with pytest.raises(IndexMapError, match="takes 2 indices"):
        index_map.map_indices([1, 2, 3])
    with pytest.raises(IndexMapError, match="3 dimensions"):
        IndexMap.make("lambda i, j: [j, i]", 3)
