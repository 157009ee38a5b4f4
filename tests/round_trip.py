"""Watches the programs that tests make: each valid one must survive printing and parsing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stridesmith.ir.depth import deep
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import VerifyError, verify

_KEPT = 64
_checked: set[int] = set()


class Sample:
    """A spread-out sample of what is added: everything while it is little, then every second, fourth, ..."""

    def __init__(self) -> None:
        self.items: list[PrimFunc] = []
        self.count, self.stride = 0, 1

    def add(self, func: PrimFunc) -> None:
        self.count += 1
        if self.count % self.stride == 0:
            self.items.append(func)
        if len(self.items) > _KEPT:
            del self.items[::2]
            self.stride *= 2

    def spread(self, most: int) -> list[PrimFunc]:
        """At most `most` of the items, the last one among them."""
        step = max(1, -(-len(self.items) // most))
        return self.items[::-1][::step]


@contextmanager
def watched(seen: Sample) -> Iterator[None]:
    """Every PrimFunc that is made inside, by whatever code, is added to `seen`."""
    make = PrimFunc.__init__

    def init(self: PrimFunc, *args: Any, **keywords: Any) -> None:
        make(self, *args, **keywords)
        seen.add(self)

    PrimFunc.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        PrimFunc.__init__ = make  # type: ignore[method-assign]


@deep()
def check(func: PrimFunc) -> None:
    """``parse(print(f)) == f`` in both dialects, for what `verify` accepts; each program once."""
    try:
        verify(func)
    except (VerifyError, TypeError, AttributeError, KeyError):  # some tests make what is no program at all
        return
    if hash(func) in _checked:
        return
    _checked.add(hash(func))
    for dialect in (None, "tvm"):
        text = func.script(dialect)
        again = parse(text)
        assert again == func, f"`parse(print(f)) == f` fails for\n{text}\nwhich becomes\n{again.script(dialect)}"
