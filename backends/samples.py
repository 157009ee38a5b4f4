"""Inputs for which the right result is known.

A sum of products runs on small integers, chosen so that every partial sum is
exact in the element type; then the order of the additions does not matter and
results compare for equality.  None is 0, unless a sum is too long for that; the
last one of an input's longest axis never is.  Programs of integers alone run on
bytes of the whole range as well, whose sums are exact whatever they are.
Beside that stands a normal sample, compared with a float64 reference within

    ``4 (sum over stores of eps K) sum|a b|``,

where K counts how often an element is stored to by that store, and eps is the
rounding unit of what it stores: a float16 result that is summed in float32 is
rounded to float16 once.  Division and transcendental functions widen the bound.
A long reduction with such functions runs on a sample as well whose last
elements along each axis weigh more than all others, since its sum would hide
that one is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ..ir import dtypes
from ..ir.arith.intervals import Facts, nothing_known
from ..ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Select, Var
from ..ir.functions import TO_INT_CALLS
from ..ir.node import Node, children, walk
from ..ir.numbers import BITS, convert, numpy_dtype
from ..ir.stmt import Block, For, If, PrimFunc, Stmt, Store, read_buffers, stores, written_buffers
from .data import Array
from .passes.roundings import is_step

Arrays: TypeAlias = Mapping[str, Array]
Reference: TypeAlias = Callable[[Arrays], dict[str, Array]]

EXACT_CALLS = (
    "if_then_else", "abs", "floor", "ceil", "nearbyint", "round", "trunc", "copysign", "fma", *TO_INT_CALLS,
)  # fmt: skip
INTEGERS = ((4, 1.0), (2, 1.0), (1, 1.0), (1, 1 / 4), (1, 1 / 16), (1, 1 / 64))
"""The largest of the integers that are tried one after the other, and the share of them that are not 0."""
LONGEST = 1 << 40
"""Iterations of a loop beyond which nothing is known of it but the type of its extent."""
WIDENING = 16.0
NUDGES = 3
"""How often inputs are changed by little, to see which results lie at a step."""
USUAL = 0.9
FEW_BITS = 8
VISIBLE = 0.1
"""What the bound may allow of a term of a sum."""
EDGE = 12.0
"""What is added to the last elements of a sample: they weigh 160,000 times as much in a sum of exponentials."""
DRAWS: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: np.abs(rng.standard_normal(shape)) + 1,
    lambda rng, shape: rng.uniform(0.05, 0.95, shape),
)
"""Numbers that are tried one after the other: roots and logarithms may need positive ones, above or below 1."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Logical inputs and the outputs that they give; `bounds` is None where these are exact.

    What a program holds as bfloat16 or float8 is the float32 of equal value here.  `steps` says of outputs of a program
    with steps, such as a `floor`, where another result is right as well.
    """

    name: str
    inputs: Arrays
    expected: Arrays
    bounds: Arrays | None
    steps: Mapping[str, Steps] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Steps:
    """Results on the other side of a step: those `as_rounded` in the program's own types, and a few elements more.

    Inputs that differ by as much as errors may move some elements by a step.  As often as that was seen, twice over, an
    element may be off, and by no more than then.
    """

    as_rounded: Array
    most: int
    size: float


@dataclass(frozen=True)
class Numerics:
    """What a program's operations promise about its results.

    `exact`: no rounding on small integers, but of what is given out.  `monotone`: the
    floats that the program makes of the absolute inputs bound those that it makes of
    the inputs.  `differences`: floats are made of integers that it subtracts or takes
    apart, so that the same is not known of the sum of the absolute terms.  `rounding`:
    the sum of eps K over the stores; `spread`: the root of the sum of eps**2 K, for
    errors that are independent.
    """

    exact: bool
    monotone: bool
    differences: bool
    rounding: float
    spread: float


def make_samples(func: PrimFunc, reference: Reference, seed: int, first: bool = False) -> tuple[Sample, ...]:
    """An exact sample where the program allows one, else perhaps one of edges, and a normal one; at least one in all.

    `reference` maps logical inputs to outputs and computes in the inputs' types.  With `first` the first sample alone.
    """
    rng = np.random.default_rng(seed)
    numerics = analyse(func)
    exact = _exact_sample(func, reference, numerics, rng)
    if not any(dtypes.is_float(b.dtype) for b in func.buffers):
        own = exact or _integer_sample(func, reference, rng, 4)
        is_few = any(_is_few(buffer.dtype) for buffer in input_buffers(func))
        return (own, _whole_sample(func, reference, rng)) if is_few and not first else (own,)
    if exact and first:
        return (exact,)
    normal = _normal_sample(func, reference, numerics, rng)
    if any(isinstance(n, Expr) and is_step(n) for n in walk(func)):
        normal = _with_steps(normal, reference, numerics, rng)
    if exact or first:
        return (exact, normal) if exact else (normal,)
    edges = _edge_sample(func, reference, numerics, normal)
    return (edges, normal) if edges else (normal,)


def analyse(func: PrimFunc) -> Numerics:
    """Classify the float operations of `func`, which is untransformed."""
    floats = [n for n in walk(func) if isinstance(n, Expr) and not isinstance(n, Load) and dtypes.is_float(n.dtype)]
    exact = all(_is_exact(n) for n in floats)
    conditions = [n.cond for n in walk(func) if isinstance(n, If)]
    monotone = all(_is_monotone(n) for n in floats) and not any(_reads(c) for c in conditions)
    chains = [(eps, count) for eps, count in _chains(func) if eps]
    rounding = sum(eps * count for eps, count in chains)
    spread = float(np.sqrt(sum(eps**2 * count for eps, count in chains)))
    values = [n for store in stores(func.body) for n in walk(store.value) if isinstance(n, Expr) and _reads(n)]
    mixed = any(isinstance(n, Cast) and dtypes.is_float(n.dtype) and dtypes.is_int(n.a.dtype) for n in values)
    computed = [n for n in values if isinstance(n, (Binary, Call)) and dtypes.is_int(n.dtype)]
    differences = mixed and any(isinstance(n, Call) or n.op not in ("+", "*", "min", "max") for n in computed)
    return Numerics(exact, exact and monotone, differences, rounding, spread)


def _reads(node: Node) -> bool:
    return any(isinstance(n, Load) for n in walk(node))


def _is_exact(node: Expr) -> bool:
    if isinstance(node, Const):
        return not np.isfinite(node.value) or float(node.value).is_integer()
    if isinstance(node, Call):
        return node.name in EXACT_CALLS
    return not (isinstance(node, Binary) and node.op in ("/", "//", "%"))


def _is_monotone(node: Expr) -> bool:
    if isinstance(node, Const):
        return node.value >= 0 or not np.isfinite(node.value)
    if isinstance(node, Select) or (isinstance(node, Call) and node.name == "if_then_else"):
        cond = node.cond if isinstance(node, Select) else node.args[0]
        return not _reads(cond)
    return not (isinstance(node, Binary) and node.op == "-")


def _chains(func: PrimFunc) -> list[tuple[float, int]]:
    """The rounding unit of each store, 0 without floats, and K, how often the store writes one element."""
    volumes = _store_volumes(func.body, 1, extents_of(func))
    return [(max(map(_eps, _types(store)), default=0.0), -(-volume // store.buffer.size)) for store, volume in volumes]


def _types(store: Store) -> set[str]:
    """The float types in which the value of a store is computed and kept."""
    found = {n.dtype for n in walk(store.value) if isinstance(n, Binary) or (isinstance(n, Call) and n.args)}
    # What is rounded to 8 bits is so by a step.
    return {dtypes.element(d) for d in found | {store.buffer.dtype} if dtypes.is_float(d) and not dtypes.is_storage(d)}


def _eps(dtype: str) -> float:
    """The distance of 1 and the next number."""
    few = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
    return few[dtype] if dtype in few else float(np.finfo(dtype).eps)


def statements(func: PrimFunc) -> int:
    """How many stores an execution makes, those of reduction inits left out."""
    return sum(volume for _, volume in _store_volumes(func.body, 1, extents_of(func)))


def extents_of(func: PrimFunc) -> dict[Var, int]:
    """The most iterations of the loops over each variable: of a row of a triangle as many as of the longest.

    Of a loop whose length memory decides as many as the largest buffer has elements.
    """
    found: dict[Var, int] = {}
    largest = max((b.size for b in (*read_buffers(func.body), *written_buffers(func.body))), default=1)

    def visit(node: Node, facts: Facts) -> None:
        if isinstance(node, For):
            most = facts.interval(node.extent)[1]
            found[node.var] = max(found.get(node.var, 0), most if most <= LONGEST else largest)
            facts = facts.with_bounds({node.var: (0, found[node.var] - 1)})
        for child in children(node):
            if isinstance(child, Stmt):
                visit(child, facts)

    visit(func.body, nothing_known())
    return found


def _store_volumes(node: Node, volume: int, extents: Mapping[Var, int]) -> Iterator[tuple[Store, int]]:
    if isinstance(node, Store):
        yield node, volume
    if isinstance(node, For):
        volume *= extents[node.var]
    for child in (node.body,) if isinstance(node, Block) else children(node):
        if not isinstance(child, Expr):
            yield from _store_volumes(child, volume, extents)


def _exact_sample(func: PrimFunc, reference: Reference, numerics: Numerics, rng: np.random.Generator) -> Sample | None:
    """The first of `INTEGERS` whose absolute sums stay exact, None if there is none."""
    if not (numerics.exact and numerics.monotone):
        return None
    for amplitude, share in INTEGERS:
        sample = _integer_sample(func, reference, rng, amplitude, share)
        sizes = _given_by(reference, {name: _magnitude(a) for name, a in _widened(sample.inputs).items()})
        if all(_finite_max(a) < _exact_limit(func) for a in sizes.values()):
            return sample
    return None


def _integer_sample(
    func: PrimFunc, reference: Reference, rng: np.random.Generator, amplitude: int, share: float = 1.0
) -> Sample:
    inputs = {}
    for buffer, shape in _logical_inputs(func):
        values = rng.integers(0, 2, shape) if buffer.dtype == "bool" else rng.integers(1, amplitude + 1, shape)
        if not (buffer.dtype.startswith("u") or buffer.dtype == "bool"):
            values = values * rng.choice(np.array([-1, 1]), shape)
        if share < 1:
            # The last element along the longest axis is the likeliest to be missing from a sum.
            found = np.zeros(shape, np.bool_)
            if shape:
                np.moveaxis(found, int(np.argmax(shape)), 0)[-1:] = True
            values = np.where((rng.random(shape) < share) | found, values, 0)
        inputs[buffer.name] = _held_as(buffer.dtype, values)
    expected = _checked(_given_by(reference, _widened(inputs)))
    given = {b.name: b.dtype for b in func.buffers if b.name in expected}
    return Sample("integers", inputs, {n: _rounded(a, given[n]) for n, a in expected.items()}, None)


def _is_few(dtype: str) -> bool:
    """Whether an integer has so few bits that instructions widen or saturate it, which small numbers do not show."""
    return dtypes.is_int(dtype) and dtypes.bits(dtype) <= FEW_BITS


def _whole_sample(func: PrimFunc, reference: Reference, rng: np.random.Generator) -> Sample:
    """Integers of few bits from the one end of their types to the other, an eighth of them the ends: sums are exact.

    A kernel that takes signed bytes for unsigned ones, or whose sums of two products end at 32767, is right for small
    ones alone.
    """
    inputs = {}
    for buffer, shape in _logical_inputs(func):
        values = _drawn_whole(buffer.dtype, shape, rng) if _is_few(buffer.dtype) else rng.integers(1, 5, shape)
        inputs[buffer.name] = _held_as(buffer.dtype, np.minimum(values, 1) if buffer.dtype == "bool" else values)
    return Sample("whole range", inputs, _checked(_given_by(reference, inputs)), None)


def _drawn_whole(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Numbers other than 0, since a program may divide by them."""
    low, high = dtypes.int_range(dtype)
    ends, values = rng.choice((low or 1, high), shape), rng.integers(low, high + 1, shape)
    values = np.where(rng.random(shape) < 1 / 8, ends, values)
    return np.asarray(np.where(values == 0, 1, values))


