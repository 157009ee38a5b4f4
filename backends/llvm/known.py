"""What is known of the contents of one memory: values that were loaded or stored, by where they are."""

from __future__ import annotations

from .index import Linear, Terms

Place = tuple[str, int, Terms, tuple[int, Terms] | None, int]
"""Element type, offset as constant and terms, stride of a vector likewise, lanes: quick to hash."""


def place_of(element: str, base: Linear, stride: Linear | None, lanes: int) -> Place:
    """Where `lanes` elements lie from `base` on, each `stride` after the last."""
    return element, base.const, base.terms, None if stride is None else (stride.const, stride.terms), lanes


class Known(dict[Place, str]):
    """The value at each place that is known.

    A store need not be compared with what was known when the same elements were stored
    before: that is apart from them, and `_order` says what came since.
    """

    def __init__(self, other: Known | None = None) -> None:
        super().__init__(other or ())
        self._order: list[Place] = list(other._order) if other else []
        self._compared: dict[Place, int] = dict(other._compared) if other else {}

    def learn(self, place: Place, value: str) -> None:
        """`value` is at `place`."""
        if place not in self:
            self._order.append(place)
        self[place] = value

    def store(self, place: Place, value: str) -> None:
        """`value` is now at `place`; only what lies at constant distances out of its reach is still known."""
        kind, base, terms, _, count = place
        for other in self._order[self._compared.get(place, 0) :]:
            element, start, others, stride, width = other
            apart = not -count < base - start < width and element == kind and others == terms
            if not (apart and (stride is None or stride == (1, ()))):
                self.pop(other, None)
        self.learn(place, value)
        self._compared[place] = len(self._order)
