"""What a layout's padding means, written into the program.

For a buffer that the function writes, the epilogue stores the pad value::

    for io, ii in T.grid(4, 4):
        if 14 <= 4 * io + ii:
            B[io, ii] = 0

after the outermost loop of the last writer inside the buffer's allocation scope, and before
every reader.  For an input, the function begins with what it may rely on::

    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or A[io, ii] == 0)

Both are bare loops beside bare loops, inside the opaque block around them if there is one, an
opaque block beside opaque blocks, and a block with iterators beside such.
Source: RFC 0077, "Enhancement - transform_layout".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..affine.sets import Domain, NotAffine, Unknown, access_map, box, points
from ..arith.intervals import negate
from ..dataflow.contents import held, reading
from ..dataflow.instances import instances
from ..dataflow.writers import Contradiction
from ..expr import FALSE, TRUE, Binary, Buffer, Call, Expr, Extent, Load, Undef, Var, binary, substitute
from ..layout.pad_value import PadValue
from ..node import Node, children, rebuild, walk
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
    memories_read,
    names,
    seq,
    stores,
)
from ..text import expr_text
from .relayout import Change, LayoutError

BARE, OPAQUE, BLOCK = "bare", "opaque", "block"


@dataclass(frozen=True)
class Padding:
    """The elements of `buffer` that satisfy `condition` over `axes`, and what they hold."""

    buffer: Buffer
    axes: tuple[Var, ...]
    condition: Expr
    pad_value: PadValue

    @staticmethod
    def of(change: Change) -> Padding:
        """The padding that a layout makes, with its physical axes under readable names (``io``, ``ii``)."""
        axes = change.inverse.variables
        return Padding(change.new, axes, change.padding(axes), change.pad_value)

    def at(self, point: Sequence[Expr]) -> Expr:
        """The condition of being padding, for these index expressions."""
        result: Expr = substitute(self.condition, dict(zip(self.axes, point, strict=True)))
        return result

    @property
    def stores_nothing(self) -> bool:
        """Whether padding is forbidden, or undef: no store would be seen."""
        return all(value is None or isinstance(value, Undef) for _, value in self.pad_value.pieces)

    def epilogue(self, func: PrimFunc, name: str, form: str) -> Stmt:
        """``for p: if p is padding: buffer[p] = pad_value(p)``, with names that are free in `func`."""
        axes = _Axes.over(func, self, name if form == BLOCK else "")
        found = [
            (cond, Store(self.buffer, tuple(axes.inner), value))
            for cond, value in self.pad_value.at(axes.inner)
            if value is not None
        ]
        body = seq([store if cond == TRUE else If(cond, store) for cond, store in found])
        if form == BLOCK:
            return axes.loops(Block(name, axes.iters, body, self.at(axes.outer)))
        guarded = If(self.at(axes.inner), body)
        return axes.loops(Block(name, (), guarded) if form == OPAQUE else guarded)

    def assumption(self, func: PrimFunc, name: str, form: str) -> Stmt | None:
        """``for p: assume(p is no padding or buffer[p] == pad_value(p))``; None where nothing is held."""
        axes = _Axes.over(func, self, name if form == BLOCK else "")
        found: list[Stmt] = []
        for cond, value in self.pad_value.at(axes.inner):
            if value is not None:
                data = negate(binary("and", self.at(axes.inner), cond))
                held = Binary("==", Load(self.buffer, tuple(axes.inner)), value)
                found.append(Assume(binary("or", data, held)))
        if not found:
            return None
        return axes.loops(Block(name, axes.iters, seq(found)) if form == BLOCK else seq(found))


@dataclass(frozen=True)
class _Axes:
    """Loops over the axes of padding; for a block, with iterators bound to them."""

    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    extents: tuple[Extent, ...]

    @staticmethod
    def over(func: PrimFunc, padding: Padding, block: str) -> _Axes:
        """Axes with free names; iterators only for a `block`."""
        taken = names(func) | {block}
        outer: list[Var] = []
        inner: list[Var] = []
        for var in padding.axes:
            loop = fresh(var.name, taken)
            taken.add(loop)
            outer.append(Var(loop))
            if block:
                iterator = fresh(f"v{var.name}", taken)
                taken.add(iterator)
                inner.append(Var(iterator))
        return _Axes(tuple(outer), tuple(inner if block else outer), padding.buffer.extents)

    @property
    def iters(self) -> tuple[Iter, ...]:
        parts = zip(self.inner, self.extents, self.outer, strict=True)
        return tuple(Iter(var, extent, "spatial", loop) for var, extent, loop in parts)

    def loops(self, body: Stmt) -> Stmt:
        return loops(list(zip(self.outer, self.extents, strict=True)), body)


# ---------------------------------------------------------------- what a pad value may read


def check_pad_value(padding: Padding, earlier: Expr = FALSE) -> None:
    """Raise LayoutError unless the pad value reads only logical elements of the buffer itself (condition 4).

    `earlier` is a condition over the axes of `padding` for what layouts before this one have padded.
    """
    axes = padding.pad_value.variables
    inside = padding.at(axes)
    readable = negate(binary("or", inside, substitute(earlier, dict(zip(padding.axes, axes, strict=True)))))
    for cond, value in padding.pad_value.at(axes):
        _check_reads(padding, cond, readable, (inside,))
        if value is not None:
            _check_reads(padding, value, readable, (inside, cond))


def _check_reads(padding: Padding, expr: Expr, readable: Expr, conds: tuple[Expr, ...]) -> None:
    if isinstance(expr, Load):
        _check_load(padding, expr, readable, conds)
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, then, orelse = expr.args
        _check_reads(padding, cond, readable, conds)
        _check_reads(padding, then, readable, (*conds, cond))
        _check_reads(padding, orelse, readable, (*conds, negate(cond)))
        return
    for child in children(expr):
        if isinstance(child, Expr):
            _check_reads(padding, child, readable, conds)


def _check_load(padding: Padding, load: Load, readable: Expr, conds: tuple[Expr, ...]) -> None:
    name = padding.buffer.name
    if load.buffer.name != name:
        raise LayoutError(f"(4) the pad value of `{name}` reads `{load.buffer.name}`; it may only read `{name}` itself")
    if any(isinstance(n, Undef) for index in load.indices for n in walk(index)):
        raise LayoutError(f"(4) the pad value of `{name}` uses undef in an index")
    axes = padding.pad_value.variables
    whole = box(axes, padding.buffer.shape)
    try:
        domain = points(Domain(tuple(zip(axes, padding.buffer.shape, strict=True)), conds))
        logical = whole.where(readable)
        point = domain.subtract(access_map(domain, load.indices, axes).preimage(logical)).first()
    except (NotAffine, Unknown) as error:
        raise LayoutError(f"(4) it is not known whether `{expr_text(load)}` is a logical element: {error}") from None
    if point is not None:
        where = ", ".join(f"{k}={v}" for k, v in point.items())
        raise LayoutError(f"(4) at {where} the pad value reads `{expr_text(load)}`, which is no logical element")


# ---------------------------------------------------------------- inputs


def with_assumption(func: PrimFunc, padding: Padding) -> PrimFunc:
    """The function that begins with what it may rely on of an input."""
    form = _form_of(func.body, lambda s: padding.buffer.name in memories_read(s))
    name = fresh(f"{padding.buffer.name}_assume", names(func))
    nest = padding.assumption(func, name, BLOCK if form == BLOCK else BARE)
    if nest is None:
        return func
    return func.with_body(replace(func.body, body=seq([nest, func.body.body])))


# ---------------------------------------------------------------- what the function writes


def with_epilogue(func: PrimFunc, padding: Padding) -> PrimFunc:
    """The function that stores the pad value in the padding, after the last writer.

    Raises LayoutError, condition 6, where writers and readers interleave; for undef, which
    stores nothing, the program then stays as it is.  Raises LayoutError, condition 4, where
    the pad value reads what may not be written.
    """
    placement = _Placement(func, padding)
    try:
        result = placement.placed()
        _check_written(result, placement.made)
        return result
    except _Interleaved as error:
        if padding.stores_nothing:
            return func
        raise LayoutError(
            f"(6) the padding of `{padding.buffer.name}` cannot be written after its last writer and before every "
            f"reader: {error}"
        ) from None


def _check_written(func: PrimFunc, epilogues: Sequence[Stmt]) -> None:
    """Condition 4: what the pad value reads holds something where the epilogue stands."""
    if not any(memories_read(epilogue) for epilogue in epilogues):
        return
    program = instances(func)
    for statement in (s for epilogue in epilogues for s in program.below(epilogue)):
        for access in statement.reads:
            assert isinstance(access.node, Load)
            text = expr_text(access.node)
            try:
                missing = held(program, reading(statement, access), exact=True).missing.first()
            except (NotAffine, Unknown, Contradiction) as error:
                raise LayoutError(f"(4) it is not known whether `{text}` has been written: {error}") from None
            if missing is not None:
                where = ", ".join(f"{k}={v}" for k, v in missing.items())
                raise LayoutError(f"(4) at {where} the pad value reads `{text}`, which may not have been written")


class _Interleaved(Exception):
    """A reader stands before, or in one loop nest with, the last writer."""


class _Placement:
    """Finds the place of the epilogue, in the scope that allocates the buffer, and puts it there."""

    def __init__(self, func: PrimFunc, padding: Padding) -> None:
        self.func, self.padding = func, padding
        self.name = padding.buffer.name
        self.made: list[Stmt] = []

    def placed(self) -> PrimFunc:
        root = self.func.body
        if self.padding.buffer in self.func.params:
            return self.func.with_body(replace(root, body=self.below(root.body)))
        body = self.find(root)
        assert isinstance(body, Block)
        return self.func.with_body(body)

    def find(self, node: Node) -> Node:
        """The tree with the epilogue inside the allocation's scope."""
        buffer = self.padding.buffer
        allocates = (isinstance(node, Block) and buffer in node.allocs) or (
            isinstance(node, Allocate) and node.buffer == buffer
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
            items[last] = replace(item, body=self.below(item.body))  # type: ignore[attr-defined, type-var]
        else:
            self.refuse_reader(items[last])
            items.insert(last + 1, self.epilogue(items[last]))
        return seq(items)

    def is_straight(self, item: Stmt) -> bool:
        """Whether `item` is an opaque block that runs once, and around the writer's outermost loop or a reader."""
        runs_once = isinstance(item, Block) and not item.iters and item.predicate == TRUE and item.init is None
        if not runs_once:
            return False
        loops_inside = any(isinstance(n, For) and self.writes(n) for n in walk(item))
        return loops_inside or _foreign_reader(item, self.name) is not None

    def refuse_reader(self, item: Stmt) -> None:
        reader = _foreign_reader(item, self.name)
        if reader is not None:
            raise _Interleaved(f"{_place(item, reader)} reads it before the last writer is done")

    def epilogue(self, writer: Stmt) -> Stmt:
        form = _form_of(writer, lambda s: isinstance(s, Store) and s.buffer.memory == self.name)
        made = self.padding.epilogue(self.func, fresh(f"{self.name}_padding", names(self.func)), form)
        self.made.append(made)
        return made


def _foreign_reader(node: Stmt, name: str) -> Stmt | None:
    """A statement below that reads the buffer other than to update it; assumptions read nothing."""
    if isinstance(node, Assume) or (isinstance(node, Store) and node.buffer.memory == name):
        return None
    for child in children(node):
        if isinstance(child, Stmt):
            found = _foreign_reader(child, name)
            if found is not None:
                return found
        elif name in memories_read(child):
            return node
    return None


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
