"""What is known of a memory after stores: as if each store were compared with everything that was known before."""

from __future__ import annotations

import random

from stridesmith.backends.llvm.known import Known, Place

TERMS = [(), (), (("i", 4),), (("j", 8),)]


def forgets(place: Place, other: Place) -> bool:
    """Whether a store to `place` may change what is at `other`: not at a constant distance, out of its reach."""
    (kind, base, terms, _, count), (element, start, others, stride, width) = place, other
    apart = element == kind and others == terms and (start + width <= base or base + count <= start)
    return not (apart and stride in (None, (1, ())))


def place(rng: random.Random) -> Place:
    element, stride = rng.choice(("float", "float", "i8")), rng.choice((None, None, (1, ()), (2, ())))
    return element, rng.randint(0, 40), rng.choice(TERMS), stride, rng.choice((1, 1, 4, 16))  # type: ignore[return-value]


def test_a_store_forgets_what_it_may_change_and_nothing_else() -> None:
    """Random loads and stores, with copies at branches in between."""
    rng = random.Random(0)
    for _ in range(2000):
        known, right = Known(), dict[Place, str]()
        for step in range(rng.randint(1, 30)):
            at, value, what = place(rng), str(step), rng.random()
            if what < 0.5:
                known.store(at, value)
                right = {other: v for other, v in right.items() if not forgets(at, other)}
            elif what < 0.9:
                known.learn(at, value)
            else:
                known = Known(known)
                continue
            right[at] = value
            assert dict(known) == right