def _rounded(array: Array, dtype: str) -> Array:
    """A float result as its output holds it, widened again."""
    if array.dtype.kind != "f" or dtype not in ("float16", "float32", *BITS):
        return array
    with np.errstate(over="ignore"):
        return np.asarray(_held_as(dtype, array).astype(array.dtype))


def _normal_sample(func: PrimFunc, reference: Reference, numerics: Numerics, rng: np.random.Generator) -> Sample:
    gains = _gains(func)
    # Sums of large bytes that are given out in bytes would all be the ends of these.
    is_whole = not any(_is_few(buffer.dtype) for buffer in written_buffers(func.body) if buffer in func.params)
    for draw in DRAWS:
        inputs = {}
        for buffer, shape in _logical_inputs(func):
            values = draw(rng, shape) if dtypes.is_float(buffer.dtype) else rng.integers(0, 4, shape)
            if is_whole and _is_few(buffer.dtype):
                values = _drawn_whole(buffer.dtype, shape, rng)
            inputs[buffer.name] = _held_as(buffer.dtype, values * gains.get(buffer.name, 1))
        wide = _widened(inputs)
        with np.errstate(all="ignore"):
            expected = _given_by(reference, wide)
        if not _has_nan(expected):
            break
    _checked(expected)
    if not (numerics.exact and numerics.monotone) or numerics.differences:
        bounds = {name: _wide_bound(value, numerics) for name, value in expected.items()}
    else:
        sizes = _given_by(reference, {name: _magnitude(a) for name, a in wide.items()})
        bounds = {n: np.asarray(4 * numerics.rounding * _without_infinities(sizes[n])) for n in expected}
    return Sample("normal", inputs, expected, bounds)


