"""`torch.compile` with this backend: what runs here, what stays with PyTorch, and what is refused."""

from __future__ import annotations

import importlib
import logging
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_parts import rows_masked  # noqa: E402

import stridesmith as ss  # noqa: E402
from stridesmith.pytorch import dynamo  # noqa: E402
from stridesmith.pytorch.call import Call  # noqa: E402
from stridesmith.pytorch.race import Race, race  # noqa: E402
from stridesmith.pytorch.weights import Weights  # noqa: E402


class Races:
    """Races whose results are told before; each is run once."""

    def __init__(self, *results: bool) -> None:
        self.results = list(results)

    def __call__(self, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Race:
        ours()
        theirs()
        return Race(1.0, 2.0 if self.results.pop(0) else 1.0)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing compiled before, and an empty database: kernels by the estimate alone."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "empty.db"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Any, *results: bool, **options: Any) -> Any:
    races = Races(*results)
    made = torch.compile(model, backend=ss.torch.backend, options={"threads": 1, "race": races, **options})
    return made, races


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()


def ran_here(caplog: pytest.LogCaptureFixture) -> bool:
    return any("runs with kernels" in record.getMessage() for record in caplog.records)


def test_a_model_runs_here_and_is_right(caplog: pytest.LogCaptureFixture) -> None:
    """What won its races is computed by kernels, to the rounding of float32."""
    caplog.set_level(logging.INFO, "stridesmith")
    model, x = network(), torch.randn(3, 6)
    with torch.no_grad():
        made, races = compiled(model, True, True)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
        other = torch.randn(3, 6)
        torch.testing.assert_close(made(other), model(other), rtol=1e-5, atol=1e-6)
    assert ran_here(caplog) and not races.results
    with torch.inference_mode():
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("results", [(False,), (True, False)], ids=["part", "whole"])
def test_what_loses_stays_with_pytorch(results: tuple[bool, ...]) -> None:
    """A part that lost its race, or a whole that did, leaves the graph as Dynamo gave it."""
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU()))
    found: list[Any] = []

    def spied(graph: Any, inputs: Any) -> Any:
        kept = ss.torch.backend(graph, inputs, options={"threads": 1, "race": Races(*results)})
        found.append(getattr(kept, "__self__", None) is graph)
        return kept

    with torch.no_grad():
        torch.compile(module, backend=spied)(torch.randn(3, 6))
    assert found == [True]


def test_parts_around_an_unknown_operator() -> None:
    """What there is no program for runs in PyTorch, between the parts that run here."""
    first, second = network(), network()

    def model(x: Any) -> Any:
        return second(torch.cat([first(x), first(x)], 1).sort(-1).values[:, :6])

    x = torch.randn(3, 6)
    with torch.no_grad():
        made, races = compiled(model, True, True, True)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
    assert not races.results


def test_a_part_reads_what_another_part_gives() -> None:
    """Around what runs in PyTorch, as skip connections do."""
    first, second = network(), torch.nn.Linear(4, 4).eval()

    def model(x: Any) -> Any:
        y = first(x)
        return second(y.sort(-1).values) + y

    x = torch.randn(3, 6)
    with torch.no_grad():
        made, races = compiled(model, True, True, True)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
    assert not races.results


