"""Products and convolutions of bytes, summed in int32, and what makes bytes or floats of the sums.

With zero points a and b of the operands, and the border of an image filled with a::

    sum (x - a) (w - b)  =  sum x w  -  a sum w  -  b sum x  +  K a b

A zero point of constant weights goes into them where they stay bytes, and the sums of constants are constants, so that
``sum x w`` is what is left to compute: a product of bytes.  A *requantised* sum is

    y = clip(round((sum + shift[c]) factor[c] + addend[c]) + zero)

where halves are rounded to the even neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.dtypes import int_range
from ...space.workloads.conv_transpose import Transposed
from ...space.workloads.depthwise import DepthwiseConv2d
from ...space.workloads.precision import Precision, plain
from ...space.workloads.text import Program, element, literal
from ..network import Array
from .convolutions import CONVOLUTIONS, SPACE, geometry, transposed
from .graph import OWN_DOMAIN
from .pointwise import broadcast
from .site import Builder, Built, Site, letters

BYTES = ("int8", "uint8")
OF_CONVOLUTIONS = (*BYTES, "int16")
"""What weights of convolutions may be without their zero point."""


@dataclass(frozen=True)
class Epilogue:
    """What becomes of a sum: vectors along the output's channels, None where they change nothing.

    `dtype` is int32 for the sum itself, float32, or that of bytes, which are counted from `zero` and lie between `low`
    and `high`.
    """

    dtype: str
    shift: Array | None = None
    factor: Array | None = None
    addend: Array | None = None
    zero: int = 0
    low: int = 0
    high: int = 0

    def vectors(self) -> dict[str, Array]:
        """The vectors that a program reads, by name."""
        named = {"shift": self.shift, "factor": self.factor, "addend": self.addend}
        if self.dtype in BYTES:
            named["zero"] = np.full(1, self.zero, np.int32)
        return {name: np.ascontiguousarray(v) for name, v in named.items() if v is not None}

    def text(self, at: str, shift_at: str = "") -> str:
        """The result of the sum ``{v}`` as script text; `at` is the iterator over the channels.

        A shift that differs between places, too, is read at `shift_at`.
        """
        value = f"({{v}} + shift[{shift_at or at}])" if self.shift is not None else "{v}"
        if self.dtype == "int32":
            return value
        value = f"T.Cast('float32', {value})"
        if self.factor is not None:
            value += f" * factor[{at}]"
        if self.addend is not None:
            value += f" + addend[{at}]"
        return value if self.dtype == "float32" else self.rounded(value)

    def rounded(self, value: str) -> str:
        """A float as bytes, which is undefined where it is NaN: a finite scale makes none.

        It is clipped before it is rounded, to ends that are whole numbers.  The zero point is data: what differs in it
        alone is one program.
        """
        zero, ends = element("zero", ["0"]), int_range(self.dtype)
        least, most = (
            literal(float(end - self.zero), "float32")
            if end != furthest
            else f"T.Cast('float32', {literal(furthest, 'int32')} - {zero})"
            for end, furthest in zip((self.low, self.high), ends, strict=True)
        )
        return f"T.Cast({self.dtype!r}, T.round_to_int32(T.max(T.min({value}, {most}), {least})) + {zero})"


def in_steps(value: str, bounds: tuple[int, int], zero: str, ends: tuple[int, int]) -> str:
    """A float as an int32 between `bounds`, ``clip(round(value) + zero)``, as script text; NaN counts as 0.

    Between `ends`, beyond which no zero point brings it back, it is a whole number by one instruction.
    """
    least, most = (literal(float(end), "float32") for end in ends)
    whole = f"T.Cast('int32', T.nearbyint(T.max(T.min({value}, {most}), {least}))) + {zero}"
    low, high = (literal(end, "int32") for end in bounds)
    return f"T.max(T.min({whole}, {high}), {low})"


def folded(weights: Array, zero: Array | None, axis: int, kinds: Sequence[str] = BYTES) -> Array | None:
    """Constant weights without their zero point, which may differ along `axis`, in the first of `kinds` that has them.

    None where none has.
    """
    wide = weights.astype(np.int32)
    if zero is not None and zero.size > 1:
        if zero.ndim == 1 and zero.size == wide.shape[axis]:
            zero = zero.reshape([-1 if d == axis else 1 for d in range(wide.ndim)])
        if zero.ndim != wide.ndim or np.broadcast_shapes(zero.shape, wide.shape) != wide.shape:
            return None
        wide = wide - zero.astype(np.int32)
    elif zero is not None:
        wide = wide - zero.astype(np.int32).reshape(())
    for dtype in kinds:
        low, high = int_range(dtype)
        if wide.size == 0 or (wide.min() >= low and wide.max() <= high):
            return wide.astype(dtype)
    return None


def convolution(site: Site, weights: Array, fill: int, epilogue: Epilogue, into: int | str = 0) -> Built:
    """``sum over ci, k of x[n, ci, ...] w[co, ci, k]`` of bytes, with a border of `fill`, and what becomes of it."""
    x, out = site.shape(0), site.result().shape
    rank, groups = len(x) - 2, site.attribute("group", 1)
    windows = geometry(site, weights.shape[2:])
    if rank not in CONVOLUTIONS or min(*windows.front, *windows.end) < 0 or site.dtype() not in BYTES:
        return None
    fields: dict[str, Any] = dict(zip(SPACE[rank], x[2:], strict=True)) | windows.parameters()
    fields |= {"layout": f"nc{SPACE[rank]}", "fill": fill}
    made, channel = CONVOLUTIONS[rank](n=x[0], ci=x[1], co=weights.shape[0], groups=groups, **fields), "vco{i}"
    if rank == 2 and groups == x[1] == weights.shape[0]:
        made, channel = DepthwiseConv2d(n=x[0], c=x[1], **fields), "vc{i}"
        weights = weights.reshape(x[1], *weights.shape[2:])
    if made.outs != out[2:]:
        return None
    program = Program(f"{made.name}_of_bytes", Precision(site.dtype(), "int32", epilogue.dtype))
    program.inputs([("x", x)])
    program.inputs([("w", weights.shape)], str(weights.dtype))
    for name, vector in epilogue.vectors().items():
        program.inputs([(name, vector.shape)], str(vector.dtype))
    program.output("y", out)
    made.write(program, _steps(epilogue, channel))
    names = [site.new_constant(array) for array in (weights, *epilogue.vectors().values())]
    return [site.operator(program.text(), [0, *names], into)]


def _steps(epilogue: Epilogue, at: str, shift_at: str = "") -> list[tuple[str, str]]:
    text = epilogue.text(at, shift_at)
    return [] if text == "{v}" else [("finish", text)]


def transposed_convolution(site: Site, weights: Array, zero: int, epilogue: Epilogue) -> Built:
    """A transposed convolution of bytes that are counted from `zero`, and what becomes of it.

    The sum reads 0 between the elements that it spreads, so that products with it can be left out.  What it lacks then,
    ``-zero`` times the sum of the weights that meet an element, is a constant for each channel and each place; along a
    dimension in which it repeats after a stride, for each place of a stride.
    """
    made = transposed(site)
    if made is None or site.dtype() not in BYTES:
        return None
    own = weights.astype(np.int64).reshape(made.groups, -1, *weights.shape[1:]).sum(axis=1)
    lacks = own.reshape(made.co, *made.taps) * -zero
    place = ["vco{i}"]
    for d, a in enumerate(made.space):
        met = _met(made, d)
        step = made.strides[d]
        repeats = all(np.array_equal(row, met[at % step]) for at, row in enumerate(met))
        lacks = np.moveaxis(np.tensordot(lacks, met[:step] if repeats else met, axes=(1 + d, 1)), -1, 1 + d)
        place.append(f"vo{a}{{i}} % {step}" if repeats and step > 1 else "0" if repeats else f"vo{a}{{i}}")
    if np.any(lacks):
        shift = np.zeros(made.co, np.int32) if epilogue.shift is None else epilogue.shift
        epilogue = replace(epilogue, shift=(lacks + shift.reshape(-1, *[1] * len(made.space))).astype(np.int32))
    else:
        place = place[:1]
    program = Program(f"conv{len(made.space)}d_transpose_of_bytes", Precision(site.dtype(), "int32", epilogue.dtype))
    program.inputs([("x", site.shape(0))])
    program.inputs([("w", weights.shape)], str(weights.dtype))
    for name, vector in epilogue.vectors().items():
        program.inputs([(name, vector.shape)], str(vector.dtype))
    program.output("y", site.result().shape)
    made.write(program, _steps(epilogue, "vco{i}", ", ".join(place)))
    names = [site.new_constant(array) for array in (weights, *epilogue.vectors().values())]
    return [site.operator(program.text(), [0, *names])]


def _met(made: Transposed, d: int) -> Array:
    """Which taps meet an element at each place of a dimension: a row of ones and zeros for each."""
    taps = np.arange(made.taps[d]) * made.dilations[d]
    places = np.arange(made.outs[d])[:, None] + made.cuts[d] - taps
    inside = (places >= 0) & (places < made.sizes[d] * made.strides[d])
    found: Array = (inside & (places % made.strides[d] == 0)).astype(np.int64)
    return found


@dataclass(frozen=True)
class Factor:
    """An operand of a product: the tensor, its shape and type, and the zero point, known or read from a tensor.

    Of the second operand a tensor may have one for each column.
    """

    tensor: int | str
    shape: tuple[int, ...]
    dtype: str
    zero: int = 0
    zero_at: int | None = None

    @property
    def has_zero(self) -> bool:
        """Whether there may be a zero point other than 0."""
        return self.zero != 0 or self.zero_at is not None


def product(site: Site, a: Factor, b: Factor, sums: Array | None, epilogue: Epilogue) -> Built:
    """``sum over k of (a[..., i, k] - za) (b[..., k, j] - zb)`` of bytes, and what becomes of it.

    `sums` are those of the columns of a constant `b`, whose zero point is 0 then.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or a.dtype not in BYTES or b.dtype not in BYTES:
        return None
    out, k = site.result().shape, a.shape[-1]
    lead = [(f"s{at}", extent) for at, extent in enumerate(out[:-2])]
    rows, columns = [*lead, ("i", out[-2])], [*lead, ("j", out[-1])]
    spatial = [*rows, columns[-1]]
    at_a = [*broadcast(a.shape[:-2], [f"v{s}" for s, _ in lead]), "vi", "vk"]
    at_b = [*broadcast(b.shape[:-2], [f"v{s}" for s, _ in lead]), "vk", "vj"]
    program = Program("matmul_of_bytes", Precision(a.dtype, "int32", epilogue.dtype))
    passed: list[int | str] = [a.tensor, b.tensor]
    program.inputs([("a", a.shape)])
    program.inputs([("b", b.shape)], b.dtype)
    zeros: list[str] = []
    for name, factor in (("za", a), ("zb", b)):
        at = factor.zero_at
        if at is None:
            zeros.append(literal(factor.zero, "int32"))
            continue
        program.inputs([(name, site.shape(at))], site.dtype(at))
        passed.append(at)
        place = ["vj{i}"] if name == "zb" and site.shape(at) == out[-1:] else ["0"] * len(site.shape(at))
        zeros.append(f"T.Cast('int32', {element(name, place)})")
    zero_a, zero_b = zeros
    for name, vector in epilogue.vectors().items():
        program.inputs([(name, vector.shape)], str(vector.dtype))
        passed.append(site.new_constant(vector))
    value, known = "{v}", [f"v{name}{{i}}" for name, _ in spatial]
    own_rows, own_columns = [*known[:-2], known[-2]], [*known[:-2], known[-1]]
    if a.has_zero and sums is not None:
        program.inputs([("sums", sums.shape)], "int32")
        passed.append(site.new_constant(sums))
        own = broadcast(sums.shape, own_columns)
        value += f" - {zero_a} * {element('sums', own)}"
    elif a.has_zero:
        value += f" - {zero_a} * {element('columns', own_columns)}"
    if b.has_zero:
        value += f" - {zero_b} * {element('rows', own_rows)}"
    if a.has_zero and b.has_zero:
        value += f" + {literal(k, 'int32')} * {zero_a} * {zero_b}"
    program.output("c", out)
    steps = _steps(epilogue, "vj{i}")
    if value != "{v}":
        final = epilogue.text("vj{i}") if epilogue.dtype != "int32" or steps else "{v}"
        steps = [("finish", final.replace("{v}", f"({value})"))]
    total = program.alloc("acc", out) if steps else "c"
    target = element(total, [f"v{name}" for name, _ in spatial])
    update = f"{target} = {target} + {program.load('a', at_a)} * {program.load('b', at_b)}"
    # What the last pass reads stands before the product, which that pass can then join in registers.
    if a.has_zero and sums is None:
        _sums(program, "columns", columns, k, program.load("b", at_b))
    if b.has_zero:
        _sums(program, "rows", rows, k, program.load("a", at_a))
    program.add("matmul", [*((n, e, "S") for n, e in spatial), ("k", k, "R")], update, f"{target} = {program.zero()}")
    if steps:
        program.stages("c", total, spatial, [name for name, _ in spatial], steps)
    return [site.operator(program.text(), passed)]


