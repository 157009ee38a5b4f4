"""The text of one kernel: lines, blocks, values that are held in constants, and unrolled variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import InternalError
from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.expr import Expr, Var, refold, variables
from ...ir.node import rebuild
from ...ir.stmt import memories_read
from .types import Helpers, Names, bare, memory_type

INT32 = dtypes.int_range("int32")


class NeedsLong(InternalError):
    """An index expression that may leave 32 bits."""


class Writer:
    """Lines of one kernel; `index_type` is the C type that stands for int64, `emulated` are types of 16 bits.

    `is_cpu` says that the device is a CPU, for which some code is better written in another way.
    """

    def __init__(
        self, index_type: str, helpers: Helpers, emulated: frozenset[str] = frozenset(), is_cpu: bool = True
    ) -> None:
        self.is_cpu = is_cpu
        self.index_type = index_type
        self.emulated = emulated
        self.helpers = helpers
        self.facts = Facts({})
        self.constants: dict[Var, Expr] = {}
        self.variables: dict[Var, str] = {}
        self.names = Names()
        self.written: frozenset[str] = frozenset()
        self.first_lines: list[str] = []  # at the top of the kernel
        self.lines: list[str] = []
        self.depth = 1
        self._held: list[dict[Any, str]] = [{}]
        self._lazy = 0
        self._fixed: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}
        self._unrolled: dict[Expr, tuple[Var, ...]] = {}
        self._changing: dict[Expr, bool] = {}

    def check_index(self, expr: Expr) -> None:
        """Raises NeedsLong for an index that may leave the type that stands for int64."""
        if self.index_type == "int":
            low, high = self.facts.interval(expr)
            if low < INT32[0] or high > INT32[1]:
                raise NeedsLong

    def line(self, text: str) -> None:
        """Write one line at the present depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C after `head`; values that are held in it end with it."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        self._held.append({})
        yield
        self._held.pop()
        self.depth -= 1
        self.line("}")

    def held(self, text: str, kind: str) -> str:
        """The name of a constant that holds the value of `text`, one for all its uses in this block."""
        name = self.known(text)
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

    def known(self, key: Any) -> str | None:
        return next((known[key] for known in self._held if key in known), None)

    def steady(self, expr: Expr, kind: str, start: int, count: int, write: Callable[[], str]) -> str:
        """What `write` gives, held if the statement evaluates it in any case and what it reads never changes.

        The same lanes of the same expression are written once in a block.
        """
        if self._lazy or self._changes(expr):
            return write()
        key = (expr, start, count)
        name = self.known(key)
        if name is None:
            name = self._held[-1][key] = self.held(write(), kind)
        return name

    def forget_loads(self) -> None:
        """Nothing that was read from memory is held any more."""
        for known in self._held:
            read = {name for key, name in known.items() if isinstance(key, tuple) and memories_read(key[0])}
            for key in [key for key, name in known.items() if name in read]:
                del known[key]

    def _changes(self, expr: Expr) -> bool:
        """Whether the expression reads memory that the kernel writes."""
        result = self._changing.get(expr)
        if result is None:
            result = not memories_read(expr).isdisjoint(self.written)
            self._changing[expr] = result
        return result

    @contextmanager
    def knowing(self, facts: Facts) -> Iterator[None]:
        """Within, `facts` hold."""
        before, self.facts = self.facts, facts
        try:
            yield
        finally:
            self.facts = before

    def fixed(self, expr: Expr) -> Expr:
        """`expr` with the variables of unrolled loops at their present values."""
        if not self.constants:
            return expr
        used = self._unrolled.get(expr)
        if used is None:
            used = self._unrolled[expr] = tuple(sorted(variables(expr), key=lambda v: v.name))
        values = tuple(self.constants.get(v, v) for v in used)
        if values == used:
            return expr
        key = (expr, values)
        result = self._fixed.get(key)
        if result is None:
            result = values[0] if isinstance(expr, Var) else refold(rebuild(expr, self._fixed_node))
            self._fixed[key] = result
        return result

    def _fixed_node(self, node: Any) -> Any:
        return self.fixed(node) if isinstance(node, Expr) else node

    def ctype(self, dtype: str) -> str:
        """The C type of a scalar value; conditions are int."""
        base = dtypes.element(dtype)
        if base == "bool":
            return "int"
        return self.index_type if base == dtypes.INDEX else self.value_type(base)

    def value_type(self, dtype: str) -> str:
        """The C type in which a lane of this type is computed and, but for indices, held in vectors."""
        base = dtypes.element(dtype)
        return "float" if base in self.emulated else memory_type(base)
