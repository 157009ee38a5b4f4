"""What lowering refuses."""

from __future__ import annotations


class LoweringError(ValueError):
    """The program cannot be lowered for this target; the message says what and why."""