def _sums(program: Program, name: str, axes: Sequence[tuple[str, int]], k: int, value: str) -> None:
    """A block for the sums of an operand along its rows or columns."""
    total = program.alloc(name, tuple(e for _, e in axes))
    target = element(total, [f"v{axis}" for axis, _ in axes])
    loops = [*((axis, e, "S") for axis, e in axes), ("k", k, "R")]
    program.add(f"sum_{name}", loops, f"{target} = {target} + {value}", f"{target} = {program.zero()}")


def _zero(site: Site, at: int, columns: tuple[int, ...] = ()) -> tuple[int, int | None] | None:
    """A zero point: its value, or the input that has it, for all or for `columns`; None where it is for others."""
    if not site.has(at):
        return 0, None
    value = site.constant(at)
    if value is not None and (value.size == 1 or not np.ptp(value)):
        return int(value.reshape(-1)[0]), None
    return (0, at) if site.shape(at) in ((), (1,), columns) else None


def _weights(site: Site, at: int, zero_at: int, axis: int, kinds: Sequence[str] = BYTES) -> Array | None:
    """Constant weights of bytes without their zero point, of one of these kinds."""
    weights = site.constant(at)
    if weights is None or str(weights.dtype) not in BYTES or site.is_open(zero_at):
        return None
    return folded(weights, site.constant(zero_at), axis, kinds)


