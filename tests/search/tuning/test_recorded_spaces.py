"""Six design spaces that were measured whole: the search finds what is fast in them in far fewer trials than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stridesmith.search.tasks.recording import Recording, load
from stridesmith.search.tuning.study import Study

FOLDER = Path(__file__).parents[2] / "spaces"
NAMES = ("batched", "conv2d", "dense", "depthwise", "free", "matmul")
NEAR = 1.05  # of the best latency: found
BATCH, SEEDS = 16, 3


@pytest.fixture(scope="module")
def spaces() -> dict[str, Recording]:
    """All of them by name."""
    return {path.stem: load(path) for path in sorted(FOLDER.glob("*.space"))}


def by_chance(recording: Recording) -> float:
    """The mean number of draws without replacement until one of k good candidates of n: (n + 1) / (k + 1)."""
    latencies = np.concatenate([sketch.latencies for sketch in recording.sketches])
    return (len(latencies) + 1) / (int((latencies <= NEAR * recording.best_us).sum()) + 1)


def searched(recording: Recording, seed: int) -> int:
    """Trials of the default strategy until one took at most `NEAR` times the best."""
    study, count = Study(recording.space, seed=seed, batch=BATCH), 0
    while candidates := study.ask(BATCH):
        for candidate in candidates:
            us, status = recording.sketches[candidate.sketch].result(candidate.choice)
            study.tell(candidate, us if status == "ok" else None, None if status == "ok" else status.partition(":")[0])
            count += 1
            if us <= NEAR * recording.best_us:
                return count
    return count


def test_the_spaces_are_large_and_differ(spaces: dict[str, Recording]) -> None:
    """Thousands of candidates each, few of them fast, and some a multiple of the best."""
    assert tuple(spaces) == NAMES
    for recording in spaces.values():
        assert recording.size >= 2000
        assert by_chance(recording) >= 20
        latencies = np.concatenate([sketch.latencies for sketch in recording.sketches])
        assert np.nanquantile(latencies, 0.9) >= 2 * recording.best_us
    assert len({recording.work.name + str(recording.interface) for recording in spaces.values()}) == len(spaces)


def test_the_search_needs_fewer_trials_than_chance(spaces: dict[str, Recording]) -> None:
    """In the mean over all spaces by a factor of two at least."""
    ratios = [
        np.mean([searched(recording, seed) for seed in range(SEEDS)]) / by_chance(recording)
        for recording in spaces.values()
    ]
    assert np.exp(np.mean(np.log(ratios))) < 0.5
