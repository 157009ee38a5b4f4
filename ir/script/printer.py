"""Programs as TVMScript text: ``parse(script(f)) == f``.

Everything that the text leaves out has one default: a plain integer is of the
index type, a loop variable too, the root block is implicit, and a block's
reads and writes are not written since they follow from its body.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import dtypes
from ..expr import (
    ARITHMETIC,
    COMPARISONS,
    MATH_CALLS,
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Undef,
    Var,
)
from ..node import Node
from ..stmt import (
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

DIALECTS: Mapping[str, Mapping[str, str]] = {
    "stridesmith": {
        "header": "# from stridesmith import T",
        "prim_func": "@T.prim_func",
        "ir_module": "@T.ir_module",
        "block": "T.block",
        "alloc_buffer": "T.alloc_buffer",
        "block_attr": "T.block_attr",
    },
    "tvm": {
        "header": "# from tvm.script import ir as I\n# from tvm.script import tirx as T",
        "prim_func": "@T.prim_func(s_tir=True)",
        "ir_module": "@I.ir_module",
        "block": "T.sblock",
        "alloc_buffer": "T.sblock_alloc_buffer",
        "block_attr": "T.sblock_attr",
    },
}

_LEVELS = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
_LEVELS.update(dict.fromkeys(COMPARISONS, 4))
_ATOM = 8
_INFIX = set(ARITHMETIC) - {"min", "max"} | set(COMPARISONS) | {"and", "or"}
_LOOPS = {"serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unroll"}


def script(node: Node, dialect: str | None = None) -> str:
    """`node` as text, with a final newline for functions, modules and statements.

    `dialect` is ``"stridesmith"`` (TensorIR's classic spelling, the default) or
    ``"tvm"`` (what apache-tvm 0.27 parses).  Raises ValueError for another one.
    """
    words = DIALECTS.get(dialect or "stridesmith")
    if words is None:
        raise ValueError(f"unknown dialect `{dialect}`; known are {', '.join(DIALECTS)}")
    if isinstance(node, (Expr, Buffer)):
        return expr_text(node)
    printer = _Printer(words)
    if isinstance(node, (PrimFunc, Module)):
        printer.lines.append(words["header"])
    printer.top(node)
    return "\n".join(printer.lines) + "\n"


def expr_text(node: Expr | Buffer) -> str:
    """One expression as text; a buffer is its name."""
    return node.name if isinstance(node, Buffer) else _text(node)[0]


# ---------------------------------------------------------------- expressions


def _text(e: Expr) -> tuple[str, int]:
    """The text and how tightly it binds."""
    if isinstance(e, Binary) and e.op in _INFIX:
        return _infix(e)
    if isinstance(e, Not):
        return f"not {_paren(e.a, _LEVELS['not'])}", _LEVELS["not"]
    return _atom(e), _ATOM


def _paren(e: Expr, level: int, typed: bool = False) -> str:
    """`e` in a place that needs at least `level`."""
    if typed and isinstance(e, Const):
        return _typed(e)
    text, own = _text(e)
    return text if own >= level else f"({text})"


def _infix(e: Binary) -> tuple[str, int]:
    level = _LEVELS[e.op]
    typed = e.a.dtype != e.b.dtype
    left = level + 1 if e.op in COMPARISONS else level
    return f"{_paren(e.a, left, typed)} {e.op} {_paren(e.b, level + 1, typed)}", level


def _atom(e: Expr) -> str:
    match e:
        case Var():
            return e.name
        case Const():
            return _plain(e)
        case Undef():
            return f'T.undef("{e.dtype}")'
        case Binary():
            return f"T.{e.op}({_args((e.a, e.b))})"
        case Select():
            return f"T.Select({_text(e.cond)[0]}, {_args((e.a, e.b))})"
        case Cast():
            return f'T.Cast("{e.dtype}", {_text(e.a)[0]})'
        case Load():
            return f"{e.buffer.name}[{_indices(e.indices)}]"
        case Ramp():
            return f"T.Ramp({_args((e.base, e.stride))}, {e.lanes})"
        case Broadcast():
            return f"T.Broadcast({_text(e.value)[0]}, {e.lanes})"
        case LetExpr():
            return f"T.Let({_text(e.body)[0]}, where={{{e.var.name}: {_text(e.value)[0]}}})"
        case Call():
            return _call(e)
    raise TypeError(f"no script form for the expression `{type(e).__name__}`")


def _call(e: Call) -> str:
    if e.name == "if_then_else" and len(e.args) == 3 and e.dtype == e.args[1].dtype:
        return f"T.if_then_else({_text(e.args[0])[0]}, {_args(e.args[1:])})"
    if e.name in MATH_CALLS and e.args and all(a.dtype == e.dtype for a in e.args):
        return f"T.{e.name}({_args(e.args)})"
    tail = "".join(f", {_text(a)[0]}" for a in e.args)
    return f'T.call_extern("{e.dtype}", "{e.name}"{tail})'


def _args(items: Sequence[Expr]) -> str:
    """Operands that take their type from each other, so a lone literal is written with its own."""
    typed = len({e.dtype for e in items}) > 1
    return ", ".join(_paren(e, 0, typed) for e in items)


def _indices(indices: Sequence[Expr]) -> str:
    return ", ".join(_text(i)[0] for i in indices) or "()"


def _plain(e: Const) -> str:
    if e.dtype == dtypes.INDEX or e.dtype == "bool":
        return repr(e.value)
    return _typed(e)


def _typed(e: Const) -> str:
    value = e.value
    if isinstance(value, float) and not math.isfinite(value):
        return f'T.{e.dtype}("{value}")'
    return f"T.{e.dtype}({value!r})"


def _literal(value: Any) -> str:
    """A value of an annotation or attribute."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        inner = ", ".join(_literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise TypeError(f"an annotation holds numbers, strings, None and tuples, but not `{value!r}`")


def _quoted(text: str) -> str:
    body = repr(text)
    if body.startswith("'") and '"' not in body:
        return f'"{body[1:-1]}"' if "\\'" not in body else body
    return body


def _attrs(items: Sequence[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f"{_quoted(k)}: {_literal(v)}" for k, v in items) + "}"


def _function_attrs(func: PrimFunc) -> str:
    """The attributes; layouts go under a key of their own, ``{param: (logical shape, index map, pad value)}``."""
    text = _attrs(func.attrs)
    if not func.layouts:
        return text
    layouts = _attrs([(la.param, (la.logical_shape, la.index_map, la.pad_value)) for la in func.layouts])
    return f'{text[:-1]}{", " if func.attrs else ""}"layouts": {layouts}}}'


# ---------------------------------------------------------------- statements


def buffer_args(buffer: Buffer, shape: str = "()") -> str:
    """The arguments that declare `buffer`: shape, dtype, and what differs from the defaults."""
    inner = ", ".join(map(str, buffer.shape))
    if shape == "[]":
        text = f"[{inner}]"
    else:
        text = f"({inner},)" if len(buffer.shape) == 1 else f"({inner})"
    text += f', "{buffer.dtype}"'
    if buffer.data:
        text += f", data={buffer.data}.data"
    if buffer.scope != "global":
        text += f', scope="{buffer.scope}"'
    if buffer.axis_separators:
        text += f", axis_separators=[{', '.join(map(str, buffer.axis_separators))}]"
    return text


class _Printer:
    """Collects lines; `extents` knows the constant loops around, for ``T.axis.remap``."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words = words
        self.lines: list[str] = []
        self.depth = 0
        self.extents: dict[Var, Expr] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def top(self, node: Node) -> None:
        if isinstance(node, Module):
            self.line(self.words["ir_module"])
            with self.indented("class Module:"):
                for number, func in enumerate(node.functions):
                    if number:
                        self.lines.append("")
                    self.func(func)
                if not node.functions:
                    self.line("pass")
        elif isinstance(node, PrimFunc):
            self.func(node)
        elif isinstance(node, Stmt):
            self.suite(node)
        else:
            raise TypeError(f"no script form for `{type(node).__name__}`")

    def func(self, func: PrimFunc) -> None:
        self.extents = {}
        self.line(self.words["prim_func"])
        with self.indented(f"def {func.name}({', '.join(map(_parameter, func.params))}):"):
            if func.attrs or func.layouts:
                self.line(f"T.func_attr({_function_attrs(func)})")
            self.root(func.body)

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
            self.line(f"{buffer.name} = {self.words['alloc_buffer']}({buffer_args(buffer)})")

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
                self.line(f"T.evaluate({_text(stmt.value)[0]})")
            case Assume():
                self.line(f"T.assume({_text(stmt.cond)[0]})")
            case Attr():
                value = _quoted(stmt.value) if isinstance(stmt.value, str) else _text(stmt.value)[0]
                with self.indented(f"with T.attr(0, {_quoted(stmt.key)}, {value}):"):
                    self.suite(stmt.body)
            case Let() | Allocate() | Declare():
                self.scoped(stmt, last)
            case Seq():
                self.suite(stmt)
            case _:
                raise TypeError(f"no script form for the statement `{type(stmt).__name__}`")

    def store(self, stmt: Store) -> None:
        value = stmt.value
        text = _typed(value) if isinstance(value, Const) and value.dtype != stmt.buffer.dtype else _text(value)[0]
        self.line(f"{stmt.buffer.name}[{_indices(stmt.indices)}] = {text}")

    def scoped(self, stmt: Let | Allocate | Declare, last: bool) -> None:
        """``x: T.int64 = value`` where the body reaches to the end of the suite, else ``with``."""
        if isinstance(stmt, Let):
            name, value = stmt.var.name, _text(stmt.value)[0]
            short = f"{name}: T.{stmt.var.dtype} = {value}"
            long = f'with T.LetStmt({value}, dtype="{stmt.var.dtype}") as {name}:'
        else:
            name = stmt.buffer.name
            if isinstance(stmt, Declare):
                value = f"T.decl_buffer({buffer_args(stmt.buffer)})"
            else:
                value = f"T.allocate({buffer_args(stmt.buffer, '[]')})"
            short, long = f"{name} = {value}", f"with {value} as {name}:"
        if last:
            self.line(short)
            self.suite(stmt.body)
        else:
            with self.indented(long):
                self.suite(stmt.body)

    def branch(self, stmt: If, word: str) -> None:
        with self.indented(f"{word} {_text(stmt.cond)[0]}:"):
            self.suite(stmt.then)
        if isinstance(stmt.orelse, If):
            self.branch(stmt.orelse, "elif")
        elif stmt.orelse is not None:
            with self.indented("else:"):
                self.suite(stmt.orelse)

    def loop(self, stmt: For) -> None:
        nest = _grid(stmt)
        for loop in nest:
            self.extents[loop.var] = loop.extent
        if len(nest) > 1:
            variables = ", ".join(loop.var.name for loop in nest)
            header = f"for {variables} in T.grid({', '.join(_text(loop.extent)[0] for loop in nest)}):"
        else:
            header = f"for {stmt.var.name} in {_loop_call(stmt)}:"
        with self.indented(header):
            self.suite(nest[-1].body)

    def block(self, block: Block) -> None:
        with self.indented(f"with {self.words['block']}({_quoted(block.name)}):"):
            self.axes(block.iters)
            if block.predicate != TRUE:
                self.line(f"T.where({_text(block.predicate)[0]})")
            if block.annotations:
                self.line(f"{self.words['block_attr']}({_attrs(block.annotations)})")
            self.allocs(block)
            if block.init is not None:
                with self.indented("with T.init():"):
                    self.suite(block.init)
            self.suite(block.body)

    def axes(self, iters: Sequence[Iter]) -> None:
        """Runs of plain loop variables become one ``T.axis.remap``."""
        run: list[Iter] = []
        for one in (*iters, None):
            if one is not None and self.is_remap(one):
                run.append(one)
                continue
            if len(run) > 1:
                kinds = "".join("S" if i.kind == "spatial" else "R" for i in run)
                loops = ", ".join(_text(i.binding)[0] for i in run)
                self.line(f'{", ".join(i.var.name for i in run)} = T.axis.remap("{kinds}", [{loops}])')
            elif run:
                self.axis(run[0])
            run = []
            if one is not None:
                self.axis(one)

    def axis(self, one: Iter) -> None:
        extent = _plain(Const(one.extent, one.var.dtype))
        self.line(f"{one.var.name} = T.axis.{one.kind}({extent}, {_text(one.binding)[0]})")

    def is_remap(self, one: Iter) -> bool:
        if not isinstance(one.binding, Var) or one.kind == "opaque" or one.var.dtype != dtypes.INDEX:
            return False
        return self.extents.get(one.binding) == Const(one.extent)


def _parameter(param: Buffer | Var) -> str:
    if isinstance(param, Buffer):
        return f"{param.name}: T.Buffer({buffer_args(param)})"
    return f"{param.name}: T.{param.dtype}"


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


def _loop_call(stmt: For) -> str:
    extent = _text(stmt.extent)[0]
    if _is_plain_loop(stmt):
        return f"range({extent})"
    if stmt.var.dtype != dtypes.INDEX:
        extent += f', dtype="{stmt.var.dtype}"'
    if stmt.kind == "thread_binding":
        extent += f', thread="{stmt.thread}"'
    if stmt.annotations:
        extent += f", annotations={_attrs(stmt.annotations)}"
    return f"T.{_LOOPS.get(stmt.kind, stmt.kind)}({extent})"
