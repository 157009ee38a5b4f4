"""Exact sets of integer points: isl behind a small typed face.

A `Domain` is a program's view of a set: variables with extents and conditions.
`points` turns it into an `IntSet`, on which emptiness, subset, projection and the
like are decided exactly.  A *no* comes with a point.  Expressions may use
``+ - *`` with a constant factor, ``//`` and ``%`` by positive constants, min, max,
if_then_else, comparisons, and, or, not; anything else raises `NotAffine`.

Each question has a budget of elementary operations; beyond it the answer is
the exception `Unknown`, and the caller refuses.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import islpy as isl

from .. import dtypes
from ..expr import Binary, Call, Cast, Const, Expr, Not, Select, Var, binary, const, variables

MAX_OPERATIONS = 400_000

Extent = Expr | int | None
P = ParamSpec("P")
R = TypeVar("R")


class NotAffine(ValueError):
    """The expression has no exact description as a set."""


class Unknown(Exception):
    """The question was too hard for its budget of operations."""


@dataclass(frozen=True)
class Domain:
    """The points of `dims` at which every condition holds.

    Each dimension is a variable and its extent: it runs over ``[0, extent)``, where
    the extent may use variables before it; None means every integer.
    """

    dims: tuple[tuple[Var, Extent], ...]
    conditions: tuple[Expr, ...] = ()

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(var for var, _ in self.dims)

    def where(self, *conditions: Expr) -> Domain:
        """The part of the domain where `conditions` hold as well."""
        return Domain(self.dims, self.conditions + conditions)

    def relaxed(self) -> Domain:
        """A superset: conditions and extents that are not affine are left out."""
        known = frozenset(self.variables)
        dims = tuple((v, e if not isinstance(e, Expr) or is_affine(e, known) else None) for v, e in self.dims)
        return Domain(dims, tuple(c for c in self.conditions if is_affine(c, known)))


class _Guard:
    """The one isl context, and the budget of the question being asked."""

    def __init__(self) -> None:
        self.context = isl.Context()
        self.context.set_on_error(isl.on_error.CONTINUE)
        self.lock = threading.RLock()
        self.depth = 0

    @contextmanager
    def question(self) -> Iterator[None]:
        with self.lock:
            if self.depth == 0:
                self.context.reset_operations()
                self.context.set_max_operations(MAX_OPERATIONS)
            self.depth += 1
            try:
                yield
            except isl.Error as err:
                if "maximal number of operations" not in str(err):
                    raise Unknown(f"isl could not decide it ({err})") from err
                raise Unknown(f"the exact set was too large to decide within {MAX_OPERATIONS} operations") from err
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.context.set_max_operations(0)
                    self.context.reset_operations()


_guard = _Guard()


def _guarded(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _guard.question():
            return fn(*args, **kwargs)

    return asked


class IntSet:
    """A set of integer points, one coordinate per variable."""

    def __init__(self, dims: tuple[Var, ...], handle: Any) -> None:
        self.variables = dims
        self.isl = handle

    @_guarded
    def __repr__(self) -> str:
        return f"IntSet({', '.join(v.name for v in self.variables)}: {self.isl})"

    @_guarded
    def is_empty(self) -> bool:
        return bool(self.isl.is_empty())

    @_guarded
    def is_subset(self, other: IntSet) -> bool:
        return bool(self.isl.is_subset(self._same(other)))

    @_guarded
    def is_equal(self, other: IntSet) -> bool:
        return bool(self.isl.is_equal(self._same(other)))

    @_guarded
    def intersect(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.intersect(self._same(other)))

    @_guarded
    def union(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.union(self._same(other)).coalesce())

    @_guarded
    def subtract(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.subtract(self._same(other)))

    @_guarded
    def where(self, cond: Expr) -> IntSet:
        """The points at which `cond` holds.  Raises NotAffine."""
        return IntSet(self.variables, self.isl.intersect(_Translator(self.variables).condition(cond)))

    @_guarded
    def gist(self, context: IntSet) -> IntSet:
        """A simple set that equals this one inside `context`."""
        return IntSet(self.variables, self.isl.coalesce().gist(self._same(context)))

    @_guarded
    def project_out(self, names: Sequence[Var]) -> IntSet:
        """The points that remain when the coordinates `names` are forgotten."""
        handle, kept = self.isl, list(self.variables)
        for var in names:
            position = kept.index(var)
            handle = handle.project_out(isl.dim_type.set, position, 1)
            kept.pop(position)
        return IntSet(tuple(kept), handle)

    @_guarded
    def sample(self) -> dict[str, int] | None:
        """The coordinates of one point by name; None if there is none."""
        if self.isl.is_empty():
            return None
        point = self.isl.sample_point()
        return {
            var.name: int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
            for k, var in enumerate(self.variables)
        }

    @_guarded
    def first(self) -> dict[str, int] | None:
        """The lexicographically smallest point, or any one where that is not found; None if empty."""
        if self.isl.is_empty():
            return None
        try:
            return IntSet(self.variables, self.isl.lexmin()).sample()
        except isl.Error:  # unbounded, or isl's "affine expression involves some of the domain dimensions"
            return self.sample()

    @_guarded
    def maximum(self, dim: int) -> int:
        """The largest value of coordinate `dim` of a bounded, non-empty set."""
        return int(self.isl.dim_max_val(dim).to_python())

    @_guarded
    def minimum(self, dim: int) -> int:
        """The smallest value of coordinate `dim` of a bounded, non-empty set."""
        return int(self.isl.dim_min_val(dim).to_python())

    @_guarded
    def image(self, indices: Sequence[Expr], names: Sequence[Var] | None = None) -> IntSet:
        """``{ indices(x) : x in self }``, with coordinates called `names` (default ``o0``, ``o1``, ...)."""
        return access_map(self, indices, names).image()

    @_guarded
    def condition(self, context: IntSet | None = None) -> Expr:
        """A condition over the variables that holds exactly on this set, given that `context` holds."""
        handle = self.isl.coalesce() if context is None else self.gist(context).isl
        if handle.is_empty():
            return const(False)
        return _Reader(self.variables).condition(handle, None if context is None else context.isl)

    def _same(self, other: IntSet) -> Any:
        if len(self.variables) != len(other.variables):
            raise ValueError(f"sets of {len(self.variables)} and {len(other.variables)} dimensions do not compare")
        return other.isl


class Relation:
    """The map from the points of `domain` to points called `names`, as `access_map` gives it."""

    def __init__(self, domain: IntSet, names: tuple[Var, ...], handle: Any) -> None:
        self.domain = domain
        self.names = names
        self.isl = handle

    @_guarded
    def image(self, subset: IntSet | None = None) -> IntSet:
        """All points that are reached, from `subset` or from everywhere."""
        handle = self.isl if subset is None else self.isl.intersect_domain(subset.isl)
        return IntSet(self.names, handle.range())

    @_guarded
    def preimage(self, target: IntSet) -> IntSet:
        """All points that reach into `target`."""
        return IntSet(self.domain.variables, self.isl.intersect_range(target.isl).domain())

    @_guarded
    def is_injective(self) -> bool:
        return bool(self.isl.is_injective())

    @_guarded
    def collision(self) -> tuple[dict[str, int], dict[str, int]] | None:
        """Two different points with one image; None if the map is injective."""
        pairs = self.isl.apply_range(self.isl.reverse())
        pairs = pairs.intersect(isl.Map.lex_lt(pairs.get_space().domain()))
        if pairs.is_empty():
            return None
        first = IntSet(self.domain.variables, pairs.domain().lexmin())
        second = IntSet(self.domain.variables, pairs.intersect_domain(first.isl).range().lexmin())
        a, b = first.sample(), second.sample()
        assert a is not None and b is not None
        return a, b

    @_guarded
    def inverse(self) -> tuple[Expr, ...]:
        """For an injective map: the domain's variables in terms of `names`, valid on the image."""
        inverse = self.isl.reverse()
        image = inverse.domain()
        pieces = isl.PwMultiAff.from_map(inverse)
        reader = _Reader(self.names)
        return tuple(
            reader.value(pieces.get_pw_aff(k).coalesce().gist(image), image) for k in range(len(self.domain.variables))
        )


