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

MIN_SAMPLE_SECONDS = 300e-6
WARM_UP_SECONDS = 3e-3
MAX_WARM_UP_CALLS = 4096
MIN_SAMPLES = 3
MAX_SAMPLES = 50
HOPELESS = 3.0
CLOSE = 1.1
COLD_SECONDS = 0.02
MAX_ROUNDS = 400
CERTAIN = 3.0
DRIFT = 3.0
FAR = 1.5
MIN_PAIRS = 5
LONG_SECONDS = 5e-3
COSTLY_SECONDS = 0.03
CHANCES = 4
SUDDEN = 1.15
ATTEMPTS = 3
PAUSE_SECONDS = 0.03


class Timed(Protocol):
    """The part of `executable.Bound` that timing needs."""

    def time(self, calls: int) -> float: ...


@dataclass
class Rival:
    """A kernel with which others take turns, the seconds that are `known` of a call, and how it fared `lately`.

    `lately` is how many times as long as is known it took, as a moving mean over the candidates before.
    """

    bound: Timed
    known: float
    lately: float = 1.0

    @classmethod
    def begun(cls, bound: Timed, known: float) -> Rival:
        """One that was called for some milliseconds, to see how it fares now."""
        now = min(warm_up(bound) for _ in range(MIN_SAMPLES)) / known
        return cls(bound, known, min(max(now, 1 / DRIFT), DRIFT))

    def slowdown(self) -> float:
        """How many times as long as is known it takes now: 1 where it takes no longer, `DRIFT` at most."""
        return min(max(warm_up(self.bound) / self.known, 1.0), DRIFT)


def hopeless(bound: Timed, probe: float, best: float | None, rival: Rival | None = None) -> float | None:
    """Seconds of a call that takes more than `HOPELESS` times `best`; None where it does not.

    `probe` is what one call took, perhaps a cold one: only a long one is believed.  Others have several chances, and
    all have a `rival` that tells by how much the machine is slower than when it took the seconds that are known:
    where threads have to wake up, or lose their core for a while, milliseconds of warm calls were seen to take ten
    times as long as the next ones.
    """
    if best is None or probe <= HOPELESS * best:
        return None
    for _ in range(1 if probe >= COLD_SECONDS else CHANCES):
        if probe < COLD_SECONDS:
            probe = min(probe, warm_up(bound))
        if probe <= HOPELESS * best * (rival.slowdown() if rival else 1.0):
            return None
    return probe


def measure(bound: Timed, probe: float, seconds: float, best: float | None = None) -> list[float]:
    """Samples of seconds per call, taken for about `seconds`.

    `probe` is what one call took, perhaps a cold one.  A candidate that still takes more than
    `HOPELESS` times `best` when it is warm, or longer than `seconds` for a single call, has the
    fastest of these calls as its only sample; one that is not `CLOSE` to the best has `MIN_SAMPLES`.
    """
    probe = min(probe, warm_up(bound))
    if probe > seconds or (best is not None and probe > HOPELESS * best):
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


def in_turns(bound: Timed, probe: float, rival: Rival, seconds: float, best: float) -> list[float]:
    """Samples of `bound` as they would be had `rival` taken the seconds that are known of it all the while.

    The two take turns for about `seconds`; ``sample = time * known / time of rival`` for neighbours in time, so that
    a drift that meets both cancels.  `probe` is what one call of `bound` took, perhaps a cold one; one that takes
    longer than `seconds` is the only sample.  A candidate that is not `CLOSE` to the `best` has `MIN_PAIRS`, fewer
    where they are costly.  One whose median is below the `best` takes turns once more, and only these samples count:
    the winner of many is a lucky one, and when it becomes the rival of others, its luck would be in their times, too.
    """
    probe = min(probe, warm_up(bound))
    if probe > seconds:
        return [probe / rival.slowdown()]
    samples = _steady_samples(bound, probe, rival, seconds, best)
    return samples if statistics.median(samples) >= best else _steady_samples(bound, probe, rival, seconds, best)


def _steady_samples(bound: Timed, probe: float, rival: Rival, seconds: float, best: float) -> list[float]:
    """Relative samples of `bound`, taken while the rival takes about as long as it did `lately`.

    What slows a machine down for a tenth of a second does not slow all kernels alike: one of 1.09 ms was seen to take
    1.5 while the candidate beside it took 1.13 as before, which then seemed to be a quarter faster than it was.  So
    where the rival takes more than `SUDDEN` times as long as lately, the turns are taken again after a pause, unless
    the candidate is far from the best anyway, and what stays slow is believed up to that much; a slow state that lasts
    has its whole weight some candidates later.  Some kernels suffer more than others for as long as such a state lasts:
    where a relative time is below both the `best` and what the candidate took itself, half of the difference counts, in
    logarithms.  A rival that takes more than `DRIFT` times as long as is known, or as little, is no measure: the times
    stay as they are.
    """
    for attempt in range(ATTEMPTS):
        times, rivals = _pairs(bound, probe, rival, seconds, best)
        slowdown, most = statistics.median(rivals) / rival.known, SUDDEN * rival.lately
        if slowdown <= most or min(times) > FAR * best * most:
            break
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE_SECONDS * 2**attempt)
    if not 1 / DRIFT <= slowdown <= DRIFT:
        return times
    rival.lately = (rival.lately + slowdown) / 2
    excess = max(slowdown / most, 1.0)
    relative = (mine * rival.known / yours * excess for mine, yours in zip(times, rivals, strict=True))
    return [_doubted(sample, min(mine, best)) for sample, mine in zip(relative, times, strict=True)]


def _doubted(relative: float, seen: float) -> float:
    """A relative sample; where it is below the seconds `seen`, half as far below by its logarithm."""
    return relative if relative >= seen else math.sqrt(relative * seen)


def _pairs(bound: Timed, probe: float, rival: Rival, seconds: float, best: float) -> tuple[list[float], list[float]]:
    """Turns of the two for about `seconds`: the seconds of a call of each, as many of one as of the other."""
    mine, yours = calls_for(probe, MIN_SAMPLE_SECONDS), calls_for(rival.known, MIN_SAMPLE_SECONDS)
    start = time.monotonic()
    times: list[float] = []
    rivals: list[float] = []
    least = math.inf
    while len(times) < MAX_SAMPLES:
        times.append(_warm(bound, mine, LONG_SECONDS))
        rivals.append(_warm(rival.bound, yours, LONG_SECONDS))
        least = min(least, times[-1] * rival.known / rivals[-1])
        spent = time.monotonic() - start
        if (len(times) >= MIN_SAMPLES and spent > seconds) or (spent > COSTLY_SECONDS and least > FAR * best):
            break
        if len(times) >= MIN_PAIRS and least > CLOSE * best:
            break
    return times, rivals


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
    has, which bring back what the others have driven out of the caches.
    """
    fastest = min(probes, default=0.0)
    slow = [probe * MIN_SAMPLES * len(bounds) > seconds and probe > HOPELESS * fastest for probe in probes]
    samples = [[probe] if out else [] for probe, out in zip(probes, slow, strict=True)]
    racing = [entry for entry, out in enumerate(slow) if not out]
    calls = {entry: calls_for(min(probes[entry], warm_up(bounds[entry])), MIN_SAMPLE_SECONDS) for entry in racing}
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
