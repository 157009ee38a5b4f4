"""What is known about integers at one place of a program, and the intervals that follow.

`Facts` holds an inclusive interval for atoms (variables, quotients, ...) and for
linear forms of several atoms, as loops and conditions give them.  Intervals are
Python integers; an atom about which nothing is known has the range of its type.

The interval of an expression is that of the value which is computed, with wrap-around: a sum
of int64 that may leave 64 bits has the range of its type.  The interval of a form is that of
the sum over the integers; the two are one where the form `is_exact`.  What is loaded, or
passed as an argument, may have any value of its type.  What counts does not: a loop whose
extent is unknown takes less than `LONGEST` steps, as no computer finishes more, and an index
whose shape is unknown lies within `ANY_INDEX`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any, ClassVar, cast

from .. import dtypes
from ..caches import cleared_with
from ..expr import (
    COMPARISONS,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Extent,
    LetExpr,
    Not,
    Ramp,
    Select,
    Undef,
    Var,
    conjuncts,
    const,
    reads_memory,
)
from ..functions import INTEGER_CALLS
from ..statements import LONGEST
from . import integer_calls
from .linear import Linear, UndefTerm, add, build, contains_undef, divide, ordered, shared_form
from .orders import ORDERS, Orders, compared, mirrored

Interval = tuple[int, int]
Bounds = Mapping[Var, Interval] | Mapping[Expr, Interval]
Form = tuple[tuple[tuple[Expr, int], ...], int, int]

NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
ANY_INDEX: Interval = (-(1 << 40), 1 << 40)
"""The range of an index into memory of unknown shape."""
_DERIVED = 64
_MOST_ORDERS = 16  # comparisons of expressions that are kept, a choice
_UNBOUNDED = 1 << 4096  # wider than any product of index atoms
_INT64 = dtypes.int_range(dtypes.INDEX)


class Facts:
    """Intervals of atoms and of linear forms; immutable.

    `orders` says how two expressions compare, where a condition told it.  `impossible` is true when
    the facts contradict each other, which means that the place is never reached.  `strict` is what
    `simplify` was asked for.  `sums` says that some of the bounds are those of sums that may wrap around.
    """

    created: ClassVar[int] = 0

    def __init__(
        self, bounds: Bounds, forms: tuple[Form, ...] = (), impossible: bool = False, strict: bool = False,
        sums: bool = False, orders: Orders | None = None,
    ) -> None:  # fmt: skip
        self.bounds: dict[Expr, Interval] = dict(cast("Mapping[Expr, Interval]", bounds))
        self.forms = forms
        self.strict = strict
        self.sums = sums
        self.orders: Orders = {} if orders is None else orders
        self.impossible = (
            impossible or any(lo > hi for lo, hi in self.bounds.values()) or any(lo > hi for _, lo, hi in forms)
        )
        self.simplifier: Any = None
        self.exact: dict[Expr, bool] = {}  # see `affine.wrapping`
        Facts.created += 1
        self._next: dict[Any, Facts] = {}
        self._deep: dict[Expr, Interval] = {}
        self._plain: dict[Expr, Interval] = {}

    def interval(self, expr: Expr) -> Interval:
        """The inclusive interval that holds every value of an integer or bool expression."""
        return self._interval(expr, True)

    def of_form(self, form: Linear) -> Interval:
        """The interval of a linear form."""
        return self._of_form(form, True)

    def is_exact(self, form: Linear) -> bool:
        """Whether an expression of this form has the value of the sum over the integers, as all of them are int64."""
        terms, constant = form
        reach = abs(constant)
        for atom, k in terms.items():
            if k == 1 and not constant and len(terms) == 1:
                return True
            low, high = self._deep.get(atom) or self._interval(atom, True)
            reach += abs(k) * max(-low, high)
        if reach <= _INT64[1]:
            return True
        low, high = self._of_form(form, True)
        return _INT64[0] <= low and high <= _INT64[1]

    def is_whole(self, expr: Expr) -> bool:
        """Whether a scalar integer, of any type, has the value of its linear form over the integers.

        The two are equal modulo the width of the type, and so equal where the form stays inside of its range.
        """
        if not dtypes.is_int(expr.dtype) or dtypes.lanes(expr.dtype) > 1 or contains_undef(expr):
            return False
        low, high = self._of_form(shared_form(expr), True)
        own = _type_range(expr.dtype)
        return own[0] <= low and high <= own[1]

    def difference(self, a: Expr, b: Expr) -> Interval:
        """The interval of ``a - b`` of two integers of one type, over the integers."""
        (lo, hi), (low, high) = self.interval(a), self.interval(b)
        apart = lo - high, hi - low
        if not (self.is_whole(a) and self.is_whole(b)):
            return apart
        return _intersect(apart, self._of_form(add(shared_form(a), shared_form(b), -1), True))

    def stays(self, expr: Binary) -> bool:
        """Whether the last operation of a sum, a difference or a product of int64 stays inside of its type."""
        low, high = _arithmetic(expr.op, self.interval(expr.a), self.interval(expr.b))
        if _INT64[0] <= low and high <= _INT64[1]:
            return True
        try:
            forms = [shared_form(part) for part in (expr, expr.a, expr.b)]
        except UndefTerm:
            return False
        return expr not in forms[0][0] and all(map(self.is_exact, forms))

    def _interval(self, expr: Expr, deep: bool) -> Interval:
        """`deep` also looks at known forms; within such a look it is off, or it would go round in circles."""
        memo = self._deep if deep else self._plain
        hit = memo.get(expr)
        if hit is None:
            hit = self._compute(expr, deep)
            memo[expr] = hit
        return hit

    def _compute(self, expr: Expr, deep: bool) -> Interval:
        if isinstance(expr, Const):
            return int(expr.value), int(expr.value)
        if isinstance(expr, Binary) and expr.op in ("+", "-", "*") and dtypes.element(expr.dtype) == dtypes.INDEX:
            try:
                form = shared_form(expr)
            except UndefTerm:
                return _type_range(expr.dtype)
            if expr not in form[0]:
                return self._sum(form, deep)
        natural = self._atom(expr, deep)
        known = self.bounds.get(expr)
        return natural if known is None else _intersect(natural, known)

    def _sum(self, form: Linear, deep: bool) -> Interval:
        """The interval of the value of a sum; of one that may wrap around it is known where conditions compare it."""
        low, high = self._of_form(form, deep)
        if _INT64[0] <= low and high <= _INT64[1]:
            return low, high
        known = self.bounds.get(build(form)) if self.sums else None
        return _INT64 if known is None else known

    def _of_form(self, form: Linear, deep: bool) -> Interval:
        terms, low = form
        high = low
        for atom, k in terms.items():
            lo, hi = self._interval(atom, deep)
            if k < 0:
                lo, hi = hi, lo
            low += k * lo
            high += k * hi
        if deep:
            for known in self.forms:
                low, high = _intersect((low, high), self._through(form, known))
        return low, high

    def _through(self, form: Linear, known: Form) -> Interval:
        """The interval of `form` as a multiple of a known form plus the rest."""
        items, lo, hi = known
        atom, k = items[0]
        factor = form[0].get(atom, 0)
        if not factor or factor % k:
            return -_UNBOUNDED, _UNBOUNDED
        factor //= k
        low, high = (factor * lo, factor * hi) if factor > 0 else (factor * hi, factor * lo)
        rest = self._of_form(add(form, (dict(items), 0), -factor), False)
        return low + rest[0], high + rest[1]

    def _atom(self, expr: Expr, deep: bool) -> Interval:
        if isinstance(expr, Binary):
            return self._binary(expr, deep)
        if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
            a, b = (expr.a, expr.b) if isinstance(expr, Select) else expr.args[1:]
            (low_a, high_a), (low_b, high_b) = self._interval(a, deep), self._interval(b, deep)
            return min(low_a, low_b), max(high_a, high_b)
        if isinstance(expr, Ramp):
            base, stride = self._interval(expr.base, deep), self._interval(expr.stride, deep)
            ends = [s * (expr.lanes - 1) for s in stride]
            return _held((base[0] + min(0, *ends), base[1] + max(0, *ends)), _type_range(expr.dtype))
        if isinstance(expr, Broadcast):
            return self._interval(expr.value, deep)
        if isinstance(expr, LetExpr):
            return self.with_bounds({expr.var: self._interval(expr.value, deep)})._interval(expr.body, deep)
        if isinstance(expr, Cast) and not dtypes.is_float(expr.a.dtype):
            return _held(self._interval(expr.a, deep), _type_range(expr.dtype))
        if isinstance(expr, Cast) and dtypes.is_int(expr.dtype) and dtypes.lanes(expr.dtype) == 1:
            return self._whole_log2(expr, deep) or _type_range(expr.dtype)
        if isinstance(expr, Call) and expr.name in INTEGER_CALLS:
            first, second = (self._interval(arg, deep) for arg in expr.args)
            return integer_calls.interval(expr.name, first, second, _type_range(expr.dtype), dtypes.bits(expr.dtype))
        return _type_range(expr.dtype)

    def _whole_log2(self, expr: Cast, deep: bool) -> Interval | None:
        """The interval of ``cast(int, ceil(log2(cast(float, n))))``, or `floor`, of an `n` from 1 on.

        None where that is not the form, or `n` is so large that a logarithm could be rounded to a whole number.
        """
        match expr.a:
            case Call(name="ceil" | "floor" as rounding, args=(Call(name="log2", args=(of,)),)):
                most = {"float64": 1 << 40, "float32": 1 << 12}.get(of.dtype, 0)
            case _:
                return None
        if isinstance(of, Cast) and dtypes.is_int(of.a.dtype):
            low, high = self._interval(of.a, deep)
        elif isinstance(of, Const) and float(of.value).is_integer():
            low = high = int(of.value)
        else:
            return None
        if not 1 <= low <= high <= most:
            return None
        return (
            ((low - 1).bit_length(), (high - 1).bit_length()) if rounding == "ceil"
            else (low.bit_length() - 1, high.bit_length() - 1)
        )  # fmt: skip

    def _binary(self, expr: Binary, deep: bool) -> Interval:
        own = _type_range(expr.dtype)
        if not dtypes.is_int(expr.a.dtype) or own == (0, 1):
            return own
        return _held(_arithmetic(expr.op, self._interval(expr.a, deep), self._interval(expr.b, deep)), own)

    def with_bounds(self, bounds: Bounds) -> Facts:
        """The facts with intervals of further variables."""
        added = cast("Mapping[Expr, Interval]", bounds)
        return self._derive(tuple(added.items()), lambda: self._with({**self.bounds, **added}))

    def _with(self, bounds: Bounds, forms: tuple[Form, ...] | None = None, sums: bool = False) -> Facts:
        """A copy with other intervals, and other linear forms if they are given."""
        known = self.forms if forms is None else forms
        return Facts(bounds, known, self.impossible, self.strict, self.sums or sums, self.orders)

    def related(self, op: str, a: Expr, b: Expr) -> bool | None:
        """The truth of ``a op b`` of integers, by what conditions told of the order of expressions; None if unknown."""
        if not self.orders:
            return None
        known, wanted = compared(self.orders, a, b), ORDERS[op]
        return True if known & wanted == known else False if not known & wanted else None

    def _ordering(self, cond: Binary) -> Facts:
        """The facts with what a comparison of integers says of the order of its operands."""
        if not dtypes.is_int(cond.a.dtype) or dtypes.lanes(cond.a.dtype) > 1 or contains_undef(cond):
            return self
        by_interval = cond.a.dtype == dtypes.INDEX or isinstance(cond.a, (Var, Const))
        if len(self.orders) >= 2 * _MOST_ORDERS or (by_interval and isinstance(cond.b, Const)):
            return self
        known = compared(self.orders, cond.a, cond.b) & ORDERS[cond.op]
        orders = {**self.orders, (cond.a, cond.b): known, (cond.b, cond.a): mirrored(known)}
        return Facts(self.bounds, self.forms, self.impossible or not known, self.strict, self.sums, orders)

    def looping(self, var: Var, extent: Expr) -> Facts:
        """The facts in the body of a loop."""
        least, most = self.interval(extent)
        return self.with_bounds({var: (0, (most if least == most else min(most, LONGEST)) - 1)})

    def within(self, limit: Extent) -> Interval:
        """The interval of what counts from 0 to below `limit`."""
        return 0, (min(self.interval(limit)[1], LONGEST) if isinstance(limit, Expr) else limit) - 1

    def binding(self, var: Var, value: Expr, limit: Interval | None = None) -> Facts:
        """The facts where `var` has the value of an expression, which is known to lie in `limit`."""
        if not dtypes.is_int(var.dtype):
            return self
        low, high = self.interval(value)
        return self.with_bounds({var: (low, high) if limit is None else (max(low, limit[0]), min(high, limit[1]))})

    def assuming(self, cond: Expr, truth: bool = True, *, memory: bool = False) -> Facts:
        """The facts where `cond` is known to be true, or false; what is not linear is ignored.

        What it says about the contents of memory counts only with `memory`: where nothing
        can have been written since, as inside of one expression.
        """
        return self._derive(
            (cond, truth, memory), lambda: self._assume_all(conjuncts(cond if truth else negate(cond)), memory)
        )

    def _derive(self, key: Any, make: Callable[[], Facts]) -> Facts:
        """Facts that were derived before are given again, with all that was computed from them."""
        known = self._next.get(key)
        if known is None:
            if len(self._next) >= _DERIVED:
                self._next.clear()
            known = self._next[key] = make()
        return known

    def _assume_all(self, conds: Sequence[Expr], memory: bool) -> Facts:
        changed, missed = self, []
        for part in conds:
            if memory or not reads_memory(part):
                before, changed = changed, changed._assume(part)
                missed += [part] if changed is before else []
        if changed is not self:  # which may say that a sum before does not wrap around
            for part in missed:
                changed = changed._assume(part)
        return changed

    def _assume(self, cond: Expr) -> Facts:
        if isinstance(cond, Const):
            return self if cond.value else Facts(self.bounds, self.forms, True, self.strict, self.sums, self.orders)
        if isinstance(cond, Var) or (isinstance(cond, Not) and isinstance(cond.a, Var)):
            var, value = (cond, 1) if isinstance(cond, Var) else (cond.a, 0)
            return self._with({**self.bounds, var: _intersect(self.interval(var), (value, value))})
        if not isinstance(cond, Binary) or cond.op not in COMPARISONS:
            return self
        return self._comparing(cond)._ordering(cond)

    def _comparing(self, cond: Binary) -> Facts:
        """The facts with the intervals that follow from a comparison."""
        is_narrow = cond.a.dtype != dtypes.INDEX
        if is_narrow and not (self.is_whole(cond.a) and self.is_whole(cond.b)):
            return self
        try:
            left, right = shared_form(cond.a), shared_form(cond.b)
        except UndefTerm:
            return self
        terms, constant = add(left, right, -1)
        if not terms:
            return self
        if not is_narrow and not (self.is_exact(left) and self.is_exact(right)):
            return self._assume_value(cond.op, left, right)
        items = ordered(terms, signed=False)
        factor = gcd(*terms.values()) * (1 if items[0][1] > 0 else -1)
        form = divide((terms, 0), factor)[0]
        return self._restrict(form, self._allowed(cond.op, form, factor, -constant))

    def _assume_value(self, op: str, left: Linear, right: Linear) -> Facts:
        """The facts where a sum that may wrap around is compared: ``0 <= x + 1`` leaves out the last ``x``."""
        if self.is_exact(left):
            op, left, right = MIRRORED.get(op, op), right, left
        if op == "!=" or not self.is_exact(right):
            return self
        low, high = self._allowed_value(op, self._sum(left, True), self.of_form(right))
        facts = self._with({**self.bounds, build(left): (low, high)}, sums=True)
        for atom, k in left[0].items():
            rest = self.of_form(add(left, ({atom: k}, 0), -1))
            span = (low - rest[1], high - rest[0]) if k == 1 else (rest[0] - high, rest[1] - low)
            if abs(k) == 1 and _INT64[0] <= span[0] and span[1] <= _INT64[1]:
                facts = facts._restrict({atom: 1}, _intersect(self.interval(atom), span))
        return facts

    @staticmethod
    def _allowed_value(op: str, own: Interval, other: Interval) -> Interval:
        """The interval of a value in `own` given that it is ``op`` one in `other`."""
        if op in ("<", "<="):
            return own[0], min(own[1], other[1] - (op == "<"))
        if op in (">", ">="):
            return max(own[0], other[0] + (op == ">")), own[1]
        return _intersect(own, other)

    def _allowed(self, op: str, form: dict[Expr, int], factor: int, right: int) -> Interval:
        """The interval of `form` given that ``factor * form  op  right``."""
        lo, hi = self.of_form((form, 0))
        if op == "!=":
            value = right // factor
            return (lo, hi) if right % factor else (lo + (lo == value), hi - (hi == value))
        low = right + (op == ">") if op in (">", ">=", "==") else None
        high = right - (op == "<") if op in ("<", "<=", "==") else None
        if factor < 0:
            low, high, factor = _minus(high), _minus(low), -factor
        lo = lo if low is None else max(lo, -(-low // factor))
        hi = hi if high is None else min(hi, high // factor)
        return lo, hi

    def _restrict(self, form: dict[Expr, int], allowed: Interval) -> Facts:
        """The facts with `form` in the interval, and what follows for each of its atoms."""
        bounds = dict(self.bounds)
        if len(form) == 1:
            bounds[next(iter(form))] = allowed
            return self._with(bounds)
        items = tuple(ordered(form, signed=False))
        forms = (*(f for f in self.forms if f[0] != items), (items, *allowed))
        for atom, k in items:
            rest = self.of_form(({a: c for a, c in items if a is not atom}, 0))
            own = self.interval(atom)
            low, high = allowed[0] - rest[1], allowed[1] - rest[0]
            if k < 0:
                low, high = -high, -low
            new = _intersect(own, (-(-low // abs(k)), high // abs(k)))
            if new != own:
                bounds[atom] = new
        return self._with(bounds, forms)


_SHARED_LIMIT = 4096
_shared: list[Facts] = []
cleared_with(_shared.clear)


def nothing_known(strict: bool = False) -> Facts:
    """The facts outside of every loop, shared, so that passes one after another reuse what was derived.

    `strict` ones assume nothing of floating-point data (see `simplify`).

    They are renewed from time to time, which bounds the memory of a long-lived process.
    """
    if not _shared or Facts.created > _SHARED_LIMIT:
        Facts.created = 0
        _shared[:] = [Facts({}), Facts({}, strict=True)]
    return _shared[strict]


def negate(cond: Expr) -> Expr:
    """``not cond`` with the negation moved inwards; comparisons of floats keep it outside (NaN)."""
    if isinstance(cond, Const):
        return const(not cond.value)
    if isinstance(cond, Not):
        return cond.a
    if isinstance(cond, Binary):
        if cond.op in ("and", "or"):
            return Binary("or" if cond.op == "and" else "and", negate(cond.a), negate(cond.b))
        if cond.op in NEGATED and not dtypes.is_float(cond.a.dtype) and not is_undef_atom(cond):
            return Binary(NEGATED[cond.op], cond.a, cond.b)
    return Not(cond)


def is_undef_atom(expr: Expr) -> bool:
    """``x == undef``: a statement about contents that nothing may rewrite."""
    return isinstance(expr, Binary) and (isinstance(expr.a, Undef) or isinstance(expr.b, Undef))


def _minus(value: int | None) -> int | None:
    return None if value is None else -value


def _intersect(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _held(span: Interval, own: Interval) -> Interval:
    """The interval of what a type with the range `own` holds of numbers in `span`, which wrap around beyond it."""
    return span if own[0] <= span[0] and span[1] <= own[1] else own


def _type_range(dtype: str) -> Interval:
    """Every value of an integer type; a bool is 0 or 1, a float has no interval."""
    element = dtypes.element(dtype)
    if element == "bool":
        return 0, 1
    return dtypes.int_range(element) if dtypes.is_int(element) else (-_UNBOUNDED, _UNBOUNDED)


def _arithmetic(op: str, a: Interval, b: Interval) -> Interval:
    """The interval of ``a op b`` over the integers, without wrapping around."""
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "*":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    size = max(abs(a[0]), abs(a[1]))
    if op == "//":
        if min(b) <= 0:  # the second bound too: where facts contradict each other the interval is empty
            return -size, size
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    if op == "%" and b[0] > 0:
        if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    divisor = max(abs(b[0]), abs(b[1]))
    return -divisor, divisor
