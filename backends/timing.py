"""How long a call takes.

A sample is the mean of as many back-to-back calls as fill `MIN_SAMPLE_SECONDS`;
buffers are warm, dispatch is included, but for a device that times kernels by a clock
of its own, and Python is not.  All times are seconds.

Calls before the first sample warm up: after a pause of a tenth of a second a kernel of 25 us
was seen to take 300, then 100, and 60 for another millisecond, while its threads wake up, the
clock rises and its buffers come back to the caches.

What a shared cache or memory delivers changes within seconds where machines have neighbours: one kernel was seen
to take 580 and 1,370 us within a minute, while the ratio of two kernels that took turns stayed within 5 %.  So a
candidate is timed in turns with a good one (`in_turns`), and a race takes turns between all (`interleave`).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# A number that was measured for names what was seen; the others are choices between time and certainty, and say so.
# `tests/backends/test_timing.py` tests what follows from them with kernels whose times drift, jump and lie.
MIN_SAMPLE_SECONDS = 300e-6
"""Of a sample, a choice: long beside the microsecond of a dispatch, short beside the seconds of a run."""
WARM_UP_SECONDS = 3e-3
"""Of calls before the first sample: twice what a kernel was seen to need after a pause (above)."""
MAX_WARM_UP_CALLS = 4096
"""Of one warm-up, so that a kernel of less than a microsecond ends it too."""
TURN_SECONDS = 4e-3
"""Of one turn in a race, at most, half of them before the sample: after one call in the place of 2 ms of them, a kernel
that streams 9 MB of weights seven times was seen to be as fast as one, within 0.4 %, that is faster by 7 % back to
back, since both read weights which the others had driven out."""
MIN_SAMPLES = 3
"""Of any candidate: the least of which the median leaves out one that was disturbed."""
MAX_SAMPLES = 50
"""Of any candidate, a choice: the median's error falls by the root of their number only."""
TOO_SLOW = 3.0
"""Times the best, from which on a candidate is not sampled: as much as `DRIFT` allows a machine to be slower."""
CLOSE = 1.1
"""Times the best, up to which more samples are taken: twice the 5 % by which ratios in turns were seen to err."""
COLD_SECONDS = 0.02
"""Of a first call that is believed as it is, a choice: waking threads and cold caches cost milliseconds."""
MAX_ROUNDS = 400
"""Of a race without a certain leader, a choice: among equals it does not matter who leads."""
CERTAIN = 3.0
"""Standard deviations by which a leader has won more rounds than chance gives, a choice: 1 in 370 for one look."""
DRIFT = 3.0
"""Times what is known, up to which a control tells of the machine: 2.4 was seen within a minute (above)."""
FAR = 1.5
"""Times the best, from which on a candidate cannot be it: more than `SUDDEN` and `CLOSE` together make of a time."""
MIN_PAIRS = 5
"""Turns of a candidate that is not `CLOSE`: two that were disturbed leave a median of those that were not."""
LONG_SECONDS = 5e-3
"""Of calls that count without others before them, a choice: what refilling a cache takes is little beside it."""
COSTLY_SECONDS = 0.03
"""Of turns with a candidate that is `FAR` from the best, a choice."""
CHANCES = 4
"""Warm-ups after which a slow candidate is believed to be slow, a choice: each may meet a disturbance."""
SUDDEN = 1.15
"""Times what a control took lately, from which on its machine is disturbed.

Between the 5 % by which ratios in turns were seen to err and the 38 % of a moment that misled (`_steady_samples`).
"""
ATTEMPTS = 3
"""Times that disturbed turns are taken, a choice."""
PAUSE_SECONDS = 0.03
"""Before the second attempt, twice as long before the third: together as long as such moments were seen to last."""


class Timed(Protocol):
    """The part of `executable.Bound` that timing needs."""

    def time(self, calls: int) -> float: ...


@dataclass
class Control:
    """A kernel with which others take turns, the seconds that are `known` of a call, and how it fared `lately`.

    `lately` is how many times as long as is known it took, as a moving mean over the candidates before.
    """

    bound: Timed
    known: float
    lately: float = 1.0

    @classmethod
    def begun(cls, bound: Timed, known: float) -> Control:
        """A control after calls for some milliseconds, which tell how it fares now."""
        now = min(warm_up(bound) for _ in range(MIN_SAMPLES)) / known
        return cls(bound, known, min(max(now, 1 / DRIFT), DRIFT))

    def slowdown(self) -> float:
        """How many times as long as is known it takes now: 1 where it takes no longer, `DRIFT` at most."""
        return min(max(warm_up(self.bound) / self.known, 1.0), DRIFT)


