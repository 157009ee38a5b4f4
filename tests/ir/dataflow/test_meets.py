"""The quick answer to whether two iterations meet is never wrong, and says yes where it should."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from stridesmith.ir.arith.intervals import Facts, nothing_known
from stridesmith.ir.dataflow.meets import are_determined
from stridesmith.ir.expr import Binary, Buffer, Const, Expr, Load, Var
from stridesmith.ir.layout.index_text import evaluate

V, J, K, N = Var("v"), Var("j"), Var("k"), Var("n")
SIZES = {V: 6, J: 4, K: 3, N: 5}
FACTS = nothing_known().with_bounds({var: (0, size - 1) for var, size in SIZES.items()})
INDEX = Buffer("I", (8,), "int64")


@dataclass(frozen=True)
class Touch:
    indices: tuple[Expr, ...]
    facts: Facts = FACTS


def apart(*indices: tuple[Expr, ...] | Expr, changing: tuple[str, ...] = (), lanes: int = 1) -> bool:
    """Whether iterations of V, with J and K inside and N outside, touch different elements."""
    touches = [Touch(i if isinstance(i, tuple) else (i,)) for i in indices]
    return are_determined((V,), touches, {J, K}, FACTS, changing, lanes)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ((V * 4 + J,), True),
        ((V * 3 + J,), False),
        ((V * 4 + J, V * 4 + J + 1), False),
        ((V * 4 + J, V * 4 + K + 1), True),
        ((V * 4 + N,), True),
        ((V * 4 + N, V * 4 + N + 4), False),
        ((V // 2 * 2 + V % 2,), True),
        ((V // 2,), False),
        (((V // 2, V % 2),), True),
        (((V // 3, V % 2),), False),
        ((V // 2 * 8 + V % 2 * 4 + J,), True),
        (((J, V),), True),
        ((J,), False),
    ],
)
def test_known_patterns(indices: tuple[tuple[Expr, ...] | Expr, ...], expected: bool) -> None:
    """Tiles, digits and several dimensions separate; tiles that overlap and lost digits do not."""
    assert apart(*indices) is expected


def test_vectors_reach_further() -> None:
    """Each access of four elements needs a distance of four."""
    assert apart(V * 4, lanes=4)
    assert not apart(V * 3, lanes=4)


def test_what_is_loaded_counts_as_equal_only_where_nothing_stores_to_it() -> None:
    """The base of a gather is one number for all iterations unless they change it."""
    gathered = V * 4 + Load(INDEX, (N,))
    assert apart(gathered)
    assert not apart(gathered, changing=("I",))


def meets(touches: list[tuple[Expr, ...]]) -> bool:
    """Whether two different values of V touch one element for some value of N, by counting."""
    for n in range(SIZES[N]):
        seen: dict[tuple[int, ...], int] = {}
        for v, j, k in itertools.product(*(range(SIZES[x]) for x in (V, J, K))):
            values = {V.name: v, J.name: j, K.name: k, N.name: n}
            for indices in touches:
                element = tuple(int(evaluate(i, values)) for i in indices)
                if seen.setdefault(element, v) != v:
                    return True
    return False


def random_index(rng: random.Random) -> Expr:
    total: Expr = Const(rng.randrange(4))
    for var in rng.sample([V, J, K, N], rng.randint(1, 3)):
        term: Expr = var
        if rng.random() < 0.4:
            term = Binary(rng.choice(("//", "%")), var, Const(rng.randint(2, 4)))
        total = total + term * rng.choice((1, 2, 3, 4, 6, 12, -4))
    return total


def test_a_yes_is_never_wrong() -> None:
    """Of random accesses, those that are said to be apart are apart for all values of the loops."""
    rng = random.Random(7)
    said = 0
    for _ in range(1500):
        rank, count = rng.choice((1, 2)), rng.choice((1, 1, 2))
        first = tuple(random_index(rng) for _ in range(rank))
        shifted = tuple(i + rng.randrange(3) for i in first)
        touches = [first, shifted][:count]
        if apart(*touches):
            said += 1
            assert not meets(touches), touches
    assert said > 100