def _gains(func: PrimFunc) -> dict[str, float]:
    """What weights are multiplied by that a recurrence adds K products of in each step: the root of 1 / K.

    With such weights a step makes an error no larger, while with larger ones the smallest error grows in each.
    """
    found: dict[str, float] = {}
    blocks = [n for n in walk(func.body) if isinstance(n, Block)]
    steps = [block for block in blocks if any(item.kind == "opaque" for item in block.iters)]
    for block in (n for step in steps for n in walk(step.body) if isinstance(n, Block) and n.reduce):
        length = np.prod([item.extent for item in block.reduce], dtype=np.float64)
        factors = [b for b in read_buffers(block.body) if b in func.params and dtypes.is_float(b.dtype)]
        found |= {factor.name: float(1 / np.sqrt(length)) for factor in factors}
    return found


def _with_steps(normal: Sample, reference: Reference, numerics: Numerics, rng: np.random.Generator) -> Sample:
    """The sample with what else is right where the smallest difference decides between two results."""
    assert normal.bounds is not None
    wide, found = _widened(normal.inputs), {}
    with np.errstate(all="ignore"):
        own = _given_by(reference, normal.inputs)
        nudged = [
            _given_by(reference, {n: _nudged(a, numerics, rng) if a.dtype.kind == "f" else a for n, a in wide.items()})
            for _ in range(NUDGES)
        ]
        for name, value in normal.expected.items():
            apart = [np.asarray(np.abs(np.subtract(other[name], value, dtype=np.float64))) for other in (own, *nudged)]
            moved = [gap[(gap > normal.bounds[name]) & np.isfinite(gap)] for gap in apart]
            most, size = max(gap.size for gap in moved), max(float(np.max(gap, initial=0.0)) for gap in moved)
            found[name] = Steps(own[name], 2 * most, size)
    return replace(normal, steps=found)


