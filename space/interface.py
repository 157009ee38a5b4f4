"""Who chooses the layout of each argument of a program.

``fixed``: the layout of the caller stays, and any repacking is part of the kernel.  ``constant``: packed once,
ahead of time.  ``streamed``: as ``constant``, but no call finds it in the second cache, as is so with the weights of a
network, of which each call reads all others before it comes back.  ``free``: the search chooses, and the kernel says
what it expects.
"""

from __future__ import annotations

from typing import Literal, get_args

Who = Literal["fixed", "constant", "streamed", "free"]
WHO: tuple[Who, ...] = get_args(Who)
PACKED_AHEAD: tuple[Who, ...] = ("constant", "streamed")
"""What is said of weights: packed once, before the first call."""