def too_slow(bound: Timed, probe: float, best: float | None, control: Control | None = None) -> float | None:
    """Seconds of a call that takes more than `TOO_SLOW` times `best`; None where it does not.

    `probe` is what one call took, perhaps a cold one: only a long one is believed.  Others have several chances, and
    all have a `control` that tells by how much the machine is slower than when it took the seconds that are known:
    where threads have to wake up, or lose their core for a while, milliseconds of warm calls were seen to take ten
    times as long as the next ones.
    """
    if best is None or probe <= TOO_SLOW * best:
        return None
    for _ in range(1 if probe >= COLD_SECONDS else CHANCES):
        if probe < COLD_SECONDS:
            probe = min(probe, warm_up(bound))
        if probe <= TOO_SLOW * best * (control.slowdown() if control else 1.0):
            return None
    return probe


def measure(bound: Timed, probe: float, seconds: float, best: float | None = None) -> list[float]:
    """Samples of seconds per call, taken for about `seconds`.

    `probe` is what one call took, perhaps a cold one.  A candidate that still takes more than
    `TOO_SLOW` times `best` when it is warm, or longer than `seconds` for a single call, has the
    fastest of these calls as its only sample; one that is not `CLOSE` to the best has `MIN_SAMPLES`.
    """
    probe = min(probe, warm_up(bound))
    if probe > seconds or (best is not None and probe > TOO_SLOW * best):
        return [probe]
    calls = calls_for(probe, MIN_SAMPLE_SECONDS)
    deadline = time.monotonic() + seconds
    slowest = math.inf if best is None else CLOSE * best
    samples: list[float] = []
    while len(samples) < MIN_SAMPLES or (
        len(samples) < MAX_SAMPLES and time.monotonic() < deadline and min(samples) <= slowest
    ):
        samples.append(bound.time(calls))
    return samples


def in_turns(bound: Timed, probe: float, control: Control, seconds: float, best: float) -> list[float]:
    """Samples of `bound` as they would be had `control` taken the seconds that are known of it all the while.

    The two take turns for about `seconds`; ``sample = time * known / time of control`` for neighbours in time, so that
    a drift that meets both cancels.  `probe` is what one call of `bound` took, perhaps a cold one; one that takes
    longer than `seconds` is the only sample.  A candidate that is not `CLOSE` to the `best` has `MIN_PAIRS`, fewer
    where they are costly.  One whose median is below the `best` takes turns once more, and only these samples count:
    the fastest of many has been lucky, and as the control of others it would pass its luck on to their times.
    """
    probe = min(probe, warm_up(bound))
    if probe > seconds:
        return [probe / control.slowdown()]
    samples = _steady_samples(bound, probe, control, seconds, best)
    return samples if statistics.median(samples) >= best else _steady_samples(bound, probe, control, seconds, best)


def _steady_samples(bound: Timed, probe: float, control: Control, seconds: float, best: float) -> list[float]:
    """Relative samples of `bound`, taken while the control takes about as long as it did `lately`.

    What slows a machine down for a tenth of a second does not slow all kernels alike: one of 1.09 ms was seen to take
    1.5 while the candidate beside it took 1.13 as before, which then seemed to be a quarter faster than it was.  So
    where the control takes more than `SUDDEN` times as long as lately, the turns are taken again after a pause, unless
    the candidate is far from the best anyway, and what stays slow is believed up to that much; a slow state that lasts
    has its whole weight some candidates later.  Some kernels suffer more than others for as long as such a state lasts:
    where a relative time is below both the `best` and what the candidate took itself, half of the difference counts, in
    logarithms.  A control that takes more than `DRIFT` times as long as is known, or as little, is no measure: the
    times stay as they are.
    """
    for attempt in range(ATTEMPTS):
        times, controls = _pairs(bound, probe, control, seconds, best)
        slowdown, most = statistics.median(controls) / control.known, SUDDEN * control.lately
        if slowdown <= most or min(times) > FAR * best * most:
            break
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE_SECONDS * 2**attempt)
    if not 1 / DRIFT <= slowdown <= DRIFT:
        return times
    control.lately = (control.lately + slowdown) / 2
    excess = max(slowdown / most, 1.0)
    relative = (mine * control.known / yours * excess for mine, yours in zip(times, controls, strict=True))
    return [_half_believed(sample, min(mine, best)) for sample, mine in zip(relative, times, strict=True)]


