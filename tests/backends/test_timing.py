"""How much time is spent on whom."""

from __future__ import annotations

import math
import time

import pytest

from stridesmith.backends.timing import (
    ATTEMPTS,
    DRIFT,
    MAX_SAMPLES,
    MIN_PAIRS,
    MIN_SAMPLE_SECONDS,
    MIN_SAMPLES,
    SUDDEN,
    WARM_UP_SECONDS,
    Control,
    Timed,
    calls_for,
    in_turns,
    interleave,
    leads,
    measure,
    too_slow,
    warm_up,
)


class Clockwork:
    """A kernel that says it takes `seconds` a call, and notes how it is called."""

    def __init__(self, seconds: float, log: list[tuple[float, int]] | None = None) -> None:
        self.seconds, self.log = seconds, [] if log is None else log

    def time(self, calls: int) -> float:
        self.log.append((self.seconds, calls))
        return self.seconds


def test_a_sample_has_enough_calls_to_fill_its_time() -> None:
    """A microsecond kernel is called hundreds of times for a sample, a slow one once."""
    assert calls_for(1e-6, 300e-6) == 300
    assert calls_for(1.0, 300e-6) == 1
    fast = Clockwork(1e-6)
    samples = measure(fast, 1e-6, 0.01)
    assert len(samples) >= MIN_SAMPLES
    assert fast.log[-1][1] * 1e-6 >= MIN_SAMPLE_SECONDS * 0.99


def test_sampling_ends() -> None:
    """A kernel whose clock stands still gets a bounded number of samples."""
    assert len(measure(Clockwork(1e-4), 1e-4, 5.0)) == MAX_SAMPLES


@pytest.mark.parametrize(("probe", "best", "count"), [(1.0, 0.1, 1), (1.0, 0.9, 3), (1.0, None, 3), (60.0, None, 1)])
def test_slow_candidates_get_one_sample(probe: float, best: float | None, count: int) -> None:
    """Far slower than the best, or a single call longer than the budget: once is enough."""
    budget = 2.0
    kernel = Clockwork(probe)
    samples = measure(kernel, probe, budget, best)
    assert len(samples) == 1 if count == 1 else len(samples) >= count


def test_a_slow_first_call_is_given_a_second_chance() -> None:
    """One disturbed probe does not make a fast candidate too_slow."""
    assert len(measure(Clockwork(1e-3), 1.0, 0.01, 1e-3)) >= MIN_SAMPLES


def test_a_cold_first_call_is_no_verdict() -> None:
    """A kernel of 25 us whose threads have to wake up first is timed as the fast one that it is."""

    class Sleepy(Clockwork):
        def time(self, calls: int) -> float:
            self.log.append((self.seconds, calls))
            cold = sum(n for _, n in self.log) < 6
            return 3e-4 if cold else self.seconds

    assert max(measure(Sleepy(25e-6), 4e-4, 0.01, 25e-6)) == 25e-6


class Weather:
    """A machine on which all kernels take so many times as long as at first: by turns of two kernels."""

    def __init__(self, factors: list[float]) -> None:
        self.factors, self.turns = factors, 0

    def kernel(self, seconds: float, last: bool = False) -> Timed:
        slowdown = self

        class Kernel:
            calls = 0

            def time(self, calls: int) -> float:
                self.calls += 1
                now = slowdown.factors[slowdown.turns % len(slowdown.factors)]
                slowdown.turns += last and self.calls % 2 == 0
                return seconds * now

        return Kernel()


def test_a_drift_that_meets_both_cancels() -> None:
    """Whatever the slowdown, a kernel of 4 ms beside a control of 2 ms, known as 2 ms, takes 4 ms."""
    slowdown = Weather([1.0, 1.9, 2.4])
    kernel, control = slowdown.kernel(4e-3), slowdown.kernel(2e-3, last=True)
    samples = in_turns(kernel, 4e-3, Control(control, 2e-3, lately=1.9), 0.005, best=4e-3)
    assert len(samples) == slowdown.turns >= MIN_SAMPLES
    assert samples == pytest.approx([4e-3] * len(samples))


