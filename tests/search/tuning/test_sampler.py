"""The default sampler: it beats random search, its model foretells, it spreads, and any Optuna study can use it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
import synthetic_space as synthetic
from optuna.distributions import BaseDistribution, IntDistribution

from stridesmith.cost_model import features as features_module
from stridesmith.ir.deadline import OutOfTime, has_deadline, until
from stridesmith.ir.target import Target
from stridesmith.search.candidates.evolution import (
    Effort,
    Evaluated,
    Scored,
    crossed,
    distinct,
    evolve,
    mutated,
    one_by_one,
    pick_diverse,
    row_fingerprints,
)
from stridesmith.search.candidates.search_space import Key, SearchSpace
from stridesmith.search.tuning import sampler as sampler_module
from stridesmith.search.tuning.sampler import ModelSampler, _History
from stridesmith.search.tuning.study import Study, Transferred
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload


def tuned(sampler: str, seed: int, trials: int = 64, batch: int = 16) -> tuple[float, Study]:
    """The best latency after `trials`, and the study."""
    study = Study(synthetic.space(), sampler, seed)
    device, best = synthetic.Device(study.space, seed), float("inf")
    for _ in range(trials // batch):
        for candidate in study.ask(batch):
            latency = device(candidate.sketch, candidate.choice)
            study.tell(candidate, latency)
            best = min(best, latency)
    return best, study


def test_it_beats_random_search():
    """Over five seeds and 64 trials the geometric mean of the best latencies is at least a fifth lower."""
    ours = [np.log(tuned("stridesmith", seed)[0]) for seed in range(5)]
    random = [np.log(tuned("random", seed)[0]) for seed in range(5)]
    assert np.exp(np.mean(ours) - np.mean(random)) < 0.8


def test_the_model_foretells_candidates_that_it_has_not_seen():
    """From the third round on the mean rank correlation is clearly positive; rounds say what they were trained on."""
    scores = []
    for seed in range(3):
        metrics = tuned("stridesmith", seed)[1].rank_metrics
        assert [(m.round, m.model) for m in metrics][:2] == [(1, "estimate"), (2, "learned")]
        assert [m.trained_on for m in metrics] == [0, 16, 32, 48]
        assert all(m.measured == 16 for m in metrics)
        scores += [m.spearman for m in metrics[2:]]
    assert np.mean(scores) > 0.2


def test_the_first_batch_spreads_over_sketches_and_decisions():
    """Of twelve sketches at least six are tried at once, and several alternatives of most decisions."""
    study = Study(synthetic.space(12), seed=4)
    batch = study.ask(16)
    assert len({candidate.sketch for candidate in batch}) >= 6
    alternatives = [len({candidate.choice[d] for candidate in batch}) for d in range(9)]
    assert np.mean(alternatives) > 2


def test_a_few_first_candidates_are_looked_for_in_a_smaller_population(monkeypatch: pytest.MonkeyPatch):
    """A third of a batch, a third of the population; once the model has learned, all of it."""
    looked: list[int] = []

    def evolved(space, numbers, evaluate, rng, effort, parents=None):
        looked.append(effort.population * len(numbers))
        return evolve(space, numbers, evaluate, rng, effort, parents)

    monkeypatch.setattr(sampler_module, "evolve", evolved)
    study = Study(synthetic.space(), seed=0, batch=12)
    for candidate in study.ask(4):
        study.tell(candidate, 1.0 + candidate.trial)
    study.ask(4)
    assert looked[0] == pytest.approx(sampler_module.POPULATION / 3, rel=0.01)
    assert looked[1] == pytest.approx(sampler_module.POPULATION, rel=0.01)


def test_a_first_batch_of_one_is_what_the_estimate_likes_best(monkeypatch: pytest.MonkeyPatch):
    """In a short run it may be all that is measured of a task: nothing is left to chance."""
    pools: list[Scored] = []

    def evolved(*arguments):
        pools[:] = evolve(*arguments)
        return pools

    monkeypatch.setattr(sampler_module, "evolve", evolved)
    for seed in range(20):
        (candidate,) = Study(synthetic.space(12), seed=seed).ask(1)
        scores = {
            (pool.sketch, *row): score
            for pool in pools
            for row, score in zip(pool.rows.tolist(), pool.scores, strict=True)
        }
        assert scores[candidate.key] == max(scores.values())


def test_where_no_time_is_left_for_features_the_estimate_has_chosen(monkeypatch: pytest.MonkeyPatch):
    """A deadline that passes after the estimate has looked at a population takes no candidate away."""
    study = Study(synthetic.space(3), seed=0)
    assert study.model is not None
    derived = study.model.features.matrix

    def matrix(number, population):
        if has_deadline():
            raise OutOfTime
        return derived(number, population)

    monkeypatch.setattr(study.model.features, "matrix", matrix)
    assert len({candidate.key for candidate in study.ask(4, deadline=time.monotonic() + 60)}) == 4


def test_single_asks_work_as_well_as_batches():
    """Asked one by one, with an answer in between, it still learns."""
    best, study = tuned("stridesmith", 1, trials=12, batch=1)
    assert best < np.median([tuned("random", seed, trials=12)[0] for seed in range(5)])
    assert [m.model for m in study.rank_metrics][-1] == "learned"


def test_failed_candidates_are_avoided():
    """When everything copied fails, later batches mostly leave it alone."""
    study = Study(synthetic.space(), seed=2)
    device = synthetic.Device(study.space, 2)
    for _ in range(4):
        batch = study.ask(16)
        for candidate in batch:
            broken = candidate.choice[synthetic.LAYOUT] == 1
            latency = None if broken else device(candidate.sketch, candidate.choice)
            study.tell(candidate, latency, "crash" if broken else None)
    assert np.mean([candidate.choice[synthetic.LAYOUT] == 1 for candidate in batch]) < 0.25


def test_only_failures_keep_the_search_going():
    """With nothing measured it goes on with new candidates by the estimate."""
    study = Study(synthetic.space(), seed=2)
    for _ in range(3):
        for candidate in study.ask(8):
            study.tell(candidate, None, "build_error")
    assert len(study.ask(8)) == 8


def test_it_serves_a_plain_optuna_study():
    """As a `BaseSampler` it drives `study.optimize` on the same parameters."""
    space = synthetic.space()
    search_space, device = SearchSpace(space), synthetic.Device(space)
    study = optuna.create_study(sampler=ModelSampler(search_space, space.target, seed=1, batch=8))

    def objective(trial: optuna.Trial) -> float:
        number = trial.suggest_int("sketch", 0, 2)
        sizes = [len(d.labels) for d in space.sketches[number].decisions]
        choice = [trial.suggest_int(n, 0, s - 1) for n, s in zip(search_space.names[number], sizes, strict=True)]
        assert search_space.possible((number, *choice))
        return device(number, choice)

    study.optimize(objective, n_trials=24)
    assert len({tuple(t.params.items()) for t in study.trials}) == 24


def test_mutation_and_crossover_stay_in_the_space():
    """Mutants change one to three decisions to other allowed alternatives; pinned ones never; children mix parents."""
    search_space = SearchSpace(synthetic.space(), {"layout:i1": "copy"})
    rng = np.random.default_rng(0)
    rows = search_space.draw(rng, 0, 500)
    changed = mutated(search_space, 0, rows, rng)
    assert (changed[:, synthetic.LAYOUT] == 1).all()
    assert ((changed != rows).sum(axis=1) <= 3).all() and (changed != rows).any(axis=1).mean() > 0.5
    limits = np.array([len(d.labels) for d in synthetic.sketch().decisions])
    assert ((changed >= 0) & (changed < limits)).all()
    children = crossed(rows, changed, rng)
    assert ((children == rows) | (children == changed)).all()


def test_evolution_finds_the_best_of_a_large_space():
    """A score with one optimum among 69 120 candidates is maximized exactly; pins and mask are kept."""
    search_space = SearchSpace(synthetic.space())
    goal = search_space.draw(np.random.default_rng(3), 0, 1)[0]

    def evaluate(_, rows):
        scores = -np.abs(rows - goal).sum(axis=1).astype(float)
        return Evaluated(np.arange(len(rows)), scores, row_fingerprints(rows.astype(np.float32)))

    (pool,) = evolve(search_space, [0], one_by_one(evaluate), np.random.default_rng(1), Effort(512, 6))
    assert pool.rows[0].tolist() == goal.tolist()
    assert search_space.keep(0, pool.rows).all()
    assert (np.diff(pool.scores) <= 0).all()
    assert len(np.unique(pool.rows, axis=0)) == len(pool.rows)


def test_no_candidate_is_looked_at_twice():
    """Children that an earlier generation had are known already."""
    search_space = SearchSpace(synthetic.space())
    looked: list[bytes] = []

    def evaluate(_, rows):
        looked.extend(row.tobytes() for row in np.ascontiguousarray(rows))
        return Evaluated(np.arange(len(rows)), rows.sum(axis=1).astype(float), row_fingerprints(rows.astype("f")))

    evolve(search_space, [0], one_by_one(evaluate), np.random.default_rng(1), Effort(512, 6))
    assert len(set(looked)) == len(looked) > 1024


def test_candidates_that_were_drawn_beyond_are_not_lost(monkeypatch: pytest.MonkeyPatch):
    """They serve the next draws, each once."""
    search_space, rng, begun = SearchSpace(synthetic.space()), np.random.default_rng(0), list[int]()
    draw_some = synthetic.Sketch.draw_some

    def noted(sketch, rng, count, allowed=None):
        begun.append(count)
        return draw_some(sketch, rng, count, allowed)

    monkeypatch.setattr(synthetic.Sketch, "draw_some", noted)
    drawn = np.concatenate([search_space.draw(rng, 0, 150) for _ in range(2)])
    assert begun == [150] and len(drawn) == 300 and search_space.keep(0, drawn).all()
    assert len(np.unique(drawn, axis=0)) > 290


def test_aliases_take_one_place():
    """Candidates whose decisions come out as the same program are one candidate of a population."""
    search_space = SearchSpace(synthetic.space())

    def evaluate(_, rows):
        table = np.delete(rows, synthetic.EDGE0, axis=1).astype(np.float32)
        positions, fingerprints = distinct(row_fingerprints(table))
        return Evaluated(positions, rows[positions].sum(axis=1).astype(float), fingerprints)

    (pool,) = evolve(search_space, [0], one_by_one(evaluate), np.random.default_rng(1), Effort(512, 2))
    assert len(np.unique(np.delete(pool.rows, synthetic.EDGE0, axis=1), axis=0)) == len(pool.rows) > 256
    assert len(np.unique(pool.fingerprints)) == len(pool.rows)


def test_the_sampler_stays_where_pins_let_it():
    """The best stored candidates are of a sketch that a pin excludes: none of them, or near them, is asked for."""
    before = Study(synthetic.space(), seed=1)
    for candidate in before.ask(16):
        before.tell(candidate, 1.0 + candidate.sketch)
    study = Study(synthetic.space(), seed=2, pins={"sketch": "k2"})
    for trial in before.study.trials:
        study.study.add_trial(trial)
    assert {candidate.sketch for candidate in study.ask(16)} == {2}
    assert "masked" not in {trial.user_attrs.get("kind") for trial in study.study.trials}


def test_latencies_of_different_runs_are_not_compared():
    """What another run measured on a machine half as fast teaches the same order, not that it was worse."""
    study = Study(synthetic.space(), seed=1)
    device = synthetic.Device(study.space, 1)
    batch = study.ask(48)
    alone, both = (Study(synthetic.space(), seed=3) for _ in range(2))
    for number, candidate in enumerate(batch):
        latency = device(candidate.sketch, candidate.choice)
        for other, factor in ((alone, 1.0), (both, 1.0 if number % 2 else 8.0)):
            name = f"{number % 2}" if other is both else "0"
            record = SimpleNamespace(
                id=f"r{number}", sketch=f"k{candidate.sketch}", choice=list(candidate.choice), space_version=1,
                latency_us=latency * factor, failure=None, run=name, stage="trial", imported="",
            )  # fmt: skip
            other.seed_records([record])  # type: ignore[list-item]
    scores = []
    for other in (alone, both):
        asked = other.ask(16)
        scores.append(np.mean([np.log(device(c.sketch, c.choice)) for c in asked]))
    assert abs(scores[0] - scores[1]) < 0.35


def test_lessons_of_another_device_are_scaled_to_this_one():
    """By what candidates that are known of both took, in the median; they teach once something is measured here."""
    space = synthetic.space()
    search_space = SearchSpace(space)
    sampler, device = ModelSampler(search_space, space.target), synthetic.Device(space)
    keys = [(0, *row) for row in search_space.draw(np.random.default_rng(0), 0, 40).tolist()]
    took = {key: device(key[0], key[1:]) for key in keys}
    sampler.learn_from({key: 2.0 * took[key] for key in keys})
    history = _History(search_space, [])
    assert not sampler._train(history)
    assert sampler._scaled_lessons(history) == {}, "nothing says how much slower this device is"
    history.latencies |= {key: took[key] for key in keys[:3]} | dict.fromkeys(keys[3:9], float("inf"))
    history.runs |= dict.fromkeys(keys[:9], "")
    assert sampler._scaled_lessons(history) == pytest.approx(took)
    assert sampler._train(history) and history.best(1, [0])[0] in keys[:3]


def test_a_diverse_pick_prefers_the_unlike_among_equals():
    """Among equal scores the second pick differs in every decision; what is taken is left out."""
    rows = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1]])
    pool = Scored(0, rows, np.zeros(3), np.arange(3, dtype=np.uint64))
    assert pick_diverse([pool], 2, set(), [], weight=1.0) == [(0, 0, 0, 0), (0, 1, 1, 1)]
    assert pick_diverse([pool], 3, {(0, 0, 0, 0)}, [], weight=1.0) == [(0, 0, 0, 1), (0, 1, 1, 1)]


@pytest.mark.parametrize("count", [1, 3, 16])
def test_small_spaces_are_listed(count):
    """A sketch that pins make small is enumerated: all its candidates, once each."""
    search_space = SearchSpace(synthetic.space(1), {"tile:s0": "4", "tile:s0:block": "1", "tile:r0": "1"})
    rows = search_space.draw(np.random.default_rng(0), 0, 10**6)
    assert len(rows) == 5 * 3 * 3 * 2 * 3 * 3
    assert len(search_space.draw(np.random.default_rng(0), 0, count)) == count


def test_later_generations_are_for_the_better_half_of_many_sketches(monkeypatch: pytest.MonkeyPatch):
    """Each sketch is looked at once; the worst are not bred from, and the best one in every generation."""
    monkeypatch.setattr("stridesmith.search.candidates.evolution.FEWEST", 1)
    search_space = SearchSpace(synthetic.space())
    numbers = list(search_space.open)
    looked = dict.fromkeys(numbers, 0)

    def evaluate(number, rows):
        looked[number] += 1
        return Evaluated(np.arange(len(rows)), np.full(len(rows), -float(number)), row_fingerprints(rows.astype("f")))

    pools = evolve(search_space, numbers, one_by_one(evaluate), np.random.default_rng(1), Effort(64, 2))
    assert [pool.sketch for pool in pools] == numbers and len(numbers) > 1
    assert looked[numbers[0]] == 3 and looked[numbers[-1]] == 1


def test_each_number_of_threads_is_tried():
    """Where all measured candidates ran on both threads, the next batch begins with one like the best on one thread."""
    target = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
    space = SearchSpace(generate(workload("matmul", m=16, n=16, k=16).func, target))
    sampler = ModelSampler(space, target)
    study = optuna.create_study(sampler=sampler)
    at = next(n for n, d in enumerate(space.sketches[0].decisions, 1) if d.name.endswith("/threads"))
    rows = space.draw(np.random.default_rng(0), 0, 400)
    keys = [(0, *map(int, row)) for row in rows if row[at - 1] == 0][:16]
    for number, key in enumerate(keys):
        study.add_trial(complete(space, key, 10.0 + number))
    batch = sampler._plan(study.get_trials(), 8)
    alike = [sum(a == b for a, b in zip(batch[0], key, strict=True)) for key in keys]
    assert batch[0][at] == 1 and space.possible(batch[0]) and alike[0] == max(alike) and len(batch) == 8
    study.add_trial(complete(space, batch[0], 20.0))
    assert sampler._untried(_History(space, study.get_trials()), set()) == []


def complete(space: SearchSpace, key: Key, latency: float) -> optuna.trial.FrozenTrial:
    """A finished trial of a candidate."""
    limits = zip(space.names[key[0]], space.limits(key[0]), strict=True)
    found: dict[str, BaseDistribution] = {name: IntDistribution(low, high) for name, (low, high) in limits}
    found["sketch"] = IntDistribution(0, len(space.sketches) - 1)
    return optuna.trial.create_trial(params=space.params(key), distributions=found, value=latency)


class Slow:
    """Features, the n-th look at the clock of which comes so late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.looks = 0

        def look() -> None:
            self.looks += has_deadline()
            if has_deadline() and self.looks > last:
                raise OutOfTime

        monkeypatch.setattr(features_module, "look", look)


