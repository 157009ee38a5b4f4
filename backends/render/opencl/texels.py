"""Reads of images: whole texels, held where they are read in any case, and their components."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.arith.linear import build, divide, shared_form
from ....ir.expr import Binary, Const, Expr, Load, Ramp, Shuffle, as_int, const
from ...images import TEXEL, read_function
from .kernel import Kernel
from .types import bare

NAMES = "xyzw"


def is_texel(k: Kernel, e: Expr) -> bool:
    """Whether an expression is a load of a whole texel of an image."""
    if not isinstance(e, Load):
        return False
    memory = k.memories.get(e.buffer.memory)
    return memory is not None and memory.space == "image"


def component(k: Kernel, e: Shuffle) -> str:
    """One element of a texel, converted to the type in which it is computed."""
    (texel,), (number,) = e.vectors, e.lanes
    assert isinstance(texel, Load)
    if isinstance(number, Const):
        return converted(k, f"{_texel(k, texel)}.{NAMES[as_int(number)]}", e.dtype)
    chosen = k.helpers.component(read_function(dtypes.element(texel.dtype))[1])
    return converted(k, f"{chosen}({_texel(k, texel)}, (int){k.scalar(number)})", e.dtype)


def texel_lanes(k: Kernel, e: Shuffle) -> str:
    """Neighbours in one texel, or whole texels one behind the other."""
    texels = [_texel(k, v) for v in e.vectors if isinstance(v, Load)]
    if len(texels) > 1:
        kind = read_function(dtypes.element(e.dtype))[1][: -len(str(TEXEL))]
        return f"(({kind}{len(e.lanes)})({', '.join(texels)}))"
    part = "".join(NAMES[as_int(lane)] for lane in e.lanes)
    return texels[0] if part == NAMES else f"{texels[0]}.{part}"


def _texel(k: Kernel, load: Load) -> str:
    function, kind = read_function(dtypes.element(load.dtype))
    row, column = load.indices
    assert isinstance(column, Ramp)
    x, y = (bare(k.scalar(e)) for e in (_quotient(column.base), row))
    text = f"{function}({k.memories[load.buffer.memory].pointer}, (int2)((int)({x}), (int)({y})))"
    return text if k.writer.is_lazy or k.writer.changes(load) else k.writer.held(text, kind)


def _quotient(first: Expr) -> Expr:
    """The number of a texel in its row, by its first column."""
    if isinstance(first, Binary) and first.op == "*" and first.b == const(TEXEL):
        return first.a
    return build(divide(shared_form(first), TEXEL))


def converted(k: Kernel, text: str, dtype: str) -> str:
    """A value as `read_image` gives it in the type of the computation."""
    base, count = dtypes.split_dtype(dtype)
    wanted, given = k.types.lane(base), read_function(base)[1][: -len(str(TEXEL))]
    if wanted == given:
        return text
    if count == 1:
        return f"convert_{wanted}({text})"
    return f"{k.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"
