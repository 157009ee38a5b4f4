"""Functions and modules, and all that they are made of.

::

    func   ::= PrimFunc(name, params, body, layouts, attrs)           body is a Block, the root
    module ::= Module(functions)

The statements are those of `statements`, by whose names this module knows them too; what prints them stands in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from . import dtypes
from .expr import Buffer, Expr, Var, free_variables
from .layout.layout import Layout
from .markup import program
from .node import Node, remembered
from .printer import functions_script, node_script
from .statements import (
    ITER_KINDS,
    LOOP_KINDS,
    NAMING,
    NO_NAMES,
    SUBGROUP,
    THREAD_AXES,
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
    has_calls,
    loads,
    loops,
    map_children,
    memories_read,
    memories_written,
    names,
    names_below,
    path_to,
    read_buffers,
    replace_buffer,
    seq,
    span_of,
    stmt_children,
    stores,
    transform_statements,
    walk_stmts,
    written_buffers,
)

__all__ = [
    "ITER_KINDS", "LOOP_KINDS", "NAMING", "NO_NAMES", "SUBGROUP", "THREAD_AXES", "Allocate", "Annotations", "Assert",
    "Assume", "Attr", "Block", "Declare", "Evaluate", "For", "If", "Iter", "Let", "Module", "Opaque", "PrimFunc",
    "Seq", "Stmt", "Store", "While",
    "blocks", "fresh", "has_calls", "loads", "loops", "map_children", "memories_read", "memories_written", "names",
    "names_below",
    "path_to", "read_buffers", "replace_buffer", "script", "seq", "span_of", "stmt_children", "stores",
    "transform_statements", "walk_stmts", "written_buffers",
]  # fmt: skip


Layouts: TypeAlias = tuple[tuple[str, Layout], ...]
"""Layouts by the names of parameters, in order."""


@dataclass(frozen=True, eq=False, repr=False)
class PrimFunc(Node):
    """A function over buffers and scalars, in order; outputs are parameters too.

    `layouts` say by name how the caller's logical arguments lie in buffers whose layout is not the plain one.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Block
    layouts: Layouts = ()
    attrs: Annotations = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The scalar parameters, and behind them the `sizes`."""
        return (*(p for p in self.params if isinstance(p, Var)), *self.sizes)

    @property
    def integers(self) -> tuple[Var, ...]:
        """The scalars that are integers."""
        return tuple(v for v in self.scalars if dtypes.is_int(v.dtype))

    @cached_property
    def sizes(self) -> tuple[Var, ...]:
        """The variables that no parameter gives: arrays do, whose extents they are; in order of appearance."""
        if all(b.is_fixed for b in self.buffers):
            return ()
        used = [v for e in self.stated for v in sorted(free_variables(e), key=lambda v: v.name)]
        return tuple(v for v in dict.fromkeys(used) if v not in self.params)

    @property
    def stated(self) -> tuple[Expr, ...]:
        """The extents of the parameters that are expressions."""
        return tuple(e for b in self.buffers for e in b.extents if isinstance(e, Expr))

    @property
    def is_strict(self) -> bool:
        """Whether the function forbids what rests on finite data: its attribute ``strict_float``."""
        return bool(dict(self.attrs).get("strict_float", False))

    def layout_of(self, param: str) -> Layout | None:
        """The layout of a parameter; None for one that lies as it is declared."""
        return dict(self.layouts).get(param)

    def logical_shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The shape of a buffer parameter as the caller sees it."""
        layout = self.layout_of(buffer.name)
        return buffer.shape if layout is None else layout.logical_shape

    def _key(self) -> tuple[Any, ...]:
        """Equal functions print alike, while layouts are equal however their maps are written."""
        written = tuple((name, k.logical_shape, k.index_map.text, k.pad_text) for name, k in self.layouts)
        return self.name, self.params, self.body, written, self.attrs

    def with_body(self, body: Block) -> PrimFunc:
        return replace(self, body=body)

    def script(self, dialect: str | None = None) -> str:
        """The function as TVMScript text; `parse` of it gives an equal function."""
        return _script(self) if dialect is None else functions_script((self,), dialect)

    def __repr__(self) -> str:
        """Name and parameters."""
        return f"<PrimFunc {_signature(self)}>"

    def _repr_html_(self) -> str:
        return program(self.script())


@remembered
def _script(func: PrimFunc) -> str:
    return functions_script((func,))


@dataclass(frozen=True, eq=False, repr=False)
class Module(Node):
    """Functions by name, in order."""

    functions: tuple[PrimFunc, ...]

    def __getitem__(self, name: str) -> PrimFunc:
        for func in self.functions:
            if func.name == name:
                return func
        raise KeyError(f"no function `{name}`; there are {', '.join(f.name for f in self.functions)}")

    def with_function(self, func: PrimFunc) -> Module:
        """The module with `func` in the place of the function of its name."""
        return Module(tuple(func if f.name == func.name else f for f in self.functions))

    def script(self, dialect: str | None = None) -> str:
        return functions_script(self.functions, dialect, is_module=True)

    def __repr__(self) -> str:
        """The names of its functions."""
        return f"<Module of {', '.join(func.name for func in self.functions) or 'no function'}>"

    def _repr_html_(self) -> str:
        return program(self.script())


def _signature(func: PrimFunc) -> str:
    """``twice(A: float32[8], n: int32)``."""
    told = [
        f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]" if isinstance(p, Buffer) else f"{p.name}: {p.dtype}"
        for p in func.params
    ]
    return f"{func.name}({', '.join(told)})"


def script(node: Node, dialect: str | None = None) -> str:
    """A function, module, statement, expression or buffer as text; all but the last two end with a newline.

    `dialect` is ``"stridesmith"`` (TensorIR's classic spelling, the default) or ``"tvm"`` (what apache-tvm 0.27
    parses).  Raises ValueError for another one.
    """
    return node.script(dialect) if isinstance(node, PrimFunc | Module) else node_script(node, dialect)