def test_a_control_that_is_not_itself_is_no_measure() -> None:
    """A control that takes 100 times what is known of it leaves the times as they are."""
    assert set(in_turns(Clockwork(2e-3), 2e-3, Control(Clockwork(1e-3), 1e-5), 0.01, best=2e-3)) == {2e-3}


class Disturbed(Clockwork):
    """Takes `factor` times as long while the calls `slow` go on."""

    def __init__(self, seconds: float, factor: float, slow: range) -> None:
        super().__init__(seconds)
        self.factor, self.slow = factor, slow

    def time(self, calls: int) -> float:
        self.log.append((self.seconds, calls))
        return self.seconds * (self.factor if len(self.log) in self.slow else 1.0)


def test_what_slows_the_control_alone_for_a_moment_does_not_make_a_candidate_fast() -> None:
    """The turns are taken again, and none of the first ones counts."""
    disturbed = Disturbed(1e-3, 1.5, range(2 * MAX_SAMPLES))
    control = Control(disturbed, 1e-3)
    assert in_turns(Clockwork(1.1e-3), 1.1e-3, control, 1.0, best=1.08e-3) == pytest.approx([1.1e-3] * MAX_SAMPLES)
    assert len(disturbed.log) == 2 * 2 * MAX_SAMPLES
    assert control.lately == pytest.approx(1.0)


def test_a_slow_state_that_lasts_counts_in_full_some_candidates_later() -> None:
    """All take 1.6 times as long: the first one is corrected by a part of it, after its attempts, the tenth wholly."""
    steady = Clockwork(1.6e-3)
    control = Control(steady, 1e-3)
    found = [in_turns(Clockwork(2.4e-3), 2.4e-3, control, 1.0, best=1.3e-3)[0] for _ in range(10)]
    assert found[0] == pytest.approx(2.4e-3 / SUDDEN)
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(1.5e-3)
    assert len(steady.log) <= 2 * MIN_PAIRS * (ATTEMPTS * 4 + 6)
    assert control.lately < DRIFT


def test_half_of_what_a_slow_control_alone_says_is_believed() -> None:
    """Below the best, or below what the candidate took itself, its ratio to a control that is slower than known counts
    half; candidates keep their order.
    """
    found = []
    for milliseconds, seen in ((1.2, 1.0), (1.1, 1.0), (0.9, 0.9)):
        slow = Control(Clockwork(1.3e-3), 1e-3, lately=1.3)
        samples = in_turns(Clockwork(milliseconds * 1e-3), 1e-3, slow, 1.0, best=1e-3)
        found.append(samples[0] * 1e3)
        assert samples == pytest.approx([math.sqrt(milliseconds / 1.3 * seen) * 1e-3] * len(samples))
    assert found == sorted(found, reverse=True)


def test_a_control_that_was_cold_when_it_was_timed_first_is_a_measure_from_then_on() -> None:
    """It takes three quarters of what is known; a moment in which it takes all of it is a sudden one."""
    disturbed = Disturbed(0.75e-3, 4 / 3, range(40, 60))
    control = Control(disturbed, 1e-3)
    found = [in_turns(Clockwork(1.5e-3), 1.5e-3, control, 1.0, best=1.5e-3)[0] for _ in range(8)]
    assert found == pytest.approx([2e-3] * 8)


