"""Whether the iterations of a loop use a buffer independently of each other.

A buffer is private to a loop when no iteration reads what another one wrote.
Then each iteration may have a copy of its own.  Two arguments prove it:

1. *Disjoint*: the elements that an iteration touches determine the iteration (`ir.dataflow.meets`).
2. *Covered*: for each element that is read, the instance of an earlier statement
   of the same iteration that wrote it is computed by solving the writer's index
   for its loop variables, digit by digit, and proven to be executed.

It is not `ir.dataflow.concurrency`: iterations that may not run at the same time, since they write one element, are
independent once each has a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.arith.intervals import Facts
from ...ir.arith.linear import Linear, add, build, shared_form, variables_of
from ...ir.arith.simplifier import simplifier_for
from ...ir.dataflow.meets import are_determined
from ...ir.expr import FALSE, TRUE, Const, Expr, Var, all_of, as_int, binary, free_variables, reads_memory, substitute
from ...ir.stmt import For, memories_read, memories_written
from .scopes import Access


def is_private(loop: For, depth: int, accesses: Sequence[Access], facts: Facts) -> bool:
    """Whether every iteration of `loop`, which is step `depth` of each access's path, reads only its own values.

    `facts` hold outside the loop.
    """
    inside = {v for a in accesses for v in a.bound_below(depth + 1)}
    known = facts.looping(loop.var, loop.extent)
    apart = are_determined((loop.var,), accesses, inside, known, memories_written(loop))
    return apart or _is_covered(depth, accesses)


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
    """Whether `cond` holds wherever `reader` runs, by exact sets; False where they cannot tell."""
    from ...ir.affine import sets

    loops = tuple((loop.var, loop.extent) for loop in reader.loops)
    bound = {v for v, _ in loops}
    inside = {v for e in (cond, *reader.conditions, *(extent for _, extent in loops)) for v in free_variables(e)}
    dims = (*((v, None) for v in sorted(inside - bound, key=lambda v: v.name)), *loops)
    try:
        return bool(sets.implies(sets.Domain(dims, reader.conditions).relaxed(), cond))
    except (sets.NotAffine, sets.Unknown):
        return False


def _writing_condition(writer: Access, reader: Access, depth: int) -> Expr | None:
    """When `writer` has written what `reader` reads, earlier in the same iteration; None if that is not known.

    A condition over the reader's variables.
    """
    split = depth + 1
    while split < min(len(writer.path), len(reader.path)) and writer.path[split] == reader.path[split]:
        split += 1
    if split == len(writer.path) or split == len(reader.path):
        return None
    earlier, later = writer.path[split], reader.path[split]
    if isinstance(earlier, For) or isinstance(later, For) or earlier[0] != later[0] or earlier[1] >= later[1]:
        return None
    around = writer.path[depth]
    changing = memories_written(around if isinstance(around, For) else around[0])
    if not all(memories_read(e).isdisjoint(changing) for e in (*writer.indices, *reader.indices, *writer.conditions)):
        return None  # it may be another element by then
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
    if not digits:
        return [binary("==", build(offset), 0)]
    number, step = build(offset), 1
    for k, var in digits[:-1]:
        extent = own[var].extent
        if k != step or not isinstance(extent, Const):
            return None
        env[var] = binary("%", binary("//", number, step), extent)
        step *= as_int(extent)
    k, var = digits[-1]
    if k != step or reads_memory(own[var].extent) or not variables_of(own[var].extent).isdisjoint(own):
        return None
    env[var] = binary("//", number, step)
    return [binary("<=", 0, number), binary("<", number, own[var].extent * step)]
