"""TVMScript text to programs.

The text is read through ``ast`` and never executed.  A file may hold imports,
constants (``M = 1024``) and other code beside its functions; imports are
ignored and other code is skipped.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..expr import Buffer, Var
from ..stmt import Block, Layout, Module, PrimFunc, Stmt
from .base import NAMESPACES, Scope, ScriptError, Source, dotted
from .expressions import attributes, constant
from .statements import BLOCK, Header, StmtParser

__all__ = ["ScriptError", "parse", "parse_function"]


def parse(text: str, name: str | None = None) -> PrimFunc | Module:
    """The function or module in `text`; among several, the one called `name`.

    Raises ScriptError, with line and column, for text that is not a program,
    and when `name` is missing or unknown.
    """
    source, tree = _read(text)
    captured = _constants(tree, source)
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        if _is_function(node) or _is_module(node):
            found[node.name] = node
    if name is None:
        return _parse_only(source, found, captured)
    for owner in list(found.values()):
        if isinstance(owner, ast.ClassDef):
            found.update({m.name: m for m in _methods(owner) if m.name not in found})
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise ScriptError(f"no function `{name}`{hint} The text has {_listed(found)}", 1, 1, source.lines[0])
    return _convert(source, found[name], captured)


def _parse_only(source: Source, found: Mapping[str, ast.AST], captured: Mapping[str, Any]) -> PrimFunc | Module:
    first = source.lines[0] if source.lines else ""
    if not found:
        raise ScriptError("the text has no `@T.prim_func` function", 1, 1, first)
    if len(found) > 1:
        second = list(found.values())[1]
        raise source.error(second, f"the text has several functions ({_listed(found)}); choose one by name")
    return _convert(source, next(iter(found.values())), captured)


def _listed(found: Mapping[str, ast.AST]) -> str:
    return ", ".join(f"`{n}`" for n in found) or "none"


def _read(text: str) -> tuple[Source, ast.Module]:
    body = textwrap.dedent(text)
    first = next((line for line in text.splitlines() if line.strip()), "")
    dedented = next((line for line in body.splitlines() if line.strip()), "")
    source = Source(body.splitlines() or [""], indent=len(first) - len(dedented))
    return source, _tree(body, source)


def _tree(body: str, source: Source) -> ast.Module:
    try:
        return ast.parse(body)
    except SyntaxError as error:
        row = min(error.lineno or 1, len(source.lines))
        column = (error.offset or 1) + source.indent
        line = " " * source.indent + source.lines[row - 1]
        raise ScriptError(error.msg, row + source.first_line - 1, column, line) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptError(f"the text cannot be read: {error}", 1, 1, source.lines[0]) from None


def _constants(tree: ast.Module, source: Source) -> dict[str, Any]:
    """Numbers and strings that the file assigns to names at its top level."""
    scope = Scope(source)
    values: dict[str, Any] = {}
    scope.captured = values
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for key, value in pairs:
                result = value.value if isinstance(value, ast.Constant) else constant(value, scope)
                if isinstance(key, ast.Name) and isinstance(result, (int, float, str)):
                    values[key.id] = result
    return values


def _decorators(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    for item in node.decorator_list:
        yield dotted(item.func if isinstance(item, ast.Call) else item)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(name == "prim_func" for name in _decorators(node))


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(name == "ir_module" for name in _decorators(node))


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [m for m in node.body if isinstance(m, ast.FunctionDef) and _is_function(m)]


def _convert(source: Source, node: ast.AST, captured: Mapping[str, Any]) -> PrimFunc | Module:
    if isinstance(node, ast.ClassDef):
        return Module(tuple(_function(source, m, captured) for m in _methods(node)))
    assert isinstance(node, ast.FunctionDef)
    return _function(source, node, captured)


def parse_function(text: str, captured: Mapping[str, Any], first_line: int = 1) -> PrimFunc:
    """The one function in `text`, whose decorators do not matter and which starts in line `first_line` of its file.

    `captured` gives the numbers that names outside of the function stand for.
    """
    source, tree = _read(text)
    source = Source(source.lines, first_line, source.indent)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    if len(functions) != 1:
        raise ScriptError("expected one function", first_line, 1, source.lines[0])
    return _function(source, functions[0], captured)


def _function(source: Source, node: ast.FunctionDef, captured: Mapping[str, Any]) -> PrimFunc:
    if node.name in NAMESPACES:
        raise source.error(node, f"`{node.name}` is the script's namespace; give the function another name")
    scope = Scope(source, captured)
    return _FunctionParser(StmtParser(scope), node).parse()


class _FunctionParser:
    """Signature, attributes, and the root block."""

    def __init__(self, stmts: StmtParser, node: ast.FunctionDef) -> None:
        self.stmts, self.node = stmts, node
        self.scope, self.error = stmts.scope, stmts.error
        self.handles: dict[str, ast.arg] = {}
        self.params: dict[str, Buffer | Var | None] = {}
        self.attrs: tuple[tuple[str, Any], ...] = ()

    def parse(self) -> PrimFunc:
        given = self.node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(self.node, "parameters are plain names with annotations, without defaults or `*`")
        for arg in [*given.posonlyargs, *given.args]:
            if arg.arg != "self":
                self._parameter(arg)
        body = self._prologue(self.node.body)
        params = []
        for name, param in self.params.items():
            if param is None:
                raise self.error(self.handles[name], f"parameter `{name}` has no `T.match_buffer`")
            params.append(param)
        root = self._root(body)
        layouts = tuple(self._layout(*item) for key, value in self.attrs if key == "layouts" for item in value)
        attrs = tuple((k, v) for k, v in self.attrs if k != "layouts")
        return PrimFunc(self.node.name, tuple(params), root, layouts, attrs)

    def _parameter(self, arg: ast.arg) -> None:
        note = arg.annotation
        if arg.arg in self.params:
            raise self.error(arg, f"two parameters are called `{arg.arg}`")
        if note is None:
            example = f'{arg.arg}: T.Buffer((4, 4), "float32")'
            raise self.error(arg, f"parameter `{arg.arg}` needs a type, as in `{example}`")
        if isinstance(note, ast.Call) and dotted(note.func) == "Buffer":
            self._bind(arg, self.stmts.buffer(arg.arg, arg, note.args, note.keywords))
        elif isinstance(note, ast.Subscript) and dotted(note.value) == "Buffer":
            items = note.slice.elts if isinstance(note.slice, ast.Tuple) else [note.slice]
            self._bind(arg, self.stmts.buffer(arg.arg, arg, items, []))
        elif dotted(note) == "handle":
            self.handles[arg.arg] = arg
            self.params[arg.arg] = None
        else:
            dtype = self.stmts.dtype(note, dotted(note) or ast.unparse(note))
            self._bind(arg, Var(self.scope.unique(arg.arg, arg), dtype))

    def _bind(self, arg: ast.arg, value: Buffer | Var) -> None:
        self.scope.bind(arg.arg, value, arg)
        self.params[arg.arg] = value

    def _prologue(self, body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
        """Take the docstring, ``T.func_attr`` and ``T.match_buffer``; the rest is the root's."""
        for number, node in enumerate(body):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                continue
            name = dotted(value.func) if isinstance(value, ast.Call) else ""
            if isinstance(node, ast.Expr) and name == "func_attr" and isinstance(value, ast.Call) and value.args:
                self.attrs += attributes(value.args[0], self.scope)
            elif isinstance(node, ast.Assign) and name == "match_buffer" and isinstance(value, ast.Call):
                self._match(node, value)
            else:
                return body[number:]
        return []

    def _match(self, node: ast.Assign, call: ast.Call) -> None:
        target, handle = node.targets[0], call.args[0] if call.args else None
        key = handle.id if isinstance(handle, ast.Name) else ""
        if key not in self.handles or self.params[key] is not None or not isinstance(target, ast.Name):
            raise self.error(node, "`T.match_buffer` takes a parameter of type `T.handle` that is not matched yet")
        buffer = self.stmts.buffer(target.id, target, call.args[1:], call.keywords)
        self.scope.bind(target.id, buffer, target)
        self.params[key] = buffer

    def _root(self, body: Sequence[ast.stmt]) -> Block:
        if len(body) == 1 and isinstance(body[0], ast.With) and self._is_root(body[0]):
            return self.stmts.block(body[0])
        header = Header()
        self.stmts.headers.append(header)
        self.stmts.block_names.add("root")
        return header.block("root", self._checked(header, body))

    def _checked(self, header: Header, body: Sequence[ast.stmt]) -> Stmt:
        stmt = self.stmts.suite(body, header)
        if header.iters or header.init is not None:
            raise self.error(self.node, "`T.axis` and `T.init` belong into a `with T.block(...)`")
        return stmt

    def _is_root(self, node: ast.With) -> bool:
        call = node.items[0].context_expr
        if not (isinstance(call, ast.Call) and dotted(call.func) in BLOCK and call.args):
            return False
        name = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        axes = any(isinstance(s, ast.Assign) and _is_axis(s.value) for s in node.body)
        return name == "root" and not axes

    def _layout(self, param: str, fields: tuple[Any, ...]) -> Layout:
        return Layout(param, *fields)


def _is_axis(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).startswith("axis.")
