"""Texture memory: 2-d buffers of scope ``global.texture`` are images of RGBA texels, four elements each.

::

    B[r, c]  ->  component c % 4 of the texel at (x = c // 4, y = r)

An image is read through the device's texture units; a kernel never both reads and writes one.  What
kernels write therefore lies in linear memory, and becomes an image by a copy before the next kernel reads it.

Source: RFC 0039 ("Goals": 2-d texture memory through axis separators).
"""

from __future__ import annotations

from typing import Any

from ...ir import dtypes
from ...ir.expr import Buffer
from ...ir.target import Target
from ..llvm.types import CodegenError
from .contexts import context_to_ask

TEXEL = 4
"""Elements of one texel."""
GUARANTEED = 8192
"""Texels in width and in height that the standard promises of every device with images (CL_DEVICE_IMAGE2D_MAX_*)."""

# element type: (the channel type of the host's image, the function that reads a texel, the type that it gives)
_FORMATS = {
    "float32": ("FLOAT", "read_imagef", "float4"),
    "float16": ("HALF_FLOAT", "read_imagef", "float4"),
    "int8": ("SIGNED_INT8", "read_imagei", "int4"),
    "int16": ("SIGNED_INT16", "read_imagei", "int4"),
    "int32": ("SIGNED_INT32", "read_imagei", "int4"),
    "uint8": ("UNSIGNED_INT8", "read_imageui", "uint4"),
}


def is_image(scope: str) -> bool:
    """Whether memory of this scope is read as an image."""
    return "texture" in scope.split(".")


def image_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """``(width, height)`` in texels of a buffer of rows and columns."""
    rows, columns = shape
    return columns // TEXEL, rows


def read_function(dtype: str) -> tuple[str, str]:
    """The OpenCL function that reads a texel of elements of this type, and the type of what it gives."""
    _, function, kind = _FORMATS[dtype]
    return function, kind


def channel_of(dtype: str) -> str:
    """The channel type of the host's image for elements of this type, as OpenCL names it after ``CL_``."""
    return _FORMATS[dtypes.element(dtype)][0]


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
    if len(buffer.shape) != 2:
        raise CodegenError(
            f"(2) {what} has {len(buffer.shape)} physical axes; images have two: set one AXIS_SEPARATOR in its layout"
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


def image_limits(device: Any) -> dict[str, Any]:
    """The facts of a target about images, as the driver tells them; a device may have none.

    PoCL allows larger images the more memory a process may use.  A process with less has to run what is made here,
    so that of a CPU device no more counts than every device has.  A device that others keep from giving a context has
    none for now.
    """
    import pyopencl as cl

    if not device.image_support:
        return {"images": False}
    try:
        context = context_to_ask(device)
    except cl.Error:
        return {"images": False}
    formats = cl.get_supported_image_formats(context, cl.mem_flags.READ_ONLY, cl.mem_object_type.IMAGE2D)
    known = {f.channel_data_type for f in formats if f.channel_order == cl.channel_order.RGBA}
    most = GUARANTEED if device.type & cl.device_type.CPU else 1 << 30
    types = [dtype for dtype, (channel, *_) in _FORMATS.items() if getattr(cl.channel_type, channel) in known]
    return {
        "images": True,
        "image_width": min(int(device.image2d_max_width), most),
        "image_height": min(int(device.image2d_max_height), most),
        "image_args": int(device.max_read_image_args),
        "image_types": " ".join(types),
    }


def refusal(device: Any) -> list[str]:
    """Why nothing can run on the device now, in a sentence, if it gives no context."""
    import pyopencl as cl

    try:
        context_to_ask(device)
    except cl.Error as error:
        return [f"the device does not answer: {error}; another program may hold it, or all of its memory"]
    return []


def make_image(context: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An image of the host for a buffer of rows and columns."""
    import pyopencl as cl

    channel = getattr(cl.channel_type, channel_of(dtype))
    texels = cl.ImageFormat(cl.channel_order.RGBA, channel)
    return cl.create_image(context, cl.mem_flags.READ_ONLY, texels, shape=image_shape(shape))
