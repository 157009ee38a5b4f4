"""Results of a compiled model lie in memory as PyTorch's own: strides, and which of them share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stridesmith as ss  # noqa: E402
from stridesmith.pytorch import dynamo  # noqa: E402
from stridesmith.pytorch.race import Race  # noqa: E402
from stridesmith.pytorch.strides import laid_out  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing compiled before, and an empty database: kernels by the estimate alone."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "empty.db"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Any, **options: Any) -> tuple[Any, list[int]]:
    """A model whose kernels win all races, and a list that grows with them."""
    races: list[int] = []

    def won(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Race:
        ours()
        theirs()
        races.append(len(races))
        return Race(1.0, 2.0)

    return torch.compile(model, backend=ss.torch.backend, options={"threads": 1, "race": won, **options}), races


torch.manual_seed(0)
CONV, NEXT = torch.nn.Conv2d(4, 6, 3, padding=1).eval(), torch.nn.Conv2d(6, 5, 3, padding=1).eval()
LINEAR, POOL = torch.nn.Linear(4, 4).eval(), torch.nn.AdaptiveAvgPool2d(1)
IMAGE, ROWS = torch.randn(2, 4, 5, 7), torch.randn(3, 4)
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)


def with_views(x: Any) -> Any:
    y = CONV(x)
    return y, y.permute(0, 2, 3, 1), y[:, 1], y.view(2, -1), torch.relu(y.permute(0, 2, 3, 1))


def with_its_convolution(x: Any) -> Any:
    y = CONV(x)
    return y, NEXT(y)


def with_clones(x: Any) -> Any:
    y = torch.relu(CONV(x))
    return y, y.clone(), y.clone(memory_format=torch.contiguous_format)


def expanded_and_read(x: Any) -> Any:
    y = LINEAR(x).mean(-1, keepdim=True).expand(3, 4)
    return y, torch.relu(y + 1)


def split_and_read(x: Any) -> Any:
    first, second = LINEAR(x).split(2, -1)
    return first, second, torch.relu(first)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "channels_last": (lambda x: torch.relu(CONV(x)), CHANNELS_LAST),
    "pooled": (lambda x: torch.nn.functional.max_pool2d(CONV(x), 2), CHANNELS_LAST),
    "pooled to one place": (lambda x: POOL(torch.relu(CONV(x))), CHANNELS_LAST),
    "pooled to one place and flat": (lambda x: POOL(CONV(x)).flatten(1) + 1, CHANNELS_LAST),
    "a part of an input": (lambda x: torch.relu(CONV(x[:, :, 1:, ::2])), torch.randn(2, 4, 6, 14)),
    "expanded input": (lambda x: torch.sigmoid(x) * 2 + x, torch.randn(1, 4).expand(3, 4)),
    "a result that another part reads": (with_its_convolution, CHANNELS_LAST),
    "a part that PyTorch's operators read": (lambda x: NEXT(torch.sort(CONV(x), 1).values), CHANNELS_LAST),
    "a view": (lambda x: CONV(x).permute(0, 2, 3, 1), IMAGE),
    "a value and its views": (with_views, IMAGE),
    "a value and its clones": (with_clones, CHANNELS_LAST),
    "expanded": (expanded_and_read, ROWS),
    "split": (split_and_read, ROWS),
    "views of an input": (lambda x: (x.permute(0, 2, 3, 1), CONV(x), x.permute(0, 2, 3, 1) + 1, x), IMAGE),
    "transposed input": (lambda x: torch.sigmoid(x) * 2 + x, torch.randn(4, 3, 5).permute(2, 0, 1)),
    "extents of 1": (lambda x: torch.relu(CONV(x))[:, :1].contiguous(memory_format=torch.channels_last), IMAGE),
}


def sharing(results: Sequence[Any], x: Any) -> list[tuple[int, int]]:
    """The pairs of results, and of a result and the input, that are the same memory."""
    memory = [tensor.untyped_storage().data_ptr() for tensor in (*results, x)]
    return [(a, b) for a in range(len(results)) for b in range(a) if memory[a] == memory[b]] + [
        (a, -1) for a in range(len(results)) if memory[a] == memory[-1]
    ]


@pytest.mark.parametrize("name", CASES)
def test_results_lie_as_those_of_pytorch(name: str) -> None:
    """Strides are eager's, and writing to one result changes those that it would change there, and no other."""
    model, x = CASES[name]
    with torch.no_grad():
        made, races = compiled(model)
        right, found = model(x), made(x)
        again = made(x)
    assert races
    for results in (found, again):
        mine, theirs = ([each] if isinstance(each, torch.Tensor) else list(each) for each in (results, right))
        assert [tensor.stride() for tensor in mine] == [tensor.stride() for tensor in theirs]
        assert sharing(mine, x) == sharing(theirs, x)
        for ours, expected in zip(mine, theirs, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_view_outside_of_the_graph() -> None:
    """What eager code does with a result of a ``channels_last`` model, compiled code can do."""
    with torch.no_grad():
        made, _ = compiled(CONV)
        flat = made(CHANNELS_LAST).permute(0, 2, 3, 1).view(-1, 6)
        torch.testing.assert_close(flat, CONV(CHANNELS_LAST).permute(0, 2, 3, 1).view(-1, 6), rtol=1e-4, atol=1e-5)


def test_parts_read_each_other_in_c_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What kernels give and other kernels take is not copied: PyTorch's operators alone read what was laid out."""
    modules: list[Any] = []
    forward = dynamo.Options.compiled_by_torch

    def spied(options: Any, module: Any, inputs: Any) -> Any:
        modules.append(module)
        return forward(options, module, inputs)

    def model(x: Any) -> Any:
        y = CONV(x)
        return NEXT(y * torch.sort(y, 1).values)

    monkeypatch.setattr(dynamo.Options, "compiled_by_torch", spied)
    with torch.no_grad():
        made, races = compiled(model)
        found, right = made(CHANNELS_LAST), model(CHANNELS_LAST)
    assert len(races) == 3 and found.stride() == right.stride()
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
    copies = [node for node in modules[0].graph.nodes if node.target is laid_out]
    readers = [str(reader.target) for copy in copies for reader in copy.users]
    assert readers == ["aten.sort.default", "output"]


def test_laying_out_copies_only_where_memory_differs() -> None:
    """Strides of extents of 1 say nothing about memory."""
    x = torch.randn(2, 1, 3)
    assert laid_out(x, (3, 1, 1)).data_ptr() == x.data_ptr()
    turned = laid_out(x, (1, 2, 2))
    assert turned.stride() == (1, 2, 2) and turned.data_ptr() != x.data_ptr() and torch.equal(turned, x)


def test_restarts_of_dynamo_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A number that PyTorch wants to read anew is no failure: nothing is logged of it, and results are right."""

    def model(x: Any, slope: float) -> Any:
        return torch.nn.functional.leaky_relu(x @ x.T, slope).sum(-1)

    x = torch.randn(4, 8)
    with torch.no_grad():
        made = torch.compile(model, backend=ss.torch.backend, dynamic=True)
        for slope in (1.5, 2.5):
            torch.testing.assert_close(made(x, slope), model(x, slope))
    assert not [record for record in caplog.records if record.exc_info or "failed" in record.getMessage()]
