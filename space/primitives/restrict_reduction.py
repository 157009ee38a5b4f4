"""restrict_reduction: a reduction over every s-th point alone, where a condition leaves out the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from typing import Any

from ...ir import dtypes
from ...ir.affine.sets import Domain, implies
from ...ir.arith.constants import neutral
from ...ir.arith.intervals import Facts
from ...ir.arith.linear import build, linear_form
from ...ir.arith.simplify import simplify
from ...ir.dataflow.order import combined
from ...ir.expr import (
    TRUE,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    const,
    free_variables,
    if_then_else,
    reads_memory,
    substitute,
)
from ...ir.layout.index_text import evaluate
from ...ir.node import Node, children, rebuild
from ...ir.stmt import Block, For, PrimFunc, Store, fresh, names
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import blocks_below, extent_of, find_block, find_loop, replace_stmt, with_stmt
from .reduction import update_of

SHORT = 64
"""Iterators with more values are not looked at one by one."""

Ranges = dict[Var, tuple[int, int]]


@primitive
def restrict_reduction(func: PrimFunc, block: str, loop: str) -> Result:
    """``for k in K: C[i] += e(i, k) if (a(i) + c*k) % s == 0 else 0`` -> ``for q: C[i] += e(i, s*q + f(i))``.

    ``f(i)``, between 0 and s, solves ``a(i) + c*f(i) = 0`` modulo s, so that q runs over ``ceil(K / s)`` points.
    Where s does not divide K, instances with ``s*q + f(i) >= K`` do not run; for K less than s, where there may be
    none for an i, they add zero.  So a convolution over an input that was spread by zeros, as a strided transposed
    convolution is, skips the products with them.

    Conditions: (1) the block is an update ``C[i] = C[i] op e`` with an init, alone below `loop`, which is serial, and
    to which one reduce iterator k is bound and nothing else; (2) e is chosen by an ``if_then_else`` whose other value
    is the neutral element of op, or is a product with such a factor in a sum; (3) a conjunct of its condition is
    ``t % s == r``, where t is linear in k with a coefficient that has no divisor in common with s, of the index type,
    and provably never wraps around.  Returns the new loop.  That ``0 * e`` adds nothing holds for finite data.
    """
    target, outer = find_block(func, block), find_loop(func, loop)
    iterator = _iterator(target, outer)
    store, op, value = update_of(target)
    plan = _plan(target, value, op, store.buffer.dtype, iterator, extent_of(outer))
    points = -(-plan.extent // plan.step)
    taken = names(func)
    loop_var = Var(fresh(f"{loop}_0", taken), outer.var.dtype)
    var = Var(fresh(f"v{loop_var.name}", taken | {loop_var.name}), iterator.dtype)
    iters = tuple(replace(i, var=var, binding=loop_var, limit=points) if i.var == iterator else i for i in target.iters)
    ranges: Ranges = {i.var: i.span for i in iters}
    own = Load(store.buffer, store.indices)
    updated = combined(op, own, plan.restricted(var, ranges))
    runs = substitute(plan.inside(var, ranges), {i.var: i.binding for i in iters}) if plan.skips else TRUE
    predicate = all_of([c for c in (*conjuncts(target.predicate), *conjuncts(runs)) if c != TRUE])
    made = replace(target, iters=iters, body=Store(store.buffer, store.indices, updated), predicate=predicate)
    body = replace_stmt(outer.body, target, made)
    around = replace(outer, var=loop_var, extent=as_expr(points, outer.extent), body=body)
    return with_stmt(func, outer, around), loop_var.name


def _iterator(block: Block, loop: For) -> Var:
    """Condition (1): the reduce iterator that the loop is."""
    bound = [i for i in block.iters if loop.var in free_variables(i.binding)]
    if len(bound) != 1 or bound[0].binding != loop.var or bound[0].kind != "reduce":
        raise ScheduleError("(1) loop `{loop}` is not one reduce iterator of block `{block}`",
                            loop=loop.var.name, block=block.name)  # fmt: skip
    inside: object = loop.body
    while isinstance(inside, For):
        inside = inside.body
    alone = inside is block and blocks_below(loop) == (block,) and loop.var not in free_variables(block.predicate)
    if not alone or loop.kind != "serial" or block.init is None:
        raise ScheduleError("(1) block `{block}` is not an unconditional update with an init, alone below `{loop}`",
                            loop=loop.var.name, block=block.name)  # fmt: skip
    return bound[0].var


@dataclass(frozen=True)
class _Plan:
    """The reduction over ``iterator = step*q + start % step`` alone: `chosen` is neutral where `congruence` fails.

    `parts` are the factors of the combined value, or it alone.
    """

    iterator: Var
    extent: int
    step: int
    start: Expr
    chosen: Call
    congruence: Expr
    parts: tuple[Expr, ...]

    @property
    def skips(self) -> bool:
        """Whether instances beyond the extent do not run: some one does for each point of the result."""
        return self.extent % self.step > 0 and self.extent >= self.step

    def point(self, var: Var) -> Expr:
        """The iterator for the q that is `var`."""
        return var * self.step + self.start - (self.start // self.step) * self.step

    def inside(self, var: Var, ranges: Ranges) -> Expr:
        """Whether the iterator is below its extent."""
        return simplest(binary("<", self.point(var), self.extent), ranges)

    def restricted(self, var: Var, ranges: Ranges) -> Expr:
        """The combined value over q."""
        point = {self.iterator: self.point(var)}
        rest = [c for c in conjuncts(self.chosen.args[0]) if c != self.congruence]
        without = if_then_else(all_of(rest), *self.chosen.args[1:]) if rest else self.chosen.args[1]
        parts = [tidy(substitute(_replaced(part, self.chosen, without), point), ranges) for part in self.parts]
        if self.extent < self.step:
            open_ended = [k for k, part in enumerate(parts) if not _in_bounds(part, ranges)] or [0]
            for k in open_ended:
                parts[k] = _only_where(self.inside(var, ranges), parts[k])
        return reduce(lambda a, b: Binary("*", a, b), parts)


def _replaced(value: Expr, old: Expr, new: Expr) -> Expr:
    def swap(node: Any) -> Any:
        return new if node == old else rebuild(node, swap)

    result: Expr = swap(value)
    return result


def _only_where(cond: Expr, value: Expr) -> Expr:
    """The value where a condition holds, else 0, or the number that a choice has elsewhere already."""
    if isinstance(value, Call) and value.name == "if_then_else" and isinstance(value.args[2], Const):
        return if_then_else(all_of([*conjuncts(value.args[0]), cond]), *value.args[1:])
    return if_then_else(cond, value, const(0, value.dtype))


def _in_bounds(value: Expr, ranges: Ranges) -> bool:
    """Whether every load stays inside its buffer, under the conditions that choose it."""
    found: list[tuple[Load, tuple[Expr, ...]]] = []
    _collect(value, (), found)
    dims = tuple((v, high + 1) for v, (_, high) in ranges.items())
    return all(
        implies(Domain(dims, conds), all_of([binary("and", binary(">=", i, 0), binary("<", i, e))])) is True
        for load, conds in found
        for i, e in zip(load.indices, load.buffer.shape, strict=True)
    )


def _collect(node: Node, conds: tuple[Expr, ...], found: list[tuple[Load, tuple[Expr, ...]]]) -> None:
    """The loads of an expression, each with the conditions that it is evaluated under."""
    if isinstance(node, Load):
        found.append((node, conds))
    if isinstance(node, Call) and node.name == "if_then_else":
        _collect(node.args[0], conds, found)
        _collect(node.args[1], (*conds, *conjuncts(node.args[0])), found)
        _collect(node.args[2], conds, found)
        return
    for child in children(node):
        _collect(child, conds, found)


def _plan(block: Block, value: Expr, op: str, dtype: str, iterator: Var, extent: int) -> _Plan:
    parts = tuple(_factors(value)) if op == "+" else (value,)
    zero = neutral(op, dtype)
    found = [call for part in parts for call in _chosen(part, zero) if iterator in free_variables(call.args[0])]
    if not found:
        raise ScheduleError("(2) what block `{block}` combines is not neutral under a condition on `{iterator}`",
                            block=block.name, iterator=iterator.name)  # fmt: skip
    facts = Facts({i.var: i.span for i in block.iters})
    for call in found:
        for cond in conjuncts(call.args[0]):
            solved = _solved(cond, iterator, facts)
            if solved is not None and (op == "+" or extent >= solved[0]):
                return _Plan(iterator, extent, *solved, call, cond, parts)
    raise ScheduleError("(3) no conjunct of {cond!r} is a congruence that determines `{iterator}`",
                        cond=found[0].args[0], iterator=iterator.name)  # fmt: skip


def _factors(value: Expr) -> Iterator[Expr]:
    if isinstance(value, Binary) and value.op == "*":
        yield from _factors(value.a)
        yield from _factors(value.b)
    else:
        yield value


def _chosen(part: Expr, zero: Const) -> Iterator[Call]:
    """The choice that a factor is, also of a narrower type, if its other value is the neutral one."""
    if isinstance(part, Cast) and zero.value == 0:
        yield from _chosen(part.a, zero)
    elif isinstance(part, Call) and part.name == "if_then_else" and _is_number(part.args[2], zero):
        yield part


def _is_number(expr: Expr, number: Const) -> bool:
    return isinstance(expr, Const) and expr.value == number.value


def _solved(cond: Expr, iterator: Var, facts: Facts) -> tuple[int, Expr] | None:
    """``t % s == r`` solved for the iterator: s, and an expression that equals it modulo s."""
    if not (isinstance(cond, Binary) and cond.op == "==" and isinstance(cond.b, Const)):
        return None
    remainder = cond.a
    if not (isinstance(remainder, Binary) and remainder.op == "%" and isinstance(remainder.b, Const)):
        return None
    if remainder.dtype != dtypes.INDEX:
        return None  # a sum of a narrower type may wrap around
    step = int(remainder.b.value)
    terms, constant = linear_form(remainder.a)
    scale = terms.pop(iterator, 0)
    if step < 2 or gcd(scale, step) != 1 or not 0 <= int(cond.b.value) < step or not _stays(remainder.a, facts):
        return None
    if any(iterator in free_variables(atom) or reads_memory(atom) for atom in terms):
        return None
    factor = -pow(scale, -1, step)
    kept = {atom: _least(factor * c, step) for atom, c in terms.items() if c % step}
    return step, build((kept, _least(factor * (constant - int(cond.b.value)), step)), iterator.dtype)


def _stays(expr: Expr, facts: Facts) -> bool:
    """Whether a sum is what it is over the integers: none of its values leaves its type."""
    low, high = facts.of_form(linear_form(expr))
    least, most = dtypes.int_range(expr.dtype)
    return least <= low and high <= most


def _least(number: int, step: int) -> int:
    """The number of the same remainder that is nearest to 0."""
    rest = number % step
    return rest - step if 2 * rest > step else rest


# ---------------------------------------------------------------- indices as simple as they are


def tidy(value: Expr, ranges: Ranges) -> Expr:
    """The value with its indices and conditions simplified; see `simplest`."""

    def visit(node: Any) -> Any:
        node = rebuild(node, visit)
        if isinstance(node, Load):
            return replace(node, indices=tuple(i if isinstance(i, Var) else simplest(i, ranges) for i in node.indices))
        if isinstance(node, Call) and node.name == "if_then_else":
            conds = [simplest(c, ranges) for c in conjuncts(node.args[0])]
            return if_then_else(all_of([c for c in conds if c != TRUE]), *node.args[1:])
        return node

    result: Expr = visit(value)
    return result


def simplest(expr: Expr, ranges: Ranges) -> Expr:
    """An index or a condition, simplified, with what it adds of a short iterator in the plainest form.

    ``b + (1 - b) % 2`` is 1, and ``(b + (1 - b) % 4 + 3) // 4`` is ``(b + 2) // 4 + 1``, for b below 2 and 4.
    """
    result: Expr = simplify(expr, ranges)
    if (result.a.dtype if isinstance(result, Binary) else result.dtype) != dtypes.INDEX:
        return result
    if isinstance(result, Binary) and result.op in ("<", "<=", ">", ">=", "==", "!="):
        facts, difference = Facts(ranges), result.a - result.b
        if all(_stays(part, facts) for part in (result.a, result.b, difference)):
            result = simplify(Binary(result.op, _plain_terms(difference, ranges), const(0, difference.dtype)), ranges)
    else:
        result = simplify(_plain_terms(result, ranges), ranges)
    return result


def _plain_terms(expr: Expr, ranges: Ranges) -> Expr:
    """A sum whose terms in one short iterator are joined to one term, where that is linear or a single step."""
    terms, constant = linear_form(expr)
    alone: dict[Var, dict[Expr, int]] = {}
    for atom, scale in terms.items():
        used = free_variables(atom)
        if len(used) == 1 and used <= ranges.keys():
            alone.setdefault(next(iter(used)), {})[atom] = scale
    taken = {atom for part in alone.values() for atom in part}
    total = build(({a: c for a, c in terms.items() if a not in taken}, constant))
    for var, part in alone.items():
        whole = build((part, 0))
        total = total + (whole if part.keys() == {var} else _plainest(whole, var, ranges[var][1] + 1))
    return total


def _plainest(expr: Expr, var: Var, extent: int) -> Expr:
    """An expression of one iterator: linear, or with a single step, if its values are known and so."""
    if extent > SHORT or reads_memory(expr):
        return expr
    values = [int(evaluate(expr, {var.name: at})) for at in range(extent)]
    slope = values[1] - values[0] if extent > 1 else 0
    if values == [values[0] + slope * at for at in range(extent)]:
        return build(({var: slope} if slope else {}, values[0]), var.dtype)
    first = next(at for at in range(extent) if values[at] != values[0])
    if any(v != values[first] for v in values[first:]):
        return expr
    step: Expr = (var + (extent - first)) // extent
    return step * (values[first] - values[0]) + values[0]


__all__ = ["restrict_reduction"]
