"""Statements (`stmt` has the functions and modules that they make).

::

    stmt   ::= Seq(stmts)
             | For(var, extent, body, kind, thread, annotations)     for var in range(extent)
             | If(cond, then, orelse)
             | Store(buffer, indices, value)
             | Let(var, value, body)
             | Block(name, iters, body, predicate, init, allocs, annotations)
             | Evaluate(expr)
             | Assume(cond)                                           knowledge about contents, no effect
             | Attr(key, value, body)                                 a note on body, without effect
             | While(cond, body)
             | Assert(cond, message)
             | Opaque(name, args, target, reads, writes)              a call of what is not known here
             | Allocate(buffer, body)                                 lowered: memory alive in body
             | Declare(buffer, body)                                  lowered: another view of defined memory
    iter   ::= Iter(var, limit, kind, binding)                        kind: spatial | reduce | opaque
    kind   ::= serial | parallel | vectorized | unrolled | thread_binding

A block instance runs for one value of its iterators; `binding` gives each
iterator in terms of the loops around, and instances whose `predicate` (over
loop variables) is false are skipped.  `init` runs before the instance whose reduce
iterators are all 0, the first one of each spatial point (`verify`).  What a block reads and writes is
derived, never stored.  Loops start at 0 and step by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from .calls import Arg, Pointer, Region, Text
from .expr import TRUE, Buffer, Expr, Extent, Load, Var, as_expr, fixed_extent, free_variables
from .node import Node, changed, children, gathered, rebuild, remembered, transform, walk

LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")
ITER_KINDS = ("spatial", "reduce", "opaque")
SUBGROUP = "subgroup"
"""The thread axis of loops that the work-items of one subgroup share; they stand beside each other along x."""
THREAD_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", SUBGROUP)

Annotations = tuple[tuple[str, Any], ...]
LONGEST = 1 << 48
"""More steps than any loop takes, and more elements than any memory has."""


class Stmt(Node):
    """A statement."""


@dataclass(frozen=True, eq=False)
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class For(Stmt):
    var: Var
    extent: Expr
    body: Stmt
    kind: str = "serial"
    thread: str = ""
    annotations: Annotations = ()

    @property
    def has_items(self) -> bool:
        """Whether the work-items of a group share the iterations."""
        return self.thread.startswith("threadIdx") or self.reduces

    @property
    def reduces(self) -> bool:
        """Whether iterations may update one element concurrently: a subgroup reduces their values first."""
        return self.thread == SUBGROUP


@dataclass(frozen=True, eq=False)
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Let(Stmt):
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, eq=False)
class Evaluate(Stmt):
    value: Expr


@dataclass(frozen=True, eq=False)
class Assume(Stmt):
    """The programmer's or a transformation's promise that `cond` holds here."""

    cond: Expr


@dataclass(frozen=True, eq=False)
class Attr(Stmt):
    """A note for whoever reads `body`; leaving it out changes no result."""

    key: str
    value: Expr | str
    body: Stmt


@dataclass(frozen=True, eq=False)
class Allocate(Stmt):
    """Memory that is alive in `body`, accessed through `buffer` or through views that are declared over it."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False)
