"""What lowering refuses."""

from __future__ import annotations

from ...errors import ProgramError


class LoweringError(ProgramError, ValueError):
    """The program cannot be lowered for this target; the message says what and why."""
