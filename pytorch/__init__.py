"""PyTorch: parts of a model that run here, the rest where it was.  Called `stridesmith.torch`.

`backend` is what ``torch.compile(model, backend="stridesmith")`` calls (`named.py`); `compile` does that, and
gives the model back where it is not faster as a whole; `tune` fills the database for a model;
`operator` makes a PyTorch operator of a kernel or model.  A graph of PyTorch's ATen operators becomes
a graph of `models.operators` (`capture.py`, `conversion.py`, by the table of `aten.py`), of which connected parts
become networks (`parts.py`); what is faster than PyTorch in a race (`race.py`) stays.  This package may
use `models` and what that may use, and what shows a search in `commands`; no other package knows it.

The folder is not called `torch`, because the repository's root is the package: who starts Python
there would import it in the place of PyTorch, which is an extra (``pip install 'stridesmith[torch]'``).
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError(
        "stridesmith.torch needs PyTorch, which is not installed; `pip install 'stridesmith[torch]'` installs both"
    ) from None

from .call import Left
from .dynamo import backend
from .operators import operator
from .tuning import Tuned, tune
from .whole import compile

__all__ = ["Left", "Tuned", "backend", "compile", "operator", "tune"]
