"""Few bits for floats and back: ``x = (q - zero) scale``.

A scale is that of all elements, of each place of a dimension, or of each block of places.  Integers of 2 to 32 bits
and floats of 4 have a zero point; floats of 8 bits have none, since ONNX says that it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.dtypes import int_range
from ...space.workloads.precision import plain
from ...space.workloads.text import Program, element, literal
from .integers import in_steps
from .movement import point
from .narrow import FLOATS8, FORMATS, PAIRS, code_of, number_of, saturated
from .site import Builder, Built, Site

STEPS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")
"""Integers that floats are quantised to."""
EIGHT = (*FLOATS8, *(kind for kind, form in FORMATS.items() if not form.is_finite))
"""Floats of 8 bits."""
SCALES = ("float32", "float16", "bfloat16")


def _loads(site: Site) -> tuple[Program, list[str], list[str], list[int]] | None:
    """A program with the parameters, loads of its operands, the iterators and the inputs; None for other scales."""
    shape, scale, size = site.shape(), site.shape(1), int(site.attribute("block_size", 0))
    if site.has(2) and site.shape(2) != scale and not {site.shape(2), scale} <= {(), (1,)}:
        return None
    axis = site.axis(default=1) if shape else 0
    names = point(len(shape))
    if size:
        blocks = tuple(-(-extent // size) if d == axis else extent for d, extent in enumerate(shape))
        if scale != blocks:
            return None
        at = [f"{name} // {size}" if d == axis else name for d, name in enumerate(names)]
    elif scale in ((), (1,)):
        at = []
    elif len(scale) == 1 and axis < len(shape) and scale == shape[axis : axis + 1]:
        at = [names[axis]]
    else:
        return None
    program = Program(site.node.op.lower(), plain(site.dtype()))
    passed = [k for k in (0, 1, 2) if site.has(k)]
    if any(told in EIGHT for told in (site.told(), site.told_result())):
        passed = passed[:2]
    for k, name in zip(passed, ("x", "scale", "zero"), strict=False):
        program.inputs([(name, site.shape(k))], site.dtype(k))
    program.output("y", site.result().shape, site.result().dtype)
    loads = [element("x", names)]
    for k, name in zip(passed[1:], ("scale", "zero"), strict=False):
        loads.append(element(name, at or ["0"] * len(site.shape(k))))
    return program, loads, names, passed


def _finished(site: Site, program: Program, names: list[str], passed: list[int], text: str) -> Built:
    axes = [(v[1:], e, "S") for v, e in zip(names, site.shape(), strict=True)]
    program.add(program.name, axes, f"{element('y', names)} = {text}")
    return [site.operator(program.text(), passed)]


def _quantize(site: Site) -> Built:
    """``q = clip(round(x / scale) + zero)``, where a half is rounded to the even neighbour."""
    kind, given, made = site.told_result(), site.dtype(), _loads(site)
    if made is None or kind not in (*STEPS, *PAIRS, *FLOATS8, *FORMATS) or given not in SCALES or given != site.told(1):
        return None
    if site.attribute("precision", 0):
        return None
    program, loads, names, passed = made
    quotient = f"{loads[0]} / {loads[1]}"
    wide = quotient if given == "float32" else f"T.Cast('float32', {quotient})"
    if kind in FLOATS8:
        value = saturated(wide, kind) if site.attribute("saturate", 1) else wide
        return _finished(site, program, names, passed, f"T.Cast({kind!r}, {value})")
    if kind in FORMATS:
        value = f"({wide} + {number_of(loads[2], kind)})" if len(loads) > 2 else wide
        value = value if FORMATS[kind].is_finite or not site.attribute("saturate", 1) else saturated(value, kind)
        return _finished(site, program, names, passed, f"T.Cast('uint8', {code_of(value, kind)})")
    zero = literal(0, "int32")
    if len(loads) > 2:
        zero = number_of(loads[2], kind) if kind in PAIRS else f"T.Cast('int32', {loads[2]})"
    low, high = PAIRS[kind] if kind in PAIRS else int_range(kind)
    steps = in_steps(wide, (low, high), zero, (low - high - 1, high - low + 1))
    if kind in PAIRS:
        steps = f"T.bitwise_and({steps}, {literal(3, 'int32')})"
    return _finished(site, program, names, passed, f"T.Cast({site.result().dtype!r}, {steps})")


def _dequantize(site: Site) -> Built:
    made, kind, scale, result = _loads(site), site.told(), site.told(1), site.told_result()
    kinds = (*STEPS, "int32", *PAIRS, *FLOATS8, *FORMATS)
    if made is None or kind not in kinds or scale not in SCALES or result not in (*SCALES, "float64"):
        return None
    program, loads, names, passed = made

    def number(load: str) -> str:
        if kind in FORMATS:
            return number_of(load, kind)
        return f"T.Cast('float32', {number_of(load, kind) if kind in PAIRS else load})"

    text = f"({number(loads[0])})"
    if len(loads) > 2 and kind not in FORMATS:
        text = f"({text} - {number(loads[2])})"
    text += f" * {loads[1]}" if scale == "float32" else f" * T.Cast('float32', {loads[1]})"
    return _finished(site, program, names, passed, text if result == "float32" else f"T.Cast({result!r}, {text})")


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "QuantizeLinear"): _quantize,
    ("", "DequantizeLinear"): _dequantize,
}
