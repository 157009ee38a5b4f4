"""Trees of decisions in one form: each node compares one feature with a number, and its children stand side by side.

::

    next(node)  =  first[node] + compare(x[feature[node]], split[node])         a leaf is its own first, its split NaN

with one of the four comparisons ``<=``, ``>``, ``==`` and ``< or >``, all of which are false for what is no number:
that goes to the first child, which is the one that a node sends missing values to.  ONNX's other modes are written as
these: ``x < t`` is ``x <= s`` with the number before t, a set of values several nodes in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelProblem

Ints = NDArray[np.int32]
Floats = NDArray[np.floating[Any]]

NAMED_MODES = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5,
}  # fmt: skip
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
BELOW, ABOVE, EQUAL, APART = range(4)
"""The comparisons of a `Forest`."""
MOST_NODES = 1 << 24


@dataclass(frozen=True)
class Forest:
    """All trees of an ensemble by arrays over their nodes; `value` has what each leaf adds to each target."""

    feature: Ints
    split: Floats
    first: Ints
    kind: Ints
    roots: Ints
    value: Floats
    depth: int


@dataclass
class Nodes:
    """Nodes as a model numbers them; leaves have an own number, to find their values by."""

    feature: list[int] = field(default_factory=list)
    split: list[float] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    leaf: list[int] = field(default_factory=list)

    def add_leaf(self, number: int) -> int:
        """Add a leaf; its place."""
        self.feature.append(0)
        self.split.append(float("nan"))
        self.first.append(-1)
        self.second.append(-1)
        self.kind.append(BELOW)
        self.leaf.append(number)
        return len(self.feature) - 1

    def set(self, at: int, feature: int, split: float, sides: tuple[int, int], kind: int) -> None:
        """Make a node of a place that was added before; it goes to the second side where the comparison holds."""
        self.feature[at], self.split[at], self.kind[at], self.leaf[at] = feature, split, kind, -1
        self.first[at], self.second[at] = sides


class Comparisons:
    """Writes nodes of all of ONNX's modes as those of four; `dtype` is the type of the features."""

    def __init__(self, nodes: Nodes, dtype: str) -> None:
        self.nodes, self.dtype = nodes, np.dtype(dtype)

    def write(
        self, at: int, mode: int, feature: int, values: Sequence[float], sides: tuple[int, int], missing: bool
    ) -> None:
        """Make the node of a mode and of its numbers at a place; more nodes are added where it takes several.

        The first side is for what the comparison is true of, and for missing values where they are `missing`.
        """
        true, false = sides
        for value in values[:-1]:  # of a set
            other = self.nodes.add_leaf(-1)
            self._equal(at, feature, value, (true, other), missing)
            at = other
        value = values[-1] if values else float("nan")
        if mode in (EQ, MEMBER):
            self._equal(at, feature, value, (true, false), missing)
        elif mode == NEQ:  # what is no number is not equal
            self.nodes.set(at, feature, self._exact(value), (true, false), EQUAL)
        elif value == -np.inf and mode in (LT, GTE):  # nothing is below it
            self._ordered(at, feature, np.inf, (true, false), (mode == GTE, missing))
        else:
            split = self._at_most(value) if mode in (LEQ, GT) else self._below(value)
            self._ordered(at, feature, split, (true, false), (mode in (LEQ, LT), missing))

    def _ordered(self, at: int, feature: int, split: float, sides: tuple[int, int], how: tuple[bool, bool]) -> None:
        """A node that is true up to a number, or above it, and perhaps for what is no number."""
        is_below, missing = how
        true, false = sides
        if missing:
            self.nodes.set(at, feature, split, (true, false), ABOVE if is_below else BELOW)
        else:
            self.nodes.set(at, feature, split, (false, true), BELOW if is_below else ABOVE)

    def _equal(self, at: int, feature: int, value: float, sides: tuple[int, int], missing: bool) -> None:
        true, false = sides
        if not missing:
            self.nodes.set(at, feature, self._exact(value), (false, true), EQUAL)
        elif np.isnan(self._exact(value)):  # no number is
            self.nodes.set(at, feature, np.inf, (true, false), BELOW)
        else:
            self.nodes.set(at, feature, value, (true, false), APART)

    def _exact(self, value: float) -> float:
        """The number in the features' type; NaN where that has it not."""
        return value if float(self.dtype.type(value)) == value else float("nan")

    def _at_most(self, value: float) -> float:
        """The largest number of the features' type that is at most `value`."""
        near = self.dtype.type(value)
        return float(np.nextafter(near, self.dtype.type(-np.inf)) if float(near) > value else near)

    def _below(self, value: float) -> float:
        """The largest number of the features' type that is below `value`."""
        near = self._at_most(value)
        return near if near < value else float(np.nextafter(self.dtype.type(near), self.dtype.type(-np.inf)))