def _nudged(array: Array, numerics: Numerics, rng: np.random.Generator) -> Array:
    """Elements changed by as much as errors may change a result."""
    return np.asarray(array * (1 + WIDENING * numerics.spread * rng.uniform(-1, 1, array.shape)))


def _edge_sample(func: PrimFunc, reference: Reference, numerics: Numerics, normal: Sample) -> Sample | None:
    """The normal sample with larger numbers at the end of each axis.

    None where one of K equal terms is ten times what the bound allows, so that the normal sample shows its absence; and
    where the program in its own types, in which the reference computes what it is given, misses half of the bound: such
    numbers are too large for it.
    """
    longest = max((count for _, count in _chains(func)), default=1)
    if 2 * WIDENING * numerics.spread * longest < VISIBLE:
        return None
    inputs = {n: a + EDGE * _ends(a.shape) if a.dtype.kind == "f" else a for n, a in normal.inputs.items()}
    inputs = {b.name: _held_as(b.dtype, inputs[b.name]) for b in input_buffers(func)}
    with np.errstate(all="ignore"):
        expected, own = _given_by(reference, _widened(inputs)), _given_by(reference, inputs)
        bounds = {name: _wide_bound(value, numerics) for name, value in expected.items()}
        fits = all(np.all(np.abs(own[n] - value) <= bounds[n] / 2) for n, value in expected.items())
    return Sample("edge", inputs, expected, bounds) if fits else None


