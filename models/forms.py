"""Which of several forms of a network runs: with fewer multiplications here and there, or as it is written.

What was measured decides: the form whose kernels, in the layouts that the database keeps for it, take the least time
together.  Where no form has kernels for all of its programs, it is the one that the bounds of `winograd` say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .chosen import as_kept
from .run.kernels import best_record
from .tasks import tasks_of
from .weights import without_subnormals
from .winograd import with_winograd

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.records.database import Database
    from .network import Network


class Forms:
    """The forms of a network by number, each made when it is asked for first."""

    def __init__(self, forms: Iterator[Network]) -> None:
        self._left = forms
        self._made: list[Network] = []

    def __getitem__(self, number: int) -> Network:
        while len(self._made) <= number:
            made = next(self._left, None)
            if made is None:
                raise IndexError(number)
            self._made.append(made)
        return self._made[number]

    def __len__(self) -> int:
        self._made += self._left
        return len(self._made)

    def __iter__(self) -> Iterator[Network]:
        return iter([self[number] for number in range(len(self))])


def forms_of(network: Network, target: Target, winograd: bool) -> Forms:
    """The forms of a network with its operators in groups, the first as the bounds say; each form once.

    The others take V and M for cached wherever they are, and take no convolution apart.
    """

    def made() -> Iterator[Network]:
        if not winograd or target.kind != "cpu":
            yield without_subnormals(network)
            return
        seen: set[tuple[str, ...]] = set()
        makers: list[Callable[[], Network]] = [
            lambda: with_winograd(network, cache=target.l3_bytes), lambda: with_winograd(network), lambda: network,
        ]  # fmt: skip
        for make in makers:
            form = make()
            names = tuple(node.name for node in form.nodes)
            if names not in seen:
                seen.add(names)
                yield without_subnormals(form)

    return Forms(made())


def fastest(forms: Forms, target: Target, database: Database, tuning: bool = False) -> Network:
    """The form that runs; before `tuning`, the first as long as it has no kernels for all of its programs."""
    if len(forms) == 1:
        return forms[0]
    known = {number: us for number, form in enumerate(forms) if (us := measured_us(form, target, database)) is not None}
    if not known or (tuning and 0 not in known):
        return forms[0]
    return forms[min(known, key=known.__getitem__)]


def measured_us(network: Network, target: Target, database: Database) -> float | None:
    """The sum of what the kernels of a network took when they were tuned; None where a program has none."""
    total = 0.0
    for item in tasks_of(as_kept(network, target, database), target):
        record = best_record(item.task, database)
        if record is None or record.latency_us is None:
            return None
        total += item.weight * record.latency_us
    return total
