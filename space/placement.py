"""May a stage be computed at another place?

All answers come from the statement instances of the function, so blocks, opaque blocks
and bare loops count alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir import dtypes
from ..ir.affine.sets import Domain, IntSet, NotAffine, Unknown, access_map, points
from ..ir.dataflow.accesses import Access, element_variables
from ..ir.dataflow.dependence import clashes, common_loops
from ..ir.dataflow.instances import Program, Statement, instances
from ..ir.dataflow.order import knowing
from ..ir.expr import FALSE, TRUE, Buffer, Expr, Extent, Var, binary, can_fail, conjuncts, free_variables, substitute
from ..ir.ranges import preconditions
from ..ir.stmt import Block, Declare, For, PrimFunc, Seq, Stmt, path_to, read_buffers, stores, walk_stmts
from ..ir.verify.undef import misplaced
from .errors import ScheduleError
from .tree import loops_above, parameters


def writers(func: PrimFunc, buffer: Buffer) -> list[Statement]:
    """The statements that store to the memory of `buffer`."""
    return [s for s in instances(func).touching(buffer) if s.write is not None and s.write.buffer == buffer]


def readers(func: PrimFunc, buffer: Buffer) -> list[Statement]:
    """The statements that load from the memory of `buffer`; an assumption reads what it speaks of."""
    return [s for s in instances(func).statements if any(a.buffer == buffer for a in knowing(s).reads)]


def check_alone(block: Block, found: Iterable[Statement], number: str, what: str) -> None:
    """Raises ScheduleError where one of the statements is not the block's."""
    for statement in found:
        if not statement.below(block):
            raise ScheduleError(
                "({number}) {other} also {what}, not only block `{block}`",
                number=number, other=statement.label, what=what, block=block.name,
            )  # fmt: skip


def check_below(target: For, found: Iterable[Statement], number: str, what: str) -> None:
    """Raises ScheduleError where one of the statements is not below a loop."""
    for statement in found:
        if not statement.below(target):
            raise ScheduleError(
                "({number}) {what} {label} is not below loop `{loop}`",
                number=number, what=what, label=statement.label, loop=target.var.name,
            )  # fmt: skip


def check_no_views(func: PrimFunc, buffer: Buffer, number: str) -> None:
    """Raises ScheduleError where the memory of a buffer is declared as another one as well."""
    for stmt in walk_stmts(func.body):
        if isinstance(stmt, Declare) and stmt.buffer.memory == buffer.memory:
            raise ScheduleError("({number}) `{view}` is a view of the memory of `{memory}`", number=number,
                                view=stmt.buffer.name, memory=buffer.memory)  # fmt: skip


def check_scalar(accesses: Iterable[Access], number: str) -> None:
    """Raises ScheduleError where a vector of elements is accessed at once."""
    for access in accesses:
        if any(dtypes.lanes(i.dtype) > 1 for i in access.node.indices):
            raise ScheduleError("({number}) several elements of `{buffer}` are accessed at once",
                                number=number, buffer=access.buffer.name)  # fmt: skip


def check_undef(func: PrimFunc, number: str) -> None:
    """Raises ScheduleError where undef that was written into a statement would decide something."""
    for stmt in walk_stmts(func.body):
        fault = misplaced(stmt)
        if fault:
            raise ScheduleError("({number}) the block stores undef, and {fault}", number=number, fault=fault)


def check_in_scope(func: PrimFunc, block: Block, place: Stmt, number: str) -> None:
    """Raises ScheduleError where a block uses a buffer of another block that does not hold `place`."""
    used = {*read_buffers(block), *(s.buffer for s in stores(block))}
    there = path_to(func.body, place) or ()
    for stmt in (path_to(func.body, block) or ())[:-1]:
        if isinstance(stmt, Block) and not any(stmt is s for s in there) and not used.isdisjoint(stmt.allocs):
            raise ScheduleError(
                "({number}) block `{block}` uses a buffer of block `{owner}`, which does not hold the new place",
                number=number, block=block.name, owner=stmt.name,
            )  # fmt: skip


