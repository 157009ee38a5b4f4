"""Six design spaces that were measured whole: the search finds what is fast in them in far fewer trials than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_spaces import NEAR, SPACES, STRATEGIES, trials_until

from stridesmith.search.tasks.recording import Recording, load

FOLDER = Path(__file__).parents[1] / "spaces"
SEEDS = 3


@pytest.fixture(scope="module")
def spaces() -> dict[str, Recording]:
    """All of them by name."""
    return {path.stem: load(path) for path in sorted(FOLDER.glob("*.space"))}


def by_chance(recording: Recording) -> float:
    """The mean number of draws without replacement until one of k good candidates of n: (n + 1) / (k + 1)."""
    latencies = np.concatenate([sketch.latencies for sketch in recording.sketches])
    return (len(latencies) + 1) / (int((latencies <= NEAR * recording.best_us).sum()) + 1)


def test_the_spaces_are_large_and_differ(spaces: dict[str, Recording]) -> None:
    """Thousands of candidates each, few of them fast, and some a multiple of the best."""
    assert set(spaces) == set(SPACES)
    for recording in spaces.values():
        assert recording.size >= 2000
        assert by_chance(recording) >= 20
        latencies = np.concatenate([sketch.latencies for sketch in recording.sketches])
        assert np.nanquantile(latencies, 0.9) >= 2 * recording.best_us
    assert len({recording.work.name + str(recording.interface) for recording in spaces.values()}) == len(spaces)


def test_the_search_needs_fewer_trials_than_chance(spaces: dict[str, Recording]) -> None:
    """In the mean over all spaces by a factor of two at least."""
    ours, ratios = STRATEGIES["stridesmith"], []
    for recording in spaces.values():
        goal = NEAR * recording.best_us
        counts = [trials_until(ours(recording, seed), goal, recording.size) for seed in range(SEEDS)]
        ratios.append(np.mean(counts) / by_chance(recording))
    assert np.exp(np.mean(np.log(ratios))) < 0.5
