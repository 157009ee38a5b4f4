"""Choices that a schedule leaves open: drawn from a seed, kept in the trace, open to change.

They leave the program alone and return what was drawn; later instructions that are given
it follow when the decision in the trace is replaced.  Source: TensorIR's probabilistic
programs (Shao et al., "Tensor Program Optimization with Probabilistic Programs", 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb, prod
from random import Random
from sys import float_info

from ...ir.stmt import Block, For, PrimFunc
from ..errors import ScheduleError
from ..primitive import Result, sampling
from ..tree import block_stores, consumers, extent_of, find_block, find_loop, loops_above
from .compute import INLINE, ROOT, compute_at, compute_inline

ROOT_DECISION, INLINE_DECISION = -2, -1
MOST = float_info.max


def _draw_tile(func: PrimFunc, random: Random, loop: str, n: int, max_innermost_factor: int = 16) -> list[int]:
    """Uniformly among all factorisations whose last factor is not too large."""
    rest = _checked_extent(func, loop, n, max_innermost_factor)
    last = [d for d in _divisors(rest) if d <= max_innermost_factor]
    (inner,) = random.choices(last, [_ways(rest // d, n - 1) for d in last])
    factors, rest = [inner], rest // inner
    for parts in range(n - 2, 0, -1):
        options = _divisors(rest)
        (factor,) = random.choices(options, [_ways(rest // d, parts) for d in options])
        factors.append(factor)
        rest //= factor
    return [rest, *reversed(factors)]


@sampling(_draw_tile)
def sample_perfect_tile(
    func: PrimFunc, loop: str, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
) -> Result:
    """Draw ``n`` factors, outermost first, whose product is the extent of `loop`.

    Conditions: (1) `n` is at least 2, `max_innermost_factor` at least 1, and `loop` has iterations; (2) the
    decision has `n` positive factors whose product is the extent; (3) its last one is at most
    `max_innermost_factor`.  Returns the factors.
    """
    extent = _checked_extent(func, loop, n, max_innermost_factor)
    factors = list(decision or [])
    if len(factors) != n or any(f < 1 for f in factors) or prod(factors) != extent:
        raise ScheduleError(
            "(2) the decision {factors} must be {n} factors whose product is the extent {extent}",
            factors=factors, n=n, extent=extent,
        )  # fmt: skip
    if factors[-1] > max_innermost_factor:
        raise ScheduleError("(3) the innermost factor {got} is more than {most}",
                            got=factors[-1], most=max_innermost_factor)  # fmt: skip
    return func, factors


def _draw_partition(
    func: PrimFunc, random: Random, loop: str, n: int, partition_pos: int = 0, innerpart_factor: int = 1
) -> list[int]:
    """Factors of what is outside, and of what is inside without its own factor, which the first inside one takes."""
    _check_partition(func, loop, n, partition_pos, innerpart_factor)
    rest = extent_of(find_loop(func, loop)) // innerpart_factor
    factors: list[int] = []
    for parts in range(n - 1, 0, -1):
        options = _divisors(rest)
        (factor,) = random.choices(options, [_ways(rest // d, parts) for d in options])
        factors.append(factor)
        rest //= factor
    factors.append(rest)
    factors[partition_pos] *= innerpart_factor
    return factors


@sampling(_draw_partition)
def sample_partitioned_tile(
    func: PrimFunc, loop: str, n: int, partition_pos: int = 0, innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Draw ``n`` factors, outermost first, those from `partition_pos` on a multiple of `innerpart_factor` together.

    Conditions: (1) `n` is at least 2, `loop` has iterations, `partition_pos` is a position among the factors, and
    `innerpart_factor` divides the extent; (2) the decision has `n` positive factors whose product is the extent;
    (3) the product of those from `partition_pos` on is a multiple of `innerpart_factor`.  Returns the factors.
    """
    _check_partition(func, loop, n, partition_pos, innerpart_factor)
    extent, factors = extent_of(find_loop(func, loop)), list(decision or [])
    if len(factors) != n or any(f < 1 for f in factors) or prod(factors) != extent:
        raise ScheduleError(
            "(2) the decision {factors} must be {n} factors whose product is the extent {extent}",
            factors=factors, n=n, extent=extent,
        )  # fmt: skip
    if prod(factors[partition_pos:]) % innerpart_factor:
        raise ScheduleError("(3) the product of {inner} is no multiple of {factor}",
                            inner=factors[partition_pos:], factor=innerpart_factor)  # fmt: skip
    return func, factors


def _check_partition(func: PrimFunc, loop: str, n: int, partition_pos: int, innerpart_factor: int) -> None:
    extent = _checked_extent(func, loop, n, 1)
    if not 0 <= partition_pos < n or innerpart_factor < 1 or extent % innerpart_factor:
        raise ScheduleError(
            "(1) {n} factors of {extent} have no part from position {pos} on that is a multiple of {factor}",
            n=n, extent=extent, pos=partition_pos, factor=innerpart_factor,
        )  # fmt: skip


