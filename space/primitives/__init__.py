"""The primitives; importing this package registers all of them."""

from . import boundary, cache, compute, layout, loops, reduction

__all__ = ["boundary", "cache", "compute", "layout", "loops", "reduction"]
