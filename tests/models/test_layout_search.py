"""Which combinations of layouts are tried, by a simulated device; what was chosen is kept, found again and runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from network_maker import Maker, computed, drawn

from stridesmith import configs
from stridesmith.backends.devices import discover
from stridesmith.errors import BadRecord, Interrupted
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.models import layout_search, tuning
from stridesmith.models.alternatives import alternatives
from stridesmith.models.api import compiled
from stridesmith.models.chosen import Chosen, in_layouts, keep, kept
from stridesmith.models.fusion import fused
from stridesmith.models.layout_search import LayoutSearch
from stridesmith.models.network import Network, problems
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.task import Roof, Task
from stridesmith.search.tuning import scheduler
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Job, Measure, Measured, MeasureRoof, Race, Raced, Roofed

CPU = configs.target("cpu-avx2")


@pytest.fixture(scope="module")
def network() -> Network:
    """Three convolutions in a row, with a pool and a sum around the second."""
    make = Maker()
    first = _conv(make, make.input(1, 3, 8, 8), 8)
    second = make.map("{0} + {1}", _conv(make, _conv(make, first, 8), 8), first)
    pooled = make.work("max_pool2d", second, c=8, h=8, w=8, k=2, stride=2, pad=0)
    return fused(make.network(_conv(make, pooled, 4, k=1)), CPU)


def _conv(make: Maker, x: str, co: int, k: int = 3) -> str:
    _, ci, h, w = make.shape(x)
    made = make.work("conv2d", x, make.constant(co, ci, k, k), ci=ci, co=co, h=h, w=w, k=k, pad=k // 2)
    return make.map("T.max({0}, T.float32(0))", made)


@dataclass
class Known:
    """A share of a scheduler without workers."""

    run: Any
    weight: int
    number: int
    best_us: float | None = None
    known_us: float | None = None
    loop: Any = 1
    turns: float = 0.0
    stored: float = 0.0
    hoped_us: float = 0.0
    is_exhausted: bool = False
    is_untried: bool = True
    is_playing: bool = False

    @property
    def trial_us(self) -> float | None:
        return self.best_us


@dataclass
class Device:
    """A scheduler without workers: a turn of a task makes what it takes known, and more turns find nothing more."""

    blocked: float
    limit: float = 40.0
    clock: Any = field(default_factory=lambda: SimpleNamespace(seconds=0.0))
    is_ending: bool = False
    is_whole: bool = True
    shares: list[Known] = field(default_factory=list)

    def add(self, task: Task, weight: int) -> Any:
        self.shares.append(Known(SimpleNamespace(task=task), weight, len(self.shares)))
        return self.shares[-1]

    def us(self, task: Task) -> float:
        """What a task takes: less where all that has a layout is in blocks, more where only some of it is."""
        tensors = [buffer for buffer in task.work.func.buffers if task.interface[buffer.name] == "fixed"]
        maps = {name: layout.index_map.text for name, layout in task.work.func.layouts}
        cut = [" // " in maps.get(buffer.name, "") for buffer in tensors]
        moved = 0.001 * sum(buffer.size for buffer in tensors)
        if task.work.name == "copy":
            return 1.0 + moved
        return 10.0 * (self.blocked if all(cut) else 1.0 if not any(cut) else (1.0 + self.blocked) / 2) + moved

    def turn(self, guide: LayoutSearch) -> None:
        open_shares = [share for share in self.shares if share.weight]
        share = max(open_shares, key=lambda one: one.weight * (one.hoped_us if one.is_untried else 1 / (1 + one.turns)))
        share.turns, share.is_untried, share.best_us = share.turns + 1, False, self.us(share.run.task)
        self.clock.seconds += 1.0
        guide.revise(self)  # type: ignore[arg-type]


def searched(network: Network, blocked: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Device, LayoutSearch]:
    """The network after forty turns."""
    monkeypatch.setattr(layout_search, "predicted_us", lambda *_: 1.0)
    device, guide = Device(blocked), LayoutSearch(network, alternatives(network, CPU), CPU)
    for task, weight in guide.first_tasks():
        device.add(task, weight)
    while any(share.is_untried for share in device.shares):
        share = next(share for share in device.shares if share.is_untried)
        share.turns, share.is_untried, share.best_us = 1.0, False, device.us(share.run.task)
    guide.revise(device)  # type: ignore[arg-type]
    while device.clock.seconds < device.limit:
        device.turn(guide)
    device.is_ending = True
    guide.revise(device)  # type: ignore[arg-type]
    return device, guide


@pytest.mark.parametrize(("blocked", "wins"), [(0.5, True), (1.5, False)])
def test_the_layouts_that_measure_best_are_found(
    network: Network, blocked: float, wins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where kernels in blocks are faster, everything between them is in blocks; else nothing is, without copies."""
    device, guide = searched(network, blocked, monkeypatch)
    chosen = Chosen.of(guide.alternatives, guide.best())
    between = [name for name in network.tensors if len(guide.alternatives[name]) > 1 and name in network.producer]
    assert all(bool(name in chosen.written and chosen.written[name].blocks) is wins for name in between)
    known = sum(not share.is_untried for share in device.shares)
    combinations = sum(len(grid.combinations) for grid in guide.tables.grids.values())
    assert known < combinations / 2, "most combinations were never measured"
    if not wins:
        assert guide.best().cost <= sum(device.us(task) * n for task, n in guide.first_tasks())


