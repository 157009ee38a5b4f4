"""Products by weights of 4 and 8 bits with a scale for each block, which are made floats in the product.

::

    c[m, n] = c[m, n] + a[m, k] * ((float(w[n, k // block, ...] >> 4 * (k % 2) & 15) - zero[n, k // block])
                                   * scale[n, k // block])

and of one row, whose blocks are whole, as sums of each block that its scale is multiplied by once::

    t[g] = t[g] + a[g * block + k];    p[g, n] = p[g, n] + a[g * block + k] * float(w[n, g, ...] >> 4 * (k % 2) & 15)
    c[n] = c[n] + scale[n, g] * (p[g, n] - zero[n, g] * t[g])

which has two operations less for each weight, where no other row would share them, and needs memory for `p`, which with
more rows would be more than the weights take.  Where the rows may be rounded to bytes, ``q = round(a / s)`` with ``s[g]
= max |a| / 127`` of each block, `t` and `p` are sums of bytes in int32, and the term is ``scale s (p - zero t)``.  The
bytes that meet the lower halves of the weights are apart from those of the upper halves, so that both are neighbours
along a sum.  The weights are read as they are kept, two to a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ...space.workloads.precision import Precision
from ...space.workloads.text import AxisText, Program, literal
from .graph import OWN_DOMAIN
from .site import Builder, Built, Site

LARGEST_BYTE = 127.0


def most_rows(block: int, bits: int) -> int:
    """The rows up to which the sums of each block, written and read, move no more memory than the weights."""
    return max(1, block * bits // 64)


@dataclass(frozen=True)
class _Weights:
    """Weights of 4 or 8 bits: a node's inputs from number `first` on, scales, and perhaps zero points and a bias."""

    site: Site
    first: int

    @property
    def bits(self) -> int:
        return int(self.site.node.values["bits"])

    def declared(self, program: Program) -> list[int]:
        """The numbers of the inputs that are there, each declared as a parameter."""
        site, at = self.site, self.first
        program.inputs([("w", site.shape(at))], site.dtype(at))
        program.inputs([("scale", site.shape(at + 1))], site.dtype(at + 1))
        if self.has_zero:
            program.inputs([("zero", site.shape(at + 1))], "float32")
        if site.has(at + 3):
            program.inputs([("bias", site.shape(at)[:1])], site.dtype(at + 3))
        return [at, at + 1, *(number for number in (at + 2, at + 3) if site.has(number))]

    def scale(self, place: str) -> str:
        return _wide(f"scale[{place}]", self.site.dtype(self.first + 1))

    @property
    def has_zero(self) -> bool:
        """Whether there are zero points; without any each is the middle of what the bits hold."""
        return self.site.has(self.first + 2)

    def zero(self, place: str) -> str:
        return f"zero[{place}]" if self.has_zero else literal(float(1 << self.bits - 1), "float32")

    def integer(self, place: str, within: str) -> str:
        """The weight at a position of a block, as it is kept: of 4 bits a half of a byte, the lower one first."""
        return f"w[{place}, {within}]" if self.bits == 8 else _half(f"w[{place}, {within} // 2]", f"{within} % 2")

    def finished(self, program: Program, axes: Sequence[AxisText], term: str) -> None:
        """The sum of a term over the last of the axes, and the bias, as the program's result."""
        rows, count, shape = axes[0][1], axes[1][1], self.site.result().shape
        value = f"{program.alloc('c', (rows, count), 'float32')}[vm, vn]"
        program.add("total", axes, f"{value} = {value} + {term}", f"{value} = T.float32(0)")
        if self.site.has(self.first + 3):
            value += f" + {_wide('bias[vn]', self.site.dtype(self.first + 3))}"
        program.output("y", shape)
        at = ", ".join([*_row(shape[:-1], "vm"), "vn"])
        program.add("finish", axes[:2], f"y[{at}] = {program.precision.narrow(value)}")


def _product(site: Site) -> Built:
    """Rows of the first operand, whatever dimensions they have, times the weights; and a bias."""
    weights, shape, dtype = _Weights(site, 1), site.shape(), site.dtype()
    block, rows, size, (count, groups, _) = int(site.node.values["block"]), prod(shape[:-1]), shape[-1], site.shape(1)
    program = Program(f"matmul_of_{weights.bits}_bits", Precision(dtype, "float32", dtype))
    program.inputs([("a", shape)])
    passed = [0, *weights.declared(program)]
    if rows == 1 and size % block == 0:
        factors = (
            _wide(_in_block(shape, f"vg * {block} + vk"), dtype),
            f"T.Cast('float32', {weights.integer('vn, vg', 'vk')})",
        )
        part, own = _sums_of_blocks(program, (rows, groups, count), [("k", block, "R")], factors, "float32")
        term = f"{weights.scale('vn, vg')} * ({part} - {weights.zero('vn, vg')} * {own})"
        last = ("g", groups, "R")
    else:
        place, factor = f"vn, vk // {block}", _wide(_in_block(shape, "vk"), dtype)
        weight = f"T.Cast('float32', {weights.integer(place, f'vk % {block}')}) - {weights.zero(place)}"
        term = f"{factor} * (({weight}) * {weights.scale(place)})"
        last = ("k", size, "R")
    weights.finished(program, [("m", rows, "S"), ("n", count, "S"), last], term)
    return [site.operator(program.text(), passed)]


