"""Programs as TVMScript text: ``parse(script(f)) == f``.

Everything that the text leaves out has one default: a plain integer is of the
index type, a loop variable too, the root block is implicit, and a block's
reads and writes are not written since they follow from its body.

The dialect ``"tvm"`` differs where apache-tvm 0.27 does: its plain integers have 32 bits,
a let has no suite of its own, and what it has no words for (axis separators, layouts) are
attributes of the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from . import dtypes
from .calls import Region, touched
from .expr import TRUE, Buffer, Const, Expr, LetExpr, Var
from .layout.layout import Layout
from .node import Node, walk
from .statements import (
    Allocate,
    Annotations,
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
    Seq,
    Stmt,
    Store,
    While,
    blocks,
    fresh,
    names_below,
    read_buffers,
    written_buffers,
)
from .syntax.words import REGIONS_KEY, SCOPE_KEY
from .text import Texts, dictionary, extent_text, extents_text, quoted

_DIALECTS: Mapping[str, Mapping[str, str]] = {
    "stridesmith": {
        "header": "# from stridesmith import T",
        "prim_func": "@T.prim_func",
        "ir_module": "@T.ir_module",
        "block": "T.block",
        "alloc_buffer": "T.alloc_buffer",
        "block_attr": "T.block_attr",
        "allocate": "T.allocate",
    },
    "tvm": {
        "header": "# from tvm.script import ir as I\n# from tvm.script import tirx as T",
        "prim_func": "@T.prim_func(s_tir=True)",
        "ir_module": "@I.ir_module",
        "block": "T.sblock",
        "alloc_buffer": "T.sblock_alloc_buffer",
        "block_attr": "T.sblock_attr",
        "allocate": "T.alloc_buffer",
    },
}

_LOOPS = {"serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unroll"}


class Function(Protocol):
    """What is printed of a function (`stmt.PrimFunc`)."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> tuple[Buffer | Var, ...]: ...
    @property
    def sizes(self) -> tuple[Var, ...]: ...
    @property
    def body(self) -> Block: ...
    @property
    def layouts(self) -> tuple[tuple[str, Layout], ...]: ...
    @property
    def attrs(self) -> Annotations: ...


def functions_script(functions: Sequence[Function], dialect: str | None = None, is_module: bool = False) -> str:
    """A function, or a module of several, as text.  Raises ValueError for an unknown `dialect`."""
    printer = _Printer(dialect)
    printer.line(printer.words["header"])
    if is_module:
        printer.module(functions)
    else:
        printer.func(functions[0])
    return "\n".join(printer.lines) + "\n"


def node_script(node: Node, dialect: str | None = None) -> str:
    """A statement, with a final newline, an expression or a buffer as text.  Raises ValueError for a `dialect`."""
    printer = _Printer(dialect)
    if isinstance(node, Buffer):
        return node.name
    if isinstance(node, Expr):
        return printer.text(node)
    if not isinstance(node, Stmt):
        raise TypeError(f"no script form for `{type(node).__name__}`")
    printer.suite(node)
    return "\n".join(printer.lines) + "\n"


