"""May the iterations of a loop run at the same time?

Two iterations conflict when one writes an element that the other reads or writes; all
writes count, the harmless ones included: adding zero to an element that another
iteration owns loses updates.  There is no conflict if some dimension of every access
*separates* them: its index is ``c*x + rest`` with the same ``c`` and outer terms in all
accesses, where ``x`` is determined by the loop variable and ``rest``, over the inner
loops and all accesses together, spans less than ``|c|``.  A fused loop variable counts as
separated when its quotients and remainders are, and together determine it.

Where that quick test says no, the exact set of conflicting pairs decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..affine.guard import Unknown
from ..arith.linear import linear_form, variables_of
from ..expr import Binary, Buffer, Const, Expr, Var
from ..stmt import For
from .accesses import Access
from .contents import Reading, held
from .dependence import Clash, clashes
from .instances import Program, Statement

CONCURRENT = ("parallel", "vectorized", "thread_binding")
Touch = tuple[Statement, Access]


@dataclass(frozen=True)
class Conflict:
    """Two iterations of a loop that may touch one element, with an example where isl found one."""

    loop: For
    buffer: Buffer
    accesses: tuple[Access, ...]
    clash: Clash | None

    def __format__(self, spec: str) -> str:
        return str(self)

    def __str__(self) -> str:
        from ..script.printer import expr_text

        texts = dict.fromkeys("[" + ", ".join(expr_text(i) for i in a.indices) + "]" for a in self.accesses)
        where = ""
        if self.clash is not None and self.clash.exact and self.clash.example is not None:
            one, other = self.clash.example
            pair = (", ".join(f"{k}={v}" for k, v in p.items()) for p in (one, other))
            where = ", for example at " + " and at ".join(pair)
        return (
            f"two iterations of loop `{self.loop.var.name}` may touch the same element of `{self.buffer.name}`: "
            f"{' and '.join(texts)}{where}"
        )


def conflict(program: Program, loop: For, *, private: bool = True) -> Conflict | None:
    """Why the iterations of `loop` may not run at the same time; None if they may.

    With `private`, each iteration may have a copy of its own of a buffer that is used only
    inside and read only where the same iteration wrote; lanes of vectors have none.
    """
    touched: dict[Buffer, list[Touch]] = {}
    for statement in program.below(loop):
        for access in statement.accesses:
            touched.setdefault(access.buffer, []).append((statement, access))
    for buffer in sorted(touched, key=lambda b: b.name):
        own = touched[buffer]
        if not any(a.is_write for _, a in own) or any(loop.var in a.owners for _, a in own):
            continue
        if private and _is_private(program, buffer, own, loop):
            continue
        if _separated(loop, own):
            continue
        for found in _meetings(program, loop, own):
            return Conflict(loop, buffer, tuple(a for _, a in own), found)
    return None


def _is_private(program: Program, buffer: Buffer, own: Sequence[Touch], loop: For) -> bool:
    """Whether the buffer is allocated, used only below the loop, and read only where the iteration wrote."""
    if any(b.name == buffer.name for b in program.func.buffers):
        return False
    if len({s.number for s, _ in own}) != len(program.touching(buffer)):
        return False
    return all(_written_here(program, statement, access, loop) for statement, access in own if not access.is_write)


def _written_here(program: Program, statement: Statement, access: Access, loop: For) -> bool:
    """Whether what is read has been written in the same iteration of the loop."""
    read = Reading(statement, access, statement.domain)
    try:
        return held(program, read, within=loop).missing.is_empty()
    except Unknown:
        return False


def _meetings(program: Program, loop: For, own: Sequence[Touch]) -> Iterator[Clash]:
    """Pairs of instances in different iterations of the loop, of one iteration of the loops outside."""
    statements = list(dict.fromkeys(s for s, _ in own))
    buffer, loops = own[0][1].buffer, own[0][0].loops
    outer = [item.var for item in loops[: [id(x) for x in loops].index(id(loop))]]
    for k, one in enumerate(statements):
        for other in statements[k:]:
            for order in ("<",) if one is other else ("<", ">"):
                yield from clashes(one, other, (*program.parameters, *outer), [(loop.var, order, loop.var)], buffer)


def _separated(loop: For, own: Sequence[Touch]) -> bool:
    """Whether some set of dimensions gives every iteration of `loop` elements of its own."""
    extent = loop.extent.value if isinstance(loop.extent, Const) else None
    if extent is None or any(a.whole for _, a in own):
        return False
    found: list[Expr] = []
    for dim in range(len(own[0][1].indices)):
        atom = _separating_atom(loop, [a.indices[dim] for _, a in own], [s for s, _ in own])
        if atom is not None:
            found.append(atom)
    return determines(loop.var, int(extent), found)


def _separating_atom(loop: For, indices: Sequence[Expr], statements: Sequence[Statement]) -> Expr | None:
    """The atom over the loop variable that every index of one dimension separates."""
    var = loop.var
    common: tuple[Expr, int, frozenset[tuple[Expr, int]]] | None = None
    low = high = 0
    for position, (index, statement) in enumerate(zip(indices, statements, strict=True)):
        terms, constant = linear_form(index)
        inner = _inner(statement, loop)
        own = [(a, c) for a, c in terms.items() if var in variables_of(a)]
        if len(own) != 1 or variables_of(own[0][0]) != {var}:
            return None
        outer = frozenset((a, c) for a, c in terms.items() if variables_of(a).isdisjoint(inner) and (a, c) not in own)
        span = _span([(a, c) for a, c in terms.items() if (a, c) not in own and (a, c) not in outer], inner)
        if span is None or (common is not None and common != (*own[0], outer)):
            return None
        common = (*own[0], outer)
        first, last = span[0] + constant, span[1] + constant
        low, high = (first, last) if position == 0 else (min(low, first), max(high, last))
    if common is None or high - low >= abs(common[1]):
        return None
    return common[0]


def _inner(statement: Statement, loop: For) -> dict[Var, int | None]:
    """The extents of the dimensions below the loop; what is read from memory is not among them."""
    names = statement.variables
    below = names[names.index(loop.var) + 1 :]
    extents = dict(statement.dims)
    return {v: e if isinstance(e, int) else None for v, e in ((v, extents[v]) for v in below)}


def _span(terms: Sequence[tuple[Expr, int]], inner: dict[Var, int | None]) -> tuple[int, int] | None:
    """Range of a sum over inner loops; None for an atom of unknown range."""
    low = high = 0
    for atom, coefficient in terms:
        extent = inner.get(atom) if isinstance(atom, Var) else None
        if isinstance(atom, Var):
            if extent is None:
                return None
            top = extent - 1
        elif isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
            top = int(atom.b.value) - 1
        elif isinstance(atom, Binary) and atom.op == "//" and isinstance(atom.b, Const) and isinstance(atom.a, Var):
            size = inner.get(atom.a)
            if size is None:
                return None
            top = (size - 1) // int(atom.b.value)
        else:
            return None
        ends = sorted((0, coefficient * top))
        low, high = low + ends[0], high + ends[1]
    return low, high


def determines(var: Var, extent: int, atoms: Sequence[Expr]) -> bool:
    """Whether the values of `atoms`, each ``var``, ``var // d`` or ``var // d % m``, give ``var`` back.

    With divisors ``d1 < d2 < ...`` they do if ``d1 = 1``, each ``d_{k+1} = d_k * m_k``, and the last has no
    modulus or one that reaches the extent.
    """
    if extent == 1 or var in atoms:
        return True
    known = [piece for piece in (_piece(var, atom) for atom in atoms) if piece is not None]
    pieces = sorted(known, key=lambda p: (p[0], p[1] or extent * p[0]))
    step = 1
    for divisor, modulus in pieces:
        if divisor != step:
            return False
        if modulus is None or divisor * modulus >= extent:
            return True
        step = divisor * modulus
    return False


def _piece(var: Var, atom: Expr) -> tuple[int, int | None] | None:
    """``var // d % m`` as ``(d, m)``; the modulus may be missing."""
    if atom == var:
        return 1, None
    if not (isinstance(atom, Binary) and isinstance(atom.b, Const)):
        return None
    number = int(atom.b.value)
    if atom.op == "//":
        inner = _piece(var, atom.a)
        return None if inner is None or inner[1] is not None else (inner[0] * number, None)
    if atom.op == "%":
        inner = _piece(var, atom.a)
        return None if inner is None or inner[1] is not None else (inner[0], number)
    return None