def test_a_part_that_computes_something_else_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it races it is compared with PyTorch: a mistake in the table costs speed and no result."""
    model, x = network(), torch.randn(3, 6)

    class Wrong(dynamo.Caller):
        def __init__(self, kernel: Any) -> None:
            super().__init__(kernel)
            self.run = lambda *given: torch.zeros(3, 4)

    monkeypatch.setattr(dynamo, "Caller", Wrong)
    with torch.no_grad():
        made, _ = compiled(model)
        torch.testing.assert_close(made(x), model(x))
    assert any("its kernels give other results" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
def test_a_result_and_its_clone_are_two_tensors(others: bool) -> None:
    """What the model copied can be written to without changing what it was copied from, also if that was given."""
    layers = network()

    def model(x: Any) -> Any:
        y = layers(x)
        return (y, y.clone(), y + 1, x.clone()) if others else (y, y.clone())

    x = torch.randn(3, 6)
    with torch.no_grad():
        made, races = compiled(model, True, True)
        results = made(x)
        for found, expected in zip(results, model(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not races.results
    assert len({each.data_ptr() for each in (x, *results)}) == len(results) + 1


def test_training_is_refused() -> None:
    """A call that wants gradients is an error that says what to do."""
    made, _ = compiled(network())
    with pytest.raises(Exception, match=r"inference alone.*torch\.no_grad\(\)"):
        made(torch.randn(3, 6))
    frozen = network().requires_grad_(False)
    made, _ = compiled(frozen, True, True)
    torch.testing.assert_close(made(torch.ones(3, 6)), frozen(torch.ones(3, 6)), rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match="inference alone"):
        made(torch.randn(3, 6, requires_grad=True))


def test_modules_in_training_mode_stay(caplog: pytest.LogCaptureFixture) -> None:
    """A module that counts statistics does so once for each call, and PyTorch runs it."""
    model, same = torch.nn.BatchNorm1d(6).train(), torch.nn.BatchNorm1d(6).train()
    x = torch.randn(3, 6)
    with torch.no_grad():
        made, _ = compiled(model)
        for _ in range(2):
            torch.testing.assert_close(made(x), same(x))
    torch.testing.assert_close(model.running_mean, same.running_mean)
    assert any("model.eval()" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("how", ["written", "replaced", "data", "written data", "array"])
def test_weights_that_change_are_seen(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A weight that is written to, or another tensor, gives the results that it gives in PyTorch."""
    model, x = network(), torch.randn(3, 6)
    with torch.no_grad():
        made, _ = compiled(model, True, True)
        made(x)
        if how == "written":
            model[0].weight.mul_(2)
        elif how == "replaced":
            model[0].weight = torch.nn.Parameter(model[0].weight * 2)
        elif how == "written data":
            model[0].weight.data.mul_(2)
        elif how == "array":
            model[2].bias.numpy(force=True)[:] = 1
        else:
            model[0].weight.data = model[0].weight.data * 2
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
    assert any("weights have changed" in record.getMessage() for record in caplog.records)


def test_weights_are_sampled_where_they_lie() -> None:
    """Writing to any of many weights is seen, however it lies in memory, also where PyTorch does not count it."""
    shapes: list[tuple[int, ...]] = [(7, 5), (), (0,), (3,), (300, 2)]
    values = [torch.zeros(shape, dtype=dtype) for shape in shapes for dtype in (torch.float32, torch.int64)]
    values += [torch.zeros(9, 4).t(), torch.zeros(8, 8)[:, 3:5], *(torch.zeros(1) for _ in range(80))]
    weights = Weights([None, *values])
    for value in values:
        assert weights.unchanged([None, *values])
        value.numpy()[...] = 1
        assert weights.unchanged([None, *values]) == (value.numel() == 0)
        value.numpy()[...] = 0
    assert Weights([None]).unchanged([None])


def test_weights_without_a_version_may_change(caplog: pytest.LogCaptureFixture) -> None:
    """A weight that was created under inference_mode is no constant of the kernels, which read it anew each time."""
    caplog.set_level(logging.INFO, "stridesmith")
    with torch.inference_mode():
        model, x = network(), torch.randn(3, 6)
        made, _ = compiled(model, True, True)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
        model[0].weight.mul_(2)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)
    assert ran_here(caplog)


def test_other_shapes() -> None:
    """A second shape, for which PyTorch compiles with dynamic extents, works as before."""
    model = network()
    with torch.no_grad():
        made, _ = compiled(model, *[True] * 2)
        for rows in (3, 5, 7):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype: str) -> None:
    """Other types run here or stay, and are right to their own rounding."""
    model = network().to(getattr(torch, dtype))
    x = torch.randn(3, 6).to(getattr(torch, dtype))
    with torch.no_grad():
        made, _ = compiled(model, True, True)
        torch.testing.assert_close(made(x), model(x))


def test_kernels_that_are_not_faster_are_told_with_their_times(caplog: pytest.LogCaptureFixture) -> None:
    """What the estimate likes best has lost its race: PyTorch runs all, and a warning tells both times and `tune`."""
    model, x = network(), torch.randn(3, 6)
    with torch.no_grad():
        made, _ = compiled(model, False)
        torch.testing.assert_close(made(x), model(x))
    (told,) = [record.getMessage() for record in caplog.records if "stays with PyTorch" in record.getMessage()]
    assert "the kernels of 1 of its 1 parts are not faster" in told and "failed" not in told
    assert "1.000 s with kernels, 1.000 s without" in told
    assert "`stridesmith.torch.tune(model, example, seconds=...)` looks for faster ones" in told