def check_unconditional(func: PrimFunc, block: Block, number: str, target: Stmt | None = None) -> None:
    """Raises ScheduleError where anything but loops stands between a block and the root, or its own condition can fail.

    A moved block has conditions of its new loops beside its own, and all of them are evaluated.  A block that is
    around `target`, the new place, as well, stays around it.
    """
    path = path_to(func.body, block)
    assert path is not None
    staying = () if target is None else path_to(func.body, target) or ()
    if can_fail(block.predicate):
        raise ScheduleError("({number}) block `{block}` runs where {cond!r}, which reads memory or divides",
                            number=number, block=block.name, cond=block.predicate)  # fmt: skip
    for stmt in path[1:-1]:
        stays = any(stmt is s for s in staying)
        plain = isinstance(stmt, (For, Seq))
        plain |= isinstance(stmt, Block) and (stays or not stmt.iters) and stmt.predicate == TRUE
        if not plain:
            kind = f"block `{stmt.name}`" if isinstance(stmt, Block) else f"`{type(stmt).__name__}`"
            raise ScheduleError("({number}) block `{block}` stands inside of {kind}", number=number, block=block.name,
                                kind=kind)  # fmt: skip


def check_passing(
    func: PrimFunc,
    moved: Sequence[Statement],
    others: Sequence[Statement],
    link: Buffer,
    number: str,
    target: For | None = None,
) -> None:
    """Raises ScheduleError where a statement that may run between `moved` and `others` changes what `moved` does.

    That is one that writes elements which `moved` reads or writes, or reads some that it writes.  `link` is the
    buffer between `moved` and `others`, for whose sake they come together: the caller knows who uses it.
    With `target`, the loop that `moved` comes under, only what runs in one iteration of the loops that stay around it
    comes between (`staying_loops`).
    """
    inputs = {a.buffer for s in moved for a in s.reads} - {link}
    results = {a.buffer for s in moved for a in s.accesses if a.is_write} - {link}
    staying = () if target is None else staying_loops(func, moved, target)
    for statement in _between(instances(func), moved, others, len(staying)):
        known = knowing(statement)
        for access in known.accesses:
            buffer = access.buffer
            shared = buffer in results or (access.is_write and buffer in inputs)
            if shared and any(next(clashes(known, s, buffer=buffer), None) for s in map(knowing, moved)):
                raise ScheduleError(
                    "({number}) {moved} cannot pass {other}: both use `{buffer}`",
                    number=number, moved=moved[-1].label, other=statement.label, buffer=buffer.name,
                )  # fmt: skip


def check_after(block: Block, moved: Sequence[Statement], sources: Sequence[Statement], number: str) -> None:
    """Raises ScheduleError where a writer comes after `block`, which then reads what an earlier iteration has left."""
    for source in sources:
        if any(source.number > s.number for s in moved):
            raise ScheduleError(
                "({number}) writer {label} comes after block `{block}`, which reads what an earlier iteration of the "
                "loops around both has left",
                number=number, label=source.label, block=block.name,
            )  # fmt: skip


def _between(
    program: Program, moved: Sequence[Statement], others: Sequence[Statement], staying: int
) -> list[Statement]:
    """The statements that may run after some of the one and before some of the other.

    That is in one iteration of so many outermost loops that stay around both.
    """
    numbers = [s.number for s in (*moved, *others)]
    ends = (*moved, *others)

    def may_run(s: Statement) -> bool:
        return min(numbers) < s.number <= max(numbers) or any(len(common_loops(s, e)) > staying for e in ends)

    return [s for s in program.statements if s not in moved and may_run(s)]


