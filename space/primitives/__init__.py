"""The primitives; importing this package registers all of them."""

from . import (
    annotations,
    blockize,
    boundary,
    cache,
    compute,
    layout,
    loops,
    nests,
    reduction,
    reindex_cache,
    sampling,
    sequential,
    storage,
    tensorize,
)

__all__ = [
    "annotations", "blockize", "boundary", "cache", "compute", "layout", "loops", "nests", "reduction",
    "reindex_cache", "sampling", "sequential", "storage", "tensorize",
]  # fmt: skip
