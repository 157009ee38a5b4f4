"""Attention as ONNX Runtime's operators define it, said in operators of ONNX.

::

    softmax(scale q k' + masks) v         q [b, n, s, h]    k [b, n, t, h]    v [b, n, t, g]

of n heads.  A mask is 0 where a key counts, and a number, by default -10000, where it does not; it is added, and so is
the lowest number for keys that come later, where attention goes one way: for all queries but the last, which sees all
keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from .parts import Parts

IN_HEADS, FROM_HEADS = [0, 2, 1, 3], [0, 2, 1, 3]
FILTER = -10000.0


def attention(p: Parts) -> bool:
    """``Attention(input, weights, bias, mask_index, past, attention_bias)``; the weights make q, k and v at once."""
    whole = p.add("MatMul", [0, 1])
    whole = p.add("Add", [whole, 2]) if p.has(2) else whole
    return attention_of(p, whole, mask=3, past=4, bias=5)


def attention_of(p: Parts, whole: str, mask: int, past: int, bias: int | None = None, like: int = 0) -> bool:
    """Attention over q, k and v side by side, ``[b, s, columns]``; `mask` to `bias` are the numbers of inputs.

    Input 1 has as many columns, and floats are of the type of input `like`.
    """
    batch, length, _ = p.shape()
    heads, columns = int(p.attribute("num_heads")), p.shape(1)[1]
    sizes = [int(size) for size in p.attribute("qkv_hidden_sizes", [columns // 3] * 3)]
    if p.attribute("do_rotary", 0) or p.attribute("past_present_share_buffer", 0):
        return False
    ends = np.cumsum([0, *sizes])
    parts = [p.sliced(whole, 2, int(ends[at]), int(ends[at + 1])) for at in range(3)]
    q, k, v = (in_heads(p, x, (batch, length, heads, size // heads)) for x, size in zip(parts, sizes, strict=True))
    before = 0
    if p.has(past):
        before = p.shape(past)[3]
        old = [p.add("Squeeze", [p.sliced(past, 0, at, at + 1), p.constant([0], "int64")]) for at in range(2)]
        k, v = (p.add("Concat", [kept, new], axis=2) for kept, new in zip(old, (k, v), strict=True))
    if p.wants(1):
        both = [p.add("Unsqueeze", [x, p.constant([0], "int64")]) for x in (k, v)]
        p.add("Concat", both, 1, axis=0)
    masks = _masks(p, mask, (batch, length, before + length), before, like)
    y = _attended(p, (q, k, v), sizes[0] // heads, [*masks, *([] if bias is None or not p.has(bias) else [bias])], like)
    from_heads(p, y, (batch, length, sizes[2]))
    return True


def multi_head_attention(p: Parts) -> bool:
    """``MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value)``.

    The query holds keys and values as well, or the key the values, where these are left out: ``[b, s, n, 3, h]`` and
    ``[b, t, n, 2, h]``.
    """
    heads = int(p.attribute("num_heads"))
    if p.has(8) or p.has(9) or p.wants(3):
        return False
    batch, length = p.shape()[:2]
    found = _operands(p, heads)
    if found is None:
        return False
    (q, k, v), (size, last) = found
    keys = p.shape(1)[2 if len(p.shape(1)) == 4 else 1] if p.has(1) else length
    before = 0
    if p.has(6):
        before = p.shape(6)[2]
        k, v = p.add("Concat", [6, k], axis=2), p.add("Concat", [7, v], axis=2)
    for at, x in ((1, k), (2, v)):
        if p.wants(at):
            p.add("Identity", [x], at)
    masks = _masks(p, 4, (batch, length, before + keys), before)
    y = _attended(p, (q, k, v), size, [*masks, *([5] if p.has(5) else [])])
    from_heads(p, y, (batch, length, heads * last))
    return True


def _operands(p: Parts, heads: int) -> tuple[tuple[str, str, str], tuple[int, int]] | None:
    """q, k and v in heads with their bias, and the columns of a head of q and v."""
    batch, length = p.shape()[:2]
    if len(p.shape()) == 5:  # q, k and v
        size = p.shape()[4]
        parts = [_without(p, p.sliced(0, 3, at, at + 1), 3) for at in range(3)]
        if p.has(3):
            parts = [p.add("Add", [x, _bias(p, at * heads * size, heads, size)]) for at, x in enumerate(parts)]
        q, k, v = (p.add("Transpose", [x], perm=IN_HEADS) for x in parts)
        return (q, k, v), (size, size)
    size = p.shape()[2] // heads
    q = in_heads(p, 0, (batch, length, heads, size), 0 if p.has(3) else None)
    if not p.has(1):
        return None
    if len(p.shape(1)) == 5:  # k and v
        keys = p.shape(1)[1]
        parts = [_without(p, p.sliced(1, 3, at, at + 1), 3) for at in range(2)]
        k, v = (p.add("Transpose", [x], perm=IN_HEADS) for x in parts)
        return (q, k, v), (size, size)
    if len(p.shape(1)) == 4:
        return (q, p.add("Identity", [1]), p.add("Identity", [2])), (size, p.shape(2)[3])
    keys, last = p.shape(1)[1], p.shape(2)[2] // heads
    k = in_heads(p, 1, (batch, keys, heads, size), heads * size if p.has(3) else None)
    v = in_heads(p, 2, (batch, keys, heads, last), 2 * heads * size if p.has(3) else None)
    return (q, k, v), (size, last)


def _bias(p: Parts, first: int, heads: int, size: int) -> str:
    """A part of the input 3 as ``[n, h]``."""
    return p.reshaped(p.sliced(3, 0, first, first + heads * size), (heads, size))


def _without(p: Parts, x: str, axis: int) -> str:
    return p.add("Squeeze", [x, p.constant([axis], "int64")])


def in_heads(p: Parts, x: int | str, shape: tuple[int, int, int, int], bias: int | None = None) -> str:
    """``[b, s, n h]`` as ``[b, n, s, h]``, from where the bias of the input 3 begins with that added."""
    split = p.reshaped(x, shape)
    if bias is not None:
        split = p.add("Add", [split, _bias(p, bias, *shape[2:])])
    return p.add("Transpose", [split], perm=IN_HEADS)


def from_heads(p: Parts, y: str, shape: Sequence[int]) -> None:
    """``[b, n, s, h]`` as ``[b, s, n h]``, the output."""
    together = p.add("Transpose", [y], perm=FROM_HEADS)
    p.add("Reshape", [together, p.constant(list(shape), "int64")], 0)


def _attended(p: Parts, operands: tuple[str, str, str], size: int, masks: Sequence[int | str], like: int = 0) -> str:
    q, k, v = operands
    scale = float(p.attribute("scale", 0.0)) or 1 / sqrt(size)
    scores = p.add("Mul", [p.add("MatMul", [q, p.add("Transpose", [k], perm=[0, 1, 3, 2])]), p.number(scale, like)])
    if masks:
        total: int | str = masks[0]
        for mask in masks[1:]:  # as ONNX Runtime adds them: huge numbers leave few digits to others
            total = p.add("Add", [total, mask])
        scores = p.add("Add", [scores, total])
    return p.add("MatMul", [p.add("Softmax", [scores], axis=-1), v])


def _masks(p: Parts, at: int, shape: tuple[int, int, int], before: int, like: int = 0) -> list[str]:
    """What is added to the scores of ``[b, n, s, t]``: of the keys that count, and of those that come later.

    The input `at` has a number for each key, ``[b, t]`` or ``[b, s, t]``, which counts where it is positive, or
    the end of each row's keys, ``[b]``, and then perhaps their beginnings.
    """
    batch, length, keys = shape
    missing, zero = p.number(float(p.attribute("mask_filter_value", FILTER)), like), p.number(0, like)
    masks: list[str] = []
    if p.has(at):
        given, dtype = p.shape(at), p.type(at).dtype
        if len(given) == 1:
            places = p.constant([range(keys)], dtype)
            ends = p.reshaped(p.sliced(at, 0, 0, batch), (batch, 1))
            counts = p.add("Less", [places, ends])
            if given[0] == 2 * batch:
                begins = p.reshaped(p.sliced(at, 0, batch, 2 * batch), (batch, 1))
                counts = p.add("And", [counts, p.add("GreaterOrEqual", [places, begins])])
        else:
            counts = p.add("Greater", [at, p.constant(0, dtype)])
        counts = p.reshaped(counts, (batch, 1, given[1] if len(given) == 3 else 1, keys))
        masks.append(p.add("Where", [counts, zero, missing]))
    if p.attribute("unidirectional", 0):
        later = np.arange(keys) > np.arange(length)[:, None] + before
        later[-1] = False
        lowest = float(np.finfo(p.type(like).dtype).min)
        masks.append(p.constant(np.where(later, lowest, 0), p.type(like).dtype))
    return masks


def rotary_embedding(p: Parts) -> bool:
    """``RotaryEmbedding(input, position_ids, cos_cache, sin_cache)``: pairs of columns turned by angles of places."""
    if p.attribute("scale", 1.0) != 1.0 or p.attribute("is_packed_batching", 0):
        return False
    shape, half = p.shape(), p.shape(2)[1]
    if len(shape) == 4:
        batch, heads, length, size = shape
        x: int | str = p.add("Transpose", [0], perm=IN_HEADS)
    else:
        batch, length, columns = shape
        has_rest = int(p.attribute("rotary_embedding_dim", 0))
        heads = int(p.attribute("num_heads", 0)) if has_rest else columns // (2 * half)
        size = columns // heads
        x = p.reshaped(0, (batch, length, heads, size))
    places: int | str = 1
    if p.shape(1) in ((1,), ()):
        places = p.add("Add", [p.reshaped(1, (1, 1)), p.constant([range(length)], "int64")])
    whole = turned(p, x, (batch, length, heads, size), (places, 2, 3))
    if len(shape) == 4:
        p.add("Transpose", [whole], 0, perm=FROM_HEADS)
    else:
        p.add("Reshape", [whole, p.constant(list(shape), "int64")], 0)
    return True


def turned(
    p: Parts,
    x: int | str,
    shape: tuple[int, int, int, int],
    angles: tuple[int | str, int, int],
    interleaved: str = "interleaved",
) -> str:
    """``[b, s, n, h]`` with pairs of columns turned by angles of their places.

    `angles` are the places, and the inputs with the cosines and the sines of each.  Pairs are neighbours where the
    attribute `interleaved` says so, else of the first and second half of those columns.
    """
    (batch, length, heads, size), (places, *tables) = shape, angles
    half = p.shape(tables[0])[1]
    cos, sin = (p.add("Unsqueeze", [p.add("Gather", [at, places]), p.constant([2], "int64")]) for at in tables)
    step = 2 if p.attribute(interleaved, 0) else 1
    firsts = (0, 1) if step == 2 else (0, half)
    a, b = (p.sliced(x, 3, at, 2 * half if step == 2 else at + half, step) for at in firsts)
    left = p.add("Sub", [p.add("Mul", [a, cos]), p.add("Mul", [b, sin])])
    right = p.add("Add", [p.add("Mul", [a, sin]), p.add("Mul", [b, cos])])
    if step == 2:
        both = [p.add("Unsqueeze", [side, p.constant([4], "int64")]) for side in (left, right)]
        parts = [p.reshaped(p.add("Concat", both, axis=4), (batch, length, heads, 2 * half))]
    else:
        parts = [left, right]
    if 2 * half < size:
        parts.append(p.sliced(x, 3, 2 * half, size))
    return p.add("Concat", parts, axis=3)