def _factors(site: Site, a: int, b: int, za: int, zb: int) -> tuple[Factor, Factor, Array | None] | None:
    """Both operands of a product and the sums of the columns of a constant `b`."""
    first = _zero(site, za)
    if first is None:
        return None
    left = Factor(a, site.shape(a), site.dtype(a), *first)
    weights = _weights(site, b, zb, len(site.shape(b)) - 1)
    if weights is not None and weights.ndim > 1:
        sums = weights.astype(np.int32).sum(axis=-2, dtype=np.int32)
        return left, Factor(site.new_constant(weights), weights.shape, str(weights.dtype)), sums
    second = _zero(site, zb, site.shape(b)[-1:])
    return None if second is None else (left, Factor(b, site.shape(b), site.dtype(b), *second), None)


def _matmul_integer(site: Site) -> Built:
    found = _factors(site, 0, 1, 2, 3)
    return None if found is None else product(site, *found, Epilogue("int32"))


def _conv_integer(site: Site) -> Built:
    weights, zero = _weights(site, 1, 3, 0, OF_CONVOLUTIONS), _zero(site, 2)
    if weights is None or zero is None:
        return None
    if zero[1] is not None:
        return _with_open_zero(site, weights, zero[1])
    shift = _shift(weights, zero[0])
    return convolution(site, weights, zero[0], Epilogue("int32", shift=shift))


