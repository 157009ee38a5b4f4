"""isl functions and sets as expressions that a person would write.

`value` writes a function, `condition` a set, given that a context holds::

    io == 3 and ii >= 2        io == 0 and ii < 2 or io == 2 and ii >= 4        i < 1 or i > 10

A set is a disjunction of conjunctions, one for each of isl's convex pieces:

1. a piece that is a box inside the context is written by its sides, ``io == 3 and ii >= 2``;
2. a conjunct goes if the piece stays inside the set without it: ``ii == 4 or io == 3 and ii >= 2``;
3. a disjunct goes if the others cover it;
4. where the rest of the context is one piece, its negation is written if that is shorter.

A comparison has its constant on the right, and disjuncts stand in the order of their first points.  Sums of variables
are exact, which narrow types are not: variables of other types than the index type are cast to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl

from ..arith.intervals import Facts, negate
from ..arith.lattice import parts
from ..arith.simplify import simplify
from ..expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    Binary,
    Expr,
    Select,
    Var,
    all_of,
    as_index,
    binary,
    conjuncts,
    const,
    variables,
)
from ..node import walk
from .guard import NotAffine, context
from .to_isl import Translator
from .wrapping import never_wraps

Bounds = Mapping[Var, tuple[int, int]]

_MANY = 12  # disjuncts beyond which no second reading is tried


class Reader:
    """Writes isl objects over `dims`; its methods are called inside a `guard.question`."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.dims = tuple(dims)
        self.by_name: Mapping[str, Expr] = {f"v{k}": as_index(var) for k, var in enumerate(dims)}

    def value(self, handle: Any, domain: Any) -> Expr:
        """The expression of an isl.PwAff, valid on `domain`."""
        named = self._named(handle, isl.dim_type.in_)
        return self._expr(self._build(domain).expr_from_pw_aff(named))

    def condition(self, handle: Any, given: Any = None) -> Expr:
        """The condition of an isl.Set in its simplest form, given that a point is in `given`.

        Raises NotAffine where it may wrap around at 64 bits, which unbounded sets allow.
        """
        known = isl.Set.universe(handle.get_space()) if given is None else given
        bounds = _bounds(self.dims, known)
        result = self._shortest(handle, known, bounds)
        if not never_wraps(result, Facts(bounds)):
            raise NotAffine(f"`{result!r}` may wrap around")
        return result

    def _shortest(self, handle: Any, known: Any, bounds: Bounds) -> Expr:
        """The condition in the context `known`, or the negation of that of what is left there."""
        inside = self._disjunction(handle.intersect(known), known, bounds)
        if inside in (TRUE, FALSE) or len(parts(inside, "or")) > _MANY:
            return inside
        rest = known.subtract(handle).coalesce()
        if rest.gist(known).n_basic_set() > 1:
            return inside
        outside: Expr = simplify(negate(self._disjunction(rest, known, bounds)), bounds)
        return min(inside, outside, key=_length)

    def _disjunction(self, handle: Any, given: Any, bounds: Bounds) -> Expr:
        """The pieces of a subset of `given`, each as short as it can be."""
        if handle.is_empty():
            return FALSE
        pieces = [isl.Set.from_basic_set(p) for p in handle.coalesce().gist(given).get_basic_sets()]
        if len(pieces) > 1:
            pieces.sort(key=lambda p: _first(p.intersect(given)))
        build = self._build(given)
        written = [self._piece(piece, given, bounds, build) for piece in pieces]
        if 1 < len(written) <= _MANY:
            written = self._without_covered([self._widened(p, handle, given) for p in written], handle, given)
        result: Expr = FALSE
        for part in dict.fromkeys(all_of(p) for p in written):
            result = binary("or", result, part)
        return result

    def _piece(self, piece: Any, given: Any, bounds: Bounds, build: Any) -> list[Expr]:
        """The conjuncts of a convex piece: the sides of a box, or what isl's constraints simplify to."""
        if bounds:
            sides = self._sides(piece.intersect(given), bounds)
            if self._set(sides).intersect(given).is_subset(piece):
                return sides
        return list(conjuncts(simplify(self._expr(build.expr_from_set(self._named(piece))), bounds)))

    def _sides(self, piece: Any, bounds: Bounds) -> list[Expr]:
        """The bounding box of `piece`, as far as it is smaller than that of the context."""
        sides: list[Expr] = []
        for k, var in enumerate(self.dims):
            low, high = int(piece.dim_min_val(k).to_python()), int(piece.dim_max_val(k).to_python())
            if (low, high) == bounds[var]:
                continue
            if low == high:
                sides.append(binary("==", var, low))
                continue
            if low > bounds[var][0]:
                sides.append(binary(">=", var, low))
            if high < bounds[var][1]:
                sides.append(binary("<", var, high + 1))
        return sides

    def _widened(self, piece: list[Expr], whole: Any, given: Any) -> list[Expr]:
        """`piece` without the conjuncts that it does not need to stay inside `whole`."""
        kept = list(piece)
        for conjunct in piece:
            others = [c for c in kept if c is not conjunct]
            if others and self._set(others).intersect(given).is_subset(whole):
                kept = others
        return kept

    def _without_covered(self, pieces: list[list[Expr]], whole: Any, given: Any) -> list[list[Expr]]:
        """The pieces without those that the others cover."""
        kept = list(pieces)
        for piece in reversed(pieces):
            others = [p for p in kept if p is not piece]
            covered = isl.Set.empty(whole.get_space())
            for other in others:
                covered = covered.union(self._set(other))
            if others and whole.is_subset(covered.intersect(given)):
                kept = others
        return kept

    def _set(self, conds: Sequence[Expr]) -> Any:
        return Translator(self.dims).condition(all_of(conds))

    def _build(self, known: Any) -> Any:
        return isl.AstBuild.from_context(self._named(known))

    def _named(self, handle: Any, kind: Any = None) -> Any:
        """The dimensions as parameters, which is what the AST generator takes for known names."""
        kind = isl.dim_type.set if kind is None else kind
        for k, name in enumerate(self.by_name):
            handle = handle.set_dim_id(kind, k, isl.Id.read_from_str(context, name))
        handle = handle.move_dims(isl.dim_type.param, 0, kind, 0, len(self.by_name))
        return handle.params() if isinstance(handle, isl.Set) else handle.project_domain_on_params()

    def _expr(self, node: Any) -> Expr:
        kind = node.get_type()
        if kind == isl.ast_expr_type.id:
            return self.by_name[node.get_id().get_name()]
        if kind == isl.ast_expr_type.int:
            return const(int(node.get_val().to_python()))
        op = node.get_op_type()
        args = [self._expr(node.get_op_arg(k)) for k in range(node.get_op_n_arg())]
        return _operation(op, args)


