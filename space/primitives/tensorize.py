"""tensorize: an intrinsic in the place of the block that its description matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from ...ir import dtypes
from ...ir.affine.sets import Domain, NotAffine, Unknown, find_point
from ...ir.arith.simplify import simplify
from ...ir.dataflow.order import COMMUTATIVE
from ...ir.expr import TRUE, Binary, Broadcast, Buffer, Expr, Load, Ramp, Var, as_expr, as_index, substitute, variables
from ...ir.node import Node, transform, walk
from ...ir.stmt import (
    Block,
    For,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    memories_read,
    memories_written,
    names,
    written_buffers,
)
from ..errors import ScheduleError
from ..handles import find_block_or_loop
from ..primitive import Result, primitive
from ..tensor_intrinsics import TensorIntrin, nest_of_description
from ..tree import extent_of, find_block, with_stmt
from .blockize import blockize


@primitive
def tensorize(func: PrimFunc, block_or_loop: str, tensor_intrin: str) -> Result:
    """``block: desc(A[o + i], B[p + i], ...)`` -> ``block: impl(A[o + i], B[p + i], ...)``.

    A loop becomes a block first (`blockize`).  The parameters of the intrinsic become parts of
    the program's buffers, at the offsets at which the block accesses them.  Conditions: (1) the
    block is loops around one block without init and conditions; (2) these are, loops of one
    iteration apart, as many and as long as those of the description; (3) the statement is the
    description's, up to names and the order of commutative operands, with buffers of the same
    type and scope; (4) each buffer is accessed at the description's indices plus offsets that
    do not change inside; (5) a part that is written overlaps no part of another parameter,
    or both are the same part, accessed at each iteration's own element, and the implementation
    is one store.  Raises ScheduleError for an intrinsic that is not known as well.
    Source: TensorIR (Feng et al., ASPLOS 2023).
    """
    intrinsic = TensorIntrin.get(tensor_intrin)
    if isinstance(find_block_or_loop(func, block_or_loop), For):
        func, block_or_loop = blockize(func, block_or_loop)
    outer = find_block(func, block_or_loop)
    parts = _match(outer, intrinsic)
    _check_apart(outer, intrinsic, parts)
    body, allocs = _implementation(func, intrinsic, parts)
    done = replace(outer, body=body, allocs=(*outer.allocs, *allocs))
    return with_stmt(func, outer, done), None


@dataclass(frozen=True)
class _Part:
    """``A[lead..., offset + i]``: what a parameter of the intrinsic is a part of."""

    buffer: Buffer
    lead: tuple[Expr, ...]
    offsets: tuple[Expr, ...]

    def at(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices of the whole buffer for those of the parameter; vectors stay vectors."""
        return (*self.lead, *(_moved(offset, i) for offset, i in zip(self.offsets, indices, strict=True)))


def _moved(offset: Expr, index: Expr) -> Expr:
    if isinstance(index, Ramp):
        return Ramp(_moved(offset, index.base), index.stride, index.lanes)
    lanes = dtypes.lanes(index.dtype)
    return simplify(offset + index) if lanes == 1 else Broadcast(offset, lanes) + index


