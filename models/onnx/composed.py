"""Operators of ONNX that have no program as a whole, and no body in its definition, said in others that have one.

Fourier transforms are products with matrices of cosines and sines, those of frames a convolution; sums of products over
any letters (Einsum) are products of matrices, two operands at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..operators.building import programs
from ..operators.graph import Type
from ..operators.normalisations import row_of
from .graph import ModelGraph, ModelNode
from .parts import Parts

Composition: TypeAlias = Callable[[Parts], bool]
Letters: TypeAlias = str

LARGEST_TRANSFORM = 1 << 22
"""Elements of the matrix of a Fourier transform; longer ones are not worth a product."""


def composed(node: ModelNode, graph: ModelGraph, types: Sequence[Type | None]) -> Sequence[ModelNode] | None:
    """The nodes that compute what a node does; None where it has programs, or is nothing that is known here."""
    compose = COMPOSITIONS.get(node.op)
    if node.domain or compose is None or types[0] is None:
        return None
    trial = graph.trial()
    trial.types[node.outputs[0]] = types[0]
    if programs(trial, node) is not None:
        return None
    parts = Parts(graph, node)
    return parts.nodes if compose(parts) else None


# ---------------------------------------------------------------- Fourier transforms


def _matrix(rows: int, length: int, is_inverse: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The real and the imaginary part of ``exp(-2 pi i k n / length)``, of its inverse ``exp(...) / length``."""
    steps = np.outer(np.arange(rows), np.arange(length)) % length
    angle = 2 * pi * steps / length
    real, imaginary = np.cos(angle), (np.sin(angle) if is_inverse else -np.sin(angle))
    return (real / length, imaginary / length) if is_inverse else (real, imaginary)


def _dft(p: Parts) -> bool:
    """Along one dimension of ``[..., n, ..., parts]``, where a number has one part or two."""
    shape, dtype = p.shape(), p.type().dtype
    axis, length = _axis(p), p.known(1)
    if axis is None or (p.has(1) and length is None) or dtype not in ("float32", "float64"):
        return False
    is_inverse, is_half = bool(p.attribute("inverse", 0)), bool(p.attribute("onesided", 0))
    n = shape[axis] if length is None else int(length.reshape(-1)[0])
    rows = n // 2 + 1 if is_half else n
    if (is_inverse and is_half) or rows * n > LARGEST_TRANSFORM or n < 1:
        return False
    last, used = len(shape) - 1, min(n, shape[axis])
    order = [at for at in range(last) if at != axis]
    sides = []
    for part in range(shape[last]):
        x = p.sliced(0, axis, 0, used) if used < shape[axis] else 0
        x = p.add("Squeeze", [p.sliced(x, last, part, part + 1), p.constant([last], "int64")])
        sides.append(p.add("Transpose", [x], perm=[*order, axis]))
    real, imaginary = (p.constant(m[:, :used].T.copy(), dtype) for m in _matrix(rows, n, is_inverse))
    pairs = [[p.add("MatMul", [x, matrix]) for matrix in (real, imaginary)] for x in sides]
    (re, im), *rest = pairs
    for other_re, other_im in rest:  # i (a + b i) = -b + a i
        re, im = p.add("Sub", [re, other_im]), p.add("Add", [im, other_re])
    back = [*range(axis), last - 1, *range(axis, last - 1)]
    both = [p.add("Unsqueeze", [p.add("Transpose", [x], perm=back), p.constant([last], "int64")]) for x in (re, im)]
    p.add("Concat", both, 0, axis=last)
    return True


def _axis(p: Parts) -> int | None:
    """The dimension of a transform, which is an input since version 20."""
    if p.graph.opset(p.whole) < 20:
        axis = int(p.attribute("axis", 1))
    elif p.has(2):
        given = p.known(2)
        if given is None:
            return None
        axis = int(given.reshape(-1)[0])
    else:
        axis = -2
    return axis % len(p.shape())


def _stft(p: Parts) -> bool:
    """Frames of a signal ``[b, n, 1]``, each with a window: a convolution whose filters are cosines and sines."""
    step, window, length = p.known(1), p.known(2), p.known(3)
    shape, dtype = p.shape(), p.type().dtype
    is_open = (p.has(2) and window is None) or (p.has(3) and length is None) or step is None
    if is_open or dtype not in ("float32", "float64") or (len(shape) == 3 and shape[2] != 1):
        return False
    assert step is not None
    size = int(length.reshape(-1)[0]) if length is not None else len(window) if window is not None else 0
    rows = size // 2 + 1 if p.attribute("onesided", 1) else size
    if not 0 < size <= shape[1] or rows * size > LARGEST_TRANSFORM:
        return False
    filters = np.stack(_matrix(rows, size, is_inverse=False)).reshape(2 * rows, 1, size)
    filters = filters * (1.0 if window is None else window.astype(np.float64))
    stride = int(step.reshape(-1)[0])
    y = p.add("Conv", [p.reshaped(0, (shape[0], 1, shape[1])), p.constant(filters, dtype)], strides=[stride])
    frames = (shape[1] - size) // stride + 1
    p.add("Transpose", [p.reshaped(y, (shape[0], 2, rows, frames))], 0, perm=[0, 3, 2, 1])
    return True


