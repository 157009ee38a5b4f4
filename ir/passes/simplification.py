"""``simplify``: expressions, conditions and conditionals, and what assumptions tell.

Rounds of five steps, until nothing changes: `known_loads` puts in what is known of memory,
`known_branches` what is known of it only where a condition that reads memory holds; `conditionals`
decides conditions by exact sets, and merges what says the same twice; `arith.statements`
simplifies expressions by intervals.
"""

from __future__ import annotations

from ..arith.statements import simplify_stmt
from ..context import context_of
from ..stmt import PrimFunc, Stmt
from .conditionals import decide_conditions, merge_conditionals
from .empty import without_empty
from .known_branches import with_known_branches
from .known_loads import with_known_loads
from .positions import at, position, with_statement
from .renaming import distinct

ROUNDS = 8  # until nothing changes, at most: rules shorten what they change


def simplified(func: PrimFunc, within: Stmt) -> PrimFunc:
    """The function with `within`, one of its statements, as simple as can be proven."""
    root, original = position(func.body, within), func
    for _ in range(ROUNDS):
        new = with_known_loads(func, at(func.body, root))
        new = distinct(with_known_branches(new, at(new.body, root)))
        stmt = at(new.body, root)
        place = context_of(new, stmt)
        stmt = merge_conditionals(decide_conditions(stmt, place), place)
        stmt = simplify_stmt(stmt, place.facts)
        new = with_statement(new, root, stmt)
        if new == func:
            break
        func = new
    return without_empty(func) if root and func is not original else func