def _half_believed(relative: float, seen: float) -> float:
    """A relative sample; where it is below the seconds `seen`, half as far below by its logarithm."""
    return relative if relative >= seen else math.sqrt(relative * seen)


def _pairs(
    bound: Timed, probe: float, control: Control, seconds: float, best: float
) -> tuple[list[float], list[float]]:
    """Turns of the two for about `seconds`: the seconds of a call of each, as many of one as of the other."""
    mine, yours = calls_for(probe, MIN_SAMPLE_SECONDS), calls_for(control.known, MIN_SAMPLE_SECONDS)
    start = time.monotonic()
    times: list[float] = []
    controls: list[float] = []
    least = math.inf
    while len(times) < MAX_SAMPLES:
        times.append(_warm(bound, mine, LONG_SECONDS))
        controls.append(_warm(control.bound, yours, LONG_SECONDS))
        least = min(least, times[-1] * control.known / controls[-1])
        spent = time.monotonic() - start
        if (len(times) >= MIN_SAMPLES and spent > seconds) or (spent > COSTLY_SECONDS and least > FAR * best):
            break
        if len(times) >= MIN_PAIRS and least > CLOSE * best:
            break
    return times, controls


def _warm(bound: Timed, calls: int, long: float = math.inf) -> float:
    """Seconds per call, after as many calls that bring back what another kernel has driven out of the caches.

    Calls that take `long` seconds count themselves: what they find in the caches makes little difference.
    """
    first = bound.time(calls)
    return first if first * calls >= long else bound.time(calls)


def interleave(bounds: Sequence[Timed], probes: Sequence[float], rounds: int, seconds: float) -> list[list[float]]:
    """Samples of each of `bounds`, taken in turns, so that slow drifts of the machine meet all alike.

    `probes` are what one call of each took; one that would use up more than its
    share of the time with `MIN_SAMPLES` calls has its probe as its only sample.
    Ends after `rounds` when the leader is certain, in any case after `seconds` once each other has
    `MIN_SAMPLES`.  Every round starts with another entry, and each turn with as many calls as a sample
    has, which bring back what the others have driven out of the caches; a turn takes `TURN_SECONDS`, or as much less as
    leaves time for all `rounds`.
    """
    fastest = min(probes, default=0.0)
    slow = [probe * MIN_SAMPLES * len(bounds) > seconds and probe > TOO_SLOW * fastest for probe in probes]
    samples = [[probe] if out else [] for probe, out in zip(probes, slow, strict=True)]
    racing = [entry for entry, out in enumerate(slow) if not out]
    turn_seconds = min(TURN_SECONDS, seconds / max(1, rounds * len(racing)))
    sample_seconds = max(MIN_SAMPLE_SECONDS, turn_seconds / 2)
    calls = {entry: calls_for(min(probes[entry], warm_up(bounds[entry])), sample_seconds) for entry in racing}
    deadline = time.monotonic() + seconds
    for turn in range(MAX_ROUNDS):
        if turn >= MIN_SAMPLES and time.monotonic() > deadline:
            break
        if turn >= rounds and leads([samples[entry] for entry in racing]):
            break
        for step in range(len(racing)):
            entry = racing[(turn + step) % len(racing)]
            samples[entry].append(_warm(bounds[entry], calls[entry]))
    return samples


def leads(samples: Sequence[Sequence[float]]) -> bool:
    """Whether the entry with the least median was faster than each other in so many rounds that it is no chance.

    Of n rounds between two equals one wins ``n / 2`` with a standard deviation of ``sqrt(n) / 2``; three of
    them count.  `samples` has one of each round for each entry.
    """
    if len(samples) < 2:
        return True
    order = sorted(range(len(samples)), key=lambda entry: statistics.median(samples[entry]))
    leader, rounds = samples[order[0]], len(samples[0])
    wins = (sum(mine < yours for mine, yours in zip(leader, samples[other], strict=True)) for other in order[1:])
    return all(won >= rounds / 2 + CERTAIN * math.sqrt(rounds) / 2 for won in wins)


def warm_up(bound: Timed) -> float:
    """Seconds per call at the end of `WARM_UP_SECONDS` of calls, or of one call that takes longer."""
    last = bound.time(1)
    spent, calls = last, 1
    while spent < WARM_UP_SECONDS and calls < MAX_WARM_UP_CALLS:
        calls *= 2
        last = bound.time(calls)
        spent += last * calls
    return last


def calls_for(seconds_per_call: float, sample_seconds: float) -> int:
    """How many calls fill a sample, at least 1."""
    return max(1, math.ceil(sample_seconds / max(seconds_per_call, 1e-9)))
