"""The primitives; importing this package registers all of them."""

from . import annotations, blockize, boundary, cache, compute, layout, loops, reduction, sampling, storage

__all__ = [
    "annotations", "blockize", "boundary", "cache", "compute", "layout", "loops", "reduction", "sampling", "storage",
]  # fmt: skip
