"""What a layout's padding means, written into the program.

For a buffer that the function writes, the epilogue stores the pad value::

    for io, ii in T.grid(4, 4):
        if 14 <= 4 * io + ii:
            B[io, ii] = 0

after the outermost loop of the last writer inside the buffer's allocation scope, and before
every reader.  For an input, the function begins with what it may rely on::

    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or A[io, ii] == 0)

Both are bare loops beside bare loops, an opaque block beside opaque blocks, and a block with
iterators beside such.  Source: RFC 0077, "Enhancement - transform_layout".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..affine.pad_value import Piece
from ..affine.sets import Domain, IntSet, NotAffine, Unknown, access_map, box, points
from ..arith.intervals import negate
from ..expr import TRUE, Binary, Call, Expr, Load, Select, Undef, Var, binary, substitute
from ..node import Node, children, rebuild, walk
from ..script.printer import expr_text
from ..stmt import (
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    seq,
    stores,
)
from .relayout import Change, LayoutError

BARE, OPAQUE, BLOCK = "bare", "opaque", "block"


def check_pad_value(change: Change) -> None:
    """Raise LayoutError unless the pad value reads only logical elements of the buffer itself (condition 4)."""
    axes = change.pad_value.variables
    whole = box(axes, change.new.shape)
    inside = change.padding(axes)
    for cond, value in change.pad_value.at(axes):
        for part in (cond, value):
            if part is not None:
                _check_reads(change, part, whole, (inside, *((cond,) if part is value else ())))


def _check_reads(change: Change, expr: Expr, whole: IntSet, conds: tuple[Expr, ...]) -> None:
    if isinstance(expr, Load):
        _check_load(change, expr, whole, conds)
    if isinstance(expr, (Call, Select)) and (isinstance(expr, Select) or expr.name == "if_then_else"):
        cond, then, orelse = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        _check_reads(change, cond, whole, conds)
        lazy = isinstance(expr, Call)
        _check_reads(change, then, whole, (*conds, cond) if lazy else conds)
        _check_reads(change, orelse, whole, (*conds, negate(cond)) if lazy else conds)
        return
    for child in children(expr):
        if isinstance(child, Expr):
            _check_reads(change, child, whole, conds)


def _check_load(change: Change, load: Load, whole: IntSet, conds: tuple[Expr, ...]) -> None:
    name = change.new.name
    if load.buffer.name != name:
        raise LayoutError(f"(4) the pad value of `{name}` reads `{load.buffer.name}`; it may only read `{name}` itself")
    if any(isinstance(n, Undef) for index in load.indices for n in walk(index)):
        raise LayoutError(f"(4) the pad value of `{name}` uses undef in an index")
    axes = change.pad_value.variables
    try:
        domain = points(Domain(tuple(zip(axes, change.new.shape, strict=True)), conds))
        logical = whole.subtract(whole.where(change.padding(axes)))
        reads = access_map(domain, load.indices, axes)
        point = domain.subtract(reads.preimage(logical)).first()
    except (NotAffine, Unknown) as error:
        raise LayoutError(f"(4) it is not known whether `{expr_text(load)}` is a logical element: {error}") from None
    if point is not None:
        where = ", ".join(f"{k}={v}" for k, v in point.items())
        raise LayoutError(f"(4) at {where} the pad value reads `{expr_text(load)}`, which is no logical element")


# ---------------------------------------------------------------- inputs


def with_assumption(func: PrimFunc, change: Change) -> PrimFunc:
    """The function that begins with what it may rely on: ``assume(not padding(p) or A[p] == value)`` for every p."""
    form = _form_of(func.body, lambda s: _reads(s, change.new.name))
    name = fresh(f"{change.old.name}_assume", names(func))
    axes = _Axes(func, change, name if form == BLOCK else "")
    padding = change.padding(axes.inner)
    found: list[Stmt] = []
    for cond, value in change.pad_value.at(axes.inner):
        if value is not None:
            data = negate(binary("and", padding, cond))
            held = Binary("==", Load(change.new, tuple(axes.inner)), value)
            found.append(Assume(binary("or", data, held)))
    if not found:
        return func
    body = seq(found)
    nest = axes.loops(Block(name, axes.iters, body) if form == BLOCK else body)
    root = func.body
    return func.with_body(replace(root, body=seq([nest, root.body])))


# ---------------------------------------------------------------- what the function writes


def with_epilogue(func: PrimFunc, change: Change) -> PrimFunc:
    """The function that stores the pad value in the padding, after the last writer.

    Raises LayoutError, condition 6, where writers and readers interleave; for undef, which
    stores nothing, the program then stays as it is.
    """
    try:
        return _Placement(func, change).placed()
    except _Interleaved as error:
        if all(value is None or isinstance(value, Undef) for _, value in change.pad_value.pieces):
            return func
        raise LayoutError(
            f"(6) the padding of `{change.old.name}` cannot be written after its last writer and before every reader: "
            f"{error}"
        ) from None


class _Interleaved(Exception):
    """A reader stands before, or in one loop nest with, the last writer."""


@dataclass(frozen=True)
class _Axes:
    """Loops over the physical indices; for a block, with iterators bound to them."""

    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    shape: tuple[int, ...]

    def __init__(self, func: PrimFunc, change: Change, block: str) -> None:
        taken = names(func) | {block}
        outer, inner = [], []
        for var in change.inverse.variables:
            loop = fresh(var.name, taken)
            taken.add(loop)
            outer.append(Var(loop))
            if block:
                iterator = fresh(f"v{var.name}", taken)
                taken.add(iterator)
                inner.append(Var(iterator))
        object.__setattr__(self, "outer", tuple(outer))
        object.__setattr__(self, "inner", tuple(inner) if block else tuple(outer))
        object.__setattr__(self, "shape", change.new.shape)

    @property
    def iters(self) -> tuple[Iter, ...]:
        parts = zip(self.inner, self.shape, self.outer, strict=True)
        return tuple(Iter(var, extent, "spatial", loop) for var, extent, loop in parts)

    def loops(self, body: Stmt) -> Stmt:
        return loops(list(zip(self.outer, self.shape, strict=True)), body)


class _Placement:
    """Finds the place of the epilogue, in the scope that allocates the buffer, and puts it there."""

    def __init__(self, func: PrimFunc, change: Change) -> None:
        self.func, self.change = func, change
        self.name = change.new.name

    def placed(self) -> PrimFunc:
        if self.change.new in self.func.params:
            body = self.func.body
            return self.func.with_body(replace(body, body=self.below(body.body)))
        body = self.find(self.func.body)
        assert isinstance(body, Block)
        return self.func.with_body(body)

    def find(self, node: Node) -> Node:
        """The tree with the epilogue inside the allocation's scope."""
        allocates = (isinstance(node, Block) and self.change.new in node.allocs) or (
            isinstance(node, Allocate) and node.buffer == self.change.new
        )
        if allocates:
            assert isinstance(node, (Block, Allocate))
            return replace(node, body=self.below(node.body)) if self.writes(node.body) else node
        result: Node = rebuild(node, lambda child: self.find(child) if isinstance(child, Stmt) else child)
        return result

    def writes(self, node: Node) -> bool:
        return any(s.buffer.memory == self.name for s in stores(node))

    def below(self, stmt: Stmt) -> Stmt:
        """A sequence with the epilogue after the statement of the last writer."""
        items = list(stmt.stmts) if isinstance(stmt, Seq) else [stmt]
        last = max(k for k, item in enumerate(items) if self.writes(item))
        for item in items[:last]:
            self.refuse_reader(item)
        if isinstance(items[last], (Let, Declare, Allocate, Attr)) or self.is_straight(items[last]):
            item = items[last]
            items[last] = replace(item, body=self.below(item.body))  # type: ignore[attr-defined]
        else:
            self.refuse_reader(items[last])
            items.insert(last + 1, self.epilogue(items[last]))
        return seq(items)

    def is_straight(self, item: Stmt) -> bool:
        """Whether `item` is an opaque block that runs once and holds readers, too."""
        runs_once = isinstance(item, Block) and not item.iters and item.predicate == TRUE and item.init is None
        return runs_once and _foreign_reader(item, self.name) is not None

    def refuse_reader(self, item: Stmt) -> None:
        reader = _foreign_reader(item, self.name)
        if reader is not None:
            raise _Interleaved(f"{_place(item, reader)} reads it before the last writer is done")

    def epilogue(self, writer: Stmt) -> Stmt:
        form = _form_of(writer, lambda s: isinstance(s, Store) and s.buffer.memory == self.name)
        name = fresh(f"{self.change.old.name}_padding", names(self.func))
        axes = _Axes(self.func, self.change, name if form == BLOCK else "")
        padding = self.change.padding(axes.inner)
        body = self.stores(self.change.pad_value.at(axes.inner), axes.inner)
        if form == BLOCK:
            predicate = substitute(padding, dict(zip(axes.inner, axes.outer, strict=True)))
            return axes.loops(Block(name, axes.iters, body, predicate))
        guarded = If(padding, body)
        return axes.loops(Block(name, (), guarded) if form == OPAQUE else guarded)

    def stores(self, pieces: Sequence[Piece], point: Sequence[Var]) -> Stmt:
        found = [
            (cond, Store(self.change.new, tuple(point), value)) for cond, value in pieces if value is not None
        ]
        return seq([store if cond == TRUE else If(cond, store) for cond, store in found])


