"""Blocks of the script: iterators, predicate, init, allocations, and the regions that a script declares."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..expr import TRUE, Binary, Buffer, Const, Expr, Extent, Var, as_expr, binary, free_variables, reads_memory
from ..extents import as_extent, dims
from ..stmt import Block, Iter, Stmt, has_calls
from ..syntax.base import Scope, called, show
from ..syntax.constants import attributes, integer, text, typed_integer
from ..syntax.words import AXES, BLOCK_ALLOC, BLOCK_ATTR, near
from ..text import extents_text
from .calls import with_declared
from .loops import LoopParser
from .regions import Declared, Region, check_regions, is_silent


@dataclass
class Header:
    """The parts of a block that its suite declares before the body."""

    iters: list[Iter] = field(default_factory=list)
    predicate: Expr | None = None
    init: Stmt | None = None
    allocs: list[Buffer] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    regions: dict[str, Declared] = field(default_factory=dict)

    def block(self, name: str, body: Stmt) -> Block:
        predicate = TRUE if self.predicate is None else self.predicate
        parts = (tuple(self.iters), body, predicate, self.init, tuple(self.allocs), tuple(self.annotations.items()))
        return Block(name, *parts)


class BlockParser(LoopParser):
    """Builds blocks; `headers` are those of the blocks around, the innermost last."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.headers: list[Header] = []
        self.block_names: set[str] = set()
        self.lowered_allocations = False
        self.told: set[Stmt] = set()  # calls of what is not known of which more is said than their block declares

    def block(self, node: ast.With) -> Block:
        """``with T.block(name):``."""
        item = node.items[0]
        assert isinstance(item.context_expr, ast.Call)
        if item.optional_vars is not None:
            raise self.error(node, "`with T.block(...) as ...` is not supported; bind iterators with `T.axis`")
        if len(item.context_expr.args) > 1 or item.context_expr.keywords:
            raise self.error(item.context_expr, "a block has a name and no options")
        name = "".join(text(a, self.scope, "the name of a block") for a in item.context_expr.args)
        header = Header()
        self.headers.append(header)
        with self.scope.nested():
            body = self.rest(node.body, header)
        self.headers.pop()
        block = self.declared(header.block(self._block_name(name or "block"), body), header)
        self.check(block, header)
        return block

    def declared(self, block: Block, header: Header) -> Block:
        """The block, whose calls of what is not known touch what it declares."""
        said = header.regions.values()
        return block if is_silent(block, said) else with_declared(block, said, self.told)

    def check(self, block: Block, header: Header) -> None:
        """Compare the declared regions with what the body does."""
        if is_silent(block, header.regions.values()) or has_calls(block):
            return
        for declared in header.regions.values():
            fault = check_regions(block, declared, self.around)
            if fault:
                raise self.error(declared.where, f"block `{block.name}`: {fault}")

    def rest(self, nodes: Sequence[ast.stmt], header: Header | None) -> Stmt:
        """The statements `nodes`, the first of them perhaps the header's."""
        raise NotImplementedError

    def _block_name(self, name: str) -> str:
        unique, number = name, 1
        while unique in self.block_names:
            unique, number = f"{name}_{number}", number + 1
        self.block_names.add(unique)
        return unique

    def is_header(self, node: ast.stmt, header: Header | None) -> bool:
        """Take `node` into the header of the block whose own suite this is."""
        if isinstance(node, ast.Assign) and called(node.value).startswith("axis."):
            if header is None:
                raise self.error(node, "`T.axis` binds iterators at the top of a block's own suite")
            self._axis(node, header)
            return True
        if header is None:
            return False
        if isinstance(node, ast.Assign) and called(node.value) in BLOCK_ALLOC and self._is_own(called(node.value)):
            assert isinstance(node.value, ast.Call)
            header.allocs.append(self.declare(node.targets[0], node.value))
            return True
        if isinstance(node, ast.With) and called(node.items[0].context_expr) == "init":
            if header.init is not None:
                raise self.error(node, "the block has a `T.init()` already")
            header.init = self.suite(node.body)
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return self._clause(node.value, header)
        return False

    def _is_own(self, name: str) -> bool:
        """``T.alloc_buffer`` is the block's, but a statement in functions of ``s_tir=True`` (apache-tvm 0.27)."""
        return name == "sblock_alloc_buffer" or not self.lowered_allocations

    def _clause(self, call: ast.Call, header: Header) -> bool:
        name = called(call)
        if name == "where":
            if len(call.args) != 1 or header.predicate is not None:
                raise self.error(call, "a block has one `T.where(condition)`")
            header.predicate = self.exprs.expr(call.args[0], "bool")
        elif name in BLOCK_ATTR:
            if len(call.args) != 1:
                raise self.error(call, f"`T.{name}` takes a dictionary")
            header.annotations.update(attributes(call.args[0], self.scope))
        elif name in ("reads", "writes"):
            if name in header.regions:
                raise self.error(call, f"`T.{name}` is given twice")
            items: list[ast.expr] = []
            for arg in call.args:
                items.extend(arg.elts if isinstance(arg, (ast.List, ast.Tuple)) else [arg])
            header.regions[name] = Declared(call, name, tuple(self.region(item) for item in items))
        return name in ("where", "reads", "writes", *BLOCK_ATTR)

    # ------------------------------------------------------------ regions

    def region(self, node: ast.expr) -> Region:
        """``A[i, 0:4]``, or ``A`` for all of it."""
        if isinstance(node, ast.Name):
            buffer = self.exprs.buffer(node)
            return Region(buffer, tuple((as_expr(0), e) for e in dims(buffer.extents)))
        if not isinstance(node, ast.Subscript):
            raise self.error(node, f"a region is `buffer[begin:end, ...]`, but got `{show(node)}`")
        buffer = self.exprs.buffer(node.value)
        items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != buffer.rank:
            shape = extents_text(buffer.extents)
            raise self.error(node, f"`{buffer.name}` has shape ({shape}), but the region is `{show(node)}`")
        return Region(buffer, tuple(self._range(i, e) for i, e in zip(items, buffer.extents, strict=True)))

    def _range(self, node: ast.expr, extent: Extent) -> tuple[Expr, Expr]:
        if not isinstance(node, ast.Slice):
            begin = self.exprs.expr(node)
            return begin, binary("+", begin, 1)
        if node.step is not None:
            raise self.error(node, "a region has no step")
        low = Const(0) if node.lower is None else self.exprs.expr(node.lower)
        return low, as_expr(extent) if node.upper is None else self.exprs.expr(node.upper)

    # ------------------------------------------------------------ iterators

    def _axis(self, node: ast.Assign, header: Header) -> None:
        assert isinstance(node.value, ast.Call)
        kind = called(node.value).removeprefix("axis.")
        target = node.targets[0]
        targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
        args = node.value.args
        if kind == "remap":
            self._remap(node.value, targets, header)
            return
        if kind not in AXES:
            raise self.error(node.value, f"unknown axis `T.axis.{kind}`{near(kind, (*AXES, 'remap'), 'T.axis.')}")
        if len(args) != 2 or len(targets) != 1 or node.value.keywords:
            raise self.error(node, "expected `v = T.axis.spatial(extent, binding)`, `reduce`, `opaque` or `remap`")
        dom = args[0]
        lo, hi = dom.elts if isinstance(dom, (ast.Tuple, ast.List)) and len(dom.elts) == 2 else (None, dom)
        start = 0 if lo is None else integer(lo, self.scope, "the start of an axis")
        extent = as_extent(binary("-", as_expr(self.extent(hi, "the extent of an axis")), start))
        dtype = typed_integer(hi) or dtypes.INDEX
        if not typed_integer(hi) and (isinstance(extent, Expr) or self.scope.integers != dtypes.INDEX):
            dtype = self.exprs.expr(args[1]).dtype
        binding = _less(self.exprs.converted(args[1], dtype, "the binding"), start)
        self._bind_axis(targets[0], header, Iter(Var("", dtype), extent, AXES[kind], binding), start, 1)

    def _remap(self, call: ast.Call, targets: Sequence[ast.AST], header: Header) -> None:
        args = call.args
        kinds = args[0].value if args and isinstance(args[0], ast.Constant) else None
        loops = args[1].elts if len(args) == 2 and isinstance(args[1], (ast.List, ast.Tuple)) else None
        if not isinstance(kinds, str) or loops is None or not len(kinds) == len(loops) == len(targets):
            example = 'vi, vj = T.axis.remap("SS", [i, j])'
            raise self.error(call, f"expected as many names as kinds and loops, as in `{example}`")
        for target, letter, node in zip(targets, kinds, loops, strict=True):
            if letter not in ("S", "R", "O"):
                raise self.error(args[0], f"unknown axis kind `{letter}`; S is spatial, R is reduce, O is opaque")
            loop = self.loops.get(node.id) if isinstance(node, ast.Name) else None
            if loop is None or self.scope.find(getattr(node, "id", "")) != loop(loop.var):
                raise self.error(node, "`T.axis.remap` takes loop variables; others need `T.axis.spatial(extent, e)`")
            fixed = {v.name for v in free_variables(loop.extent)} <= self.parameters and not reads_memory(loop.extent)
            if not fixed or not isinstance(loop.start, Const):
                raise self.error(node, f"`{loop.var.name}` has no constant range; use `T.axis.spatial(extent, e)`")
            one = Iter(Var("", loop.var.dtype), as_extent(loop.extent), AXES[letter], loop.var)
            self._bind_axis(target, header, one, int(loop.start.value), loop.step)

    def _bind_axis(self, target: ast.AST, header: Header, one: Iter, start: int, step: int) -> None:
        if not isinstance(target, ast.Name):
            raise self.error(target, "an iterator is a plain name")
        if isinstance(one.limit, int) and one.limit < 1:
            raise self.error(target, f"the extent of `{target.id}` must be at least 1, but is {one.limit}")
        var = Var(self.scope.unique(target.id, target), one.var.dtype)
        header.iters.append(Iter(var, one.limit, one.kind, one.binding))
        self.scope.bind(target.id, binary("+", var * step, start), target)


def _less(e: Expr, amount: int) -> Expr:
    """``e - amount``, taken out of a constant summand if there is one."""
    if isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Const):
        return binary("+", e.a, int(e.b.value) - amount)
    return e - amount
