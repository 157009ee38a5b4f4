"""Whether two programs are the same up to names of bound variables and spelling.

Statements must agree one by one, buffers and named blocks by name.  Loop variables,
iterators and let bindings may be called differently, and index arithmetic that is bound to
a name is written out.  Two expressions agree when they are
equal after simplification, or equal at every point of the loops around, which isl decides
exactly.  So ``io == 3 and 2 <= ii`` is ``14 <= 4 * io + ii`` of a 4 x 4 grid, but a
condition that tests one element more is different.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from stridesmith.ir import dtypes
from stridesmith.ir.affine.sets import Domain, NotAffine, Unknown, counterexample, is_affine
from stridesmith.ir.arith.simplify import simplify
from stridesmith.ir.expr import Binary, Buffer, Const, Expr, Not, Var, binary, substitute
from stridesmith.ir.node import Node
from stridesmith.ir.stmt import Block, For, If, Let, Module, PrimFunc, Seq, Stmt, loads


class Different(AssertionError):
    """Two programs differ; the message shows where."""


def same_program(got: PrimFunc | Module, wanted: PrimFunc | Module) -> None:
    """Raises `Different` unless the programs are the same; layouts of parameters are not compared."""
    if isinstance(got, Module) and isinstance(wanted, Module):
        if [f.name for f in got.functions] != [f.name for f in wanted.functions]:
            raise Different(f"the functions are {[f.name for f in got.functions]}")
        for one, other in zip(got.functions, wanted.functions, strict=True):
            same_program(one, other)
        return
    if not (isinstance(got, PrimFunc) and isinstance(wanted, PrimFunc)):
        raise Different(f"a {type(got).__name__} is not a {type(wanted).__name__}")
    if got.params != wanted.params or got.name != wanted.name:
        raise Different(f"the signature is {got.name}{list(got.params)}, not {wanted.name}{list(wanted.params)}")
    if got.attrs != wanted.attrs:
        raise Different(f"the attributes are {got.attrs}, not {wanted.attrs}")
    _statements(got.body, wanted.body, Domain(()))


def _statements(a: Stmt, b: Stmt, domain: Domain) -> None:
    a, b = _written_out(a), _written_out(b)
    if type(a) is not type(b):
        raise _differ(a, b)
    if isinstance(a, Seq) and isinstance(b, Seq):
        if len(a.stmts) != len(b.stmts):
            raise _differ(a, b)
        for one, other in zip(a.stmts, b.stmts, strict=True):
            _statements(one, other, domain)
    elif isinstance(a, For) and isinstance(b, For):
        if (a.kind, a.thread, a.annotations) != (b.kind, b.thread, b.annotations):
            raise _differ(a, b)
        _same(a.extent, b.extent, domain)
        extent = a.extent if is_affine(a.extent, frozenset(domain.variables)) else None
        inner = Domain((*domain.dims, (a.var, extent)), domain.conditions)
        _statements(a.body, substitute(b.body, {b.var: a.var}), inner)
    elif isinstance(a, Block) and isinstance(b, Block):
        _blocks(a, b, domain)
    elif isinstance(a, If) and isinstance(b, If):
        _same(a.cond, b.cond, domain)
        _statements(a.then, b.then, _where(domain, a.cond))
        if (a.orelse is None) != (b.orelse is None):
            raise _differ(a, b)
        if a.orelse is not None and b.orelse is not None:
            _statements(a.orelse, b.orelse, _where(domain, Not(a.cond)))
    elif isinstance(a, Let) and isinstance(b, Let):
        _same(a.value, b.value, domain)
        value = a.value if is_affine(a.value, frozenset(domain.variables)) else None
        inner = domain if value is None else Domain((*domain.dims, (a.var, None)), domain.conditions)
        known = inner if value is None else inner.where(binary("==", a.var, value))
        _statements(a.body, substitute(b.body, {b.var: a.var}), known)
    else:
        _fields(a, b, domain)


def _written_out(stmt: Stmt) -> Stmt:
    """The statement without bindings of index arithmetic around it."""
    while isinstance(stmt, Let) and dtypes.is_int(stmt.var.dtype) and not any(loads(stmt.value)):
        stmt = substitute(stmt.body, {stmt.var: stmt.value})
    return stmt


def _blocks(a: Block, b: Block, domain: Domain) -> None:
    if len(a.iters) != len(b.iters) or (a.name, a.allocs, a.annotations) != (b.name, b.allocs, b.annotations):
        raise _differ(a, b)
    for one, other in zip(a.iters, b.iters, strict=True):
        if (one.extent, one.kind) != (other.extent, other.kind):
            raise Different(f"the iterator {one} is not {other}")
        _same(one.binding, other.binding, domain)
    _same(a.predicate, b.predicate, domain)
    if (a.init is None) != (b.init is None):
        raise _differ(a, b)
    renamed = {y.var: x.var for x, y in zip(a.iters, b.iters, strict=True)}
    inner = Domain(tuple((i.var, i.extent) for i in a.iters)) if a.iters else domain
    if a.init is not None and b.init is not None:
        _statements(a.init, substitute(b.init, renamed), inner)
    _statements(a.body, substitute(b.body, renamed), inner)


def _where(domain: Domain, cond: Expr) -> Domain:
    return domain.where(cond) if is_affine(cond, frozenset(domain.variables)) else domain


def _fields(a: Node, b: Node, domain: Domain) -> None:
    """Equal field by field, with expressions and statements compared as such."""
    for field in fields(a):  # type: ignore[arg-type]
        _value(getattr(a, field.name), getattr(b, field.name), domain, a, b)


def _value(x: Any, y: Any, domain: Domain, a: Node, b: Node) -> None:
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        for one, other in zip(x, y, strict=True):
            _value(one, other, domain, a, b)
    elif isinstance(x, Stmt) and isinstance(y, Stmt):
        _statements(x, y, domain)
    elif isinstance(x, Expr) and isinstance(y, Expr):
        _same(x, y, domain)
    elif x != y:
        raise _differ(a, b)


def _same(a: Expr, b: Expr, domain: Domain) -> None:
    """Raises unless the expressions are equal on the domain."""
    if a == b or _simple(a, domain) == _simple(b, domain):
        return
    known = frozenset(domain.variables)
    if a.dtype == b.dtype and is_affine(a, known) and is_affine(b, known):
        point = _disagreement(a, b, domain)
        if point is None:
            return
        raise Different(f"`{_show(a)}` is not `{_show(b)}` at {point}")
    if isinstance(a, (Var, Const, Buffer)) or type(a) is not type(b):
        raise Different(f"`{_show(a)}` is not `{_show(b)}`")
    _fields(a, b, domain)


def _disagreement(a: Expr, b: Expr, domain: Domain) -> dict[str, int] | None:
    equal = binary("==", a, b)
    if dtypes.is_bool(a.dtype):
        both, none = Binary("and", a, b), Binary("and", Not(a), Not(b))
        equal = Binary("or", both, none)
    try:
        return counterexample(domain.relaxed(), equal)
    except (NotAffine, Unknown) as error:
        raise Different(f"cannot compare `{_show(a)}` and `{_show(b)}`: {error}") from None


def _simple(e: Expr, domain: Domain) -> Expr:
    ranges = {v: (0, int(n.value) - 1) for v, n in domain.dims if isinstance(n, Const)}
    ranges |= {v: (0, n - 1) for v, n in domain.dims if isinstance(n, int)}
    result: Expr = simplify(e, ranges)
    return result


def _differ(a: Node, b: Node) -> Different:
    return Different(f"got\n{_show(a)}\nbut wanted\n{_show(b)}")


def _show(node: Node) -> str:
    from stridesmith.ir.stmt import script

    try:
        return script(node).rstrip()
    except TypeError:
        return repr(node)
