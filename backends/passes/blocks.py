"""Blocks become loops and conditions; knowledge about contents goes.

::

    block(v = e, predicate p, init I, body S, allocs B)
        ->  alloc B: if p: { if every reduce binding is 0: I[v := e];  S[v := e] }
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import TRUE, Expr, Var, all_of, binary, substitute
from ...ir.node import rebuild
from ...ir.stmt import Allocate, Block, If, Stmt, seq

Env = dict[Var, Expr]


def remove_blocks(stmt: Stmt) -> Stmt:
    """Each block as its statements over loop variables, its buffers allocated around them."""
    result: Stmt = _convert(stmt, {})
    return result


def _convert(node: Any, env: Env) -> Any:
    if isinstance(node, Expr):
        return substitute(node, env)
    if isinstance(node, Block):
        return _block(node, env)
    return rebuild(node, lambda child: _convert(child, env))


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