@dataclass
class _Matcher:
    """Compares a block's statement with that of an intrinsic's description, indices being of loop variables in both."""

    inside: frozenset[Var]
    changing: frozenset[str]
    renamed: Mapping[Var, Expr]
    ranges: Mapping[Var, tuple[int, int]]
    parts: dict[Buffer, _Part] = field(default_factory=dict)
    reason: ScheduleError | None = None

    def same(self, mine: Any, described: Any) -> bool:
        """Whether two nodes are equal, up to parts of buffers; learns the parts on the way."""
        if isinstance(mine, Store) and isinstance(described, Store):
            return self.same(mine.value, described.value) and self._same_access(mine, described)
        if isinstance(mine, Load) and isinstance(described, Load):
            return self._same_access(mine, described)
        if isinstance(mine, Var) or isinstance(described, Var):
            return bool(mine == substitute(described, self.renamed))
        if type(mine) is not type(described):
            return False
        if isinstance(mine, Binary) and mine.op == described.op and mine.op in COMMUTATIVE:
            return self._same_in_any_order(mine, described)
        return all(self._same_field(getattr(mine, n), getattr(described, n)) for n in mine.__match_args__)

    def _same_field(self, mine: Any, described: Any) -> bool:
        if isinstance(mine, Node):
            return self.same(mine, described)
        if isinstance(mine, tuple) and isinstance(described, tuple):
            return len(mine) == len(described) and all(map(self._same_field, mine, described))
        return bool(mine == described)

    def _same_in_any_order(self, mine: Binary, described: Binary) -> bool:
        for a, b in ((mine.a, mine.b), (mine.b, mine.a)):
            known = dict(self.parts)
            if self.same(a, described.a) and self.same(b, described.b):
                return True
            self.parts = known
        return False

    def _same_access(self, mine: Load | Store, described: Load | Store) -> bool:
        """Condition (4), and that every access of a parameter is to the same part."""
        target, parameter = mine.buffer, described.buffer
        extra = len(target.shape) - len(parameter.shape)
        if (target.dtype, target.scope) != (parameter.dtype, parameter.scope) or extra < 0:
            self.reason = self.reason or ScheduleError(
                "(3) `{buffer}` is {dtype} in scope {scope}, but the description has {wanted} in scope {place}",
                buffer=target.name, dtype=target.dtype, scope=target.scope, wanted=parameter.dtype,
                place=parameter.scope,
            )  # fmt: skip
            return False
        offsets = tuple(
            simplify(as_index(i) - as_index(substitute(d, self.renamed)), self.ranges)
            for i, d in zip(mine.indices[extra:], described.indices, strict=True)
        )
        part = _Part(target, tuple(mine.indices[:extra]), offsets)
        place = (*part.lead, *part.offsets)
        moves = not all(
            variables(e).isdisjoint(self.inside) and memories_read(e).isdisjoint(self.changing) for e in place
        )
        if moves or self.parts.setdefault(parameter, part) != part:
            self.reason = self.reason or ScheduleError(
                "(4) the access {buffer}[{mine}] does not move as the described {parameter}[{described}]",
                hint="only the last dimensions may move; transform the layout first", buffer=target.name,
                mine=_List(mine.indices), parameter=parameter.name, described=_List(described.indices),
            )  # fmt: skip
            return False
        return True


class _List:
    """Expressions with commas between them, as text that is made when a message is read."""

    def __init__(self, items: Sequence[Expr]) -> None:
        self.items = items

    def __format__(self, spec: str) -> str:
        from ...ir.text import expr_text

        return ", ".join(map(expr_text, self.items))


def _match(outer: Block, intrinsic: TensorIntrin) -> dict[Buffer, _Part]:
    """The part of a buffer that each parameter is.  Raises ScheduleError where the description does not match."""
    found, block = _nest(outer)
    described, model = nest_of_description(intrinsic.desc)
    wide = [loop for loop in found if extent_of(loop) > 1]
    wanted = [loop for loop in described if extent_of(loop) > 1]
    if [extent_of(loop) for loop in wide] != [extent_of(loop) for loop in wanted]:
        raise ScheduleError(
            "(2) the loops below `{block}` run over {mine}, those of the description over {described}",
            hint="split the loops to these extents and reorder them", block=outer.name,
            mine=[extent_of(loop) for loop in wide], described=[extent_of(loop) for loop in wanted],
        )  # fmt: skip
    renamed: dict[Var, Expr] = {d.var: w.var for d, w in zip(wanted, wide, strict=True)}
    matcher = _Matcher(
        frozenset(loop.var for loop in found), memories_written(outer.body), {**_zeros(described), **renamed},
        {**{i.var: i.span for i in outer.iters}, **{w.var: (0, extent_of(w) - 1) for w in wide}},
    )  # fmt: skip
    if not matcher.same(_flat(block, _zeros(found)), _flat(model, {})):
        raise matcher.reason or ScheduleError("(3) the statement of `{block}` is not that of the description",
                                              block=outer.name)  # fmt: skip
    return matcher.parts