@functools.lru_cache(maxsize=4096)
@_guarded
def points(domain: Domain) -> IntSet:
    """The exact set of a domain.  Raises NotAffine (see `Domain.relaxed`) and Unknown."""
    translator = _Translator(domain.variables)
    handle = isl.Set.universe(translator.space)
    zero = translator.constant(0)
    for var, extent in domain.dims:
        if extent is not None:
            value = translator.value(var)
            limit = translator.value(extent if isinstance(extent, Expr) else const(extent))
            handle = handle.intersect(value.ge_set(zero)).intersect(value.lt_set(limit))
    for cond in domain.conditions:
        handle = handle.intersect(translator.condition(cond))
    return IntSet(domain.variables, handle)


def box(names: Sequence[Var], shape: Sequence[int]) -> IntSet:
    """All points of ``[0, shape[0]) x [0, shape[1]) x ...``."""
    return points(Domain(tuple(zip(names, shape, strict=True))))


@_guarded
def access_map(domain: IntSet | Domain, indices: Sequence[Expr], names: Sequence[Var] | None = None) -> Relation:
    """``{ x -> indices(x) : x in domain }``.  Raises NotAffine."""
    source = domain if isinstance(domain, IntSet) else points(domain)
    targets = tuple(names) if names is not None else tuple(Var(f"o{k}") for k in range(len(indices)))
    translator = _Translator(source.variables)
    handle = isl.Map.from_domain(source.isl)
    for index in indices:
        handle = handle.flat_range_product(isl.Map.from_pw_aff(translator.value(index)))
    return Relation(source, targets, handle.intersect_domain(source.isl))


