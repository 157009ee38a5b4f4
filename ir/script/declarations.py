"""Buffers of the script: parameters, allocations and views, with the options that TVM gives them.

``T.decl_buffer`` without ``data=`` allocates as well (RFC 0070)::

    A = T.decl_buffer(shape, dtype)   ==   A_data = T.allocate(shape, dtype)
                                           A = T.decl_buffer(shape, dtype, data=A_data.data)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import mul

from .. import dtypes
from ..arith.simplify import simplify
from ..expr import Buffer, Const, Expr, Extent, Var, as_expr, in_type, reads_memory
from ..extents import as_extent, dims
from ..stmt import fresh
from ..syntax.base import NAMESPACES, Scope, ScriptError, called, dotted, show
from ..syntax.constants import constant, integer, text
from ..syntax.expressions import ExprParser
from ..syntax.words import DECLARE, near
from ..text import shape_text

_SHORT = {"float": "float32", "int": "int32"}
_KNOWN = frozenset({
    "shape", "dtype", "data", "strides", "elem_offset", "byte_offset", "scope", "align", "offset_factor", "buffer_type",
    "layout", "axis_separators", "annotations", "allocated_addr",
})  # fmt: skip
_DEFAULTS: Mapping[str, tuple[object, ...]] = {
    "elem_offset": (None, 0),
    "byte_offset": (None, 0),
    "buffer_type": ("", "default"),
    "layout": (None, "default"),
    "allocated_addr": (None,),
}


class DeclarationParser:
    """Binds names to buffers; `separators` are those that the function's attributes give by name."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.exprs = ExprParser(scope)
        self.separators: dict[str, tuple[int, ...]] = {}
        self.parameters: set[str] = set()  # names of integers that extents may use
        self.in_signature = False

    def error(self, where: ast.AST, message: str) -> ScriptError:
        return self.scope.source.error(where, message)

    def declare(self, target: ast.AST, call: ast.Call) -> Buffer:
        """Bind the name `target` to the buffer that `call` declares."""
        if not isinstance(target, ast.Name):
            raise self.error(target, "a buffer is bound to one name")
        buffer = self.buffer(target.id, target, call.args, call.keywords, called(call))
        self.scope.bind(target.id, buffer, target)
        return buffer

    def backing(self, buffer: Buffer) -> tuple[Buffer, Buffer]:
        """A fresh allocation for `buffer`, and `buffer` as a view of it."""
        name = fresh(f"{buffer.name}_data", self.scope.taken)
        self.scope.taken.add(name)
        owner = Buffer(name, buffer.extents, buffer.dtype, buffer.scope, buffer.axis_separators)
        return owner, replace(buffer, data=owner.name)

    def buffer(
        self, name: str, where: ast.AST, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], call: str
    ) -> Buffer:
        """``(shape, dtype, options)`` as a buffer with a unique name."""
        given = self._options(args, keywords, call)
        if "shape" not in given:
            raise self.error(where, f"buffer `{name}` needs a shape")
        shape = self._shape(name, given["shape"])
        dtype = self.dtype(given.get("dtype", where), self._dtype_text(given.get("dtype")))
        shape = self._in_memory(name, shape, given)
        scope = {"alloc_local": "local", "alloc_shared": "shared"}.get(call, "global")
        if "scope" in given:
            scope = text(given["scope"], self.scope, f"the scope of `{name}`") or "global"
        return Buffer(
            self.scope.unique(name, where), shape, dtype, scope, self._separators(name, given), self._data(given, call)
        )

    def _options(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], call: str) -> dict[str, ast.expr]:
        names = ("shape", "dtype", "scope") if call == "allocate" else ("shape", "dtype", "data", "strides")
        if len(args) > len(names) or any(isinstance(a, ast.Starred) for a in args):
            raise self.error(args[-1], f"give what follows `{names[-1]}` by keyword")
        given = dict(zip(names, args, strict=False))
        for item in keywords:
            key = "shape" if call == "allocate" and item.arg == "extents" else item.arg
            if key is None or key not in _KNOWN:
                raise self.error(item.value, f"a buffer has no option `{key}`{near(key or '', _KNOWN)}")
            if key in given:
                raise self.error(item.value, f"`{key}` is given twice")
            given[key] = item.value
        return given

    def _shape(self, name: str, node: ast.expr) -> tuple[Extent, ...]:
        items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        extents = tuple(self.extent(e, f"an extent of `{name}`") for e in items)
        if any(isinstance(e, int) and e < 1 for e in extents):
            raise self.error(node, f"the extents of `{name}` must be at least 1, but are {shape_text(extents)}")
        return extents

    def extent(self, node: ast.expr, what: str) -> Extent:
        """A number, or an expression of integer parameters; those that have only a type yet are `PrimFunc.sizes`.

        An expression may stand in quotes: an annotation can use what is defined behind it.
        """
        if self.in_signature and isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = self._unquoted(node, node.value, what)
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in NAMESPACES]
        for name in names if self.in_signature else ():
            dtype = self.scope.declared.get(name.id, "")
            if self.scope.find(name.id) is None and dtypes.is_int(dtype or "bool") and dtypes.lanes(dtype) == 1:
                self.scope.bind(name.id, Var(self.scope.unique(name.id, name), dtype), name)
                self.parameters.add(name.id)
        if not any(isinstance(self.scope.find(n.id), Expr) for n in names):
            return integer(node, self.scope, what)
        value = self.exprs.expr(node)
        if not dtypes.is_int(value.dtype) or dtypes.lanes(value.dtype) > 1 or reads_memory(value):
            raise self.error(node, f"{what} is an integer computed from parameters, but got `{show(node)}`")
        other = next((n.id for n in names if n.id not in self.parameters and self.scope.find(n.id) is not None), None)
        if other is not None:
            raise self.error(node, f"{what} is computed from integer parameters of the function, and `{other}` is none")
        return as_extent(value)

    def _unquoted(self, node: ast.Constant, written: str, what: str) -> ast.expr:
        try:
            inside = ast.parse(written.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self.error(node, f"{what} must be an expression, but got `{show(node)}`") from None
        for part in ast.walk(inside):
            ast.copy_location(part, node)
        return inside

    def _dtype_text(self, node: ast.expr | None) -> str:
        if node is None:
            return "float32"
        name = dotted(node)
        if name and self.scope.captured.get(name) is None:
            return name
        return text(node, self.scope, "`dtype`")

    def dtype(self, where: ast.AST, dtype: str) -> str:
        """`dtype` if it is one, in its only spelling."""
        dtype = _SHORT.get(dtype, dtype)
        try:
            dtypes.split_dtype(dtype)
        except ValueError as error:
            raise self.error(where, str(error)) from None
        return dtype

    def _separators(self, name: str, given: Mapping[str, ast.expr]) -> tuple[int, ...]:
        node = given.get("axis_separators")
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return self.separators.get(name, ())
        if not isinstance(node, (ast.Tuple, ast.List)):
            raise self.error(node, f"`axis_separators` is a list of axes, but got `{show(node)}`")
        return tuple(integer(a, self.scope, "an axis separator") for a in node.elts)

    def _in_memory(self, name: str, shape: tuple[Extent, ...], given: Mapping[str, ast.expr]) -> tuple[Extent, ...]:
        """The shape of the dense row-major buffer that has these elements in these places; refuse where none has.

        Rows of 4 that stand 5 apart are those of a buffer whose rows are 5 long.  Variables that nothing else defines,
        ``strides=[s, 1], elem_offset=o``, are what they are in dense memory.
        """
        behind = [dims(shape[dim + 1 :]) for dim in range(len(shape))]
        dense = tuple(as_extent(simplify(reduce(mul, rest, as_expr(1)))) for rest in behind)
        self.bind_open(given.get("elem_offset"), as_expr(0))
        listed = given.get("strides")
        pairs = list(zip(getattr(listed, "elts", ()), dense, strict=False))
        is_open = {id(node): value for node, value in pairs if self.bind_open(node, as_expr(value))}
        for key, allowed in _DEFAULTS.items():
            node = given.get(key)
            if node is None:
                continue
            value = node.value if isinstance(node, ast.Constant) else constant(node, self.scope)
            bound = self.scope.find(node.id) if isinstance(node, ast.Name) else None
            value = int(bound.value) if isinstance(bound, Const) else value
            is_known = value is not None or isinstance(node, ast.Constant)
            if not is_known or value not in allowed:
                raise self.error(node, f"`{key}` of `{name}` must be {' or '.join(map(repr, allowed))}: buffers are "
                                 "dense and start where their memory starts")  # fmt: skip
        node = given.get("strides")
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return shape
        items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        strides = tuple(is_open[id(e)] if id(e) in is_open else self.extent(e, f"a stride of `{name}`") for e in items)
        steps = tuple(as_extent(simplify(as_expr(e))) for e in strides)
        is_dense = len(steps) == len(dense) and all(
            size == 1 or step == own for size, step, own in zip(shape, steps, dense, strict=True)
        )  # an axis of one element is never stepped along
        if is_dense or not strides:
            return shape
        wider = _wider(shape, strides)
        if wider is None:
            raise self.error(
                node, f"the strides {shape_text(strides)} of `{name}` differ from the dense ones, "
                f"{shape_text(dense)}; declare the shape that is in memory, and index it accordingly",
            )  # fmt: skip
        return wider

    def bind_open(self, node: ast.expr | None, value: Expr) -> bool:
        """Give a variable of which only the type is known this value; whether it is one."""
        dtype = self.scope.declared.get(node.id, "") if isinstance(node, ast.Name) else ""
        if not isinstance(node, ast.Name) or not dtype or self.scope.find(node.id) is not None:
            return False
        self.scope.bind(node.id, in_type(value, dtype), node)
        return True

    def _data(self, given: Mapping[str, ast.expr], call: str) -> str:
        """The name of the buffer that owns the memory."""
        node = given.get("data")
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return ""
        if call not in DECLARE:
            raise self.error(node, f"`T.{call}` has memory of its own; use `T.decl_buffer` for a view of other memory")
        owner = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
        if not isinstance(owner, ast.Name):
            raise self.error(node, f"`data=` names memory that is defined, as in `A.data`, but got `{show(node)}`")
        return self.exprs.buffer(owner).memory

    def view(self, name: ast.Name, call: ast.Call) -> Buffer:
        """``A.view(4, 4)`` or ``A.view("int32")``: the memory of `A` by another shape or type of the same width."""
        assert isinstance(call.func, ast.Attribute)
        base = self.exprs.buffer(call.func.value)
        if len(call.args) == 1 and not call.keywords and constant(call.args[0], self.scope) is None:
            dtype = self.dtype(call.args[0], self._dtype_text(call.args[0]))
            if dtypes.nbytes(dtype) != dtypes.nbytes(base.dtype):
                raise self.error(call, f"a view of `{base.name}` by {dtype} needs a shape; use `T.decl_buffer`")
            shape = base.extents
        else:
            dtype, shape = base.dtype, self._shape(name.id, ast.copy_location(ast.Tuple(call.args), call))
        view = Buffer(self.scope.unique(name.id, name), shape, dtype, base.scope,
                      self.separators.get(name.id, ()), base.memory)  # fmt: skip
        self.scope.bind(name.id, view, name)
        return view


def _wider(shape: tuple[Extent, ...], strides: tuple[Extent, ...]) -> tuple[Extent, ...] | None:
    """The shape whose dense strides are `strides`, which holds `shape` in its corner; None if there is none."""
    known = [s for s in strides if isinstance(s, int)]
    if len(known) != len(shape) or min(known) < 1 or known[-1] != 1 or any(a % b for a, b in pairwise(known)):
        return None
    rows = [a // b for a, b in pairwise(known)]
    if any(not isinstance(e, int) or e > n for e, n in zip(shape[1:], rows, strict=True)):
        return None
    return shape[0], *rows
