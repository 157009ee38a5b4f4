"""TVMScript text to programs.

The text is read through ``ast`` and never executed.  A file may hold imports,
constants (``M = 1024``) and other code beside its functions; imports are
ignored and other code is skipped.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from .. import dtypes
from ..depth import deep
from ..expr import Buffer, Var
from ..layout.layout import Layout
from ..stmt import Block, Layouts, Module, PrimFunc, Stmt
from ..syntax.base import NAMESPACES, Scope, ScriptError, Source, called, dotted
from ..syntax.constants import attributes, constant
from ..syntax.intrinsics import is_dtype
from ..syntax.words import BLOCK, DECLARE
from .blocks import Header
from .statements import StmtParser

__all__ = ["MAX_DEPTH", "ScriptError", "parse", "parse_function"]

MAX_DEPTH = 128
"""How deep statements and expressions may be nested; a sum of n terms is n deep."""

# CPython opens the named file to quote the line of a syntax error: this one can never be there.
_NOWHERE = "/dev/null/script"
_INTEGERS, _SIZES = "integers ", "sizes "  # among what is captured; no name has a space


def parse(
    text: str, name: str | None = None, *, given: Mapping[str, int | float | str] | None = None,
    integers: str = dtypes.INDEX,
) -> PrimFunc | Module:  # fmt: skip
    """The function or module in `text`; among several, the one called `name`.

    `given` are numbers and types for names that the text does not define: ``{"dtype": "float16", "N": 128}``.
    `integers` is the type of plain integers, and of loops that they bound: apache-tvm's are int32.
    Raises ScriptError, with line and column, for text that is not a program,
    and when `name` is missing or unknown.
    """
    source, tree = _read(text)
    if not is_dtype(integers) or not dtypes.is_int(integers):
        raise ValueError(f"`integers` is a type of integers, but is `{integers}`")
    variables = (
        n for n in tree.body if isinstance(n, ast.Assign) and called(n.value) == "TypeVar"
    )  # as apache-tvm does
    sizes = [target.id for node in variables for target in node.targets if isinstance(target, ast.Name)]
    captured = {**(given or {}), **_constants(tree, source), _INTEGERS: integers, _SIZES: sizes}
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if _is_function(node) or (isinstance(node, ast.ClassDef) and "ir_module" in _decorators(node)):
            found[node.name] = node
    if name is None:
        return _parse_only(source, tree, found, captured)
    for owner in list(found.values()):
        if isinstance(owner, ast.ClassDef):
            found.update({m.name: m for m in _methods(owner) if m.name not in found})
    if name not in found:
        near = difflib.get_close_matches(str(name), found, 1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ScriptError(f"no function `{name}`{hint}; the text has {_listed(found)}", 1, 1, "")
    return _convert(source, found[name], captured)


def _parse_only(
    source: Source, tree: ast.Module, found: Mapping[str, ast.AST], captured: Mapping[str, Any]
) -> PrimFunc | Module:
    if not found:
        for node in tree.body:
            for decorator in _decorators(node) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ():
                if difflib.get_close_matches(decorator, ("prim_func", "ir_module"), 1):
                    raise source.error(node.decorator_list[0], "did you mean `@T.prim_func` or `@T.ir_module`?")  # type: ignore[attr-defined]
        raise ScriptError("the text has no `@T.prim_func` function, which is what a program is", 1, 1, "")
    if len(found) > 1:
        second = list(found.values())[1]
        several = f"the text has several functions ({_listed(found)})"
        raise source.error(second, f"{several}; choose one with `name=`, or `--name` of the command")
    return _convert(source, next(iter(found.values())), captured)


def _listed(found: Mapping[str, ast.AST]) -> str:
    return ", ".join(f"`{n}`" for n in found) or "none"


# ---------------------------------------------------------------- text


def _read(text: str) -> tuple[Source, ast.Module]:
    if not isinstance(text, str):
        raise TypeError(f"`parse` takes the text of a script, but got something of type {type(text).__name__}")
    body = textwrap.dedent(text)
    lines, dedented = _lines(text), _lines(body)
    first = next((line for line in lines if line.strip()), "")
    begin = next((line for line in dedented if line.strip()), "")
    source = Source(dedented, indent=len(first) - len(begin))
    tree = _tree(body, source)
    _check_depth(tree, source)
    return source, tree


def _lines(text: str) -> list[str]:
    """Lines as Python counts them, which are fewer than those of ``str.splitlines``."""
    return re.split(r"\r\n|\r|\n", text)


def _tree(body: str, source: Source) -> ast.Module:
    try:
        return ast.parse(body, _NOWHERE)
    except SyntaxError as error:
        row = min(max(error.lineno or 1, 1), len(source.lines))
        column = max(error.offset or 1, 1) + source.indent
        line = " " * source.indent + source.lines[row - 1]
        raise ScriptError(error.msg, row + source.first_line - 1, column, line) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "it is nested too deeply" if not isinstance(error, ValueError) else str(error)
        raise ScriptError(f"the text cannot be read: {reason}", 1, 1, source.lines[0]) from None


def _check_depth(tree: ast.Module, source: Source) -> None:
    """Refuse what is nested so deeply that recursive functions over the program would fail."""
    stack: list[tuple[ast.AST, int, ast.AST]] = [(tree, 0, tree)]
    while stack:
        node, depth, place = stack.pop()
        if depth > MAX_DEPTH:
            raise source.error(place, f"this is nested more than {MAX_DEPTH} levels deep; name parts of it by bindings")
        here = node if hasattr(node, "lineno") else place
        stack.extend((child, depth + 1, here) for child in ast.iter_child_nodes(node))


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


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and any(name == "prim_func" for name in _decorators(node))


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [m for m in node.body if _is_function(m)]


# ---------------------------------------------------------------- functions


def _convert(source: Source, node: ast.AST, captured: Mapping[str, Any]) -> PrimFunc | Module:
    if isinstance(node, ast.ClassDef):
        names = frozenset(m.name for m in _methods(node))
        return Module(tuple(_function(source, m, captured, names) for m in _methods(node)))
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


def _function(
    source: Source, node: ast.FunctionDef, captured: Mapping[str, Any], siblings: frozenset[str] = frozenset()
) -> PrimFunc:
    """The function, which may call the others of its module, the `siblings`."""
    if node.name in NAMESPACES:
        raise source.error(node, f"`{node.name}` is the script's namespace; give the function another name")
    try:
        with deep():  # values that are bound one after the other are scopes in each other
            scope = Scope(source, captured, integers=captured.get(_INTEGERS, dtypes.INDEX))
            return _FunctionParser(StmtParser(scope, siblings), node).parse()
    except RecursionError:
        raise source.error(node, "the function is nested too deeply to be read here") from None


class _FunctionParser:
    """Signature, attributes, and the root block."""

    def __init__(self, stmts: StmtParser, node: ast.FunctionDef) -> None:
        self.stmts, self.node = stmts, node
        self.scope, self.error = stmts.scope, stmts.error
        self.handles: dict[str, ast.arg] = {}
        self.params: dict[str, Buffer | Var | None] = {}
        self.attrs: dict[str, Any] = {}
        self.suite = [one for item in node.body for one in _apart(item)]
        self.ahead: set[ast.stmt] = set()  # what was taken before its turn

    def parse(self) -> PrimFunc:
        given = self.node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(self.node, "parameters are plain names with annotations, without defaults or `*`")
        self.stmts.lowered_allocations = _is_lowered(self.node)
        self._attributes()
        self.scope.declared.update(dict.fromkeys(self.scope.captured.get(_SIZES, ()), dtypes.INDEX))
        self._sizes_behind()
        args = [arg for arg in (*given.posonlyargs, *given.args) if arg.arg != "self"]
        self.stmts.in_signature = True
        for arg in sorted(args, key=_has_extents):  # which may use scalars that stand behind them
            self._parameter(arg)
        self.params = {arg.arg: self.params[arg.arg] for arg in args}
        body = self._prologue(self.suite)
        self.stmts.in_signature = False
        params = []
        for name, param in self.params.items():
            if param is None:
                raise self.error(self.handles[name], f"parameter `{name}` has no `T.match_buffer`")
            params.append(param)
        root = self._root(body)
        attrs = tuple((k, v) for k, v in self.attrs.items() if k != "layouts")
        return PrimFunc(self.node.name, tuple(params), root, self._layouts(), attrs)

    def _sizes_behind(self) -> None:
        """Take ``n = T.int32()`` of the body for an annotation before it that has ``"n"`` among its extents."""
        notes = [arg.annotation for arg in (*self.node.args.posonlyargs, *self.node.args.args) if arg.annotation]
        texts = [n.value for note in notes for n in ast.walk(note) if isinstance(n, ast.Constant)]
        quoted = {word for text in texts if isinstance(text, str) for word in re.findall(r"\w+", text)}
        for node in self.suite:
            value, target = getattr(node, "value", None), getattr(node, "targets", [None])[0]
            if isinstance(value, ast.Call) and isinstance(target, ast.Name) and target.id in quoted:
                self.ahead |= {node} if self.stmts.declares_variable(target, value) else set()

    # ------------------------------------------------------------ attributes

    def _attributes(self) -> None:
        """Every ``T.func_attr`` of the function's own suite; ``axis_separators`` go to the buffers they name."""
        for node in self.node.body:
            if not isinstance(node, ast.Expr) or called(node.value) != "func_attr":
                continue
            assert isinstance(node.value, ast.Call)
            if len(node.value.args) != 1 or node.value.keywords:
                raise self.error(node, "`T.func_attr` takes one dictionary")
            for key, value in attributes(node.value.args[0], self.scope):
                if key in self.attrs:
                    raise self.error(node, f"the attribute `{key}` is given twice")
                self.attrs[key] = value
        for item in self._pairs("axis_separators", self.attrs.pop("axis_separators", ())):
            name, axes = item
            if not isinstance(axes, tuple) or not all(type(a) is int for a in axes):
                raise self.error(self.node, f"the axis separators of `{name}` must be a list of axes, but are {axes!r}")
            self.stmts.separators[name] = axes

    def _pairs(self, key: str, value: Any) -> tuple[tuple[str, Any], ...]:
        """The items of a dictionary of names."""
        items = value if isinstance(value, tuple) else (None,)
        if all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in items):
            return items
        raise self.error(self.node, f"the attribute `{key}` must be a dictionary of names, but is {value!r}")

    def _layouts(self) -> Layouts:
        """``{param: (logical shape, index map, pad value)}`` as layouts."""
        found: list[tuple[str, Layout]] = []
        for name, fields in self._pairs("layouts", self.attrs.get("layouts", ())):
            match fields:
                case (tuple() as shape, str() as index_map, str() as pad) if all(type(e) is int for e in shape):
                    found.append((name, self._layout(name, shape, index_map, pad)))
                case _:
                    form = "`(logical shape, index map, pad value)`"
                    raise self.error(self.node, f"the layout of `{name}` must be {form}")
        return tuple(found)

    def _layout(self, name: str, shape: tuple[int, ...], index_map: str, pad: str) -> Layout:
        """The layout of a buffer parameter."""
        buffer = self.params.get(name)
        if not isinstance(buffer, Buffer):
            raise self.error(self.node, f"a layout names `{name}`, which is no buffer parameter")
        try:
            return Layout.parse(shape, index_map, pad, buffer.shape)
        except ValueError as error:
            raise self.error(self.node, f"the layout of `{name}`: {error}") from None

    # ------------------------------------------------------------ parameters

    def _parameter(self, arg: ast.arg) -> None:
        note = arg.annotation
        if arg.arg in self.params:
            raise self.error(arg, f"two parameters are called `{arg.arg}`")
        if note is None:
            example = f'{arg.arg}: T.Buffer((4, 4), "float32")'
            raise self.error(arg, f"parameter `{arg.arg}` needs a type, as in `{example}`")
        if isinstance(note, ast.Call) and dotted(note.func) == "Buffer":
            self._bind(arg, self.stmts.buffer(arg.arg, arg, note.args, note.keywords, "Buffer"))
        elif isinstance(note, ast.Subscript) and dotted(note.value) == "Buffer":
            self._bind(arg, self.stmts.buffer(arg.arg, arg, self._old_style(note.slice), [], "Buffer"))
        elif dotted(note) == "handle" or called(note) == "handle":
            self.handles[arg.arg] = arg
            self.params[arg.arg] = None
        else:
            name = note.value if isinstance(note, ast.Constant) and isinstance(note.value, str) else dotted(note)
            outer = self.scope.captured.get(name)
            name = outer if isinstance(outer, str) else name
            dtype = self.stmts.dtype(note, name or ast.unparse(note)[:60])
            self._bind(arg, Var(self.scope.unique(arg.arg, arg), dtype))
            if dtypes.is_int(dtype):
                self.stmts.parameters.add(arg.arg)

    def _old_style(self, items: ast.expr) -> list[ast.expr]:
        """``T.Buffer[16, "float32"]``, ``T.Buffer[(4, 4), "float32"]``, ``T.Buffer[(4, 4)]``."""
        if not isinstance(items, ast.Tuple):
            return [items]
        last = items.elts[-1] if items.elts else items
        has_type = (isinstance(last, ast.Constant) and isinstance(last.value, str)) or is_dtype(dotted(last))
        return items.elts if has_type and len(items.elts) == 2 else [items]

    def _bind(self, arg: ast.arg, value: Buffer | Var) -> None:
        self.scope.bind(arg.arg, value, arg)
        self.params[arg.arg] = value

    def _prologue(self, body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
        """Take the docstring, attributes, ``T.match_buffer`` and typed variables; the rest is the root's."""
        for number, node in enumerate(body):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                continue
            if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and called(value) == "func_attr":
                continue
            if node in self.ahead or self._renames_handle(node) or self._renames_size(node):
                continue
            if not isinstance(node, ast.Assign) or not isinstance(value, ast.Call) or not self._early(node, value):
                return [n for n in body[number:] if not self._late(n)]
        return []

    def _late(self, node: ast.stmt) -> bool:
        """Take a ``T.match_buffer`` of a handle that stands behind other statements."""
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign) or not isinstance(value, ast.Call) or called(value) != "match_buffer":
            return False
        return bool(self._handle(value)) and self._early(node, value)

    def _renames_handle(self, node: ast.stmt) -> bool:
        """Take ``b: T.handle = a`` of a handle `a` that has no buffer yet: another name for it."""
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])
        target, value = targets[0], getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Name) or value.id not in self.handles:
            return False
        self.handles[target.id] = self.handles[value.id]
        return True

    def _renames_size(self, node: ast.stmt) -> bool:
        """Take ``m = n`` of an integer parameter `n` where `m` declares the memory of a handle: another name for it."""
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])
        target, value = targets[0], getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Name):
            return False
        calls = [n.value for n in self.suite if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
        over = [call for call in calls if called(call) in DECLARE and self._open_handle(call)]
        declaring = {name.id for call in over for name in ast.walk(call) if isinstance(name, ast.Name)}
        if value.id not in self.stmts.parameters or target.id not in declaring:
            return False
        param = self.scope.find(value.id)
        assert isinstance(param, Var)
        self.scope.bind(target.id, param, target)
        self.stmts.parameters.add(target.id)
        return True

    def _early(self, node: ast.Assign, call: ast.Call) -> bool:
        """Take an assignment that belongs to the signature, or a variable's type."""
        name, target = called(call), node.targets[0]
        if name == "match_buffer" and call.args and isinstance(call.args[0], ast.Subscript):
            return False  # a region of a buffer
        if name == "match_buffer":
            self._match(node, call, call.args[1:] if self._handle(call) else call.args)
        elif name in DECLARE and self._open_handle(call):
            self._declared_handle(call)
            return False
        else:
            return isinstance(target, ast.Name) and self.stmts.declares_variable(target, call)
        return True

    def _handle(self, call: ast.Call) -> str:
        """The handle that is the call's first argument."""
        first = call.args[0] if call.args else None
        return self.handles[first.id].arg if isinstance(first, ast.Name) and first.id in self.handles else ""

    def _match(self, node: ast.Assign, call: ast.Call, args: Sequence[ast.expr]) -> None:
        """``A = T.match_buffer(a, shape, ...)``; without a handle, the next one that has no buffer yet."""
        target = node.targets[0]
        waiting = [name for name, value in self.params.items() if value is None]
        key = self._handle(call) or (waiting[0] if waiting and not (args and isinstance(args[0], ast.Name)) else "")
        if self.params.get(key, self.node) is not None or not isinstance(target, ast.Name):
            raise self.error(node, "`T.match_buffer` takes a parameter of type `T.handle` that is not matched yet")
        buffer = self.stmts.buffer(target.id, target, args, call.keywords, "match_buffer")
        self.scope.bind(target.id, buffer, target)
        self.params[key] = buffer

    def _open_handle(self, call: ast.Call) -> str:
        """The handle without a buffer that the call takes as its data."""
        data = next((k.value for k in call.keywords if k.arg == "data"), None)
        name = data.id if isinstance(data, ast.Name) else ""
        name = self.handles[name].arg if name in self.handles else name
        return name if self.params.get(name, self.node) is None else ""

    def _declared_handle(self, call: ast.Call) -> None:
        """The first view that is declared over a handle gives the parameter its size and type."""
        name = self._open_handle(call)
        keywords = [k for k in call.keywords if k.arg not in ("data", "axis_separators")]
        arg = self.handles[name]
        owner = self.stmts.buffer(name, arg, call.args, keywords, "match_buffer")
        self._bind(arg, owner)
        for other in (other for other, own in self.handles.items() if own is arg and other != name):
            self.scope.bind(other, owner, arg)

    # ------------------------------------------------------------ body

    def _root(self, body: Sequence[ast.stmt]) -> Block:
        if len(body) == 1 and isinstance(body[0], ast.With) and self._is_root(body[0]):
            return self.stmts.block(body[0])
        header = Header()
        self.stmts.headers.append(header)
        self.stmts.block_names.add("root")
        root = self.stmts.declared(header.block("root", self._checked(header, body)), header)
        self.stmts.check(root, header)
        return root

    def _checked(self, header: Header, body: Sequence[ast.stmt]) -> Stmt:
        with self.scope.nested():
            stmt = self.stmts.rest(body, header)
        if header.iters or header.init is not None or header.predicate is not None:
            raise self.error(self.node, "`T.axis`, `T.where` and `T.init` belong into a `with T.block(...)`")
        return stmt

    def _is_root(self, node: ast.With) -> bool:
        call = node.items[0].context_expr
        if not (isinstance(call, ast.Call) and dotted(call.func) in BLOCK and call.args):
            return False
        name = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        own = any(isinstance(s, ast.Assign) and called(s.value).startswith("axis.") for s in node.body)
        own = own or any(isinstance(s, ast.Expr) and called(s.value) == "where" for s in node.body)
        return name == "root" and not own


def _apart(node: ast.stmt) -> list[ast.stmt]:
    """``n, m = T.int32(), T.int32()`` as one assignment for each; anything else as it is."""
    target, value = getattr(node, "targets", [None])[0], getattr(node, "value", None)
    if not isinstance(node, ast.Assign) or not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return [node]
    if len(target.elts) != len(value.elts) or not all(isinstance(v, ast.Call) for v in value.elts):
        return [node]
    pairs = zip(target.elts, value.elts, strict=True)
    return [ast.copy_location(ast.Assign([own], call), node) for own, call in pairs]


def _has_extents(arg: ast.arg) -> bool:
    """Whether the type of a parameter is that of a buffer."""
    note = arg.annotation
    found = note.func if isinstance(note, ast.Call) else note.value if isinstance(note, ast.Subscript) else None
    return found is not None and dotted(found) == "Buffer"


def _is_lowered(node: ast.FunctionDef) -> bool:
    """Whether the function is in apache-tvm 0.27's dialect, whose ``T.alloc_buffer`` is a statement."""
    for item in node.decorator_list:
        for option in item.keywords if isinstance(item, ast.Call) else ():
            if option.arg == "s_tir" and isinstance(option.value, ast.Constant):
                return option.value.value is True
    return False
