"""How many candidates a round has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stridesmith.search.tuning.budget import Budget


def run(kind: str, trials: int = 0, limit: int | None = None) -> Any:
    settings = SimpleNamespace(batch=16, trial_limit=limit, seconds=None, stop_at=None)
    task = SimpleNamespace(target=SimpleNamespace(kind=kind))
    return SimpleNamespace(settings=settings, results=SimpleNamespace(trials=trials, roof=None), task=task)


@pytest.mark.parametrize(("kind", "first"), [("cpu", 16), ("opencl", 8)])
def test_the_first_round_is_short_where_a_driver_compiles(kind: str, first: int) -> None:
    """So that the first result is there soon; the next round has a whole batch, on every kind of target."""
    budget = Budget(run(kind))
    assert budget.size(None, 0) == first
    budget.spent(8.0, first)
    assert budget.size(None, 0) == 16


def test_a_limit_of_trials_cuts_a_round() -> None:
    """Also the first one, and also where it is short."""
    assert [Budget(run(kind, limit=5)).size(None, 0) for kind in ("cpu", "opencl")] == [5, 5]
