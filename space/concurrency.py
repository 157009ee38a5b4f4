"""May the iterations of a loop run at the same time?

Two iterations conflict when one writes an element that the other reads or
writes.  They do not if some dimension of every access *separates* them: its
index is ``c*x + rest`` with the same ``c`` and outer terms in all accesses, where
``x`` is determined by the loop variable and ``rest``, over the inner loops and
all accesses together, spans less than ``|c|``.  A fused loop variable counts as
separated when its quotients and remainders are, and together determine it.

Where that quick test says no, the exact set of conflicting pairs decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..ir.affine.sets import Domain, NotAffine, Unknown, find_point
from ..ir.arith.linear import linear_form
from ..ir.expr import Binary, Buffer, Const, Expr, Var, binary, conjuncts, substitute
from ..ir.stmt import Block, For, PrimFunc
from .errors import ScheduleError
from .regions import Access, accesses_below
from .tree import blocks_below, extent_of, free_variables, loops_above


def check_concurrent(func: PrimFunc, loop: For, *, private: bool = True) -> None:
    """Raise ScheduleError unless the iterations of `loop` are independent.

    With `private`, each iteration may have a copy of its own of a buffer that is used
    only inside; lanes of vectors have none.  Harmless writes count like any other:
    adding zero to an element that another iteration owns loses updates.
    """
    touched = accesses_below(loop)
    written = {a.buffer for a in touched if a.is_write}
    for buffer in sorted(written, key=lambda b: b.name):
        own = [a for a in touched if a.buffer == buffer]
        if private and _is_private(func, buffer, len(own)):
            continue
        if not separated(loop, own) and not _never_meet(func, loop, own):
            raise ScheduleError(
                "(1) two iterations of loop `{loop}` may touch the same element of `{buffer}`: {indices}",
                hint="parallelise a loop over spatial iterators, or decompose the reduction first",
                loop=loop.var.name,
                buffer=buffer.name,
                indices=_Indices(own),
            )
    _check_iterators(loop)


class _Indices:
    """Index texts, written only when somebody reads the error."""

    def __init__(self, accesses: Sequence[Access]) -> None:
        self.accesses = accesses

    def __str__(self) -> str:
        from ..ir.script.printer import expr_text

        texts = dict.fromkeys("[" + ", ".join(expr_text(i) for i in a.indices) + "]" for a in self.accesses)
        return " and ".join(texts)

    def __format__(self, spec: str) -> str:
        return str(self)


def _check_iterators(loop: For) -> None:
    for block in blocks_below(loop):
        for item in block.iters:
            if item.kind != "spatial" and loop.var in free_variables(item.binding):
                raise ScheduleError(
                    "(1) loop `{loop}` is part of the {kind} iterator `{iter}` of block `{block}`",
                    hint="use rfactor to run a reduction concurrently",
                    loop=loop.var.name,
                    kind=item.kind,
                    iter=item.var.name,
                    block=block.name,
                )


def _is_private(func: PrimFunc, buffer: Buffer, below: int) -> bool:
    return buffer in allocated(func.body) and access_count(func.body, buffer) == below


@lru_cache(maxsize=256)
def allocated(body: Block) -> frozenset[Buffer]:
    """Buffers that the blocks of a function allocate."""
    from ..ir.stmt import blocks

    return frozenset(b for block in blocks(body) for b in block.allocs)


@lru_cache(maxsize=512)
def access_count(body: Block, buffer: Buffer) -> int:
    """How many accesses of `buffer` the body has."""
    return len(accesses_below(body, buffer))


def _never_meet(func: PrimFunc, loop: For, accesses: Sequence[Access]) -> bool:
    """Whether no element is written in one iteration and touched in another, decided on sets; unknown is no."""
    outer = tuple((item.var, extent_of(item)) for item in loops_above(func, loop))
    try:
        for write in (a for a in dict.fromkeys(accesses) if a.is_write):
            for other in dict.fromkeys(accesses):
                if find_point(_pairs(loop, outer, write, other)) is not None:
                    return False
    except (NotAffine, Unknown, ScheduleError):
        return False
    return True


def _pairs(loop: For, outer: tuple[tuple[Var, int], ...], first: Access, second: Access) -> Domain:
    """Pairs of instances, in different iterations of `loop`, that touch one element; outer loops are common."""
    dims = list(outer)
    conditions: list[Expr] = []
    indices: list[tuple[Expr, ...]] = []
    marks: list[Var] = []
    for side, access in enumerate((first, second)):
        inner = [loop, *(item for item in access.loops if item.var != loop.var)]
        renamed: dict[Var, Expr] = {item.var: Var(f"{item.var.name}.{side}") for item in inner}
        for item in inner:
            var = renamed[item.var]
            assert isinstance(var, Var)
            dims.append((var, extent_of(item)))
        if access.block is not None:
            conditions.extend(substitute(c, renamed) for c in conjuncts(access.block.predicate))
        indices.append(tuple(substitute(i, renamed) for i in access.indices))
        mark = renamed[loop.var]
        assert isinstance(mark, Var)
        marks.append(mark)
    conditions.extend(binary("==", a, b) for a, b in zip(*indices, strict=True))
    conditions.append(binary("!=", *marks))
    return Domain(tuple(dims), tuple(conditions))


def separated(loop: For, accesses: Sequence[Access]) -> bool:
    """Whether some set of dimensions gives every iteration of `loop` elements of its own."""
    rank = len(accesses[0].indices)
    found: list[Expr] = []
    for dim in range(rank):
        atom = _separating_atom(loop.var, [a.indices[dim] for a in accesses], accesses)
        if atom is not None:
            found.append(atom)
    return determines(loop.var, extent_of(loop), found)


def _separating_atom(var: Var, indices: Sequence[Expr], accesses: Sequence[Access]) -> Expr | None:
    """The atom over `var` that every index of one dimension separates."""
    common: tuple[Expr, int, frozenset[tuple[Expr, int]]] | None = None
    low = high = 0
    for position, (index, access) in enumerate(zip(indices, accesses, strict=True)):
        terms, constant = linear_form(index)
        inner = {loop.var: extent_of(loop) for loop in access.loops if loop.var != var}
        own = [(a, c) for a, c in terms.items() if var in free_variables(a)]
        if len(own) != 1 or free_variables(own[0][0]) != {var}:
            return None
        outer = frozenset((a, c) for a, c in terms.items() if free_variables(a).isdisjoint(inner) and (a, c) not in own)
        span = _span([(a, c) for a, c in terms.items() if (a, c) not in own and (a, c) not in outer], inner)
        if span is None or (common is not None and common != (*own[0], outer)):
            return None
        common = (*own[0], outer)
        first, last = span[0] + constant, span[1] + constant
        low, high = (first, last) if position == 0 else (min(low, first), max(high, last))
    if common is None or high - low >= abs(common[1]):
        return None
    return common[0]


def _span(terms: Sequence[tuple[Expr, int]], inner: dict[Var, int]) -> tuple[int, int] | None:
    """Range of a sum over inner loops; None for an atom of unknown range."""
    low = high = 0
    for atom, coefficient in terms:
        if isinstance(atom, Var):
            top = inner[atom] - 1
        elif isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
            top = int(atom.b.value) - 1
        elif isinstance(atom, Binary) and atom.op == "//" and isinstance(atom.b, Const) and isinstance(atom.a, Var):
            top = (inner[atom.a] - 1) // int(atom.b.value)
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
