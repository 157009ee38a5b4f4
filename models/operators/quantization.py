"""Bytes for floats and back: ``x = (q - zero) scale``, with a scale for all or one for each place of a dimension."""

from __future__ import annotations

from collections.abc import Mapping

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, element, literal
from .integers import in_steps
from .movement import point
from .site import Builder, Built, Site


def _loads(site: Site) -> tuple[Program, list[str], list[str], list[int]] | None:
    """A program with the parameters, loads of its operands, the iterators and the inputs; None for blocks of scales."""
    shape, scale = site.shape(), site.shape(1)
    if (
        site.attribute("block_size", 0)
        or len(scale) > 1
        or any(site.has(at) and site.shape(at) != scale for at in (2,))
    ):
        return None
    axis = site.axis(default=1) if shape else 0
    if scale not in ((), (1,)) and (axis >= len(shape) or scale != shape[axis : axis + 1]):
        return None
    names = point(len(shape))
    at = [] if not scale else ["0"] if scale == (1,) else [names[axis]]
    program = Program(site.node.op.lower(), plain(site.dtype()))
    passed = [k for k in (0, 1, 2) if site.has(k)]
    for k, name in zip(passed, ("x", "scale", "zero"), strict=False):
        program.inputs([(name, site.shape(k))], site.dtype(k))
    program.output("y", site.result().shape, site.result().dtype)
    loads = [element("x", names), *(element(name, at) for name in ("scale", "zero")[: len(passed) - 1])]
    return program, loads, names, passed


def _finished(site: Site, program: Program, names: list[str], passed: list[int], text: str) -> Built:
    axes = [(v[1:], e, "S") for v, e in zip(names, site.shape(), strict=True)]
    program.add(program.name, axes, f"{element('y', names)} = {text}")
    return [site.operator(program.text(), passed)]


def _quantize(site: Site) -> Built:
    """``q = clip(round(x / scale) + zero)``, where a half is rounded to the even neighbour."""
    kind, made = site.result().dtype, _loads(site)
    if made is None or kind not in ("int8", "uint8") or site.dtype() != "float32" or site.dtype(1) != "float32":
        return None
    program, loads, names, passed = made
    zero = f"T.Cast('int32', {loads[2]})" if len(loads) > 2 else literal(0, "int32")
    return _finished(site, program, names, passed, in_steps(f"{loads[0]} / {loads[1]}", kind, zero))


def _dequantize(site: Site) -> Built:
    made = _loads(site)
    if made is None or site.dtype() not in ("int8", "uint8", "int32", "int16") or site.result().dtype != "float32":
        return None
    program, loads, names, passed = made
    text = f"T.Cast('float32', {loads[0]})"
    if len(loads) > 2:
        text = f"({text} - T.Cast('float32', {loads[2]}))"
    return _finished(site, program, names, passed, f"{text} * {loads[1]}")


BUILDERS: Mapping[tuple[str, str], Builder] = {
    ("", "QuantizeLinear"): _quantize,
    ("", "DequantizeLinear"): _dequantize,
}