class Declare(Stmt):
    """A view: `buffer` is the memory of ``buffer.data`` by another shape or element type (RFC 0070)."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False)
class While(Stmt):
    """`body` as often as `cond` holds before it."""

    cond: Expr
    body: Stmt


@dataclass(frozen=True, eq=False)
class Assert(Stmt):
    """The end of the program, with a message, where `cond` does not hold."""

    cond: Expr
    message: str = ""


@dataclass(frozen=True, eq=False)
class Opaque(Stmt):
    """A call of a function, instruction or library that is not known here, whose value `target` takes, if any does.

    It is `name`d as the script calls it: ``call_extern``, ``tvm_mma_sync``.  It may read every element of `reads`
    and write every element of `writes`, to which that of `target` belongs, and touches no others.
    """

    name: str
    args: tuple[Arg, ...]
    target: Pointer | None
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]

    @property
    def callee(self) -> str:
        """What is called: the function that ``call_extern`` and its like name, else the instruction."""
        named = [a.value for a in self.args if isinstance(a, Text)]
        return (
            named[self.name == "call_extern"]
            if self.name in NAMING and len(named) > 1
            else (named[0] if self.name in NAMING and named else self.name)
        )

    def without_result(self) -> Opaque:
        """The call, whose value nothing takes; that of `target` is the last of `writes`."""
        return self if self.target is None else replace(self, target=None, writes=self.writes[:-1])


NAMING = ("call_extern", "call_packed", "call_cpacked", "call_pure_extern")
"""Calls whose first string is the name of a function; before that of ``call_extern`` stands the type of its value."""


@dataclass(frozen=True, eq=False)
class Iter(Node):
    """``var`` in ``[0, limit)``, bound to an expression over the loops around; `limit` is what a buffer's extent is."""

    var: Var
    limit: Extent
    kind: str
    binding: Expr

    @property
    def extent(self) -> int:
        """The limit as a number.  Raises NotFixed."""
        return fixed_extent(self.limit, f"iterator `{self.var.name}`")

    @property
    def span(self) -> tuple[int, int]:
        """The inclusive interval of the iterator, as far as its limit is a number."""
        return span_of(self.limit)


@dataclass(frozen=True, eq=False)
class Block(Stmt):
    name: str
    iters: tuple[Iter, ...]
    body: Stmt
    predicate: Expr = TRUE
    init: Stmt | None = None
    allocs: tuple[Buffer, ...] = ()
    annotations: Annotations = ()

    @property
    def spatial(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "spatial")

    @property
    def reduce(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "reduce")


def span_of(limit: Extent) -> tuple[int, int]:
    """The inclusive interval of what counts from 0 to below `limit`."""
    return 0, (LONGEST if isinstance(limit, Expr) else limit) - 1


def seq(stmts: Sequence[Stmt]) -> Stmt:
    """A sequence with nested ones spliced in; a single statement stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def loops(variables: Sequence[tuple[Var, Extent]], body: Stmt, kind: str = "serial") -> Stmt:
    """``for v0 in range(e0): for v1 in range(e1): ... body``, the first outermost."""
    for var, extent in reversed(variables):
        body = For(var, as_expr(extent, var), body, kind)
    return body


def stmt_children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements that stand directly in a statement, in program order: a block's init before its body."""
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, (For, Let, Attr, Allocate, Declare, While)):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
    if isinstance(stmt, Block):
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)
    return ()


