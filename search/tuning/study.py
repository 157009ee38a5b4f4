"""The tuner's Optuna study: candidates come only from `study.ask`, whatever the sampler.

The study lives in memory and minimizes the latency in microseconds.  A trial has the integer parameters
`sketch` and `<sketch>/<block>/<decision>`; failures are failed trials whose user attribute `kind` says why.
What a sampler proposes that is impossible or known already is told as failed and asked again, so that any
Optuna sampler works: what is left of its proposals is its distribution among the candidates that there are.
`mirror` copies whole trials to an Optuna storage for its plots and dashboards.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ...errors import ToolMissing
from ...ir.deadline import OutOfTime, until
from ..candidates.search_space import RUN, SKETCH, Candidate, Key, SearchSpace
from ..records.record import Foretold
from ..records.status import tells_nothing

if TYPE_CHECKING:
    import optuna

    from ...space.design.space import Space
    from ..records.record import Record
    from .sampler import ModelSampler, RankMetrics

DEFAULT = "stridesmith"
SAMPLERS: dict[str, str] = {
    DEFAULT: "",
    "random": "RandomSampler",
    "tpe": "TPESampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
}
NEEDED = {"cmaes": ("cmaes",), "gp": ("scipy", "torch")}
"""Packages that samplers need and Optuna does not install."""
# What one decision is worth depends on the others of its sketch, and on no decision of another one.
OPTIONS: dict[str, dict[str, bool]] = {"tpe": {"multivariate": True, "group": True}}
ATTEMPTS = 8  # proposals that may be impossible or known before a random new candidate takes their place
MASKED, DUPLICATE = "masked", "duplicate"
LOCK_SECONDS = 5  # that a journal may be locked without a change


def check_packages(sampler: str) -> None:
    """Raises ToolMissing where a sampler needs packages that are not installed."""
    missing = [name for name in NEEDED.get(sampler, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise ToolMissing(f"the sampler {sampler!r} needs {' and '.join(missing)}: pip install {' '.join(missing)}")


class Transferred(NamedTuple):
    """What is known of a program from others and from other devices.

    `first` gives candidates that are asked before all others where nothing is stored, `lessons` what candidates took
    on another device that is much like the one of the study, in microseconds.
    """

    first: Callable[[SearchSpace], Iterable[Key]] | None = None
    lessons: Callable[[SearchSpace], Mapping[Key, float]] | None = None


NOTHING = Transferred()


class Study:
    """Ask for candidates, tell what became of them.

    `sampler` is one of `SAMPLERS`; `pins` fix decisions (see `SearchSpace`) for every sampler alike.
    Raises ValueError for an unknown sampler and for pins that leave nothing, ToolMissing for a sampler whose packages
    are not installed.
    """

    def __init__(
        self,
        space: Space,
        sampler: str = DEFAULT,
        seed: int = 0,
        *,
        pins: Mapping[str, str] | None = None,
        batch: int = 16,
        transferred: Transferred = NOTHING,
    ) -> None:
        with (
            warnings.catch_warnings()
        ):  # tqdm, which it imports, misses ipywidgets in notebooks; nothing here uses them
            warnings.filterwarnings("ignore", message="IProgress not found")
            import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.search_space = SearchSpace(space, pins)
        self.sampler_name = sampler
        self.model: ModelSampler | None = None
        self.study = optuna.create_study(
            direction="minimize", sampler=self._sampler(sampler, seed, batch), study_name="stridesmith"
        )
        self.seeded = 0  # stored measurements that it began with
        self._rng = np.random.default_rng([seed, 1])
        self._seen: set[Key] = set()
        self._transferred, self._waiting = transferred, list[Key]()
        self._open: dict[int, tuple[optuna.Trial, Candidate]] = {}
        self._latencies: dict[Key, float] = {}
        self._mirrors: dict[tuple[str, str], _Mirror] = {}

    def ask(self, count: int, learn: bool = True, deadline: float | None = None) -> list[Candidate]:
        """Up to `count` new, possible, distinct candidates; fewer only when the space is exhausted.

        Without `learn` the default sampler chooses by its estimate alone: what has been measured is too little yet.
        By `deadline` (`time.monotonic`) it has chosen.
        """
        with until(deadline):
            found = self._ask_first(count)
        if self.model is not None:
            self.model.plan_for(count - len(found), learn, deadline)
        while len(found) < count and (candidate := self._ask_one()) is not None:
            found.append(candidate)
        return found

    def tell(
        self, candidate: Candidate, latency_us: float | None, failure: str | None = None, record: str | None = None
    ) -> None:
        """Close a candidate's trial with its latency in microseconds, or with the kind of its failure.

        `record` is the id under which the measurement is stored.  Raises ValueError for a candidate that is
        not open, or unless exactly one of latency and failure is given.
        """
        if candidate.trial not in self._open:
            raise ValueError(f"trial {candidate.trial} is not open: it was never asked, or has been told already")
        if (latency_us is None) == (failure is None):
            raise ValueError(f"exactly one of latency and failure must be given, but got {latency_us} and {failure}")
        trial, _ = self._open.pop(candidate.trial)
        if record is not None:
            trial.set_user_attr("record", record)
        if latency_us is None:
            self._fail(trial, str(failure))
        else:
            self._latencies[candidate.key] = latency_us
            self.study.tell(trial, latency_us)

    def seed_records(self, records: Iterable[Record]) -> int:
        """Add what is stored as finished trials, which teach and are not asked again; returns how many fitted.

        Records of another space version or of unknown sketches are left out, and so are faults of nobody's, and what
        was imported and has not been verified here.
        """
        import optuna

        added = 0
        for record in records:
            key = self.search_space.stored(record)
            if key is None or key in self._seen or tells_nothing(record.failure):
                continue
            if record.imported and not record.verified:
                continue  # a stranger's word
            self._seen.add(key)
            attrs: dict[str, Any] = {"record": record.id, "seeded": True, RUN: f"{record.run}/{record.stage}"}
            state = optuna.trial.TrialState.COMPLETE
            if record.latency_us is None:
                state = optuna.trial.TrialState.FAIL
                attrs["kind"] = record.failure
            params = self.search_space.params(key)
            self.study.add_trial(
                optuna.create_trial(
                    state=state,
                    value=record.latency_us,
                    params=params,
                    distributions=self._distributions(key),
                    user_attrs=attrs,
                )
            )
            added += 1
        self.seeded += added
        return added

    def foretold(self, candidate: Candidate) -> Foretold | None:
        """The model's prediction for a candidate; None for candidates of other samplers, and for random ones."""
        if self.model is None:
            return None
        for plan in reversed(self.model.rounds):
            score = plan.predicted.get(candidate.key)
            if score is not None:
                return Foretold(model=plan.model, batch=plan.number, score=score) if abs(score) < 1e6 else None
        return None

    @property
    def rank_metrics(self) -> list[RankMetrics]:
        """Per planned batch with measurements, how well its order was foretold; empty for other samplers."""
        if self.model is None:
            return []
        metrics = [plan.metrics(self._latencies) for plan in self.model.rounds]
        return [m for m in metrics if m.measured]

    def mirror(self, place: str, name: str, until: float | None = None) -> int:
        """Copy finished trials that are not there yet to the study `name` in an Optuna storage, in whole trials.

        `place` is as in `optuna_storage`; after `until` (`time.monotonic`) none is begun.  Returns how many were
        added.  Proposals that were never built (masked or known) stay out.
        """
        mirror = self._mirrors.get((place, name))
        if mirror is None:
            mirror = self._mirrors[place, name] = _Mirror(place, name)
        return mirror.update(self.study, until)

    def _ask_first(self, count: int) -> list[Candidate]:
        """Up to `count` of the candidates that are to be asked before all others, of those found before a deadline."""
        (first, lessons), self._transferred = self._transferred, NOTHING
        with contextlib.suppress(OutOfTime):
            if first is not None and not self.seeded:
                for key in first(self.search_space):
                    if key not in self._waiting:
                        self._waiting.append(key)
            if lessons is not None and self.model is not None:
                self.model.learn_from(lessons(self.search_space))
        keys, self._waiting = self._waiting[:count], self._waiting[count:]
        return [found for key in keys if (found := self._ask_for(key)) is not None]

    def _ask_for(self, key: Key) -> Candidate | None:
        self.study.enqueue_trial(self.search_space.params(key))
        return self._accept(self.study.ask())

    def _ask_one(self) -> Candidate | None:
        for _ in range(ATTEMPTS):
            candidate = self._accept(self.study.ask())
            if candidate is not None:
                return candidate
        key = self.search_space.fresh(self._rng, self._seen)
        return None if key is None else self._ask_for(key)

    def _accept(self, trial: optuna.Trial) -> Candidate | None:
        """The trial's candidate when it is possible and new; else None."""
        number = trial.suggest_int(SKETCH, *self._sketch_limits())
        limits = zip(self.search_space.names[number], self.search_space.limits(number), strict=True)
        choice = tuple(trial.suggest_int(name, low, high) for name, (low, high) in limits)
        candidate = Candidate(trial.number, number, choice)
        possible = self.search_space.possible(candidate.key)
        if not possible or candidate.key in self._seen:
            self._refuse(trial, DUPLICATE if possible else MASKED)
            return None
        self._seen.add(candidate.key)
        self._open[trial.number] = (trial, candidate)
        return candidate

    def _refuse(self, trial: optuna.Trial, kind: str) -> None:
        """Close a proposal that is not handed out.

        It fails, which no sampler learns from: a known candidate that was told as a bad one, as a pruned trial is,
        would turn TPE away from the good ones that it keeps proposing.
        """
        self._fail(trial, kind)

    def _fail(self, trial: optuna.Trial, kind: str) -> None:
        import optuna

        trial.set_user_attr("kind", kind)
        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _sketch_limits(self) -> tuple[int, int]:
        """The range of the sketch parameter: a single value when pins leave a single sketch."""
        if len(self.search_space.open) == 1:
            return self.search_space.open[0], self.search_space.open[0]
        return 0, len(self.search_space.sketches) - 1

    def _distributions(self, key: Key) -> dict[str, optuna.distributions.BaseDistribution]:
        """The distributions of a candidate that pins may have ruled out: every alternative."""
        from optuna.distributions import IntDistribution

        decisions = self.search_space.sketches[key[0]].decisions
        sizes = dict(zip(self.search_space.names[key[0]], (len(d.labels) for d in decisions), strict=True))
        sizes[SKETCH] = len(self.search_space.sketches)
        return {name: IntDistribution(0, size - 1) for name, size in sizes.items()}

    def _sampler(self, name: str, seed: int, batch: int) -> optuna.samplers.BaseSampler:
        import optuna

        if name not in SAMPLERS:
            near = difflib.get_close_matches(name, SAMPLERS, 1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(SAMPLERS)}"
            raise ValueError(f"unknown sampler `{name}`{hint}")
        check_packages(name)
        if name == DEFAULT:
            from .sampler import ModelSampler

            self.model = ModelSampler(self.search_space, self.space.target, seed=seed, batch=batch)
            return self.model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of options and samplers alike
            sampler: optuna.samplers.BaseSampler = getattr(optuna.samplers, SAMPLERS[name])(
                seed=seed, **OPTIONS.get(name, {})
            )
        return sampler