def _ends(shape: tuple[int, ...]) -> Array:
    """A mask of the elements that are the last ones along an axis of more than one."""
    found = np.zeros(shape, np.bool_)
    for axis, extent in enumerate(shape):
        if extent > 1:
            found[(slice(None),) * axis + (-1,)] = True
    return found


def _wide_bound(expected: Array, numerics: Numerics) -> Array:
    """``min(4 rounding, 16 spread) |y| + 16 spread max(|y|, Y)``: after a division no sum of absolute terms is at hand.

    Y is what nine in ten of the results that are not 0 stay below: a single quotient may be thousands of times as large
    as all others, and says nothing of their errors.  A bound that grows with K would excuse a sum of many that lacks
    some of them.
    """
    sizes = np.abs(_without_infinities(expected))
    most = float(np.quantile(sizes[sizes > 0], USUAL)) if np.any(sizes > 0) else 0.0
    independent = WIDENING * numerics.spread
    return np.asarray(min(4 * numerics.rounding, independent) * sizes + independent * np.maximum(sizes, most))


def _without_infinities(array: Array) -> Array:
    finite: Array = np.where(np.isfinite(array), array, 0.0)
    return finite


def input_buffers(func: PrimFunc) -> tuple[Buffer, ...]:
    """The buffer parameters that are only read."""
    written = set(written_buffers(func.body))
    return tuple(b for b in func.buffers if b not in written)


def _logical_inputs(func: PrimFunc) -> Iterator[tuple[Buffer, tuple[int, ...]]]:
    """The inputs with the shapes that callers see."""
    for buffer in input_buffers(func):
        yield buffer, func.logical_shape(buffer)


def _widened(arrays: Arrays) -> dict[str, Array]:
    """Floats as float64, in which small integers are exact and rounding is out of sight."""
    return {name: np.asarray(a, np.float64) if a.dtype.kind == "f" else a for name, a in arrays.items()}


def _given_by(reference: Reference, arrays: Arrays) -> dict[str, Array]:
    """What a reference gives, as arrays: what NumPy computes of arrays without dimensions are numbers."""
    return {name: np.asarray(value) for name, value in reference(arrays).items()}


def _magnitude(array: Array) -> Array:
    return array if array.dtype.kind in "bu" else np.asarray(np.abs(array))


def _held_as(dtype: str, values: Array) -> Array:
    """Numbers rounded to a type; of floats that NumPy does not have as float32."""
    if dtype in BITS:
        return np.asarray(convert("float64", dtype, values), np.float32)
    return np.asarray(values, numpy_dtype(dtype))


def _finite_max(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _exact_limit(func: PrimFunc) -> float:
    """Below this every integer is exact in the types that the program computes in.

    What is only given out is rounded once, as its expected value is, and sets no limit.
    """
    read = set(read_buffers(func.body))
    types = {dtypes.element(n.dtype) for s in stores(func.body) for n in walk(s.value) if isinstance(n, Binary)}
    types |= {s.buffer.dtype for s in stores(func.body) if s.buffer in read}
    limits = [2.0 / _eps(d) for d in types if dtypes.is_float(d)]
    limits += [float(dtypes.int_range(d)[1]) for d in types if dtypes.is_int(d)]
    return min(limits, default=2.0**24)


def _has_nan(expected: Arrays) -> list[str]:
    """The outputs with a NaN."""
    return [name for name, value in expected.items() if value.dtype.kind == "f" and np.isnan(value).any()]


def _checked(expected: dict[str, Array]) -> dict[str, Array]:
    for name in _has_nan(expected):
        raise ValueError(f"the reference result `{name}` has NaN for a finite sample, so nothing can be verified")
    return expected
