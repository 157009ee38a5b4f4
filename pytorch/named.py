"""What ``backend="stridesmith"`` names: the backend, with recurrent layers in the graphs that it is given.

Dynamo leaves these out of its graphs unless its setting ``allow_rnn`` is on, and asks no backend before.  So it is on
from the first time that somebody names this one, for the whole process.
"""

from __future__ import annotations

import torch._dynamo

from .dynamo import backend
from .recurrent import ALLOWED

for _name, _value in ALLOWED.items():
    setattr(torch._dynamo.config, _name, _value)

__all__ = ["backend"]
