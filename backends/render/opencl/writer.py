"""The text of one kernel: lines, blocks, and constants that hold values in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ....ir.expr import Expr
from ....ir.stmt import memories_read
from .types import Names, bare


class Writer:
    """The lines of a kernel that writes the memories `written`; `first_lines` stand at its top, before `lines`."""

    def __init__(self, written: frozenset[str]) -> None:
        self.written = written
        self.names = Names()
        self.first_lines: list[str] = []
        self.lines: list[str] = []
        self.is_lazy = False
        """Whether what is written is evaluated under a condition alone, so that nothing may be held before it."""
        self._depth = 1
        self._held: list[dict[Any, str]] = [{}]
        self._changing: dict[Expr, bool] = {}

    def line(self, text: str) -> None:
        """Write one line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C after `head`; values that are held in it end with it."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        self._held.append({})
        yield
        self._held.pop()
        self._depth -= 1
        self.line("}")

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """Within, what is written is evaluated under a condition alone."""
        before, self.is_lazy = self.is_lazy, True
        yield
        self.is_lazy = before

    def held(self, text: str, kind: str) -> str:
        """The name of a constant that holds the value of `text`, one for all its uses in this block."""
        name = self._known(text)
        if name is None:
            name = self.names.fresh("t")
            self.line(f"const {kind} {name} = {bare(text)};")
            self._held[-1][text] = name
        return name

    def before(self, texts: list[str], kinds: list[str]) -> list[str]:
        """The names of constants that hold values, all computed before the next statement."""
        names = [self.names.fresh("held") for _ in texts]
        for name, kind, text in zip(names, kinds, texts, strict=True):
            self.line(f"const {kind} {name} = {bare(text)};")
        return names

    def steady(self, expr: Expr, kind: str, write: Callable[[], str]) -> str:
        """What `write` gives, held if the statement evaluates it in any case and what it reads never changes.

        The same expression is written once in a block.
        """
        if self.is_lazy or self.changes(expr):
            return write()
        name = self._known(expr)
        if name is None:
            name = self._held[-1][expr] = self.held(write(), kind)
        return name

    def forget_loads(self) -> None:
        """Nothing that was read from memory is held any more."""
        for known in self._held:
            read = {name for key, name in known.items() if isinstance(key, Expr) and memories_read(key)}
            for key in [key for key, name in known.items() if name in read]:
                del known[key]

    def changes(self, expr: Expr) -> bool:
        """Whether the expression reads memory that the kernel writes."""
        result = self._changing.get(expr)
        if result is None:
            result = self._changing[expr] = not memories_read(expr).isdisjoint(self.written)
        return result

    def _known(self, key: Any) -> str | None:
        return next((known[key] for known in self._held if key in known), None)
