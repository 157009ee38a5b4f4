"""The pool in all orders of its steps, bugs that these would find, and the compiled pool beside other processes."""

import sys
from dataclasses import replace

import pytest
from pool_model import BUGS, Broken, Pool, explore
from pool_stress import stress

SMALL = Pool(((2, 1), (2, 1)), 1)
POOLS = {
    "one worker, three jobs": Pool(((3, 1), (2, 1), (1, 1)), 1),
    "ranges of several units": Pool(((6, 1), (5, 1)), 1, share=4),
    "two workers": Pool(((2, 2), (2, 2)), 2, turns=False),
    "two workers in turns": Pool(((2, 2), (1, 2)), 2),
    "a worker that is not invited": Pool(((1, 2), (1, 1), (2, 2)), 2, turns=False),
}


@pytest.mark.parametrize("name", POOLS)
def test_no_order_of_steps_breaks_the_protocol(name):
    """Each unit once, nobody waits in vain, and nobody for a worker that has taken nothing."""
    assert explore(POOLS[name]) > 2000


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_protocol_is_found(bug):
    """Each deliberate bug breaks a promise in some order of steps."""
    with pytest.raises(Broken):
        explore(replace(SMALL, bug=bug))


@pytest.mark.skipif(sys.platform != "linux", reason="stops processes by signals")
@pytest.mark.parametrize("callers", [1, 3])
def test_no_iteration_is_lost_beside_other_processes(callers):
    """Random calls with spinners that come and go: every iteration of each runs once, in its call."""
    assert stress(20_000, callers, seed=callers) > 20_000
