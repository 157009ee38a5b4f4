"""The study: candidates from `ask` alone, pins and masks for every sampler, failures, resuming, mirroring."""

from __future__ import annotations

import dataclasses
import gc
import time
import weakref
from dataclasses import dataclass, field

import numpy as np
import optuna
import pytest
import synthetic_space as synthetic

from stridesmith.errors import ToolMissing
from stridesmith.search.tuning import study as study_module
from stridesmith.search.tuning.study import DUPLICATE, MASKED, Study, optuna_storage

SAMPLERS = ("stridesmith", "random", "tpe")


@dataclass
class Stored:
    """What the study reads of a record."""

    id: str
    sketch: str
    choice: list[int] = field(default_factory=list)
    space_version: int = 1
    latency_us: float | None = None
    failure: str | None = None
    run: str = ""
    stage: str = "trial"
    imported: str = ""
    verified: bool = True


def work(study: Study, trials: int, batch: int = 16, device=None) -> list[tuple[int, tuple[int, ...], float]]:
    """Ask and tell until `trials` are measured."""
    device = device or synthetic.Device(study.space)
    done = []  # type: ignore[var-annotated]
    while len(done) < trials:
        batch_of = study.ask(min(batch, trials - len(done)))
        if not batch_of:
            break
        for candidate in batch_of:
            latency = device(candidate.sketch, candidate.choice)
            study.tell(candidate, latency, record=f"r{candidate.trial}")
            done.append((candidate.sketch, candidate.choice, latency))
    return done


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_candidates_are_possible_and_distinct(sampler):
    """No sampler hands out a masked candidate or one twice."""
    study = Study(synthetic.space(), sampler, seed=1)
    done = work(study, 48)
    assert len({(sketch, choice) for sketch, choice, _ in done}) == 48
    for number, choice, _ in done:
        assert study.space.sketches[number].mask(np.array([choice])).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_candidates_are_the_trials_of_the_study(sampler):
    """Each candidate is an Optuna trial whose parameters are integers named by sketch, block and decision."""
    study = Study(synthetic.space(), sampler, seed=2)
    candidate = study.ask(1)[0]
    params = study.study.trials[candidate.trial].params
    assert params["sketch"] == candidate.sketch
    decisions = study.space.sketches[candidate.sketch].decisions
    assert tuple(params[d.name] for d in decisions) == candidate.choice


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_seed_gives_one_sequence(sampler):
    """The same seed and latencies give the same candidates, another seed gives others."""
    runs = [work(Study(synthetic.space(), sampler, seed=seed), 32) for seed in (5, 5, 6)]
    assert [run[:2] for run in runs[0]] == [run[:2] for run in runs[1]]
    assert [run[:2] for run in runs[0]] != [run[:2] for run in runs[2]]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pins_hold_for_every_sampler(sampler):
    """A decision by its tail and label, one by its full name and position, and the sketch."""
    pins = {"layout:i1": "copy", "k1/C/tile:s1": "#2", "sketch": "k1"}
    for number, choice, _ in work(Study(synthetic.space(), sampler, seed=3, pins=pins), 24):
        assert (number, choice[synthetic.LAYOUT], choice[synthetic.LANE]) == (1, 1, 2)


def test_a_pin_leaves_out_sketches_that_cannot_follow():
    """Two of three sketches have the decision, one of those has the label: the search stays in it."""
    first, second, third = (sketch.main for sketch in synthetic.space().sketches)
    unplaced = {what: found for what, found in second.numbers.items() if what != "place"}
    second = dataclasses.replace(second, decisions=second.decisions[:-1], numbers=unplaced)
    place = synthetic.flags("k2/C/place:i1", "place", ("inline", "root"))
    third = dataclasses.replace(third, decisions=(*third.decisions[:-1], place))
    sketches = tuple(synthetic.Sketch(f"k{n}", (part,)) for n, part in enumerate((first, second, third)))
    study = Study(synthetic.Space(sketches), "random", pins={"C/place:i1": "inner"})
    assert {number for number, _, _ in work(study, 8)} == {0}


@pytest.mark.parametrize(
    ("pins", "sentence"),
    [
        ({"layuot:i1": "copy"}, "`layuot:i1=copy` names no decision of this space; near it: layout:i1"),
        ({"layout:i1": "wide"}, "`layout:i1=wide` names no alternative; there are: identity, copy, tiled:d1"),
        ({"sketch": "k9"}, "`sketch=k9` names no alternative; there are: k0, k1, k2"),
        ({"layout:i1": "1"}, "`layout:i1=1` names no alternative; there are: identity, copy, tiled:d1"),
        ({"layout:i1": "#3"}, "`layout:i1=#3` names no alternative"),
        ({"sketch": "k1", "k0/C/tile:s0": "4"}, "no sketch can follow all of the pins"),
    ],
)
def test_pins_that_leave_nothing_are_refused(pins, sentence):
    """The sentence says which pin failed and what there is."""
    with pytest.raises(ValueError) as error:
        Study(synthetic.space(), pins=pins)
    assert sentence in str(error.value)


def test_an_unknown_sampler_is_refused_with_the_nearest():
    """`rando` is a slip of `random`."""
    with pytest.raises(ValueError, match="unknown sampler `rando`; did you mean `random`"):
        Study(synthetic.space(), "rando")


