"""What occurs in programs: nodes, operators, types, kinds of loops and of views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from stridesmith.ir import dtypes, expr, stmt
from stridesmith.ir.expr import BINARY_OPS, Binary, Buffer, Call, Const, Expr, Load, Ramp, Var
from stridesmith.ir.functions import LIBRARY_CALLS, MATH_CALLS
from stridesmith.ir.node import Node, walk
from stridesmith.ir.stmt import ITER_KINDS, LOOP_KINDS, Block, Declare, For, If, Iter, Module, PrimFunc, Stmt, Store

VIEWS = ("shape", "lanes", "type")


def _classes() -> list[str]:
    nodes = [c for c in (*vars(expr).values(), *vars(stmt).values()) if isinstance(c, type) and issubclass(c, Node)]
    return sorted({c.__name__ for c in nodes} - {Node.__name__, Expr.__name__, Stmt.__name__})


GRAMMAR: tuple[str, ...] = (
    *_classes(),
    *(f"operator {op}" for op in BINARY_OPS),
    *(f"call {name}" for name in MATH_CALLS if name not in LIBRARY_CALLS), "call of the library",
    *(f"call {name}" for name in ("if_then_else", "masked_load", "load_within", "multiply_accumulate")),
    *(f"type {name}" for name in dtypes.SCALAR_TYPES),
    *(f"vector of {name}" for name in dtypes.SCALAR_TYPES),
    *(f"buffer of {name}" for name in dtypes.SCALAR_TYPES),
    *(f"loop {kind}" for kind in LOOP_KINDS),
    *(f"iterator {kind}" for kind in ITER_KINDS),
    *(f"view by {kind}" for kind in VIEWS),
    "access scalar of scalars", "access vector of scalars", "access scalar of vectors", "access vector of vectors",
    "ramp backwards", "ramp with a stride", "block with init", "block with a predicate", "opaque block", "bare loop",
    "loop of another type", "else", "scalar parameter", "buffer of a block", "module of several functions",
)  # fmt: skip
"""Everything that a generator of programs has to reach."""


def features(program: PrimFunc | Module) -> set[str]:
    """Which of `GRAMMAR` occurs in a program."""
    found: set[str] = set()
    owners = {n.name: n for n in walk(program) if isinstance(n, Buffer) and not n.data}
    for node in walk(program):
        found.add(type(node).__name__)
        found.update(_of_expression(node))
        found.update(_of_statement(node, owners))
    return found


def _of_expression(node: Node) -> Iterable[str]:
    if isinstance(node, Expr):
        base, lanes = dtypes.split_dtype(node.dtype)
        yield f"type {base}"
        if lanes > 1:
            yield f"vector of {base}"
    if isinstance(node, Binary):
        yield f"operator {node.op}"
    elif isinstance(node, Call):
        yield "call of the library" if node.name in LIBRARY_CALLS else f"call {node.name}"
    elif isinstance(node, Buffer):
        yield f"buffer of {dtypes.element(node.dtype)}"
    elif isinstance(node, Ramp) and isinstance(node.stride, Const):
        yield "ramp backwards" if node.stride.value < 0 else "ramp with a stride" if node.stride.value > 1 else "Ramp"
    if isinstance(node, (Load, Store)):
        wide = "vector" if any(dtypes.lanes(i.dtype) > 1 for i in node.indices) else "scalar"
        yield f"access {wide} of {'vectors' if dtypes.lanes(node.buffer.dtype) > 1 else 'scalars'}"


def _of_statement(node: Node, owners: dict[str, Buffer]) -> Iterable[str]:
    if isinstance(node, For):
        yield f"loop {node.kind}"
        if node.var.dtype != dtypes.INDEX:
            yield "loop of another type"
        if any(isinstance(n, Store) for n in walk(node)) and not any(isinstance(n, Block) for n in walk(node)):
            yield "bare loop"
    elif isinstance(node, Iter):
        yield f"iterator {node.kind}"
    elif isinstance(node, Block) and node.name != "root":
        yield from (("block with init",) if node.init is not None else ())
        yield from (("block with a predicate",) if node.predicate != expr.TRUE else ())
        yield from (("opaque block",) if not node.iters else ())
        yield from (("buffer of a block",) if node.allocs else ())
    elif isinstance(node, If) and node.orelse is not None:
        yield "else"
    elif isinstance(node, Declare):
        owner = owners[node.buffer.data]
        mine, other = dtypes.split_dtype(node.buffer.dtype), dtypes.split_dtype(owner.dtype)
        yield "view by type" if mine[0] != other[0] else "view by lanes" if mine[1] != other[1] else "view by shape"
    elif isinstance(node, PrimFunc):
        yield from (("scalar parameter",) if any(isinstance(p, Var) for p in node.params) else ())
    elif isinstance(node, Module) and len(node.functions) > 1:
        yield "module of several functions"


def table(counts: Counter[str], total: int) -> str:
    """How many of `total` programs have each part of the grammar."""
    width = max(map(len, GRAMMAR))
    rows = (f"{name:{width}}  {counts[name]:6}  {100 * counts[name] / total:5.1f} %" for name in GRAMMAR)
    return f"in {total} programs\n" + "\n".join(rows)