class _Mirror:
    """A study in an Optuna storage that receives whole trials, each once."""

    def __init__(self, place: str, name: str) -> None:
        import optuna

        self.study = optuna.create_study(
            study_name=name, storage=optuna_storage(place), direction="minimize", load_if_exists=True
        )
        attrs = [trial.user_attrs for trial in self.study.get_trials(deepcopy=False)]
        self._records = {a["record"] for a in attrs if "record" in a}
        self._copied: set[int] = set()

    def update(self, source: optuna.Study, until: float | None) -> int:
        added = 0
        for trial in source.get_trials(deepcopy=False):
            if until is not None and time.monotonic() >= until:
                break
            if not trial.state.is_finished() or trial.number in self._copied:
                continue
            known = trial.user_attrs.get("record") in self._records
            if not known and trial.user_attrs.get("kind") not in (MASKED, DUPLICATE):
                self.study.add_trial(trial)
                added += 1
            self._copied.add(trial.number)  # not before it is there: Ctrl-C may come in between
        return added


def optuna_storage(place: str) -> optuna.storages.BaseStorage | str:
    """What Optuna takes as storage: a URL as it is, or the journal in the file of that path.

    A journal takes a trial in a thousandth of the time that Optuna's tables need for its parameters.  Who reads it
    locks nothing; a lock that a killed writer left behind is taken over after some seconds.  All studies of a journal
    that are open share one storage, since each storage reads all that is written to the journal.
    """
    if "://" in place:
        return place
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    storage = _JOURNALS.get(place)
    if storage is None:
        storage = JournalStorage(JournalFileBackend(place, JournalFileSymlinkLock(place, LOCK_SECONDS)))
        _JOURNALS[place] = storage
    return storage


_JOURNALS: WeakValueDictionary[str, optuna.storages.BaseStorage] = WeakValueDictionary()
