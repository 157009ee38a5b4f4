"""Products by weights of 4 and 8 bits with a scale for each block, which are made floats in the product.

::

    c[m, n] = c[m, n] + a[m, k] * ((float(w[n, k // block, ...] >> 4 * (k % 2) & 15) - zero[n, k // block])
                                   * scale[n, k // block])

The weights are read as they are kept, two to a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...space.workloads.precision import Precision
from ...space.workloads.text import Program, literal
from .graph import OWN_DOMAIN
from .site import Builder, Built, Site


def _product(site: Site) -> Built:
    """Rows of the first operand, whatever dimensions they have, times the weights; and a bias."""
    values, shape, dtype = site.node.values, site.shape(), site.dtype()
    bits, block = int(values["bits"]), int(values["block"])
    rows, size, (count, groups, blob) = prod(shape[:-1]), shape[-1], site.shape(1)
    program = Program(f"matmul_of_{bits}_bits", Precision(dtype, "float32", dtype))
    at = [f"v{name}" for name, extent in zip("mn", (rows, count), strict=True)]
    row = _row(shape[:-1], "vm")
    program.inputs([("a", shape)])
    program.inputs([("w", (count, groups, blob))], site.dtype(1))
    program.inputs([("scale", (count, groups))], site.dtype(2))
    passed = [0, 1, 2]
    if site.has(3):
        program.inputs([("zero", (count, groups))], "float32")
        passed.append(3)
    if site.has(4):
        program.inputs([("bias", (count,))], site.dtype(4))
        passed.append(4)
    program.output("y", (*shape[:-1], count))
    total = program.alloc("c", (rows, count), "float32")
    place = f"vn, vk // {block}"
    byte = f"w[{place}, vk % {block}]"
    if bits == 4:
        half = f"w[{place}, vk % {block} // 2]"
        byte = f"T.bitwise_and(T.shift_right({half}, T.Cast('uint8', vk % 2 * 4)), T.uint8(15))"
    zero = f"zero[{place}]" if site.has(3) else literal(float(1 << bits - 1), "float32")
    weight = f"(T.Cast('float32', {byte}) - {zero}) * {_wide(f'scale[{place}]', site.dtype(2))}"
    factor = _wide(f"a[{', '.join([*row, 'vk'])}]", dtype)
    axes = [("m", rows, "S"), ("n", count, "S"), ("k", size, "R")]
    program.add(program.name, axes, f"{total}[{', '.join(at)}] = {total}[{', '.join(at)}] + {factor} * ({weight})",
                f"{total}[{', '.join(at)}] = T.float32(0)")  # fmt: skip
    value = f"{total}[{', '.join(at)}]"
    if site.has(4):
        value += f" + {_wide('bias[vn]', site.dtype(4))}"
    program.add("finish", axes[:2], f"y[{', '.join([*row, 'vn'])}] = {program.precision.narrow(value)}")
    return [site.operator(program.text(), passed)]


def _row(shape: tuple[int, ...], row: str) -> list[str]:
    """The indices of the dimensions that rows are numbered over."""
    found: list[str] = []
    for extent in reversed(shape[1:]):
        found.append(f"{row} % {extent}")
        row = f"{row} // {extent}"
    return [row, *reversed(found)] if shape else []


def _wide(value: str, dtype: str) -> str:
    return value if dtype == "float32" else f"T.Cast('float32', {value})"


BUILDERS: Mapping[tuple[str, str], Builder] = {(OWN_DOMAIN, "MatMulOfBits"): _product}