def test_a_deadline_leaves_a_part_of_the_sketches_to_search(monkeypatch: pytest.MonkeyPatch):
    """At least one; what is stored of the others teaches nothing, and no candidate of theirs is asked for."""
    for last, known in ((0, 1), (4, 5), (100, 12)):
        Slow(monkeypatch, last)
        with until(time.monotonic() + 60):
            study = Study(synthetic.space(12), seed=3)
        assert study.model is not None and len(study.model.features.known) == known
        assert set(study.search_space.open) == study.model.features.known
        monkeypatch.undo()
        device = synthetic.Device(study.space, 3)
        for _ in range(3):
            for candidate in study.ask(8):
                assert candidate.sketch in study.model.features.known
                study.tell(candidate, device(candidate.sketch, candidate.choice))


def test_a_batch_is_what_evolution_has_come_to_by_its_deadline(monkeypatch: pytest.MonkeyPatch):
    """Whenever that comes: a whole batch of distinct candidates, without a single look at most of the sketches."""
    for last in (0, 1, 3, 10, 40):
        study = Study(synthetic.space(12), seed=3)
        assert study.model is not None
        slow = Slow(monkeypatch, last)
        batch = study.ask(8, deadline=time.monotonic() + 60)
        monkeypatch.undo()
        assert len({candidate.key for candidate in batch}) == 8 and slow.looks <= 2 * last + 40
        for candidate in batch:
            study.tell(candidate, 1.0)


def test_a_deadline_that_has_passed_costs_no_candidate():
    """Also where the model should have been trained."""
    study, device = Study(synthetic.space(), seed=1), synthetic.Device(synthetic.space(), 1)
    for _ in range(3):
        batch = study.ask(6, deadline=time.monotonic() - 1)
        assert len(batch) == 6
        for candidate in batch:
            study.tell(candidate, device(candidate.sketch, candidate.choice))


def test_transfers_that_take_too_long_are_given_up(monkeypatch: pytest.MonkeyPatch):
    """Those that were found by then are asked first."""
    space = synthetic.space()
    known = tuned("stridesmith", 1, 16)[1]
    keys = [known.search_space.key(trial.params) for trial in known.study.get_trials()[:2]]

    def first(_):
        yield keys[0]
        raise OutOfTime

    batch = Study(space, seed=0, transferred=Transferred(first)).ask(4, deadline=time.monotonic() + 60)
    assert [candidate.key for candidate in batch].index(keys[0]) == 0 and len(batch) == 4
