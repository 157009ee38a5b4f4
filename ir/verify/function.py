"""One function against the rules: a walk with the names that are visible."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .. import dtypes
from ..caches import cached
from ..calls import Pointer, Region, values_of
from ..context import Context, Surroundings, start
from ..expr import (
    TRUE,
    Buffer,
    Call,
    Const,
    Expr,
    Extent,
    LetExpr,
    Load,
    Not,
    Var,
    binary,
    free_variables,
    reads_memory,
)
from ..functions import PREFETCH, STATEMENT_CALLS
from ..node import children, walk
from ..ranges import preconditions, unknown_sizes
from ..stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    THREAD_AXES,
    Allocate,
    Assert,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    Opaque,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
)
from ..syntax.base import NAMESPACES
from ..text import expr_text, extent_text, extents_text, shape_text
from ..type_check import check_indices, check_types
from .catalogue import VerifyError
from .form import annotations_fault, attribute_fault, sequence_fault
from .init import init_fault
from .undef import has_undef, undef_fault, without_atoms


@dataclass(frozen=True)
class Used:
    """Free variables, buffers and let expressions in an expression, in order, and whether it has an effect alone."""

    variables: tuple[Var, ...]
    buffers: tuple[Buffer, ...]
    lets: tuple[LetExpr, ...]
    acts: bool


@cached(65536)
def _used(e: Expr) -> Used:
    nodes = list(walk(e))
    lets = tuple(n for n in nodes if isinstance(n, LetExpr))
    bound = {n.var for n in lets}
    free = dict.fromkeys(n for n in nodes if isinstance(n, Var) and n not in bound)
    acts = any(isinstance(n, Call) and n.name in (PREFETCH, *STATEMENT_CALLS) for n in nodes)
    return Used(tuple(free), tuple(dict.fromkeys(n.buffer for n in nodes if isinstance(n, Load))), lets, acts)


def _escaping(e: Expr) -> set[Var]:
    """Variables that are used in `e` and not bound around that use."""
    if isinstance(e, Var):
        return {e}
    if isinstance(e, LetExpr):
        return _escaping(e.value) | (_escaping(e.body) - {e.var})
    return {v for child in children(e) if isinstance(child, Expr) for v in _escaping(child)}


def describe(buffer: Buffer) -> str:
    """``float32[4, 4] in global``."""
    extra = f", separators {buffer.axis_separators}" if buffer.axis_separators else ""
    extra += f", a view of `{buffer.data}`" if buffer.data else ""
    return f"{buffer.dtype}[{extents_text(buffer.extents)}] in {buffer.scope}{extra}"


class FunctionVerifier:
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
        self.around = Surroundings(given=preconditions(func))

    def fail(self, rule: int, message: str) -> VerifyError:
        where = f"block `{self.blocks[-1]}`: " if len(self.blocks) > 1 else ""
        return VerifyError(rule, f"`{self.func.name}`: {where}{message}")

    def refuse(self, rule: int, fault: str) -> None:
        """Raise unless `fault` is empty."""
        if fault:
            raise self.fail(rule, fault)

    def function(self) -> None:
        self._identifier(self.func.name)
        for param in self.func.params:
            self._bind(param.name)
            if isinstance(param, Var):
                self._type(param, scalar=True)
                self.variables.add(param)
            else:
                self._buffer(param, view=False)
        for size in self.func.sizes:
            self._bind(size.name)
            self._type(size, scalar=True)
            self.variables.add(size)
        self._ranges()
        self.refuse(13, annotations_fault(self.func.attrs, function=True))
        self._layouts()
        root = self.func.body
        if not isinstance(root, Block) or root.name != "root" or root.iters or root.predicate != TRUE or root.init:
            raise self.fail(6, "the body is no block `root` without iterators, predicate and init")
        self.stmt(root)

    # ------------------------------------------------------------ names

    def _identifier(self, name: str) -> None:
        if not name.isidentifier() or keyword.iskeyword(name) or name in NAMESPACES:
            raise self.fail(1, f"`{name}` is no name: names are identifiers other than Python's words and `T`")
        if not name.isascii() and unicodedata.normalize("NFKC", name) != name:
            raise self.fail(1, f"`{name}` is no name: its normal form is `{unicodedata.normalize('NFKC', name)}`")

    def _bind(self, name: str) -> None:
        self._identifier(name)
        if name in self.bound:
            raise self.fail(1, f"the name `{name}` is bound twice")
        self.bound.add(name)

    @contextmanager
    def _variable(self, var: Var) -> Iterator[None]:
        self._bind(var.name)
        self.variables.add(var)
        yield
        self.variables.discard(var)

    def _type(self, var: Var, scalar: bool = False) -> None:
        try:
            width = dtypes.lanes(var.dtype)
        except ValueError as error:
            raise self.fail(5, f"`{var.name}`: {error}") from None
        if scalar and width > 1:
            raise self.fail(5, f"the parameter `{var.name}` has the vector type {var.dtype}")

    def _layouts(self) -> None:
        seen: set[str] = set()
        shapes = {buffer.name: buffer.extents for buffer in self.func.buffers}
        for name, layout in self.func.layouts:
            if name in seen or name not in shapes:
                raise self.fail(10, f"a layout names `{name}`, which is no buffer parameter or has one already")
            if not layout.logical_shape or min(layout.logical_shape) < 1:
                raise self.fail(10, f"the logical shape of `{name}` is {layout.logical_shape}")
            if layout.physical_shape != shapes[name]:
                raise self.fail(10, f"`{name}` has the shape {shapes[name]}, its layout {layout.physical_shape}")
            seen.add(name)

    # ------------------------------------------------------------ extents

    def _ranges(self) -> None:
        """Arrays give every size, and some values meet all that is known of the integers."""
        if not self.func.stated:
            return
        unknown = unknown_sizes(self.func)
        if unknown:
            raise self.fail(15, f"no array gives `{unknown[0].name}`, which stands alone in no extent of a parameter; "
                            "make it a parameter")  # fmt: skip
        if start(self.func).facts.impossible:
            raise self.fail(15, "no values of its integers meet all of its extents and assumptions")

    def _extent(self, extent: Extent, what: str) -> None:
        """An extent that is an expression is computed from the function's integers, and at least 1."""
        if not isinstance(extent, Expr):
            return
        try:
            check_types(extent)
        except ValueError as error:
            raise self.fail(5, str(error)) from None
        own = frozenset(self.func.integers)
        computed = free_variables(extent) <= own and not reads_memory(extent) and not has_undef(extent)
        if extent.dtype != dtypes.INDEX or not computed:
            raise self.fail(15, f"{what} has the extent `{extent_text(extent)}`, which is no number of type "
                            f"{dtypes.INDEX} computed from the function's integers")  # fmt: skip
        here = start(self.func)
        if here.facts.interval(extent)[0] >= 1 or here.implies(binary(">=", extent, 1)):
            return
        raise self.fail(15, f"{what} has the extent `{extent_text(extent)}`, which may be less than 1"
                        f"{_example(here, binary('<', extent, 1))}; say more of it by `T.assume`")  # fmt: skip

    # ------------------------------------------------------------ memory

    def _buffer(self, buffer: Buffer, view: bool) -> None:
        """Make a declared buffer visible."""
        name = buffer.name
        try:
            dtypes.split_dtype(buffer.dtype)
        except ValueError as error:
            raise self.fail(9, f"buffer `{name}`: {error}") from None
        for extent in buffer.extents:
            self._extent(extent, f"buffer `{name}`")
        if any(not isinstance(e, Expr) and e < 1 for e in buffer.extents):
            raise self.fail(9, f"buffer `{name}` has the shape {shape_text(buffer.extents)}; extents are at least 1")
        nbytes = buffer.nbytes if buffer.is_fixed else 0
        if nbytes >= 2**63 or not buffer.scope:
            raise self.fail(9, f"buffer `{name}` of {nbytes} bytes in `{buffer.scope}`: fewer than 2**63 bytes "
                            "in a scope that has a name")  # fmt: skip
        cuts = (0, *buffer.axis_separators, buffer.rank)
        if buffer.axis_separators and any(a >= b for a, b in pairwise(cuts)):
            raise self.fail(9, f"the axis separators {buffer.axis_separators} of `{name}` must ascend "
                            f"strictly between 0 and {buffer.rank}")  # fmt: skip
        if view:
            self._view(buffer)
        elif buffer.data:
            raise self.fail(11, f"buffer `{name}` owns its memory and cannot name `{buffer.data}`")
        self.buffers[name] = buffer

    def _view(self, buffer: Buffer) -> None:
        name, owner = buffer.name, self.buffers.get(buffer.data)
        if owner is None:
            raise self.fail(11, f"buffer `{name}` shares memory of `{buffer.data}`, which is not defined here")
        if owner.data:
            raise self.fail(11, f"buffer `{name}` names the view `{owner.name}`; its memory is `{owner.data}`")
        if not (buffer.is_fixed and owner.is_fixed):
            if (buffer.extents, buffer.dtype) != (owner.extents, owner.dtype):
                raise self.fail(15, f"buffer `{name}` views `{owner.name}`, whose extents are expressions, by others")
        elif buffer.nbytes > owner.nbytes:
            raise self.fail(11, f"buffer `{name}` of {buffer.nbytes} bytes views the {owner.nbytes} of `{owner.name}`")
        if buffer.scope != owner.scope:
            raise self.fail(11, f"buffer `{name}` in {buffer.scope} views `{owner.name}`, which is in {owner.scope}")

    @contextmanager
    def _memory(self, buffers: Sequence[Buffer], view: bool = False) -> Iterator[None]:
        for buffer in buffers:
            self._bind(buffer.name)
            self._buffer(buffer, view)
        yield
        for buffer in buffers:
            del self.buffers[buffer.name]

    def access(self, buffer: Buffer) -> None:
        declared = self.buffers.get(buffer.name)
        if declared is None:
            raise self.fail(3, f"buffer `{buffer.name}` is used where it is not allocated")
        if declared != buffer:
            raise self.fail(3, f"buffer `{buffer.name}` is used as {describe(buffer)}, "
                            f"but is declared as {describe(declared)}")  # fmt: skip

    # ------------------------------------------------------------ expressions

    def expr(self, e: Expr, rule: int = 2) -> None:
        """A valid expression over visible names, without undef."""
        self._value(e, rule)
        if has_undef(e):
            raise self.fail(12, f"`{expr_text(e)}` is undef, but decides, binds or is compared")

    def _value(self, e: Expr, rule: int = 2) -> None:
        """A valid expression over visible names, with a value."""
        if _used(e).acts:
            raise self.fail(5, f"`{expr_text(e)}` has no value; a prefetch or a barrier is a statement of its own")
        self._meaning(e, rule)

    def _meaning(self, e: Expr, rule: int = 2) -> None:
        """A valid expression over visible names, or a prefetch or a barrier."""
        used = _used(e)
        for var in used.variables:
            if var not in self.variables:
                raise self._invisible(var, e, rule)
        for buffer in used.buffers:
            self.access(buffer)
        if used.lets:
            self._lets(e, used.lets)
        try:
            check_types(e)
        except ValueError as error:
            raise self.fail(5, str(error)) from None

    def _lets(self, e: Expr, lets: Sequence[LetExpr]) -> None:
        """A let expression's variable is used in its body alone, and always means the same value."""
        for let in lets:
            name = let.var.name
            if name not in self.lets:
                self._bind(name)
                self.lets[name] = let.value
            if self.lets[name] != let.value:
                raise self.fail(1, f"the name `{name}` is bound twice, to `{expr_text(self.lets[name])}` "
                                f"and to `{expr_text(let.value)}`")  # fmt: skip
        escaped = {v.name for v in _escaping(e) if v.name in self.lets}
        if escaped:
            raise self.fail(2, f"`{expr_text(e)}` uses `{min(escaped)}` outside of its let expression")

    def _invisible(self, var: Var, e: Expr, rule: int) -> VerifyError:
        if var in self.loops:
            return self.fail(2, f"`{expr_text(e)}` uses the loop `{var.name}` around the block; bind an iterator to it")
        other = next((v for v in self.variables if v.name == var.name), None)
        known = f"; here it has type {other.dtype}, not {var.dtype}" if other is not None else ""
        return self.fail(rule, f"`{expr_text(e)}` uses `{var.name}`, which is not defined here{known}")

    def condition(self, e: Expr, rule: int = 2) -> None:
        self.expr(e, rule)
        if e.dtype != "bool":
            raise self.fail(5, f"the condition `{expr_text(e)}` has type {e.dtype}")

    # ------------------------------------------------------------ statements

    def stmt(self, stmt: Stmt, alone: bool = True) -> None:
        """`alone` if the statement is the whole body of something."""
        _STATEMENTS[type(stmt)](self, stmt) if not isinstance(stmt, Seq) else self._seq(stmt, alone)

    def _seq(self, stmt: Seq, alone: bool) -> None:
        self.refuse(13, sequence_fault(stmt, alone))
        for item in stmt.stmts:
            self.stmt(item, alone=False)

    def _for(self, stmt: For) -> None:
        name, dtype = stmt.var.name, stmt.var.dtype
        self.expr(stmt.extent)
        if stmt.kind not in LOOP_KINDS:
            raise self.fail(4, f"loop `{name}` has the unknown kind `{stmt.kind}`; known are {', '.join(LOOP_KINDS)}")
        if (stmt.kind == "thread_binding") != bool(stmt.thread) or (stmt.thread and stmt.thread not in THREAD_AXES):
            raise self.fail(4, f"loop `{name}` of kind {stmt.kind} has the thread `{stmt.thread}`")
        if not _is_index(stmt.var) or stmt.extent.dtype != dtype:
            raise self.fail(4, f"loop `{name}` has type {dtype}, its extent {stmt.extent.dtype}")
        if isinstance(stmt.extent, Const) and stmt.extent.value < 0:
            raise self.fail(4, f"loop `{name}` has the extent {stmt.extent.value}")
        self.refuse(13, annotations_fault(stmt.annotations))
        with self._variable(stmt.var), self._step((stmt.var, stmt.extent)):
            self.loops.add(stmt.var)
            self.stmt(stmt.body)
            self.loops.discard(stmt.var)

    @contextmanager
    def _step(self, step: tuple[Var, Expr] | Expr) -> Iterator[None]:
        before = self.around
        self.around = before.then(step)
        yield
        self.around = before

    def _if(self, stmt: If) -> None:
        if _is_masked_store(stmt):
            self.expr(stmt.cond)
        else:
            self.condition(stmt.cond)
        with self._step(stmt.cond):
            self.stmt(stmt.then)
        if stmt.orelse is not None:
            with self._step(Not(stmt.cond)):
                self.stmt(stmt.orelse)

    def _store(self, stmt: Store) -> None:
        self.access(stmt.buffer)
        for index in stmt.indices:
            self.expr(index)
        self._value(stmt.value)
        self.refuse(12, undef_fault(stmt.value))
        try:
            check_indices(stmt.buffer, stmt.indices)
        except ValueError as error:
            raise self.fail(5, str(error)) from None
        element = Load(stmt.buffer, stmt.indices).dtype
        if stmt.value.dtype != element:
            raise self.fail(5, f"`{expr_text(stmt.value)}` of type {stmt.value.dtype} is stored to "
                            f"`{stmt.buffer.name}`, whose element here has type {element}")  # fmt: skip

    def _let(self, stmt: Let) -> None:
        self._type(stmt.var)
        self.expr(stmt.value)
        if stmt.value.dtype != stmt.var.dtype:
            raise self.fail(5, f"`{stmt.var.name}` has type {stmt.var.dtype}, its value {stmt.value.dtype}")
        before, self.around = self.around, self.around.let(stmt.var, stmt.value)
        with self._variable(stmt.var):
            self.stmt(stmt.body)
        self.around = before

    def _attr(self, stmt: Attr) -> None:
        self.refuse(13, attribute_fault(stmt))
        if isinstance(stmt.value, Expr):
            self.expr(stmt.value)
        self.stmt(stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        if isinstance(stmt.value, Call) and stmt.value.name in (PREFETCH, *STATEMENT_CALLS):
            self._meaning(stmt.value)
        else:
            self._value(stmt.value)
        self.refuse(12, undef_fault(stmt.value))

    def _assume(self, stmt: Assume) -> None:
        if has_undef(without_atoms(stmt.cond)):
            raise self.fail(12, f"`{expr_text(stmt.cond)}` uses undef other than in `buffer[i] == T.undef()`")
        self._value(stmt.cond)
        if stmt.cond.dtype != "bool":
            raise self.fail(5, f"the assumption `{expr_text(stmt.cond)}` has type {stmt.cond.dtype}")

    def _assert(self, stmt: Assert) -> None:
        self.condition(stmt.cond)

    def _while(self, stmt: While) -> None:
        self.condition(stmt.cond)
        self.stmt(stmt.body)

    def _opaque(self, stmt: Opaque) -> None:
        """Names are visible, and each region lies in as many dimensions as its buffer has."""
        if not stmt.name.replace(".", "").isidentifier():
            raise self.fail(1, f"`{stmt.name}` is no name of a call")
        for value in values_of((*stmt.args, *stmt.reads, *stmt.writes)):
            self.expr(value)
        for node in walk(stmt):
            if not isinstance(node, (Pointer, Region)):
                continue
            self.access(node.buffer)
            indices = node.begin if isinstance(node, Region) else node.indices
            if len(indices) != node.buffer.rank and (indices or isinstance(node, Region)):
                raise self.fail(5, f"`{stmt.callee}` names {len(indices)} dimensions of `{node.buffer.name}`, "
                                f"which has {node.buffer.rank}")  # fmt: skip

    def _around(self, stmt: Allocate | Declare) -> None:
        with self._memory((stmt.buffer,), view=isinstance(stmt, Declare)):
            self.stmt(stmt.body)

    # ------------------------------------------------------------ blocks

    def _block(self, block: Block) -> None:
        if not block.name or block.name in self.block_names:
            raise self.fail(1, f"the block name `{block.name}` is empty or used twice")
        self.block_names.add(block.name)
        self.blocks.append(block.name)
        for one in block.iters:
            self._iter(one)
        self.condition(block.predicate, 6)
        self.refuse(13, annotations_fault(block.annotations))
        if block.init is not None:
            self._init(block)
        self._inside(block)
        self.blocks.pop()

    def _iter(self, one: Iter) -> None:
        name, dtype = one.var.name, one.var.dtype
        self.expr(one.binding, 6)
        self._extent(one.limit, f"iterator `{name}`")
        if one.kind not in ITER_KINDS or (not isinstance(one.limit, Expr) and one.limit < 1):
            raise self.fail(4, f"iterator `{name}` has kind `{one.kind}` and extent {extent_text(one.limit)}")
        if not _is_index(one.var) or one.binding.dtype != dtype:
            raise self.fail(4, f"iterator `{name}` has type {dtype}, its binding {one.binding.dtype}")
        last = start(self.func).facts.within(one.limit)[1] if isinstance(one.limit, Expr) else one.limit - 1
        if last > dtypes.int_range(dtype)[1]:
            raise self.fail(4, f"the extent {extent_text(one.limit)} of iterator `{name}` does not fit {dtype}")

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
            self.around = self.around.inside(block)
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


def _is_masked_store(stmt: If) -> bool:
    """Whether the condition is one of each lane of a store."""
    store, kind = stmt.then, stmt.cond.dtype
    if not isinstance(store, Store) or stmt.orelse is not None or not dtypes.is_bool(kind):
        return False
    return 1 < dtypes.lanes(kind) == dtypes.lanes(store.value.dtype)


def _example(here: Context, cond: Expr) -> str:
    """Values of the integers at which `cond` holds, as text; empty where none are found."""
    from ..affine.guard import NotAffine, Unknown

    try:
        found = here.points(cond).first()
    except (NotAffine, Unknown):
        return ""
    return "" if found is None else " at " + ", ".join(f"{name} = {value}" for name, value in found.items())


def _is_index(var: Var) -> bool:
    return dtypes.is_int(var.dtype) and dtypes.lanes(var.dtype) == 1


_STATEMENTS: Mapping[type[Stmt], Callable[[FunctionVerifier, Any], None]] = {
    For: FunctionVerifier._for,
    If: FunctionVerifier._if,
    Store: FunctionVerifier._store,
    Let: FunctionVerifier._let,
    Attr: FunctionVerifier._attr,
    Evaluate: FunctionVerifier._evaluate,
    Assume: FunctionVerifier._assume,
    Allocate: FunctionVerifier._around,
    Declare: FunctionVerifier._around,
    Block: FunctionVerifier._block,
    Assert: FunctionVerifier._assert,
    While: FunctionVerifier._while,
    Opaque: FunctionVerifier._opaque,
}
