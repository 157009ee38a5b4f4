"""Tuning for a model of PyTorch: which networks are tuned, and that the backend finds what was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stridesmith as ss  # noqa: E402
from stridesmith.errors import NoSchedule  # noqa: E402
from stridesmith.models.chosen import Chosen, keep, kept  # noqa: E402
from stridesmith.models.evaluate import evaluate  # noqa: E402
from stridesmith.models.network import problems  # noqa: E402
from stridesmith.pytorch import dynamo  # noqa: E402
from stridesmith.pytorch.dynamo import Options  # noqa: E402
from stridesmith.pytorch.tuning import _keep_layouts, _networks, union  # noqa: E402
from stridesmith.search.records.database import Database  # noqa: E402


class Searched(NamedTuple):
    trials: int
    seconds: float
    stopped_by: str
    db: str


def halves() -> Any:
    """Two products around an operator that only PyTorch has."""
    torch.manual_seed(0)
    first, second = torch.nn.Linear(6, 8).eval(), torch.nn.Linear(8, 4).eval()

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x).relu().sort(-1).values)

    return Model()


def test_what_a_run_gives_prints_as_two_lines() -> None:
    """How much of the model runs here, and what that has cost; why the rest does not is a table's."""
    found = ss.torch.Tuned(2, 5, 412, 60.2, "seconds", "best.db", ("sort has no program",))
    assert repr(found) == (
        "<Tuned 5 operators in 2 parts of the model; 1 reason why the rest stays with PyTorch, in `left`;\n"
        " 412 candidates in 60 s, stopped by seconds, in best.db>"
    )
    assert "<td>with PyTorch</td><td>sort has no program</td>" in found._repr_html_()
    whole = ss.torch.Tuned(1, 2, 4, 1.0, "trials", "best.db", ())
    assert repr(whole).startswith("<Tuned 2 operators in 1 part of the model;")


def test_the_parts_of_a_model_are_tuned_as_one() -> None:
    """Networks of all parts become one, which computes what each does."""
    torch._dynamo.reset()
    model, x = halves(), torch.randn(3, 6)
    networks, _, left = _networks(model, x, Options(threads=1))
    assert len(networks) == 2 and any("sort" in why for why in left)
    whole = union(networks)
    assert not list(problems(whole))
    with torch.no_grad():
        inner = model.first(x).relu().sort(-1).values
        found = evaluate(whole, dict(zip(whole.inputs, (x.numpy(), inner.numpy()), strict=True)))
        wanted = [model.first(x).relu(), model(x)]
    for value, array in zip(wanted, found.values(), strict=True):
        np.testing.assert_allclose(array, value.numpy(), rtol=1e-5, atol=1e-6)


def test_a_run_that_chose_nothing_leaves_the_choices_of_the_parts(tmp_path: Path) -> None:
    """It was interrupted before there was a whole: what an earlier run kept for a part stays."""
    torch._dynamo.reset()
    options = Options(threads=1, db=str(tmp_path / "torch.db"))
    networks, _, _ = _networks(halves(), torch.randn(3, 6), options)
    earlier = Chosen(apart=frozenset({networks[0].nodes[0].name}))
    with Database(options.db) as database:
        keep(earlier, networks[0], options.target, database)
    _keep_layouts(networks, union(networks), options)
    with Database(options.db) as database:
        assert kept(networks[0], options.target, database) == earlier
        keep(Chosen(apart=frozenset({f"1/{networks[1].nodes[0].name}"})), union(networks), options.target, database)
    _keep_layouts(networks, union(networks), options)
    with Database(options.db) as database:
        assert kept(networks[0], options.target, database) == Chosen()
        assert kept(networks[1], options.target, database) == Chosen(apart=frozenset({networks[1].nodes[0].name}))


def test_a_part_has_the_names_that_its_nodes_give() -> None:
    """Whether a node can be built is tried before, and leaves nothing: choices of layouts are kept by names."""
    torch._dynamo.reset()
    depthwise = torch.nn.Sequential(torch.nn.Conv2d(6, 6, 3, groups=6), torch.nn.ReLU()).eval()
    (network,), _, _ = _networks(depthwise, torch.randn(1, 6, 8, 8), Options(threads=1))
    assert [name for name in network.constants if name.endswith("/constant1")]
    assert not [name for name in network.constants if "'" in name]


def test_one_shape_after_the_other_is_tuned() -> None:
    """Dynamo takes an extent that changes from call to call for open; each example is a shape of its own here."""
    torch._dynamo.reset()
    model = halves()
    for rows in range(2, 14):
        networks, _, _ = _networks(model, torch.randn(rows, 6), Options(threads=1))
        assert [network.tensors[network.inputs[0]].shape[0] for network in networks] == [rows, rows]


def test_a_model_without_programs_is_refused() -> None:
    """There is nothing to tune in what has no program, and the error says what that is."""
    torch._dynamo.reset()
    with pytest.raises(ss.UsageError, match=r"no program for aten\.sort"):
        ss.torch.tune(lambda x: x.sort(-1).values, torch.randn(3, 6), seconds=1)


def test_a_model_in_training_is_refused() -> None:
    """What writes to its statistics has no part to tune."""
    torch._dynamo.reset()
    with pytest.raises(ss.UsageError, match=r"model\.eval\(\)"):
        ss.torch.tune(torch.nn.BatchNorm1d(6).train(), torch.randn(3, 6), seconds=1)


def _tuned(model: torch.nn.Module, x: torch.Tensor, seconds: float, db: str) -> Any:
    """What a run finds; None on a machine so busy that these seconds were over before."""
    try:
        return ss.torch.tune(model, x, seconds=seconds, db=db, threads=1)
    except NoSchedule:
        return None


@pytest.mark.slow
def test_what_was_tuned_is_found(tmp_path: Path) -> None:
    """After tuning the database has kernels for the parts, and a model of them is right."""
    torch._dynamo.reset()
    db = str(tmp_path / "torch.db")
    model, x = torch.nn.Linear(6, 8).eval(), torch.randn(3, 6)
    found = next(filter(None, (_tuned(model, x, seconds, db) for seconds in (20, 60, 180))))
    assert found.parts == 1 and found.operators >= 1 and found.trials > 0 and not found.left

    def spied(part: Any, options: Any, _model_of: Any = dynamo.model_of) -> Any:
        made = _model_of(part, options)
        assert made is not None and {kernel.origin for kernel in made.kernels.values()} == {"tuned"}
        return made

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(dynamo, "model_of", spied)
        made = torch.compile(model, backend=ss.torch.backend, options={"db": db, "threads": 1})
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)


def test_a_run_shows_its_progress_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is tuned, on stderr; events go where they went before."""
    events = list[dict[str, Any]]()

    def run(*_: Any, emit: Any, **__: Any) -> Any:
        emit({"event": "note", "message": "a search goes on"})
        return Searched(1, 1.0, "seconds", "db")

    monkeypatch.setattr("stridesmith.models.tuning.tune_network", run)
    monkeypatch.setattr("stridesmith.pytorch.tuning._keep_layouts", lambda *_: None)
    for progress in (True, False):
        ss.torch.tune(halves(), torch.rand(2, 6), 5, db=str(tmp_path / "t.db"), progress=progress, emit=events.append)
        told = capsys.readouterr().err
        assert ("tuning a Model of PyTorch" in told and "a search goes on" in told) is progress
    assert [event["message"] for event in events] == ["a search goes on"] * 2
