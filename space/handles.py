"""Questions about a program, asked and answered with names."""

from __future__ import annotations

from ..ir.stmt import Block, For, PrimFunc, walk_stmts, written_buffers
from .errors import ScheduleError
from .tree import blocks_below, find_block, find_loop, reads, scope_of


def find_block_or_loop(func: PrimFunc, name: str) -> Block | For:
    """The loop or block called `name`; loops come first.  Raises ScheduleError naming what there is."""
    for find in (find_loop, find_block):
        try:
            return find(func, name)
        except ScheduleError:
            continue
    known = [s.var.name if isinstance(s, For) else s.name for s in walk_stmts(func.body) if isinstance(s, (For, Block))]
    raise ScheduleError("there is no block or loop `{name}`; there are {known}", name=name, known=", ".join(known))


def child_blocks(func: PrimFunc, name: str) -> list[str]:
    """The outermost blocks in a block's body or below a loop, in program order; those of an init are not among them."""
    return [b.name for b in _children(find_block_or_loop(func, name))]


def producers_of(func: PrimFunc, name: str) -> list[str]:
    """The blocks of the same scope that write what a block reads, in program order."""
    block = find_block(func, name)
    return [b.name for b in _siblings(func, block) if _feeds(b, block)]


def consumers_of(func: PrimFunc, name: str) -> list[str]:
    """The blocks of the same scope that read what a block writes, in program order."""
    block = find_block(func, name)
    return [b.name for b in _siblings(func, block) if _feeds(block, b)]


def output_blocks(func: PrimFunc, scope: str) -> list[str]:
    """The blocks of a scope that write something that was not allocated in it, in program order."""
    around = find_block(func, scope)
    own = {b for s in walk_stmts(around) if isinstance(s, Block) for b in s.allocs}
    return [b.name for b in _children(around) if set(written_buffers(b)) - own]


def _children(stmt: Block | For) -> list[Block]:
    return list(blocks_below(stmt.body))


def _siblings(func: PrimFunc, block: Block) -> list[Block]:
    return [b for b in _children(scope_of(func, block)) if b is not block]


def _feeds(producer: Block, consumer: Block) -> bool:
    """Whether `consumer` reads what `producer` writes."""
    return any(reads(consumer.body, b) for b in written_buffers(producer))
