"""Blocks become loops and conditions; knowledge about contents goes.

::

    block(v = e, predicate p, init I, body S, allocs B)
        ->  alloc B: if p: { if every reduce binding is 0: I[v := e];  S[v := e] }
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import TRUE, Call, Expr, Select, Undef, Var, all_of, binary, refold
from ...ir.intervals import negate
from ...ir.node import Node, rebuild, transform, walk
from ...ir.simplify_stmt import NOTHING
from ...ir.stmt import Allocate, Assume, Block, If, Stmt, Store, seq

Env = dict[Var, Expr]


def remove_assume(stmt: Stmt) -> Stmt:
    """``assume(c) ->`` nothing: the proofs that use it have been made."""
    result: Stmt = transform(stmt, lambda node: NOTHING if isinstance(node, Assume) else node)
    return result


def remove_blocks(stmt: Stmt) -> Stmt:
    """Each block as its statements over loop variables, its buffers allocated around them."""
    result: Stmt = _convert(stmt, {})
    return result


def _convert(node: Any, env: Env) -> Any:
    if isinstance(node, Var):
        return env.get(node, node)
    if isinstance(node, Block):
        return _block(node, env)
    return refold(rebuild(node, lambda child: _convert(child, env)))


def _block(block: Block, env: Env) -> Stmt:
    inner = {**env, **{i.var: _convert(i.binding, env) for i in block.iters}}
    body: Stmt = _convert(block.body, inner)
    if block.init is not None:
        first = all_of([binary("==", inner[i.var], 0) for i in block.reduce])
        init = _convert(block.init, inner)
        body = seq([init if first == TRUE else If(first, init), body])
    if block.predicate != TRUE:
        body = If(_convert(block.predicate, env), body)
    for buffer in reversed(block.allocs):
        body = Allocate(buffer, body)
    return body


def remove_undef_stores(stmt: Stmt) -> Stmt:
    """A store of `undef` may write anything, so it writes nothing.

    ``b[i] = if_then_else(c, x, undef) -> if c: b[i] = x``.
    """
    result: Stmt = transform(stmt, lambda node: _defined(node) if isinstance(node, Store) else node)
    return result


def _defined(store: Store) -> Stmt:
    value = store.value
    if not _has_undef(value):
        return store
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, a, b = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        then = _defined(Store(store.buffer, store.indices, a))
        other = _defined(Store(store.buffer, store.indices, b))
        if other == NOTHING:
            return NOTHING if then == NOTHING else If(cond, then)
        return If(negate(cond), other) if then == NOTHING else If(cond, then, other)
    return NOTHING


def _has_undef(node: Node) -> bool:
    return any(isinstance(n, Undef) for n in walk(node))