def _hardmax(p: Parts) -> bool:
    """1 where the first largest element of a row stands, 0 elsewhere."""
    shape = p.shape()
    over = row_of(p.attribute("axis"), len(shape), p.graph.opset(p.whole))
    row = prod(shape[at] for at in over)
    flat = p.reshaped(0, (prod(shape) // row, row)) if len(over) > 1 else 0
    axis, extents = (1, (prod(shape) // row, row)) if len(over) > 1 else (over[0], shape)
    place = p.add("ArgMax", [flat], axis=axis, keepdims=1)
    steps = np.arange(extents[axis]).reshape([-1 if at == axis else 1 for at in range(len(extents))])
    chosen = p.add("Where", [p.add("Equal", [place, p.constant(steps, "int64")]), p.number(1), p.number(0)])
    p.add("Reshape", [chosen, p.constant(list(shape), "int64")], 0)
    return True


# ---------------------------------------------------------------- Einsum


def _einsum(p: Parts) -> bool:
    """Sums of products over letters: what one operand has alone is summed first, then two are multiplied at a time."""
    left, arrow, result = str(p.attribute("equation")).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(p.whole.inputs):
        return False
    dots = max(len(p.shape(at)) - len(term.replace("...", "")) for at, term in enumerate(terms) if "..." in term) if (
        "..." in left
    ) else 0  # fmt: skip
    wide = "".join(chr(ord("\u0100") + at) for at in range(dots))  # letters that no equation has
    spelled = [_spelled(term, len(p.shape(at)), wide) for at, term in enumerate(terms)]
    if not arrow:
        counts = "".join(spelled)
        result = "..." + "".join(sorted(c for c in set(counts) - set(wide) if counts.count(c) == 1))
    target = result.replace("...", wide)
    extents: dict[str, int] = {}
    for at, term in enumerate(spelled):
        for letter, extent in zip(term, p.shape(at), strict=True):
            extents[letter] = max(extent, extents.get(letter, 1))
    operands = [_alone(p, at, term, spelled, target, extents) for at, term in enumerate(spelled)]
    (x, own), *rest = operands
    for number, (y, theirs) in enumerate(rest):
        later = set(target).union(*(letters for _, letters in rest[number + 1 :]))
        x, own = _contracted(p, (x, own), (y, theirs), later, extents)
    missing = [letter for letter in target if letter not in own]
    if missing:
        return False
    p.add("Transpose", [x], 0, perm=[own.index(letter) for letter in target])
    return True


def _spelled(term: str, rank: int, wide: Letters) -> Letters:
    """A term with letters in the place of its dots: the last ones."""
    count = rank - len(term.replace("...", ""))
    return term.replace("...", wide[len(wide) - count :] if count else "")


def _alone(
    p: Parts, at: int, term: Letters, terms: Sequence[Letters], target: Letters, extents: Mapping[str, int]
) -> tuple[str, Letters]:
    """An operand with each letter once, of full extent, and without those that nothing else has."""
    x: int | str = at
    shape = [extents[letter] for letter in term]
    if tuple(shape) != p.shape(at):
        x = p.add("Expand", [x, p.constant(shape, "int64")])
    for letter in sorted(set(term)):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            around = [extents[letter] if axis in (first, second) else 1 for axis in range(len(term))]
            diagonal = p.constant(np.eye(extents[letter]).reshape(around), p.type(at).dtype)
            x = p.add("ReduceSum", [p.add("Mul", [x, diagonal]), p.constant([second], "int64")], keepdims=0)
            term = term[:second] + term[second + 1 :]
    others = set(target).union(*(other for number, other in enumerate(terms) if number != at))
    axes = [axis for axis, letter in enumerate(term) if letter not in others]
    if axes:
        x = p.add("ReduceSum", [x, p.constant(axes, "int64")], keepdims=0)
        term = "".join(letter for letter in term if letter in others)
    return (x if isinstance(x, str) else p.add("Identity", [x])), term


def _contracted(
    p: Parts, a: tuple[str, Letters], b: tuple[str, Letters], later: set[str], extents: Mapping[str, int]
) -> tuple[str, Letters]:
    """The product of two operands, summed over the letters of both that nothing later has."""
    both = [letter for letter in a[1] if letter in b[1]]
    batch, summed = [c for c in both if c in later], [c for c in both if c not in later]
    mine, theirs = [c for c in a[1] if c not in both], [c for c in b[1] if c not in both]

    def size(letters: Sequence[str]) -> int:
        return prod(extents[letter] for letter in letters)

    def arranged(side: tuple[str, Letters], groups: Sequence[Sequence[str]]) -> str:
        order = [side[1].index(letter) for group in groups for letter in group]
        return p.reshaped(p.add("Transpose", [side[0]], perm=order), [size(group) for group in groups])

    left, right = arranged(a, (batch, mine, summed)), arranged(b, (batch, summed, theirs))
    letters = "".join((*batch, *mine, *theirs))
    return p.reshaped(p.add("MatMul", [left, right]), [extents[letter] for letter in letters]), letters


COMPOSITIONS: Mapping[str, Composition] = {"DFT": _dft, "STFT": _stft, "Hardmax": _hardmax, "Einsum": _einsum}
