"""Which form of a network runs: what was measured decides, and the bounds where nothing was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from network_maker import Maker
from record_makers import make_record

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.models import api
from stridesmith.models import forms as forms_module
from stridesmith.models.api import fastest_of, forms, network_of
from stridesmith.models.network import Network, Operator
from stridesmith.models.tasks import tasks_of
from stridesmith.search.records.database import Database

CPU = replace(discover("cpu", threads=1), l3_bytes=8 << 20)
SMALL_CACHE = replace(CPU, l3_bytes=1 << 10)


def convolution() -> Network:
    """One that saves 31 multiplications for each element."""
    make = Maker()
    x, w = make.input(1, 64, 28, 28), make.constant(64, 64, 3, 3)
    return make.network(make.work("conv2d", x, w, n=1, ci=64, co=64, h=28, w=28, k=3, layout="nchw", pad=1))


def programs(network: Network) -> list[str]:
    return [node.func.name for node in network.nodes if isinstance(node, Operator)]


FEWER = ["winograd_data", "winograd_sums", "winograd_result"]


def measure(networks: Sequence[tuple[Network, float]], db: Path) -> None:
    """Store a record of each program, which together take so many microseconds."""
    with Database(db) as database:
        for network, us in networks:
            tasks = tasks_of(network, SMALL_CACHE)
            for item in tasks:
                task, share = item.task, us / len(tasks)
                fields = {"script": task.script, "target": task.target.to_json(), "interface": dict(task.interface)}
                database.put_records([make_record(share, **fields)])


def test_the_bounds_decide_where_nothing_was_measured(tmp_path: Path) -> None:
    """Fewer multiplications where V and M stay in the cache, and those of the program where they do not."""
    db = str(tmp_path / "empty.db")
    for target, wanted in ((CPU, FEWER), (SMALL_CACHE, ["conv2d"])):
        made = forms(convolution(), target)
        assert sorted(len(form.nodes) for form in made) == [1, 3]
        assert programs(made[0]) == wanted == programs(network_of(convolution(), target))
        assert fastest_of(made, target, db) is made[0]
    assert [programs(form) for form in forms(convolution(), CPU, winograd=False)] == [["conv2d"]]


def test_other_forms_are_made_where_something_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a database the first one is all that is wanted, and all that is made."""
    calls: list[float] = []
    right = forms_module.with_winograd

    def counted(network: Network, cache: float = math.inf) -> Network:
        calls.append(cache)
        return right(network, cache=cache)

    monkeypatch.setattr(forms_module, "with_winograd", counted)
    assert programs(fastest_of(forms(convolution(), CPU), CPU, str(tmp_path / "none.db"))) == FEWER
    assert len(calls) == 1
    measure([(convolution(), 1.0)], tmp_path / "measured.db")
    fastest_of(forms(convolution(), CPU), CPU, str(tmp_path / "measured.db"))
    assert len(calls) == 3


@pytest.mark.parametrize(("direct", "fewer", "wanted"), [(20.0, 30.0, "direct"), (30.0, 20.0, "fewer")])
def test_what_was_measured_decides(direct: float, fewer: float, wanted: str, tmp_path: Path) -> None:
    """The form whose kernels take less time together, whatever the bounds say, before a run and after it."""
    db = tmp_path / "measured.db"
    made = forms(convolution(), SMALL_CACHE)
    measure(list(zip(made, (direct, fewer), strict=True)), db)
    for tuning in (False, True):
        assert fastest_of(made, SMALL_CACHE, str(db), tuning) is made[["direct", "fewer"].index(wanted)]


def test_a_form_that_was_measured_alone_runs_and_the_other_one_is_tuned(tmp_path: Path) -> None:
    """Its kernels are there; a run looks for those of the form that the bounds say."""
    db = tmp_path / "measured.db"
    made = forms(convolution(), SMALL_CACHE)
    measure([(made[1], 20.0)], db)
    assert fastest_of(made, SMALL_CACHE, str(db)) is made[1]
    assert fastest_of(made, SMALL_CACHE, str(db), tuning=True) is made[0]


def test_a_form_with_a_program_that_was_not_measured_is_unknown(tmp_path: Path) -> None:
    """Two of three operators say nothing of the whole."""
    db = tmp_path / "measured.db"
    made = forms(convolution(), CPU)
    assert len(made[0].nodes) == 3
    part = made[0].with_nodes(made[0].nodes[:2], made[0].tensors)
    measure([(part, 1.0), (made[1], 20.0)], db)
    assert fastest_of(made, SMALL_CACHE, str(db)) is made[1]


@pytest.mark.parametrize("winograd", [True, False])
def test_compiled_models_are_of_the_fastest_form(
    winograd: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is asked for the one as it is written."""
    monkeypatch.setattr(api, "compiled", lambda network, *_: network)
    db, made = tmp_path / "measured.db", forms(convolution(), SMALL_CACHE)
    measure(list(zip(made, (30.0, 20.0), strict=True)), db)
    found: object = ss.compile(convolution(), SMALL_CACHE, db=str(db), winograd=winograd)
    assert isinstance(found, Network)
    assert programs(found) == (FEWER if winograd else ["conv2d"])
