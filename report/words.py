"""How kinds of decisions are told to people, in a terminal and on a page."""

from __future__ import annotations

KINDS = {
    "layout": "how a buffer lies in memory",
    "pad_value": "what the padding of a layout holds",
    "boundary": "branch, peel, overcompute or mask at a ragged edge",
    "tile": "extents of tiles, divisors or not",
    "place": "where a stage is computed or copied",
    "order": "order of the loops",
    "parallel": "how many loops are shared by threads",
    "vector": "width of vectors",
    "work_group": "shape of a work-group",
    "memory": "which memory holds a tile",
    "choice": "whatever else a rule offers",
}