def _with_open_zero(site: Site, weights: Array, at: int) -> Built:
    """A convolution whose zero point a is the element of the input `at`: ``sum x w - a sum w``.

    The first sum has a border of 0, and the second one is of the weights that meet the image, known for each place.
    """
    out = site.result().shape
    total = site.new_tensor(out, "int32")
    built = convolution(site, weights, 0, Epilogue("int32"), total)
    if built is None:
        return None
    windows = geometry(site, weights.shape[2:])
    sums = weights.astype(np.int32).sum(axis=1)
    for size, span, taps, stride, step, front in zip(
        site.shape()[2:], out[2:], weights.shape[2:], windows.strides, windows.dilations, windows.front, strict=True
    ):
        places = np.arange(span) * stride + (np.arange(taps) * step)[:, None] - front
        sums = np.tensordot(sums, ((places >= 0) & (places < size)).astype(np.int32), axes=(1, 0))
    if all(not np.ptp(one) for one in sums):
        sums = sums.reshape(len(sums), -1)[:, :1].reshape(-1, *[1] * (len(out) - 2))
    names = [f"v{name}" for name in letters(len(out))]
    program = Program("without_zero", plain("int32"))
    program.inputs([("x", out), ("sums", sums.shape)])
    program.inputs([("zero", site.shape(at))], site.dtype(at))
    program.output("y", out)
    zero = f"T.Cast('int32', {element('zero', ['0'] * len(site.shape(at)))})"
    value = f"{element('x', names)} - {zero} * {element('sums', broadcast(sums.shape, names))}"
    axes = [(name[1:], extent, "S") for name, extent in zip(names, out, strict=True)]
    program.add("without_zero", axes, f"{element('y', names)} = {value}")
    return [*built, site.operator(program.text(), [total, site.new_constant(sums.astype(np.int32)), at])]


