"""What every program must satisfy, before and after each transformation.

1. A name is bound once in a function, and is an identifier; block names differ.
2. A variable is used only below the loop, iterator or let that binds it; inside a
   block with iterators the loops around it are not visible.
3. A buffer is used only where it is a parameter or allocated, as it was declared there.
4. Loops and iterators: known kinds, integer ranges of at least one, a thread for
   ``thread_binding`` and only for it.
5. Types: operands agree, indices are as many integers as there are dimensions,
   conditions are bool, a stored value has the type of the element.
6. A block's bindings and predicate speak of what is around the block.
7. An init belongs to a block with reduce iterators, and uses none of them.
8. The all-zero reduce instance is the first of every spatial point (`verify_init`).
9. Buffers: known type, positive extents, ascending axis separators; an alias
   names memory that is defined.
10. A layout names a buffer parameter, once.

Bounds are not verified here: see `bounds.check_in_bounds`.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise

from .. import dtypes
from ..expr import Binary, Buffer, Expr, LetExpr, Load, Not, Undef, Var
from ..node import children, walk
from ..script.base import NAMESPACES
from ..script.printer import expr_text
from ..stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    THREAD_AXES,
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    Module,
    PrimFunc,
    Seq,
    Stmt,
    Store,
)
from .init import Surroundings, init_fault
from .types import TypeFault, check_indices, check_types

__all__ = ["VerifyError", "verify"]


class VerifyError(ValueError):
    """A program that breaks rule number `rule`."""

    def __init__(self, rule: int, message: str) -> None:
        self.rule = rule
        self.message = message
        super().__init__(f"rule {rule}: {message}")

    def __reduce__(self) -> tuple[type[VerifyError], tuple[int, str]]:
        return type(self), (self.rule, self.message)


@lru_cache(maxsize=1024)
def _verified(func: PrimFunc) -> None:
    _Verifier(func).function()


def verify(program: PrimFunc | Module) -> None:
    """Raise VerifyError, naming the rule, unless `program` satisfies the rules above."""
    if isinstance(program, PrimFunc):
        _verified(program)
        return
    names = [f.name for f in program.functions]
    for name in names:
        if names.count(name) > 1:
            raise VerifyError(1, f"the module has several functions `{name}`")
    for func in program.functions:
        _verified(func)


def _escaping(e: Expr) -> set[Var]:
    """Variables that are used in `e` and not bound around that use."""
    if isinstance(e, Var):
        return {e}
    if isinstance(e, LetExpr):
        return _escaping(e.value) | (_escaping(e.body) - {e.var})
    return {v for child in children(e) if isinstance(child, Expr) for v in _escaping(child)}


@lru_cache(maxsize=65536)
def _used(e: Expr) -> tuple[tuple[Var, ...], tuple[Buffer, ...], tuple[LetExpr, ...]]:
    """Free variables, buffers and let expressions in `e`, in order."""
    nodes = list(walk(e))
    lets = tuple(n for n in nodes if isinstance(n, LetExpr))
    bound = {n.var for n in lets}
    free = dict.fromkeys(n for n in nodes if isinstance(n, Var) and n not in bound)
    return tuple(free), tuple(dict.fromkeys(n.buffer for n in nodes if isinstance(n, Load))), lets


class _Verifier:
    """Walks one function with the names that are visible."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.bound: set[str] = set()
        self.blocks: list[str] = []
        self.block_names: set[str] = set()
        self.lets: dict[str, Expr] = {}
        self.variables: set[Var] = set()
        self.loops: set[Var] = set()
        self.buffers: dict[str, Buffer] = {}
        self.around = Surroundings((), ())

    def fail(self, rule: int, message: str) -> VerifyError:
        where = f"block `{self.blocks[-1]}`: " if len(self.blocks) > 1 else ""
        return VerifyError(rule, f"`{self.func.name}`: {where}{message}")

    # ------------------------------------------------------------ names

    def function(self) -> None:
        self._identifier(self.func.name)
        for param in self.func.params:
            self._bind(param.name)
            if isinstance(param, Var):
                self.variables.add(param)
            else:
                self._buffer(param, alias=False)
        self._layouts()
        self.stmt(self.func.body)

    def _identifier(self, name: str) -> None:
        if not name.isidentifier() or keyword.iskeyword(name) or name in NAMESPACES:
            raise self.fail(1, f"`{name}` is no name: names are identifiers other than Python's words and `T`")

    def _bind(self, name: str) -> None:
        self._identifier(name)
        if name in self.bound:
            raise self.fail(1, f"the name `{name}` is bound twice")
        self.bound.add(name)

    def _layouts(self) -> None:
        seen: set[str] = set()
        for layout in self.func.layouts:
            if layout.param in seen or layout.param not in self.buffers:
                raise self.fail(10, f"a layout names `{layout.param}`, which is no buffer parameter or has one already")
            if not layout.logical_shape or min(layout.logical_shape) < 1:
                raise self.fail(10, f"the logical shape of `{layout.param}` is {layout.logical_shape}")
            seen.add(layout.param)

    def _buffer(self, buffer: Buffer, alias: bool) -> None:
        """Make a declared buffer visible."""
        try:
            dtypes.split_dtype(buffer.dtype)
        except ValueError as error:
            raise self.fail(9, f"buffer `{buffer.name}`: {error}") from None
        if any(e < 1 for e in buffer.shape):
            raise self.fail(9, f"buffer `{buffer.name}` has the shape {buffer.shape}; extents are at least 1")
        cuts = (0, *buffer.axis_separators, len(buffer.shape))
        if buffer.axis_separators and any(a >= b for a, b in pairwise(cuts)):
            raise self.fail(9, f"the axis separators {buffer.axis_separators} of `{buffer.name}` must ascend "
                            f"strictly between 0 and {len(buffer.shape)}")  # fmt: skip
        owner = self.buffers.get(buffer.data)
        if alias and owner is None:
            raise self.fail(9, f"buffer `{buffer.name}` shares memory of `{buffer.data}`, which is not defined here")
        if owner is not None:
            self._view(buffer, owner)
        if buffer.data and not alias:
            raise self.fail(9, f"buffer `{buffer.name}` owns its memory and cannot name `{buffer.data}`")
        self.buffers[buffer.name] = buffer

    def _view(self, buffer: Buffer, owner: Buffer) -> None:
        name = buffer.name
        if owner.data:
            raise self.fail(9, f"buffer `{name}` names the view `{owner.name}`; its memory is `{owner.data}`")
        if buffer.nbytes > owner.nbytes:
            raise self.fail(9, f"buffer `{name}` of {buffer.nbytes} bytes views the {owner.nbytes} of `{owner.name}`")
        if buffer.scope != owner.scope:
            raise self.fail(9, f"buffer `{name}` in {buffer.scope} views `{owner.name}`, which is in {owner.scope}")

    @contextmanager
    def _memory(self, buffers: Sequence[Buffer], alias: bool = False) -> Iterator[None]:
        for buffer in buffers:
            self._bind(buffer.name)
            self._buffer(buffer, alias)
        yield
        for buffer in buffers:
            del self.buffers[buffer.name]

    @contextmanager
    def _variable(self, var: Var) -> Iterator[None]:
        self._bind(var.name)
        self.variables.add(var)
        yield
        self.variables.discard(var)

    # ------------------------------------------------------------ expressions

    def expr(self, e: Expr, rule: int = 2) -> None:
        free, buffers, lets = _used(e)
        for var in free:
            if var not in self.variables:
                raise self._invisible(var, e, rule)
        for buffer in buffers:
            self.access(buffer)
        if lets:
            self._lets(e, lets)
        try:
            check_types(e)
        except (TypeFault, ValueError) as error:
            raise self.fail(5, str(error)) from None

    def _lets(self, e: Expr, lets: Sequence[LetExpr]) -> None:
        """A let expression's variable is used in its body alone, and always means the same value."""
        for let in lets:
            if let.var.name not in self.lets:
                self._bind(let.var.name)
                self.lets[let.var.name] = let.value
            if self.lets[let.var.name] != let.value:
                raise self.fail(1, f"the name `{let.var.name}` is bound twice, to `{expr_text(let.value)}` "
                                f"and to `{expr_text(self.lets[let.var.name])}`")  # fmt: skip
        escaped = {v for v in _escaping(e) if v.name in self.lets}
        if escaped:
            raise self.fail(2, f"`{expr_text(e)}` uses `{min(v.name for v in escaped)}` outside of its let expression")

    def _invisible(self, var: Var, e: Expr, rule: int) -> VerifyError:
        if var in self.loops:
            return self.fail(2, f"`{expr_text(e)}` uses the loop `{var.name}` around the block; bind an iterator to it")
        other = next((v for v in self.variables if v.name == var.name), None)
        known = f"; here it has type {other.dtype}, not {var.dtype}" if other is not None else ""
        return self.fail(rule, f"`{expr_text(e)}` uses `{var.name}`, which is not defined here{known}")

    def access(self, buffer: Buffer) -> None:
        declared = self.buffers.get(buffer.name)
        if declared is None:
            raise self.fail(3, f"buffer `{buffer.name}` is used where it is not allocated")
        if declared != buffer:
            raise self.fail(3, f"buffer `{buffer.name}` is used as {_describe(buffer)}, "
                            f"but is declared as {_describe(declared)}")  # fmt: skip

    def condition(self, e: Expr, rule: int = 2) -> None:
        self.expr(e, rule)
        if e.dtype != "bool":
            raise self.fail(5, f"the condition `{expr_text(e)}` has type {e.dtype}")
        if any(isinstance(n, Undef) for n in walk(e)):
            raise self.fail(5, f"the condition `{expr_text(e)}` depends on undef")

    # ------------------------------------------------------------ statements

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Seq():
                for item in stmt.stmts:
                    self.stmt(item)
            case For():
                self._for(stmt)
            case If():
                self._if(stmt)
            case Store():
                self._store(stmt)
            case Let():
                self.expr(stmt.value)
                if stmt.value.dtype != stmt.var.dtype:
                    raise self.fail(5, f"`{stmt.var.name}` has type {stmt.var.dtype}, its value {stmt.value.dtype}")
                with self._variable(stmt.var):
                    self.stmt(stmt.body)
            case Attr():
                if isinstance(stmt.value, Expr):
                    self.expr(stmt.value)
                self.stmt(stmt.body)
            case Evaluate():
                self.expr(stmt.value)
            case Assume():
                self._assume(stmt)
            case Allocate() | Declare():
                with self._memory((stmt.buffer,), alias=isinstance(stmt, Declare)):
                    self.stmt(stmt.body)
            case Block():
                self._block(stmt)

    def _for(self, stmt: For) -> None:
        name = stmt.var.name
        self.expr(stmt.extent)
        if stmt.kind not in LOOP_KINDS:
            raise self.fail(4, f"loop `{name}` has the unknown kind `{stmt.kind}`; known are {', '.join(LOOP_KINDS)}")
        if (stmt.kind == "thread_binding") != bool(stmt.thread) or (stmt.thread and stmt.thread not in THREAD_AXES):
            raise self.fail(4, f"loop `{name}` of kind {stmt.kind} has the thread `{stmt.thread}`")
        if not dtypes.is_int(stmt.var.dtype) or stmt.extent.dtype != stmt.var.dtype:
            raise self.fail(4, f"loop `{name}` has type {stmt.var.dtype}, its extent {stmt.extent.dtype}")
        with self._variable(stmt.var), self._step((stmt.var, stmt.extent)):
            self.loops.add(stmt.var)
            self.stmt(stmt.body)
            self.loops.discard(stmt.var)

    @contextmanager
    def _step(self, step: tuple[Var, Expr] | Expr) -> Iterator[None]:
        before = self.around
        self.around = Surroundings(before.outer, (*before.steps, step))
        yield
        self.around = before

    def _if(self, stmt: If) -> None:
        self.condition(stmt.cond)
        with self._step(stmt.cond):
            self.stmt(stmt.then)
        if stmt.orelse is not None:
            with self._step(Not(stmt.cond)):
                self.stmt(stmt.orelse)

    def _store(self, stmt: Store) -> None:
        self.access(stmt.buffer)
        for e in (*stmt.indices, stmt.value):
            self.expr(e)
        try:
            check_indices(stmt.buffer.name, stmt.indices, len(stmt.buffer.shape))
        except TypeFault as error:
            raise self.fail(5, str(error)) from None
        element = Load(stmt.buffer, stmt.indices).dtype
        if stmt.value.dtype != element:
            raise self.fail(5, f"`{expr_text(stmt.value)}` of type {stmt.value.dtype} is stored to "
                            f"`{stmt.buffer.name}`, whose element here has type {element}")  # fmt: skip

    def _assume(self, stmt: Assume) -> None:
        """Undef occurs in an assumption only as ``buffer[i] == undef``."""
        self.expr(stmt.cond)
        if stmt.cond.dtype != "bool":
            raise self.fail(5, f"the assumption `{expr_text(stmt.cond)}` has type {stmt.cond.dtype}")
        atoms = sum(
            isinstance(n, Binary) and n.op == "==" and (isinstance(n.a, Undef) != isinstance(n.b, Undef))
            for n in walk(stmt.cond)
        )
        if atoms != sum(isinstance(n, Undef) for n in walk(stmt.cond)):
            raise self.fail(5, f"`{expr_text(stmt.cond)}` uses undef other than in `buffer[i] == T.undef()`")

    # ------------------------------------------------------------ blocks

    def _block(self, block: Block) -> None:
        if not block.name or block.name in self.block_names:
            raise self.fail(1, f"the block name `{block.name}` is empty or used twice")
        self.block_names.add(block.name)
        self.blocks.append(block.name)
        for one in block.iters:
            self._iter(one)
        self.condition(block.predicate, 6)
        if block.init is not None:
            self._init(block)
        self._inside(block)
        self.blocks.pop()

    def _iter(self, one: Iter) -> None:
        self.expr(one.binding, 6)
        if one.kind not in ITER_KINDS or one.extent < 1:
            raise self.fail(4, f"iterator `{one.var.name}` has kind `{one.kind}` and extent {one.extent}")
        if not dtypes.is_int(one.var.dtype) or one.binding.dtype != one.var.dtype:
            raise self.fail(4, f"iterator `{one.var.name}` has type {one.var.dtype}, its binding {one.binding.dtype}")

    def _init(self, block: Block) -> None:
        assert block.init is not None
        if not block.reduce:
            raise self.fail(7, "there is an init, but no reduce iterator")
        used = {n for n in walk(block.init) if isinstance(n, Var)}
        for one in block.reduce:
            if one.var in used:
                raise self.fail(7, f"the init uses the reduce iterator `{one.var.name}`")
        fault = init_fault(block, self.around)
        if fault:
            raise self.fail(8, f"{fault}; decompose the reduction first")

    def _inside(self, block: Block) -> None:
        hidden = self.loops & self.variables if block.iters else set()
        before = self.around
        if block.iters:
            self.around = Surroundings(block.iters, ())
        self.variables -= hidden
        for one in block.iters:
            self._bind(one.var.name)
            self.variables.add(one.var)
        with self._memory(block.allocs):
            for part in (block.init, block.body):
                if part is not None:
                    self.stmt(part)
        self.variables -= {one.var for one in block.iters}
        self.variables |= hidden
        self.around = before


def _describe(buffer: Buffer) -> str:
    extra = f", separators {buffer.axis_separators}" if buffer.axis_separators else ""
    return f"{buffer.dtype}{list(buffer.shape)} in {buffer.scope}{extra}"
