"""In which layouts a network runs of which nothing was measured: what the database keeps comes first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network_maker import Maker, computed, drawn

from stridesmith import configs
from stridesmith.backends.devices import discover
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models import layout_search, unmeasured
from stridesmith.models.alternatives import alternatives
from stridesmith.models.api import compiled
from stridesmith.models.chosen import Chosen, keep
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network
from stridesmith.models.tasks import tasks_of
from stridesmith.models.unmeasured import laid_out, likely
from stridesmith.search.records.database import Database

CPU = configs.target("cpu-avx2")
ORDERS = {True: (0, 2, 3, 1), False: (0, 1, 2, 3)}


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Three convolutions of single pixels, large enough to be asked for, of which nothing is kept."""
    monkeypatch.setattr(unmeasured, "LEAST_FLOPS", 1.0)
    monkeypatch.setattr(unmeasured.CACHE, "name", str(tmp_path / "layouts"))
    make = Maker()
    x = make.input(1, 8, 6, 6)
    for co in (16, 24, 8):
        _, ci, h, w = make.shape(x)
        made = make.work("conv2d", x, make.constant(co, ci, 1, 1), ci=ci, co=co, h=h, w=w, k=1, pad=0)
        x = make.map("T.max({0}, T.float32(0))", made)
    return fused(make.network(x), CPU)


def likes(channels_last: bool, monkeypatch: pytest.MonkeyPatch) -> list[PrimFunc]:
    """An estimate that likes one order, and the programs that it was asked about."""
    asked: list[PrimFunc] = []

    def predicted(func: PrimFunc, *_: object) -> float:
        asked.append(func)
        return 1.0 if bool(func.layouts) is channels_last else 2.0

    monkeypatch.setattr(layout_search, "predicted_us", predicted)
    return asked


@pytest.mark.parametrize("channels_last", [True, False])
def test_all_tensors_have_the_order_that_the_estimate_likes(
    network: Network, channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels last, between the operators of the network, or as ONNX has it; what was chosen is kept."""
    asked, ahead = likes(channels_last, monkeypatch), list[int]()
    chosen = likely(network, tasks_of(network, CPU), CPU, lambda: ahead.append(len(asked)))
    assert {tuple(dim.dim for dim in layout.dims) for layout in chosen.written.values()} == (
        {ORDERS[True]} if channels_last else set()
    )
    assert asked and ahead == [0]
    asked.clear()
    assert likely(network, tasks_of(network, CPU), CPU, lambda: ahead.append(1)) == chosen and not asked
    assert ahead == [0]


def test_a_small_network_is_as_onnx_has_it(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled sooner, and no slower than can be seen."""
    asked = likes(True, monkeypatch)
    monkeypatch.setattr(unmeasured, "LEAST_FLOPS", 1e7)
    assert likely(network, tasks_of(network, CPU), CPU) == Chosen() and not asked


def test_what_is_added_up_stays_together(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of rows are not asked about in columns, whatever the estimate says of these."""
    asked = likes(True, monkeypatch)
    make = Maker()
    x = make.input(24, 32)
    for n in (48, 16):
        m, k = make.shape(x)
        x = make.map("T.max({0}, T.float32(0))", make.work("matmul", x, make.constant(k, n), m=m, n=n, k=k))
    products = fused(make.network(x), CPU)
    assert any(len(some) > 1 for some in alternatives(products, CPU).values())
    assert likely(products, tasks_of(products, CPU), CPU) == Chosen() and not asked


def test_what_was_measured_comes_before_estimates(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice that the database keeps, and else the layouts in which it has kernels."""
    likes(True, monkeypatch)
    database = Database(str(tmp_path / "kept.db"))
    for known in (None, database):
        found = laid_out(network, tasks_of(network, CPU), CPU, known)
        assert all(node.func.layouts for node in found.nodes)
        assert laid_out(found, tasks_of(found, CPU), CPU, known) is found
    monkeypatch.setattr(unmeasured, "best_record", lambda *_: object())
    assert laid_out(network, tasks_of(network, CPU), CPU, database) is network
    monkeypatch.undo()
    keep(Chosen(), network, CPU, database)
    found = laid_out(network, tasks_of(network, CPU), CPU, database)
    assert [node.func for node in found.nodes] == [node.func for node in network.nodes]


def test_a_network_in_likely_layouts_computes_the_same(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and results lie as ONNX has them."""
    likes(True, monkeypatch)
    host = discover("cpu", 1)
    model = compiled(network, host)
    assert any(node.func.layouts for node in model.network.nodes)
    arrays = drawn(network)
    np.testing.assert_allclose(
        model(arrays)[network.outputs[0]], computed(network, arrays)[network.outputs[0]], rtol=1e-5
    )