def check_final(
    func: PrimFunc, target: For, buffer: Buffer, number: str, once: bool = False, staying: Sequence[For] = ()
) -> None:
    """Raises ScheduleError unless all stores to an element lie in one iteration of `target` and the loops around.

    A block that stores the same element anew in another iteration is refused only where its consumer
    must see it `once`.  Loops that are `staying` around the consumer as well may store it in each of their iterations.
    """
    found = writers(func, buffer)
    kept = [loop.var for loop in staying]
    outer = [loop.var for loop in loops_to(func, target) if loop.var not in kept]
    if not once and len({id(s.block) for s in found}) == 1 and all(_is_final_by_kind(s, outer) for s in found):
        return
    for first in found:
        for second in found:
            for clash in clashes(first, second, kept, buffer=buffer):
                if not (clash.a.is_write and clash.b.is_write):
                    continue
                apart: Expr = FALSE
                for var in outer:
                    apart = binary("or", apart, binary("!=", var, Var(f"{var.name}'", var.dtype)))
                try:
                    point = points(clash.domain.where(apart)).first()
                except (NotAffine, Unknown) as error:
                    raise ScheduleError("({number}) it is unknown when `{buffer}` is final: {error}",
                                        number=number, buffer=buffer.name, error=str(error)) from None  # fmt: skip
                if point is not None:
                    raise ScheduleError(
                        "({number}) `{buffer}` is not final in one iteration of `{loop}`: two iterations store to one "
                        "element, as at {point}",
                        "choose a loop outside of those that store an element again, or reorder them inside of it",
                        number=number, buffer=buffer.name, loop=target.var.name,
                        point=", ".join(f"{name}={value}" for name, value in point.items()),
                    )  # fmt: skip


def check_seen_last(
    moved: Sequence[Statement], sources: Sequence[Statement], buffer: Buffer, number: str, kept: Sequence[Var]
) -> None:
    """Raises ScheduleError where an element is stored again after `moved` has read it for the last time.

    That is in one iteration of the loops `kept`: at its new place there, `moved` sees what was stored last.
    """
    reads = [(s, a) for s in map(knowing, moved) for a in s.reads if a.buffer == buffer]
    for source in (s for s in sources if s.write is not None):
        common = [loop.var for loop in common_loops(source, reads[0][0])]
        inner = [var for var in common if var not in kept]
        if not inner:
            continue  # one nest after the other
        try:
            point = _stored_later(source, reads, [v for v in common if v in kept], inner).first()
            where = "" if point is None else "at " + ", ".join(f"{k}={v}" for k, v in point.items())
        except (NotAffine, Unknown) as error:
            where = str(error)
        if where:
            raise ScheduleError(
                "({number}) {source} stores an element of `{buffer}` after {moved} has read it for the last time: "
                "{where}",
                number=number, source=source.label, buffer=buffer.name, moved=moved[-1].label, where=where,
            )  # fmt: skip


def _stored_later(
    source: Statement, reads: Sequence[tuple[Statement, Access]], kept: Sequence[Var], inner: Sequence[Var]
) -> IntSet:
    """The instances of `source` that store what is read in their iteration of `kept`, but not then or later.

    Within one iteration of all loops around both, reads come after.  Raises NotAffine and Unknown.
    """
    assert source.write is not None
    fixed, element = [*source.parameters, *kept], source.write.indices
    found = points(source.domain.where(FALSE))
    for statement, access in reads:
        if not statement.exact:
            raise Unknown(f"where {statement.label} runs is decided by memory")
        here = points(statement.domain).image([*fixed, *access.indices])
        found = found.union(access_map(source.domain, [*fixed, *element]).preimage(here))
    for statement, access in reads:
        extents = dict(statement.dims)
        for depth, var in enumerate(inner):
            before, earlier = inner[:depth], Var(f"{var.name}'", var.dtype)
            domain = Domain((*statement.dims, (earlier, extents[var])), statement.conditions)
            last = depth == len(inner) - 1
            until = points(domain.where(binary("<=" if last else "<", earlier, var)))
            reached = until.image([*fixed, *before, earlier, *access.indices])
            stored = access_map(source.domain, [*fixed, *before, var, *element])
            found = found.subtract(stored.preimage(reached))
    return found