@pytest.mark.parametrize("won", [False, True])
def test_a_model_is_compiled_only_if_all_of_it_is_faster(won: bool) -> None:
    """After the races of the part and of the graph, one of whole calls decides; else the model itself comes back."""
    model, x = network(), torch.randn(3, 6)
    races = Races(True, True, won)
    made = ss.torch.compile(model, x, threads=1, race=races)
    assert (made is model) != won and races.results == []
    with torch.no_grad():
        torch.testing.assert_close(made(x), model(x))
    with pytest.raises(ss.UsageError, match=r"training mode.*model\.eval\(\)"):
        ss.torch.compile(network().train(), x)


def test_options() -> None:
    """An option that there is not is named, with the one that was meant."""
    with torch.no_grad(), pytest.raises(Exception, match=r"no option 'thread' .did you mean 'threads'"):
        torch.compile(network(), backend=ss.torch.backend, options={"thread": 1})(torch.randn(3, 6))
    for wrong, words in (({"db": 5}, "`db` is the path or URL"), ({"threads": 0}, "`threads` is a number above 0")):
        with pytest.raises(Exception, match=words):
            torch.compile(network(), backend=ss.torch.backend, options=wrong)(torch.randn(3, 6))
    with torch.no_grad(), pytest.raises(Exception, match="`rest` is 'eager' or 'inductor'"):
        compiled(network(), rest="none")[0](torch.randn(3, 6))
    with torch.no_grad(), pytest.raises(Exception, match="`winograd` is True or False, but got 'no'"):
        compiled(network(), winograd="no")[0](torch.randn(3, 6))


def test_the_entry_point_is_the_backend() -> None:
    """``backend="stridesmith"`` is what PyTorch finds in the package's metadata."""
    path = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if not path.exists():
        pytest.skip("the tests run without their checkout")
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = entries["stridesmith"].partition(":")
    assert getattr(import_module(module), name) is ss.torch.backend


def test_recurrent_layers_are_in_the_graphs_of_the_backend_by_name() -> None:
    """Naming it lets Dynamo read them, which leaves them out of its graphs otherwise."""
    layer, x = torch.nn.GRU(6, 5).eval(), torch.randn(4, 2, 6)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=False):
        named = importlib.reload(import_module("stridesmith.pytorch.named"))
        assert torch._dynamo.config.allow_rnn and named.backend is ss.torch.backend
        made, races = compiled(layer, True, True)
        for found, right in zip(made(x), layer(x), strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)
            assert found.stride() == right.stride()
    assert not races.results


class Clock:
    """A clock that calls move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds

        return call


@pytest.mark.parametrize(("ours", "won"), [(0.5, True), (0.97, True), (0.99, False), (1.0, False), (2.0, False)])
def test_a_race_is_won_by_more_than_noise(ours: float, won: bool) -> None:
    """What takes as long as before, or almost, does not take its place."""
    clock = Clock()
    result = race(clock.takes(ours * 1e-3), clock.takes(1e-3), clock)
    assert result.won is won
    assert result.ours == pytest.approx(ours * 1e-3) and result.theirs == pytest.approx(1e-3)


def masked_attention(q: Any, kv: Any, mask: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q * 2, kv, kv, attn_mask=mask)


def test_masked_rows_are_right_with_kernels(caplog: pytest.LogCaptureFixture) -> None:
    """A row of -inf is 0, one of the lowest number the mean of the values."""
    caplog.set_level(logging.INFO)
    given = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 5, 4), rows_masked(5, torch.float32)
    made, races = compiled(masked_attention, True, True)
    with torch.no_grad():
        result, expected = made(*given), masked_attention(*given)
    assert ran_here(caplog) and not races.results
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turned", [torch.finfo(torch.float32).min, -torch.inf])
def test_kernels_that_take_the_lowest_number_for_infinity_stay_out(
    turned: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random mask would not tell them apart."""
    caplog.set_level(logging.INFO)
    right = Call.number
    monkeypatch.setattr(Call, "number", lambda self, value, dtype: right(self, max(value, turned), dtype))
    made, _ = compiled(masked_attention, True, True)
    with torch.no_grad():
        made(torch.randn(1, 2, 6, 4), torch.randn(1, 2, 5, 4), torch.zeros(6, 5))
    told = any("its kernels give other results" in record.getMessage() for record in caplog.records)
    assert told == (turned == torch.finfo(torch.float32).min)
