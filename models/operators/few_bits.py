"""Products by weights of 4 and 8 bits with a scale for each block, which are made floats in the product.

::

    c[m, n] = c[m, n] + a[m, k] * ((float(w[n, k // block, ...] >> 4 * (k % 2) & 15) - zero[n, k // block])
                                   * scale[n, k // block])

and of one row, whose blocks are whole, as sums of each block that its scale is multiplied by once::

    t[g] = t[g] + a[g * block + k];    p[n, g] = p[n, g] + a[g * block + k] * float(w[n, g, ...] >> 4 * (k % 2) & 15)
    c[n] = c[n] + scale[n, g] * (p[n, g] - zero[n, g] * t[g])

which has two operations less for each weight, where no other row would share them, and needs memory for `p`, which with
more rows would be more than the weights take.  The weights are read as they are kept, two to a byte.
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
    total_at = f"{total}[{', '.join(at)}]"
    if rows == 1 and size % block == 0:
        part, sums = program.alloc("p", (rows, count, groups), "float32"), program.alloc("t", (rows, groups), "float32")
        factor = _wide(f"a[{', '.join([*_row(shape[:-1], 'vm'), f'vg * {block} + vk'])}]", dtype)
        axes = [("m", rows, "S"), ("g", groups, "S"), ("k", block, "R")]
        own = f"{sums}[vm, vg]"
        program.add("sums", axes, f"{own} = {own} + {factor}", f"{own} = T.float32(0)")
        axes.insert(1, ("n", count, "S"))
        own = f"{part}[vm, vn, vg]"
        weight = f"T.Cast('float32', {_integer('vn, vg', 'vk', bits)})"
        program.add(program.name, axes, f"{own} = {own} + {factor} * {weight}", f"{own} = T.float32(0)")
        term = f"{_scale(site, 'vn, vg')} * ({own} - {_zero(site, 'vn, vg', bits)} * {sums}[vm, vg])"
        axes = [("m", rows, "S"), ("n", count, "S"), ("g", groups, "R")]
        program.add("total", axes, f"{total_at} = {total_at} + {term}", f"{total_at} = T.float32(0)")
    else:
        place = f"vn, vk // {block}"
        weight = f"T.Cast('float32', {_integer(place, f'vk % {block}', bits)}) - {_zero(site, place, bits)}"
        factor = _wide(f"a[{', '.join([*_row(shape[:-1], 'vm'), 'vk'])}]", dtype)
        axes = [("m", rows, "S"), ("n", count, "S"), ("k", size, "R")]
        term = f"{factor} * (({weight}) * {_scale(site, place)})"
        program.add(program.name, axes, f"{total_at} = {total_at} + {term}", f"{total_at} = T.float32(0)")
    value = total_at
    if site.has(4):
        value += f" + {_wide('bias[vn]', site.dtype(4))}"
    finish = [("m", rows, "S"), ("n", count, "S")]
    program.add(
        "finish", finish, f"y[{', '.join([*_row(shape[:-1], 'vm'), 'vn'])}] = {program.precision.narrow(value)}"
    )
    return [site.operator(program.text(), passed)]


def _integer(place: str, within: str, bits: int) -> str:
    """The weight at a position of a block, as it is kept: of 4 bits a half of a byte, the lower one first."""
    if bits == 8:
        return f"w[{place}, {within}]"
    half = f"w[{place}, {within} // 2]"
    return f"T.bitwise_and(T.shift_right({half}, T.Cast('uint8', {within} % 2 * 4)), T.uint8(15))"


def _zero(site: Site, place: str, bits: int) -> str:
    return f"zero[{place}]" if site.has(3) else literal(float(1 << bits - 1), "float32")


def _scale(site: Site, place: str) -> str:
    return _wide(f"scale[{place}]", site.dtype(2))


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