def map_children(stmt: Stmt, fn: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with `fn` applied to each of `stmt_children`, in program order; itself if nothing changed."""
    if isinstance(stmt, Seq):
        new = [fn(s) for s in stmt.stmts]
        return stmt if all(a is b for a, b in zip(new, stmt.stmts, strict=True)) else seq(new)
    if isinstance(stmt, (For, Let, Attr, Allocate, Declare, While)):
        body = fn(stmt.body)
        return stmt if body is stmt.body else changed(stmt, body=body)
    if isinstance(stmt, If):
        then = fn(stmt.then)
        orelse = None if stmt.orelse is None else fn(stmt.orelse)
        return stmt if then is stmt.then and orelse is stmt.orelse else If(stmt.cond, then, orelse)
    if isinstance(stmt, Block):
        init = None if stmt.init is None else fn(stmt.init)
        body = fn(stmt.body)
        return stmt if body is stmt.body and init is stmt.init else changed(stmt, body=body, init=init)
    return stmt


def walk_stmts(node: Node) -> Iterator[Stmt]:
    """Every statement at or below a statement, function or module, parents first, in program order."""
    if not isinstance(node, Stmt):
        for child in children(node):
            if not isinstance(child, Expr):
                yield from walk_stmts(child)
        return
    stack: list[Stmt] = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(stmt_children(top)))


def path_to(root: Stmt, target: Stmt) -> tuple[Stmt, ...] | None:
    """The statements from `root` down to `target` (by identity), both included; None if it is not below."""
    if root is target:
        return (root,)
    for child in stmt_children(root):
        below = path_to(child, target)
        if below is not None:
            return (root, *below)
    return None


def blocks(node: Node) -> Iterator[Block]:
    """Every block below, in program order, the root included."""
    return (n for n in walk_stmts(node) if isinstance(n, Block))


def stores(node: Node) -> Iterator[Store]:
    return (n for n in walk_stmts(node) if isinstance(n, Store))


def transform_statements(stmt: Stmt, fn: Callable[[Any], Stmt]) -> Stmt:
    """Bottom-up rewriting of statements; expressions stay."""
    below = rebuild(stmt, lambda child: transform_statements(child, fn) if isinstance(child, Stmt) else child)
    return fn(below)


def loads(node: Node) -> Iterator[Load]:
    return (n for n in walk(node) if isinstance(n, Load))


def written_buffers(node: Node) -> tuple[Buffer, ...]:
    """Buffers stored to below `node`, in order of first store."""
    return _written(node)


@remembered
def _written(node: Node) -> tuple[Buffer, ...]:
    own: tuple[Buffer, ...] = (node.buffer,) if isinstance(node, Store) else ()
    own = tuple(region.buffer for region in node.writes) if isinstance(node, Opaque) else own
    return _together([own, *(_written(child) for child in children(node) if not isinstance(child, Expr))])


def read_buffers(node: Node) -> tuple[Buffer, ...]:
    """Buffers loaded from below `node`, in order of first load."""
    return _read(node)


@remembered
def _read(node: Node) -> tuple[Buffer, ...]:
    own: tuple[Buffer, ...] = (node.buffer,) if isinstance(node, Load) else ()
    own = tuple(region.buffer for region in node.reads) if isinstance(node, Opaque) else own
    return _together([own, *map(_read, children(node))])


def _together(parts: list[tuple[Buffer, ...]]) -> tuple[Buffer, ...]:
    parts = [part for part in parts if part]
    return tuple(dict.fromkeys(chain(*parts))) if len(parts) > 1 else parts[0] if parts else ()


@remembered
def has_calls(node: Node) -> bool:
    """Whether a statement or function calls what is not known here, at any depth."""
    return isinstance(node, Opaque) or any(has_calls(child) for child in children(node) if isinstance(child, Stmt))


@remembered
def memories_read(node: Node) -> frozenset[str]:
    """Names of the memories that are loaded from below `node`, through whatever view."""
    return frozenset(b.memory for b in _read(node))


@remembered
def memories_written(node: Node) -> frozenset[str]:
    """Names of the memories that are stored to below `node`, through whatever view."""
    return frozenset(b.memory for b in _written(node))


def replace_buffer(node: Any, old: Buffer, new: Buffer) -> Any:
    """Every access and declaration of `old` becomes one of `new`; indices stay."""

    def swap(item: Any) -> Any:
        return new if isinstance(item, Buffer) and item == old else item

    return transform(node, swap)


def names(node: Node) -> set[str]:
    """Every name of a variable, buffer or block below `node`."""
    return set(names_below(node))


NO_NAMES: frozenset[str] = frozenset()


@gathered
def names_below(node: Node) -> frozenset[str]:
    """`names` as a set that is remembered on each node."""
    if isinstance(node, Buffer) and not node.is_fixed:
        return frozenset((node.name, *(v.name for e in node.extents if isinstance(e, Expr) for v in free_variables(e))))
    return frozenset((node.name,)) if isinstance(node, (Var, Buffer, Block)) else NO_NAMES


def fresh(base: str, taken: set[str]) -> str:
    """`base`, or ``base_1``, ``base_2``, ... whichever is not taken first."""
    if base not in taken:
        return base
    number = 1
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}"
