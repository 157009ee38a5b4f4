"""How many random examples a test draws: a default that suits every run, more when asked."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("STRIDESMITH_TEST_SCALE", "1"))


def scaled(count: int) -> int:
    """`count` times the environment's STRIDESMITH_TEST_SCALE, at least one."""
    return max(1, round(count * SCALE))