def _foreign_reader(node: Stmt, name: str) -> Stmt | None:
    """A statement below that reads the buffer other than to update it; assumptions read nothing."""
    if isinstance(node, Assume) or (isinstance(node, Store) and node.buffer.memory == name):
        return None
    for child in children(node):
        if isinstance(child, Stmt):
            found = _foreign_reader(child, name)
            if found is not None:
                return found
        elif _reads(child, name):
            return node
    return None


def _reads(node: Node, name: str) -> bool:
    return any(isinstance(n, Load) and n.buffer.memory == name for n in walk(node))


def _place(item: Stmt, reader: Stmt) -> str:
    """Where a reader stands, in words."""
    blocks = [b.name for b in walk(item) if isinstance(b, Block) and any(n is reader for n in walk(b))]
    if blocks:
        return f"block `{blocks[-1]}`"
    around = [f.var.name for f in walk(item) if isinstance(f, For) and any(n is reader for n in walk(f))]
    what = f"the store to `{reader.buffer.name}`" if isinstance(reader, Store) else f"a {type(reader).__name__}"
    return what + (f" in loop `{around[0]}`" if around else "")


def _form_of(root: Stmt, wanted: Callable[[Stmt], bool]) -> str:
    """The innermost kind of block around the last statement below `root` that is `wanted`; the root counts as none."""
    form = BARE

    def visit(stmt: Stmt, around: str) -> None:
        nonlocal form
        if isinstance(stmt, Block) and stmt is not root:
            around = BLOCK if stmt.iters else OPAQUE
        elif isinstance(stmt, Block):
            around = BLOCK if stmt.iters else BARE if stmt.name == "root" else OPAQUE
        below = [c for c in children(stmt) if isinstance(c, Stmt)]
        if not below and wanted(stmt):
            form = around
        for child in below:
            visit(child, around)

    visit(root, BARE)
    return form