class _Printer:
    """Collects lines; `extents` knows the constant loops around, for ``T.axis.remap``."""

    def __init__(self, dialect: str | None) -> None:
        words = _DIALECTS.get(dialect or "stridesmith")
        if words is None:
            raise ValueError(f"unknown dialect `{dialect}`; known are {', '.join(_DIALECTS)}")
        self.words, self.text = words, Texts(tvm=dialect == "tvm")
        self.lines: list[str] = []
        self.depth = 0
        self.extents: dict[Var, Expr] = {}
        self.parts: tuple[Node, ...] = ()  # of the function that is printed: its parameters and its body

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    # ------------------------------------------------------------ functions

    def module(self, functions: Sequence[Function]) -> None:
        self.line(self.words["ir_module"])
        with self.indented("class Module:"):
            for number, func in enumerate(functions):
                if number:
                    self.lines.append("")
                self.func(func)
            if not functions:
                self.line("pass")

    def func(self, func: Function) -> None:
        self.extents, self.parts = {}, (*func.params, func.body)
        self.line(self.words["prim_func"])
        handles = self.handles(func)
        with self.indented(f"def {func.name}({', '.join(self.parameter(p, handles) for p in func.params)}):"):
            for var in func.sizes:
                self.line(f"{var.name} = T.{var.dtype}()")
            for buffer, handle in handles.items():
                self.line(f"{buffer.name} = T.match_buffer({handle}, {self.buffer(buffer)})")
            attrs = self.attributes(func)
            if attrs:
                self.line(f"T.func_attr({dictionary(attrs)})")
            if self.text.tvm:
                for var in dict.fromkeys(n.var for n in walk(func.body) if isinstance(n, LetExpr)):
                    scalar = dtypes.lanes(var.dtype) == 1
                    self.line(f"{var.name} = " + (f"T.{var.dtype}()" if scalar else f'T.var("{var.dtype}")'))
            self.root(func.body)

    def attributes(self, func: Function) -> list[tuple[str, object]]:
        """Attributes; ``layouts`` is ``{param: (logical shape, index map, pad value)}``."""
        items: list[tuple[str, object]] = list(func.attrs)
        if func.layouts:
            written = ((name, (k.logical_shape, k.index_map.text, k.pad_text)) for name, k in func.layouts)
            items.append(("layouts", tuple(written)))
        if self.text.tvm:
            inside = (n for part in self.parts for n in walk(part))
            buffers = dict.fromkeys(n for n in inside if isinstance(n, Buffer) and n.axis_separators)
            if buffers:
                items.append(("axis_separators", tuple((b.name, b.axis_separators) for b in buffers)))
        return items

    def handles(self, func: Function) -> dict[Buffer, str]:
        """Names of handles for the parameters whose extents no parameter before them gives."""
        taken = {name for part in self.parts for name in names_below(part)}
        handles: dict[Buffer, str] = {}
        before: set[str] = set()
        for param in func.params:
            if isinstance(param, Var):
                before.add(param.name)
            elif not names_below(param) - {param.name} <= before:
                handles[param] = fresh(f"{param.name}_handle", taken)
                taken.add(handles[param])
        return handles

    def parameter(self, param: Buffer | Var, handles: Mapping[Buffer, str]) -> str:
        if isinstance(param, Buffer):
            if param in handles:
                return f"{handles[param]}: T.handle"
            return f"{param.name}: T.Buffer({self.buffer(param)})"
        return f"{param.name}: T.{param.dtype}"

    def buffer(self, buffer: Buffer, brackets: str = "()") -> str:
        """The arguments that declare `buffer`: shape, dtype, and what differs from the defaults."""
        inner = extents_text(buffer.extents)
        comma = "," if brackets == "()" and buffer.rank == 1 else ""
        text = f'{brackets[0]}{inner}{comma}{brackets[1]}, "{buffer.dtype}"'
        if buffer.data:
            text += f", data={buffer.data}.data"
        if buffer.scope != "global":
            text += f", scope={quoted(buffer.scope)}"
        if buffer.axis_separators and not self.text.tvm:
            text += f", axis_separators=[{', '.join(map(str, buffer.axis_separators))}]"
        return text

    def root(self, block: Block) -> None:
        body = block.body
        hidden = isinstance(body, Block) and body.name == "root" and not body.iters and not block.allocs
        plain = block.name == "root" and not block.iters and block.predicate == TRUE and block.init is None
        if plain and not block.annotations and not hidden:
            self.allocs(block)
            self.suite(body)
        else:
            self.block(block)

    def allocs(self, block: Block) -> None:
        for buffer in block.allocs:
            self.line(f"{buffer.name} = {self.words['alloc_buffer']}({self.buffer(buffer)})")

    # ------------------------------------------------------------ statements

    def suite(self, stmt: Stmt) -> None:
        stmts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
        if not stmts:
            self.line("pass")
        for number, item in enumerate(stmts):
            self.stmt(item, last=number == len(stmts) - 1)

    def stmt(self, stmt: Stmt, last: bool = True) -> None:
        match stmt:
            case Store():
                self.store(stmt)
            case For():
                self.loop(stmt)
            case Block():
                self.block(stmt)
            case If():
                self.branch(stmt, "if")
            case Evaluate():
                self.line(f"T.evaluate({self.text.typed(stmt.value)})")
            case Assume():
                self.line(f"T.assume({self.text(stmt.cond)})")
            case Attr():
                value = quoted(stmt.value) if isinstance(stmt.value, str) else self.text.typed(stmt.value)
                with self.indented(f"with T.attr(0, {quoted(stmt.key)}, {value}):"):
                    self.suite(stmt.body)
            case Let() | Allocate() | Declare():
                self.scoped(stmt, last)
            case Seq():
                self.suite(stmt)
            case While():
                with self.indented(f"while {self.text(stmt.cond)}:"):
                    self.suite(stmt.body)
            case Assert():
                message = f", {quoted(stmt.message)}" if stmt.message or self.text.tvm else ""
                self.line(f"assert {self.text(stmt.cond)}{message}")
            case Opaque():
                self.opaque(stmt)
            case _:
                raise TypeError(f"no script form for the statement `{type(stmt).__name__}`")

    def store(self, stmt: Store) -> None:
        self.line(f"{stmt.buffer.name}[{self.text.indices(stmt.indices)}] = {self.text.typed(stmt.value)}")

    def opaque(self, stmt: Opaque) -> None:
        """The call, and what it reads and writes where that is not all of the buffers whose pointers it takes."""
        call, target = self.text.call(stmt.name, stmt.args), stmt.target
        stored = () if target is None else (Region(target.buffer, target.indices, (Const(1),) * target.buffer.rank),)
        reads, writes = touched(stmt.args)
        through = stmt.writes[: len(stmt.writes) - len(stored)]
        pairs = ("reads", stmt.reads), ("writes", through)
        told = ", ".join(f"{word}=[{', '.join(map(self.text.region, own))}]" for word, own in pairs)
        is_told = (stmt.reads, through) != (reads, writes)
        if is_told and not self.text.tvm:
            call = f"T.opaque({call}, {told})"
        if target is not None:
            line = f"{target.buffer.name}[{self.text.indices(target.indices)}] = {call}"
        else:
            line = call if call.startswith(("Module.", "T.opaque(")) else f"T.evaluate({call})"
        if is_told and self.text.tvm:
            with self.indented(f'with T.attr(0, "{REGIONS_KEY}", {quoted(told)}):'):
                self.line(line)
        else:
            self.line(line)

    def scoped(self, stmt: Let | Allocate | Declare, last: bool) -> None:
        """``x: T.int64 = value`` where the body reaches to the end of the suite, else ``with``."""
        short, long = self.binding(stmt)
        if last:
            self.line(short)
            self.suite(stmt.body)
        elif not self.text.tvm:
            with self.indented(long):
                self.suite(stmt.body)
        else:
            with self.indented(f'with T.attr(0, "{SCOPE_KEY}", 1):'):
                self.line(short)
                self.suite(stmt.body)

    def binding(self, stmt: Let | Allocate | Declare) -> tuple[str, str]:
        """The text before the rest of a suite, and before a suite of its own."""
        if isinstance(stmt, Let):
            name, value, kind = stmt.var.name, self.text.typed(stmt.value), f"T.{stmt.var.dtype}"
            note = kind
            if self.text.tvm:
                note = f"T.let[{kind}]" if dtypes.lanes(stmt.var.dtype) == 1 else "T.let"
            return f"{name}: {note} = {value}", f"with T.LetStmt({value}, {kind}) as {name}:"
        name = stmt.buffer.name
        if isinstance(stmt, Declare):
            call = f"T.decl_buffer({self.buffer(stmt.buffer)})"
        else:
            call = f"{self.words['allocate']}({self.buffer(stmt.buffer, '()' if self.text.tvm else '[]')})"
        return f"{name} = {call}", f"with {call} as {name}:"

    def branch(self, stmt: If, word: str) -> None:
        with self.indented(f"{word} {self.text(stmt.cond)}:"):
            self.suite(stmt.then)
        if isinstance(stmt.orelse, If):
            self.branch(stmt.orelse, "elif")
        elif stmt.orelse is not None:
            with self.indented("else:"):
                self.suite(stmt.orelse)

    # ------------------------------------------------------------ loops and blocks

    def loop(self, stmt: For) -> None:
        nest = _grid(stmt)
        for loop in nest:
            self.extents[loop.var] = loop.extent
        if len(nest) > 1:
            variables = ", ".join(loop.var.name for loop in nest)
            header = f"for {variables} in T.grid({', '.join(self.text.typed(loop.extent) for loop in nest)}):"
        else:
            header = f"for {stmt.var.name} in {self.loop_call(stmt)}:"
        with self.indented(header):
            self.suite(nest[-1].body)

    def loop_call(self, stmt: For) -> str:
        """A loop of another type than the index shows it by a typed constant, the start if the extent is none."""
        args = self.text.typed(stmt.extent)
        if stmt.var.dtype != dtypes.INDEX and not isinstance(stmt.extent, Const):
            args = f"T.{stmt.var.dtype}(0), {args}"
        if stmt.kind == "serial" and not stmt.annotations:
            return f"range({args})"
        if stmt.kind == "thread_binding":
            args += f", thread={quoted(stmt.thread)}"
        if stmt.annotations:
            args += f", annotations={dictionary(stmt.annotations)}"
        return f"T.{_LOOPS.get(stmt.kind, stmt.kind)}({args})"

    def block(self, block: Block) -> None:
        with self.indented(f"with {self.words['block']}({quoted(block.name)}):"):
            self.axes(block.iters)
            if block.predicate != TRUE:
                self.line(f"T.where({self.text(block.predicate)})")
            if block.annotations:
                self.line(f"{self.words['block_attr']}({dictionary(block.annotations)})")
            if self.text.tvm:
                self.regions(block)
            self.allocs(block)
            if block.init is not None:
                with self.indented("with T.init():"):
                    self.suite(block.init)
            self.suite(block.body)

    def regions(self, block: Block) -> None:
        """All of each buffer, for a block with calls or memory in its body, of which TVM would derive regions too.

        Of a block that is one call the regions of the call.
        """
        if isinstance(block.body, Opaque):
            for word, regions in (("reads", block.body.reads), ("writes", block.body.writes)):
                self.line(f"T.{word}({', '.join(map(self.text.region, regions))})")
            return
        declared = {n.buffer for n in walk(block) if isinstance(n, (Allocate, Declare))}
        if not declared and not any(isinstance(n, Opaque) for n in walk(block)):
            return
        own = {b.name for b in declared if not b.data} | {b.name for n in blocks(block) for b in n.allocs}
        seen = {n.name: n for part in self.parts for n in walk(part) if isinstance(n, Buffer)}
        inside = Seq(tuple(s for s in (block.init, block.body) if s is not None))
        for word, used in (("reads", read_buffers(inside)), ("writes", written_buffers(inside))):
            outer = dict.fromkeys(seen[b.memory] if b in declared else b for b in used if b.memory not in own)
            parts = (f"{b.name}[{', '.join(f'0:{extent_text(e)}' for e in b.extents) or '()'}]" for b in outer)
            self.line(f"T.{word}({', '.join(parts)})")

    def axes(self, iters: Sequence[Iter]) -> None:
        """Runs of plain loop variables become one ``T.axis.remap``."""
        run: list[Iter] = []
        for one in (*iters, None):
            if one is not None and self.is_remap(one):
                run.append(one)
                continue
            if len(run) > 1:
                kinds = "".join("S" if i.kind == "spatial" else "R" for i in run)
                loops = ", ".join(self.text(i.binding) for i in run)
                self.line(f'{", ".join(i.var.name for i in run)} = T.axis.remap("{kinds}", [{loops}])')
            elif run:
                self.axis(run[0])
            run = []
            if one is not None:
                self.axis(one)

    def axis(self, one: Iter) -> None:
        limit = one.limit
        extent = extent_text(limit) if isinstance(limit, Expr) else self.text.typed(Const(limit, one.var.dtype))
        self.line(f"{one.var.name} = T.axis.{one.kind}({extent}, {self.text.typed(one.binding)})")

    def is_remap(self, one: Iter) -> bool:
        if not isinstance(one.binding, Var) or one.kind == "opaque" or one.var.dtype != one.binding.dtype:
            return False
        limit = one.limit if isinstance(one.limit, Expr) else Const(one.limit, one.var.dtype)
        return self.extents.get(one.binding) == limit


def _is_plain_loop(stmt: For) -> bool:
    return stmt.kind == "serial" and not stmt.annotations and stmt.var.dtype == dtypes.INDEX


def _grid(stmt: For) -> list[For]:
    """The perfect nest of plain serial loops that starts here, the inner extents constant."""
    nest = [stmt]
    while _is_plain_loop(nest[-1]) and isinstance(nest[-1].body, For) and _is_plain_loop(nest[-1].body):
        inner = nest[-1].body
        if not isinstance(inner.extent, Const):
            break
        nest.append(inner)
    return nest