def _shift(weights: Array, zero: int, bias: Array | None = None) -> Array | None:
    """What a convolution's sums lack: ``bias - zero sum w`` for each output channel; None where that is nothing."""
    total = weights.astype(np.int64).reshape(weights.shape[0], -1).sum(axis=1) * -zero
    if bias is not None:
        total = total + bias.astype(np.int64)
    return total.astype(np.int32) if np.any(total) else None


def requantised(
    channels: int, scales: Sequence[Array], zero: Array | None, dtype: str, shift: Array | None
) -> Epilogue:
    """The epilogue by the scales of both operands and of the result, which are numbers or, of weights, vectors."""
    one, other, result = (s.astype(np.float32).reshape(-1) for s in scales)
    factor = np.broadcast_to(one * other / result, (channels,)).astype(np.float32)
    low, high = int_range(dtype)
    start = 0 if zero is None else int(zero.reshape(-1)[0])
    return Epilogue(dtype, shift, factor, None, start, low, high)


def _known(site: Site, *at: int) -> list[Array] | None:
    """The values of inputs; None where one is not known."""
    found = [site.constant(number) for number in at]
    return [value for value in found if value is not None] if all(value is not None for value in found) else None


def _qlinear_conv(site: Site) -> Built:
    weights, zero = _weights(site, 3, 5, 0, OF_CONVOLUTIONS), _zero(site, 2)
    scales, dtype = _known(site, 1, 4, 6), site.result().dtype
    if weights is None or zero is None or zero[1] is not None or scales is None or dtype not in BYTES:
        return None
    if site.is_open(7) or site.is_open(8) or scales[0].size != 1 or scales[2].size != 1:
        return None
    shift = _shift(weights, zero[0], site.constant(8))
    epilogue = requantised(weights.shape[0], scales, site.constant(7), dtype, shift)
    return convolution(site, weights, zero[0], epilogue)


def _qlinear_matmul(site: Site) -> Built:
    scales, dtype, found = _known(site, 1, 4, 6), site.result().dtype, _factors(site, 0, 3, 2, 5)
    if found is None or scales is None or dtype not in BYTES or site.is_open(7):
        return None
    if scales[0].size != 1 or scales[2].size != 1:
        return None
    if scales[1].size != 1 and scales[1].shape != site.result().shape[-1:]:
        return None
    return product(site, *found, requantised(site.result().shape[-1], scales, site.constant(7), dtype, None))


def _sum_of_bytes(site: Site) -> Built:
    """A node that `algebra` makes, of a convolution or a product between dequantised operands."""
    values = site.node.values
    shift, factor, addend = (site.constant(at) for at in (2, 3, 4))
    epilogue = Epilogue(site.result().dtype, shift, factor, addend, values["zero"], values["low"], values["high"])
    weights = site.constant(1)
    if site.node.op == "ConvOfBytes":
        return None if weights is None else convolution(site, weights, values["fill"], epilogue)
    if site.node.op == "ConvTransposeOfBytes":
        return None if weights is None else transposed_convolution(site, weights, values["fill"], epilogue)
    a, b = (Factor(at, site.shape(at), site.dtype(at), values[z]) for at, z in ((0, "fill"), (1, "other")))
    sums = None if weights is None else weights.astype(np.int32).sum(axis=-2, dtype=np.int32)
    return product(site, a, b, sums, epilogue)


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "MatMulInteger"): _matmul_integer,
    ("", "ConvInteger"): _conv_integer,
    ("", "QLinearConv"): _qlinear_conv,
    ("", "QLinearMatMul"): _qlinear_matmul,
    (OWN_DOMAIN, "ConvOfBytes"): _sum_of_bytes,
    (OWN_DOMAIN, "ConvTransposeOfBytes"): _sum_of_bytes,
    (OWN_DOMAIN, "MatMulOfBytes"): _sum_of_bytes,
}
