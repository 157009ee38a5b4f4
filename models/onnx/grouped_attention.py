"""GroupQueryAttention of ``com.microsoft``, the attention of decoders, said in operators of ONNX.

::

    present = past, then the new keys        past [b, g, p, h]    new [b, s, g h]    present [b, g, max(p, t), h]
    y = softmax(cap(scale q k' + bias)) v    q [b, s, n h]        k, v [b, g, t, h], each for n / g heads of q

Of the `t` places that count at most, ``total_sequence_length``, row `b` of the batch uses ``seqlens_k[b] + 1``, the new
tokens in the last `s` of them.  A query sees the keys up to its own place, or a window of them; all that there are
where `causal` is 0.  Where `s` is `t` the call begins the text, and whatever the past holds does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from .attention import from_heads, in_heads, turned
from .parts import Parts

Q, K, V, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COS, SIN, PLACES, BIAS, SINK = range(12)
"""Inputs by number."""
NORMS, QUERY_LENGTHS = (14, 15), 16
"""Those that are refused: weights of a normalisation of queries and keys, and how many of the new tokens count."""
PRESENT_KEY, PRESENT_VALUE, SCORES = 1, 2, 3
"""Outputs by number."""


@dataclass(frozen=True)
class _Sizes:
    """Of a batch, its new tokens, heads of queries, groups of them that share keys, and columns of a head.

    There are `total` places that count, of the `kept` ones of the past and the new ones.
    """

    batch: int
    length: int
    heads: int
    groups: int
    columns: int
    kept: int
    total: int

    @property
    def begins(self) -> bool:
        """Whether the new tokens are all that there are."""
        return self.length == self.total

    @property
    def present(self) -> int:
        """Places of what is kept for the next call."""
        return max(self.kept, self.total)


def group_query_attention(p: Parts) -> bool:
    """The operator with inputs and outputs as they are numbered above."""
    sizes = _sizes(p)
    _check(p, sizes)
    return _Attention(p, sizes).define()


def _sizes(p: Parts) -> _Sizes:
    """What shapes and attributes say.  Raises ModelProblem where they say nothing that fits."""
    (batch, length, columns), heads, groups = p.shape(), int(p.attribute("num_heads")), int(p.attribute("kv_num_heads"))
    if groups < 1 or heads % groups:
        raise p.refused(f"{heads} heads of queries in groups for {groups} heads of keys, which do not divide them")
    total = p.known(TOTAL)
    if total is None:
        raise p.refused(
            "a `total_sequence_length` that is computed from the contents of the model's inputs, so that the shape of "
            "what it keeps depends on them; give the input that it comes from a value: --input NAME=VALUE"
        )
    columns //= heads if p.has(K) else heads + 2 * groups
    kept = p.shape(PAST_KEY)[2] if p.has(PAST_KEY) else 0
    return _Sizes(batch, length, heads, groups, columns, kept, int(total.reshape(-1)[0]))


def _check(p: Parts, sizes: _Sizes) -> None:
    """Raise ModelProblem for what is not computed here, which ONNX Runtime does not compute on CPUs either, mostly."""
    if p.wants(SCORES):
        raise p.refused("its scores as a result (`qk_output`), which are no tensor here: leave that output out")
    dtype = p.type(Q).dtype
    if any(p.has(at) and p.type(at).dtype != dtype for at in (PAST_KEY, PAST_VALUE)):
        raise p.refused(f"a cache of {p.type(PAST_KEY).dtype} for a query of {dtype}; there are caches of its type")
    if p.attribute("sliding_window_cache", 0):
        raise p.refused("a cache that forgets what leaves the window (`sliding_window_cache`); keep all of the text")
    if any(map(p.has, NORMS)):
        raise p.refused("weights that normalise queries and keys; normalise them before, as ONNX Runtime asks on CPUs")
    if p.has(QUERY_LENGTHS):
        raise p.refused(
            "`query_seqlens`, by which the new tokens of a row may be fewer; leave the rest out of the call"
        )
    if p.has(K) != p.has(V) or p.has(PAST_KEY) != p.has(PAST_VALUE):
        raise p.refused("keys without values, or values without keys")
    if p.has(K) and p.shape(K)[1] != sizes.length:
        raise p.refused(f"{p.shape(K)[1]} new keys for {sizes.length} queries; there is one for each")
    if sizes.total < sizes.length:
        raise p.refused(f"{sizes.length} new tokens where there are {sizes.total} in all")
    if not sizes.begins and sizes.length > 1 and sizes.batch > 1:
        raise p.refused(
            f"{sizes.length} new tokens after others for each of {sizes.batch} rows of a batch; that is done for one "
            "row, or for one token, or where a text begins"
        )
    if p.attribute("do_rotary", 0) and not (p.has(COS) and p.has(SIN)):
        raise p.refused("`do_rotary` without tables of cosines and sines")


class _Attention:
    """The nodes of one attention."""

    def __init__(self, p: Parts, sizes: _Sizes) -> None:
        self.p, self.sizes = p, sizes

    def define(self) -> bool:
        p, s = self.p, self.sizes
        q, k, v = self._operands()
        keys = self._kept(k, PAST_KEY, PRESENT_KEY)
        values = self._kept(v, PAST_VALUE, PRESENT_VALUE)
        if s.present > s.total:
            keys, values = (p.sliced(x, 2, 0, s.total) for x in (keys, values))
        # The heads of a group have the same keys: their queries are rows of one product.
        rows = (s.batch, s.groups, s.heads // s.groups * s.length)
        scores = p.add("MatMul", [p.reshaped(q, (*rows, s.columns)), p.add("Transpose", [keys], perm=[0, 1, 3, 2])])
        scale = float(p.attribute("scale", 0.0)) or 1 / sqrt(s.columns)
        scores = p.reshaped(p.add("Mul", [scores, p.number(scale)]), (s.batch, s.heads, s.length, s.total))
        shares = p.reshaped(self._shares(scores), (*rows, s.total))
        y = p.reshaped(p.add("MatMul", [shares, values]), (s.batch, s.heads, s.length, s.columns))
        from_heads(p, y, (s.batch, s.length, s.heads * s.columns))
        return True

    def _operands(self) -> tuple[str, str, str]:
        """q, k and v as ``[b, heads, s, h]``, the first two turned by the angles of their places."""
        p, s = self.p, self.sizes
        shapes = [(s.batch, s.length, heads, s.columns) for heads in (s.heads, s.groups, s.groups)]
        if p.has(K):
            parts: list[int | str] = [Q, K, V]
        else:
            ends = np.cumsum([0, *(heads * columns for _, _, heads, columns in shapes)])
            parts = [p.sliced(Q, 2, int(ends[at]), int(ends[at + 1])) for at in range(3)]
        if p.attribute("do_rotary", 0):
            for at, shape in enumerate(shapes[:2]):
                parts[at] = turned(
                    p, p.reshaped(parts[at], shape), shape, (self._angles, COS, SIN), "rotary_interleaved"
                )
        q, k, v = (in_heads(p, x, shape) for x, shape in zip(parts, shapes, strict=True))
        return q, k, v

    @cached_property
    def _before(self) -> str:
        """How many tokens each row has before the new ones, ``[b, 1]``."""
        p, s = self.p, self.sizes
        lengths = p.reshaped(LENGTHS, (s.batch, 1))
        return p.add("Add", [lengths, p.constant(1 - s.length, p.type(LENGTHS).dtype)])

    @cached_property
    def _places(self) -> str:
        """The places of the new tokens, ``[b, s]``; ``[1, s]`` where they begin a text."""
        p, s = self.p, self.sizes
        dtype = p.type(LENGTHS).dtype
        new = p.constant([range(s.length)], dtype)
        return new if s.begins else p.add("Add", [self._before, new])

    @cached_property
    def _angles(self) -> int | str:
        """The places by which queries and keys are turned: of those that are given for a text's beginning the first."""
        p, s = self.p, self.sizes
        if not p.has(PLACES):
            return self._places
        if not s.begins:
            return PLACES
        first = p.reshaped(p.sliced(p.reshaped(PLACES, (s.batch * s.length,)), 0, 0, 1), (1, 1))
        return p.add("Add", [first, p.constant([range(s.length)], p.type(PLACES).dtype)])

    def _kept(self, new: str, past: int, into: int) -> str:
        """What is kept with the new keys or values in their places, zeros behind them, ``[b, g, t, h]``."""
        p, s = self.p, self.sizes
        into = into if p.wants(into) else -1
        if s.begins:
            return p.add("Concat", [new, *self._zeros(s.present - s.length)], into, axis=2)
        old = p.add("Concat", [*([past] if s.kept else []), *self._zeros(s.present - s.kept)], axis=2)
        dtype = p.type(LENGTHS).dtype
        places = p.constant(np.arange(s.present).reshape(1, 1, -1, 1), dtype)
        before = p.reshaped(self._before, (s.batch, 1, 1, 1))
        if s.length > 1:  # of a single row: each new token moves to its place
            behind = p.add("Sub", [p.constant(range(s.present), dtype), p.reshaped(self._before, (1,))])
            ends = [p.constant(number, dtype) for number in (0, s.length - 1)]
            new = p.add("Gather", [new, p.add("Clip", [behind, *ends])], axis=2)
        end = p.add("Add", [before, p.constant(s.length, dtype)])
        fresh = p.add("Where", [p.add("Less", [places, end]), new, p.number(0)])
        return p.add("Where", [p.add("Less", [places, before]), old, fresh], into)

    def _zeros(self, count: int) -> list[str]:
        """Zeros for so many places, none for no place."""
        s, dtype = self.sizes, self.p.type(Q).dtype
        return [self.p.constant(np.zeros((s.batch, s.groups, count, s.columns)), dtype)] if count else []

    def _shares(self, scores: str) -> str:
        """The share that each key has in what a query finds, ``[b, n, s, t]``."""
        p, s = self.p, self.sizes
        cap = float(p.attribute("softcap", 0.0))
        if cap > 0:
            scores = p.add("Mul", [p.add("Tanh", [p.add("Div", [scores, p.number(cap)])]), p.number(cap)])
        if p.has(BIAS):
            scores = p.add("Add", [scores, BIAS])
        lowest = p.number(float(np.finfo(p.type(Q).dtype).min))
        scores = p.add("Where", [self._counts(), scores, lowest])
        if not p.has(SINK) and not p.attribute("smooth_softmax", 0):
            return p.add("Softmax", [scores], axis=-1)
        sink = p.reshaped(SINK, (1, s.heads, 1, 1)) if p.has(SINK) else p.constant(np.zeros((1,) * 4), p.type(Q).dtype)
        beside = p.add("Expand", [sink, p.constant([s.batch, s.heads, s.length, 1], "int64")])
        whole = p.add("Softmax", [p.add("Concat", [scores, beside], axis=3)], axis=-1)
        return p.sliced(whole, 3, 0, s.total)

    def _counts(self) -> str:
        """Which keys a query sees, ``[b, 1, s, t]``."""
        p, s = self.p, self.sizes
        dtype = p.type(LENGTHS).dtype
        window = int(p.attribute("local_window_size", -1))
        keys = np.arange(s.total).reshape(1, 1, 1, -1)
        if not p.attribute("causal", 1):
            return p.add("LessOrEqual", [p.constant(keys, dtype), p.reshaped(LENGTHS, (s.batch, 1, 1, 1))])
        if s.begins:
            own = np.arange(s.length).reshape(1, 1, -1, 1)
            return p.constant((keys <= own) & ((window <= 0) | (keys > own - window)))
        place, places = p.reshaped(self._places, (s.batch, 1, s.length, 1)), p.constant(keys, dtype)
        counts = p.add("LessOrEqual", [places, place])
        if window <= 0:
            return counts
        before = p.add("Sub", [place, p.constant(window, dtype)])
        return p.add("And", [counts, p.add("Greater", [places, before])])
