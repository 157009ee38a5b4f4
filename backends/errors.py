"""What code generation raises."""

from __future__ import annotations

from ..errors import ProgramError


class CodegenError(ProgramError):
    """A lowered program that the code generator of a target cannot express."""
