"""The primitives; importing this package registers all of them."""

from . import (
    annotations,
    block_layout,
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
    sharing,
    storage,
    tensorize,
)

__all__ = [
    "annotations", "block_layout", "blockize", "boundary", "cache", "compute", "layout", "loops", "nests", "reduction",
    "reindex_cache", "sampling", "sequential", "sharing", "storage", "tensorize",
]  # fmt: skip