def find_point(domain: Domain) -> dict[str, int] | None:
    """A point of the domain by name; None if it is empty."""
    return points(domain).sample()


def counterexample(domain: Domain, cond: Expr) -> dict[str, int] | None:
    """The first point of `domain` at which `cond` fails; None if it always holds."""
    return violations(domain, cond).first()


@_guarded
def violations(domain: Domain, cond: Expr) -> IntSet:
    """The points of `domain` at which `cond` fails."""
    source = points(domain)
    return IntSet(source.variables, source.isl.subtract(_Translator(source.variables).condition(cond)))


def implies(domain: Domain, cond: Expr) -> bool | None:
    """Whether `cond` holds on all of `domain`; None if that is unknown.

    Conditions of the domain that are not affine are left out, which may only
    turn a yes into None.
    """
    try:
        relaxed = domain.relaxed()
        if violations(relaxed, cond).is_empty():
            return True
        return False if relaxed == domain else None
    except (NotAffine, Unknown):
        return None


def is_affine(expr: Expr, known: frozenset[Var] | None = None) -> bool:
    """Whether the expression or condition translates, over the variables `known` if given."""
    names = tuple(variables(expr))
    if known is not None and not known.issuperset(names):
        return False
    try:
        with _guard.question():
            translator = _Translator(names)
            (translator.condition if dtypes.is_bool(expr.dtype) else translator.value)(expr)
    except (NotAffine, Unknown):
        return False
    return True


