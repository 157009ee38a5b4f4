"""Products by weights of few bits, ``com.microsoft``'s MatMulNBits: ``y = a W^T + bias``, with

    W[n, k] = (q[n, k] - zero[n, k // block]) scale[n, k // block]

and q of 4 or 8 bits.  The weights stay as they are, two of 4 bits to a byte, and are multiplied out in the product.
With an `accuracy_level` of 4 the operator lets rows be rounded to signed bytes first, each block with a scale of its
own, so that products are of integers; that is done where there are few rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from ..operators.few_bits import most_rows
from ..operators.graph import Type
from .microsoft import DOMAIN, Definition
from .parts import Parts

BITS = (4, 8)
SMALLEST, LARGEST = 16, 256
BYTES = 4
"""The `accuracy_level` at which the first operand may be rounded to bytes."""


def _matmul(p: Parts) -> bool:
    """Inputs: a, weights, scales, and where they are there zero points, the order of groups, and a bias."""
    bits, block, size = (int(p.attribute(name, usual)) for name, usual in (("bits", 4), ("block_size", 0), ("K", 0)))
    count, dtype, blob = int(p.attribute("N", 0)), p.type(0).dtype, block * bits // 8
    is_block = SMALLEST <= block <= LARGEST and block & (block - 1) == 0
    if bits not in BITS or not is_block or dtype not in ("float32", "float16"):
        raise p.refused(f"weights of {bits} bits in blocks of {block} for {dtype}; there are those of 4 and 8 bits, "
                       f"in blocks of a power of two from {SMALLEST} to {LARGEST}, for float32, float16")  # fmt: skip
    groups = -(-size // block)
    if p.has(4):
        raise p.refused("weights whose order `g_idx` changes: each would need its own scale; quantise without it")
    if p.shape(0)[-1:] != (size,) or p.type(1).size != count * groups * blob or p.type(2).size != count * groups:
        raise p.refused(f"operands of {list(p.shape(0))}, {list(p.shape(1))} and {list(p.shape(2))}, which are not "
                       f"those of N = {count} and K = {size}")  # fmt: skip
    rows = prod(p.shape(0)[:-1])
    in_bytes = (
        int(p.attribute("accuracy_level", 0)) == BYTES and 0 < rows <= most_rows(block, bits) and size % block == 0
    )
    given: list[int | str] = [0, p.reshaped(1, (count, groups, blob)), p.reshaped(2, (count, groups))]
    zero = _zero(p, count, groups, bits)
    given.append("" if zero is None else zero)
    if p.has(5):
        given.append(5)
    result = Type((*p.shape(0)[:-1], count), dtype)
    if in_bytes:
        scale = p.own("ScalesOfBlocks", [0], Type((rows, groups), "float32"), block=block)
        shape = (rows, groups, 8 // bits, blob)
        given[0] = p.own("BytesOfBlocks", [0, scale], Type(shape, "int8"))
        given.insert(1, scale)
        p.own("MatMulOfBlocks", given, result, 0, bits=bits)
    else:
        p.own("MatMulOfBits", given, result, 0, bits=bits, block=block)
    return True


def _zero(p: Parts, count: int, groups: int, bits: int) -> str | None:
    """The zero points as floats; None where they are all the middle, as they are without any."""
    if not p.has(3):
        return None
    if p.type(3).dtype != "uint8":  # as floats already
        return p.cast(p.reshaped(3, (count, groups)), "float32")
    known = p.known(3)
    if known is None:
        raise p.refused("zero points that are computed; make them constants")
    rows = known.reshape(count, -1).astype(np.uint8)
    if bits == 4:  # of which a byte has the first in its lower half
        rows = np.stack((rows & np.uint8(15), rows >> np.uint8(4)), axis=-1).reshape(count, -1)
    return p.constant(rows[:, :groups].astype(np.float32))


DEFINITIONS: Mapping[tuple[str, str], Definition] = {(DOMAIN, "MatMulNBits"): _matmul}
"""What each of them is."""
