"""Whether the iterations of a loop use a buffer independently of each other.

A buffer is private to a loop when no iteration reads what another one wrote.
Then each iteration may have a copy of its own.  Two arguments prove it:

1. *Disjoint*: the elements that an iteration touches determine the iteration.
   With index ``a*t(v) + r``, ``r`` in an interval shorter than ``a``, equal elements
   have equal ``t(v)``; from such values, like ``v//9`` and ``v%9``, follows ``v``.
2. *Covered*: for each element that is read, the instance of an earlier statement
   of the same iteration that wrote it is computed by solving the writer's index
   for its loop variables, digit by digit, and proven to be executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from ...ir.arith.intervals import Facts
from ...ir.arith.linear import Linear, add, build, shared_form, variables_of
from ...ir.arith.simplify import simplifier_for
from ...ir.expr import FALSE, TRUE, Binary, Const, Expr, Var, all_of, as_int, binary, substitute
from ...ir.stmt import For
from .scopes import Access, loop_facts


def is_private(loop: For, depth: int, accesses: Sequence[Access], facts: Facts) -> bool:
    """Whether every iteration of `loop`, which is step `depth` of each access's path, reads only its own values.

    `facts` hold outside the loop.
    """
    inside = {v for a in accesses for v in a.bound_below(depth + 1)}
    return _is_disjoint(loop, inside, accesses, facts) or _is_covered(depth, accesses)


def _is_disjoint(loop: For, inside: set[Var], accesses: Sequence[Access], facts: Facts) -> bool:
    known: list[dict[Expr, int]] = []
    for dim in range(len(accesses[0].buffer.shape)):
        form = _tile_number(dim, inside, accesses)
        if form is not None:
            known.append({a: k for a, k in form.items() if loop.var in variables_of(a)})
    return _determine(loop.var, known, loop_facts(facts, loop))


def _tile_number(dim: int, inside: set[Var], accesses: Sequence[Access]) -> dict[Expr, int] | None:
    """The part of an index that depends on loops outside, if equal elements imply that it is equal."""
    outer: dict[Expr, int] | None = None
    low = high = 0
    for access in accesses:
        terms, constant = shared_form(access.indices[dim])
        own = {a: k for a, k in terms.items() if variables_of(a).isdisjoint(inside)}
        lo, hi = access.facts.of_form(({a: k for a, k in terms.items() if a not in own}, constant))
        if outer is None:
            outer, low, high = own, lo, hi
        elif own != outer:
            return None
        low, high = min(low, lo), max(high, hi)
    if not outer:
        return None
    return outer if high - low < gcd(*outer.values()) else None


def _determine(var: Var, forms: list[dict[Expr, int]], facts: Facts) -> bool:
    """Whether the values of the linear forms leave only one value for `var`."""
    simplifier = simplifier_for(facts)
    known: set[Expr] = set()
    while True:
        size = len(known)
        for form in forms:
            unknown = [a for a in form if a not in known]
            if len(unknown) == 1:
                known.add(unknown[0])
        for atom in tuple(known):
            if isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
                quotient = simplifier.expr(atom.a // atom.b)
                if isinstance(quotient, Const) or quotient in known:
                    known.update(_single_unknown(atom.a, known))
        if var in known:
            return True
        if len(known) == size:
            return False


def _single_unknown(expr: Expr, known: set[Expr]) -> list[Expr]:
    unknown = [a for a in shared_form(expr)[0] if a not in known]
    return [expr, *unknown] if len(unknown) == 1 else [expr]


# Coverage


def _is_covered(depth: int, accesses: Sequence[Access]) -> bool:
    writers = [a for a in accesses if a.is_write]
    return all(_is_fed(reader, writers, depth) for reader in accesses if not reader.is_write)


def _is_fed(reader: Access, writers: Sequence[Access], depth: int) -> bool:
    conditions = [c for w in writers if (c := _writing_condition(w, reader, depth)) is not None]
    if not conditions:
        return False
    fed: Expr = FALSE
    for cond in conditions:
        fed = binary("or", fed, cond)
    return simplifier_for(reader.facts).expr(fed) == TRUE or _exactly(reader, fed)


def _exactly(reader: Access, cond: Expr) -> bool:
    """The same question to exact sets."""
    from ...ir.affine import sets

    dims = tuple((loop.var, loop.extent) for loop in reader.loops)
    try:
        return bool(sets.implies(sets.Domain(dims, reader.conditions).relaxed(), cond))
    except (sets.NotAffine, sets.Unknown):
        return False


def _writing_condition(writer: Access, reader: Access, depth: int) -> Expr | None:
    """When the element that `reader` reads was written before by `writer` in the same iteration, or None.

    The condition is over the reader's variables.
    """
    split = depth + 1
    while split < min(len(writer.path), len(reader.path)) and writer.path[split] == reader.path[split]:
        split += 1
    if split == len(writer.path) or split == len(reader.path):
        return None
    earlier, later = writer.path[split], reader.path[split]
    if isinstance(earlier, For) or isinstance(later, For) or earlier[0] != later[0] or earlier[1] >= later[1]:
        return None
    own = {p.var: p for p in writer.path[split:] if isinstance(p, For)}
    return _solve(writer, reader, own)


def _solve(writer: Access, reader: Access, own: dict[Var, For]) -> Expr | None:
    """The condition that some values of the writer's `own` loops give the reader's element."""
    env: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    for target, wanted in zip(writer.indices, reader.indices, strict=True):
        terms, constant = shared_form(target)
        digits = sorted(((k, a) for a, k in terms.items() if isinstance(a, Var) and a in own), key=lambda d: d[0])
        fixed = {a: k for a, k in terms.items() if a not in own}
        if any(not variables_of(a).isdisjoint(own) for a in fixed) or any(a in env for _, a in digits):
            return None
        offset = add(shared_form(wanted), (fixed, constant), -1)
        bound = _read_digits(offset, digits, own, env)
        if bound is None:
            return None
        conditions += bound
    for var, loop in own.items():
        if var in env:
            continue
        # A loop that the index does not show may stand at any iteration; the first that is possible is one.
        first = writer.facts.interval(var)[0]
        if not isinstance(loop.extent, Const) or not 0 <= first < as_int(loop.extent):
            return None
        env[var] = Const(first)
    return all_of([*conditions, *(substitute(c, env) for c in writer.conditions)])


def _read_digits(
    offset: Linear, digits: list[tuple[int, Var]], own: dict[Var, For], env: dict[Var, Expr]
) -> list[Expr] | None:
    """Solve ``sum(k_i * v_i) = offset`` for a mixed-radix number; adds the solution to `env`, returns when it holds."""
    number, step = build(offset), 1
    for position, (k, var) in enumerate(digits):
        extent = own[var].extent
        if k != step or not isinstance(extent, Const):
            return None
        digit = binary("//", number, step)
        env[var] = digit if position == len(digits) - 1 else binary("%", digit, extent)
        step *= as_int(extent)
    if not digits:
        return [binary("==", number, 0)]
    return [binary("<=", 0, number), binary("<", number, step)]