class _Translator:
    """Expressions over `dims` as isl functions and sets."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.space = isl.Space.set_alloc(_guard.context, 0, len(dims))
        self.local = isl.LocalSpace.from_space(self.space)
        self.position = {var: k for k, var in enumerate(dims)}

    def constant(self, value: int) -> Any:
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self.local, isl.Val(value, _guard.context)))

    def value(self, expr: Expr) -> Any:
        if isinstance(expr, Var):
            if expr not in self.position:
                raise NotAffine(f"`{expr.name}` is not a variable of the domain")
            return isl.PwAff.from_aff(isl.Aff.var_on_domain(self.local, isl.dim_type.set, self.position[expr]))
        if isinstance(expr, Const) and dtypes.is_int(expr.dtype):
            return self.constant(int(expr.value))
        if isinstance(expr, Binary) and dtypes.is_int(expr.dtype):
            return self._binary(expr)
        if isinstance(expr, Select):
            return self.condition_value(expr.cond, expr.a, expr.b)
        if isinstance(expr, Call) and expr.name == "if_then_else":
            return self.condition_value(*expr.args)
        if isinstance(expr, Cast) and dtypes.is_int(expr.dtype) and _widens(expr):
            return self.value(expr.a)
        raise NotAffine(f"`{expr!r}` is not affine")

    def _binary(self, expr: Binary) -> Any:
        a, b = self.value(expr.a), self.value(expr.b)
        simple: dict[str, Callable[[], Any]] = {
            "+": lambda: a.add(b), "-": lambda: a.sub(b), "min": lambda: a.min(b), "max": lambda: a.max(b),
        }  # fmt: skip
        if expr.op in simple:
            return simple[expr.op]()
        if expr.op == "*" and (a.is_cst() or b.is_cst()):
            return a.mul(b)
        if expr.op in ("//", "%") and isinstance(expr.b, Const) and int(expr.b.value) > 0:
            divisor = isl.Val(int(expr.b.value), _guard.context)
            return a.scale_down_val(divisor).floor() if expr.op == "//" else a.mod_val(divisor)
        raise NotAffine(f"`{expr.op}` needs a constant operand, and `//` and `%` a positive divisor")

    def condition_value(self, cond: Expr, a: Expr, b: Expr) -> Any:
        """``if cond then a else b`` as a piecewise function."""
        where = self.condition(cond)
        return self.value(a).intersect_domain(where).union_add(self.value(b).subtract_domain(where))

    def condition(self, cond: Expr) -> Any:
        universe = isl.Set.universe(self.space)
        if isinstance(cond, Const):
            return universe if cond.value else isl.Set.empty(self.space)
        if isinstance(cond, Not):
            return universe.subtract(self.condition(cond.a))
        if isinstance(cond, Binary) and cond.op in ("and", "or"):
            a, b = self.condition(cond.a), self.condition(cond.b)
            return a.intersect(b) if cond.op == "and" else a.union(b)
        if isinstance(cond, Binary) and cond.op in _COMPARE and dtypes.is_int(cond.a.dtype):
            return getattr(self.value(cond.a), _COMPARE[cond.op])(self.value(cond.b))
        raise NotAffine(f"`{cond!r}` is not an affine condition")


_COMPARE = {"<": "lt_set", "<=": "le_set", ">": "gt_set", ">=": "ge_set", "==": "eq_set", "!=": "ne_set"}


def _widens(expr: Cast) -> bool:
    """Whether the cast keeps every value of its operand's type."""
    if dtypes.lanes(expr.dtype) != 1 or not dtypes.is_int(expr.a.dtype):
        return False
    (lo, hi), (low, high) = dtypes.int_range(expr.dtype), dtypes.int_range(expr.a.dtype)
    return lo <= low and high <= hi


class _Reader:
    """isl functions and sets as expressions over `dims`, through isl's own AST generator."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.by_name: Mapping[str, Var] = {f"v{k}": var for k, var in enumerate(dims)}

    def condition(self, handle: Any, context: Any = None) -> Expr:
        return self._expr(self._build(handle, context).expr_from_set(self._named(handle)))

    def value(self, handle: Any, context: Any) -> Expr:
        named = self._named(handle, isl.dim_type.in_)
        return self._expr(self._build(context, context).expr_from_pw_aff(named))

    def _build(self, handle: Any, context: Any) -> Any:
        known = isl.Set.universe(handle.get_space()) if context is None else context
        return isl.AstBuild.from_context(self._named(known))

    def _named(self, handle: Any, kind: Any = None) -> Any:
        """The dimensions as parameters, which is what the AST generator takes for known names."""
        kind = isl.dim_type.set if kind is None else kind
        for k, name in enumerate(self.by_name):
            handle = handle.set_dim_id(kind, k, isl.Id.read_from_str(_guard.context, name))
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
        if names[op] in (">=", ">") and isinstance(arg, Const):
            return binary("<=" if names[op] == ">=" else "<", arg, result)
        result = binary(names[op], result, arg)
    return result
