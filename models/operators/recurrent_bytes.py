"""LSTM layers whose state is quantised in each step, as ONNX Runtime's DynamicQuantizeLSTM has it.

With the least and the largest element of the state of the whole batch, and 0, as ``lo`` and ``hi``, a step is that of
an LSTM with another product::

    scale = (hi - lo) / 255, or 1 where that is 0         zero = round(-lo / scale)
    q[b, k] = clip(round(h[b, k] / scale) + zero, 0, 255)
    acc[b, n] = sum_k q[b, k] r[n, k]                                              a product of bytes
    (acc[b, n] - zero sums[n] - z rows[b]) * (scale * r_scale[n])                  that of the state with the weights

where ``sums[n] = sum_k (r[n, k] - z)`` and ``rows[b] = sum_k q[b, k]``, for weights that are counted from z.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...space.workloads.precision import Precision, plain
from ...space.workloads.text import Program, block, element, literal
from .graph import OWN_DOMAIN
from .integers import in_steps
from .recurrent import LSTM_ACTIVATIONS, B, Layer, R, X, activations, lstm
from .site import Builder, Built, Site

SCALES, SUMS, ZEROS = 8, 9, 10
"""The inputs after those of an LSTM: of the weights the scales ``[d, n]``, the sums ``[d, n]`` and, or 0, z ``[d]``.

In the place of X is the product of the input with the biases, and W and B are absent.
"""

TYPE = "float32"
INT = "int32"


def _lstm(site: Site) -> Built:
    found = activations(site, LSTM_ACTIVATIONS)
    if found is None:
        return None
    layer = Layer(site, 4, found, Program("lstm_of_bytes", plain(TYPE)))
    layer.reads("g", site.node.inputs[X])
    layer.reads("r", site.node.inputs[R], site.dtype(R))
    layer.reads("r_scale", site.node.inputs[SCALES])
    layer.reads("sums", site.node.inputs[SUMS], INT)
    if site.has(ZEROS):
        layer.reads("z", site.node.inputs[ZEROS], INT)
    _quantised_state(layer)
    _product(layer)
    return lstm(layer)


def _quantised_state(layer: Layer) -> None:
    """Append the state as bytes to a step: ``q``, with its ``scale`` and ``zero``."""
    axes = [("b", layer.batch), ("k", layer.size)]

    def over(kind: str, name: str) -> list[tuple[str, int, str]]:
        return [(f"{axis}_{name}", extent, kind) for axis, extent in axes]

    def state(name: str) -> str:
        return layer.state("h", [f"vb_{name}", f"vk_{name}"])

    for name, choose in (("lo", "min"), ("hi", "max")):
        value = state(name)
        if layer.site.attribute("ends", 0):  # a sequence that has ended is 0
            value = f"T.Select(vs <= T.Cast('int64', {element('lengths', [f'vb_{name}'])}), {value}, {layer.number(0)})"
        layer.alloc(name, (1,))
        update = f"{name}[0] = T.{choose}({name}[0], {value})"
        layer.blocks.append(block(name, over("R", name), update, f"{name}[0] = {layer.number(0)}"))
    layer.alloc("scale", (1,))
    span = f"(hi[0] - lo[0]) / {layer.number(255)}"
    layer.blocks.append(block("scale", [], f"scale[0] = T.Select(hi[0] == lo[0], {layer.number(1)}, {span})"))
    layer.alloc("zero", (1,), INT)
    start = in_steps(f"({layer.number(0)} - lo[0]) / scale[0]", (0, 255), literal(0, INT), (0, 255))
    layer.blocks.append(block("zero", [], f"zero[0] = {start}"))
    layer.alloc("q", (layer.batch, layer.size), "uint8")
    steps = in_steps(f"{state('q')} / scale[0]", (0, 255), "zero[0]", (-256, 256))
    layer.blocks.append(block("q", over("S", "q"), f"{element('q', ['vb_q', 'vk_q'])} = T.Cast('uint8', {steps})"))


def _product(layer: Layer) -> None:
    """Append the product of bytes to a step, and say what it stands for."""
    layer.alloc("acc", (layer.batch, layer.rows), INT)
    axes = [("b_product", layer.batch, "S"), ("n_product", layer.rows, "S"), ("k_product", layer.size, "R")]
    b, n, k = (f"v{axis}" for axis, _, _ in axes)
    target, factor = element("acc", [b, n]), Precision("uint8", INT, INT).widen(element("q", [b, k]))
    update = f"{target} = {target} + {factor} * T.Cast('{INT}', {element('r', [layer.d, n, k])})"
    layer.blocks.append(block("product", axes, update, f"{target} = {literal(0, INT)}"))
    if layer.site.has(ZEROS):
        layer.alloc("rows", (layer.batch,), INT)
        update = f"rows[vb_rows] = rows[vb_rows] + T.Cast('{INT}', {element('q', ['vb_rows', 'vk_rows'])})"
        over = [("b_rows", layer.batch, "S"), ("k_rows", layer.size, "R")]
        layer.blocks.append(block("rows", over, update, f"rows[vb_rows] = {literal(0, INT)}"))
    apart = f"{{acc}} - zero[0] * {element('sums', [layer.d, '{n}'])}"
    if layer.site.has(ZEROS):
        apart += f" - {element('z', [layer.d])} * {element('rows', [B])}"
    layer.summed = f"T.Cast('{TYPE}', {apart}) * (scale[0] * {element('r_scale', [layer.d, '{n}'])})"


BUILDERS: Mapping[tuple[str, str], Builder] = {(OWN_DOMAIN, "LSTMOfBytes"): _lstm}