def test_only_close_ones_to_the_best_take_turns_for_long() -> None:
    """Slower ones: a few pairs, fewer where a pair takes long, and no pair where one call takes all of the time."""
    control = Control(Clockwork(1e-3), 1e-3)
    assert len(in_turns(Clockwork(5e-3), 5e-3, control, 1.0, best=1e-3)) == MIN_PAIRS
    assert len(in_turns(Clockwork(1.3e-3), 1.3e-3, control, 1.0, best=1e-3)) == MIN_PAIRS
    assert len(in_turns(Clockwork(2e-3), 2e-3, control, 1.0, best=2e-3)) == MAX_SAMPLES
    assert in_turns(Clockwork(2.0), 2.0, control, 1.0, best=1e-3) == [2.0]

    class Long(Clockwork):
        def time(self, calls: int) -> float:
            time.sleep(0.02)
            return self.seconds

    assert len(in_turns(Long(0.02), 0.02, Control(Long(0.01), 0.01), 1.0, best=0.01)) < MIN_PAIRS


def test_a_new_best_is_timed_again_and_its_luck_does_not_count() -> None:
    """Half a millisecond at first, a whole one ever after: a kernel that equals the best so far."""

    class Lucky(Clockwork):
        def time(self, calls: int) -> float:
            self.log.append((self.seconds, calls))
            return self.seconds / (2 if len(self.log) < 2 * MAX_SAMPLES else 1)

    samples = in_turns(Lucky(1e-3), 1e-3, Control(Clockwork(1e-3), 1e-3), 1.0, best=1e-3)
    assert samples == [1e-3] * MAX_SAMPLES
    faster = Clockwork(0.5e-3)
    assert set(in_turns(faster, 0.5e-3, Control(Clockwork(1e-3), 1e-3), 1.0, best=1e-3)) == {0.5e-3}
    assert len(faster.log) >= 4 * MAX_SAMPLES


def test_a_kernel_that_was_was_disturbed_is_not_too_slow() -> None:
    """Milliseconds of slow calls while a thread is elsewhere, or a machine that is slower for all, are no verdict."""

    class Unlucky(Clockwork):
        def time(self, calls: int) -> float:
            self.log.append((self.seconds, calls))
            return self.seconds if len(self.log) > 4 else 2e-3

    assert too_slow(Unlucky(1e-4), 2e-3, 1e-4) is None
    assert too_slow(Clockwork(5e-4), 5e-4, 1e-4) == 5e-4
    assert too_slow(Clockwork(5e-4), 5e-4, 1e-4, Control(Clockwork(2e-4), 1e-4)) is None
    assert too_slow(Clockwork(0.4), 0.4, 0.1, Control(Clockwork(0.2), 0.1)) is None
    assert too_slow(Clockwork(0.4), 0.4, 0.1, Control(Clockwork(0.1), 0.1)) == 0.4


def test_a_race_takes_turns() -> None:
    """Each round measures everyone once and starts with another, until the leader is certain."""
    log: list[tuple[float, int]] = []
    racers = [Clockwork(s, log) for s in (1e-3, 2e-3, 3e-3)]
    samples = interleave(racers, [r.seconds for r in racers], 4, 10.0)
    assert [len(s) for s in samples] == [9, 9, 9]
    turns = [seconds for seconds, _ in log][-2 * 3 * 9 :: 2]
    assert turns[:3] == [1e-3, 2e-3, 3e-3]
    assert turns[3:6] == [2e-3, 3e-3, 1e-3]


def test_what_is_timed_is_warm() -> None:
    """Milliseconds of calls go before the first sample, and in a race as many as a sample has before each."""
    kernel = Clockwork(1e-5)
    samples = measure(kernel, 1e-5, 1e-3)
    timed = kernel.log[-len(samples) :]
    before = sum(seconds * calls for seconds, calls in kernel.log[: -len(samples)])
    assert before >= WARM_UP_SECONDS
    racer = Clockwork(1e-5)
    (raced,) = interleave([racer], [1e-5], 5, 10.0)
    assert racer.log[-2 * len(raced) :] == [(1e-5, 200)] * 10
    (hurried,) = interleave([racer], [1e-5], 5, 1e-3)
    assert racer.log[-2 * len(hurried) :] == [(1e-5, timed[0][1])] * 10


