"""Trees without walks: which leaves each comparison rules out, as bits that are combined by *and*.

Leaves of a tree are numbered from left to right.  A comparison that sends a row to the right rules out all leaves on
its left, and of those that no comparison rules out the first is the one that the row comes to, whatever the
comparisons beside its way say::

    word[i]  =  and over all nodes n of (bits[n] if compare(x[i, feature[n]], split[n]) else ~0)
    leaf[i]  =  lowest bit of word[i]

So nothing is looked up by what was computed before, and rows run in the lanes of vectors.  The leaves of a tree are
spread evenly over words of 32 bits; a comparison is part of each word in which it rules out something.
Source: Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression trees",
SIGIR 2015; with vectors, "Exploiting CPU SIMD extensions to speed-up document scoring with tree ensembles", SIGIR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]

BITS = 32
SPREADING = 0x077CB531
"""A number of 32 bits in which every five bits in a row are others (a de Bruijn sequence)."""


@dataclass(frozen=True)
class Group:
    """Comparisons of one kind, ``[words, n]``; where a word has fewer, the last ones rule out nothing."""

    kind: int
    feature: Ints
    split: Floats
    bits: Ints


@dataclass(frozen=True)
class Masks:
    """The comparisons of all trees by kinds, and what leaves hold: ``[trees, words * 32, targets]``.

    Word `w` of tree `t` has the number ``t * words + w``.  The leaf of the bit `b` of a word lies at
    ``(2**b * SPREADING mod 2**32) // 2**27`` of its part of the values, upper half first: so much of an int32 product,
    divided by 2**27 and rounded down, plus 16.
    """

    groups: tuple[Group, ...]
    words: int
    value: Floats

    @property
    def comparisons(self) -> int:
        """How many a tree takes."""
        return self.words * sum(int(group.feature.shape[1]) for group in self.groups)


@dataclass(frozen=True)
class _Leaves:
    """The tree of each node, the number of leaves below the node, and the number of the first of these."""

    tree: Longs
    count: Longs
    start: Longs


def masks_of(
    tables: tuple[Ints, Floats, Ints, Ints, Floats], kind: Ints | None, kinds: Sequence[int], words: int
) -> Masks:
    """The masks of trees, which are given as tables over nodes: feature, split, first child, roots, value."""
    feature, split, first, roots, value = tables
    leaves = _leaves(first, roots)
    nodes = np.flatnonzero(first != np.arange(len(first)))
    inner, is_leaf = nodes[leaves.tree[nodes] >= 0], first == np.arange(len(first))
    total = leaves.count[roots]
    size = -(-total // words)  # leaves of each word of a tree
    own = {number: inner if kind is None else inner[kind[inner] == number] for number in kinds}
    groups = tuple(_group(n, found, (feature, split, first), leaves, (total, size, words)) for n, found in own.items())
    ends = np.flatnonzero(is_leaf & (leaves.tree >= 0))
    tree = leaves.tree[ends]
    held = np.zeros((len(roots), words * BITS, value.shape[1]), value.dtype)
    held[tree, leaves.start[ends] // size[tree] * BITS + place(leaves.start[ends] % size[tree])] = value[ends]
    return Masks(groups, words, held)


def words_of(first: Ints, roots: Ints) -> int:
    """The words that the leaves of the largest tree take."""
    return int(-(-_leaves(first, roots).count[roots].max(initial=1) // BITS))


def place(bit: Longs) -> Longs:
    """The place in a table of the value of leaf `bit` of a word."""
    product = (np.int64(1) << bit) * SPREADING % (1 << BITS)
    found: Longs = (product >> 27) ^ 16  # as a signed number, from -16 on
    return found


def _leaves(first: Ints, roots: Ints) -> _Leaves:
    """Leaves below nodes and before them, level by level; what no root leads to is in the tree -1."""
    size = len(first)
    tree, count, start = np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    levels, here = [], roots.astype(np.int64)
    tree[here] = np.arange(len(roots))
    while len(here):
        levels.append(here)
        inner = here[first[here] != here]
        for side in (0, 1):
            tree[first[inner] + side] = tree[inner]
        here = np.concatenate([first[inner], first[inner] + 1]).astype(np.int64)
    for here in reversed(levels):
        inner = here[first[here] != here]
        count[here] = 1
        count[inner] = count[first[inner]] + count[first[inner] + 1]
    for here in levels:
        inner = here[first[here] != here]
        start[first[inner]] = start[inner]
        start[first[inner] + 1] = start[inner] + count[first[inner]]
    return _Leaves(tree, count, start)


def _group(
    kind: int, nodes: Longs, tables: tuple[Ints, Floats, Ints], leaves: _Leaves, layout: tuple[Longs, Longs, int]
) -> Group:
    """The comparisons of some nodes, for each word in which they rule out leaves.

    What rules out the last leaf of a word rules out the bits behind it as well, which are none.
    """
    (feature, split, first), (total, size, words) = tables, layout
    tree, begin = leaves.tree[nodes], leaves.start[nodes]
    end = begin + leaves.count[first[nodes]]
    per = size[tree]
    parts = []
    for word in range(words):
        low, high = np.clip(begin - word * per, 0, per), np.clip(end - word * per, 0, per)
        last = np.minimum(per, total[tree] - word * per)
        touched = np.flatnonzero(low < high)
        high = np.where(high == last, BITS, high)
        ruled_out = ((np.int64(1) << high[touched]) - (np.int64(1) << low[touched])).astype(np.uint32)
        parts.append((tree[touched] * words + word, nodes[touched], (~ruled_out).view(np.int32)))
    number, node, bits = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(number, kind="stable")
    number, node, bits = number[order], node[order], bits[order]
    held = np.bincount(number, minlength=len(size) * words)
    column = np.arange(len(number)) - np.repeat(np.cumsum(held) - held, held)
    shape = (len(size) * words, max(1, int(held.max(initial=1))))
    found = Group(kind, np.zeros(shape, np.int32), np.full(shape, np.nan, split.dtype), np.full(shape, -1, np.int32))
    found.feature[number, column], found.split[number, column] = feature[node], split[node]
    found.bits[number, column] = bits
    return found
