"""Weights that are subnormal numbers, as training leaves them in channels that decayed: zeros do the same, at once.

    y  =  sum over k of x[k] * w[k]      where 0 < |w[k]| < 2**-126      becomes      0 * x[k]

The sum changes by less than ``2**-126 * sum |x[k]|``, which no normal result shows.  A CPU takes a hundred times as
long for a multiply-add of vectors in which one number is subnormal.  Constants that are used in any other way stay,
and so do those of float16, which are normal numbers of float32, in which products are computed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.expr import Buffer, Cast, Load
from ..ir.node import walk
from ..ir.stmt import PrimFunc
from ..space.design.program import product_factors
from ..space.errors import ScheduleError
from ..space.primitives.reduction import update_of
from ..space.tree import leaf_blocks
from .network import Network, Operator


def without_subnormals(network: Network) -> Network:
    """The network with zeros for subnormal weights: constants that only sums of products read."""
    constants = dict(network.constants)
    for name, array in network.constants.items():
        if array.dtype not in (np.float32, np.float64):
            continue
        tiny = (array != 0) & (np.abs(array) < float(np.finfo(str(array.dtype)).smallest_normal))
        if tiny.any() and is_weight(network, name):
            constants[name] = np.where(tiny, np.zeros((), array.dtype), array)
    return replace(network, constants=constants)


def is_weight(network: Network, name: str) -> bool:
    """Whether nothing but sums of products reads a constant, and it does not leave the network."""
    if name in network.outputs:
        return False
    for node in network.consumers[name]:
        if not isinstance(node, Operator):
            return False
        buffers = [b for b, tensor in zip(node.func.buffers, node.inputs, strict=False) if tensor == name]
        if not all(_only_multiplies(node.func, buffer) for buffer in buffers):
            return False
    return True


def _only_multiplies(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether all that is read of a buffer are factors of products that are added up."""
    for block in leaf_blocks(func.body):
        loads = {n for n in walk(block) if isinstance(n, Load) and n.buffer == buffer}
        if not loads:
            continue
        try:
            _, op, value = update_of(block)
        except ScheduleError:
            return False
        factors = product_factors(value)
        if op != "+" or len(factors) < 2 or not loads <= {f.a if isinstance(f, Cast) else f for f in factors}:
            return False
    return True
