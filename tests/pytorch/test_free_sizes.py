"""Graphs of PyTorch whose sizes are free: one compilation for a range, and what PyTorch computes at every size."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_parts import parts_of  # noqa: E402

import stridesmith as ss  # noqa: E402
from stridesmith.errors import UsageError  # noqa: E402
from stridesmith.models.ranges.model import RangedModel  # noqa: E402
from stridesmith.pytorch import dynamo  # noqa: E402
from stridesmith.pytorch.operators import SizedCaller, for_part  # noqa: E402
from stridesmith.pytorch.race import Race, overall  # noqa: E402
from stridesmith.pytorch.strides import in_order, order_of  # noqa: E402
from stridesmith.search.workers import jobs, kernel_cache, spread  # noqa: E402
from stridesmith.search.workers.protocol import Build, Built, Failed  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing compiled before, and an empty database: kernels by the estimate alone."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "empty.db"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Written:
    """The programs as they are written, which takes a tenth of the time that the estimate takes."""

    def __enter__(self) -> Callable[[Iterable[Build]], list[Built | Failed]]:
        return lambda asked: [jobs.run(replace(job, estimated=None)) for job in asked]

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "AllCores", Written)
    monkeypatch.setattr(kernel_cache, "stored", lambda question: None)
    monkeypatch.setattr(kernel_cache, "store", lambda question, reply: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes of all calls that kernels have run."""
    found: list[tuple[int, ...]] = []
    run = RangedModel.at

    def at(self: RangedModel, sizes: tuple[int, ...], *given: Any) -> Any:
        found.append(tuple(sizes))
        return run(self, sizes, *given)

    monkeypatch.setattr(RangedModel, "at", at)
    return found


