"""The default sampler: an Optuna `BaseSampler` that evolves populations and ranks them with a learned model.

Before anything is measured, candidates are ranked by the hand-written estimate and spread over sketches and
decisions.  From then on the ranker is trained on all that the study holds whenever a batch is planned; the
batch mixes the model's best, neighbours of the best measured, and some that chance picks, most of them among the
few hundred that the model likes, which keep it honest where that matters.  A number of threads that no measured
candidate has is tried with the best one: what waking them takes, and what they do meanwhile, no estimate knows well.
All it knows it reads from the study's trials, so it resumes with them, and from lessons of another device.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from ...cost_model.features import FeatureMap
from ...cost_model.metrics import kendall, spearman, top_k_recall
from ...cost_model.model import Ranker
from ...ir.deadline import OutOfTime, until
from ..candidates import estimated
from ..candidates.evolution import (
    Effort,
    Evaluated,
    Scored,
    by_estimate,
    distinct,
    evolve,
    mutated,
    one_by_one,
    pick_diverse,
    possible,
    ranked,
    row_fingerprints,
)
from ..candidates.search_space import RUN, SKETCH, Key, Population, SearchSpace
from ..records.status import KINDS

if TYPE_CHECKING:
    from ...ir.target import Target

KIND = "kind"  # the user attribute of a failed trial that says why
TEACHING = tuple(kind for kind, failure in KINDS.items() if failure.teaches)
RANDOM_SHARE, CHANCE_SHARE, LOCAL_SHARE = 0.04, 0.1, 0.25
MODEL_THREADS = 1  # a round is ranked in a second; on a busy machine OpenMP's waiting threads make that twenty
CURIOSITY = 0.25  # how many standard deviations between the ensembles count as gain
POPULATION, GENERATIONS = 12288, 3
FIRST_OF_POOL = 128  # of a sketch, before anything is measured, that are told apart by their features
FADING = 32  # candidates that have been measured here, from which on what others took elsewhere is no longer needed
LEADERS = 12  # the fastest candidates, whose sketches are looked at in every round


@dataclass(frozen=True)
class RankMetrics:
    """How a model ordered candidates that it had not been trained on; `model` is "estimate" or "learned"."""

    round: int
    model: str
    trained_on: int
    measured: int
    spearman: float
    kendall: float
    top_k_recall: float


@dataclass
class Round:
    """A planned batch: what was predicted for each candidate before it was measured (larger is faster)."""

    number: int
    model: Literal["estimate", "learned"]
    trained_on: int
    predicted: dict[Key, float] = field(default_factory=dict)

    def metrics(self, measured: Mapping[Key, float]) -> RankMetrics:
        """Agreement with the latencies of those candidates of the batch that were measured."""
        keys = [key for key in self.predicted if key in measured]
        guess = [self.predicted[key] for key in keys]
        truth = [-measured[key] for key in keys]
        k = max(1, len(keys) // 4)
        scores = (spearman(guess, truth), kendall(guess, truth), top_k_recall(guess, truth, k))
        return RankMetrics(self.number, self.model, self.trained_on, len(keys), *scores)


class ModelSampler(BaseSampler):
    """Hands out batches of candidates that the model ranks best.

    `batch` is the size of a planned batch where `plan_for` does not say otherwise.  Of a space that is so large that a
    deadline passes while features are derived, a random part of the sketches is searched.
    """

    def __init__(self, search_space: SearchSpace, target: Target, *, seed: int = 0, batch: int = 16) -> None:
        self.search_space, self.seed, self.batch = search_space, seed, batch
        order = np.random.default_rng(seed).permutation(search_space.open).tolist()
        self.features = FeatureMap(search_space.sketches, target, order)
        search_space.keep_open(self.features.known)
        self.ranker = Ranker(self.features.columns, nthread=MODEL_THREADS, seed=seed)
        self.rounds: list[Round] = []
        self._rng = np.random.default_rng(seed)
        self._queue: deque[Key] = deque()
        self._wanted = batch
        self._finished_at_plan = -1
        self._replan = False
        self._learns = True
        self._deadline: float | None = None
        self._exhausted = False
        self._known: dict[Key, tuple[NDArray[np.float32], np.uint64]] = {}
        self._drawn: dict[int, Key] = {}
        self._lessons: Mapping[Key, float] = {}

    def learn_from(self, lessons: Mapping[Key, float]) -> None:
        """Train on what candidates took elsewhere, too, in microseconds, once some have been measured here."""
        self._lessons = lessons

    def plan_for(self, count: int, learn: bool = True, deadline: float | None = None) -> None:
        """The next `count` candidates are asked together: plan them as one batch if anything was learned since.

        Without `learn` the estimate alone ranks them.  They are the best that training and evolution have come to by
        `deadline` (`time.monotonic`).
        """
        self._wanted = max(1, count)
        self._replan, self._learns, self._deadline = True, learn, deadline

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters of the candidate that this trial is going to be; none where somebody else has chosen it."""
        if "fixed_params" in trial.system_attrs:
            return {}
        key = self._next(study)
        if key is None:
            return {}
        self._drawn[trial.number] = key
        limits = self.search_space.limits(key[0])
        space: dict[str, BaseDistribution] = {SKETCH: IntDistribution(0, len(self.search_space.sketches) - 1)}
        for name, (low, high) in zip(self.search_space.names[key[0]], limits, strict=True):
            space[name] = IntDistribution(low, high)
        return space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The candidate's values; nothing when no new candidate was found."""
        key = self._drawn.pop(trial.number, None)
        return {} if key is None else self.search_space.params(key)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value: only where no new candidate was found."""
        assert isinstance(param_distribution, IntDistribution)
        return int(self._rng.integers(param_distribution.low, param_distribution.high + 1))

    def reseed_rng(self) -> None:
        """Nothing to do: one sampler serves one study in one thread."""

    def _next(self, study: optuna.Study) -> Key | None:
        if self._exhausted:
            return None
        trials = study.get_trials(deepcopy=False)
        finished = sum(trial.state.is_finished() for trial in trials)
        stale = self._replan and finished != self._finished_at_plan
        if stale or not self._queue:
            self._queue = deque(self._plan(trials, self._wanted))
            self._finished_at_plan = finished
            self._exhausted = not self._queue
        self._replan = False
        return self._queue.popleft() if self._queue else None

    def _plan(self, trials: list[FrozenTrial], count: int) -> list[Key]:
        """The next batch, in the order in which it is handed out."""
        history = _History(self.search_space, trials)
        with until(self._deadline):
            try:
                learned = self._learns and self._train(history)
            except OutOfTime:
                learned = self.ranker.trained
            pools = self._pools(history, learned, count)
        batch = self._batch(history, pools, count, learned)
        plan = Round(len(self.rounds) + 1, "learned" if learned else "estimate", len(history.latencies))
        for number in sorted({key[0] for key in batch}):
            keys = [key for key in batch if key[0] == number]
            scores = self._scores(self._features(number, keys)[0], curiosity=0.0)
            plan.predicted.update(zip(keys, scores.tolist(), strict=True))
        self.rounds.append(plan)
        return batch

    def _train(self, history: _History) -> bool:
        found = {**self._scaled_lessons(history), **history.latencies}
        latencies = {key: us for key, us in found.items() if key[0] in self.features.known}
        runs_of = history.runs
        if not any(np.isfinite(list(latencies.values()))):
            return False
        blocks, times, runs = [], [], list[str]()
        for number in sorted({key[0] for key in latencies}):
            mine = [key for key in latencies if key[0] == number]
            blocks.append(self._features(number, mine)[0])
            times += [latencies[key] for key in mine]
            runs += [runs_of[key] if key in history.latencies else "" for key in mine]
        self.ranker.fit(np.concatenate(blocks), times, runs)
        return self.ranker.trained

    def _scaled_lessons(self, history: _History) -> dict[Key, float]:
        """The lessons, times the median ratio of what candidates that are known of both took here and there.

        None where there is no such candidate, or where enough has been measured here.  They are of one group with what
        this run measures: groups are compared by their means, and what was measured here is chosen among the best.
        """
        here = {key: us for key, us in history.latencies.items() if np.isfinite(us) and not history.runs[key]}
        ratios = [here[key] / us for key, us in self._lessons.items() if key in here and len(here) < FADING]
        return {key: us * float(np.median(ratios)) for key, us in self._lessons.items()} if ratios else {}

    def _scores(self, matrix: NDArray[np.float32], curiosity: float) -> NDArray[np.float64]:
        """How fast candidates promise to be, from their features; by the estimate alone before the model is trained."""
        mean, spread = self.ranker.predict_spread(matrix)
        return mean + curiosity * spread

    def _pools(self, history: _History, learned: bool, count: int) -> list[Scored]:
        """Per sketch, the best of an evolved population: a few hundred candidates.

        Once the model has learned, most sketches are out of the running: those of the best measured
        candidates are evolved, and one other by turns.  Before that, a few candidates are looked for in a smaller
        population, by the estimate alone, which takes half of the time that features take.
        """
        chosen = self._promising(history) if learned else list(self.search_space.open)
        if self._deadline is not None:
            self._rng.shuffle(chosen)  # of those that there is time for
        if not learned:
            each = max(192, POPULATION * min(count, self.batch) // self.batch // max(1, len(chosen)))
            effort, by = Effort(each, estimated.GENERATIONS, estimated.MARGIN), by_estimate(self.features)
            pools = [pool.head(FIRST_OF_POOL) for pool in evolve(self.search_space, chosen, by, self._rng, effort)]
            with contextlib.suppress(OutOfTime):  # which of them are one program, as far as there is time for it
                for position, pool in enumerate(pools):
                    pools[position] = ranked(pool.sketch, pool.rows, self._evaluate)
            return pools
        effort = Effort(max(192, POPULATION // max(1, len(chosen))), GENERATIONS)
        parents = {n: best for n in chosen if (best := history.best_of(n, 8)) is not None}
        pools = evolve(self.search_space, chosen, one_by_one(self._evaluate), self._rng, effort, parents)
        known = Counter(key[0] for key in history.seen)  # those among the best of a pool are taken out of it later
        return [pool.head(256 + known[pool.sketch]) for pool in pools]

    def _promising(self, history: _History) -> list[int]:
        """The sketches of the fastest dozen, and the next of the others in turn."""
        leading = {key[0] for key in history.best(LEADERS, self.search_space.open)}
        others = [number for number in self.search_space.open if number not in leading]
        return sorted(leading | set(others[len(self.rounds) % len(others) :][:1] if others else ()))

    def _batch(self, history: _History, pools: list[Scored], count: int, learned: bool) -> list[Key]:
        """Mix a batch: in the first one every sketch is wanted, later ones follow the model and the best measured."""
        taken, batch = set(history.seen), list[Key]()
        pools = self._unlike(pools, taken)

        def add(keys: list[Key]) -> None:
            batch.extend(keys)
            taken.update(keys)

        if learned:
            add(self._untried(history, taken)[:count])
            local = self._unlike(self._neighbours(history), taken)
            near = min(self._portion(LOCAL_SHARE, count), count - len(batch))
            add(pick_diverse(local, near, taken, batch, weight=0.2))
            pools = self._unlike(pools, taken)
        else:
            heads = [pool.head(1) for pool in pools]
            # A batch of one may be all that is measured: it is the best.
            add(pick_diverse(heads, max(1, self._portion(0.4, count)), taken, batch, weight=0.0))
        chance = min(self._portion(CHANCE_SHARE, count), count - len(batch))
        spread = 0.6 if learned else 3.0
        rest = max(0, count - len(batch) - chance - self._portion(RANDOM_SHARE, count))
        add(pick_diverse(pools, rest, taken, batch, weight=spread))
        others = [one for pool in pools for row in pool.rows.tolist() if (one := (pool.sketch, *row)) not in taken]
        add([others[position] for position in self._rng.permutation(len(others))[:chance]])
        while len(batch) < count and (key := self.search_space.fresh(self._rng, taken)) is not None:
            add([key])
        return batch

    def _untried(self, history: _History, taken: set[Key]) -> list[Key]:
        """A candidate like the best one for each number of threads on which none of its sketch was measured."""
        found = []
        for number, *choice in history.best(1, self.search_space.open):
            parent = np.asarray([choice], np.int64)
            for at, decision in enumerate(self.search_space.sketches[number].decisions):
                if not decision.name.endswith("/threads"):
                    continue
                tried = {key[1 + at] for key in history.seen if key[0] == number}
                for value in set(range(len(decision))) - tried:
                    near = mutated(self.search_space, number, np.repeat(parent, 256, axis=0), self._rng)
                    rows = np.concatenate([parent, near])
                    rows[:, at] = value
                    pool = ranked(number, possible(self.search_space, number, rows), self._evaluate).head(1)
                    found += [key for row in pool.rows.tolist() if (key := (number, *row)) not in taken]
        return found

    def _unlike(self, pools: list[Scored], taken: set[Key]) -> list[Scored]:
        """The pools without candidates whose program is that of a candidate in `taken`."""
        result = []
        for pool in pools:
            known = [key for key in taken if key[0] == pool.sketch]
            if known:
                same = np.isin(pool.fingerprints, self._features(pool.sketch, known)[1])
                pool = pool.take(np.flatnonzero(~same))
            result.append(pool)
        return result

    def _features(self, number: int, keys: list[Key]) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
        """Features of candidates of a sketch that come again in every round, and what tells their programs apart."""
        new = [key for key in keys if key not in self._known]
        if new:
            matrix = self.features.matrix(number, _rows(new))
            self._known.update(zip(new, zip(matrix, row_fingerprints(matrix), strict=True), strict=True))
        rows, fingerprints = zip(*map(self._known.__getitem__, keys), strict=True)
        return np.stack(rows), np.array(fingerprints, np.uint64)

    def _evaluate(self, number: int, rows: Population) -> Evaluated:
        """One candidate for each program, with its score."""
        matrix = self.features.matrix(number, rows)
        positions, fingerprints = distinct(row_fingerprints(matrix))
        return Evaluated(positions, self._scores(matrix[positions], CURIOSITY), fingerprints)

    def _neighbours(self, history: _History) -> list[Scored]:
        """Candidates one to three changes away from the best measured, ranked."""
        pools = []
        best = history.best(4, self.search_space.open)
        for number in sorted({key[0] for key in best}):
            parents = _rows([key for key in best if key[0] == number])
            rows = mutated(self.search_space, number, np.repeat(parents, 64, axis=0), self._rng)
            pools.append(ranked(number, possible(self.search_space, number, rows), self._evaluate))
        return pools

    def _portion(self, share: float, count: int) -> int:
        """`share * count`, rounded up or down at random so that it holds in the mean for small batches."""
        return int(share * count + self._rng.random())


class _History:
    """What a study's trials tell: latencies (infinite for a failure that may teach), and all that was asked.

    `runs` says in which run a candidate was measured: latencies of different runs are not on one scale.
    """

    def __init__(self, search_space: SearchSpace, trials: list[FrozenTrial]) -> None:
        self.latencies: dict[Key, float] = {}
        self.runs: dict[Key, str] = {}
        self.seen: set[Key] = set()
        for trial in trials:
            key = search_space.key(trial.params)
            if key is None:
                continue
            self.seen.add(key)
            self.runs[key] = str(trial.user_attrs.get(RUN, ""))
            if trial.state == TrialState.COMPLETE and trial.value is not None:
                self.latencies[key] = float(trial.value)
            elif trial.state == TrialState.FAIL and trial.user_attrs.get(KIND) in TEACHING:
                self.latencies.setdefault(key, float("inf"))

    def best(self, count: int, sketches: Collection[int]) -> list[Key]:
        """The fastest measured candidates of some sketches."""
        good = [key for key, latency in self.latencies.items() if np.isfinite(latency) and key[0] in sketches]
        return sorted(good, key=self.latencies.__getitem__)[:count]

    def best_of(self, number: int, count: int) -> Population | None:
        """The fastest measured candidates of one sketch, (N, D); None without any."""
        keys = self.best(count, (number,))
        return _rows(keys) if keys else None


def _rows(keys: list[Key]) -> Population:
    return np.asarray([key[1:] for key in keys], np.int64).reshape(len(keys), -1)
