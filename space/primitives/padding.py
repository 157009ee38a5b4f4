"""decompose_padding: what a block pads with is written by a nest of its own."""

from __future__ import annotations

from dataclasses import replace

from ...ir.affine.sets import NotAffine, Unknown, access_map
from ...ir.dataflow.instances import Statement, instances
from ...ir.expr import Call, Const
from ...ir.passes.renaming import copied
from ...ir.stmt import Block, For, If, Let, PrimFunc, Stmt, Store, memories_read, names, seq
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import find_block, find_loop, with_stmt


@primitive
def decompose_padding(func: PrimFunc, block: str, loop: str) -> Result:
    """``for i: B[i] = if_then_else(c, x, v)`` -> ``for i: B[i] = v``, then ``for i: if c: B[i] = x``.

    The nest that fills B with `v` stands before `loop`, and both keep the kinds of their loops; what the second one
    leaves out `reduce_loop_extents` takes out of its loops.
    Conditions: (1) the block is one store of such a value, of which `v` is a number; (2) `loop` is above the block, and
    nothing else is below it; (3) no two instances below `loop` store to one element; (4) nothing below it loads from
    the memory of B.
    Returns the block that fills.  Source: TensorIR's primitive of this name.
    """
    target, outer = find_block(func, block), find_loop(func, loop)
    store = target.body
    value = store.value if isinstance(store, Store) and target.init is None else None
    is_choice = isinstance(value, Call) and value.name == "if_then_else" and isinstance(value.args[2], Const)
    if not isinstance(store, Store) or not isinstance(value, Call) or not is_choice:
        raise ScheduleError("(1) block `{block}` is not one store of `T.if_then_else(c, x, number)`", block=block)
    if _chain(outer)[-1] is not target:
        raise ScheduleError("(2) block `{block}` does not stand alone below loop `{loop}`", block=block, loop=loop)
    memory = store.buffer.memory
    if memory in memories_read(outer):
        raise ScheduleError("(4) `{buffer}` is loaded below loop `{loop}`", buffer=memory, loop=loop)
    statement = next(s for s in instances(func).below(target) if s.stmt is store)
    if not _writes_apart(statement):
        raise ScheduleError("(3) block `{block}` may store twice to one element of `{buffer}`",
                            block=block, buffer=store.buffer.name)  # fmt: skip
    cond, inside, pad = value.args
    taken = names(func)
    filling = replace(target, name=f"{block}_pad_const", body=Store(store.buffer, store.indices, pad))
    fill = copied(_with(outer, target, filling), taken)
    rest = _with(outer, target, replace(target, body=If(cond, Store(store.buffer, store.indices, inside))))
    name = next(s.name for s in _chain(fill) if isinstance(s, Block))
    return with_stmt(func, outer, seq([fill, rest])), name


def _chain(stmt: Stmt) -> list[Stmt]:
    """`stmt` and what it holds alone, down to a block or to what holds several."""
    found = [stmt]
    while isinstance(stmt, (For, Let)) or (isinstance(stmt, If) and stmt.orelse is None):
        stmt = stmt.then if isinstance(stmt, If) else stmt.body
        found.append(stmt)
    return found


def _with(stmt: Stmt, target: Block, new: Block) -> Stmt:
    """The chain from `stmt` down to `target`, with `new` in its place."""
    if stmt is target:
        return new
    if isinstance(stmt, If):
        return replace(stmt, then=_with(stmt.then, target, new))
    assert isinstance(stmt, (For, Let))
    return replace(stmt, body=_with(stmt.body, target, new))


def _writes_apart(statement: Statement) -> bool:
    """Whether different instances write different elements."""
    write = statement.write
    assert write is not None
    if write.whole:
        return False
    owners = tuple(v for v in write.owners if v in statement.variables)
    try:
        return access_map(statement.domain, (*statement.parameters, *owners, *write.indices)).is_injective()
    except (NotAffine, Unknown):
        return False
