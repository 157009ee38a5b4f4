"""isl functions and sets as expressions that a person would write.

`value` writes a function, `condition` a set, given that a context holds.  Of a set
that is written as a disjunction of conjunctions there are two readings, the set
itself and the complement of what the context has besides; the shorter one wins::

    io == 3 and ii >= 2        io == 0 and ii < 2 or io == 2 and ii >= 4        not (1 <= i <= 10)

A comparison has its constant on the right, an upper bound is a ``<``, and
disjuncts stand in the order of their first points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl

from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..expr import COMPARISONS, FALSE, TRUE, Binary, Expr, Select, Var, binary, const
from ..node import walk
from .guard import context

_MANY = 12  # disjuncts beyond which no second reading is tried


class Reader:
    """Writes isl objects over `dims`; its methods are called inside a `guard.question`."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.dims = tuple(dims)
        self.by_name: Mapping[str, Var] = {f"v{k}": var for k, var in enumerate(dims)}

    def value(self, handle: Any, domain: Any) -> Expr:
        """The expression of an isl.PwAff, valid on `domain`."""
        named = self._named(handle, isl.dim_type.in_)
        return self._expr(self._build(domain).expr_from_pw_aff(named))

    def condition(self, handle: Any, given: Any = None) -> Expr:
        """The condition of an isl.Set in its simplest form, given that a point is in `given`."""
        known = isl.Set.universe(handle.get_space()) if given is None else given
        bounds = _bounds(self.dims, known)
        inside = self._disjunction(handle.coalesce().gist(known), known, bounds)
        if len(_parts(inside)) > _MANY or inside in (TRUE, FALSE):
            return inside
        rest = known.subtract(handle).coalesce().gist(known)
        if rest.n_basic_set() > 1:
            return inside
        outside: Expr = simplify(negate(self._disjunction(rest, known, bounds)), bounds)
        return min(inside, outside, key=_length)

    def _disjunction(self, handle: Any, given: Any, bounds: Mapping[Var, tuple[int, int]]) -> Expr:
        if handle.is_empty():
            return FALSE
        pieces = [isl.Set.from_basic_set(p) for p in handle.get_basic_sets()]
        build = self._build(given)
        result: Expr = FALSE
        for piece in sorted(pieces, key=lambda p: _first(p.intersect(given))):
            written = self._expr(build.expr_from_set(self._named(piece)))
            result = binary("or", result, simplify(written, bounds))
        return result

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


def _bounds(dims: Sequence[Var], known: Any) -> dict[Var, tuple[int, int]]:
    """The interval of each dimension that the context bounds."""
    if known.is_empty() or not known.is_bounded():
        return {}
    return {
        var: (int(known.dim_min_val(k).to_python()), int(known.dim_max_val(k).to_python()))
        for k, var in enumerate(dims)
    }


def _parts(cond: Expr) -> list[Expr]:
    return _parts(cond.a) + _parts(cond.b) if isinstance(cond, Binary) and cond.op == "or" else [cond]


def _length(cond: Expr) -> tuple[int, int]:
    """Comparisons first, then every node: what a reader has to take in."""
    nodes = list(walk(cond))
    return sum(isinstance(n, Binary) and n.op in COMPARISONS for n in nodes), len(nodes)
