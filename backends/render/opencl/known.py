"""What is known where a statement is written: facts, and the variables of unrolled loops at their present values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ....ir.arith.intervals import Facts, Interval
from ....ir.arith.simplifier import simplifier_for
from ....ir.expr import Broadcast, Expr, Var, refold, variables
from ....ir.node import rebuild


class Known:
    """`facts` that hold, and `constants`, the values of unrolled loops' variables."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.constants: dict[Var, Expr] = {}
        self._fixed: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}
        self._unrolled: dict[Expr, tuple[Var, ...]] = {}

    @contextmanager
    def knowing(self, facts: Facts) -> Iterator[None]:
        """Within, `facts` hold."""
        before, self.facts = self.facts, facts
        try:
            yield
        finally:
            self.facts = before

    def interval(self, expr: Expr) -> Interval:
        """The least and the greatest value of an integer."""
        return self.facts.interval(expr)

    def simple(self, expr: Expr) -> Expr:
        """The expression simplified by the facts."""
        result: Expr = simplifier_for(self.facts).expr(expr)
        return result

    def settled(self, cond: Expr) -> Expr:
        """A condition without what is known to hold, as most of the conditions of an unrolled tile are."""
        settled = self.simple(cond)
        return settled.value if isinstance(settled, Broadcast) else settled

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
