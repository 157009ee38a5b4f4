"""Normalisations with statistics that are known, or of the tensor itself."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..models.operators.graph import OWN_DOMAIN
from .call import Call, Convert, Result, Unsupported


def _batch_norm(call: Call) -> Result:
    call.only_first()
    channels, dtype = call.shape("input")[1:2], call.result(0).dtype
    factors = [call.vector(name, channels, default, dtype) for name, default in (("weight", 1), ("bias", 0))]
    inputs = [call.tensor("input"), *factors, call.tensor("running_mean"), call.tensor("running_var")]
    return (call.last("BatchNormalization", inputs, 0, epsilon=call["eps"]),)


def _layer_norm(call: Call) -> Result:
    call.only_first()
    size = call.numbers("normalized_shape")
    inputs = [call.tensor("input"), call.vector("weight", size, 1, call.result(0).dtype)]
    inputs += [call.tensor("bias")] if call.has("bias") else []
    return (call.last("LayerNormalization", inputs, 0, axis=-len(size), epsilon=call["eps"]),)


def _group_norm(call: Call) -> Result:
    """Groups are the channels of an instance normalisation of rows; factors of the own channels follow."""
    call.only_first()
    shape, groups = call.shape("input"), call["group"]
    dtype = call.result(0).dtype
    one, none = (call.constant(np.full(groups, value, dtype)) for value in (1, 0))
    rows = (shape[0], groups, math.prod(shape[1:]) // groups)
    grouped = call.part("Reshape", [call.tensor("input")], rows)
    normal = call.part("InstanceNormalization", [grouped, one, none], rows, epsilon=call["eps"])
    back = call.part("Reshape", [normal], shape)
    factors = [call.vector(name, shape[1:2], default, dtype) for name, default in (("weight", 1), ("bias", 0))]
    return (call.last("Affine", [back, *factors], 0, OWN_DOMAIN),)


def _batch_statistics(call: Call) -> Result:
    """Each channel to mean 0 and variance 1 over the batch and its places, of which nothing is kept.

    With a batch of 1, as ``instance_norm`` has it, that is an instance normalisation.
    """
    call.only_first()
    shape, dtype = call.shape("input"), call.result(0).dtype
    if not call["training"] or len(shape) < 3:
        raise Unsupported(f"{call.node.target} has a program for statistics over at least two dimensions alone")
    factors = [call.vector(name, shape[1:2], default, dtype) for name, default in (("weight", 1), ("bias", 0))]
    if shape[0] == 1:
        return (call.last("InstanceNormalization", [call.tensor("input"), *factors], 0, epsilon=call["eps"]),)
    turned = (1, shape[1], shape[0], *shape[2:])
    order = [1, 0, *range(2, len(shape))]
    across = call.part("Transpose", [call.tensor("input")], turned[1:], perm=order)
    normal = call.part("InstanceNormalization", [call.reshaped(across, turned), *factors], turned, epsilon=call["eps"])
    return (call.last("Transpose", [call.reshaped(normal, turned[1:])], 0, perm=order),)


def _counting(call: Call) -> Result:
    raise Unsupported(
        f"{call.node.target} is of a module in training mode, which counts statistics, and has no program; "
        "`model.eval()` may help"
    )


CONVERT: Mapping[str, Convert] = {
    "_native_batch_norm_legit_functional": _counting,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_statistics,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
}
