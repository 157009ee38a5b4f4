"""Index maps that several techniques need, as text."""

from __future__ import annotations


def fusing(rank: int, high: int, low: int, width: int) -> str:
    """The map of `rank` indices that puts ``high * width + low`` in the place of index number `high`."""
    names = [f"d{k}" for k in range(rank)]
    one = f"{names[high]} * {width} + {names[low]}"
    parts = [one if k == high else name for k, name in enumerate(names) if k != low]
    return f"lambda {', '.join(names)}: [{', '.join(parts)}]"
