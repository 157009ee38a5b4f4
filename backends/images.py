"""Texture memory: 2-d buffers of scope ``global.texture`` are images of RGBA texels, four elements each.

::

    B[r, c]  ->  component c % 4 of the texel at (x = c // 4, y = r)

An image is read through the device's texture units; a kernel never both reads and writes one.  What
kernels write therefore lies in linear memory, and becomes an image by a copy before the next kernel reads it.

Source: RFC 0039 ("Goals": 2-d texture memory through axis separators).
"""

from __future__ import annotations

from ..ir import dtypes
from ..ir.expr import Buffer
from ..ir.target import Target
from .errors import CodegenError

TEXEL = 4
"""Elements of one texel."""
FORMATS = {
    "float32": ("FLOAT", "read_imagef", "float4"),
    "float16": ("HALF_FLOAT", "read_imagef", "float4"),
    "int8": ("SIGNED_INT8", "read_imagei", "int4"),
    "int16": ("SIGNED_INT16", "read_imagei", "int4"),
    "int32": ("SIGNED_INT32", "read_imagei", "int4"),
    "uint8": ("UNSIGNED_INT8", "read_imageui", "uint4"),
}
"""For each element type the channel type of the host's image, the function that reads a texel, and its type."""


def is_image(scope: str) -> bool:
    """Whether memory of this scope is read as an image."""
    return "texture" in scope.split(".")


def image_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """``(width, height)`` in texels of a buffer of rows and columns."""
    rows, columns = shape
    return columns // TEXEL, rows


def read_function(dtype: str) -> tuple[str, str]:
    """The OpenCL function that reads a texel of elements of this type, and the type of what it gives."""
    _, function, kind = FORMATS[dtype]
    return function, kind


def channel_of(dtype: str) -> str:
    """The channel type of the host's image for elements of this type, as OpenCL names it after ``CL_``."""
    return FORMATS[dtypes.element(dtype)][0]


def check_image(buffer: Buffer, target: Target) -> None:
    """Raise CodegenError, with a number, unless the device has such an image.

    (1) The device has images of the element type; (2) the buffer has two physical axes, split by an axis
    separator; (3) rows are whole texels; (4) the extents are within the device's limits.
    """
    what = f"buffer `{buffer.name}` is in texture memory, but"
    if buffer.dtype not in target.image_types.split():
        known = target.image_types or "none"
        raise CodegenError(
            f"(1) {what} `{target.name}` has no images of {buffer.dtype} (it has {known}); use the scope `global`"
        )
    if buffer.rank != 2:
        raise CodegenError(
            f"(2) {what} has {buffer.rank} physical axes; images have two: set one AXIS_SEPARATOR in its layout"
        )
    if buffer.shape[1] % TEXEL:
        raise CodegenError(
            f"(3) {what} its rows of {buffer.shape[1]} elements are not whole texels of {TEXEL}; pad the last axis"
        )
    width, height = image_shape(buffer.shape)
    if width > target.image_width or height > target.image_height:
        raise CodegenError(
            f"(4) {what} {width} x {height} texels exceed {target.image_width} x {target.image_height} of "
            f"`{target.name}`; put the axis separator elsewhere"
        )