def _is_final_by_kind(statement: Statement, outer: Sequence[Var]) -> bool:
    """Whether a block stores at its spatial iterators, and no loop in `outer` is a part of its reduction."""
    block, write = statement.block, statement.write
    assert write is not None
    if block is None or not block.iters or any(i.kind == "opaque" for i in block.iters):
        return False
    carried = {v for i in block.reduce for v in free_variables(i.binding)}
    return carried.isdisjoint(outer) and {i.var for i in block.spatial} == set(write.node.indices)


def staying_loops(func: PrimFunc, moved: Sequence[Statement], target: For) -> tuple[For, ...]:
    """The loops around the block that holds `target` that are around all of `moved` as well."""
    inside = (*loops_above(func, target), target)
    outer = [loop for loop in loops_to(func, target) if not any(loop is own for own in inside)]
    shared = min(sum(one is other for one, other in zip(s.loops, outer, strict=False)) for s in moved)
    return tuple(outer[:shared])


def loops_to(func: PrimFunc, target: For) -> list[For]:
    """The loops around `target`, of enclosing blocks too, outermost first, and itself."""
    path = path_to(func.body, target)
    assert path is not None
    return [s for s in path if isinstance(s, For)]


def stored_in_iteration(func: PrimFunc, target: For, buffer: Buffer) -> tuple[list[Var], list[Var], IntSet]:
    """The elements that one iteration of `target` stores: loops around, coordinates, and the set over both."""
    outer = [*parameters(func), *(loop.var for loop in loops_to(func, target))]
    axes = [Var(f"{buffer.name}.{d}") for d in range(buffer.rank)]
    found: IntSet | None = None
    for statement in writers(func, buffer):
        assert statement.write is not None
        own = points(statement.domain).image([*outer, *statement.write.indices], [*outer, *axes])
        found = own if found is None else found.union(own)
    assert found is not None
    return outer, axes, found


def not_stored(program: Program, among: Iterable[Statement], buffer: Buffer, shape: Sequence[Extent]) -> IntSet:
    """The elements below `shape`, with the values of all scalar parameters, that no statement of `among` surely stores.

    Raises NotAffine and Unknown.
    """
    axes = element_variables(buffer)
    scalars = tuple((p, None) for p in program.parameters)
    missing = points(Domain((*scalars, *zip(axes, shape, strict=True)), program.given))
    for statement in among:
        write = statement.write
        if write is not None and write.buffer == buffer and statement.exact and not write.whole:
            stored = points(statement.domain).image([*program.parameters, *write.indices], missing.variables)
            missing = missing.subtract(stored)
    return missing


def condition_to_be_stored(
    func: PrimFunc, target: For, buffer: Buffer, dims: Sequence[tuple[Var, Extent]], element: Sequence[Expr], cond: Expr
) -> Expr:
    """What must hold besides `cond` for `element` to be stored in the same iteration of `target`.

    `element` and `cond` are over the loops `dims` and those around `target`.  Raises ScheduleError
    where that is unknown.
    """
    try:
        outer, axes, stored = stored_in_iteration(func, target, buffer)
        around = [(loop.var, loop.extent) for loop in loops_to(func, target)]
        own, given = [(v, None) for v in parameters(func)], preconditions(func)
        domain = points(Domain((*own, *around, *dims), (*given, *conjuncts(cond))))
        wanted = domain.image([*outer, *element], [*outer, *axes])
        if wanted.is_subset(stored):
            return TRUE
        context = points(Domain((*own, *around, *zip(axes, buffer.extents, strict=True)), given))
        needed = stored.condition(context)
    except (NotAffine, Unknown) as error:
        raise ScheduleError("it is unknown what one iteration of `{loop}` stores to `{buffer}`: {error}",
                            loop=target.var.name, buffer=buffer.name, error=str(error)) from None  # fmt: skip
    result: Expr = substitute(needed, dict(zip(axes, element, strict=True)))
    return result
