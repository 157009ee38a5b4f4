"""Two programs as one: the second after the first, and what only it reads of the first's results as its own memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir.expr import Buffer
from ..ir.passes.renaming import copied
from ..ir.stmt import Block, PrimFunc, fresh, names, replace_buffer, seq
from .network import Operator


def merged(first: Operator, second: Operator, needed: Collection[str]) -> Operator:
    """One operator that computes what `second` does after `first`.

    ``P(a, t); C(t, b, y)`` -> ``PC(a, b, y)``, in which t is allocated.  The results of `first` in `needed` stay
    results.  Names of the first program stay, those of the second that it has, too, become others.
    """
    shared: dict[str, Buffer] = {}
    root = first.func.body
    for tensor, buffer in zip((*first.inputs, *first.outputs), first.func.buffers, strict=True):
        if shared.setdefault(tensor, buffer) != buffer:  # a tensor that is passed twice
            root = replace_buffer(root, buffer, shared[tensor])
    assert isinstance(root, Block)
    taken = names(first.func) | {p.name for p in first.func.params}
    own = {p.name for p in second.func.params}
    body = copied(second.func.body, taken | own)
    assert isinstance(body, Block)
    taken |= names(body) - own
    theirs = list(zip((*second.inputs, *second.outputs), second.func.buffers, strict=True))
    for tensor, buffer in theirs:
        if tensor not in shared:
            shared[tensor] = replace(buffer, name=fresh(buffer.name, taken))
            taken.add(shared[tensor].name)
    between = {tensor: replace(buffer, name=f"<{tensor}>") for tensor, buffer in theirs}  # no program has such a name
    for tensor, buffer in theirs:
        body = replace_buffer(body, buffer, between[tensor])
    for tensor, buffer in between.items():
        body = replace_buffer(body, buffer, shared[tensor])
    inputs = tuple(dict.fromkeys((*first.inputs, *(t for t in second.inputs if t not in first.outputs))))
    kept = tuple(t for t in first.outputs if t in needed)
    outputs = (*kept, *second.outputs)
    inner = tuple(shared[t] for t in first.outputs if t not in needed)
    whole = replace(root, body=seq([root.body, body.body]), allocs=(*root.allocs, *body.allocs, *inner))
    params = tuple(shared[t] for t in (*inputs, *outputs))
    func = PrimFunc(first.func.name, params, whole)
    return Operator(second.name, func, inputs, outputs)
