"""What each decision of a search was worth: Optuna's importances, and the best that each alternative came to."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..candidates.search_space import SearchSpace

if TYPE_CHECKING:
    from ...space.design.space import Space
    from ..records.record import Record

SKETCH = "sketch"
LEAST_TRIALS = 8
"""Of fewer measurements nothing is said."""


@dataclass(frozen=True)
class Tried:
    """One alternative: in how many valid candidates, and the latency of the fastest of them."""

    label: str
    count: int
    best_us: float


@dataclass(frozen=True)
class Worth:
    """A decision, by its name without the sketch; importances of all decisions add up to 1.

    `chosen` is the alternative of the fastest candidate, empty where its sketch lacks the decision; `tried` are all
    that were measured, the fastest first.
    """

    name: str
    kind: str
    importance: float
    chosen: str
    tried: tuple[Tried, ...]

    @property
    def cost(self) -> float | None:
        """How many times as long the fastest candidate with any other alternative took; None where there is none."""
        mine = next((t.best_us for t in self.tried if t.label == self.chosen), None)
        others = [t.best_us for t in self.tried if t.label != self.chosen]
        return min(others) / mine if mine and others else None


def worth_of(space: Space, records: Iterable[Record]) -> tuple[Worth, ...]:
    """Every decision in which measured candidates differ, the most important first; nothing of too few of them."""
    if not space.sketches:
        return ()  # the records are of another generator's space
    search_space = SearchSpace(space)
    rows: list[tuple[dict[str, str], float]] = []
    kinds = {SKETCH: SKETCH}
    for record in records:
        key = search_space.stored(record)
        if key is None or record.latency_us is None:
            continue
        sketch = space.sketches[key[0]]
        row = {SKETCH: sketch.name}
        for decision, index in zip(sketch.decisions, key[1:], strict=True):
            name = decision.name.removeprefix(f"{sketch.name}/")
            row[name], kinds[name] = decision.labels[index], decision.kind
        rows.append((row, record.latency_us))
    if len(rows) < LEAST_TRIALS:
        return ()
    best = min(rows, key=lambda item: item[1])[0]
    found = [
        Worth(name, kinds[name], importance, best.get(name, ""), _tried(name, rows))
        for name, importance in importances(rows).items()
    ]
    return tuple(sorted(found, key=lambda worth: -worth.importance))


def importances(rows: Sequence[tuple[Mapping[str, str], float]]) -> dict[str, float]:
    """How much each choice matters for being among the fastest, by Optuna's PED-ANOVA; they add up to 1.

    `rows` are choices by name with a latency; a choice that only some rows have is judged by these.
    """
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    labels: dict[str, list[str]] = {}
    for row, _ in rows:
        for name, label in row.items():
            known = labels.setdefault(name, [])
            if label not in known:
                known.append(label)
    open_choices = {n: CategoricalDistribution(sorted(found)) for n, found in labels.items() if len(found) > 1}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    raw: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is experimental in Optuna
        for names in _together(open_choices, rows):
            mine = [(row, us) for row, us in rows if names[0] in row]
            study = optuna.create_study(direction="minimize")
            for row, latency_us in mine:
                params = {name: row[name] for name in names}
                study.add_trial(optuna.trial.create_trial(
                    params=params, distributions={name: open_choices[name] for name in names}, value=latency_us,
                ))  # fmt: skip
            evaluator = PedAnovaImportanceEvaluator()
            found = get_param_importances(study, evaluator=evaluator, params=names, normalize=False)
            share = len(mine) / len(rows)
            raw.update({name: share * value for name, value in found.items()})
    total = sum(raw.values())
    return {name: value / total if total > 0 else 0.0 for name, value in raw.items()}


def _together(choices: Iterable[str], rows: Sequence[tuple[Mapping[str, str], float]]) -> list[list[str]]:
    """Names that the same rows have, of at least `LEAST_TRIALS`."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in choices:
        members = tuple(number for number, (row, _) in enumerate(rows) if name in row)
        if len(members) >= LEAST_TRIALS:
            groups.setdefault(members, []).append(name)
    return list(groups.values())


def _tried(name: str, rows: Sequence[tuple[Mapping[str, str], float]]) -> tuple[Tried, ...]:
    times: dict[str, list[float]] = {}
    for row, latency_us in rows:
        if name in row:
            times.setdefault(row[name], []).append(latency_us)
    found = [Tried(label, len(us), min(us)) for label, us in times.items()]
    return tuple(sorted(found, key=lambda tried: tried.best_us))
