"""A second copy of a statement, with names of its own.

Names are handles that occur once in a function, so a copy binds others.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from ..expr import Buffer, LetExpr, Var
from ..node import Node, rebuild, remembered, walk
from ..stmt import Allocate, Block, Declare, For, Let, PrimFunc, Seq, Stmt, fresh, seq


def copied(stmt: Stmt, taken: set[str]) -> Stmt:
    """`stmt` with fresh names for everything that it binds; they are added to `taken`."""
    result: Stmt = _rename(stmt, {bound: another(bound[1], taken) for bound in bound_names(stmt)})
    return result


def with_own_names(stmt: Stmt, taken: set[str]) -> Stmt:
    """The statement, in which loops, bindings and memory may share names, with a name for each, none of them `taken`.

    Sequences within sequences are spliced in, so that the result is one that `verify` takes.  Names are added to
    `taken`.
    """
    if isinstance(stmt, (For, Let, Allocate, Declare)):
        name = stmt.buffer.name if isinstance(stmt, (Allocate, Declare)) else stmt.var.name
        if name in taken:
            new = _rename(stmt, {(False, name): another(name, taken)})
            # What is bound to a name is evaluated before, where the name may mean memory that has it too.
            stmt = replace(new, value=stmt.value) if isinstance(stmt, Let) else new
        taken.add(name)
    result: Stmt = rebuild(stmt, lambda child: with_own_names(child, taken) if isinstance(child, Stmt) else child)
    return seq(result.stmts) if isinstance(result, Seq) else result


def another(name: str, taken: set[str]) -> str:
    """A fresh name after `name`, added to `taken`: ``i_3`` after ``i_2``, if there is an ``i``."""
    base, _, number = name.rpartition("_")
    new = fresh(base if number.isdecimal() and base in taken else name, taken)
    taken.add(new)
    return new


Bound = tuple[bool, str]
"""A name, and whether it is that of a block: blocks may be called like variables and buffers."""


def bound_names(node: Node) -> list[Bound]:
    """What the loops, iterators, bindings, blocks and allocations below `node` are called, in program order."""
    found: dict[Bound, None] = {}
    for item in walk(node):
        if isinstance(item, (For, Let, LetExpr)):
            found[False, item.var.name] = None
        elif isinstance(item, Block):
            found[True, item.name] = None
            found.update(dict.fromkeys((False, i.var.name) for i in item.iters))
            found.update(dict.fromkeys((False, b.name) for b in item.allocs))
        elif isinstance(item, (Allocate, Declare)):
            found[False, item.buffer.name] = None
    return list(found)


def _rename(node: Any, names: Mapping[Bound, str]) -> Any:
    new = rebuild(node, lambda child: _rename(child, names))
    if isinstance(new, Var):
        return Var(names[False, new.name], new.dtype) if (False, new.name) in names else new
    if isinstance(new, Buffer):
        name, data = names.get((False, new.name), new.name), names.get((False, new.data), new.data)
        return new if (name, data) == (new.name, new.data) else replace(new, name=name, data=data)
    if isinstance(new, Block) and (True, new.name) in names:
        return replace(new, name=names[True, new.name])
    return new


def same_statement(a: Stmt, b: Stmt) -> bool:
    """Whether the statements are equal up to the names that they bind."""
    if a == b:
        return True
    mine, theirs = bound_names(a), bound_names(b)
    if len(mine) != len(theirs):
        return False
    renamed: Stmt = _rename(b, dict(zip(theirs, [name for _, name in mine], strict=True)))
    return renamed == a


@remembered
def canonical(func: PrimFunc) -> PrimFunc:
    """`func` with names by order of appearance, alike for programs that are equal up to what things are called."""
    given = [(False, p.name) for p in func.params]
    bound = [name for name in dict.fromkeys((*given, *bound_names(func.body))) if name != (True, func.body.name)]
    found = {name: f"{'b' if name[0] else 'v'}{number}" for number, name in enumerate(bound)}
    renamed: PrimFunc = _rename(func, found)
    layouts = tuple((found[False, name], layout) for name, layout in func.layouts)
    return replace(renamed, name="program", layouts=layouts)


def distinct(func: PrimFunc) -> PrimFunc:
    """An equal function in which no statement object occurs twice, so that identity tells places apart."""
    seen: set[int] = set()
    if not any(_repeats(n, seen) for n in walk(func.body)):
        return func
    body: Block = _own(func.body)
    return func.with_body(body)


def _repeats(node: Node, seen: set[int]) -> bool:
    if not isinstance(node, Stmt):
        return False
    known = id(node) in seen
    seen.add(id(node))
    return known


def _own(node: Any) -> Any:
    new = rebuild(node, lambda child: _own(child) if isinstance(child, Stmt) else child)
    return copy(new) if new is node else new