def _product_of_bytes(site: Site) -> Built:
    """Rows of bytes, whose blocks have scales, times the weights, in sums of int32; and a bias."""
    weights, dtype = _Weights(site, 2), site.result().dtype
    (rows, groups, halves, blob), count = site.shape(), site.shape(2)[0]
    program = Program(f"matmul_of_bytes_by_{weights.bits}_bits", Precision(dtype, "float32", dtype))
    program.inputs([("a", site.shape())], "int8")
    program.inputs([("s", site.shape(1))], "float32")
    passed = [0, 1, *weights.declared(program)]
    weight = "w[vn, vg, vk]" if weights.bits == 8 else _half("w[vn, vg, vk]", "vh")
    factors = "T.Cast('int32', a[vm, vg, vh, vk])", f"T.Cast('int32', {weight})"
    steps: list[AxisText] = [("h", halves, "R"), ("k", blob, "R")]
    part, own = _sums_of_blocks(program, (rows, groups, count), steps, factors, "int32")
    if weights.has_zero:
        difference = f"T.Cast('float32', {part}) - {weights.zero('vn, vg')} * T.Cast('float32', {own})"
    else:
        difference = f"T.Cast('float32', {part} - {1 << weights.bits - 1} * {own})"
    term = f"{weights.scale('vn, vg')} * s[vm, vg] * ({difference})"
    weights.finished(program, [("m", rows, "S"), ("n", count, "S"), ("g", groups, "R")], term)
    return [site.operator(program.text(), passed)]


def _sums_of_blocks(
    program: Program, shape: tuple[int, int, int], steps: Sequence[AxisText], factors: tuple[str, str], dtype: str
) -> tuple[str, str]:
    """The sums of products of each row, block and column, and the sums of each row and block, as they are read there.

    `shape` counts rows, blocks and columns, `steps` are the axes within a block, and `factors` the texts of both
    factors, of which the first is what is summed up.
    """
    rows, groups, count = shape
    zero, outer = literal(0, dtype), [("m", rows, "S"), ("g", groups, "S")]
    own = f"{program.alloc('t', (rows, groups), dtype)}[vm, vg]"
    program.add("sums", [*outer, *steps], f"{own} = {own} + {factors[0]}", f"{own} = {zero}")
    part = f"{program.alloc('p', (rows, groups, count), dtype)}[vm, vg, vn]"
    axes = [*outer, ("n", count, "S"), *steps]
    program.add(program.name, axes, f"{part} = {part} + {factors[0]} * {factors[1]}", f"{part} = {zero}")
    return part, own


def _scales(site: Site) -> Built:
    """``s[m, g] = max |a[m, g, :]| / 127`` of the blocks of rows."""
    (rows, groups), block, shape = site.result().shape, int(site.node.values["block"]), site.shape()
    program = Program("scales_of_blocks", Precision(site.dtype(), "float32", "float32"))
    program.inputs([("a", shape)])
    program.output("s", (rows, groups))
    most = f"{program.alloc('most', (rows, groups))}[vm, vg]"
    size = f"T.abs({_wide(_in_block(shape, f'vg * {block} + vk'), site.dtype())})"
    axes: list[AxisText] = [("m", rows, "S"), ("g", groups, "S")]
    program.add("largest", [*axes, ("k", block, "R")], f"{most} = T.max({most}, {size})", f"{most} = T.float32(0)")
    program.add("scales", axes, f"s[vm, vg] = {most} / {literal(LARGEST_BYTE, 'float32')}")
    return [site.operator(program.text(), [0])]


def _bytes(site: Site) -> Built:
    """``q[m, g, h, k] = round(a[m, g, k * halves + h] / s[m, g])`` of blocks with scales, and 0 where the scale is."""
    shape, (rows, groups, halves, blob) = site.shape(), site.result().shape
    program = Program("bytes_of_blocks", Precision(site.dtype(), "float32", "int8"))
    program.inputs([("a", shape)])
    program.inputs([("s", (rows, groups))], "float32")
    program.output("q", (rows, groups, halves, blob))
    value = _wide(_in_block(shape, f"vg * {halves * blob} + vk * {halves} + vh"), site.dtype())
    inverse = "T.Select(s[vm, vg] > T.float32(0), T.float32(1) / s[vm, vg], T.float32(0))"
    axes = [("m", rows, "S"), ("g", groups, "S"), ("h", halves, "S"), ("k", blob, "S")]
    program.add("bytes", axes, f"q[vm, vg, vh, vk] = T.Cast('int8', T.nearbyint({value} * {inverse}))")
    return [site.operator(program.text(), [0, 1])]


def _in_block(shape: tuple[int, ...], at: str) -> str:
    return f"a[{', '.join([*_row(shape[:-1], 'vm'), at])}]"


def _half(byte: str, half: str) -> str:
    return f"T.bitwise_and(T.shift_right({byte}, T.Cast('uint8', {half} * 4)), T.uint8(15))"


def _row(shape: tuple[int, ...], row: str) -> list[str]:
    """The indices of the dimensions that rows are numbered over."""
    found: list[str] = []
    for extent in reversed(shape[1:]):
        found.append(f"{row} % {extent}")
        row = f"{row} // {extent}"
    return [row, *reversed(found)] if shape else []


def _wide(value: str, dtype: str) -> str:
    return value if dtype == "float32" else f"T.Cast('float32', {value})"


BUILDERS: Mapping[tuple[str, str], Builder] = {
    (OWN_DOMAIN, "MatMulOfBits"): _product,
    (OWN_DOMAIN, "ScalesOfBlocks"): _scales,
    (OWN_DOMAIN, "BytesOfBlocks"): _bytes,
    (OWN_DOMAIN, "MatMulOfBlocks"): _product_of_bytes,
}