def _check_apart(outer: Block, intrinsic: TensorIntrin, parts: Mapping[Buffer, _Part]) -> None:
    """Condition (5)."""
    written = written_buffers(intrinsic.desc.body)
    for one, other in combinations(parts, 2):
        a, b = parts[one], parts[other]
        if a.buffer.memory != b.buffer.memory or (one not in written and other not in written):
            continue
        same = a == b and one.shape == other.shape and _is_elementwise(intrinsic, (one, other))
        if not same and not _disjoint(outer, a, one.shape, b, other.shape):
            raise ScheduleError(
                "(5) `{buffer}` is `{one}` and `{other}` of the description, and these may overlap",
                buffer=a.buffer.name, one=one.name, other=other.name,
            )  # fmt: skip


def _is_elementwise(intrinsic: TensorIntrin, parameters: Sequence[Buffer]) -> bool:
    """Whether each iteration has an element of the parameters for itself, and the implementation is one store."""
    found, model = nest_of_description(intrinsic.desc)
    used = {n.indices for n in walk(_flat(model, {})) if isinstance(n, (Load, Store)) and n.buffer in parameters}
    wide = {loop.var for loop in found if extent_of(loop) > 1}
    return len(used) == 1 and wide <= set(next(iter(used))) and isinstance(intrinsic.impl.body.body, Store)


def _disjoint(outer: Block, a: _Part, a_shape: Sequence[int], b: _Part, b_shape: Sequence[int]) -> bool:
    """Whether two parts of one memory provably have no common element, whatever the block's point."""
    if a.buffer != b.buffer:
        return False
    starts = zip((*a.lead, *a.offsets), _sizes(a, a_shape), (*b.lead, *b.offsets), _sizes(b, b_shape), strict=True)
    common = tuple(c for x, m, y, n in starts for c in (x < y + n, y < x + m))
    inside = {i.var: i.extent for i in outer.iters}
    used = sorted({v for c in common for v in variables(c)}, key=lambda v: v.name)
    try:
        return find_point(Domain(tuple((v, inside.get(v)) for v in used), common)) is None
    except (NotAffine, Unknown):
        return False


def _sizes(part: _Part, shape: Sequence[int]) -> tuple[int, ...]:
    return (*(1 for _ in part.lead), *shape)


def _zeros(found: Sequence[For]) -> dict[Var, Expr]:
    """0 for each loop of one iteration."""
    return {loop.var: as_expr(0, loop.var) for loop in found if extent_of(loop) == 1}


def _nest(outer: Block) -> tuple[tuple[For, ...], Block]:
    """Condition (1)."""
    found: list[For] = []
    stmt: Stmt = outer.body
    while isinstance(stmt, For):
        found.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block) or outer.init is not None or stmt.init is not None or stmt.predicate != TRUE:
        raise ScheduleError("(1) `{block}` is not loops around one block without init and conditions",
                            hint="use decompose_reduction, and factors that divide", block=outer.name)  # fmt: skip
    return tuple(found), stmt


def _flat(block: Block, zeros: Mapping[Var, Expr]) -> Stmt:
    """The body over loop variables."""
    bindings = {i.var: substitute(i.binding, zeros) for i in block.iters}
    result: Stmt = substitute(block.body, bindings)
    return result


def _implementation(
    func: PrimFunc, intrinsic: TensorIntrin, parts: Mapping[Buffer, _Part]
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The implementation's statements on the program's buffers, and its allocations; its own names are made fresh."""
    impl, taken = intrinsic.impl, names(func)
    placed = {mine: parts[described] for mine, described in zip(impl.buffers, intrinsic.desc.buffers, strict=True)}
    known: dict[Var | Buffer, Var | Buffer] = {}

    def claim(name: str) -> str:
        new = fresh(name, taken)
        taken.add(new)
        return new

    def swap(node: Any) -> Any:
        if isinstance(node, (Var, Buffer)) and node not in placed:
            if node not in known:
                known[node] = replace(node, name=claim(node.name))
            return known[node]
        if isinstance(node, Load) and node.buffer in placed:
            part = placed[node.buffer]
            return Load(part.buffer, part.at(node.indices))
        if isinstance(node, Store) and node.buffer in placed:
            part = placed[node.buffer]
            return Store(part.buffer, part.at(node.indices), node.value)
        return replace(node, name=claim(node.name)) if isinstance(node, Block) else node

    return transform(impl.body.body, swap), tuple(swap(b) for b in impl.body.allocs)
