"""Every rewrite that a primitive accepts leaves the results of random programs as they are."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzz.moves import MOVES
from fuzz.trial import Trial
from scale import scaled

from stridesmith.ir.script.parser import parse
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.wrappers import WRAPPERS

BATCHES = 10

TALLY: Counter[tuple[str, bool]] = Counter()
PROGRAMS: Counter[str] = Counter()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_accepted_rewrites_keep_the_results(batch: int) -> None:
    """Under NaN and under large poison, in any order of concurrent iterations, and with promises about padding kept."""
    for number in range(scaled(15)):
        trial = Trial(batch * 1_000_000 + number, TALLY)
        trial.play(8)
        replayed = trial.sch.trace.replay(parse(trial.text))
        assert replayed.func == trial.sch.func, trial.story("", "the trace gives another program")
        PROGRAMS["all"] += 1
        PROGRAMS["branch removed"] += trial.removed_a_branch


def test_every_primitive_is_accepted_and_refused() -> None:
    """The programs above are worth their time: many lose a branch, and each primitive says yes and no.

    At full scale (3,000 programs, STRIDESMITH_TEST_SCALE=20) a quarter of them, and at least fifty times each.
    """
    names = sorted({name for name, _ in TALLY})
    print()
    for name in names:
        print(f"{name:40} {TALLY[name, True]:6} accepted of {TALLY[name, True] + TALLY[name, False]:6}")
    print(f"{PROGRAMS['branch removed']} of {PROGRAMS['all']} programs with an accepted branch removal")
    if PROGRAMS["all"] < BATCHES * scaled(15):
        pytest.skip("counts what the whole file has done")
    assert PROGRAMS["branch removed"] >= PROGRAMS["all"] / (4 if PROGRAMS["all"] >= 2000 else 6)
    least = 50 if PROGRAMS["all"] >= 3000 else 0
    for name in names:
        assert TALLY[name, True] >= least and TALLY[name, False] >= least, name
    assert set(names) == {name for name in MOVES if name in PRIMITIVES or name in WRAPPERS}
