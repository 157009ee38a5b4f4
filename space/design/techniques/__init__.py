"""The techniques by which anchors are scheduled: one file each, and the table of all.

A file says with its four parts (see `technique`) what it opens, what it excludes, how it is applied and which columns
it shows.  It reads choices through `Candidates` and acts through the primitives of a `Schedule`; another technique it
knows only where it takes part in that one's work, and never in a circle.  `docs/howto/technique.md` adds one.
"""

from __future__ import annotations

from .blocks import BLOCKS_OF_TILES
from .boundaries import EDGES
from .contiguous import CONTIGUOUS
from .digits import DIGITS
from .dot_products import DOT_PRODUCTS
from .factored import FACTORED
from .fused_rows import FUSED_ROWS
from .halo import HALO
from .images import IMAGES
from .local_memory import LOCAL_MEMORY
from .orders import ORDERS
from .panels import PANELS
from .phases import PHASES
from .prefetching import PREFETCHING
from .sharing import SHARING
from .staging import STAGING
from .subgroups import SUBGROUPS
from .taps import TAPS
from .technique import Technique
from .threads import THREADS
from .tiles import TILES
from .vector_width import VECTOR_WIDTH
from .work_groups import WORK_GROUPS

TECHNIQUES: tuple[Technique, ...] = (
    PHASES, CONTIGUOUS, DIGITS, HALO, TILES, BLOCKS_OF_TILES, EDGES, TAPS, ORDERS, DOT_PRODUCTS, FACTORED, PANELS,
    FUSED_ROWS, SHARING, STAGING, WORK_GROUPS, IMAGES, LOCAL_MEMORY, SUBGROUPS, VECTOR_WIDTH, THREADS, PREFETCHING,
)  # fmt: skip
"""Every technique; decisions are opened, and steps of one phase taken, in this order."""