def _operation(op: Any, args: list[Expr]) -> Expr:
    types = isl.ast_expr_op_type
    if op == types.minus:
        return binary("-", 0, args[0])
    if op in (types.cond, types.select):
        return Select(*args)
    names = {
        types.and_: "and", types.and_then: "and", types.or_: "or", types.or_else: "or",
        types.max: "max", types.min: "min", types.add: "+", types.sub: "-", types.mul: "*",
        types.div: "//", types.fdiv_q: "//", types.pdiv_q: "//", types.pdiv_r: "%", types.zdiv_r: "%",
        types.eq: "==", types.le: "<=", types.lt: "<", types.ge: ">=", types.gt: ">",
    }  # fmt: skip
    result = args[0]
    for arg in args[1:]:
        result = binary(names[op], result, arg)
    return result


def _first(piece: Any) -> tuple[int, ...]:
    """The coordinates of the first point, to sort by; nothing for an unbounded set."""
    if piece.is_empty() or not piece.is_bounded():
        return ()
    point = piece.lexmin().sample_point()
    count = piece.dim(isl.dim_type.set)
    return tuple(int(point.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(count))


def _bounds(dims: Sequence[Var], known: Any) -> Bounds:
    """The interval of each dimension that the context bounds."""
    if known.is_empty() or not known.is_bounded():
        return {}
    return {
        var: (int(known.dim_min_val(k).to_python()), int(known.dim_max_val(k).to_python()))
        for k, var in enumerate(dims)
    }


def _length(cond: Expr) -> tuple[int, int]:
    """What a reader has to take in: comparisons, those of several variables counting more, then every node."""
    nodes = list(walk(cond))
    compared = [n for n in nodes if isinstance(n, Binary) and n.op in COMPARISONS]
    return sum(max(1, 2 * len(variables(n)) - 1) for n in compared), len(nodes)
