"""restrict_reduction: a reduction over every s-th point alone, where a condition leaves out the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

from ...ir.arith.linear import build, linear_form
from ...ir.arith.simplify import simplify
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
    substitute,
)
from ...ir.layout.index_text import evaluate
from ...ir.node import rebuild, transform
from ...ir.stmt import Block, For, PrimFunc, Store, fresh, names
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import blocks_below, extent_of, find_block, find_loop, with_stmt
from .reduction import update_of
from .rfactor import neutral

SHORT = 64
"""Iterators with more values are not looked at one by one."""

Ranges = dict[Var, tuple[int, int]]


@primitive
def restrict_reduction(func: PrimFunc, block: str, loop: str) -> Result:
    """``for k in K: C[i] += e(i, k) if (a(i) + c*k) % s == 0 else 0`` -> ``for q: C[i] += e(i, s*q + f(i))``.

    ``f(i)``, between 0 and s, solves ``a(i) + c*f(i) = 0`` modulo s, so that q runs over ``ceil(K / s)`` points;
    where s does not divide K, ``s*q + f(i) < K`` takes the place of the condition.  So a convolution over an input
    that was spread by zeros, as a strided transposed convolution is, skips the products with them.

    Conditions: (1) the block is an update ``C[i] = C[i] op e`` with an init, alone below `loop`, which is serial, and
    to which one reduce iterator k is bound and nothing else; (2) e is chosen by an ``if_then_else`` whose other value
    is the neutral element of op, or is a product with such a factor in a sum; (3) a conjunct of its condition is
    ``t % s == r``, where t is linear in k with a coefficient that has no divisor in common with s.
    Returns the new loop.  That ``0 * e`` adds nothing holds for finite data.
    """
    target, outer = find_block(func, block), find_loop(func, loop)
    iterator = _iterator(target, outer)
    store, op, value = update_of(target)
    plan = _plan(target, value, op, store.value.dtype, iterator, extent_of(outer))
    points = -(-plan.extent // plan.step)
    taken = names(func)
    loop_var = Var(fresh(f"{loop}_0", taken), outer.var.dtype)
    var = Var(fresh(f"v{loop_var.name}", taken | {loop_var.name}), iterator.dtype)
    iters = tuple(
        replace(i, var=var, binding=loop_var, extent=points) if i.var == iterator else i for i in target.iters
    )
    ranges: Ranges = {i.var: (0, i.extent - 1) for i in iters}
    own = Load(store.buffer, store.indices)
    updated = _tidy(Binary(op, own, plan.restricted(value, var, ranges)), ranges)
    body = replace(target, iters=iters, body=Store(store.buffer, store.indices, updated))
    return with_stmt(func, outer, replace(outer, var=loop_var, extent=as_expr(points, outer.extent), body=_inside(
        outer, target, body))), loop_var.name  # fmt: skip


def _inside(outer: For, old: Block, new: Block) -> For | Block:
    """What stands in the loop, with the block replaced."""
    from ..tree import replace_stmt

    body = replace_stmt(outer.body, old, new)
    assert isinstance(body, (For, Block))
    return body


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
    """``(of + step)``-wise points: the iterator takes the values ``step*q + start % step`` below `extent`."""

    iterator: Var
    extent: int
    step: int
    start: Expr
    chosen: Call
    congruence: Expr
    zero: Const

    def restricted(self, value: Expr, var: Var, ranges: Ranges) -> Expr:
        """The combined value over the points at which it may be something else than neutral."""
        rest = [c for c in conjuncts(self.chosen.args[0]) if c != self.congruence]
        point = var * self.step + self.start - (self.start // self.step) * self.step
        if self.extent % self.step == 0:
            without = if_then_else(all_of(rest), self.chosen.args[1], self.chosen.args[2]) if rest else (
                self.chosen.args[1]
            )  # fmt: skip
            return _replaced(value, self.chosen, without, {self.iterator: point})
        inner = _replaced(value, self.chosen, self.chosen.args[1], {self.iterator: point})
        conds = [substitute(c, {self.iterator: point}) for c in rest]
        inside = simplify(binary("<", point, self.extent), ranges)
        return if_then_else(all_of([*conds, inside]), inner, self.zero)


def _replaced(value: Expr, old: Expr, new: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    def swap(node: object) -> object:
        return new if node == old else rebuild(node, swap)  # type: ignore[type-var]

    result: Expr = substitute(swap(value), mapping)  # type: ignore[arg-type]
    return result


def _plan(block: Block, value: Expr, op: str, dtype: str, iterator: Var, extent: int) -> _Plan:
    zero = neutral(op, dtype)
    found = [call for call in _chosen(value, op, zero) if iterator in free_variables(call.args[0])]
    if not found:
        raise ScheduleError("(2) what block `{block}` combines is not neutral under a condition on `{iterator}`",
                            block=block.name, iterator=iterator.name)  # fmt: skip
    for call in found:
        for cond in conjuncts(call.args[0]):
            solved = _solved(cond, iterator)
            if solved is not None:
                step, start = solved
                return _Plan(iterator, extent, step, start, call, cond, zero)
    raise ScheduleError("(3) no conjunct of {cond!r} is a congruence that determines `{iterator}`",
                        cond=found[0].args[0], iterator=iterator.name)  # fmt: skip


def _chosen(value: Expr, op: str, zero: Const) -> Iterator[Call]:
    """The choices in a value that is neutral where their conditions fail."""
    if isinstance(value, Call) and value.name == "if_then_else" and _is_number(value.args[2], zero):
        yield value
    elif op == "+" and isinstance(value, Binary) and value.op == "*":
        yield from _chosen(value.a, op, zero)
        yield from _chosen(value.b, op, zero)
    elif op == "+" and isinstance(value, Cast):
        yield from _chosen(value.a, op, zero)


def _is_number(expr: Expr, number: Const) -> bool:
    return isinstance(expr, Const) and expr.value == number.value


def _solved(cond: Expr, iterator: Var) -> tuple[int, Expr] | None:
    """``t % s == r`` solved for the iterator: s, and an expression that equals it modulo s."""
    if not (isinstance(cond, Binary) and cond.op == "==" and isinstance(cond.b, Const)):
        return None
    remainder = cond.a
    if not (isinstance(remainder, Binary) and remainder.op == "%" and isinstance(remainder.b, Const)):
        return None
    step = int(remainder.b.value)
    terms, constant = linear_form(remainder.a)
    scale = terms.pop(iterator, 0)
    if step < 2 or gcd(scale, step) != 1 or any(iterator in free_variables(atom) for atom in terms):
        return None
    factor = -pow(scale, -1, step)
    kept = {atom: _least(factor * c, step) for atom, c in terms.items() if c % step}
    return step, build((kept, _least(factor * (constant - int(cond.b.value)), step)), iterator.dtype)


def _least(number: int, step: int) -> int:
    """The number of the same remainder that is nearest to 0."""
    rest = number % step
    return rest - step if 2 * rest > step else rest


# ---------------------------------------------------------------- indices as simple as they are


def _tidy(value: Expr, ranges: Ranges) -> Expr:
    """The value with its indices and conditions simplified, and linear where they are so in the ranges."""

    def tidy(node: object) -> object:
        node = rebuild(node, tidy)  # type: ignore[type-var]
        if isinstance(node, Load):
            return replace(node, indices=tuple(_linear(i, ranges) for i in node.indices))
        if isinstance(node, Call) and node.name == "if_then_else":
            conds = [simplify(_linear_parts(c, ranges), ranges) for c in conjuncts(node.args[0])]
            return if_then_else(all_of([c for c in conds if c != TRUE]), *node.args[1:])
        return node

    result: Expr = tidy(value)  # type: ignore[assignment]
    return result


def _linear_parts(cond: Expr, ranges: Ranges) -> Expr:
    result: Expr = transform(cond, lambda node: _replaced_quotient(node, ranges))
    return result


def _linear(index: Expr, ranges: Ranges) -> Expr:
    if isinstance(index, Var):
        return index
    whole = simplify(index, ranges)
    return simplify(_linear_parts(whole, ranges), ranges)


def _replaced_quotient(node: object, ranges: Ranges) -> object:
    """``(b + 1) // 2`` -> b, for b of two values: a quotient of one short iterator that is linear there."""
    if not (isinstance(node, Binary) and node.op in ("//", "%")):
        return node
    used = free_variables(node)
    if len(used) != 1 or not used <= ranges.keys():
        return node
    (var,) = used
    last = ranges[var][1]
    if last >= SHORT:
        return node
    values = [int(evaluate(node, {var.name: at})) for at in range(last + 1)]
    step = values[1] - values[0] if last else 0
    if values != [values[0] + step * at for at in range(last + 1)]:
        return node
    return build(({var: step} if step else {}, values[0]), var.dtype)


__all__ = ["restrict_reduction"]
