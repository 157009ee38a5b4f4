"""Results that are kept between calls, and the one call that forgets all of them.

::

    @cached(4096)                       a function whose last 4096 results are kept
    table = Recent[Key, Value](64)      a mapping of the 64 entries that were used last
    clear_caches()                      both are empty again

What is found out about a node is kept on the node itself (`node.remembered`) and goes with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")

_CLEARING: list[Callable[[], None]] = []


class Cached(Protocol[P, R_co]):
    """A function that keeps its last results, by hashable arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def cache_clear(self) -> None:
        """Forget the results of this function alone."""

    def cache_info(self) -> Any:
        """Hits, misses and sizes, as of `functools.lru_cache`."""


def cached(size: int) -> Callable[[Callable[P, R_co]], Cached[P, R_co]]:
    """A decorator that keeps the last `size` results of a function until `clear_caches`."""

    def decorate(fn: Callable[P, R_co]) -> Cached[P, R_co]:
        kept = lru_cache(maxsize=size)(fn)
        _CLEARING.append(kept.cache_clear)
        return cast("Cached[P, R_co]", kept)

    return decorate


class Recent(Generic[K, V]):
    """The `size` entries that were used last, until `clear_caches`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        _CLEARING.append(self._entries.clear)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The entry, which counts as used; None if there is none."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> V:
        """Add or replace an entry, in place of the one that was not used for longest where there are too many."""
        self._entries[key] = value
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)
        return value


def cleared_with(clear: Callable[[], None]) -> Callable[[], None]:
    """Register what forgets a result that is kept in another way."""
    _CLEARING.append(clear)
    return clear


def clear_caches() -> None:
    """Forget every result that is kept between calls: memory is free again, and the next calls take their full time.

    What programs mean does not change; what is kept on their nodes goes with the nodes.
    """
    for clear in _CLEARING:
        clear()
