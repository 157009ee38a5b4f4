"""Softmax, and attention with masks as PyTorch means them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from .call import Call, Convert, Result, Unsupported


def _softmax(op: str) -> Convert:
    def convert(call: Call) -> Result:
        if call["half_to_float"]:
            raise Unsupported(f"{call.node.target} changes the type")
        return call.last(op, [call.tensor("self")], axis=call.axis("dim", len(call.shape("self"))))

    return convert


def _attention(call: Call) -> Result:
    """``softmax(q k' scale + mask) v``; heads of queries that follow each other may share keys and values."""
    call.only_first()
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    shape, seen = call.shape("query"), call.shape("key")[-2]
    rank, scores = len(shape), (*shape[:-1], seen)
    shared, leads = call.type(key).shape[:-2], shape[:-2]
    if call["dropout_p"] or call.type(value).shape[:-2] != shared or not _may_share(leads, shared):
        raise Unsupported("attention with dropout, or with keys of another batch than queries, has no program")
    dtype = call.type(query).dtype
    scale = call["scale"] if call.has("scale") else 1 / math.sqrt(shape[-1])
    order = [*range(rank - 2), rank - 1, rank - 2]
    if dtype == "float16":  # products would pass its largest number before they are scaled
        query, scale = call.part("Mul", [query, call.number(scale, dtype)], shape), 1.0
    rows = math.prod(leads) // math.prod(shared) * shape[-2]
    turned = call.part("Transpose", [key], (*shared, shape[-1], seen), perm=order)
    stacked = call.reshaped(query, (*shared, rows, shape[-1]))  # of all queries that share keys, one after the other
    product = call.reshaped(call.part("MatMul", [stacked, turned], (*shared, rows, seen)), scores)

    def weighted(shares: str) -> Result:
        if shared == leads:
            return (call.last("MatMul", [shares, value], 0),)
        mixed = call.part("MatMul", [call.reshaped(shares, (*shared, rows, seen)), value],
                          (*shared, rows, call.type(value).shape[-1]))  # fmt: skip
        return (call.last("Reshape", [mixed], 0),)

    logits = product if scale == 1.0 else call.part("Mul", [product, call.number(scale, dtype)], scores)
    if call["is_causal"]:
        later = np.triu(np.full((shape[-2], seen), -np.inf, dtype), 1)
        logits = call.part("Add", [logits, call.constant(later)], scores)
    if not call.has("attn_mask"):
        return weighted(call.part("Softmax", [logits], scores, axis=rank - 1))
    wide = "float32" if dtype == "float16" else dtype  # in which PyTorch adds a mask of -65504, and scores stay apart
    mask = call.operand("attn_mask", dtype)
    if wide != dtype:
        logits = call.part("Cast", [logits], scores, wide)
        mask = call.part("Cast", [mask], call.type(mask).shape, wide)
    shares = call.part("Where", _shares(call, call.part("Add", [logits, mask], scores), rank - 1), scores, wide)
    if wide != dtype:
        shares = call.part("Cast", [shares], scores, dtype)
    return weighted(shares)


def _may_share(queries: Sequence[int], keys: Sequence[int]) -> bool:
    """Whether the dimensions before the last two of queries are those of keys, or several times as many heads."""
    return tuple(queries) == tuple(keys) or (
        len(queries) == len(keys) > 0 and tuple(queries[:-1]) == tuple(keys[:-1]) and queries[-1] % keys[-1] == 0
    )


def _safe_softmax(call: Call) -> Result:
    tensor = call.tensor("self")
    if call.type(tensor) != call.result() or not call.shape("self"):
        raise Unsupported(f"{call.node.target} changes the type, or has no dimensions")
    return call.last("Where", _shares(call, tensor, call.axis("dim", len(call.shape("self")))))


def _shares(call: Call, logits: str, axis: int) -> list[str]:
    """The operands of a choice: a softmax, but 0 for rows of -inf alone, where it would divide nothing by nothing.

    The lowest number is not -inf: a row of it alone has equal shares.
    """
    shape, dtype = call.type(logits).shape, call.type(logits).dtype
    rows = tuple(1 if at == axis else extent for at, extent in enumerate(shape))
    none, zero = call.number(-math.inf, dtype), call.number(0, dtype)
    highest = call.part("ReduceMax", [logits], rows, axes=[axis], keepdims=1)
    is_empty = call.part("Equal", [highest, none], rows, "bool")
    some = call.part("Where", [is_empty, zero, logits], shape, dtype)
    return [is_empty, zero, call.part("Softmax", [some], shape, axis=axis)]


CONVERT: Mapping[str, Convert] = {
    "_softmax": _softmax("Softmax"),
    "_log_softmax": _softmax("LogSoftmax"),
    "_safe_softmax": _safe_softmax,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
