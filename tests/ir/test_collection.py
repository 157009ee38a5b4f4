"""The collector of cycles is paused where programs are made, and what lasts is not walked over afterwards."""

from __future__ import annotations

import gc

from stridesmith.ir.collection import COLLECT_EVERY, lasting, uncollected


class Cycle:
    """Something that only the collector frees."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


def test_the_collector_is_paused_and_goes_on() -> None:
    """Also inside of another such function, and after an error."""
    assert gc.isenabled()
    assert [uncollected(gc.isenabled)(), lasting(gc.isenabled)(), lasting(uncollected(gc.isenabled))()] == [False] * 3
    try:
        lasting(lambda: 1 // 0)()
    except ZeroDivisionError:
        assert gc.isenabled()


def test_what_lasts_is_old_at_once_and_cycles_are_freed_in_the_end() -> None:
    """Young generations are empty after the call; a caller's frozen objects stay frozen."""
    gc.collect()
    kept = lasting(lambda: [[number] for number in range(50_000)])()
    assert gc.get_count()[0] < 1000 and sum(map(len, (gc.get_objects(0), gc.get_objects(1)))) < 10_000 < len(kept)
    lasting(Cycle)()
    assert Cycle.alive == 1
    for _ in range(COLLECT_EVERY):
        lasting(int)()
    assert Cycle.alive == 0
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        lasting(int)()
        assert gc.get_freeze_count() >= frozen - 100
    finally:
        gc.unfreeze()
