"""Models that write to what they are given, or to their own buffers: in place, as in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stridesmith as ss  # noqa: E402
from stridesmith.pytorch import dynamo  # noqa: E402
from stridesmith.pytorch.capture import write_in_place  # noqa: E402
from stridesmith.pytorch.race import Race  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing compiled before, and an empty database."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "empty.db"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def won(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Race:
    """A race that kernels win, after some rounds."""
    for _ in range(2):
        ours()
        theirs()
    return Race(1.0, 2.0)


def compiled(model: Any) -> Any:
    return torch.compile(model, backend=ss.torch.backend, options={"threads": 1, "race": won})


class Cached(torch.nn.Module):  # type: ignore[misc]
    """A product whose results are kept, one for each place, and what is kept as a whole."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer, self.last = how, torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.register_buffer("cache", torch.zeros(2, 6, 4))

    def forward(self, x: Any, place: Any) -> Any:
        new = self.layer(x)
        if self.how == "index":
            self.cache[:, place] = new
        elif self.how == "copy":
            self.cache.index_copy_(1, place, new)
        elif self.how == "slice":
            self.cache[:, 2:3] = new
        else:
            self.cache.add_(new)
        return self.last(torch.relu(self.cache))


@pytest.mark.parametrize("how", ["index", "copy", "slice", "sum"])
def test_a_cache_is_written_in_place(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and cache are eager's after each call, the races have written nothing, and only a place is copied."""
    torch.manual_seed(0)
    model = Cached(how).eval()
    theirs, memory = copy.deepcopy(model), model.cache.data_ptr()
    modules: list[Any] = []
    forward = dynamo.Options.compiled_by_torch

    def spied(options: Any, module: Any, inputs: Any) -> Any:
        modules.append(module)
        return forward(options, module, inputs)

    monkeypatch.setattr(dynamo.Options, "compiled_by_torch", spied)
    with torch.no_grad():
        made = compiled(model)
        for place in (2, 4):
            given = torch.randn(2, 1, 4), torch.tensor([place])
            torch.testing.assert_close(made(*given), theirs(*given), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(model.cache, theirs.cache, rtol=1e-5, atol=1e-6)
    assert model.cache.data_ptr() == memory
    called = [str(node.target) for node in modules[0].graph.nodes]
    assert any("laid_out" in name or "run" in name for name in called), called  # some kernel is there
    in_place = {"index": "index_put_.default", "copy": "index_copy_.default", "slice": "copy_.default"}
    assert how == "sum" or any(in_place[how] in name for name in called), called


def test_an_input_is_written_to() -> None:
    """A tensor of the caller has the new values after the call, once."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4).eval()

    def model(x: Any, total: Any) -> Any:
        y = layer(x)
        total.add_(y)
        return torch.relu(y * total)

    x, mine, theirs = torch.randn(3, 4), torch.zeros(3, 4), torch.zeros(3, 4)
    with torch.no_grad():
        made = compiled(model)
        for _ in range(2):
            torch.testing.assert_close(made(x, mine), model(x, theirs), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def graph_of(read_later: bool, through_a_view: bool = False) -> Any:
    """A graph that puts a row into an input, and may read the old value afterwards."""
    graph = torch.fx.Graph()
    cache, row = graph.placeholder("cache"), graph.placeholder("row")
    view = graph.call_function(torch.ops.aten.view.default, (cache, [12])) if through_a_view else cache
    new = graph.call_function(torch.ops.aten.slice_scatter.default, (cache, row, 0, 1, 2))
    last = graph.call_function(torch.ops.aten.neg.default, (view if read_later else new,))
    graph.output((new, last))
    return graph


@pytest.mark.parametrize("through_a_view", [False, True])
@pytest.mark.parametrize("read_later", [False, True])
def test_an_old_value_that_is_read_later_is_kept(read_later: bool, through_a_view: bool) -> None:
    """Only where nothing reads it, by itself or by a view, is it written over."""
    graph = graph_of(read_later, through_a_view)
    cache, row = torch.arange(12.0).reshape(3, 4), torch.ones(1, 4)
    right = torch.fx.Interpreter(torch.fx.GraphModule({}, graph)).run(cache.clone(), row)
    write_in_place(graph, [0])
    mine = cache.clone()
    found = torch.fx.Interpreter(torch.fx.GraphModule({}, graph)).run(mine, row)
    for value, expected in zip(found, right, strict=True):
        torch.testing.assert_close(value, expected)
    assert (found[0] is mine) != read_later