def planted(nodes: Nodes, roots: Sequence[int], values: Floats, dtype: str) -> Forest:
    """The forest of trees by their roots, breadth first; `values` has a row for each number of a leaf.

    Raises ModelProblem for what is no tree.
    """
    sides = np.asarray((nodes.first, nodes.second), np.int64)
    leaf = np.asarray(nodes.leaf, np.int64)
    size = len(leaf)
    places, count = [np.asarray(roots, np.int64)], len(roots)
    firsts, depth = [], 0
    while True:
        here = places[-1]
        if np.any((here < 0) | (here >= size)) or count > MOST_NODES or depth > size:
            raise ModelProblem("the trees of an ensemble lead to nodes that there are not, or round in a circle")
        inner = leaf[here] < 0
        first = np.arange(count - len(here), count)  # a leaf stays where it is
        first[inner] = count + 2 * np.arange(int(inner.sum()))
        firsts.append(first)
        if not inner.any():
            break
        places.append(sides[:, here[inner]].T.reshape(-1))
        count += len(places[-1])
        depth += 1
    order = np.concatenate(places)
    own = leaf[order]
    value = np.where((own >= 0)[:, None], values[np.maximum(own, 0)], 0).astype(values.dtype)
    return Forest(
        np.asarray(nodes.feature, np.int32)[order], np.asarray(nodes.split, dtype)[order],
        np.concatenate(firsts).astype(np.int32), np.asarray(nodes.kind, np.int32)[order],
        np.arange(len(roots), dtype=np.int32), value, max(depth, 1),
    )  # fmt: skip


def by_number(given: Mapping[str, Any], dtype: str, targets: str, count: int, absent: float = 0.0) -> Forest:
    """The forest of the attributes of TreeEnsembleRegressor or -Classifier, whose nodes have a tree and a number.

    `targets` is the beginning of the names of what says the leaves' values: ``target`` or ``class``, of `count` ones;
    `absent` is the value of a target that a leaf does not name.
    """
    keys = list(zip(given["nodes_treeids"], given["nodes_nodeids"], strict=True))
    place = {key: at for at, key in enumerate(keys)}
    nodes = Nodes()
    for at in range(len(keys)):
        nodes.add_leaf(at)
    splits = _numbers(given, "nodes_values")
    tracks = given.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    write = Comparisons(nodes, dtype)
    children: set[int] = set()
    for at, (tree, _) in enumerate(keys):
        name = given["nodes_modes"][at]
        if name == "LEAF":
            continue
        if name not in NAMED_MODES:
            raise ModelProblem(f"a node of an ensemble of trees has the mode {name!r}, which ONNX does not define")
        sides = tuple(place.get((tree, given[f"nodes_{side}nodeids"][at]), -1) for side in ("true", "false"))
        children.update(sides)
        write.write(
            at, NAMED_MODES[name], given["nodes_featureids"][at], [splits[at]], (sides[0], sides[1]), bool(tracks[at])
        )
    values = np.full((len(keys), count), absent, np.float64 if dtype == "float64" else np.float32)
    named = zip(*(given[f"{targets}_{what}"] for what in ("treeids", "nodeids", "ids")), strict=True)
    is_new = np.ones(values.shape, bool)
    for (tree, number, target), weight in zip(named, _numbers(given, f"{targets}_weights"), strict=True):
        at = place[tree, number]
        values[at, target] = weight + (0 if is_new[at, target] else values[at, target])
        is_new[at, target] = False
    return planted(nodes, [at for at in range(len(keys)) if at not in children], values, dtype)


def by_place(given: Mapping[str, Any], dtype: str, absent: float = 0.0) -> Forest:
    """The forest of the attributes of TreeEnsemble, whose nodes and leaves go by their places in two lists."""
    count, nodes = len(given["nodes_featureids"]), Nodes()
    for _ in range(count):
        nodes.add_leaf(-1)
    tracks = given.get("nodes_missing_value_tracks_true") or [0] * count
    members, write = _sets(given.get("membership_values")), Comparisons(nodes, dtype)
    splits, modes = np.asarray(given["nodes_splits"]).reshape(-1), np.asarray(given["nodes_modes"]).reshape(-1)
    for at in range(count):
        sides = []
        for side in ("true", "false"):
            target, is_leaf = given[f"nodes_{side}nodeids"][at], given[f"nodes_{side}leafs"][at]
            sides.append(nodes.add_leaf(target) if is_leaf else target)
        mode = int(modes[at])
        numbers = next(members) if mode == MEMBER else [float(splits[at])]
        write.write(at, mode, given["nodes_featureids"][at], numbers, (sides[0], sides[1]), bool(tracks[at]))
    targets = np.asarray(given["leaf_targetids"], np.int64)
    weights = np.asarray(given["leaf_weights"]).reshape(-1)
    values = np.full((len(targets), int(given["n_targets"])), absent, np.float64 if dtype == "float64" else np.float32)
    values[np.arange(len(targets)), targets] = weights
    return planted(nodes, given["tree_roots"], values, dtype)


def _numbers(given: Mapping[str, Any], name: str) -> list[float]:
    """An attribute of numbers, which may be a tensor by another name."""
    tensor = given.get(f"{name}_as_tensor")
    return [float(number) for number in (given.get(name, []) if tensor is None else np.asarray(tensor).reshape(-1))]


def _sets(given: Any) -> Iterator[list[float]]:
    """The sets of values in a list in which each ends with NaN."""
    found: list[float] = []
    for value in np.asarray([] if given is None else given).reshape(-1):
        if np.isnan(value):
            yield found
            found = []
        else:
            found.append(float(value))
