"""Exact sets of integer points: isl behind a small typed interface.

A `Domain` is a program's view of a set: variables with extents and conditions.
`points` turns it into an `IntSet`, on which emptiness, subset, projection and the
like are decided exactly.  A *no* comes with a point.  An expression that has no
exact set raises `NotAffine` (`to_isl` says which have one), and so does one that may wrap
around at 64 bits where it is asked (`wrapping`); a question that takes
more than its budget of operations raises `Unknown` (`guard`), and the caller refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl

from .. import dtypes
from ..arith.intervals import ANY_INDEX, Facts, Interval
from ..caches import cached
from ..expr import Const, Expr, Var, as_int, binary
from ..text import expr_text
from .from_isl import Reader
from .guard import NotAffine, Unknown, guarded, question
from .to_isl import Translator, is_affine
from .wrapping import never_wraps

Extent = Expr | int | None


MOST_DIVISIONS = 6
"""The most integer divisions of a set whose last point is computed: isl took more than five minutes for one with 7."""


@dataclass(frozen=True)
class Domain:
    """The points of `dims` at which every condition holds.

    Each dimension is a variable and its extent: it runs over ``[0, extent)``, where
    the extent may use variables before it; None means every value of the variable's type.
    Of those, `indices` are known to be indices, which no sum of them makes wrap around.
    """

    dims: tuple[tuple[Var, Extent], ...]
    conditions: tuple[Expr, ...] = ()
    indices: frozenset[Var] = frozenset()

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(var for var, _ in self.dims)

    def never_wraps(self, expr: Expr) -> bool:
        """Whether no int64 that `expr` computes wraps around at a point of the domain, as far as intervals say."""
        box = intervals_of(self.dims, self.indices)
        return never_wraps(expr, box) or (bool(self.conditions) and never_wraps(expr, self._facts))

    @cached_property
    def _facts(self) -> Facts:
        facts = intervals_of(self.dims, self.indices)
        for var, extent in self.dims:
            facts = facts.assuming(binary("<", var, extent)) if isinstance(extent, Expr) else facts
        for cond in (*self.conditions, *self.conditions):  # again, where later ones say that a sum does not wrap around
            facts = facts.assuming(cond)
        return facts

    def interval(self, expr: Expr) -> Interval:
        """The inclusive interval of an expression over the variables."""
        return self._facts.interval(expr)

    def has_set(self, expr: Expr) -> bool:
        """Whether an expression over the variables is affine, and does not wrap around."""
        return self._is_set(expr, frozenset(self.variables))

    def where(self, *conditions: Expr) -> Domain:
        """The part of the domain where `conditions` hold as well."""
        return Domain(self.dims, self.conditions + conditions, self.indices)

    def relaxed(self) -> Domain:
        """A superset: conditions and extents that are not affine are left out."""
        known = frozenset(self.variables)
        dims = tuple((v, e if not isinstance(e, Expr) or self._is_set(e, known) else None) for v, e in self.dims)
        return Domain(dims, tuple(c for c in self.conditions if self._is_set(c, known)), self.indices)

    def _is_set(self, expr: Expr, known: frozenset[Var]) -> bool:
        return is_affine(expr, known) and self.never_wraps(expr)


@cached(4096)
def intervals_of(dims: tuple[tuple[Var, Extent], ...], indices: frozenset[Var] = frozenset()) -> Facts:
    """The intervals of the variables of a domain."""
    ends = {var: (0, extent - 1) for var, extent in dims if isinstance(extent, int)}
    facts = Facts({**dict.fromkeys(indices, ANY_INDEX), **ends})
    for var, extent in dims:
        facts = facts.looping(var, extent) if isinstance(extent, Expr) else facts
    return facts


def _values(var: Var) -> Interval:
    """Every value of the type of a variable."""
    return (0, 1) if dtypes.is_bool(var.dtype) else dtypes.int_range(dtypes.element(var.dtype))


class IntSet:
    """A set of integer points, one coordinate per variable."""

    def __init__(self, dims: tuple[Var, ...], handle: Any, domain: Domain | None = None) -> None:
        self.variables = dims
        self.isl = handle
        self.domain = domain  # one that holds every point

    @cached_property
    def _box(self) -> Facts:
        """The intervals of the coordinates."""
        if self.isl.is_empty():
            return Facts({}, impossible=True)
        return Facts({var: self._ends(k, _values(var)) for k, var in enumerate(self.variables)})

    def _ends(self, dim: int, own: Interval) -> Interval:
        """The least and the largest value of a coordinate, `own` where it has none."""
        kind = isl.dim_type.set
        low = self.isl.dim_min_val(dim) if self.isl.dim_has_lower_bound(kind, dim) else None
        high = self.isl.dim_max_val(dim) if self.isl.dim_has_upper_bound(kind, dim) else None
        # Where a bound holds in some parts of the set alone the value is infinite.
        # A bound that other coordinates give may be infinite as these are.
        return (
            int(low.to_python()) if low is not None and low.is_int() else own[0],
            int(high.to_python()) if high is not None and high.is_int() else own[1],
        )

    def check_exact(self, *exprs: Expr) -> None:
        """Raises NotAffine for an expression that may wrap around at a point of this set."""
        for expr in exprs:
            known = self.domain is not None and self.domain.never_wraps(expr)
            if not known and not never_wraps(expr, self._box):
                raise NotAffine(f"`{expr_text(expr)}` may wrap around at 64 bits")

    @guarded
    def __repr__(self) -> str:
        return f"IntSet({', '.join(v.name for v in self.variables)}: {self.isl})"

    @guarded
    def is_empty(self) -> bool:
        return bool(self.isl.is_empty())

    @guarded
    def is_subset(self, other: IntSet) -> bool:
        return bool(self.isl.is_subset(self._same(other)))

    @guarded
    def is_equal(self, other: IntSet) -> bool:
        return bool(self.isl.is_equal(self._same(other)))

    @guarded
    def intersect(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.intersect(self._same(other)), self.domain)

    @guarded
    def union(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.union(self._same(other)).coalesce())

    @guarded
    def subtract(self, other: IntSet) -> IntSet:
        return IntSet(self.variables, self.isl.subtract(self._same(other)), self.domain)

    @guarded
    def where(self, cond: Expr) -> IntSet:
        """The points at which `cond` holds.  Raises NotAffine."""
        self.check_exact(cond)
        return IntSet(self.variables, self.isl.intersect(Translator(self.variables).condition(cond)), self.domain)

    @guarded
    def gist(self, context: IntSet) -> IntSet:
        """A simple set that equals this one inside `context`."""
        return IntSet(self.variables, self.isl.coalesce().gist(self._same(context)))

    @guarded
    def project_out(self, names: Sequence[Var]) -> IntSet:
        """The points that remain when the coordinates `names` are forgotten."""
        handle, kept = self.isl, list(self.variables)
        for var in names:
            position = kept.index(var)
            handle = handle.project_out(isl.dim_type.set, position, 1)
            kept.pop(position)
        return IntSet(tuple(kept), handle)

    @guarded
    def sample(self) -> dict[str, int] | None:
        """The coordinates of one point by name; None if there is none."""
        if self.isl.is_empty():
            return None
        point = self.isl.sample_point()
        return {
            var.name: int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
            for k, var in enumerate(self.variables)
        }

    @guarded
    def first(self) -> dict[str, int] | None:
        """The lexicographically smallest point, or any one where that is not found; None if empty."""
        if self.isl.is_empty():
            return None
        try:
            return IntSet(self.variables, self.isl.lexmin()).sample()
        except isl.Error:  # unbounded, or isl's "affine expression involves some of the domain dimensions"
            return self.sample()

    @guarded
    def last(self) -> dict[str, int] | None:
        """The lexicographically greatest point of a bounded set; None if empty.  Raises Unknown for many divisions."""
        if max((part.dim(isl.dim_type.div) for part in self.isl.get_basic_sets()), default=0) > MOST_DIVISIONS:
            raise Unknown("isl's lexmax of a set with so many divisions takes minutes, and counts no operations")
        return None if self.isl.is_empty() else IntSet(self.variables, self.isl.lexmax()).sample()

    @guarded
    def maximum(self, dim: int) -> int:
        """The largest value of coordinate `dim` of a bounded, non-empty set."""
        return int(self.isl.dim_max_val(dim).to_python())

    @guarded
    def minimum(self, dim: int) -> int:
        """The smallest value of coordinate `dim` of a bounded, non-empty set."""
        return int(self.isl.dim_min_val(dim).to_python())

    @guarded
    def fixed(self) -> dict[Var, int]:
        """The coordinates that have but one value, as far as equalities of isl's own show it."""
        handle = self.isl.coalesce().detect_equalities()
        values = (handle.plain_get_val_if_fixed(isl.dim_type.set, k) for k in range(len(self.variables)))
        return {var: int(v.to_python()) for var, v in zip(self.variables, values, strict=True) if v.is_int()}

    @guarded
    def image(self, indices: Sequence[Expr], names: Sequence[Var] | None = None) -> IntSet:
        """``{ indices(x) : x in self }``, with coordinates called `names` (default ``o0``, ``o1``, ...)."""
        return access_map(self, indices, names).image()

    @guarded
    def condition(self, context: IntSet | None = None) -> Expr:
        """The simplest condition that holds exactly on this set, given that the point is in `context`."""
        return Reader(self.variables).condition(self.isl, None if context is None else self._same(context))

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

    @guarded
    def image(self, subset: IntSet | None = None) -> IntSet:
        """All points that are reached, from `subset` or from everywhere."""
        handle = self.isl if subset is None else self.isl.intersect_domain(subset.isl)
        return IntSet(self.names, handle.range())

    @guarded
    def preimage(self, target: IntSet) -> IntSet:
        """All points that reach into `target`."""
        return IntSet(self.domain.variables, self.isl.intersect_range(target.isl).domain())

    @guarded
    def is_injective(self) -> bool:
        return bool(self.isl.is_injective())

    @guarded
    def collision(self) -> tuple[dict[str, int], dict[str, int]] | None:
        """Two different points with one image; None if the map is injective."""
        pairs = self.isl.apply_range(self.isl.reverse())
        pairs = pairs.intersect(isl.Map.lex_lt(pairs.get_space().domain()))
        if pairs.is_empty():
            return None
        for least in (True, False):  # isl was seen to find no least point of a set that is not empty
            first = pairs.domain().lexmin() if least else isl.Set.from_point(pairs.domain().sample_point())
            others = pairs.intersect_domain(first).range()
            a, b = (IntSet(self.domain.variables, s).sample() for s in (first, others.lexmin() if least else others))
            if a is not None and b is not None:
                return a, b
        raise Unknown("two points have one image, and isl finds none of them")

    @guarded
    def inverse(self) -> tuple[Expr, ...]:
        """For an injective map: the domain's variables in terms of `names`, valid on the image."""
        inverse = self.isl.reverse()
        image = inverse.domain()
        pieces = isl.PwMultiAff.from_map(inverse)
        reader = Reader(self.names)
        return tuple(
            reader.value(pieces.get_pw_aff(k).coalesce().gist(image), image) for k in range(len(self.domain.variables))
        )


