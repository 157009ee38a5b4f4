"""Programs from text, and random candidates of their spaces."""

from __future__ import annotations

import numpy as np

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.design.sketch import Sketch


def func_of(text: str) -> PrimFunc:
    """The one function of a text."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def candidates(sketch: Sketch, count: int, seed: int = 0) -> list[list[int]]:
    """Random candidates that no rule excludes."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(len(d), size=40_000) for d in sketch.decisions], axis=1)
    found: list[list[int]] = rows[sketch.mask(rows)][:count].tolist()
    return found
