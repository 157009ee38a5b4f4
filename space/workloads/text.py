"""Pieces of script text from which the library's programs are put together."""

from __future__ import annotations

from collections.abc import Sequence

AxisText = tuple[str, int, str]
"""A loop's name, its extent, and ``S`` (spatial) or ``R`` (reduce); the block's iterator is ``v`` + name."""

BufferText = tuple[str, tuple[int, ...]]
"""A buffer's name and its shape."""


def literal(value: int | float, dtype: str) -> str:
    """``T.float32(0)``; infinities and NaN as text, the way TVMScript spells them."""
    finite = value == value and abs(value) != float("inf")
    return f"T.{dtype}({value if finite else repr(str(value))})"


def function(
    name: str, dtype: str, params: Sequence[BufferText], blocks: Sequence[str], allocs: Sequence[BufferText] = ()
) -> str:
    """A whole function: parameters in order, the root's allocations, then the loop nests."""
    lines = ["@T.prim_func", f"def {name}("]
    lines += [f"    {buffer}: T.Buffer({shape}, {dtype!r})," for buffer, shape in params]
    lines += ["):"]
    lines += [f"    {buffer} = T.alloc_buffer({shape}, {dtype!r})" for buffer, shape in allocs]
    return "\n".join([*lines, *blocks]) + "\n"


def block(name: str, axes: Sequence[AxisText], body: str, init: str = "") -> str:
    """A loop nest around one block; `body` and `init` are single stores over the iterators."""
    loops = ", ".join(axis for axis, _, _ in axes)
    iters = ", ".join(f"v{axis}" for axis, _, _ in axes)
    extents = ", ".join(str(extent) for _, extent, _ in axes)
    kinds = "".join(kind for _, _, kind in axes)
    lines = [
        f"    for {loops} in T.grid({extents}):",
        f'        with T.block("{name}"):',
        f'            {iters} = T.axis.remap("{kinds}", [{loops}])',
    ]
    if len(axes) == 1:
        lines[2] = f'            {iters} = T.axis.{"spatial" if kinds == "S" else "reduce"}({extents}, {loops})'
    if init:
        lines += ["            with T.init():", f"                {init}"]
    return "\n".join([*lines, f"            {body}"])


def affine(base: str, scale: int, offset: str = "", offset_scale: int = 1, shift: int = 0) -> str:
    """``base * scale + offset * offset_scale - shift`` without the parts that change nothing."""
    text = base if scale == 1 else f"{base} * {scale}"
    if offset:
        text += f" + {offset}" if offset_scale == 1 else f" + {offset} * {offset_scale}"
    return f"{text} - {shift}" if shift else text
