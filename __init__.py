"""stridesmith: an auto-scheduler that searches over layouts, padding, boundaries and tiling."""

from __future__ import annotations

__version__ = "0.1.0"
