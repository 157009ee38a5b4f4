"""Convolutions of three taps with fewer multiplications: Winograd's minimal filtering, as three operators.

Two neighbours of a convolution with three taps take four products instead of six (S. Winograd, Arithmetic Complexity of
Computations, 1980; for two dimensions A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016)::

    y[2 t + p] = sum over c, k of x[c, 2 t + p + k] * w[c, k],    p in (0, 1), k in (0, 1, 2)

    V[a, c, t] = (d0 - d2, d1 - d3, d1 - d2, d1 + d2)[a],         d = x[c, 2 t : 2 t + 4]
    U[a, c]    = (w0, -w2, (w1 - w0 - w2) / 2, (w0 + w1 + w2) / 2)[a]
    M[a, t]    = sum over c of V[a, c, t] * U[a, c]
    y[2 t]     = M[0, t] + M[2, t] + M[3, t]
    y[2 t + 1] = M[1, t] - M[2, t] + M[3, t]

In two dimensions this is done along both, and 16 products take the place of 36.  U is computed here, from constants.
The rest become operators, so that the layouts of V and M are agreed on like those of any tensor: the input transform
makes V, with what the program did to its input, if that is cheap (it is computed for each of the rows); one adds up M;
the output transform makes y, with what followed.  In exact arithmetic nothing changes; in float32 sums are rounded
otherwise (docs/numerics.md).

What must hold, by number:

1. one block reduces, and it is an anchor (`space.design.program`): it adds products of two loads of float32 to 0, for
   every point of its iterators; one of the loads is a constant of the network;
2. each index of the result and of the weights is an iterator that goes through all of the dimension; each index of the
   data is an iterator, or, in one or two of its dimensions, ``s + k``, where s is an iterator of the result and k one
   of three taps of the weights;
3. what computes the data is computed once, before, and is no part of what follows;
4. the multiplications that are saved are worth writing and reading U, V and M (`Convolution.saved`): more of them where
   these three are too large for the last cache, so that they come from memory, and in rows, which save a third of the
   multiplications where images save more than half.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import product
from math import inf, prod

import numpy as np

from ..errors import ProgramError
from ..ir.arith.linear import linear_form
from ..ir.caches import cached
from ..ir.expr import TRUE, Buffer, Expr, Load, Select, Var, all_of, binary, const, if_then_else
from ..ir.passes.renaming import canonical
from ..ir.stmt import (
    Block,
    Iter,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    read_buffers,
    seq,
    written_buffers,
)
from ..space.design.program import anchors, product_factors
from ..space.primitives.reduction import update_of
from ..space.tree import block_stores, leaf_blocks, nest_of, producers
from .fusion import CHEAP, operations, tidied
from .network import Array, Network, Node, Operator, Tensor, named_apart

TAPS, ROWS, OUTPUTS = 3, 4, 2
"""In one dimension: taps of the weights, products, and the neighbours of the result that these serve."""
WEIGHTS = ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (-0.5, 0.5, -0.5), (0.5, 0.5, 0.5))
"""What each row of U has of each tap."""
WORTH = 12.2
"""Multiplications that must be saved for each element of U, V and M: above, all shapes that were measured gain."""
WORTH_UNCACHED = 55.7
"""The same of rows, and where U, V and M do not stay in the last cache: that many take as long as one does."""
STAYS = 0.5
"""The part of the last cache in which U, V and M stay: what lies before and behind them wants places, too, and so do
other cores.  Of shapes on a Zen 5 (docs/performance.md), those that take 0.69 of it or more lost."""


def with_winograd(network: Network, worth: float = WORTH, cache: float = inf) -> Network:
    """The network in which convolutions of three taps are three operators each, where that pays.

    `worth` is how many multiplications must be saved for each element of U, V and M: of images where these stay in a
    `cache` of so many bytes (`STAYS`), and of all where it is infinite; elsewhere it is `WORTH_UNCACHED` at least.
    Both are fitted to what was measured (`benchmarks/winograd.py`).
    """
    made = _Made(dict(network.tensors), dict(network.constants))
    nodes: list[Node] = []
    for node in network.nodes:
        found = convolution(network, node) if isinstance(node, Operator) else None
        if isinstance(node, Operator) and found is not None and found.pays(worth, cache):
            nodes += made.operators(node, found)
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.inputs} | {*network.outputs}
    unused = made.constants.keys() - used
    constants = {name: array for name, array in made.constants.items() if name not in unused}
    tensors = {name: tensor for name, tensor in made.tensors.items() if name not in unused}
    return replace(network, nodes=named_apart(nodes), tensors=tensors, constants=constants)


# ---------------------------------------------------------------- what is a convolution


@dataclass(frozen=True)
class Convolution:
    """A program whose `block` adds up products of `data` and `weights`, and stores the sums at iterators.

    `windows` has, by dimension of the data, the iterators whose sum its index is: that of the result, and that of the
    taps.  `before` are the blocks that compute the data, `after` all others; `taken` are the names in the program.
    """

    block: Block
    store: Store
    data: Load
    weights: Load
    windows: Mapping[int, tuple[Var, Var]]
    before: tuple[Block, ...]
    after: tuple[Block, ...]
    taken: frozenset[str]

    @property
    def taps(self) -> frozenset[Expr]:
        """The iterators of the taps."""
        return frozenset(tap for _, tap in self.windows.values())

    @cached_property
    def extents(self) -> Mapping[Var, int]:
        """The points of each iterator; of a window, its pairs of neighbours."""
        found = {item.var: item.extent for item in self.block.iters}
        return found | {point: -(-found[point] // OUTPUTS) for point, _ in self.windows.values()}

    @cached_property
    def iterators(self) -> tuple[tuple[Var, ...], tuple[Var, ...], tuple[Var, ...]]:
        """The iterators of V, U and M without those of the rows, in one order.

        First those of all three, then those that V and M share, then V and U, then U and M.
        """
        points = {dim: point for dim, (point, _) in self.windows.items()}
        v = [points.get(dim, index) for dim, index in enumerate(self.data.indices)]
        u = [index for index in self.weights.indices if index not in self.taps]
        m = list(self.store.indices)

        def place(index: Var) -> tuple[bool, bool, bool]:
            return not (index in v and index in u and index in m), index in u, index in m

        def ordered(some: Sequence[Expr]) -> tuple[Var, ...]:
            return tuple(sorted((index for index in some if isinstance(index, Var)), key=place))

        return ordered(v), ordered(u), ordered(m)

    @cached_property
    def transformed(self) -> tuple[Buffer, Buffer, Buffer]:
        """V, U and M, which have a row for each dimension of the windows."""
        rows = (ROWS,) * len(self.windows)
        shapes = ((*rows, *(self.extents[index] for index in some)) for some in self.iterators)
        named = zip((fresh(name, {*self.taken}) for name in "VUM"), shapes, strict=True)
        v, u, m = (Buffer(name, shape, "float32") for name, shape in named)
        return v, u, m

    @property
    def saved(self) -> float:
        """The multiplications that are saved for each element of U, V and M."""
        saved = prod(item.extent for item in self.block.iters) - self.products
        return float(saved / self.elements)

    @property
    def products(self) -> int:
        """The multiplications that are left."""
        return int(ROWS ** len(self.windows)) * prod(e for v, e in self.extents.items() if v not in self.taps)

    @property
    def elements(self) -> int:
        """The elements of U, V and M, which are written and read in place of the multiplications that are saved."""
        return sum(buffer.size for buffer in self.transformed)

    def pays(self, worth: float, cache: float) -> bool:
        """Condition 4: whether enough is saved for what is written and read."""
        fits = cache == inf or (len(self.windows) > 1 and 4 * self.elements <= STAYS * cache)
        return self.saved >= (worth if fits else max(worth, WORTH_UNCACHED))


def convolution(network: Network, node: Operator) -> Convolution | None:
    """The convolution that an operator computes, by conditions 1 to 3."""
    named = zip(node.func.buffers, node.inputs, strict=False)
    return _convolution(node.func, frozenset(buffer for buffer, name in named if name in network.constants))


@cached(1024)
def _convolution(func: PrimFunc, constants: frozenset[Buffer]) -> Convolution | None:
    """The convolution that a program computes, of whose buffers some are constants."""
    sums = [block for block in leaf_blocks(func.body) if block.reduce]
    found = [anchor for anchor in anchors(func, {}) if sums and anchor.block == sums[0].name]
    if len(sums) != 1 or not found or found[0].op != "+" or func.is_strict or func.layouts:
        return None
    (block,) = sums
    store, _, value = update_of(block)
    zero = Store(store.buffer, store.indices, const(0.0, "float32"))
    if block.init != zero or block.predicate != TRUE or producers(func, store.buffer) != (block,):
        return None
    factors = product_factors(value)
    for weights, data in (factors, factors[::-1]) if len(factors) == 2 else ():
        if not isinstance(weights, Load) or not isinstance(data, Load) or weights.buffer not in constants:
            continue
        windows, around = _windows(block, store, data, weights), _around(func, block, data.buffer)
        if windows and around and weights.dtype == data.dtype == "float32":
            taken = frozenset(names(func) | {buffer.name for buffer in func.buffers})
            return Convolution(block, store, data, weights, windows, *around, taken)
    return None


def _windows(block: Block, store: Store, data: Load, weights: Load) -> dict[int, tuple[Var, Var]]:
    """The dimensions of the data along which windows of three taps move point by point, by condition 2; else none."""
    extents: dict[Expr, int] = {item.var: item.extent for item in block.iters}
    reduced: dict[Expr, int] = {item.var: item.extent for item in block.reduce}
    for access in (store, weights):
        indices = access.indices
        if len({*indices}) != len(indices) or tuple(extents.get(i) for i in indices) != access.buffer.shape:
            return {}
    found: dict[int, tuple[Var, Var]] = {}
    seen: list[Expr] = []
    for dim, index in enumerate(data.indices):
        terms, offset = linear_form(index)
        seen += terms
        taps = [v for v in terms if isinstance(v, Var) and v in weights.indices and reduced.get(v) == TAPS]
        points = [v for v in terms if isinstance(v, Var) and v in store.indices and v not in weights.indices]
        if len(terms) == 2 and {*terms.values()} == {1} and not offset and len(taps) == len(points) == 1:
            found[dim] = points[0], taps[0]
        elif not isinstance(index, Var):
            return {}
    summed = reduced.keys() - {tap for _, tap in found.values()}
    every = {*store.indices, *weights.indices, *seen} == {item.var for item in block.iters}
    return found if every and summed and len(found) in (1, 2) and len({*seen}) == len(seen) else {}


def _around(func: PrimFunc, block: Block, data: Buffer) -> tuple[tuple[Block, ...], tuple[Block, ...]] | None:
    """The blocks that compute what a block reads as its data, and all others but itself; None against condition 3."""
    needed, before, after = {data}, list[Block](), list[Block]()
    for other in reversed(leaf_blocks(func.body)):
        if other is not block:
            mine = bool(_stored(other) & needed)
            (before if mine else after).insert(0, other)
            needed |= {*read_buffers(other.body)} if mine else set()
    made = {buffer for other in before for buffer in _stored(other)}
    read = {buffer for other in after for buffer in read_buffers(other.body)}
    stored = _stored(block)
    once = all(producers(func, buffer) == (other,) for other in before for buffer in _stored(other))
    apart = not made & (read | {*func.params}) and not needed & stored
    return (tuple(before), tuple(after)) if apart and once else None


def _stored(block: Block) -> set[Buffer]:
    return {store.buffer for store in block_stores(block)}


# ---------------------------------------------------------------- three operators


@dataclass
class _Made:
    """The tensors and constants of the network that is made.

    `known` has the names of V and U by what they are computed from, and how.
    """

    tensors: dict[str, Tensor]
    constants: dict[str, Array]
    known: dict[tuple[object, ...], str] = field(default_factory=dict)

    def operators(self, node: Operator, conv: Convolution) -> list[Operator]:
        """The operators in place of one, which stays where its parts are no programs.

        What several convolutions read is transformed once, and so are weights of several.
        """
        try:
            before, start, end = _programs(node.func, conv)
        except ProgramError:
            return [node]
        (v, _, m), made = conv.transformed, list[Operator]()
        tensor_of = dict(zip(node.func.buffers, (*node.inputs, *node.outputs), strict=True))
        if before is not None:
            tensor_of[conv.data.buffer] = self._tensor(f"{node.name} input", conv.data.buffer)
            inputs = tuple(tensor_of[buffer] for buffer in before.buffers[:-1])
            made.append(Operator(f"{node.name} input", before, inputs, (tensor_of[conv.data.buffer],)))
        read = tuple(tensor_of[buffer] for buffer in start.buffers[:-1])
        key = (read, canonical(start))
        if key not in self.known:
            self.known[key] = self._tensor(f"{node.name} data", v)
            made.append(Operator(f"{node.name} data", start, read, (self.known[key],)))
        weights, sums = self._weights(node, tensor_of[conv.weights.buffer], conv), self._tensor(f"{node.name} sums", m)
        made.append(Operator(f"{node.name} sums", _sums(conv), (self.known[key], weights), (sums,)))
        reads = end.buffers[: len(end.buffers) - len(node.outputs)]
        return [*made, replace(node, func=end, inputs=tuple(tensor_of.get(buffer, sums) for buffer in reads))]

    def _weights(self, node: Operator, tensor: str, conv: Convolution) -> str:
        """The constant U of a convolution."""
        number = {index: dim for dim, index in enumerate(conv.weights.indices)}
        taps = tuple(number[tap] for _, tap in conv.windows.values())
        key = (tensor, taps, tuple(number[index] for index in conv.iterators[1]))
        if key not in self.known:
            self.known[key] = self._tensor(f"{node.name} weights", conv.transformed[1])
            self.constants[self.known[key]] = _of_weights(conv, self.constants[tensor])
        return self.known[key]

    def _tensor(self, name: str, buffer: Buffer) -> str:
        name = fresh(name, {*self.tensors})
        self.tensors[name] = Tensor(name, buffer.shape, buffer.dtype)
        return name


def _programs(func: PrimFunc, conv: Convolution) -> tuple[PrimFunc | None, PrimFunc, PrimFunc]:
    """What computes the data where that is not cheap, the input transform, and the output transform."""
    before, (v, _, m) = _nests(func, conv.before), conv.transformed
    apart = None
    if before:
        apart = _program(func, "winograd_input", before, (conv.data.buffer,))
        if operations(apart) <= CHEAP:
            apart = None
    start = _program(func, "winograd_data", [*([] if apart else before), _data(conv, v)], (v,))
    end = _program(func, "winograd_result", [_result(conv, m), *_nests(func, conv.after)], ())
    return apart, start, end


def _nests(func: PrimFunc, blocks: Sequence[Block]) -> list[Stmt]:
    return [nest_of(func, block) for block in blocks]


def _program(func: PrimFunc, name: str, nests: Sequence[Stmt], results: Sequence[Buffer]) -> PrimFunc:
    """A program of some nests of another one: its parameters are those that the nests use, buffers that they read and
    do not write, and the `results`."""
    body = seq(nests)
    written, read = written_buffers(body), read_buffers(body)
    inside = tuple(buffer for buffer in func.body.allocs if buffer in written and buffer not in results)
    known = [*func.buffers, *(b for b in (*read, *written) if b not in func.buffers and b not in inside)]
    params = [b for b in known if b in read and b not in written] + [b for b in known if b in written]
    return tidied(PrimFunc(name, tuple(params), replace(func.body, body=body, allocs=inside), (), func.attrs))


def _nest(name: str, extents: Mapping[Var, int], store: Store, taken: set[str], reduced: Sequence[Var] = ()) -> Stmt:
    """Loops around a block that stores for every point of its iterators."""
    ats = {var: Var(fresh(f"{var.name}_at", taken)) for var in extents}
    kinds = {var: "reduce" if var in reduced else "spatial" for var in extents}
    init = Store(store.buffer, store.indices, const(0.0, store.buffer.dtype)) if reduced else None
    iters = tuple(Iter(var, extent, kinds[var], ats[var]) for var, extent in extents.items())
    block = Block(fresh(name, taken), iters, store, init=init)
    return loops([(ats[var], extent) for var, extent in extents.items()], block)


def _named(letter: str, count: int, taken: set[str]) -> tuple[Var, ...]:
    """`count` variables with names that are not taken, which are taken from then on."""
    found = []
    for number in range(count):
        found.append(Var(fresh(f"{letter}{number}", taken)))
        taken.add(found[-1].name)
    return tuple(found)


def _data(conv: Convolution, v: Buffer) -> Stmt:
    """The input transform: along each dimension of the windows, the sum or difference of two of four neighbours."""
    (own, _, _), count, taken = conv.iterators, len(conv.windows), {*conv.taken, v.name}
    rows, points = _named("a", count, taken), dict(zip(own, _named("d", len(own), taken), strict=True))
    row_of = dict(zip(conv.windows, rows, strict=True))

    def combined(indices: tuple[Expr, ...]) -> Expr:
        """An element of V; `indices` are those of the data in the first dimensions."""
        dim = len(indices)
        if dim == len(conv.data.indices):
            return _element(conv, indices)
        if dim not in row_of:
            return combined((*indices, points[conv.data.indices[dim]]))  # type: ignore[index]
        row, first = row_of[dim], points[conv.windows[dim][0]] * OUTPUTS
        near = (row + 2) // 3  # 0, 1, 1, 1
        far = near - (row + 1) // 3 + 2  # 2, 3, 2, 2
        return combined((*indices, first + near)) + _signed(row < ROWS - 1, combined((*indices, first + far)))

    at = (*rows, *points.values())
    return _nest("input_transform", dict(zip(at, v.shape, strict=True)), Store(v, at, combined(())), taken)


def _element(conv: Convolution, indices: tuple[Expr, ...]) -> Expr:
    """An element of the data; 0 behind its end, where a last point has no neighbour, for sums that nothing reads."""
    shape, extents = conv.data.buffer.shape, conv.extents
    reach = {dim: extents[point] * OUTPUTS + TAPS - 1 for dim, (point, _) in conv.windows.items()}
    inside = all_of([indices[dim] < shape[dim] for dim, end in reach.items() if end > shape[dim]])
    return if_then_else(inside, Load(conv.data.buffer, indices), const(0.0, "float32"))


def _signed(negative: Expr, value: Expr) -> Expr:
    return Select(negative, const(-1.0, "float32"), const(1.0, "float32")) * value


def _sums(conv: Convolution) -> PrimFunc:
    """The program that adds up M."""
    (v, u, m), kept = conv.transformed, [item.var for item in conv.block.iters if item.var not in conv.taps]
    rows = _named("a", len(conv.windows), {var.name for var in kept} | {v.name, u.name, m.name})
    of_v, of_u, of_m = ((*rows, *some) for some in conv.iterators)
    value = Load(m, of_m) + Load(v, of_v) * Load(u, of_u)
    extents = dict.fromkeys(rows, ROWS) | {var: conv.extents[var] for var in kept}
    summed = [item.var for item in conv.block.reduce if item.var in extents]
    taken = {var.name for var in extents} | {v.name, u.name, m.name}
    nest = _nest("products", extents, Store(m, of_m, value), taken, summed)
    return PrimFunc("winograd_sums", (v, u, m), Block("root", (), nest))


def _result(conv: Convolution, m: Buffer) -> Stmt:
    """The output transform: along each dimension of the windows, three rows added up."""
    points = [point for point, _ in conv.windows.values()]
    at = [index // OUTPUTS if index in points else index for index in conv.iterators[2]]
    terms = []
    for rows in product(range(TAPS), repeat=len(points)):
        sides = zip(rows, points, strict=True)
        term: Expr = Load(m, (*(const(row + 1) if row else point % OUTPUTS for row, point in sides), *at))
        for row, point in zip(rows, points, strict=True):
            term = _signed(binary("==", point % OUTPUTS, 1), term) if row == 1 else term
        terms.append(term)
    extents = {item.var: item.extent for item in conv.block.spatial}
    store = Store(conv.store.buffer, conv.store.indices, reduce(operator.add, terms))
    return _nest("output_transform", extents, store, {*conv.taken, m.name})


def _of_weights(conv: Convolution, weights: Array) -> Array:
    """U of the weights, computed in float64."""
    found, left = weights.astype(np.float64), list[Expr](conv.weights.indices)
    for row, (_, tap) in reversed(list(enumerate(conv.windows.values()))):
        found = np.tensordot(np.asarray(WEIGHTS), found, axes=(1, left.index(tap)))
        left = [Var(f"row {row}"), *(index for index in left if index != tap)]
    rows = range(len(conv.windows))
    return found.transpose([*rows, *(left.index(index) for index in conv.iterators[1])]).astype(weights.dtype)
