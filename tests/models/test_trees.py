"""Ensembles of trees by masks and by walks, against walks in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from stridesmith import configs
from stridesmith.models.evaluate import evaluate
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network, Operator
from stridesmith.models.operators import trees
from stridesmith.models.operators.building import network_of, programs
from stridesmith.models.operators.graph import OWN_DOMAIN, Graph, Node, Type
from stridesmith.models.operators.leaf_masks import BITS, masks_of, place, words_of
from stridesmith.space.design.layouts import CONTIGUOUS, STRIDED, Identity, meeting
from stridesmith.space.design.program import anchors

Array = np.ndarray
COLUMNS = 4
CPU = configs.target("cpu-avx2")


@dataclass(frozen=True)
class Tables:
    """Trees by nodes, breadth first, children side by side; a leaf is its own first."""

    feature: Array
    split: Array
    first: Array
    roots: Array
    value: Array
    kind: Array

    def sums(self, x: Array) -> Array:
        """What the leaves of each row hold together, node by node."""
        found = []
        for row in x:
            total = np.zeros(self.value.shape[1], np.float32)
            for root in self.roots:
                at = int(root)
                while self.first[at] != at:
                    a, b = row[self.feature[at]], self.split[at]
                    at = int(self.first[at]) + bool([a <= b, a > b, a == b, a < b or a > b][self.kind[at]])
                total = total + self.value[at]
            found.append(total)
        return np.array(found)

    def network(self, rows: int, kinds: list[int]) -> Network:
        """The network of one operator."""
        names = ["feature", "split", "first", "roots", "value", *(["kind"] if len(kinds) > 1 else [])]
        arrays: dict[str, Array] = {name: getattr(self, name) for name in names}
        types = {"x": Type((rows, COLUMNS), "float32"), "y": Type((rows, self.value.shape[1]), "float32")}
        values = {"depth": 40, "kinds": kinds}
        node = Node("Trees", OWN_DOMAIN, "trees", ("x", *arrays), ("y",), values)
        graph = Graph("g", ("x",), ("y",), types, {}, [node], {})
        for name, array in arrays.items():
            graph.constant(name, array)
        built = programs(graph, node)
        assert built is not None
        return network_of(graph, built)


def drawn(leaves: list[int], kinds: list[int], targets: int = 2) -> Tables:
    """Trees of so many leaves, split at random."""
    rng = np.random.default_rng(len(leaves))
    count = len(leaves)
    first, tree = list(range(count)), list(range(count))
    for number, wanted in enumerate(leaves):
        open_leaves = [number]
        while len(open_leaves) < wanted:
            at = open_leaves.pop(int(rng.integers(len(open_leaves))))
            first[at] = len(first)
            open_leaves += [len(first), len(first) + 1]
            first += [len(first), len(first) + 1]
            tree += [number, number]
    size = len(first)
    is_leaf = np.array(first) == np.arange(size)
    value = np.where(is_leaf[:, None], rng.integers(-9, 9, (size, targets)), 0).astype(np.float32)
    return Tables(
        rng.integers(0, COLUMNS, size).astype(np.int32),
        np.where(is_leaf, np.nan, rng.integers(-2, 3, size)).astype(np.float32), np.array(first, np.int32),
        np.arange(count, dtype=np.int32), value, rng.choice(kinds, size).astype(np.int32),
    )  # fmt: skip


LEAVES = {"one word": [1, 2, 7, 32], "words": [33, 5, 64, 100], "stumps": [2, 2]}


@pytest.mark.parametrize("kinds", [[0], [1], [0, 1], [0, 2, 3]])
@pytest.mark.parametrize("leaves", LEAVES.values(), ids=list(LEAVES))
@pytest.mark.parametrize("most", [0, 10**9], ids=["walks", "masks"])
def test_rows_come_to_the_same_leaves(
    leaves: list[int], kinds: list[int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By masks and by walks, with one row and several, and of what is no number."""
    monkeypatch.setattr(trees, "MOST_COMPARISONS", {True: most, False: most})
    tables = drawn(leaves, kinds)
    x = np.random.default_rng(0).integers(-3, 4, (9, COLUMNS)).astype(np.float32)
    x[0, 1], x[3] = np.nan, np.inf
    for rows in (1, 9):
        network = tables.network(rows, kinds)
        text = network.nodes[0].func.script()  # type: ignore[union-attr]
        assert ("bitwise_and" in text) == bool(most)
        np.testing.assert_array_equal(evaluate(network, {"x": x[:rows]})["y"], tables.sums(x[:rows]))


def test_rows_of_trees_with_missing_values_run_in_the_lanes_of_vectors() -> None:
    """Comparisons of two kinds read the features of neighbouring rows side by side, and the estimate knows it."""
    network = fused(drawn([31] * 30, [0, 1]).network(64, [0, 1]), CPU)
    (node,) = network.nodes
    assert isinstance(node, Operator)
    compared = [a for a in anchors(node.func, {}) if a.reduce and a.output.dtype == "int32"]
    assert len(compared) == 2
    for anchor in compared:
        (rows,) = (operand for operand in anchor.inputs if operand.shape == (COLUMNS, 64))
        assert not rows.is_linear
        found = {anchor.output.plain_dim(axis): meeting(rows, Identity(), axis, "cpu") for axis in anchor.spatial}
        assert found == {0: STRIDED, 1: CONTIGUOUS}


def test_leaves_are_spread_evenly_over_words() -> None:
    """So that no word takes more comparisons than others, and each leaf has a value of its own."""
    tables = drawn([40, 70], [0], targets=1)
    value = np.arange(1, len(tables.first) + 1, dtype=np.float32)[:, None]
    words = words_of(tables.first, tables.roots)
    masks = masks_of((tables.feature, tables.split, tables.first, tables.roots, value), None, [0], words)
    assert words == 3 and masks.value.shape == (2, 3 * BITS, 1)
    assert [(held > 0).sum() for held in masks.value.reshape(6, BITS)] == [14, 14, 12, 24, 24, 22]
    assert sorted(place(np.arange(BITS))) == list(range(BITS))
    assert masks.comparisons < 3 * 40


def test_trees_are_masks_where_those_take_less() -> None:
    """Small trees of many rows; with one row, and of many leaves, rows walk."""
    small, large = drawn([31] * 3, [0]), drawn([2000], [0])

    def walks(tables: Tables, rows: int) -> bool:
        return "walk" in replace(tables).network(rows, [0]).nodes[0].func.script()  # type: ignore[union-attr]

    assert not walks(small, 64) and walks(large, 64)