def test_a_sampler_without_its_packages_is_told(monkeypatch):
    """What to install, before anything is started."""
    monkeypatch.setitem(study_module.NEEDED, "qmc", ("nosuchpackage", "sys"))
    with pytest.raises(ToolMissing, match="the sampler 'qmc' needs nosuchpackage: pip install nosuchpackage"):
        Study(synthetic.space(), "qmc")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_exhausted_space_ends_the_search(sampler):
    """Of a pinned space with nine possible candidates each is handed out once, and then no more."""
    pins = dict.fromkeys(("tile:s0", "tile:s0:block", "tile:r0", "boundary:s0", "order"), "#0") | {"sketch": "k0"}
    study = Study(synthetic.space(), sampler, pins=pins | {"boundary:s1": "peel", "tile:s1": "1x8"})
    possible = 3 * 3  # layouts and places
    assert len(work(study, 100)) == possible
    assert study.ask(4) == []


def test_failures_are_failed_trials_with_their_kind():
    """A crash is told as a failed trial; the candidate is closed."""
    study = Study(synthetic.space(), "random")
    candidate = study.ask(1)[0]
    study.tell(candidate, None, "crash")
    trial = study.study.trials[candidate.trial]
    assert trial.state == optuna.trial.TrialState.FAIL
    assert trial.user_attrs["kind"] == "crash"
    with pytest.raises(ValueError, match="is not open"):
        study.tell(candidate, 1.0)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_is_impossible_or_known_is_a_failed_trial(sampler):
    """No sampler learns from those: a known good candidate told as a bad one would turn it away from what is good."""
    study = Study(synthetic.space(), sampler, seed=1)
    work(study, 60)
    refused = [trial for trial in study.study.trials if trial.user_attrs.get("kind") in (MASKED, DUPLICATE)]
    assert {trial.state for trial in refused} == {optuna.trial.TrialState.FAIL}


def test_tell_wants_a_latency_or_a_failure():
    """Neither, and both, are refused."""
    study = Study(synthetic.space(), "random")
    candidate = study.ask(1)[0]
    with pytest.raises(ValueError, match="exactly one of latency and failure"):
        study.tell(candidate, None)
    with pytest.raises(ValueError, match="exactly one of latency and failure"):
        study.tell(candidate, 1.0, "crash")


def test_stored_records_teach_and_are_not_asked_again():
    """A study rebuilt from records holds their trials, refuses misfits, and goes on with new candidates."""
    before = work(Study(synthetic.space(), seed=1), 32)
    records = [Stored(f"r{n}", f"k{sketch}", list(choice), 1, lat) for n, (sketch, choice, lat) in enumerate(before)]
    records += [
        Stored("old", "k0", [0] * 9, 0, 1.0),
        Stored("other", "k7", [0] * 9, 1, 1.0),
        Stored("short", "k0", [0] * 3, 1, 1.0),
        Stored("high", "k0", [99] * 9, 1, 1.0),
        Stored("lost", "k0", [0] * 9, 1, None, "infrastructure"),
        Stored("crashed", "k0", [1] * 9, 1, None, "crash"),
        Stored("told", "k0", [2] * 9, 1, 0.001, imported="x.jsonl", verified=False),
    ]
    study = Study(synthetic.space(), seed=9)
    assert study.seed_records(records) == 33
    assert study.study.best_value == min(latency for _, _, latency in before)
    known = {(sketch, choice) for sketch, choice, _ in before} | {(0, (1,) * 9)}
    asked = study.ask(16)
    assert not known & {(candidate.sketch, candidate.choice) for candidate in asked}
    for candidate in asked:
        study.tell(candidate, 1.0 + candidate.trial)
    assert [m.model for m in study.rank_metrics] == ["learned"]
    assert study.rank_metrics[0].trained_on == 33


@pytest.mark.parametrize("place", ["sqlite:///{}/mirror.db", "{}/mirror.log"])
def test_load_study_returns_every_measured_trial(tmp_path, place):
    """The mirror, tables or a journal, holds whole trials, gains only new ones, and is completed after a resume."""
    url = place.format(tmp_path)
    study = Study(synthetic.space(), "stridesmith", seed=1)
    first = work(study, 16)
    assert study.mirror(url, "conv", time.monotonic()) == 0, "no time is left"
    assert study.mirror(url, "conv") == 16
    first += work(study, 16)
    failed = study.ask(1)[0]
    study.tell(failed, None, "wrong")
    assert study.mirror(url, "conv") == 17
    records = [Stored(f"r{n}", f"k{s}", list(choice), 1, lat) for n, (s, choice, lat) in enumerate(first)]
    resumed = Study(synthetic.space(), seed=2)
    resumed.seed_records([*records, Stored("late", "k0", [1] * 9, 1, 77.0)])  # type: ignore[list-item]
    assert resumed.mirror(url, "conv") == 1
    loaded = optuna.load_study(study_name="conv", storage=optuna_storage(url))
    complete = [t for t in loaded.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert sorted(t.value or 0.0 for t in complete) == sorted([latency for _, _, latency in first] + [77.0])
    assert [t.user_attrs["kind"] for t in loaded.trials if t.state == optuna.trial.TrialState.FAIL] == ["wrong"]


def test_studies_of_one_journal_read_it_once(tmp_path):
    """However many tasks are tuned together, what they write is read by one storage, which ends with them."""
    place = str(tmp_path / "mirror.log")
    studies = [Study(synthetic.space(), seed=seed) for seed in range(3)]
    for number, study in enumerate(studies):
        work(study, 4)
        assert study.mirror(place, f"task {number}") == 4
    storage = optuna_storage(place)
    assert optuna_storage(place) is storage
    assert len(storage.get_all_studies()) == 3
    seen = weakref.ref(storage)
    del storage, studies, study
    gc.collect()
    assert seen() is None


def test_the_study_is_silent(capsys):
    """Asking and telling prints nothing."""
    work(Study(synthetic.space(), "tpe"), 16)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