@cached(4096)
@guarded
def points(domain: Domain) -> IntSet:
    """The exact set of a domain.  Raises NotAffine (see `Domain.relaxed`) and Unknown."""
    translator = Translator(domain.variables)
    handle = isl.Set.universe(translator.space)
    for var, extent in domain.dims:
        if extent is None and var.dtype != dtypes.INDEX:
            handle = translator.in_type(handle, var)
        elif isinstance(extent, Expr) and not isinstance(extent, Const):
            value = translator.value(var)
            handle = handle.intersect(value.ge_set(translator.constant(0)))
            handle = handle.intersect(value.lt_set(translator.value(extent)))
        elif extent is not None:
            handle = translator.between(handle, var, 0, as_int(extent) - 1)
    for cond in domain.conditions:
        handle = handle.intersect(translator.condition(cond))
    found = IntSet(domain.variables, handle, domain)
    found.check_exact(*(e for _, e in domain.dims if isinstance(e, Expr)), *domain.conditions)
    return found


def box(names: Sequence[Var], shape: Sequence[int]) -> IntSet:
    """All points of ``[0, shape[0]) x [0, shape[1]) x ...``."""
    return points(Domain(tuple(zip(names, shape, strict=True))))


def access_map(domain: IntSet | Domain, indices: Sequence[Expr], names: Sequence[Var] | None = None) -> Relation:
    """``{ x -> indices(x) : x in domain }``.  Raises NotAffine and Unknown."""
    source = domain if isinstance(domain, IntSet) else points(domain)
    targets = tuple(names) if names is not None else tuple(Var(f"o{k}") for k in range(len(indices)))
    with question():
        if not indices:
            return Relation(source, targets, isl.Map.from_domain(source.isl))
        translator = Translator(source.variables)
        source.check_exact(*indices)
        parts = [isl.PwMultiAff.from_pw_aff(translator.value(index)) for index in indices]
        function = functools.reduce(isl.PwMultiAff.flat_range_product, parts)
        return Relation(source, targets, isl.Map.from_pw_multi_aff(function).intersect_domain(source.isl))


def find_point(domain: Domain) -> dict[str, int] | None:
    """A point of the domain by name; None if it is empty."""
    return points(domain).sample()


def counterexample(domain: Domain, cond: Expr) -> dict[str, int] | None:
    """The first point of `domain` at which `cond` fails; None if it always holds."""
    return violations(domain, cond).first()


def violations(domain: Domain, cond: Expr) -> IntSet:
    """The points of `domain` at which `cond` fails.  Raises NotAffine and Unknown."""
    source = points(domain)
    with question():
        source.check_exact(cond)
        outside = source.isl.subtract(Translator(source.variables).condition(cond))
        return IntSet(source.variables, outside, source.domain)


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


__all__ = [
    "Domain", "Extent", "IntSet", "NotAffine", "Relation", "Unknown", "access_map", "box", "counterexample",
    "find_point", "implies", "is_affine", "points", "violations",
]  # fmt: skip