@pytest.mark.parametrize("liked", ["", "%"])
def test_it_starts_with_what_the_estimate_likes(network: Network, liked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one rule for all tensors: as ONNX has them, or in blocks."""

    def estimated(func: PrimFunc, *_: object) -> float:
        cut = [" % " in layout.index_map.text for _, layout in func.layouts]
        return 1.0 if any(cut) is bool(liked) else 2.0

    monkeypatch.setattr(layout_search, "predicted_us", estimated)
    guide = LayoutSearch(network, alternatives(network, CPU), CPU)
    texts = [task.script for task, _ in guide.first_tasks()]
    assert any(" % " in text for text in texts) is bool(liked)


def test_while_an_operator_is_unknown_all_stay_in_the_layouts_that_they_began_with(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was tuned in them runs then, and the others beside it: a run may be too short for a turn of each."""
    monkeypatch.setattr(layout_search, "predicted_us", in_blocks)
    guide, device = LayoutSearch(network, alternatives(network, CPU), CPU), Device(0.5)
    for task, weight in guide.first_tasks():
        device.add(task, weight)
    assert guide.predicted_us(device) is None and not guide.knows_something  # type: ignore[arg-type]
    for share in device.shares[:2]:
        share.turns, share.is_untried, share.best_us = 1.0, False, device.us(share.run.task)
        assert guide.predicted_us(device) is None and guide.knows_something  # type: ignore[arg-type]
        assert dict(guide.best().written) == dict(guide.start.written)
    assert any(guide.start.written.values())


def begun(network: Network, estimate: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Device, LayoutSearch]:
    """The network after one turn of each task that it starts with."""
    monkeypatch.setattr(layout_search, "predicted_us", estimate)
    device, guide = Device(1.0), LayoutSearch(network, alternatives(network, CPU), CPU)
    for task, weight in guide.first_tasks():
        device.add(task, weight)
    for share in device.shares:
        share.turns, share.is_untried, share.best_us = 1.0, False, device.us(share.run.task)
    return device, guide


def test_what_would_save_little_is_hoped_to_gain_little(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first turn counts for its share of what the hopeful whole saves, where that is a few hundredths of it."""
    device, guide = begun(network, lambda *_: 1.0, monkeypatch)
    guide.revise(device)  # type: ignore[arg-type]
    eager = [share.hoped_us / device.us(share.run.task) for share in device.shares if share.weight and share.is_untried]
    assert eager and min(eager) > 0.2, "all untried combinations may be 15 % faster"
    monkeypatch.setattr(layout_search, "UNTRIED", 0.985)
    monkeypatch.setattr(layout_search, "CARRIED", 1.0)
    device, guide = begun(network, lambda *_: 1.0, monkeypatch)
    guide.revise(device)  # type: ignore[arg-type]
    calm = [share.hoped_us / device.us(share.run.task) for share in device.shares if share.weight and share.is_untried]
    assert calm and max(calm) < 0.1


def test_each_try_lowers_the_hope_for_the_others(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kind, where combinations come out as they resemble each other: else it goes around in them for long."""
    device, guide = begun(network, lambda *_: 1.0, monkeypatch)
    guide.revise(device)  # type: ignore[arg-type]
    price = guide._price(layout_search.UNTRIED)
    grids = guide.tables.grids
    kind = next(kind for kind, grid in grids.items() if kind in guide.base and len(grid.combinations) > 5)
    open_ones = [layouts for _, layouts in grids[kind].combinations if price(kind, layouts) < inf][1:]
    before = {layouts: price(kind, layouts) for layouts in open_ones}
    share = guide._share(kind, open_ones[0], device)  # type: ignore[arg-type]
    share.is_untried, share.turns, share.best_us = False, 1.0, device.us(share.run.task)
    after = guide._price(layout_search.UNTRIED)
    bare = [k for k in open_ones[1:] if not any(layout.has_halo for layout in k) and k != guide.base[kind]]
    assert bare and any(after(kind, layouts) > 1.02 * before[layouts] for layouts in bare)


def test_estimates_of_one_revision_are_few(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builders wait for them; those with most work come first, and the others in their turn."""
    asked: list[str] = []
    device, guide = begun(network, lambda func, *_: asked.append(func.name) or 1.0, monkeypatch)
    known = len(asked)
    guide.revise(device)  # type: ignore[arg-type]
    assert 0 < len(asked) - known <= 2 * layout_search.ESTIMATES, "each with that of what its kind began with"


def test_nothing_new_is_tried_late(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tried gets the last quarter of the seconds, where that is a whole."""
    for is_whole in (True, False):
        device, guide = begun(network, lambda *_: 1.0, monkeypatch)
        device.clock.seconds, device.is_whole = 0.8 * device.limit, is_whole
        monkeypatch.setattr(layout_search, "UNSEEN", 0.5)
        guide.revise(device)  # type: ignore[arg-type]
        assert any(share.is_untried for share in device.shares if share.weight) is not is_whole


def test_what_is_being_measured_is_not_taken_for_impossible(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task in its first turn has no result yet; one whose turn gave none is avoided, its kind's others are not."""
    device, guide = begun(network, lambda *_: 1.0, monkeypatch)
    guide.predicted_us(device)  # type: ignore[arg-type]
    first = device.shares[0]
    kind, layouts = next(at for at in guide.base.items() if guide._share(*at, device) is first)  # type: ignore[arg-type]
    first.best_us, first.is_playing = None, True
    assert guide._price(1.0)(kind, layouts) == layout_search.UNKNOWN_US
    first.is_playing = False
    assert guide._price(1.0)(kind, layouts) == layout_search.FAILED_US
    others = [k for _, k in guide.tables.grids[kind].combinations if k != layouts]
    assert all(guide._price(1.0)(kind, k) < layout_search.FAILED_US for k in others)


def in_blocks(func: PrimFunc, *_: object) -> float:
    """An estimate that likes blocks."""
    return 1.0 if any(" % " in layout.index_map.text for _, layout in func.layouts) else 2.0


def test_what_is_agreed_on_was_measured(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """However cheap other layouts would be if they were as hoped."""
    monkeypatch.setattr(layout_search, "predicted_us", lambda *_: 1.0)
    guide = LayoutSearch(network, alternatives(network, CPU), CPU)
    device = Device(0.5)
    for task, weight in guide.first_tasks():
        device.add(task, weight)
    guide.revise(device)  # type: ignore[arg-type]
    for share in device.shares[: len(guide.first_tasks())]:
        share.best_us, share.is_untried, share.turns = 1e6, False, 1.0
    guide.revise(device)  # type: ignore[arg-type]
    assert guide.is_measured(guide.best())
    assert dict(guide.tables.chosen(guide.best())) == guide.base


def test_an_earlier_choice_is_known_from_the_start(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs are tasks before anything is chosen, so that what the database has of them counts."""
    _, before = searched(network, 0.5, monkeypatch)
    earlier = Chosen.of(before.alternatives, before.best())
    guide, device = LayoutSearch(network, before.alternatives, CPU, earlier=earlier), Device(0.5)
    for task, weight in guide.first_tasks():
        device.add(task, weight)
    assert guide.predicted_us(device) is None  # type: ignore[arg-type]
    assert len(device.shares) > len(guide.first_tasks())
    for share in device.shares:
        share.is_untried, share.best_us = False, device.us(share.run.task)
    assert (guide.predicted_us(device) or inf) <= before.best().cost + 1e-6  # type: ignore[arg-type]


def test_rules_for_all_are_wholes_of_what_is_known(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form that tensors may have is a rule, and costs at least what was agreed on."""
    _, guide = searched(network, 0.5, monkeypatch)
    wholes = dict(guide.uniform())
    assert {tuple(d.dim for d in form) for form in wholes} >= {(0, 1, 2, 3), (0, 2, 3, 1)}
    assert all(agreement.cost >= guide.best().cost for agreement in wholes.values())


def test_what_was_kept_before_races(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are more wholes than race, once, and behind what is agreed on."""
    _, guide = searched(network, 0.5, monkeypatch)
    earlier = Chosen({name: some[1] for name, some in guide.alternatives.items() if len(some) > 1})
    monkeypatch.setattr(tuning, "WHOLES", 2)
    found = tuning._wholes(guide, earlier)
    assert list(found) == ["agreed", "kept before"] and found["kept before"] == earlier
    assert list(tuning._wholes(guide, found["agreed"])) == ["agreed", "as given"]


def test_only_what_was_measured_races(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole under a rule for all tensors is left out where one of its kernels is a guess."""
    device, guide = searched(network, 0.5, monkeypatch)
    found = tuning._wholes(guide, None)
    known = {task.script for task in (share.run.task for share in device.shares if share.best_us is not None)}
    assert len(found) > 1
    monkeypatch.setattr(guide, "is_measured", lambda agreement: False)
    assert list(tuning._wholes(guide, None)) == ["agreed"]
    assert known >= {guide._task(*at).script for at in guide.tables.chosen(guide.best())}


def test_a_short_run_tunes_before_it_races() -> None:
    """Whole models take two seconds at least, but never most of them."""
    found = [round(tuning.racing_seconds(seconds), 3) for seconds in (1, 10, 100, 1000)]
    assert found == [0.3, 2.0, 8.0, 45.0]


# ---------------------------------------------------------------- what was chosen


def blocked_choice(network: Network, target: Target) -> Chosen:
    """Everything in the last of its alternatives, blocks with a halo where there is one."""
    found = alternatives(network, target)
    written = {name: some[-1] for name, some in found.items() if len(some) > 1 and name in network.producer}
    read = {
        (node.name, name): Layout.plain(network.tensors[name].shape)
        for node in network.nodes
        for name in node.inputs
        if name in written and not any(output in written for output in node.outputs)
    }
    return Chosen(written, read)


def test_a_choice_is_kept_and_runs(network: Network, tmp_path: Path) -> None:
    """The database gives back what was stored, and the model computes what the network means, copies included."""
    target = discover("cpu", 2)
    chosen = blocked_choice(network, target)
    assert chosen.written and chosen.read and Chosen.from_json(chosen.to_json()) == chosen
    db = str(tmp_path / "own.db")
    with Database(db) as database:
        assert kept(network, target, database) is None
        keep(Chosen(), network, target, database)
        keep(chosen, network, target, database)
        assert kept(network, target, database) == chosen
        assert kept(network, replace(target, threads=1), database) is None
    model = compiled(network, target, db)
    assert model.network == in_layouts(network, chosen) and len(model.network.nodes) > len(network.nodes)
    for seed in range(2):
        given = drawn(network, seed)
        for name, array in computed(network, given).items():
            np.testing.assert_array_equal(model(given)[name], array)


def test_copies_in_layouts_of_one_label_are_apart() -> None:
    """Halos of two widths around one tensor."""
    make = Maker()
    middle = make.map("{0} + {0}", make.input(3, 4))
    network = make.network(make.map("T.max({0}, T.float32(0))", middle), make.map("{0} * {0}", middle))
    narrow, wide = (Layout.ordered((3, 4), before=(0, n), after=(0, n)) for n in (4, 8))
    readers = [node.name for node in network.nodes[1:]]
    made = in_layouts(network, Chosen(read={(readers[0], middle): narrow, (readers[1], middle): wide}))
    assert narrow.label == wide.label and list(problems(made)) == []
    assert len({node.inputs for node in made.nodes[-2:]}) == 2


def test_a_choice_that_does_not_fit_is_left_alone(network: Network, tmp_path: Path) -> None:
    """One for other operators is not used; one that is no choice at all is refused in one sentence."""
    with Database(str(tmp_path / "own.db")) as database:
        other = Chosen({network.outputs[0]: Layout.ordered((1, 4, 4, 4), (0, 2, 3, 1))})
        keep(other, network, CPU, database)
        assert kept(network, CPU, database) is None
        for data in ({}, [1], {"written": {"t1": {"shape": [1], "order": [3]}}, "read": []}):
            with pytest.raises(BadRecord, match="not a"):
                Chosen.from_json(data)


class Here:
    """An executor that builds in this process, and draws what kernels take; where tensors are moved, `moved` times."""

    until: float | None = None
    measured = 0

    def __init__(self, moved: float) -> None:
        self.notes: list[str] = []
        self.moved = moved

    def wait(self, tell: Any = None) -> None:
        """Nothing starts."""

    def scale_up(self, pays: bool) -> None:
        """There is no more to be had."""

    def build(self, wanted: Any, done: Any = None) -> list[Any]:
        return [jobs.run(job) for job in wanted]

    def measure(self, wanted: Any, done: Any = None) -> list[Any]:
        replies = []
        for number, job in enumerate(wanted):
            replies.append(self._reply(job))
            if done is not None:
                done(number, replies[-1])
        return replies

    def _reply(self, job: Job) -> Any:
        if isinstance(job, MeasureRoof):
            return Roofed(roof=Roof(100.0, 1e10))
        factor = self.moved if isinstance(job, Measure) and '"layouts"' in (job.work.script or "") else 1.0
        if isinstance(job, Race):
            return Raced(results=tuple(self._timed(factor) for _ in job.kernels), roof=None)
        return self._timed(factor)

    def _timed(self, factor: float) -> Measured:
        self.measured += 1
        return Measured(samples=(1e-6 * factor * (5 + 7 * self.measured % 11),) * 3, max_abs_error=0.0)

    def close(self) -> None:
        """Nothing ends."""


def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: float = 1.0) -> tuple[Network, Target, str, Here]:
    """Two convolutions, and an executor whose every measurement takes a quarter of a second, however long it takes."""
    make, executor = Maker(), Here(moved)
    monkeypatch.setattr(tuning.time, "monotonic", lambda: executor.measured / 4)
    monkeypatch.setattr("stridesmith.search.tuning.clock.crowding", lambda: 1.0)
    monkeypatch.setattr(scheduler, "FIRST", 2)
    monkeypatch.setattr(scheduler, "BATCH", 3)
    network = fused(make.network(_conv(make, _conv(make, make.input(1, 3, 8, 8), 16), 4, k=1)), CPU)
    return network, discover("cpu", 2), str(tmp_path / "own.db"), executor


def test_a_network_is_tuned_with_its_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Combinations are measured besides the given layouts, whole models race, and the winner is what is kept."""
    monkeypatch.setattr(layout_search, "predicted_us", lambda *_: 1.0)
    network, target, db, executor = _small(tmp_path, monkeypatch, moved=0.3)
    found = tuning.tune_network(network, target, 12, db=db, executor=executor)  # type: ignore[arg-type]
    assert set(found.wholes) >= {"agreed", "as given"}
    assert repr(found).count("\n") == 1 and repr(found).startswith(f"<Tuned {network.name}: ")
    assert f"{found.trials} candidates in {found.seconds:.0f} s" in repr(found) and "agreed" in found._repr_html_()
    given = drawn(network)
    for name, array in computed(network, given).items():
        np.testing.assert_array_equal(found.model(given)[name], array)
    assert compiled(network, target, db).network == found.model.network
    with Database(db) as database:
        assert any('"layouts"' in record.script for record in database.every())


@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_is_cut_short_keeps_the_layouts_of_what_it_found(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are of programs in layouts: without them nothing that was found would run.  The error says how far.

    An earlier choice stays where the best of what is known has its layouts.
    """
    network, target, db, executor = _small(tmp_path, monkeypatch)
    in_blocks = '"layouts"'
    monkeypatch.setattr(layout_search, "predicted_us", lambda func, *_: 1.0 if in_blocks in func.script() else 2.0)

    def interrupted(event: dict[str, Any]) -> None:
        if event["event"] == "turn" and event["predicted_us"] is not None:
            raise KeyboardInterrupt

    for _ in range(1 + again):
        with pytest.raises(Interrupted, match=r"what was measured so far .*; its best kernels so far are expected to"):
            tuning.tune_network(network, target, 60, db=db, executor=executor, emit=interrupted)  # type: ignore[arg-type]
    model = compiled(network, target, db)
    assert model.network != network and {kernel.origin for kernel in model.kernels.values()} == {"tuned"}


def test_what_was_agreed_on_outlives_the_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All seconds are spent when whole models race: whatever goes wrong there, the layouts are kept."""
    network, target, db, executor = _small(tmp_path, monkeypatch)
    monkeypatch.setattr(layout_search, "predicted_us", in_blocks)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_apart_where_faster", interrupted)
    with pytest.raises(Interrupted, match="what was measured so far is stored"):
        tuning.tune_network(network, target, 12, db=db, executor=executor)  # type: ignore[arg-type]
    with Database(db) as database:
        assert kept(network, target, database) is not None
    assert {kernel.origin for kernel in compiled(network, target, db).kernels.values()} == {"tuned"}


def test_what_won_a_race_stays_until_it_loses_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected to be faster has not been faster yet: a race that is cut short decides nothing."""
    network, target, db, executor = _small(tmp_path, monkeypatch)
    monkeypatch.setattr(layout_search, "predicted_us", lambda *_: 1.0)
    with monkeypatch.context() as patched:
        patched.setattr(tuning, "_winner", lambda rules, times: rules[-1])
        tuning.tune_network(network, target, 12, db=db, executor=executor)  # type: ignore[arg-type]
    with Database(db) as database:
        won = kept(network, target, database)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_apart_where_faster", interrupted)
    with pytest.raises(Interrupted, match="what was measured so far is stored"):
        tuning.tune_network(network, target, 12, db=db, executor=executor)  # type: ignore[arg-type]
    with Database(db) as database:
        assert kept(network, target, database) == won


def test_what_a_first_turn_found_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cut short before every operator has a kernel keeps the layouts of the one that has."""
    network, target, db, executor = _small(tmp_path, monkeypatch)
    monkeypatch.setattr(layout_search, "predicted_us", in_blocks)

    def interrupted(event: dict[str, Any]) -> None:
        if event["event"] == "turn":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="what was measured so far"):
        tuning.tune_network(network, target, 60, db=db, executor=executor, emit=interrupted)  # type: ignore[arg-type]
    origins = sorted(kernel.origin for kernel in compiled(network, target, db).kernels.values())
    assert origins == ["estimated", "tuned"]


def test_a_run_that_is_cut_short_at_once_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While some operator has no kernel there is no whole to keep."""
    network, target, db, executor = _small(tmp_path, monkeypatch)

    def interrupted(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as raised:
        tuning.tune_network(network, target, 60, db=db, executor=executor, emit=interrupted)  # type: ignore[arg-type]
    assert "expected to" not in str(raised.value)
    with Database(db) as database:
        assert kept(network, target, database) is None