def test_a_race_measures_what_is_in_the_caches_again() -> None:
    """Who is faster by its first calls after another kernel's, and slower ever after, is no leader."""
    turn: list[object] = [None, 0]

    class Refilling:
        """Takes one time for some calls after those of another kernel, and a second one from then on."""

        def __init__(self, cold: float, warm: float) -> None:
            self.cold, self.warm = cold, warm

        def time(self, calls: int) -> float:
            before = turn[1] if turn[0] is self else 0
            assert isinstance(before, int)
            turn[:] = [self, before + calls]
            cold = min(max(3 - before, 0), calls)
            return (cold * self.cold + (calls - cold) * self.warm) / calls

    racers = [Refilling(0.46e-3, 0.48e-3), Refilling(0.47e-3, 0.45e-3)]
    samples = interleave(racers, [r.cold for r in racers], 20, 5.0)
    assert [max(s) for s in samples] == pytest.approx([0.48e-3, 0.45e-3])


def test_warming_up_ends() -> None:
    """A clock that stands still does not warm up for ever, and a slow kernel is called once."""
    still = Clockwork(0.0)
    assert warm_up(still) == 0.0
    assert len(still.log) < 20
    slow = Clockwork(1.0)
    assert warm_up(slow) == 1.0
    assert slow.log == [(1.0, 1)]


def test_a_slow_entry_does_not_use_up_the_race() -> None:
    """The untuned program, thousands of times slower, keeps its probe as its sample."""
    slow, fast = Clockwork(5.0), Clockwork(1e-3)
    samples = interleave([slow, fast], [5.0, 1e-3], 5, 3.0)
    assert samples[0] == [5.0]
    assert len(samples[1]) == 5
    assert slow.log == []


def test_a_race_of_slow_entries_is_still_a_race() -> None:
    """Where everyone is slow everyone gets the least number of samples."""
    samples = interleave([Clockwork(5.0), Clockwork(6.0)], [5.0, 6.0], 5, 0.0)
    assert [len(s) for s in samples] == [MIN_SAMPLES, MIN_SAMPLES]


def test_nobody_races() -> None:
    """Without entries there are no samples."""
    assert interleave([], [], 5, 1.0) == []


def test_a_race_of_equals_ends_with_its_time_and_a_decided_one_before() -> None:
    """Samples are added while the leader may be one by chance; a clear leader needs no more rounds than asked for."""

    class Timepiece(Clockwork):
        """Really passes the time that it says."""

        def time(self, calls: int) -> float:
            time.sleep(1e-4)
            return super().time(calls)

    equals = interleave([Timepiece(1e-3), Timepiece(1e-3)], [1e-3, 1e-3], 20, 0.1)
    assert len(equals[0]) > 20
    decided = interleave([Timepiece(1e-3), Timepiece(2e-3)], [1e-3, 2e-3], 20, 10.0)
    assert [len(s) for s in decided] == [20, 20]
    assert not leads([[1.0, 3.0] * 50, [2.0, 2.0] * 50])


def test_only_close_ones_to_the_best_are_sampled_at_length() -> None:
    """A candidate that is a fifth slower than the best has few samples, an equal has many."""
    assert len(measure(Clockwork(1.2e-3), 1.2e-3, 5.0, 1e-3)) == MIN_SAMPLES
    assert len(measure(Clockwork(1e-3), 1e-3, 5.0, 1e-3)) == MAX_SAMPLES


def test_too_slow_is_said_of_a_long_call_at_once_and_of_a_short_one_when_it_is_warm() -> None:
    """A second is believed without another call; a millisecond may have been a cold one."""
    slow = Clockwork(1.0)
    assert too_slow(slow, 1.0, 0.1) == 1.0
    assert slow.log == []
    assert too_slow(Clockwork(1e-4), 1e-3, 1e-4) is None
    assert too_slow(Clockwork(1e-3), 1e-3, 1e-4) == 1e-3
    assert too_slow(slow, 1.0, None) is None
