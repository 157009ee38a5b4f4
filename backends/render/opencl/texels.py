"""Reads of images: whole texels where the lanes are, components of held texels elsewhere."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.arith.linear import as_ramp
from ....ir.expr import Broadcast, Const, Expr, Load, as_int, binary, const
from ...errors import CodegenError
from ...images import TEXEL, read_function
from .kernel import Kernel
from .types import bare

NAMES = "xyzw"


def is_image(k: Kernel, load: Load) -> bool:
    """Whether a load goes to an image of this kernel.  Raises CodegenError for a view of another type or shape."""
    memory = k.memories.get(load.buffer.memory)
    if memory is None or memory.space != "image":
        return False
    name, whole = load.buffer.memory, memory.buffer
    if load.buffer.dtype != whole.dtype:
        raise CodegenError(
            f"`{load.buffer.name}` views the image `{name}` of {whole.dtype} as {load.buffer.dtype}; "
            f"texture memory has one element type"
        )
    if load.buffer.shape != whole.shape:
        raise CodegenError(
            f"`{load.buffer.name}` views the image `{name}` of {list(whole.shape)} as "
            f"{list(load.buffer.shape)}; texture memory has one shape"
        )
    return True


def component(k: Kernel, load: Load) -> str:
    """One element, converted to the type in which it is computed."""
    row, column = load.indices
    texel = _texel(k, load, row, _quotient(k, column))
    place = _remainder(k, column)
    if place is not None:
        return _converted(k, f"{texel}.{NAMES[place]}", load, 1)
    kind = read_function(load.dtype)[1]
    chosen = k.helpers.component(kind)
    return _converted(k, f"{chosen}({texel}, (int){k.scalar(binary('%', column, TEXEL))})", load, 1)


def components(k: Kernel, load: Load, start: int, count: int) -> str | None:
    """Lanes ``[start, start + count)``, if they are neighbours in whole texels or inside one; else None."""
    row, column = load.indices
    ramp = as_ramp(column)
    if isinstance(row, Broadcast):
        row = row.value
    if dtypes.lanes(row.dtype) > 1 or ramp is None or ramp[1] != const(1):
        return None
    first = binary("+", ramp[0], start)
    place = _remainder(k, first)
    if place is None or (place and place + count > TEXEL):
        return None
    if place + count <= TEXEL:
        texel = _texel(k, load, row, _quotient(k, first))
        part = "" if count == TEXEL else f".{NAMES[place : place + count]}"
        return _converted(k, texel + part, load, count)
    quotients = [_quotient(k, binary("+", first, n)) for n in range(0, count, TEXEL)]
    texels = ", ".join(_texel(k, load, row, q) for q in quotients)
    kind = read_function(dtypes.element(load.dtype))[1][: -len(str(TEXEL))]
    return _converted(k, f"(({kind}{count})({texels}))", load, count)


def _texel(k: Kernel, load: Load, row: Expr, quotient: Expr) -> str:
    """The texel, held where it is read in any case."""
    function, kind = read_function(dtypes.element(load.dtype))
    x, y = (bare(k.scalar(k.known.simple(e))) for e in (quotient, row))
    text = f"{function}({k.memories[load.buffer.memory].pointer}, (int2)((int)({x}), (int)({y})))"
    return text if k.writer.is_lazy or k.writer.changes(load) else k.writer.held(text, kind)


def _converted(k: Kernel, text: str, load: Load, count: int) -> str:
    """A value as `read_image` gives it in the type of the computation."""
    base = dtypes.element(load.dtype)
    wanted, given = k.types.lane(base), read_function(base)[1][: -len(str(TEXEL))]
    if wanted == given:
        return text
    if count == 1:
        return f"convert_{wanted}({text})"
    return f"{k.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"


def _quotient(k: Kernel, column: Expr) -> Expr:
    return k.known.simple(binary("//", column, TEXEL))


def _remainder(k: Kernel, column: Expr) -> int | None:
    """The component that a column is in, if it is the same in every iteration."""
    remainder = k.known.simple(binary("%", column, TEXEL))
    return as_int(remainder) if isinstance(remainder, Const) else None
