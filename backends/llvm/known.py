"""What is known of the contents of one memory: values that were loaded or stored, by where they are."""

from __future__ import annotations

from .index import Linear, Terms

Place = tuple[str, int, Terms, tuple[int, Terms] | None, int]
"""Element type, offset as constant and terms, stride of a vector likewise, lanes: quick to hash."""


def place_of(element: str, base: Linear, stride: Linear | None, lanes: int) -> Place:
    """The place of `lanes` elements, the first at `base`, each of the others `stride` after the one before it."""
    return element, base.const, base.terms, None if stride is None else (stride.const, stride.terms), lanes


class Known(dict[Place, str]):
    """The value at each place that is known.

    After a store all that is known is of one element type and differs from it by constants, without strides; then the
    places that a store reaches are found by where they begin, and not by comparing it with each.
    """

    def __init__(self, other: Known | None = None) -> None:
        super().__init__(other or ())
        self._alike: tuple[str, Terms] | None = None
        self._starts: dict[int, list[Place]] = {}
        self._widest = 0

    def learn(self, place: Place, value: str) -> None:
        """`value` is at `place`."""
        if self._alike is not None and place not in self:
            self._note(place)
        self[place] = value

    def store(self, place: Place, value: str) -> None:
        """`value` is now at `place`; only what lies at constant distances out of its reach is still known."""
        kind, base, terms, _, count = place
        if self._alike != (kind, terms):
            self._keep_alike(kind, terms)
        for start in range(base - self._widest + 1, base + count):
            for other in self._starts.get(start, ()):
                if base - start < other[-1]:
                    self.pop(other, None)
        self.learn(place, value)

    def _keep_alike(self, kind: str, terms: Terms) -> None:
        """Forget all whose distance is not constant."""
        left = {place: value for place, value in self.items() if _group(place) == (kind, terms)}
        self.clear()
        self._alike, self._starts, self._widest = (kind, terms), {}, 0
        for place, value in left.items():
            self.learn(place, value)

    def _note(self, place: Place) -> None:
        if _group(place) != self._alike:
            self._alike = None
            return
        there = self._starts.setdefault(place[1], [])
        if place not in there:  # it may have been known before
            there.append(place)
        self._widest = max(self._widest, place[-1])


def _group(place: Place) -> tuple[str, Terms] | None:
    """What places have in common that lie at constant distances; None for one with a stride."""
    return (place[0], place[2]) if place[3] in (None, (1, ())) else None
