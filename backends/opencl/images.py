"""Images of the host: which a device has, and how one is made for a buffer (`backends.images`)."""

from __future__ import annotations

from typing import Any

from ..images import FORMATS, channel_of, image_shape
from .contexts import context_to_ask

GUARANTEED = 8192
"""Texels in width and in height that the standard promises of every device with images (CL_DEVICE_IMAGE2D_MAX_*)."""


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
    types = [dtype for dtype, (channel, *_) in FORMATS.items() if getattr(cl.channel_type, channel) in known]
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
