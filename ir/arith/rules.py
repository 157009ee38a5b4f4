"""The local rules of the simplifier, as tables (`patterns` explains the notation).

A rule needs nothing but one node and its operands, which are simplified already.
Sums, quotients, comparisons and conditions with several parts have procedures
of their own (`linear`, `quotients`, `compare`, `lattice`), whose equations stand
beside them in the same notation (`laws`).
"""

from __future__ import annotations

from ..caches import cached
from ..expr import BINARY_OPS, Binary, Expr, Not
from .patterns import Rule, applies, rules

# Integers of every type: they hold with wrap-around, too.  Scalars of the index type take the linear form instead.
INTEGERS = rules("int", """
    x + 0            -> x
    x - 0            -> x
    x - x            -> 0
    x * 1            -> x
    x * 0            -> 0
    x // 1           -> x
    x % 1            -> 0
    x == x           -> True
    x != x           -> False
    x < x            -> False
    x <= x           -> True
    x > x            -> False
    x >= x           -> True
    min(x, x)        -> x
    max(x, x)        -> x
    (0 - x) % k == m -> x % k == (k - m) % k    if power(k) and m >= 0 and m < k
    (0 - x) % k != m -> x % k != (k - m) % k    if power(k) and m >= 0 and m < k
""")  # fmt: skip

# Floats, NaN and infinities included.
FLOATS = rules("float", """
    x * 1            -> x
    x / 1            -> x
    x - 0.0          -> x
    x + -0.0         -> x
    min(x, x)        -> x
    max(x, x)        -> x
    min(x, inf)      -> x
    max(x, -inf)     -> x
    0 * undef()      -> 0
""")  # fmt: skip

# Floats that are finite data, where 0.0 and -0.0 are one number; strict mode leaves these out.
FINITE = rules("finite", """
    x + 0            -> x
    x - 0            -> x
    x * 0            -> 0    if data(x)
""")  # fmt: skip

BOOLEANS = rules("bool", """
    not not a        -> a
    a == True        -> a
    a != False       -> a
    a == False       -> not a
    a != True        -> not a
""")  # fmt: skip

CONDITIONALS = rules("any", """
    select(True, x, y)                        -> x
    select(False, x, y)                       -> y
    select(a, x, x)                           -> x
    select(not a, x, y)                       -> select(a, y, x)
    select(a, select(a, x, y), z)             -> select(a, x, z)
    select(a, x, select(a, y, z))             -> select(a, x, z)
    if_then_else(True, x, y)                  -> x
    if_then_else(False, x, y)                 -> y
    if_then_else(a, x, x)                     -> x
    if_then_else(not a, x, y)                 -> if_then_else(a, y, x)
    if_then_else(a, if_then_else(a, x, y), z) -> if_then_else(a, x, z)
    if_then_else(a, x, if_then_else(a, y, z)) -> if_then_else(a, x, z)
""") + rules("bool", """
    select(a, True, False)                    -> a
    select(a, False, True)                    -> not a
    select(a, b, False)                       -> a and b
    select(a, True, b)                        -> a or b
    if_then_else(a, True, False)              -> a
    if_then_else(a, False, True)              -> not a
""")  # fmt: skip

CASTS = rules("any", """
    cast(T, x)                -> x            if typed(x, T)
    cast(T, cast(U, x))       -> cast(T, x)   if keeps(U, x)
    cast(T, cast(U, x))       -> x            if typed(x, T) and fits(x, U)
""")  # fmt: skip

VECTORS = rules("vector", """
    broadcast(x, L) OP broadcast(y, L)  -> broadcast(x OP y, L)
""", OP=tuple(op for op in BINARY_OPS if op not in ("min", "max"))) + rules("vector", """
    OP(broadcast(x, L), broadcast(y, L)) -> broadcast(OP(x, y), L)
""", OP=("min", "max")) + rules("vector", """
    ramp(x, 0, L)                       -> broadcast(x, L)
    ramp(x, y, L) + ramp(z, w, L)       -> ramp(x + z, y + w, L)
    ramp(x, y, L) - ramp(z, w, L)       -> ramp(x - z, y - w, L)
    ramp(x, y, L) + broadcast(z, L)     -> ramp(x + z, y, L)
    ramp(x, y, L) - broadcast(z, L)     -> ramp(x - z, y, L)
    broadcast(z, L) - ramp(x, y, L)     -> ramp(z - x, 0 - y, L)
    ramp(x, y, L) * broadcast(z, L)     -> ramp(x * z, y * z, L)
""") + rules("index vector", """
    ramp(x, m, L) // broadcast(k, L) -> ramp(x // k, m // k, L)  if k > 0 and m % k == 0 and small(x, m)
    ramp(x, m, L) % broadcast(k, L)  -> broadcast(x % k, L)      if k > 0 and m % k == 0 and small(x, m)
    ramp(x, y, L) // broadcast(k, L) -> broadcast(x // k, L)     if y >= 0 and x % k + y * (L - 1) < k and small(x, y)
    ramp(x, y, L) % broadcast(k, L)  -> ramp(x % k, y, L)        if y >= 0 and x % k + y * (L - 1) < k and small(x, y)
    ramp(x, y, L) < broadcast(z, L)  -> broadcast(True, L)       if x < z and x + y * (L - 1) < z and small(x, y)
    ramp(x, y, L) < broadcast(z, L)  -> broadcast(False, L)      if x >= z and x + y * (L - 1) >= z and small(x, y)
    ramp(x, y, L) <= broadcast(z, L) -> broadcast(True, L)       if x <= z and x + y * (L - 1) <= z and small(x, y)
    ramp(x, y, L) <= broadcast(z, L) -> broadcast(False, L)      if x > z and x + y * (L - 1) > z and small(x, y)
    ramp(x, y, L) > broadcast(z, L)  -> broadcast(True, L)       if x > z and x + y * (L - 1) > z and small(x, y)
    ramp(x, y, L) > broadcast(z, L)  -> broadcast(False, L)      if x <= z and x + y * (L - 1) <= z and small(x, y)
    ramp(x, y, L) >= broadcast(z, L) -> broadcast(True, L)       if x >= z and x + y * (L - 1) >= z and small(x, y)
    ramp(x, y, L) >= broadcast(z, L) -> broadcast(False, L)      if x < z and x + y * (L - 1) < z and small(x, y)
""")  # fmt: skip

TABLE: tuple[Rule, ...] = (*INTEGERS, *FLOATS, *FINITE, *BOOLEANS, *CONDITIONALS, *CASTS, *VECTORS)


@cached(512)
def rules_for(root: str, dtype: str, strict: bool) -> tuple[Rule, ...]:
    """The rules whose left side is a `root` of operands of `dtype`; strict mode assumes nothing of data."""
    return tuple(
        rule for rule in TABLE
        if rule.root == root and applies(rule.kind, dtype) and not (strict and rule.kind == "finite")
    )  # fmt: skip


def operand_dtype(expr: Expr) -> str:
    """The type that decides which rules hold: of the operands, which for a comparison is not its own."""
    return expr.a.dtype if isinstance(expr, (Binary, Not)) else expr.dtype
