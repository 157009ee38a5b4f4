"""Floor division and modulo of linear forms by positive constants.

Every rule is an identity over all integers; where a side condition says "lies in
[q*g, q*g + g)", the interval of the facts decides it.

The forms are sums over the integers here.  What is written as the operand of ``//`` or ``%``, or
read out of one, has to be exact (`Facts.is_exact`): it is computed with wrap-around.
"""

from __future__ import annotations

from math import gcd

from ...errors import InternalError
from .. import dtypes
from ..expr import Binary, Const, Expr, as_int
from .intervals import Facts, Interval
from .laws import law
from .linear import Linear, add, build, divide, shared_form

_LEAST, _LARGEST = dtypes.int_range(dtypes.INDEX)


class MayWrap(InternalError, ValueError):
    """An operand in the form that the rules give it may leave 64 bits: what is divided or compared stays as it is."""


class Quotients:
    """Division rules under fixed `facts`.  Forms that come in are simplified already, and exact.  Raise MayWrap."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._div: dict[tuple[Expr, int], Linear | None] = {}

    @law("""
        (k * x + y) // k  -> x + y // k                 if k > 0
    """)
    def div(self, form: Linear, c: int) -> Linear:
        """``form // c``: ``(c*Q + R) // c = Q + R // c``."""
        if c == 1:
            return form
        whole, rest = _split(form, c)
        return self.combine(add(whole, self._div_rest(rest, c)))

    @law("""
        (k * x + y) % k   -> y % k                      if k > 0
        (x % k) % m       -> x % m                      if k > 0 and m > 0 and k % m == 0
        (m * (x % k) + y) % (m * k) -> (m * x + y) % (m * k)   if k > 0 and m > 0
    """)
    def mod(self, form: Linear, c: int) -> Linear:
        """``form % c``: ``(c*Q + R) % c = R % c``, also through ``k*(x % m)`` when c divides k*m."""
        if c == 1:
            return {}, 0
        rest = _split(form, c)[1]
        opened = self._open_remainders(rest, c)
        if opened is not None:
            return self.mod(self.combine(opened), c)
        return self._mod_rest(rest, c)

    def _open_remainders(self, rest: Linear, c: int) -> Linear | None:
        """``k*(x % m)`` replaced by ``k*x`` where c divides k*m, or None if there is none."""
        opened = None
        for atom, k in rest[0].items():
            m = _divisor(atom)
            if m and isinstance(atom, Binary) and atom.op == "%" and k * m % c == 0:
                inner = shared_form(atom.a)
                if self.facts.is_exact(inner):
                    opened = add(add(opened or rest, ({atom: 1}, 0), -k), inner, k)
        return opened

    @law("""
        x // k            -> m                          if k > 0 and k * m <= x and x < k * m + k
    """)
    def _div_rest(self, rest: Linear, c: int) -> Linear:
        lo, hi = self.facts.of_form(rest)
        if lo // c == hi // c:
            return {}, lo // c
        grouped = self._group(rest, c)
        if grouped is not None:
            g, inner, _ = grouped
            return self.div(inner, c // g)
        return self._div_atom(rest, c, (lo, hi))

    @law("""
        (x // k + n) // m -> (x + k * n) // (k * m)     if k > 0 and m > 0
        (x % k) // m      -> x // m % (k // m)          if k > 0 and m > 0 and k % m == 0
    """)
    def _div_atom(self, rest: Linear, c: int, span: Interval) -> Linear:
        """``(x//d + k) // c -> (x + k*d) // (c*d)`` and ``(x % m) // c -> x // c % (m//c)``."""
        atom = _single(rest[0])
        divisor = _divisor(atom)
        if isinstance(atom, Binary) and divisor:
            inner = shared_form(atom.a)
            if atom.op == "//" and c * divisor <= _LARGEST and self.facts.is_exact(inner):
                return self.div(add(inner, ({}, rest[1] * divisor)), c * divisor)
            if atom.op == "%" and rest[1] == 0 and divisor % c == 0 and self.facts.is_exact(inner):
                return self.mod(self.div(inner, c), divisor // c)
        return self._atom("//", rest, c, span)

    @law("""
        x % k             -> x - k * m                  if k > 0 and k * m <= x and x < k * m + k
    """)
    def _mod_rest(self, rest: Linear, c: int) -> Linear:
        lo, hi = self.facts.of_form(rest)
        if lo // c == hi // c:
            return add(rest, ({}, lo // c * c), -1)
        grouped = self._group(rest, c)
        if grouped is not None:
            g, inner, left = grouped
            return self.combine(add(left, self.mod(inner, c // g), g))
        return self._atom("%", rest, c, (lo, hi))

    def _atom(self, op: str, rest: Linear, c: int, span: Interval) -> Linear:
        """A quotient or remainder of what lies in `span` that stays; its value if a condition around has fixed it."""
        if span[0] < _LEAST or span[1] > _LARGEST or c > _LARGEST:
            raise MayWrap
        atom = Binary(op, build(rest), Const(c))
        known = self.facts.bounds.get(atom)
        return ({}, known[0]) if known is not None and known[0] == known[1] else ({atom: 1}, 0)

    @law("""
        (m * x + y) // (m * k) -> x // k                if k > 0 and m > 0 and 0 <= y and y < m
        (m * x + y) % (m * k)  -> m * (x % k) + y       if k > 0 and m > 0 and 0 <= y and y < m
    """)
    def _group(self, rest: Linear, c: int) -> tuple[int, Linear, Linear] | None:
        """``rest = g*A + S`` with g dividing c and S in [q*g, q*g + g): (g, A + q, S - q*g).

        Then ``rest // c = (A + q) // (c/g)`` and ``rest % c = g*((A + q) % (c/g)) + (S - q*g)``.
        """
        terms, constant = rest
        for g in sorted({gcd(k, c) for k in terms.values()}, reverse=True):
            if g == 1:
                return None
            low = constant % g
            left = ({a: k for a, k in terms.items() if k % g}, low)
            lo, hi = self.facts.of_form(left)
            if lo // g == hi // g:
                q = lo // g
                inner = divide(({a: k for a, k in terms.items() if k % g == 0}, constant - low), g)
                return g, add(inner, ({}, q)), add(left, ({}, q * g), -1)
        return None

    # Sums of quotients and remainders

    def combine(self, form: Linear) -> Linear:
        """``m*(y // m) + y % m -> y`` and ``y - m*(y // m) -> y % m``, for every such pair in the sum."""
        if not any(_divisor(atom) for atom in form[0]):
            return form
        while True:
            new = self._combine_once(form)
            if new is None:
                return form
            form = new

    def _combine_once(self, form: Linear) -> Linear | None:
        for atom, k in form[0].items():
            m = _divisor(atom)
            if not m or not isinstance(atom, Binary):
                continue
            new = self._join_remainder(form, atom, k, m) if atom.op == "%" else self._join_quotient(form, atom, k, m)
            if new is not None:
                return new
        return None

    @law("""
        k * (x // k) + x % k             -> x            if k > 0
        m * k * (x // k) + m * (x % k)   -> m * x        if k > 0
        k * (x // k % m) + x % k         -> x % (k * m)  if k > 0 and m > 0
    """)
    def _join_remainder(self, form: Linear, atom: Binary, k: int, m: int) -> Linear | None:
        inner = shared_form(atom.a)
        quotient = self._quotient_of(atom.a, m)
        if quotient is None:
            return None
        if quotient[0] and _contains(form[0], quotient[0], k * m):
            # k*m*q + k*(y % m) = k*y + k*m*(q - y//m), with q equal to y//m up to its constant.
            without = add(add(form, ({atom: 1}, 0), -k), (quotient[0], quotient[1]), -k * m)
            return add(without, inner, k)
        whole = build(quotient)
        for other, factor in form[0].items():
            n = _divisor(other)
            if n and isinstance(other, Binary) and other.op == "%" and factor == k * m and other.a == whole:
                try:
                    joined = self.mod(inner, m * n)
                except MayWrap:
                    return None
                return add(add(add(form, ({atom: 1}, 0), -k), ({other: 1}, 0), -factor), joined, k)
        return None

    def _quotient_of(self, expr: Expr, m: int) -> Linear | None:
        """``expr // m``; None where that is not known to be exact."""
        if (expr, m) not in self._div:
            form = shared_form(expr)
            try:
                self._div[expr, m] = self.div(form, m) if self.facts.is_exact(form) else None
            except MayWrap:
                self._div[expr, m] = None
        return self._div[expr, m]

    @law("""
        x - k * (x // k)          -> x % k                   if k > 0
        m * x - m * k * (x // k)  -> m * (x % k)             if k > 0
    """)
    def _join_quotient(self, form: Linear, atom: Binary, k: int, m: int) -> Linear | None:
        """``b*y - b*m*(y // m) -> b*(y % m)``."""
        if k % m:
            return None
        b, inner = -k // m, shared_form(atom.a)
        if not _contains(form[0], inner[0], b) or not self.facts.is_exact(inner):
            return None
        without = add(add(form, ({atom: 1}, 0), -k), inner, -b)
        return add(without, ({Binary("%", atom.a, Const(m)): 1}, 0), b)

    # Comparisons

    @law("""
        k * x < m             -> x < (m - 1) // k + 1    if k > 0
        k * x + y < m * k     -> x < m                   if k > 0 and 0 <= y and y < k
        k * x == m * k        -> x == m                  if k > 0
        k * x == m            -> False                   if k > 0 and m % k != 0
        k * x != m            -> True                    if k > 0 and m % k != 0
    """)
    def reduce_comparison(self, op: str, terms: dict[Expr, int], right: int) -> tuple[str, dict[Expr, int], int] | bool:
        """``terms op right`` (op is ``<=``, ``==`` or ``!=``) with the common factor and small terms divided out.

        ``g*A + S <= right`` is ``A <= q`` when ``(right - S) // g = q`` for every value of S.
        """
        for g in sorted({abs(k) for k in terms.values()}, reverse=True):
            if g == 1:
                break
            small = {a: k for a, k in terms.items() if k % g}
            large = {a: k // g for a, k in terms.items() if k % g == 0}
            lo, hi = self.facts.of_form((small, 0))
            if op == "<=" and (right - lo) // g == (right - hi) // g:
                return self.reduce_comparison(op, large, (right - lo) // g)
            if op != "<=" and not small:
                return (op == "!=") if right % g else self.reduce_comparison(op, large, right // g)
        common = gcd(*terms.values())
        if common > 1:
            if op != "<=" and right % common:
                return op == "!="
            terms, right = {a: k // common for a, k in terms.items()}, right // common
        if len(terms) == 1:
            return self._rotate(op, terms, right)
        return op, terms, right

    @law("""
        (x + n) % k == m  -> x % k == (m - n) % k        if k > 0 and 0 <= m and m < k
        (x + n) % k < n   -> x % k >= k - n              if n > 0 and n < k
        (x + n) % k >= n  -> x % k < k - n               if n > 0 and n < k
        x % k < 1         -> x % k == 0                  if k > 1
        x % k >= 1        -> x % k != 0                  if k > 1
        x % k >= k - 1    -> x % k == k - 1              if k > 1
        x % k < k - 1     -> x % k != k - 1              if k > 1
        x % 2 != n        -> x % 2 == 1 - n              if n >= 0 and n < 2
    """)
    def _rotate(self, op: str, terms: dict[Expr, int], right: int) -> tuple[str, dict[Expr, int], int]:
        """A remainder that is compared loses the offset inside of it, or is compared for one residue."""
        ((atom, sign),) = terms.items()
        m = _divisor(atom)
        if not m or not isinstance(atom, Binary) or atom.op != "%" or m < 2 or abs(sign) != 1:
            return op, terms, right
        ends = {(1, 0): ("==", 0), (1, m - 2): ("!=", m - 1), (-1, -1): ("!=", 0), (-1, 1 - m): ("==", m - 1)}
        if op == "<=" and (sign, right) in ends:
            (op, right), sign = ends[sign, right], 1
        if op == "!=" and m == 2:
            op, right, sign = "==", 1 - right * sign, 1
        inside = shared_form(atom.a)
        offset = inside[1] % m
        if not offset or not self.facts.is_exact(inside):
            return op, {atom: sign}, right
        if op != "<=":
            sign, right = 1, (right * sign - offset) % m
        elif sign > 0 and right + 1 == offset:
            sign, right = -1, offset - m
        elif sign < 0 and -right == offset:
            sign, right = 1, m - offset - 1
        else:
            return op, {atom: sign}, right
        inner = add(inside, ({}, offset), -1)
        rest, constant = self.mod(inner, m)
        return op, {a: k * sign for a, k in rest.items()}, right - sign * constant


def _split(form: Linear, c: int) -> tuple[Linear, Linear]:
    """``form = c*Q + R``: coefficients are cut towards zero, the constant downwards."""
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, k in form[0].items():
        q = k // c if k >= 0 else -(-k // c)
        if q:
            whole[atom] = q
        if k - q * c:
            rest[atom] = k - q * c
    return (whole, form[1] // c), (rest, form[1] % c)


def _divisor(atom: Expr | None) -> int:
    """The constant c > 0 of ``x // c`` or ``x % c``, or 0."""
    if isinstance(atom, Binary) and atom.op in ("//", "%") and isinstance(atom.b, Const):
        return max(0, as_int(atom.b))
    return 0


def _single(terms: dict[Expr, int]) -> Expr | None:
    """The atom of a form that is just one atom."""
    if len(terms) == 1:
        atom, k = next(iter(terms.items()))
        return atom if k == 1 else None
    return None


def _contains(terms: dict[Expr, int], part: dict[Expr, int], factor: int) -> bool:
    """Whether every term of ``factor * part`` is there with just that coefficient."""
    return all(terms.get(atom) == factor * k for atom, k in part.items())