def _checked_extent(func: PrimFunc, loop: str, n: int, most: int) -> int:
    if n < 2 or most < 1:
        raise ScheduleError("(1) a tile has at least 2 factors and an innermost factor of at least 1, "
                            "but got n={n}, max_innermost_factor={most}", n=n, most=most)  # fmt: skip
    extent = extent_of(find_loop(func, loop))
    if extent == 0:
        raise ScheduleError("(1) loop `{loop}` has no iterations: no positive factors make 0", loop=loop)
    return extent


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0] if number < 4096 else sorted(_all_divisors(number))


def _all_divisors(number: int) -> set[int]:
    found = {1}
    for prime, exponent in _primes(number):
        found = {d * prime**e for d in found for e in range(exponent + 1)}
    return found


def _primes(number: int) -> Iterator[tuple[int, int]]:
    """Prime factors with their exponents."""
    factor = 2
    while factor * factor <= number:
        exponent = 0
        while number % factor == 0:
            number //= factor
            exponent += 1
        if exponent:
            yield factor, exponent
        factor += 1
    if number > 1:
        yield number, 1


def _ways(number: int, parts: int) -> int:
    """The number of ways in which `number` is a product of `parts` factors in order."""
    if parts == 0:
        return int(number == 1)
    return prod(comb(exponent + parts - 1, parts - 1) for _, exponent in _primes(number))


def _draw_category(_func: PrimFunc, random: Random, candidates: Sequence[int], probs: Sequence[float]) -> int:
    _check_categories(candidates, probs)
    return random.choices(range(len(candidates)), probs)[0]


@sampling(_draw_category)
def sample_categorical(
    func: PrimFunc, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
) -> Result:
    """Draw one of `candidates`, each with its probability; the decision is its position.

    Conditions: (1) there are as many probabilities as candidates, at least one, none negative
    and not all 0; (2) the decision is a position in `candidates`.  Returns the candidate.
    """
    _check_categories(candidates, probs)
    if decision is None or not 0 <= decision < len(candidates):
        raise ScheduleError("(2) the decision {got} is no position in {candidates}",
                            got=decision, candidates=list(candidates))  # fmt: skip
    return func, candidates[decision]


def _check_categories(candidates: Sequence[int], probs: Sequence[float]) -> None:
    if not candidates or len(candidates) != len(probs) or min(probs) < 0 or not 0 < sum(probs) <= MOST:
        raise ScheduleError("(1) {count} candidates need as many probabilities, none negative and not all 0, "
                            "but got {probs}", count=len(candidates), probs=list(probs))  # fmt: skip


def _draw_location(func: PrimFunc, random: Random, block: str) -> int:
    places = dict(_locations(func, find_block(func, block)))
    return random.choice([number for number, place in places.items() if _is_possible(func, block, place)])


@sampling(_draw_location)
def sample_compute_location(func: PrimFunc, block: str, decision: int | None = None) -> Result:
    """Draw a place for a producer: a loop that all its consumers share, inlined (-1), or where it is (-2).

    The decision k is the k-th of these loops, outermost first.  Only places that `compute_at`
    or `compute_inline` accepts are drawn.  Conditions: (1) the decision is one of these.
    Returns the loop, or what stands for the other two, for `compute_at`.
    """
    places = dict(_locations(func, find_block(func, block)))
    if decision not in places or not _is_possible(func, block, places[decision]):
        known = {n: p for n, p in places.items() if _is_possible(func, block, p)}
        raise ScheduleError("(1) the decision {got} is no place for `{block}`; there are {known}",
                            got=decision, block=block, known=known)  # fmt: skip
    return func, places[decision]


def _locations(func: PrimFunc, block: Block) -> Iterator[tuple[int, str]]:
    """Places by decision: where it is, inlined, and the loops that all consumers share."""
    yield ROOT_DECISION, ROOT
    stores = block_stores(block)
    readers = consumers(func, stores[0].buffer) if stores else ()
    if not readers:
        return
    yield INLINE_DECISION, INLINE
    shared: Sequence[For] = loops_above(func, readers[0])
    for reader in readers[1:]:
        above = loops_above(func, reader)
        shared = [loop for loop in shared if loop in above]
    yield from ((number, loop.var.name) for number, loop in enumerate(shared))


def _is_possible(func: PrimFunc, block: str, place: str) -> bool:
    """Whether the block can be computed there: the primitive is tried."""
    if place == ROOT:
        return True
    try:
        compute_inline(func, block) if place == INLINE else compute_at(func, block, place)
    except ScheduleError:
        return False
    return True