def won(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Race:
    ours()
    theirs()
    return Race(1.0, 2.0)


def compiled(model: Any, **options: Any) -> Any:
    dynamic = options.pop("dynamic", True)
    return torch.compile(
        model, backend=ss.torch.backend, dynamic=dynamic, options={"threads": 1, "race": won, **options}
    )


class Attention(torch.nn.Module):  # type: ignore[misc]
    """A block as transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.normal, self.given, self.result = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        batch, rows, width = x.shape
        heads = self.given(self.normal(x)).chunk(3, -1)
        q, k, v = (part.view(batch, rows, 2, 8).transpose(1, 2) for part in heads)
        taken = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.result(taken.transpose(1, 2).reshape(batch, rows, width))


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def convolutions() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 4, 3, stride=2, padding=1), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]]]] = {
    "layers": (layers, [(7 + 13 * k, 16) for k in range(10)]),
    "convolutions": (convolutions, [(2 + k, 3, 20 + 3 * k, 24 + 5 * k) for k in range(10)]),
    "attention": (Attention, [(2 + k % 4, 9 + 7 * k, 16) for k in range(10)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_compilation_for_ten_sizes(name: str, calls: list[tuple[int, ...]]) -> None:
    """With ``dynamic=True`` the kernels of the first call run all others, and PyTorch compiles nothing any more."""
    make, shapes = MODELS[name]
    model = make().eval()
    with torch.no_grad():
        made = compiled(model)
        for number, shape in enumerate(shapes):
            x = torch.randn(shape)
            with torch._dynamo.config.patch(error_on_recompile=number > 0):
                calls.clear()
                found, right = made(x), model(x)
            assert found.stride() == right.stride() and calls
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_a_marked_dimension_has_the_range_that_is_said(calls: list[tuple[int, ...]]) -> None:
    """`mark_dynamic` frees one dimension, in its range, and no other."""
    model = Attention().eval()
    with torch.no_grad():
        made = compiled(model, dynamic=None)
        for rows in (9, 2, 33, 64):
            x = torch.randn(2, rows, 16)
            torch._dynamo.mark_dynamic(x, 1, min=2, max=64)
            torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
            assert calls.pop() == (rows,)
    x = torch.randn(2, 9, 16)
    torch._dynamo.mark_dynamic(x, 1, min=2, max=64)
    (part,) = parts_of(model, x).parts
    assert part.free is not None and list(map(str, part.free.ranges.values())) == ["2..64"]


def test_what_has_no_end_ends_at_the_largest(calls: list[tuple[int, ...]]) -> None:
    """More rows than kernels take are computed by PyTorch, by the same compilation; a long first call is taken."""
    model = layers().eval()
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        made = compiled(model, largest=40)
        for rows, here in ((7, True), (40, True), (41, False), (3000, False)):
            calls.clear()
            x = torch.randn(rows, 16)
            torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
            assert bool(calls) is here or rows == 7
    (part,) = parts_of(model, torch.randn(1500, 16), dynamic=True).parts
    assert part.free is not None and list(map(str, part.free.ranges.values())) == ["2..1500"]


def test_results_lie_as_those_of_pytorch() -> None:
    """A result in another order of dimensions has its strides at every size."""

    def model(x: Any, w: Any) -> tuple[Any, Any]:
        y = (x @ w).relu().transpose(1, 2) * 2
        return y, y.sum(-1)

    w = torch.randn(16, 5)
    with torch.no_grad():
        made = compiled(model)
        for rows in (7, 3, 20):
            x = torch.randn(3, rows, 16)
            for found, right in zip(made(x, w), model(x, w), strict=True):
                assert found.stride() == right.stride()
                torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_a_part_is_an_operator_for_inductor() -> None:
    """What Inductor knows of a part that has free sizes: its results have shapes that follow from its sizes."""
    (part,) = parts_of(layers().eval(), torch.randn(7, 16), dynamic=True).parts
    assert part.free is not None
    caller = SizedCaller(dynamo.ranged_model_of(part.free, dynamo.Options(threads=1)))
    run = for_part(caller)
    x = torch.randn(9, 16)
    with torch._subclasses.FakeTensorMode() as fake:
        assert run(12, fake.from_tensor(x)).shape == (12, 8)
    assert torch.equal(run(9, x), caller.run(9, x)) and caller.run(9, x).shape == (9, 8)


def test_positions_are_as_long_as_the_call(calls: list[tuple[int, ...]]) -> None:
    """A constant whose length is a size is the beginning of the longest; what counts sizes is computed of them."""
    table, product = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 8)

    def model(x: Any) -> Any:
        rows = x.shape[1]
        return product(x + table(torch.arange(rows))) / rows

    with torch.no_grad():
        made = compiled(model, largest=64)
        for rows in (7, 3, 64):
            x = torch.randn(2, rows, 16)
            calls.clear()
            torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
            assert calls


def test_weights_that_change_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    """As with one shape: PyTorch runs the graph from then on, at all sizes."""
    model = layers().eval()
    with torch.no_grad():
        made = compiled(model)
        made(torch.randn(7, 16))
        model[0].weight.mul_(2)
        for rows in (7, 9):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
    assert "weights have changed" in caplog.text


def test_kernels_win_by_the_mean_over_sizes(caplog: pytest.LogCaptureFixture) -> None:
    """A part that is faster at one size and far slower at others stays with PyTorch."""
    times = iter([Race(1.0, 2.0), Race(9.0, 1.0), Race(1.0, 1.5)])
    model, x = layers().eval(), torch.randn(7, 16)
    with torch.no_grad():
        made = compiled(model, race=lambda ours, theirs: next(times))
        torch.testing.assert_close(made(x), model(x))
    assert "are not faster" in caplog.text
    assert overall([Race(1.0, 2.0), Race(4.0, 8.0)]) == Race(2.0, 4.0)


def test_what_is_no_one_program_stays(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be one network for all sizes is left to PyTorch with the reason."""
    caplog.set_level(logging.WARNING, "stridesmith")

    def model(x: Any, w: Any) -> Any:
        return (x @ w).reshape(-1, x.shape[0] // 2 + 1, 6).softmax(-1) if x.shape[0] % 2 else x @ w

    found = parts_of(lambda x: torch.nn.functional.adaptive_avg_pool2d(x.relu(), 3) + 1, torch.randn(2, 3, 9, 11),
                     dynamic=True)  # fmt: skip
    assert all(part.free is None for part in found.parts) and found.refused
    x, w = torch.randn(7, 16), torch.randn(16, 24)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x, w), model(x, w), rtol=1e-5, atol=1e-5)


def test_orders_of_dimensions() -> None:
    """Dense tensors have an order of dimensions, which all sizes share, or none."""
    wide = [torch.empty(rows, 3, 5).permute(2, 0, 1) for rows in (4, 1)]
    order = order_of(wide)
    assert order == (1, 2, 0)
    assert in_order(torch.arange(60.0).reshape(5, 4, 3), order).stride() == wide[0].stride()
    assert order_of([torch.empty(4, 5), torch.empty(5, 4).t()]) is None
    assert order_of([torch.empty(4, 1).expand(4, 5)]) is None


def test_the_option_is_a_number() -> None:
    """What `largest` may be is said."""
    with pytest.raises(UsageError, match="the option `largest` is a number above 1, but got 0"):
        ss.torch.backend(torch.fx.symbolic_trace(layers()), [], options={"largest": 0})
