"""Bytes of bytes, element by element, as `algebra` makes them: ``clip(round(v) + zero)`` of a float v.

::

    AffineOfBytes    v = x factor[c] + addend[c]            c along the second dimension, or one number for all
    AddOfBytes       v = a factor_a + b factor_b + addend
    MulOfBytes       v = (a - zero_a) (b - zero_b) factor + addend
"""

from __future__ import annotations

from collections.abc import Mapping

from ...space.workloads.precision import Precision
from ...space.workloads.text import Program, element
from .graph import OWN_DOMAIN
from .integers import Epilogue
from .movement import point
from .pointwise import broadcast
from .site import Builder, Built, Site


def _bytewise(site: Site, value: str, operands: int) -> Built:
    """The program of a value, which names its inputs ``{0}``, ``{1}``, ..., of which so many are bytes."""
    shape, dtype, values = site.result().shape, site.result().dtype, site.node.values
    names = point(len(shape))
    program = Program("bytewise", Precision(site.dtype(), "float32", dtype))
    loads = []
    for at in range(site.count):
        program.inputs([(f"x{at}", site.shape(at))], site.dtype(at))
        if at < operands:
            index = broadcast(site.shape(at), names)
        else:
            index = ["0" if site.shape(at) == (1,) else names[1]]
        loads.append(element(f"x{at}", index))
    epilogue = Epilogue(dtype, zero=values["zero"], low=values["low"], high=values["high"])
    constants = [site.new_constant(vector) for vector in epilogue.vectors().values()]
    program.inputs([("zero", (1,))], "int32")
    program.output("y", shape)
    text = f"{element('y', names)} = {epilogue.rounded(value.format(*loads))}"
    program.add("bytewise", [(name[1:], extent, "S") for name, extent in zip(names, shape, strict=True)], text)
    return [site.operator(program.text(), [*range(site.count), *constants])]


def _affine(site: Site) -> Built:
    return _bytewise(site, "T.Cast('float32', {0}) * {1} + {2}", 1)


def _add(site: Site) -> Built:
    return _bytewise(site, "T.Cast('float32', {0}) * {2} + T.Cast('float32', {1}) * {3} + {4}", 2)


def _mul(site: Site) -> Built:
    apart = "(T.Cast('int32', {0}) - {2}) * (T.Cast('int32', {1}) - {3})"
    return _bytewise(site, f"T.Cast('float32', {apart}) * {{4}} + {{5}}", 2)


BUILDERS: Mapping[tuple[str, str], Builder] = {
    (OWN_DOMAIN, "AffineOfBytes"): _affine,
    (OWN_DOMAIN, "AddOfBytes"): _add,
    (OWN_DOMAIN, "MulOfBytes"): _mul,
}
